package cli

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"testbed/results/conversations"
	"testbed/results/pcap"
	"testbed/results/rundir"
	"testbed/results/safefile"
	tables "testbed/results/table"
	"testbed/topo/magic"
	"testbed/topo/units"
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

func (l *looker) show(captures []*conversations.Capture, names []string, list []listed) error {
	if l.csv || l.json {
		if l.capped && l.limit > 0 {
			list = list[:min(l.limit, len(list))]
		}
		rows := func(yield func(conversations.Row) bool) {
			for _, v := range list {
				if !yield(v.Row(captures[v.capture].Path)) {
					return
				}
			}
		}
		if l.csv {
			return conversations.WriteCSV(l.stdout, rows)
		}
		return l.writeJSON(captures, rows)
	}
	var b strings.Builder
	for i, c := range captures {
		if len(captures) == 1 {
			if err := drawCapture(&b, names[i], c); err != nil {
				return err
			}
		}
	}
	if len(captures) > 1 {
		if err := l.drawCaptures(&b, captures, names); err != nil {
			return err
		}
	}
	if len(captures) > 0 {
		if err := l.drawConversations(&b, captures, names, list); err != nil {
			return err
		}
	}
	_, err := io.WriteString(l.stdout, b.String())
	return err
}

// writeJSON writes captures and rows as print would, without keeping all rows.
func (l *looker) writeJSON(captures []*conversations.Capture, rows iter.Seq[conversations.Row]) error {
	list := []captureJSON{}
	for _, c := range captures {
		list = append(list, captureOf(c))
	}
	head, err := json.MarshalIndent(list, "  ", "  ")
	if err != nil {
		return err
	}
	out := bufio.NewWriter(l.stdout)
	fmt.Fprintf(out, "{\n  \"captures\": %s,\n  \"conversations\": [", head)
	var row bytes.Buffer
	enc := json.NewEncoder(&row)
	enc.SetIndent("    ", "  ")
	separator, end := "\n    ", "]\n}\n"
	for r := range rows {
		row.Reset()
		if err := enc.Encode(r); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s%s", separator, bytes.TrimSuffix(row.Bytes(), []byte("\n")))
		separator, end = ",\n    ", "\n  ]\n}\n"
	}
	fmt.Fprint(out, end)
	return out.Flush()
}

// drawCapture writes the facts of one capture.
func drawCapture(w io.Writer, name string, c *conversations.Capture) error {
	var errs []error
	fact := func(what, format string, args ...any) {
		errs = append(errs, plainStyle(0).Paragraph(w, fmt.Sprintf("%-11s ", what), strings.Repeat(" ", 12), fmt.Sprintf(format, args...)))
	}
	fact("capture", "%s", name)
	if m := c.Meta; m != nil {
		fact("of", "host %s, arm %s, repeat %d", m.Host, m.Arm, m.Repeat)
		fact("run", "%s, by %s %s", m.RunID, m.Tool, m.Version)
	}
	fact("format", "%s, %s", c.Format, wholeness(c))
	fact("packets", "%d, %d bytes of frames", c.Packets, c.Bytes)
	if c.Packets > 0 {
		fact("first", "%s", stamp(c.First))
		fact("last", "%s, %s s later", stamp(c.Last), seconds(c.Last-c.First))
	}
	if c.HasStats {
		fact("kernel", "%d packets received, %d dropped", c.Stats.Received, c.Stats.Dropped)
	} else {
		fact("kernel", "the capture does not say what was dropped")
	}
	for _, i := range c.Interfaces {
		fact("interface", "%s", interfaceLine(i))
	}
	for _, line := range others([]*conversations.Capture{c}) {
		fact("other", "%s", line)
	}
	if c.Lengthened > 0 {
		fact("lengths", "%d packets are longer by their IP header than by their record, which states no more than it has: the IP header's length counts", c.Lengthened)
	}
	for _, s := range c.Skipped {
		fact("skipped", "%d packets %s", s.Packets, s.Why)
	}
	_, err := fmt.Fprintln(w)
	return errors.Join(append(errs, err)...)
}

func interfaceLine(i conversations.Interface) string {
	parts := []string{fmt.Sprintf("%s (%s): %d packets, %d bytes", cmp.Or(i.Name, "unnamed"), i.LinkType, i.Packets, i.Bytes)}
	if i.HasDropped {
		parts = append(parts, fmt.Sprintf("%d dropped", i.Stats.Dropped))
	}
	if i.SnapLen > 0 {
		parts = append(parts, fmt.Sprintf("snaplen %d", i.SnapLen))
	}
	if i.Description != "" {
		parts = append(parts, i.Description)
	}
	return strings.Join(parts, ", ")
}

