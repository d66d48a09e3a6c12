package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"testbed/emu/deploy"
	"testbed/emu/kernel"
	"testbed/emu/plan"
	"testbed/emu/runner"
	tables "testbed/results/table"
)

func (a *app) upCmd() *cobra.Command {
	var f scenarioFlags
	var name string
	cmd := &cobra.Command{
		Use: "up SCENARIO", Short: "Build a scenario's fabric and leave it up",
		Long: `Up builds the fabric of a scenario, without its workload, for use by hand: run commands in
its hosts with "testbed exec" and "testbed shell", watch its links with "testbed inspect",
break them with "testbed fault". It stays until "testbed down", or until the container or
the mount namespace ends in which it was built.`,
		Example: `  sudo testbed up scripts/quickstart/scenario.yaml --name lab
  sudo testbed exec h0-00 -- ping -c 3 10.3.4.1
  sudo testbed down lab`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := f.one(args[0])
			if err != nil {
				return err
			}
			if err := a.needRoot("up", createsNamespaces); err != nil {
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
			burst, _, err := runner.Buckets(s, fabric, c)
			if err != nil {
				return err
			}
			p := runner.Plan(name, s, fabric, s.RepeatSeed(0), burst)
			if err := runner.CheckFabric(s, fabric, p); err != nil {
				return err
			}
			took, notes, err := up(cmd.Context(), a.state, deploy.State{ID: name, Kind: deploy.KindUp, Name: s.Spec.Name, Shape: s.Shape(), Namespaces: p.Namespaces(), Cgroup: kernel.ProcessCgroup(name)}, p)
			if err != nil {
				return err
			}
			out := struct {
				ID    string        `json:"id"`
				Hosts int           `json:"hosts"`
				Took  time.Duration `json:"took_ns"`
				Notes []string      `json:"notes,omitempty"`
			}{name, fabric.Hosts(), took, notes}
			return a.print(out, func(w io.Writer) error {
				for _, n := range notes {
					fmt.Fprintln(w, "note:", n)
				}
				_, err := fmt.Fprintf(w, "testbed %s is up: %v, in %v\nnext: %s\n", name, p.Counts(), took.Round(time.Millisecond), a.execExample(cmd.Context(), name, fabric.HostName(0)))
				return err
			})
		},
	}
	f.add(cmd)
	f.addPoint(cmd)
	cmd.Flags().StringVar(&name, "name", "", "name of the testbed (default: the scenario's name)")
	return cmd
}

