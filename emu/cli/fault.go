package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"testbed/emu/deploy"
	"testbed/emu/kernel"
	"testbed/emu/plan"
	"testbed/emu/scenario"
	"testbed/topo"
	"testbed/topo/units"
)

// faultVerbs lists the faults of "testbed fault", and the one that undoes each.
var faultVerbs = []struct{ name, undo, args, short string }{
	{"link-down", "link-up", "LINK", "cut cables, such as leaf0<>spine1"},
	{"link-up", "", "LINK", "restore cables"},
	{"link-rate", "link-rate", "LINK RATE", "change the rate of links, one direction or both"},
	{"host-crash", "host-back", "HOST", "cut a host's cable"},
	{"host-back", "", "HOST", "restore the cable of a host"},
	{"spine-down", "spine-up", "SPINE", "cut all cables of a spine"},
	{"spine-up", "", "SPINE", "restore all cables of a spine"},
}

func (a *app) faultCmd() *cobra.Command {
	var testbed string
	var lasts time.Duration
	var verbs strings.Builder
	for _, v := range faultVerbs {
		fmt.Fprintf(&verbs, "  %-22s %s\n", v.name+" "+v.args, v.short)
	}
	cmd := &cobra.Command{
		Use: "fault KIND NAME [RATE]", Short: "Inject a fault into a testbed that is up, or undo one",
		Long: `Fault changes the links of a testbed that is up. A link is a pattern of names:
"leaf0<>spine1" is both directions, "leaf0>spine1" one, "leaf*<>spine1" several. Quote
it, since shells interpret > and *. Leaves reroute around cut cables at once.

With --for, the command waits and then undoes the fault, also on Ctrl-C. Cables that
are already cut stay cut afterwards; a command that changes no cable fails. To stop all
traffic on a link, cut it (link-down): a rate of 0 is an error.

` + verbs.String(),
		Example: `  sudo testbed fault link-down 'leaf0<>spine1' --for 2s
  sudo testbed fault link-rate 'leaf0>spine1' 10Mbps
  sudo testbed fault spine-down spine1 && sudo testbed fault spine-up spine1`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				for _, v := range faultVerbs {
					if v.name == args[0] {
						if want := 1 + len(strings.Fields(v.args)); len(args) != want {
							return usageError{fmt.Errorf("fault %s: expected %s, got %d arguments", v.name, v.args, len(args)-1)}
						}
						return nil
					}
				}
				return usageError{fmt.Errorf("fault %q: must be one of %s", args[0], strings.Join(faultNames(), ", "))}
			}
			return usageError{fmt.Errorf("fault: expected a kind and a name (usage: %s)", cmd.UseLine())}
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.fault(cmd.Context(), testbed, args, lasts, cmd.Flags().Changed("for"))
		},
		ValidArgsFunction: func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			e, err := a.find(cmd.Context(), given(testbed))
			switch {
			case len(args) == 0:
				return faultNames(), cobra.ShellCompDirectiveNoFileComp
			case len(args) > 1 || err != nil:
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			prefix := map[string]string{"host-crash": "h", "host-back": "h", "spine-down": "spine", "spine-up": "spine"}[args[0]]
			var names []string
			if prefix != "" {
				for _, n := range e.State.Namespaces {
					if strings.HasPrefix(n, prefix) {
						names = append(names, n)
					}
				}
				return names, cobra.ShellCompDirectiveNoFileComp
			}
			if f, err := e.State.Shape.Build(); err == nil {
				for _, l := range f.Links() {
					if l.Kind == topo.HostUp || l.Kind == topo.LeafUp {
						names = append(names, strings.Replace(f.LinkName(l.ID), ">", "<>", 1))
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
	}
	addTestbed(cmd, &testbed)
	cmd.Flags().DurationVar(&lasts, "for", 0, "duration of the fault (default: until it is undone)")
	return cmd
}

func faultNames() (names []string) {
	for _, v := range faultVerbs {
		names = append(names, v.name)
	}
	return names
}

// broken is a testbed whose links are changed.
type broken struct {
	fabric *topo.Fabric
	entry  deploy.Entry
	dir    fs.FileInfo // of the testbed
	ns     map[string]*kernel.Namespace
}

func (a *app) breakable(e deploy.Entry) (*broken, error) {
	f, err := e.State.Shape.Build()
	if err != nil {
		return nil, fmt.Errorf("testbed %s: %w", e.State.ID, err)
	}
	dir, err := os.Stat(e.Dir)
	return &broken{f, e, dir, map[string]*kernel.Namespace{}}, err
}

// close closes the namespaces. They are opened again for the next change.
func (b *broken) close() (err error) {
	for name, n := range b.ns {
		err = errors.Join(err, n.Close())
		delete(b.ns, name)
	}
	return err
}

// wait waits for some time, the end of ctx or that of the testbed, and reports whether the testbed is
// still up.
func (b *broken) wait(ctx context.Context, d time.Duration) bool {
	up := func() bool {
		now, err := os.Stat(b.entry.Dir)
		return err == nil && os.SameFile(b.dir, now)
	}
	over, look := time.NewTimer(d), time.NewTicker(upPoll)
	defer over.Stop()
	defer look.Stop()
	for up() {
		select {
		case <-over.C:
			return up()
		case <-ctx.Done():
			return up()
		case <-look.C:
		}
	}
	return false
}

func (b *broken) open(name string) (*kernel.Namespace, error) {
	if n := b.ns[name]; n != nil {
		return n, nil
	}
	n, err := kernel.OpenNamespace(filepath.Join(b.entry.PinDir(), name))
	if err == nil {
		b.ns[name] = n
	}
	return n, err
}

func (a *app) fault(ctx context.Context, testbed string, args []string, lasts time.Duration, bounded bool) (err error) {
	i := slices.IndexFunc(faultVerbs, func(v struct{ name, undo, args, short string }) bool { return v.name == args[0] })
	verb := faultVerbs[i]
	switch {
	case bounded && lasts <= 0:
		return usageError{fmt.Errorf("--for %v: must be positive", lasts)}
	case bounded && verb.undo == "":
		return usageError{fmt.Errorf("fault %s: --for is only for faults that can be undone", verb.name)}
	}
	e, err := a.find(ctx, given(testbed))
	if err != nil {
		return err
	}
	b, err := a.breakable(e)
	if err != nil {
		return err
	}
	links, rate, err := faultLinks(b.fabric, args)
	if err != nil {
		return usageError{err}
	}
	if err := a.needRoot("fault", changesLinks); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	if links, err = b.differ(verb.name, links, rate); err != nil {
		return err
	}
	release := func() {}
	if bounded {
		release, err = a.guard(e.State.ID, repair{strings.Join(args, " "), e.State.Created, lasts, verb.undo, links})
		if err != nil {
			return err
		}
	}
	err = b.change(ctx, verb.name, links, rate)
	if bounded {
		if err == nil {
			fmt.Fprintf(a.stderr, "%s, for %v\n", strings.Join(args, " "), lasts)
			err = b.close() // a testbed that is removed meanwhile is to have no namespace left
		}
		if err == nil && !b.wait(ctx, lasts) {
			err = fmt.Errorf("fault %s: %w", strings.Join(args, " "), errGone)
		} else {
			// Also after an error: some links may have changed.
			err = errors.Join(err, b.change(context.WithoutCancel(ctx), verb.undo, links, 0))
		}
		release()
	}
	if err != nil {
		return err
	}
	var names []string
	for _, l := range links {
		names = append(names, b.fabric.LinkName(l))
	}
	out := struct {
		Testbed  string   `json:"testbed"`
		Fault    string   `json:"fault"`
		Links    []string `json:"links"`
		Restored bool     `json:"restored"`
	}{e.State.ID, strings.Join(args, " "), names, bounded}
	return a.print(out, func(w io.Writer) error {
		done := ""
		if bounded {
			done = ", and undone"
		}
		_, err := fmt.Fprintf(w, "%s: done on %s%s\n", out.Fault, strings.Join(names, ", "), done)
		return err
	})
}

// faultLinks returns the links that the arguments name, and the rate.
func faultLinks(f *topo.Fabric, args []string) (links []topo.LinkID, rate units.Rate, err error) {
	kind, name := args[0], args[1]
	switch kind {
	case "host-crash", "host-back":
		h, err := f.FindHost(name)
		if err != nil {
			return nil, 0, err
		}
		return []topo.LinkID{f.HostUp(h), f.HostDown(h)}, 0, nil
	case "spine-down", "spine-up":
		for s := range f.Spines() {
			if topo.SpineName(s) == name {
				links, err = f.FindLinks(fmt.Sprintf("leaf*<>%s", name))
				return links, 0, err
			}
		}
		return nil, 0, fmt.Errorf("unknown spine %q: the fabric has %d, the first is %s", name, f.Spines(), topo.SpineName(0))
	case "link-rate":
		if zero, err := units.ParseRate(args[2]); err == nil && zero == 0 {
			cable := name
			if !strings.Contains(cable, "<>") {
				cable = strings.Replace(cable, ">", "<>", 1)
			}
			return nil, 0, fmt.Errorf("link-rate %s: rate 0 must be positive (to stop all traffic, run: testbed fault link-down '%s')", name, cable)
		}
		if rate, err = scenario.ParseFaultRate(args[2]); err != nil {
			return nil, 0, fmt.Errorf("link-rate %s: %w", name, err)
		}
	default:
		if !strings.Contains(name, "<>") {
			return nil, 0, fmt.Errorf(`link %q: a cable carries both directions: put "<>" between its ends`, name)
		}
	}
	links, err = f.FindLinks(name)
	return links, rate, err
}

// differ returns the links that a fault changes. It returns an error if there are none,
// because all cables are already in the requested state, and if the kernel cannot set a
// rate on every link.
func (b *broken) differ(verb string, links []topo.LinkID, rate units.Rate) ([]topo.LinkID, error) {
	if verb == "link-rate" {
		for _, l := range links {
			op := plan.ShaperOf(b.fabric, l, rate, nil)
			if err := plan.CheckRate(op.Rate, op.Limit, op.Burst, op.MTU); err != nil {
				return nil, usageError{fmt.Errorf("link-rate %s: %w", b.fabric.LinkName(l), err)}
			}
		}
		return links, nil
	}
	up, state := mends(verb), "cut"
	if up {
		state = "up"
	}
	var out []topo.LinkID
	for _, l := range links {
		leaf := plan.CableOf(b.fabric, l).Leaf
		n, err := b.open(leaf.Namespace)
		if err != nil {
			return nil, err
		}
		is, err := n.IsUp(leaf.Device)
		if err != nil {
			return nil, err
		}
		if is != up {
			out = append(out, l)
		}
	}
	if len(out) == 0 {
		var names []string
		for _, l := range links {
			if l%2 == 0 {
				names = append(names, strings.Replace(b.fabric.LinkName(l), ">", "<>", 1))
			}
		}
		return nil, fmt.Errorf("fault %s: nothing to change: already %s: %s", verb, state, strings.Join(names, ", "))
	}
	return out, nil
}

// mends reports whether a fault restores cables.
func mends(verb string) bool {
	return strings.HasSuffix(verb, "-up") || strings.HasSuffix(verb, "-back")
}

// change applies a fault. A rate of 0 stands for the fabric's.
func (b *broken) change(ctx context.Context, verb string, links []topo.LinkID, rate units.Rate) error {
	f := b.fabric
	touched := false
	for _, l := range links {
		if verb == "link-rate" {
			r := rate
			if r == 0 {
				r = f.Link(l).Rate
			}
			op := plan.ShaperOf(f, l, r, nil)
			n, err := b.open(op.Namespace)
			if err == nil {
				err = n.Reshape(op)
			}
			if err != nil {
				return err
			}
			continue
		}
		if l%2 != 0 {
			continue // both directions are one cable
		}
		c := plan.CableOf(f, l)
		leaf, err := b.open(c.Leaf.Namespace)
		if err != nil {
			return err
		}
		far, err := b.open(c.Far.Namespace)
		if err != nil {
			return err
		}
		if mends(verb) {
			err = kernel.Mend(ctx, c, leaf, far)
		} else {
			err = kernel.Cut(c, leaf, far)
		}
		if err != nil {
			return err
		}
		touched = touched || f.Link(l).Kind == topo.LeafUp
	}
	if touched {
		return b.route()
	}
	return nil
}

// route sets the routes of every leaf to the cables that are up according to the devices,
// since other commands may have cut some.
func (b *broken) route() error {
	f := b.fabric
	up := make([][]bool, f.Racks())
	for r := range up {
		n, err := b.open(topo.LeafName(topo.RackID(r)))
		if err != nil {
			return err
		}
		for s := range f.Spines() {
			is, err := n.IsUp(topo.SpineName(s))
			if err != nil {
				return err
			}
			up[r] = append(up[r], is)
		}
	}
	for r := range topo.RackID(f.Racks()) {
		n := b.ns[topo.LeafName(r)]
		var own []int
		for s, is := range up[r] {
			if is {
				own = append(own, s)
			}
		}
		if err := n.ReplaceRoute(plan.FabricRoute(r, own)); err != nil {
			return err
		}
		for to := range topo.RackID(f.Racks()) {
			if to == r {
				continue
			}
			var reach []int
			for _, s := range own {
				if up[to][s] {
					reach = append(reach, s)
				}
			}
			var err error
			if len(reach) == 0 || slices.Equal(reach, own) {
				err = n.DeleteRoute(topo.RackPrefix(to))
			} else {
				err = n.ReplaceRoute(plan.RackRoute(r, to, reach))
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}
