package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"testbed/results/conversations"
	"testbed/results/pcap"
	"testbed/results/rundir"
	"testbed/results/safefile"
	"testbed/topo/magic"
)

const (
	// defaultLimit is the lines of a table of pcap.
	defaultLimit = 20
	// pcapGarbage is how much garbage pcap leaves in memory, percent of what is in use: less than
	// the runtime, because captures may have millions of conversations.
	pcapGarbage = 25
)

// looker is one call of pcap.
type looker struct {
	*app
	order  conversations.Order
	limit  int // lines of a table; 0 is all
	capped bool
	filter []string
	csv    bool
	export string // file or directory; "" for none
	force  bool   // replace existing files by export
}

// listed is a conversation, of which there may be millions.
type listed struct {
	*conversations.Conversation
	capture uint32 // index of the capture
	place   uint32 // before the list is sorted
}

func (a *app) pcapCmd() *cobra.Command {
	l := looker{app: a}
	var order string
	cmd := &cobra.Command{
		Use: "pcap FILE…|RUN", Short: "Show the conversations in captures, of a run or of any program",
		Long: `Pcap reads captures (pcapng or pcap, also in gzip or zstd; of Ethernet, tcpdump -i any,
loopback, raw IP or PPP) and shows what they are and their TCP and UDP conversations: packets and bytes of frames, payload sent again, start, duration
and goodput of the busier direction. Of captures made by a run it names the coflow and flow,
or the block and hop, that each conversation carried. A directory stands for all captures
below it, detected by content, and - for standard input. Numbers of streams are those of Wireshark's tcp.stream and udp.stream; every
capture counts by itself, so what went between two captured hosts is there twice.

Resent are packets that carry what the capture holds already, late those that it does
not hold though it holds later ones: see docs/captures.md. "coflow 3/17" is flow 17 of
coflow 3, "block 7/2" hop 2 of block 7. --json and --csv give each direction's figures
exactly, and all conversations unless --limit is given.

--export writes captures as plain pcapng, for tcpdump and other programs that do not read
zstd as Wireshark and tshark do, and shows no conversations: one capture to a file,
several into a directory.

A capture that is cut off or damaged is shown as far as it could be read; then follows
the error, with the file and the place, and the exit code is 1.`,
		Example: `  testbed pcap runs/quickstart-20260102-150405-ab12 --sort retransmissions
  testbed pcap runs/quickstart-…/sebf+hdfs/0/captures/h0-00.pcapng.zst --filter 'coflow 3 '
  testbed pcap runs/latest --export captures-plain && tcptrace -l captures-plain/sebf+hdfs/0/h0-00.pcapng
  testbed pcap h0-00.pcapng --filter 10.0.3 --filter :50060 --limit 0
  sudo tcpdump -i eth0 -w x.pcap; testbed pcap x.pcap
  ssh router tcpdump -i any -w - | testbed pcap -
  testbed pcap x.pcap --json | jq '.conversations[] | select(.rst_ab + .rst_ba > 0)'
  testbed pcap x.pcap --csv > conversations.csv`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError{fmt.Errorf("pcap: expected captures or run directories (usage: %s)", cmd.UseLine())}
			}
			return nil
		},
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"pcapng", "pcap", "zst", "gz"}, cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if l.order, err = conversations.ParseOrder(order); err != nil {
				return usageError{fmt.Errorf("--sort: %w", err)}
			}
			if l.limit < 0 {
				return usageError{fmt.Errorf("--limit %d: must be 0 (all) or more", l.limit)}
			}
			if l.csv && l.json {
				return usageError{errors.New("--csv and --json exclude each other: give one of them")}
			}
			if l.export != "" && l.csv {
				return usageError{errors.New("--csv with --export: expected one of them")}
			}
			l.capped = cmd.Flags().Changed("limit")
			return l.run(cmd.Context(), args)
		},
	}
	f := cmd.Flags()
	var orders []string
	for _, o := range conversations.Orders() {
		orders = append(orders, string(o))
	}
	addSort(cmd, &order, string(conversations.ByBytes), orders)
	f.IntVar(&l.limit, "limit", defaultLimit, "show the first `N` rows of a table (0: all)")
	f.StringArrayVar(&l.filter, "filter", nil, "show only conversations that match this `text`: an address or its beginning, \":port\", tcp, udp, or a part of the name of a transfer (repeatable: all must match)")
	f.StringVar(&l.export, "export", "", "write the captures uncompressed to this `path`: a file for one capture, a directory for several")
	addForce(cmd, &l.force, "replace existing files with --export")
	addCSV(cmd, &l.csv, "one row per conversation")
	return cmd
}

