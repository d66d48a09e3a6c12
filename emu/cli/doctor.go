package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"testbed/emu/calibration"
	"testbed/emu/deploy"
	"testbed/emu/kernel"
	tables "testbed/results/table"
)

func (a *app) doctorCmd() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "doctor", Short: "Check the features and limits of this machine", Args: exactly(0),
		Long: `Doctor checks the kernel, its features and limits, the disks and the clock, and states
the consequence of each missing feature. It changes nothing. It fails if a required
feature is missing. Without root, some checks are not possible and are listed as such.`,
		Example: "  sudo testbed doctor\n  testbed doctor --json",
		RunE: func(cmd *cobra.Command, _ []string) error {
			facts := append(kernel.Probe(a.state, dir), otherTestbeds(cmd.Context(), a.state), calibrated())
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

// calibrated reports whether this machine and kernel are calibrated.
func calibrated() kernel.Fact {
	f := kernel.Fact{Group: "machine", Name: "calibration", Cost: "links get default buckets, and an excessive load is not refused (run: sudo testbed calibrate)"}
	c, err := calibration.Load()
	switch {
	case err != nil:
		f.Unknown, f.Detail = true, err.Error()
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
