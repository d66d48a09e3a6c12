package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"testbed/emu/deploy"
	"testbed/emu/experiment"
	"testbed/emu/kernel"
	"testbed/emu/plan"
	tables "testbed/results/table"
	"testbed/topo"
)

func (a *app) upCmd() *cobra.Command {
	var f scenarioFlags
	var name string
	cmd := &cobra.Command{
		Use: "up SCENARIO", Short: "Build a scenario's fabric and leave it up, to use by hand",
		Example: `  sudo testbed up scripts/quickstart/scenario.yaml --name lab
  sudo testbed exec h0-00 -- ping -c 3 10.3.4.1
  sudo testbed down lab`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := f.load(args[0])
			if err != nil {
				return err
			}
			if err := needRoot("up"); err != nil {
				return err
			}
			if name == "" {
				name = s.Spec.Name
			}
			fabric, err := s.Shape().Build()
			if err != nil {
				return err
			}
			c, err := a.calibration()
			if err != nil {
				return err
			}
			burst, _, err := experiment.Buckets(s, fabric, c)
			if err != nil {
				return err
			}
			p := plan.Compile(name, fabric, plan.Options{Seed: s.RepeatSeed(0), Burst: burst})
			took, notes, err := up(cmd.Context(), a.state, deploy.State{ID: name, Kind: deploy.KindUp, Name: s.Spec.Name, Shape: s.Shape(), Namespaces: p.Namespaces()}, p)
			if err != nil {
				return err
			}
			out := struct {
				ID      string        `json:"id"`
				Hosts   int           `json:"hosts"`
				Took    time.Duration `json:"took_ns"`
				Notes   []string      `json:"notes,omitempty"`
				Example string        `json:"-"`
			}{name, fabric.Hosts(), took, notes, fabric.HostName(0)}
			return a.print(out, func(w io.Writer) error {
				for _, n := range notes {
					fmt.Fprintln(w, "note:", n)
				}
				_, err := fmt.Fprintf(w, "testbed %s is up: %v, in %v\ntry: testbed exec %s -- ip addr\n", name, p.Counts(), took.Round(time.Millisecond), out.Example)
				return err
			})
		},
	}
	f.add(cmd)
	cmd.Flags().StringVar(&name, "name", "", "name of the testbed (the scenario's name by default)")
	return cmd
}

// up builds p and leaves it, or leaves nothing.
func up(ctx context.Context, root string, s deploy.State, p *plan.Plan) (took time.Duration, notes []string, err error) {
	start := time.Now()
	owned, err := deploy.Create(root, s)
	if err != nil {
		return 0, nil, err
	}
	x := kernel.NewExecutor(owned.PinDir())
	d, err := deploy.Apply(ctx, p, x)
	if err == nil {
		notes = d.Notes()
		err = deploy.Verify(ctx, p, x)
	}
	if err == nil {
		err = owned.SetReady()
	}
	err = errors.Join(err, x.Close())
	if err != nil {
		return 0, nil, errors.Join(err, owned.Remove(context.WithoutCancel(ctx), kernel.Reaper{}))
	}
	return time.Since(start), notes, owned.Release()
}

func (a *app) downCmd() *cobra.Command {
	return &cobra.Command{
		Use: "down [TESTBED]", Short: "Remove a testbed that is up",
		Long: `Down removes a testbed that "testbed up" left, with every namespace, link and disk
file of it. The name may be left out where only one is up.`,
		Example:           "  sudo testbed down lab",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: a.completeTestbeds,
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := a.find(args)
			if err != nil {
				return err
			}
			if err := needRoot("down"); err != nil {
				return err
			}
			start := time.Now()
			if err := deploy.Remove(cmd.Context(), a.state, e.State.ID, kernel.Reaper{}); err != nil {
				return err
			}
			out := struct {
				ID   string        `json:"id"`
				Took time.Duration `json:"took_ns"`
			}{e.State.ID, time.Since(start)}
			return a.print(out, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "testbed %s is down, in %v\n", out.ID, out.Took.Round(time.Millisecond))
				return err
			})
		},
	}
}

// find is the testbed that is named, or the only one that is up.
func (a *app) find(args []string) (deploy.Entry, error) {
	if len(args) == 1 {
		return deploy.Find(a.state, args[0])
	}
	entries, err := deploy.List(a.state)
	if err != nil {
		return deploy.Entry{}, err
	}
	var names []string
	var found deploy.Entry
	for _, e := range entries {
		if e.State.Ready && (e.State.Kind == deploy.KindUp || e.Live) {
			names, found = append(names, e.State.ID), e
		}
	}
	switch len(names) {
	case 0:
		return found, hinted{errors.New("no testbed is up"), `bring one up with "testbed up SCENARIO"`}
	case 1:
		return found, nil
	}
	return found, usageError{fmt.Errorf("%d testbeds are up (%s): say which", len(names), strings.Join(names, ", "))}
}

