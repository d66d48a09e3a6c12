package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"testbed/emu/deploy"
	"testbed/emu/inspect"
	"testbed/emu/kernel"
	"testbed/emu/plan"
	tables "testbed/results/table"
	"testbed/topo"
	"testbed/topo/units"
)

// Default and bounds of the interval of inspect; 0 is also valid. Reading a large fabric
// takes tens of milliseconds.
const (
	defaultInterval = time.Second
	leastInterval   = 100 * time.Millisecond
	mostInterval    = time.Hour
)

// inspector is one call of inspect.
type inspector struct {
	*app
	entry    deploy.Entry
	fabric   *topo.Fabric
	ids      []topo.LinkID
	interval time.Duration // 0 is since the testbed was built
	order    inspect.Order
	top      int // links of each group to show; 0 is all
	watch    bool
	serve    string // address and port, or ""
}

func (a *app) inspectCmd() *cobra.Command {
	in := inspector{app: a}
	var order string
	var links []string
	cmd := &cobra.Command{
		Use: "inspect [TESTBED]", Short: "Show the rates, queues and drops of a testbed's links",
		Long: `Inspect reads the counters of the kernel's queueing disciplines twice, one interval apart.
For each directed link it shows the rate, utilisation, packets per second, queue length
and drops. It works on a testbed that is up and during a run, and changes nothing. The
name is optional if there is only one testbed.

Utilisation is the bytes sent, including Ethernet headers, divided by the capacity of the
link in the interval. Rates and queue limits are the kernel's; a rate that differs from
the plan is shown with the planned rate. Drops are "total +in the interval". With
--interval 0 all figures are since the testbed was built.

With --watch it repeats until Ctrl-C or the end of the testbed: in place on a terminal,
as consecutive blocks elsewhere, and as one line of JSON each with --json. A run builds
a testbed for each arm and repeat.

With --serve it answers HTTP requests at an address until Ctrl-C: / is a page that draws
the links while they work, /metrics has metrics for Prometheus, and /events is a stream of
snapshots (server-sent events). It follows a run from testbed to testbed, and waits where
there is none. The name can be that of a run. Everyone who reaches the address can read it.`,
		Example: `  sudo testbed inspect
  sudo testbed inspect lab --watch --top 8
  sudo testbed inspect lab --links 'leaf*<>spine*' --interval 5s
  sudo testbed inspect lab --links 'leaf0>h0-*' --sort drops
  sudo testbed inspect --serve 127.0.0.1:9464
  sudo testbed inspect --json --watch | jq -c '[.at, .summary.busiest]'`,
		Args:              between(0, 1),
		ValidArgsFunction: a.completeTestbeds,
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			if !cmd.Flags().Changed("sort") && in.top > 0 {
				order = string(inspect.ByUtilisation)
			}
			if in.order, err = inspect.ParseOrder(order); err != nil {
				return usageError{fmt.Errorf("--sort: %w", err)}
			}
			if err := in.check(); err != nil {
				return usageError{err}
			}
			if in.serve != "" {
				if err := a.needRoot("inspect", entersNamespaces); err != nil {
					return err
				}
				return in.serveHTTP(cmd.Context(), strings.Join(args, ""), links)
			}
			if in.entry, err = a.find(cmd.Context(), args); err != nil {
				return err
			}
			if in.entry.Problem != nil {
				return in.entry.Problem
			}
			if err := in.choose(links); err != nil {
				return err
			}
			if err := a.needRoot("inspect", entersNamespaces); err != nil {
				return err
			}
			return in.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&in.watch, "watch", "w", false, "repeat until Ctrl-C")
	f.StringVar(&in.serve, "serve", "", "serve a live page, metrics for Prometheus and events at this `address` and port")
	f.DurationVar(&in.interval, "interval", defaultInterval, "measurement interval (0: totals since the testbed was built)")
	f.StringArrayVar(&links, "links", nil, "show only the links that match this `pattern`, such as \"leaf*<>spine1\" (repeatable)")
	f.IntVar(&in.top, "top", 0, "show only the first `N` host links and N uplinks, by utilisation unless --sort is set (default: all)")
	var orders []string
	for _, o := range inspect.Orders() {
		orders = append(orders, string(o))
	}
	addSort(cmd, &order, string(inspect.ByName), orders)
	_ = cmd.RegisterFlagCompletionFunc("links", a.completeLinks)
	return cmd
}