func (l *looker) run(ctx context.Context, args []string) error {
	if os.Getenv("GOGC") == "" {
		defer debug.SetGCPercent(debug.SetGCPercent(pcapGarbage))
	}
	paths, err := l.findCaptures(args)
	if err != nil {
		return err
	}
	changed, err := l.changed(args, paths)
	if err != nil {
		return err
	}
	if l.export != "" {
		return errors.Join(l.exportAll(ctx, paths), changed)
	}
	all := make([]*conversations.Capture, len(paths))
	failed := make([]error, len(paths))
	cores := runtime.GOMAXPROCS(0)
	opt := conversations.Options{Lanes: cores / max(1, len(paths))}
	var g errgroup.Group
	g.SetLimit(cores)
	for i, path := range paths {
		g.Go(func() error {
			if failed[i] = context.Cause(ctx); failed[i] == nil {
				all[i], failed[i] = l.read(ctx, path, opt)
				failed[i] = errors.Join(failed[i], nothingRead(all[i]))
			}
			return nil
		})
	}
	_ = g.Wait() // errors are kept by path
	if err := context.Cause(ctx); err != nil {
		return err
	}
	names := captureNames(paths)
	var captures []*conversations.Capture
	var shown []string // names of captures
	total := 0
	for i, c := range all {
		if c != nil {
			captures, shown = append(captures, c), append(shown, names[i])
			total += len(c.Conversations)
		}
	}
	list := make([]listed, 0, total)
	for i, c := range captures {
		for _, v := range c.Conversations {
			if !slices.ContainsFunc(l.filter, func(text string) bool { return !v.Match(text) }) {
				list = append(list, listed{v, uint32(i), uint32(len(list))})
			}
		}
	}
	// Conversations of a capture are in order of their first packets.
	slices.SortFunc(list, func(a, b listed) int {
		if order := l.order.Compare(a.Conversation, b.Conversation); order != 0 {
			return order
		}
		return cmp.Compare(a.place, b.place)
	})
	return errors.Join(l.show(captures, shown, list), errors.Join(failed...), changed)
}

// changed returns an error that names the captures of run directories, among args and paths, that are not
// what the run wrote.
func (l *looker) changed(args, paths []string) (changed, err error) {
	runs := map[string]bool{}
	var names []string // absolute
	for _, name := range append(slices.Clone(args), paths...) {
		if dir, ok := rundir.Around(name); ok && name != stdio {
			runs[dir] = true
		}
		if name, err = filepath.Abs(name); err != nil {
			return nil, err
		}
		names = append(names, name)
	}
	var errs []error
	for _, dir := range slices.Sorted(maps.Keys(runs)) {
		_, changes, err := rundir.Inspect(dir)
		if err != nil {
			return nil, fmt.Errorf("pcap: %s: %w", dir, err)
		}
		for _, c := range changes {
			file := filepath.Join(dir, c.File)
			asked := slices.ContainsFunc(names, func(n string) bool { return n == file || strings.HasPrefix(file, n+string(filepath.Separator)) })
			if asked && filepath.Base(filepath.Dir(file)) == rundir.CapturesDir {
				errs = append(errs, fmt.Errorf("pcap: %s: %s", dir, c))
			}
		}
	}
	return errors.Join(errs...), nil
}

// read reads a capture, or standard input.
func (l *looker) read(ctx context.Context, path string, opt conversations.Options) (*conversations.Capture, error) {
	if path != stdio {
		c, err := conversations.ReadFile(ctx, path, opt)
		return c, withPipeHint(err)
	}
	in, name, err := l.input(ctx, "capture", path)
	if err != nil {
		return nil, err
	}
	r, err := pcap.NewReader(in)
	if err != nil {
		return nil, fmt.Errorf("read capture %s: %w", name, err)
	}
	c, err := conversations.Read(ctx, r, opt)
	if c != nil {
		c.Path = name
	}
	return c, err
}

