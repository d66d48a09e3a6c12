package cli

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"testbed/emu/calibration"
	"testbed/emu/deploy"
	"testbed/emu/guest"
	"testbed/emu/kernel"
	"testbed/emu/runner"
	"testbed/emu/scenario"
	"testbed/policies/catalog"
	tables "testbed/results/table"
	"testbed/results/verdict"
	"testbed/topo/words"
)

func (a *app) doctorCmd() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check the features and limits of this machine", Args: exactly(0),
		Long: `Doctor reports what works here, on the machine itself, in a container, in WSL 2 or in a CI job,
and the remedy for what does not. It checks the kernel, its features and limits, the disks and the clock, and states
the consequence of each missing feature. It also runs a testbed of two hosts as "testbed run"
does, and removes it. It fails if a required feature is missing, or that run. Without root,
some checks are not possible and are listed as such.`,
		Example: "  sudo testbed doctor\n  testbed doctor --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			others := otherTestbeds(cmd.Context(), a.state)
			packets := a.twoHosts(cmd.Context(), dir, others)
			facts := append(worksHere(kernel.Here(), packets), virtualTime(cmd.Context()))
			facts = append(facts, kernel.Probe(a.state, dir)...)
			facts = append(facts, others, calibrated(), packets)
			if err := context.Cause(cmd.Context()); err != nil {
				return errors.Join(errInterrupted, err)
			}
			if err := a.print(facts, func(w io.Writer) error { return printFacts(w, facts) }); err != nil {
				return err
			}
			return needs(facts)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "runs", "`directory` for runs, whose disk is measured")
	cmd.Flags().StringVar(&dir, "output", "runs", "former name of --dir")
	hide(cmd, "output")
	return cmd
}

// worksHere reports which commands work in a place, where packets are tested by a run.
func worksHere(p kernel.Place, packets kernel.Fact) []kernel.Fact {
	const group = "works here"
	return []kernel.Fact{
		{Group: group, Name: "sim, report, compare, plot", Have: true, Detail: "the fluid model, traces and runs, for every user"},
		{Group: group, Name: "run, up, demo, calibrate", Have: packets.Have, Unknown: packets.Unknown, Detail: p.String(), Cost: "no packets. Remedy: " + p.Remedy()},
	}
}

// virtualTime reports whether trials can run in virtual time, and what installs what is missing.
func virtualTime(ctx context.Context) kernel.Fact {
	f := kernel.Fact{Group: "works here", Name: "run --time virtual", Cost: "no packets in virtual time. Remedy: " + guest.Install}
	k, err := guest.Find(ctx, "")
	if err == nil && k.UserMode {
		f.Have, f.Detail = true, "packets for every user, in user-mode Linux "+k.Release
		return f
	}
	version, err2 := guest.Version(ctx)
	if err := errors.Join(err, err2); err != nil {
		f.Detail = strings.ReplaceAll(err.Error(), "\n", "; ")
		return f
	}
	f.Have, f.Detail = true, fmt.Sprintf("packets for every user, in qemu %s with kernel %s", version, k.Release)
	return f
}

// otherTestbeds reports testbeds whose processes share the processors of this machine.
func otherTestbeds(ctx context.Context, root string) kernel.Fact {
	f := kernel.Fact{Group: "machine", Name: "no other testbed", Cost: "concurrent runs compete for processors, which degrades both verdicts"}
	entries, err := deploy.List(ctx, root)
	if err != nil {
		f.Unknown, f.Detail = true, err.Error()
		return f
	}
	var live []string
	for _, e := range entries {
		if !e.Stale() {
			live = append(live, e.State.ID)
		}
	}
	f.Have, f.Detail = len(live) == 0, fmt.Sprintf("%d in %s", len(live), root)
	if len(live) > 0 {
		f.Detail += ": " + strings.Join(live, ", ")
	}
	return f
}

// A scenario of two hosts that takes less than a second.
//
//go:embed twohosts
var twoHosts embed.FS

// twoHostsTime bounds the run of two hosts, without its removal.
const twoHostsTime = 30 * time.Second

// twoHosts runs a coflow between two hosts, computes its completion time from their captures and
// removes everything. A running testbed is not disturbed.
func (a *app) twoHosts(ctx context.Context, dir string, others kernel.Fact) kernel.Fact {
	f := kernel.Fact{Group: "testbed", Name: "two hosts", Needed: true, Cost: "testbed run and testbed up fail in the same way"}
	if err := a.needRoot("doctor", createsNamespaces); err != nil {
		f.Detail = err.Error()
		return f
	}
	if !others.Have && !others.Unknown {
		f.Unknown, f.Detail = true, "not built, because it would disturb others: "+others.Detail
		return f
	}
	ctx, cancel := context.WithTimeoutCause(ctx, twoHostsTime, fmt.Errorf("not complete after %v", twoHostsTime))
	defer cancel()
	began := time.Now()
	o, err := a.runTwoHosts(ctx, dir)
	if err != nil {
		lines := strings.Split(err.Error(), "\n")
		if f.Detail = lines[0]; len(lines) > 1 { // mostly of other hosts
			f.Detail += "; and " + words.Plural(len(lines)-1, "error", "errors")
		}
		return f
	}
	f.Have = true
	f.Detail = fmt.Sprintf("built, sent data by TCP, captured the packets and removed all in %v; verdict %v", time.Since(began).Round(time.Millisecond), o.Level())
	return f
}

