package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8/cwriter"

	"testbed/emu/deploy"
	"testbed/emu/inspect"
	"testbed/emu/kernel"
	"testbed/emu/plan"
	tables "testbed/results/table"
	"testbed/topo"
)

// Bounds of the interval of inspect, besides 0. Reading a large fabric takes
// tens of milliseconds.
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
}

// snapshot is one answer of inspect, as in its JSON.
type snapshot struct {
	Testbed string    `json:"testbed"`
	At      time.Time `json:"at"`
	// Interval is what was asked for, or the testbed's age where totals were; each
	// link's figures are over the time between its own two readings.
	Interval time.Duration    `json:"interval_ns"`
	Total    bool             `json:"since_build"`
	Summary  inspect.Summary  `json:"summary"`
	Links    []inspect.Link   `json:"links"`
	Switches []inspect.Switch `json:"switches"`
}

func (a *app) inspectCmd() *cobra.Command {
	in := inspector{app: a}
	var order string
	var links []string
	cmd := &cobra.Command{
		Use: "inspect [TESTBED]", Short: "Show what the links of a testbed carry, queue and drop now",
		Long: `Inspect reads the counters of the kernel's qdiscs twice, an interval apart, and shows
each directed link: its rate, how much of it was used, packets a second, what waits
for it, what was dropped. It works on a testbed that is up and on one in which a run
goes on, and only reads. The name may be left out where there is only one.

Utilisation is bytes sent, with Ethernet headers, over what the rate carries in the
interval. Rates and queue limits are the kernel's; where a rate is not the plan's, the
plan's stands beside it. Drops are "total +in the interval". With --interval 0 all
figures are since the testbed was built.

With --watch it goes on until Ctrl-C or the end of the testbed: in place on a terminal,
as one block after another elsewhere, and as one line of JSON each with --json. A run
makes a testbed for each arm and repeat.`,
		Example: `  sudo testbed inspect
  sudo testbed inspect lab --watch --top 8
  sudo testbed inspect lab --links 'leaf*<>spine*' --interval 5s
  sudo testbed inspect lab --links 'leaf0>h0-*' --sort drops
  sudo testbed inspect --json --watch | jq -c '[.at, .summary.busiest]'`,
		Args:              cobra.MaximumNArgs(1),
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
			if in.entry, err = a.find(args); err != nil {
				return err
			}
			if in.entry.Problem != nil {
				return in.entry.Problem
			}
			if in.fabric, err = in.entry.State.Shape.Build(); err != nil {
				return fmt.Errorf("testbed %s: %w", in.entry.State.ID, err)
			}
			if in.ids, err = findLinks(in.fabric, links); err != nil {
				return usageError{fmt.Errorf("--links: %w", err)}
			}
			if os.Geteuid() != 0 {
				return hinted{fmt.Errorf("inspect: entering network namespaces needs root, this is user %d", os.Geteuid()), "run it with sudo"}
			}
			return in.run(cmd.Context())
		},
	}
	f := cmd.Flags()
	f.BoolVarP(&in.watch, "watch", "w", false, "go on until Ctrl-C")
	f.DurationVar(&in.interval, "interval", defaultInterval, "time between the two readings; 0 shows totals since the testbed was built")
	f.StringArrayVar(&links, "links", nil, `only these links: "leaf0>spine1", "<>" for both directions, * and ? in names (repeatable)`)
	f.IntVar(&in.top, "top", 0, "only the first so many host links and so many uplinks, by utilisation unless --sort says else")
	f.StringVar(&order, "sort", string(inspect.ByName), "util, backlog, drops or name")
	_ = cmd.RegisterFlagCompletionFunc("sort", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var names []string
		for _, o := range inspect.Orders() {
			names = append(names, string(o))
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
	_ = cmd.RegisterFlagCompletionFunc("links", a.completeLinks)
	return cmd
}

func (in *inspector) check() error {
	switch {
	case in.top < 0:
		return fmt.Errorf("--top %d: want 0, which is all, or more", in.top)
	case in.interval == 0 && in.watch:
		return fmt.Errorf("--interval 0 with --watch: want a time such as %v", defaultInterval)
	case in.interval != 0 && (in.interval < leastInterval || in.interval > mostInterval):
		return fmt.Errorf("--interval %v: want 0, or %v to %v", in.interval, leastInterval, mostInterval)
	}
	return nil
}

// completeLinks offers the links of the testbed that the command line names.
func (a *app) completeLinks(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	e, err := a.find(args)
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

// findLinks are the links that any of the patterns names, or all, in order.
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

// errGone ends a watch whose testbed was removed.
var errGone = errors.New("the testbed is gone")

func (in *inspector) run(ctx context.Context) error {
	was, err := in.read()
	if err != nil {
		return in.lost(err)
	}
	if in.interval == 0 {
		return in.show(in.compare(inspect.Zero(was, in.entry.State.Created), was))
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
		now, err := in.read()
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
		return fmt.Errorf("inspect %s: %w: it was removed meanwhile", in.entry.State.ID, errGone)
	}
	return err
}

// read reads the counters of the links. Namespaces are open only meanwhile:
// while they are, a testbed that is removed would live on.
func (in *inspector) read() (inspect.Reading, error) {
	e, err := deploy.Find(in.state, in.entry.State.ID)
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
				return nil, in.missing(err)
			} else if err != nil {
				return nil, err
			}
			n = namespace{at, ports}
			seen[name] = n
		}
		i := slices.IndexFunc(n.ports, func(p kernel.Port) bool { return p.Device == device })
		if i < 0 {
			return nil, in.missing(fmt.Errorf("link %s: no device %s in %s: was it removed by hand?", in.fabric.LinkName(id), device, name))
		}
		p := n.ports[i]
		out[id] = inspect.Sample{At: n.at, Counters: inspect.Counters{Bytes: p.Qdisc.Bytes, Packets: p.Qdisc.Packets, Dropped: p.Qdisc.Dropped,
			Overlimits: p.Qdisc.Overlimits, Backlog: p.Qdisc.Backlog, Rate: p.Rate, Limit: p.Limit, Up: p.Up}}
	}
	return out, nil
}