// up builds p and leaves it, or leaves nothing.
func up(ctx context.Context, root string, s deploy.State, p *plan.Plan) (took time.Duration, notes []string, err error) {
	start := time.Now()
	owned, err := deploy.Create(ctx, root, s)
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
		var note string
		if note, err = lasts(filepath.Join(owned.PinDir(), s.Namespaces[0])); note != "" {
			notes = append(notes, note)
		}
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

// lasts returns an error if a testbed with the given pin ends with this process, and a note if it ends
// with the session.
func lasts(pin string) (note string, err error) {
	const remedy = "to keep it: sudo nsenter -t 1 -m -- testbed up …"
	life, err := kernel.LifetimeOf(pin)
	switch {
	case err != nil || life == kernel.UntilRemoved:
		return "", err
	case life == kernel.WithSession:
		return "it ends with this mount namespace, which is not that of the machine (" + remedy + ")", nil
	}
	return "", hinted{errors.New("the testbed would end with this process: its mount namespace is private"), remedy}
}

func (a *app) downCmd() *cobra.Command {
	var grace time.Duration
	var keep bool
	cmd := &cobra.Command{
		Use: "down [TESTBED]", Short: "Remove a testbed that is up",
		Long: `Down removes a testbed that "testbed up" built, with all its namespaces, links and disk
files. It first ends the processes in the testbed, which "testbed ps" lists: each gets
SIGTERM (and SIGHUP if it ignores that, as shells do), and SIGKILL after the grace
period. With --keep, a testbed with processes is not removed. The name is optional if
only one testbed is up.`,
		Example: `  sudo testbed down lab
  sudo testbed down lab --keep
  sudo testbed down lab --grace 30s`,
		Args:              between(0, 1),
		ValidArgsFunction: a.completeTestbeds,
		RunE: func(cmd *cobra.Command, args []string) error {
			e, err := a.find(cmd.Context(), args)
			if err != nil {
				return err
			}
			if err := errors.Join(checkGrace(grace), a.needRoot("down", removesNamespaces)); err != nil {
				return err
			}
			start := time.Now()
			ended, err := deploy.Remove(cmd.Context(), a.state, e.State.ID, kernel.Reaper{Grace: grace, Keep: keep})
			if errors.Is(err, kernel.ErrInUse) {
				return hinted{err, `end them first, or leave out --keep`}
			} else if err != nil {
				return err
			}
			out := struct {
				ID    string           `json:"id"`
				Took  time.Duration    `json:"took_ns"`
				Ended []deploy.Process `json:"ended"`
			}{e.State.ID, time.Since(start), append([]deploy.Process{}, ended...)}
			return a.print(out, func(w io.Writer) error {
				for _, p := range ended {
					fmt.Fprintln(w, "ended", p)
				}
				_, err := fmt.Fprintf(w, "testbed %s is down, in %v\n", out.ID, out.Took.Round(time.Millisecond))
				return err
			})
		},
	}
	addGrace(cmd, &grace)
	cmd.Flags().BoolVar(&keep, "keep", false, "refuse to remove a testbed that processes are in, and list them")
	return cmd
}

// addGrace adds the flag of a verb that ends processes of a testbed.
func addGrace(cmd *cobra.Command, grace *time.Duration) {
	cmd.Flags().DurationVar(grace, "grace", kernel.DefaultGrace, "time that processes in the testbed have to end before SIGKILL, 0 for none")
}

func checkGrace(grace time.Duration) error {
	if grace < 0 {
		return usageError{fmt.Errorf("--grace %v: must be 0 or more", grace)}
	}
	return nil
}

// find is the testbed that is named, or the only one that is up.
func (a *app) find(ctx context.Context, args []string) (deploy.Entry, error) {
	if len(args) == 1 {
		return deploy.Find(ctx, a.state, args[0])
	}
	entries, err := deploy.List(ctx, a.state)
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
		return found, hinted{errors.New("no testbed is up"), "build one: " + a.invocation("up", "SCENARIO")}
	case 1:
		return found, nil
	}
	return found, usageError{fmt.Errorf("%d testbeds are up (%s): say which", len(names), strings.Join(names, ", "))}
}

func (a *app) completeTestbeds(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	entries, err := deploy.List(cmd.Context(), a.state)
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
		Use: "ps", Short: "List testbeds and the processes in them", Args: exactly(0),
		Long: `Ps lists the testbeds of this machine, and the processes in their hosts and switches:
those that "testbed exec" and "testbed shell" started, and their descendants. Only root
sees the processes of all users.`,
		Example: "  sudo testbed ps\n  testbed ps --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			entries, err := deploy.List(cmd.Context(), a.state)
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
				Age     float64     `json:"age_s"` // by the machine's uptime
				// In order of process id.
				Processes []deploy.Process `json:"processes"`
			}
			rows := []row{}
			running := tables.Table{Head: []string{"testbed", "host", "pid", "age", "command"},
				Columns: []tables.Column{tables.Names(), {Left: true}, {}, {}, tables.Prose()}}
			for _, e := range entries {
				r := row{e.State.ID, e.State.Kind, "up", e.State.Shape.Leaves * e.State.Shape.HostsPerLeaf, e.State.User, e.State.PID, e.State.Created, e.State.Age().Seconds(), []deploy.Process{}}
				found, err := kernel.Processes(e.Scope())
				if err != nil {
					return err
				}
				r.Processes = append(r.Processes, found...)
				for _, p := range found {
					running.Rows = append(running.Rows, []string{r.ID, p.Host, fmt.Sprint(p.PID), age(p.Started), p.Short()})
				}
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
			if len(rows) > 0 && os.Geteuid() != 0 {
				fmt.Fprintln(a.stderr, "note: processes of other users are not listed (run it with sudo)")
			}
			return a.print(rows, func(w io.Writer) error {
				if len(rows) == 0 {
					_, err := fmt.Fprintln(w, "no testbeds")
					return err
				}
				t := tables.Table{Head: []string{"testbed", "kind", "status", "hosts", "user", "pid", "age", "processes"},
					Columns: []tables.Column{tables.Names(), {Left: true}, {Left: true}, {}, {Left: true}, {}, {}, {}}}
				for _, r := range rows {
					t.Rows = append(t.Rows, []string{r.ID, string(r.Kind), r.Status, fmt.Sprint(r.Hosts), r.User, fmt.Sprint(r.PID), (time.Duration(r.Age * float64(time.Second))).Round(time.Second).String(), fmt.Sprint(len(r.Processes))})
				}
				err := drawTable(w, t, terminalStyle(0))
				if err == nil && len(running.Rows) > 0 {
					err = drawTable(w, running, terminalStyle(0))
				}
				return err
			})
		},
	}
}