// nothingRead returns an error for a capture that has packets of which none was read.
func nothingRead(c *conversations.Capture) error {
	if c == nil || c.Packets > 0 || len(c.Skipped) == 0 {
		return nil
	}
	var skipped []string
	for _, s := range c.Skipped {
		skipped = append(skipped, fmt.Sprintf("%d packets %s", s.Packets, s.Why))
	}
	return hinted{fmt.Errorf("%s: no packet was read: %s", c.Path, strings.Join(skipped, ", ")),
		"pcap reads Ethernet, Linux cooked, loopback, raw IP, PPP and Cisco HDLC; tshark reads more"}
}

// findCaptures are the files that args name, and the captures below the directories, which
// it detects by their content. It names what it does not read on standard error.
func (l *looker) findCaptures(args []string) ([]string, error) {
	var paths []string
	for _, arg := range args {
		if arg == stdio {
			if slices.Contains(paths, stdio) {
				return nil, usageError{fmt.Errorf("pcap: %s given twice: standard input can be read once", stdio)}
			}
			paths = append(paths, arg)
			continue
		}
		info, err := os.Stat(arg)
		if err != nil {
			return nil, fmt.Errorf("open capture: %w", err)
		}
		if !info.IsDir() {
			paths = append(paths, arg)
			continue
		}
		before := len(paths)
		isRun := l.isRun(arg)
		// With the separator a walk goes into a link.
		err = filepath.WalkDir(arg+string(filepath.Separator), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			suffix, named := pcap.HasSuffix(path)
			if named && suffix == pcap.CompressedSuffix {
				if used := pcap.Find(filepath.Split(strings.TrimSuffix(path, suffix))); used != path {
					_, err = fmt.Fprintf(l.stderr, "testbed: not read: %s: %s is the same capture\n", path, filepath.Base(used))
					return err
				}
			}
			if ours := isRun && filepath.Base(filepath.Dir(path)) != "captures"; ours && !named {
				return nil // tables and records of the run
			}
			kind, err := pcap.Detect(path)
			if named || kind == magic.Pcap || kind == magic.Pcapng {
				paths = append(paths, path)
				return nil
			}
			why := "not a capture"
			switch {
			case err != nil:
				why = safefile.Reason(err).Error()
			case kind != magic.Unknown:
				why = fmt.Sprintf("it is %v", kind)
				if remedy := kind.Remedy(); remedy != "" {
					why += ": " + remedy
				}
			}
			_, err = fmt.Fprintf(l.stderr, "testbed: not read: %s: %s\n", path, why)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("look for captures: %w", err)
		}
		if len(paths) == before {
			return nil, hinted{fmt.Errorf("no capture below %s: no file is a pcapng or pcap capture", arg),
				"a simulation has none, nor has a run with --captures drop; other runs keep them in <arm>/<repeat>/captures"}
		}
	}
	return paths, nil
}

// isRun reports whether dir is a run directory, of which the program wrote all files.
func (l *looker) isRun(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "manifest.json"))
	return err == nil
}

// captureNames are short names for paths: without the directory that all have in
// common, the directories named captures, and the file type where it distinguishes none.
func captureNames(paths []string) []string {
	parts := make([][]string, len(paths))
	common := 0
	for i, p := range paths {
		parts[i] = strings.Split(filepath.ToSlash(filepath.Clean(p)), "/")
		dirs := parts[i][:len(parts[i])-1]
		if i == 0 {
			common = len(dirs)
		}
		common = min(common, len(dirs))
		for k := range common {
			if dirs[k] != parts[0][k] {
				common = k
				break
			}
		}
	}
	names := make([]string, len(paths))
	short := func(name string) string {
		suffix, _ := pcap.HasSuffix(name)
		return strings.TrimSuffix(name, suffix)
	}
	shared := map[string]int{}
	for i, p := range parts {
		p = slices.DeleteFunc(slices.Clone(p[common:]), func(s string) bool { return s == "captures" })
		names[i] = strings.Join(p, "/")
		shared[short(names[i])]++
	}
	for i, name := range names {
		if shared[short(name)] == 1 {
			names[i] = short(name)
		}
	}
	return names
}