// choose builds the fabric of the entry, and finds the links that match any of the patterns.
func (in *inspector) choose(patterns []string) (err error) {
	if in.fabric, err = in.entry.State.Shape.Build(); err != nil {
		return fmt.Errorf("testbed %s: %w", in.entry.State.ID, err)
	}
	if in.ids, err = findLinks(in.fabric, patterns); err != nil {
		return usageError{fmt.Errorf("--links: %w", err)}
	}
	return nil
}

func (in *inspector) check() error {
	if _, err := netip.ParseAddrPort(in.serve); in.serve != "" && err != nil {
		return fmt.Errorf("--serve %q: must be an IP address and a port, such as 127.0.0.1:9464", in.serve)
	}
	switch {
	case in.serve != "" && (in.watch || in.json || in.top > 0):
		return errors.New("--serve cannot be combined with --watch, --json and --top")
	case in.serve != "" && in.interval == 0:
		return fmt.Errorf("--interval 0 with --serve: expected a time such as %v", defaultInterval)
	case in.top < 0:
		return fmt.Errorf("--top %d: must be 0 (all) or more", in.top)
	case in.interval == 0 && in.watch:
		return fmt.Errorf("--interval 0 with --watch: expected a time such as %v", defaultInterval)
	case in.interval != 0 && (in.interval < leastInterval || in.interval > mostInterval):
		return fmt.Errorf("--interval %v: must be 0, or %v to %v", in.interval, leastInterval, mostInterval)
	}
	return nil
}