// others are what belongs to no conversation, and was skipped.
func others(captures []*conversations.Capture) []string {
	sum := map[string]conversations.Group{}
	var kinds, lines []string
	for _, c := range captures {
		for _, kind := range c.Others() {
			if _, ok := sum[kind]; !ok {
				kinds = append(kinds, kind)
			}
			n, more := sum[kind], c.Other[kind]
			n.Packets, n.Bytes, n.First = n.Packets+more.Packets, n.Bytes+more.Bytes, cmp.Or(n.First, more.First)
			sum[kind] = n
		}
	}
	slices.SortStableFunc(kinds, func(a, b string) int { return sum[b].Packets - sum[a].Packets })
	for _, kind := range kinds {
		line := fmt.Sprintf("%s: %d packets, %d bytes", kind, sum[kind].Packets, sum[kind].Bytes)
		if first := sum[kind].First; first != "" {
			line += fmt.Sprintf(" (the first: %s)", first)
		}
		lines = append(lines, line)
	}
	return lines
}

// wholeness returns whether a capture is complete, in one or two words.
func wholeness(c *conversations.Capture) string {
	switch {
	case c.Err == nil:
		return "whole"
	case errors.Is(c.Err, pcap.ErrTruncated):
		return "cut off"
	}
	return "damaged"
}

func stamp(ns int64) string {
	return time.Unix(0, ns).UTC().Format("2006-01-02 15:04:05.000000000 UTC")
}

// seconds is exact, to the nanosecond.
func seconds(ns int64) string { return fmt.Sprintf("%d.%09d", ns/1e9, ns%1e9) }

func (l *looker) drawCaptures(w io.Writer, captures []*conversations.Capture, names []string) error {
	t := tables.Table{Head: []string{"capture", "format", "packets", "bytes", "first packet (UTC)", "seconds", "dropped", "conv.", "state"}, Columns: []tables.Column{tables.Names()}}
	rows := captures
	if l.limit > 0 {
		rows = rows[:min(l.limit, len(rows))]
	}
	for i, c := range rows {
		drops := "?"
		if c.HasStats {
			drops = units.Compact(float64(c.Stats.Dropped), "")
		}
		first, took := "–", "–"
		if c.Packets > 0 {
			first, took = time.Unix(0, c.First).UTC().Format("2006-01-02 15:04:05.000"), fmt.Sprintf("%.3f", float64(c.Last-c.First)/1e9)
		}
		t.Rows = append(t.Rows, []string{names[i], c.Format, units.Compact(float64(c.Packets), ""), units.Compact(float64(c.Bytes), "B"), first, took, drops,
			units.Compact(float64(len(c.Conversations)), ""), wholeness(c)})
	}
	fmt.Fprintf(w, "%d captures\n", len(captures))
	return drawRows(w, t, len(captures)-len(rows))
}

func (l *looker) drawConversations(w io.Writer, captures []*conversations.Capture, names []string, list []listed) error {
	var sum struct{ conversations.Counts }
	var payload, resent int64
	again, late := 0, 0
	start := captures[0].First
	for _, c := range captures {
		if c.Packets > 0 {
			start = min(start, c.First)
		}
	}
	name, figure := tables.Column{Left: true, Fold: leastName}, tables.Column{}
	t := tables.Table{Head: []string{"stream", "from", "to", "pkts", "bytes", "resent", "start", "time", "goodput", "carries"},
		Columns: []tables.Column{{Left: true}, name, name, figure, figure, figure, figure, figure, figure, name}}
	if len(captures) > 1 { // the capture instead of the start
		t.Head = []string{"capture", "stream", "from", "to", "pkts", "bytes", "resent", "time", "goodput", "carries"}
		t.Columns = []tables.Column{name, {Left: true}, name, name, figure, figure, figure, figure, figure, name}
	}
	for i, v := range list {
		sum.Packets, sum.Bytes = sum.Packets+v.Packets(), sum.Bytes+v.Bytes()
		payload += int64(v.AB.Payload + v.BA.Payload)
		resent += int64(v.AB.ResentBytes + v.BA.ResentBytes)
		again += v.Retransmissions()
		late += v.AB.OutOfOrder + v.BA.OutOfOrder
		if l.limit > 0 && i >= l.limit {
			continue
		}
		carries := ""
		if v.Transfer != nil {
			carries = v.Transfer.Short()
		}
		goodput := "–"
		if r := max(v.AB.Goodput(), v.BA.Goodput()); r > 0 {
			goodput = units.Compact(float64(r), "bps")
		}
		row := []string{fmt.Sprintf("%s %d", v.Protocol(), v.Stream), v.A().String(), v.B().String(), units.Compact(float64(v.Packets()), ""), units.Compact(float64(v.Bytes()), "B"),
			units.Compact(float64(v.Retransmissions()), ""), shortTime(time.Duration(v.From - start)), shortTime(v.Duration()), goodput, carries}
		if len(captures) > 1 {
			row = append([]string{names[v.capture]}, slices.Delete(row, 6, 7)...)
		}
		t.Rows = append(t.Rows, row)
	}
	if len(captures) > 1 {
		fmt.Fprintln(w)
	}
	total := 0
	for _, c := range captures {
		total += len(c.Conversations)
	}
	title := fmt.Sprintf("%d conversations", total)
	if len(l.filter) > 0 {
		title = fmt.Sprintf("%d of %s match", len(list), title)
	}
	fmt.Fprintf(w, "%s, by %s\n", title, l.order)
	if len(list) > 0 {
		if err := drawRows(w, t, len(list)-len(t.Rows)); err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "total: %d packets, %d bytes; payload %d bytes, of which %d again in %d packets; %d late\n",
		sum.Packets, sum.Bytes, payload, resent, again, late)
	if len(captures) > 1 {
		for _, line := range others(captures) {
			fmt.Fprintf(w, "other: %s\n", line)
		}
		for i, c := range captures {
			for _, s := range c.Skipped {
				fmt.Fprintf(w, "skipped in %s: %d packets %s\n", names[i], s.Packets, s.Why)
			}
		}
	}
	return nil
}