func (a *app) completeTestbeds(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	entries, err := deploy.List(a.state)
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.State.ID)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (a *app) psCmd() *cobra.Command {
	return &cobra.Command{
		Use: "ps", Short: "List the testbeds of this machine", Args: exactly(0),
		Example: "  testbed ps --json",
		RunE: func(*cobra.Command, []string) error {
			entries, err := deploy.List(a.state)
			if err != nil {
				return err
			}
			type row struct {
				ID      string      `json:"id"`
				Kind    deploy.Kind `json:"kind"`
				Status  string      `json:"status"`
				Hosts   int         `json:"hosts"`
				User    string      `json:"user"`
				PID     int         `json:"pid"`
				Created time.Time   `json:"created"`
			}
			rows := []row{}
			for _, e := range entries {
				r := row{e.State.ID, e.State.Kind, "up", e.State.Shape.Leaves * e.State.Shape.HostsPerLeaf, e.State.User, e.State.PID, e.State.Created}
				switch {
				case e.Stale():
					r.Status = "left over"
				case e.Live && !e.State.Ready:
					r.Status = "building"
				case e.Live:
					r.Status = "running"
				}
				rows = append(rows, r)
			}
			return a.print(rows, func(w io.Writer) error {
				if len(rows) == 0 {
					_, err := fmt.Fprintln(w, "no testbeds")
					return err
				}
				t := tables.Table{Head: []string{"testbed", "kind", "status", "hosts", "user", "pid", "age"},
					Columns: []tables.Column{tables.Names(), {Left: true}, {Left: true}, {}, {Left: true}, {}, {}}}
				for _, r := range rows {
					t.Rows = append(t.Rows, []string{r.ID, string(r.Kind), r.Status, fmt.Sprint(r.Hosts), r.User, fmt.Sprint(r.PID), time.Since(r.Created).Round(time.Second).String()})
				}
				return drawTable(w, t, terminalStyle(0))
			})
		},
	}
}

func (a *app) gcCmd() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use: "gc", Short: "Remove what killed runs left behind", Args: exactly(0),
		Long: `Gc removes the namespaces, links and disk files of runs whose process is gone. It
finds them by the record that each run wrote before it made anything, and touches
nothing else: not the runs that go on, and not the testbeds that were brought up,
unless --all is given.`,
		Example: "  sudo testbed gc\n  sudo testbed gc --all",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := needRoot("gc"); err != nil {
				return err
			}
			removed, err := deploy.Collect(cmd.Context(), a.state, kernel.Reaper{}, all)
			if removed == nil {
				removed = []deploy.Removed{}
			}
			return errors.Join(err, a.print(removed, func(w io.Writer) error {
				for _, r := range removed {
					fmt.Fprintf(w, "removed %s: %d namespaces (%s)\n", r.ID, r.Namespaces, r.Why)
				}
				if len(removed) == 0 {
					fmt.Fprintln(w, "nothing to remove")
				}
				return nil
			}))
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "also remove testbeds that are up on purpose")
	return cmd
}

func (a *app) execCmd() *cobra.Command {
	var testbed string
	cmd := &cobra.Command{
		Use: "exec HOST -- COMMAND [ARG...]", Short: "Run a command on an emulated host, leaf or spine",
		Long: `Exec runs a command inside the namespace of a host (h0-00), leaf (leaf0) or spine
(spine0) of a testbed that is up. The exit code is the command's.`,
		Example: `  sudo testbed exec h0-00 -- ping -c 3 10.3.4.1
  sudo testbed exec leaf0 -- tc -s qdisc`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.inside(cmd.Context(), testbed, args[0], args[1:])
		},
		ValidArgsFunction: a.completeHosts,
	}
	cmd.Flags().StringVar(&testbed, "testbed", "", "which testbed, where several are up")
	return cmd
}

func (a *app) shellCmd() *cobra.Command {
	var testbed string
	cmd := &cobra.Command{
		Use: "shell HOST", Short: "Open a shell on an emulated host, leaf or spine",
		Example: "  sudo testbed shell h0-00",
		Args:    exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			shell := os.Getenv("SHELL")
			if shell == "" {
				shell = "/bin/sh"
			}
			return a.inside(cmd.Context(), testbed, args[0], []string{shell})
		},
		ValidArgsFunction: a.completeHosts,
	}
	cmd.Flags().StringVar(&testbed, "testbed", "", "which testbed, where several are up")
	return cmd
}

func (a *app) completeHosts(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	named, _ := cmd.Flags().GetString("testbed")
	e, err := a.find(given(named))
	if err != nil {
		return nil, cobra.ShellCompDirectiveError
	}
	return e.State.Namespaces, cobra.ShellCompDirectiveNoFileComp
}

func given(name string) []string {
	if name == "" {
		return nil
	}
	return []string{name}
}

// inside runs a command in a namespace of a testbed, with this process's
// terminal, and passes on its exit code.
func (a *app) inside(ctx context.Context, testbed, host string, command []string) error {
	e, err := a.find(given(testbed))
	if err != nil {
		return err
	}
	f, err := e.State.Shape.Build()
	if err != nil {
		return fmt.Errorf("testbed %s: %w", e.State.ID, err)
	}
	if !known(e.State.Namespaces, host) {
		return usageError{fmt.Errorf("testbed %s has no %q: hosts are %s to %s, switches %s and so on", e.State.ID, host, f.HostName(0), f.HostName(topo.HostID(f.Hosts()-1)), topo.LeafName(0))}
	}
	if err := needRoot("exec"); err != nil {
		return err
	}
	n, err := kernel.OpenNamespace(filepath.Join(e.PinDir(), host))
	if err != nil {
		return err
	}
	defer n.Close()
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Stdin, c.Stdout, c.Stderr = a.stdin, a.stdout, a.stderr
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = 5 * time.Second
	c.Env = append(os.Environ(), "TESTBED_HOST="+host)
	err = n.Run(c)
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return exitCode(max(exit.ExitCode(), exitFailure))
	}
	return err
}

func known(names []string, name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}