// runTwoHosts runs the scenario in a temporary directory where dir is or would be made.
func (a *app) runTwoHosts(ctx context.Context, dir string) (o *runner.Outcome, err error) {
	const name = "twohosts/scenario.yaml"
	text, err := twoHosts.ReadFile(name)
	if err != nil {
		return nil, err
	}
	s, err := scenario.Parse(name, text, scenario.Options{Catalog: catalog.All(), Open: twoHosts.Open})
	if err != nil {
		return nil, err
	}
	at, err := kernel.Existing(dir)
	if err != nil {
		return nil, err
	}
	out, err := os.MkdirTemp(at, ".doctor-")
	if err != nil {
		return nil, fmt.Errorf("make a run directory (choose another place with --dir): %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(out)) }()
	o, err = runner.Execute(ctx, s, runner.Options{Out: out, StateRoot: a.state, Version: version, Captures: runner.DropCaptures})
	if err == nil && o.Level() != verdict.Void && (o.Report.Summary.Arms[0].CCT == nil || o.Report.Summary.Arms[0].CCT.N != 1) {
		err = errors.New("its captures show no completed coflow")
	}
	return o, err
}

// calibrated reports whether this machine and kernel are calibrated.
func calibrated() kernel.Fact {
	f := kernel.Fact{Group: "machine", Name: "calibration", Cost: "links get default buckets, and an excessive load is not refused (run: sudo testbed calibrate)"}
	c, err := calibration.Load()
	switch {
	case err != nil:
		f.Needed, f.Detail, f.Cost = true, err.Error(), "testbed run and testbed up refuse to start: remove the file"
	case c == nil:
		f.Detail = "not calibrated for this kernel"
	default:
		f.Have, f.Detail = true, fmt.Sprintf("calibrated on %s: %d links", c.Date.Local().Format(time.DateOnly), len(c.Links))
		if c.Kernel != calibration.Kernel() || c.Machine != calibration.MachineID() {
			f.Detail += ", on another machine or kernel (" + c.Kernel + ")"
		}
	}
	return f
}

// needs returns an error that names every required feature that is missing. A feature that
// is unknown because another one is missing does not count.
func needs(facts []kernel.Fact) error {
	var errs []error
	for _, f := range facts {
		if f.Needed && !f.Have && !f.Unknown {
			errs = append(errs, fmt.Errorf("%s is missing: %s", f.Name, f.Cost))
		}
	}
	return errors.Join(errs...)
}

// doctorName is the width of names in the output.
const doctorName = 32

// printFacts writes the groups in order of appearance.
func printFacts(w io.Writer, facts []kernel.Fact) error {
	var groups []string
	count := map[string]int{}
	for _, f := range facts {
		if !slices.Contains(groups, f.Group) {
			groups = append(groups, f.Group)
		}
		count[mark(f)]++
	}
	const indent = doctorName + 10
	var b strings.Builder
	for i, g := range groups {
		if i > 0 {
			b.WriteString("\n")
		}
		b.WriteString(g + "\n")
		for _, f := range facts {
			if f.Group != g {
				continue
			}
			head := fmt.Sprintf("  %-7s %s", mark(f), f.Name)
			text := f.Detail
			if !f.Have && !f.Unknown {
				text = strings.TrimPrefix(text+"; without it: "+f.Cost, "; ")
			}
			lines := tables.Wrap(text, tables.DefaultWidth-indent)
			if len(head) >= indent && text != "" { // a long name gets its own line
				b.WriteString(head + "\n")
				head = ""
			}
			for _, line := range lines {
				b.WriteString(strings.TrimRight(fmt.Sprintf("%-*s%s", indent, head, line), " ") + "\n")
				head = ""
			}
		}
	}
	fmt.Fprintf(&b, "\n%d present, %d missing, %d of them required; %d not checked\n",
		count["yes"], count["no"]+count["MISSING"], count["MISSING"], count["?"])
	_, err := io.WriteString(w, b.String())
	return err
}

func mark(f kernel.Fact) string {
	switch {
	case f.Have:
		return "yes"
	case f.Unknown:
		return "?"
	case f.Needed:
		return "MISSING"
	}
	return "no"
}
