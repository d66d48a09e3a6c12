package cli

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"testbed/emu/calibrate"
	"testbed/emu/calibration"
	tables "testbed/results/table"
	"testbed/topo/units"
)

func (a *app) calibrateCmd() *cobra.Command {
	var rates, mtus []string
	var quick bool
	var out, dir string
	cmd := &cobra.Command{
		Use: "calibrate", Short: "Measure what this machine can emulate, for plan and run to go by", Args: exactly(0),
		Long: `Calibrate measures, from captured packets, which token buckets hold a link's rate
and the time of short flows; with real runs, how many packets a second the machine
carries; and what its disk and the ways to throttle it do. It takes less than three
minutes, needs root, and wants the machine to itself.

The result is kept in the user's cache for this machine and kernel, or where
` + calibration.Env + ` says, and used by plan, run and up from then on.`,
		Example: `  sudo testbed calibrate
  sudo testbed calibrate --rates 10Mbps,25Mbps,100Mbps --mtu 1500
  sudo testbed calibrate --quick --out /tmp/calibration.json
  sudo testbed calibrate --json | jq '.capacity'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o := calibrate.Defaults()
			if quick {
				o = calibrate.Quick()
			}
			if err := parseRates(rates, mtus, &o); err != nil {
				return usageError{err}
			}
			if err := o.Check(); err != nil {
				return usageError{err}
			}
			if err := needRoot("calibrate"); err != nil {
				return err
			}
			path := out
			if path == "" {
				var err error
				if path, err = calibration.Path(); err != nil {
					return err
				}
			}
			o.Dir, o.StateRoot, o.Version = dir, a.state, version
			show := a.progress()
			o.Progress = func(what string, done float64) {
				show.show(state{stage: "calibrate: " + what, text: fmt.Sprintf("%.0f %%", 100*done), share: done})
			}
			c, err := calibrate.Run(cmd.Context(), o)
			show.done()
			if err != nil {
				return err
			}
			if err := c.Write(path); err != nil {
				return err
			}
			return a.print(c, func(w io.Writer) error {
				if err := writeCalibration(w, c, terminalStyle(0)); err != nil {
					return err
				}
				_, err := fmt.Fprintf(w, "\nKept in %s\n", path)
				return err
			})
		},
	}
	cmd.Flags().StringSliceVar(&rates, "rates", nil, "link rates to calibrate (10Mbps to 1Gbps in seven steps by default)")
	cmd.Flags().StringSliceVar(&mtus, "mtu", nil, "MTUs to calibrate, in bytes (1500,9000 by default)")
	cmd.Flags().BoolVar(&quick, "quick", false, "fewer and shorter measurements: three fifths of the time, less certain")
	cmd.Flags().StringVar(&out, "out", "", "file to keep the result in instead of the user's cache")
	cmd.Flags().StringVar(&dir, "dir", ".", "directory in which runs would be made, where the disk is measured")
	return cmd
}

func parseRates(rates, mtus []string, o *calibrate.Options) error {
	if len(rates) > 0 {
		o.Rates = nil
	}
	for _, s := range rates {
		r, err := units.ParseRate(strings.TrimSpace(s))
		if err != nil {
			return fmt.Errorf("--rates: %w", err)
		}
		o.Rates = append(o.Rates, r)
	}
	if len(mtus) > 0 {
		o.MTUs = nil
	}
	for _, s := range mtus {
		n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 32)
		if err != nil {
			return fmt.Errorf("--mtu %q: want a plain number of bytes, such as 1500", s)
		}
		o.MTUs = append(o.MTUs, units.Bytes(n))
	}
	return nil
}

// writeCalibration prints a calibration as tables.
func writeCalibration(w io.Writer, c *calibration.Calibration, style tables.Style) error {
	fmt.Fprintf(w, "Calibrated %s on %d processors, Linux %s, in %v\n\n", c.Date.Format(time.DateOnly), c.CPUs, c.Kernel, c.Took)
	if err := style.Paragraph(w, "", "", fmt.Sprintf("Links: buckets that hold the rate within %g %% and flows within %g %%, for flows of so many bytes after an idle moment",
		100*calibration.RateTolerance, 100*calibration.FlowTolerance)); err != nil {
		return err
	}
	shorts := []units.Bytes{calibration.DefaultShortFlow, 250 * units.KB, units.MB}
	links := tables.Table{Head: []string{"link"}, Columns: []tables.Column{{Left: true}}}
	for _, s := range shorts {
		links.Head = append(links.Head, s.String())
	}
	links.Head = append(links.Head, "bucket", "rate error", "short flow")
	for _, l := range c.Links {
		row := []string{fmt.Sprintf("%v, MTU %d", l.Rate, int64(l.MTU))}
		short := units.Bytes(0) // the least that works, of which the other columns are
		for _, s := range shorts {
			win := l.Window(s)
			if win.Empty() {
				row = append(row, "none")
				continue
			}
			if short == 0 {
				short = s
			}
			row = append(row, fmt.Sprintf("%d-%d", int64(win.Least), int64(win.Most)))
		}
		if short == 0 {
			row = append(row, "", "", "")
		} else {
			b := l.Nearest(l.Window(short).Pick())
			row = append(row, fmt.Sprint(int64(b.Size)), spreadPercent(b.RateError, 1), spreadPercent(b.Credit, -1/float64(calibration.Wire(short, l.MTU)))+" at "+short.String())
		}
		links.Rows = append(links.Rows, row)
	}
	if err := drawTable(w, links, style); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nCapacity: flows at once in one rack, each saturating two links, with verdict pass\n")
	capacity := tables.Table{Head: []string{"MTU", "link rate", "flows", "saturated links", "shaped packets/s", "links × packets/s", "processor time a packet"},
		Columns: []tables.Column{{}, {}, {}, {Short: "links"}, {Short: "packets/s"}, {Short: "product"}, {Short: "time a packet"}}}
	for _, x := range c.Capacity {
		flows := strconv.Itoa(x.Flows)
		if x.Bounded {
			flows += " or more"
		}
		capacity.Rows = append(capacity.Rows, []string{fmt.Sprint(int64(x.MTU)), x.Rate.String(), flows, fmt.Sprint(x.Links), fmt.Sprintf("%.0f", x.Packets), fmt.Sprintf("%.2g", x.Product()),
			fmt.Sprintf("%.1f µs (%.1f to %.1f)", x.Cost.Seconds()*1e6, x.CostFrom[0]/1e3, x.CostFrom[1]/1e3)})
	}
	if err := drawTable(w, capacity, style); err != nil {
		return err
	}
	for _, line := range []string{
		"",
		fmt.Sprintf("Building, ms each: namespace %s, veth pair %s, shaper %s", ms(c.Build.Namespace), ms(c.Build.Veth), ms(c.Build.Qdisc)),
		fmt.Sprintf("Disk of %s, %s, unthrottled: %.0f MB/s (%.0f to %.0f)", c.Disk.Dir, c.Disk.Mode, c.Disk.Write.Median/8e6, c.Disk.Write.Least/8e6, c.Disk.Write.Most/8e6),
	} {
		if err := style.Paragraph(w, "", "  ", line); err != nil {
			return err
		}
	}
	disks := tables.Table{Head: []string{"throttle", "at", "steady", "error"}, Columns: []tables.Column{tables.Names(), {}, {}, {Wrap: 24}}}
	for _, x := range c.Disk.Throttles {
		if x.Missing != "" {
			disks.Rows = append(disks.Rows, []string{x.Name, "", "", "missing: " + x.Missing})
		}
		for _, r := range x.Rates {
			steady := "–"
			if r.SteadyError != nil {
				steady = fmt.Sprintf("%+.2f %%", 100**r.SteadyError)
			}
			disks.Rows = append(disks.Rows, []string{x.Name, fmt.Sprintf("%.1f MB/s", float64(r.Rate)/8e6), steady, fmt.Sprintf("%+.2f %%", 100*r.Error)})
		}
	}
	return drawTable(w, disks, style)
}

// spreadPercent prints a spread times scale.
func spreadPercent(s calibration.Spread, scale float64) string {
	a, b := 100*scale*s.Least, 100*scale*s.Most
	return fmt.Sprintf("%+.2f %% (%+.2f to %+.2f)", 100*scale*s.Median, math.Min(a, b), math.Max(a, b))
}

func ms(s calibration.Spread) string {
	return fmt.Sprintf("%.2f (%.2f to %.2f)", s.Median, s.Least, s.Most)
}