// leastName is the columns to which names in pcap's tables are folded.
const leastName = 8

// drawRows draws a table and the number of rows left out. Shortened names are complete in
// --json and --csv.
func drawRows(w io.Writer, t tables.Table, left int) error {
	if _, err := t.Draw(w, plainStyle(0)); err != nil {
		return err
	}
	if left > 0 {
		fmt.Fprintf(w, "%s %d more: --limit 0 shows all\n", plainStyle(0).Text("…"), left)
	}
	return nil
}

// captureJSON is a capture as programs read it. Stamps are Unix nanoseconds.
type captureJSON struct {
	Path       string          `json:"path"`
	Format     string          `json:"format"`
	State      string          `json:"state"` // whole, cut off or damaged
	Error      string          `json:"error,omitempty"`
	Packets    int             `json:"packets"`
	Bytes      int64           `json:"bytes"`
	First      *int64          `json:"first_ns"` // null without packets
	Last       *int64          `json:"last_ns"`
	Lengthened int             `json:"lengthened"` // packets that are longer by their IP header than by their record
	Received   *uint64         `json:"received"`   // null where the capture does not say
	Dropped    *uint64         `json:"dropped"`
	Interfaces []interfaceJSON `json:"interfaces"`
	Other      []otherJSON     `json:"other"` // that belong to no conversation
	Skipped    []skippedJSON   `json:"skipped"`
	Of         *pcap.Meta      `json:"of"` // null for captures of other programs
}

type interfaceJSON struct {
	Name        string  `json:"name"`
	Description string  `json:"description"`
	LinkType    string  `json:"link_type"`
	SnapLen     int     `json:"snaplen"` // 0 for all
	Packets     int     `json:"packets"`
	Bytes       int64   `json:"bytes"`
	Received    *uint64 `json:"received"` // null where the capture does not say
	Dropped     *uint64 `json:"dropped"`
}

type skippedJSON struct {
	Why     string `json:"why"`
	Packets uint64 `json:"packets"`
}

type otherJSON struct {
	Kind    string `json:"kind"`
	Packets int    `json:"packets"`
	Bytes   int64  `json:"bytes"`
	First   string `json:"first,omitempty"` // what contradicts what in the first packet
}

func captureOf(c *conversations.Capture) captureJSON {
	out := captureJSON{Path: c.Path, Format: c.Format, State: wholeness(c), Packets: c.Packets, Bytes: int64(c.Bytes), Lengthened: c.Lengthened,
		Interfaces: []interfaceJSON{}, Other: []otherJSON{}, Skipped: []skippedJSON{}, Of: c.Meta}
	if c.Err != nil {
		out.Error = c.Err.Error()
	}
	if c.Packets > 0 {
		out.First, out.Last = &c.First, &c.Last
	}
	if c.HasStats {
		out.Received, out.Dropped = &c.Stats.Received, &c.Stats.Dropped
	}
	for _, i := range c.Interfaces {
		f := interfaceJSON{Name: i.Name, Description: i.Description, LinkType: i.LinkType.String(), SnapLen: i.SnapLen, Packets: i.Packets, Bytes: int64(i.Bytes)}
		if i.HasReceived {
			f.Received = &i.Stats.Received
		}
		if i.HasDropped {
			f.Dropped = &i.Stats.Dropped
		}
		out.Interfaces = append(out.Interfaces, f)
	}
	for _, s := range c.Skipped {
		out.Skipped = append(out.Skipped, skippedJSON(s))
	}
	for _, kind := range c.Others() {
		n := c.Other[kind]
		out.Other = append(out.Other, otherJSON{kind, n.Packets, int64(n.Bytes), n.First})
	}
	return out
}