// missing is err, or that the testbed was removed while it was read.
func (in *inspector) missing(err error) error {
	// Namespaces are removed before the record. A testbed that was brought up has
	// an owner again while it is removed.
	e, found := deploy.Find(in.state, in.entry.State.ID)
	if errors.Is(found, deploy.ErrNotFound) || e.Live || e.State.Kind == deploy.KindRun {
		return errGone
	}
	return err
}

// readPorts reads a namespace, again if its devices change meanwhile.
func readPorts(pin string) (time.Time, []kernel.Port, error) {
	n, err := kernel.OpenNamespace(pin)
	if err != nil {
		return time.Time{}, nil, err
	}
	defer n.Close() // only read from
	const tries = 3
	for try := 1; ; try++ {
		ports, err := n.Ports()
		if err == nil || !errors.Is(err, kernel.ErrInterrupted) || try == tries {
			return time.Now(), ports, err
		}
	}
}

func (in *inspector) compare(was, now inspect.Reading) snapshot {
	s := snapshot{Testbed: in.entry.State.ID, At: time.Now(), Interval: in.interval}
	if s.Total = in.interval == 0; s.Total {
		s.Interval = s.At.Sub(in.entry.State.Created)
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

// show writes a snapshot in the form that was asked for.
func (in *inspector) show(s snapshot) error {
	if in.json {
		e := json.NewEncoder(in.stdout)
		e.SetEscapeHTML(false) // names of links hold a >
		if !in.watch {
			e.SetIndent("", "  ")
		}
		return e.Encode(s)
	}
	var b bytes.Buffer
	file, ok := in.stdout.(*os.File)
	if !in.watch || !ok || !isatty.IsTerminal(file.Fd()) {
		if err := drawSnapshot(&b, s, plainStyle(0)); err != nil {
			return err
		}
		if in.watch {
			b.WriteByte('\n')
		}
		_, err := in.stdout.Write(b.Bytes())
		return err
	}
	width, height, err := cwriter.GetSize(int(file.Fd()))
	if err != nil {
		width, height = tables.DefaultWidth, 24
	}
	if err := drawSnapshot(&b, s, plainStyle(min(width, tables.DefaultWidth))); err != nil {
		return err
	}
	_, err = io.WriteString(in.stdout, frame(b.String(), width, height))
	return err
}

// frame draws text over what is on a terminal, without what does not fit.
func frame(text string, width, height int) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	if room := max(height-1, 2); len(lines) > room {
		left := len(lines) - room + 1
		lines = append(lines[:room-1], fmt.Sprintf("… %d lines more: --top or --links shows fewer links", left))
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