func age(since time.Time) string { return time.Since(since).Round(time.Second).String() }

func (a *app) gcCmd() *cobra.Command {
	var all bool
	var grace time.Duration
	cmd := &cobra.Command{
		Use: "gc", Short: "Remove what killed runs left behind", Args: exactly(0),
		Long: `Gc removes the namespaces, links and disk files of runs whose process no longer exists,
and ends the processes in them as "testbed down" does. It finds them by the record that
each run writes before it creates anything. It does not touch running runs, nor testbeds
that are up unless --all is given.`,
		Example: "  sudo testbed gc\n  sudo testbed gc --all",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(checkGrace(grace), a.needRoot("gc", removesNamespaces)); err != nil {
				return err
			}
			removed, err := deploy.Collect(cmd.Context(), a.state, kernel.Reaper{Grace: grace}, all)
			if removed == nil {
				removed = []deploy.Removed{}
			}
			return errors.Join(err, a.print(removed, func(w io.Writer) error {
				for _, r := range removed {
					for _, p := range r.Ended {
						fmt.Fprintln(w, "ended", p)
					}
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
	addGrace(cmd, &grace)
	return cmd
}

func (a *app) execCmd() *cobra.Command {
	var testbed string
	var privileged bool
	cmd := &cobra.Command{
		Use: "exec HOST -- COMMAND [ARG...]", Short: "Run a command on an emulated host, leaf or spine",
		Long: `Exec runs a command in the namespace of a host (h0-00), leaf (leaf0) or spine (spine0) of
a testbed that is up.

The network, host name, host names and processes are those of the emulated host: /sys
shows its devices, /etc/hosts lists all hosts, leaves and spines, and ps lists the
processes that the command started. In /sys and /proc, the command can write to the devices
and network parameters of the host (/sys/class/net, /proc/sys/net) and to files of its
processes; all else is read-only. Files and users are those of this machine, and the
command is root, without the capabilities that act on the machine: it cannot mount, enter
other namespaces, load modules or BPF programs, or set the clock. --privileged leaves it
these and shows it the processes of the machine.

The command has the terminal, signals and exit code of this program. A shell reports
128 + N for a command that signal N ended, 127 for one that is not found and 126 for one
that cannot be executed. "testbed down" ends it.`,
		Example: `  sudo testbed exec h0-00 -- ping -c 3 h3-04
  sudo testbed exec leaf0 -- tc -s qdisc`,
		Args: between(2, -1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.inside(cmd.Context(), "exec", testbed, args[0], args[1:], privileged)
		},
		ValidArgsFunction: a.completeHosts,
	}
	addTestbed(cmd, &testbed)
	addPrivileged(cmd, &privileged)
	return cmd
}

// addPrivileged adds the flag of a verb that runs a command in a host.
func addPrivileged(cmd *cobra.Command, privileged *bool) {
	cmd.Flags().BoolVar(privileged, "privileged", false, "leave the command all capabilities and the machine's processes, and replace testbed by it")
}

func (a *app) shellCmd() *cobra.Command {
	var testbed string
	var privileged bool
	cmd := &cobra.Command{
		Use: "shell HOST", Short: "Open a shell on an emulated host, leaf or spine",
		Long:    `Shell runs $SHELL, or /bin/sh, on a host, leaf or spine in the same way as "testbed exec".`,
		Example: "  sudo testbed shell h0-00",
		Args:    exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			shell := os.Getenv("SHELL")
			if shell == "" {
				shell = "/bin/sh"
			}
			return a.inside(cmd.Context(), "shell", testbed, args[0], []string{shell}, privileged)
		},
		ValidArgsFunction: a.completeHosts,
	}
	addTestbed(cmd, &testbed)
	addPrivileged(cmd, &privileged)
	return cmd
}

func (a *app) completeHosts(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveDefault
	}
	named, _ := cmd.Flags().GetString("testbed")
	e, err := a.find(cmd.Context(), given(named))
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

func known(names []string, name string) bool {
	for _, n := range names {
		if n == name {
			return true
		}
	}
	return false
}