// completeLinks offers the links of the testbed that the command line names.
func (a *app) completeLinks(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	e, err := a.find(cmd.Context(), args)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	f, err := e.State.Shape.Build()
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, l := range f.Links() {
		names = append(names, f.LinkName(l.ID))
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// findLinks returns the links that match any of the patterns, or all, in order.
func findLinks(f *topo.Fabric, patterns []string) ([]topo.LinkID, error) {
	var ids []topo.LinkID
	for _, l := range f.Links() {
		if len(patterns) == 0 {
			ids = append(ids, l.ID)
		}
	}
	var errs []error
	for _, p := range patterns {
		found, err := f.FindLinks(p)
		ids, errs = append(ids, found...), append(errs, err)
	}
	slices.Sort(ids)
	return slices.Compact(ids), errors.Join(errs...)
}

// errGone is the error of a testbed that was removed during a watch.
var errGone = errors.New("the testbed is gone")

func (in *inspector) run(ctx context.Context) error {
	was, err := in.read(ctx)
	if err != nil {
		return in.lost(err)
	}
	if in.interval == 0 {
		return in.show(in.compare(inspect.Zero(was, time.Now().Add(-in.entry.State.Age())), was))
	}
	tick := time.NewTicker(in.interval)
	defer tick.Stop()
	for shown := false; ; shown = true {
		select {
		case <-ctx.Done():
			if in.watch {
				return nil
			}
			return context.Cause(ctx)
		case <-tick.C:
		}
		now, err := in.read(ctx)
		if errors.Is(err, errGone) && shown {
			fmt.Fprintf(in.stderr, "testbed %s is gone\n", in.entry.State.ID)
			return nil
		} else if err != nil {
			return in.lost(err)
		}
		if err := in.show(in.compare(was, now)); err != nil || !in.watch {
			return err
		}
		was = now
	}
}

func (in *inspector) lost(err error) error {
	if errors.Is(err, errGone) {
		return fmt.Errorf("inspect %s: %w (removed meanwhile)", in.entry.State.ID, errGone)
	}
	return err
}

// read reads the counters of the links. It closes the namespaces again, since an open one
// would outlive the removal of its testbed.
func (in *inspector) read(ctx context.Context) (inspect.Reading, error) {
	e, err := deploy.Find(ctx, in.state, in.entry.State.ID)
	if errors.Is(err, deploy.ErrNotFound) || err == nil && !e.State.Created.Equal(in.entry.State.Created) {
		return nil, errGone
	} else if err != nil {
		return nil, err
	}
	type namespace struct {
		at    time.Time
		ports []kernel.Port
	}
	seen := map[string]namespace{}
	out := inspect.Reading{}
	for _, id := range in.ids {
		name, device := plan.Egress(in.fabric, id)
		n, ok := seen[name]
		if !ok {
			at, ports, err := readPorts(filepath.Join(e.PinDir(), name))
			if errors.Is(err, fs.ErrNotExist) {
				return nil, in.missing(ctx, err)
			} else if err != nil {
				return nil, err
			}
			n = namespace{at, ports}
			seen[name] = n
		}
		i := slices.IndexFunc(n.ports, func(p kernel.Port) bool { return p.Device == device })
		if i < 0 {
			return nil, in.missing(ctx, fmt.Errorf("link %s: no device %s in %s: was it removed by hand?", in.fabric.LinkName(id), device, name))
		}
		p := n.ports[i]
		out[id] = inspect.Sample{At: n.at, Counters: inspect.Counters{Bytes: p.Qdisc.Bytes, Packets: p.Qdisc.Packets, Dropped: p.Qdisc.Dropped,
			Overlimits: p.Qdisc.Overlimits, Backlog: p.Qdisc.Backlog, Rate: p.Rate, Limit: max(p.Limit, units.Bytes(p.Packets)*(in.fabric.Shape().MTU+plan.EthernetHeader)), Up: p.Up}}
	}
	return out, nil
}

// missing returns err, or errGone if the testbed was removed while it was read.
func (in *inspector) missing(ctx context.Context, err error) error {
	if in.removed(ctx, in.entry) {
		return errGone
	}
	return err
}

// removed reports whether a testbed, of which something is missing, is being removed or was.
func (a *app) removed(ctx context.Context, was deploy.Entry) bool {
	// Namespaces are removed before the record. A testbed that was brought up has
	// an owner again while it is removed.
	e, err := deploy.Find(ctx, a.state, was.State.ID)
	return errors.Is(err, deploy.ErrNotFound) || e.Live || e.State.Kind == deploy.KindRun
}

// readPorts reads a namespace, again if its devices change meanwhile.
func readPorts(pin string) (time.Time, []kernel.Port, error) {
	n, err := kernel.OpenNamespace(pin)
	if err != nil {
		return time.Time{}, nil, err
	}
	defer n.Close() // only read from
	const attempts = 3
	for attempt := 1; ; attempt++ {
		ports, err := n.Ports()
		if err == nil || !errors.Is(err, kernel.ErrInterrupted) || attempt == attempts {
			return time.Now(), ports, err
		}
	}
}

func (in *inspector) compare(was, now inspect.Reading) inspect.Snapshot {
	s := inspect.Snapshot{Testbed: in.entry.State.ID, At: time.Now(), Interval: in.interval}
	if s.Total = in.interval == 0; s.Total {
		s.Interval = in.entry.State.Age()
	}
	s.Links = inspect.Links(in.fabric, was, now)
	s.Summary = inspect.Summarize(s.Links)
	s.Switches = inspect.Switches(in.fabric, s.Links)
	inspect.Sort(s.Links, in.order)
	if in.top > 0 {
		n := map[bool]int{}
		s.Links = slices.DeleteFunc(s.Links, func(l inspect.Link) bool {
			n[l.Uplink()]++
			return n[l.Uplink()] > in.top
		})
	}
	return s
}

// show writes a snapshot in the selected format.
func (in *inspector) show(s inspect.Snapshot) error {
	if in.json {
		e := json.NewEncoder(in.stdout)
		e.SetEscapeHTML(false) // names of links hold a >
		if !in.watch {
			e.SetIndent("", "  ")
		}
		return e.Encode(s)
	}
	var b bytes.Buffer
	file, ok := in.stdout.w.(*os.File)
	if !in.watch || !ok || !term.IsTerminal(int(file.Fd())) {
		if err := drawSnapshot(&b, s, plainStyle(0)); err != nil {
			return err
		}
		if in.watch {
			b.WriteByte('\n')
		}
		_, err := in.stdout.Write(b.Bytes())
		return err
	}
	width, height, err := term.GetSize(int(file.Fd()))
	if err != nil {
		width, height = tables.DefaultWidth, 24
	}
	if err := drawSnapshot(&b, s, plainStyle(min(width, tables.DefaultWidth))); err != nil {
		return err
	}
	_, err = io.WriteString(exact{in.stdout}, frame(b.String(), width, height))
	return err
}

// frame returns text that replaces the content of a terminal, cut to its size.
func frame(text string, width, height int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if room := max(height-1, 2); len(lines) > room {
		left := len(lines) - room + 1
		lines = append(lines[:room-1], fmt.Sprintf("… %d more lines (show fewer links with --top or --links)", left))
	}
	var b strings.Builder
	b.WriteString("\x1b[H") // home
	for _, l := range lines {
		if r := []rune(l); len(r) > width {
			l = string(r[:width])
		}
		b.WriteString(l + "\x1b[K\r\n") // and clear the rest of the line
	}
	b.WriteString("\x1b[J") // and of the screen
	return b.String()
}
