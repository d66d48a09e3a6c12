package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"testbed/emu/calibration"
	"testbed/emu/calibration/measure"
	tables "testbed/results/table"
	"testbed/topo/units"
)

func (a *app) calibrateCmd() *cobra.Command {
	var rates, mtus []string
	var quick, noise bool
	var pairs int
	var out, dir string
	cmd := &cobra.Command{
		Use: "calibrate", Short: "Measure what this machine can emulate", Args: exactly(0),
		Long: `Calibrate measures, with captured packets, which token buckets keep the rate of a link and
the time of short flows; with real runs, how many packets per second the machine can
carry; and the rates of its disk and disk throttles. It takes about three and a half minutes,
requires root, and needs an otherwise idle machine.

With --noise it measures instead how much identical runs differ: it runs pairs of
identical runs on a small fabric, and counts how often the intervals of reports show a
difference (expected for 95 % intervals: 5 %). This takes about five seconds per pair.
Reports state the result, and their intervals are widened by it.

The result is stored in the user's cache directory for this machine and kernel, or in the
file that ` + calibration.Env + ` names. plan, run and up use it.`,
		Example: `  sudo testbed calibrate
  sudo testbed calibrate --rates 10Mbps,25Mbps,100Mbps --mtu 1500
  sudo testbed calibrate --quick --output /tmp/calibration.json
  sudo testbed calibrate --json | jq '.capacity'
  sudo testbed calibrate --noise
  sudo testbed calibrate --noise --pairs 100 --json | jq '.figures'`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o := measure.Defaults()
			if quick {
				o = measure.Quick()
			}
			if err := parseRates(rates, mtus, &o); err != nil {
				return usageError{err}
			}
			if err := o.Check(); err != nil {
				return usageError{err}
			}
			switch {
			case noise && (quick || len(rates) > 0 || len(mtus) > 0):
				return usageError{errors.New("--noise measures neither links nor disks: omit --quick, --rates and --mtu")}
			case !noise && cmd.Flags().Changed("pairs"):
				return usageError{errors.New("--pairs requires --noise")}
			}
			n := measure.NoiseOptions{Pairs: pairs, Dir: dir, StateRoot: a.state, Version: version}
			if err := n.Check(); noise && (err != nil || pairs == 0) {
				return usageError{fmt.Errorf("--pairs %d: must be %d to %d", pairs, measure.LeastNoisePairs, measure.MostNoisePairs)}
			}
			if err := a.needRoot("calibrate", createsNamespaces); err != nil {
				return err
			}
			path := out
			if path == "" {
				var err error
				if path, err = calibration.Path(); err != nil {
					return err
				}
			}
			old, err := calibration.Read(path)
			switch {
			case errors.Is(err, fs.ErrNotExist) && noise:
				return fmt.Errorf("calibrate --noise: this machine is not calibrated, so the links would differ from those of its runs: %s is missing (run first: sudo testbed calibrate)", path)
			case err != nil && noise:
				return err
			}
			o.Dir, o.StateRoot, o.Version = dir, a.state, version
			show := a.progress()
			o.Progress = func(what string, done float64) {
				show.show(state{stage: "calibrate: " + what, text: units.Percent(done, 0), share: done})
			}
			if noise {
				n.Calibration, n.Progress = old, o.Progress
				old.Noise, err = measure.Noise(cmd.Context(), n)
				show.done()
				if err != nil {
					return err
				}
				if err := old.Write(path); err != nil {
					return err
				}
				return a.print(old.Noise, func(w io.Writer) error {
					if err := writeNoise(w, old.Noise, terminalStyle(0)); err != nil {
						return err
					}
					_, err := fmt.Fprintf(w, "\nWritten to %s\n", path)
					return err
				})
			}
			c, err := measure.Run(cmd.Context(), o)
			show.done()
			if err != nil {
				return err
			}
			if old != nil && old.Machine == c.Machine && old.Kernel == c.Kernel {
				c.Noise = old.Noise
			}
			if err := c.Write(path); err != nil {
				return err
			}
			return a.print(c, func(w io.Writer) error {
				if err := writeCalibration(w, c, terminalStyle(0)); err != nil {
					return err
				}
				_, err := fmt.Fprintf(w, "\nWritten to %s\n", path)
				return err
			})
		},
	}
	cmd.Flags().StringSliceVar(&rates, "rates", nil, "link rates to calibrate (default: seven rates from 10Mbps to 1Gbps)")
	cmd.Flags().StringSliceVar(&mtus, "mtu", nil, "MTUs to calibrate, in bytes (default: 1500,9000)")
	cmd.Flags().BoolVar(&quick, "quick", false, "fewer and shorter measurements: 3/5 of the time, less precise")
	cmd.Flags().BoolVar(&noise, "noise", false, "measure the differences of identical runs and add them to the calibration")
	cmd.Flags().IntVar(&pairs, "pairs", measure.DefaultNoisePairs, fmt.Sprintf("with --noise, number of pairs of identical runs, %d to %d", measure.LeastNoisePairs, measure.MostNoisePairs))
	addOutput(cmd, &out, "", "file; default: in the user's cache directory")
	cmd.Flags().StringVar(&dir, "dir", ".", "`directory` for runs, whose disk is measured")
	return cmd
}

func parseRates(rates, mtus []string, o *measure.Options) error {
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
			return fmt.Errorf("--mtu %q: must be a number of bytes, such as 1500", s)
		}
		o.MTUs = append(o.MTUs, units.Bytes(n))
	}
	return nil
}

// writeFlows prints how early isolated flows end: a row for each link and length of the path.
func writeFlows(w io.Writer, flows []calibration.Flow, style tables.Style) error {
	fmt.Fprintln(w)
	if err := style.Paragraph(w, "", "", "Flows on idle links: error of the time to completion relative to links that store and forward each frame, in %: median measured (computed for full buckets)"); err != nil {
		return err
	}
	t := tables.Table{Head: []string{"link", "links"}, Columns: []tables.Column{{Left: true}}}
	for i, f := range flows {
		if i == 0 || f.Rate != flows[i-1].Rate || f.MTU != flows[i-1].MTU || f.Links != flows[i-1].Links {
			t.Rows = append(t.Rows, []string{fmt.Sprintf("%v, MTU %d", f.Rate, int64(f.MTU)), fmt.Sprint(f.Links)})
		}
		last := len(t.Rows) - 1
		t.Rows[last] = append(t.Rows[last], fmt.Sprintf("%+.1f (%.1f)", 100*f.Error.Median, 100*f.Computed))
		if len(t.Head) < len(t.Rows[last]) {
			t.Head = append(t.Head, f.Size.String())
		}
	}
	return drawTable(w, t, style)
}

// writeCalibration prints a calibration as tables.
func writeCalibration(w io.Writer, c *calibration.Calibration, style tables.Style) error {
	fmt.Fprintf(w, "Calibrated %s on %d processors, Linux %s, in %v\n\n", c.Date.Format(time.DateOnly), c.CPUs, c.Kernel, c.Took)
	if err := style.Paragraph(w, "", "", fmt.Sprintf("Links: buckets that hold the rate within %g %% and short flows within %g %%, by the size of flows after an idle time",
		100*calibration.RateTolerance, 100*calibration.FlowTolerance)); err != nil {
		return err
	}
	shorts := calibration.ShortFlows
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
	if len(c.Flows) > 0 {
		if err := writeFlows(w, c.Flows, style); err != nil {
			return err
		}
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

// writeNoise prints a noise calibration as a table.
func writeNoise(w io.Writer, n *calibration.Noise, style tables.Style) error {
	head := fmt.Sprintf("Noise of %s: %d pairs of identical runs, in %v", n.Date.Format(time.DateOnly), n.Pairs, n.Took)
	if n.Void > 0 {
		head += fmt.Sprintf("; %d more had a void run and do not count", n.Void)
	}
	if err := style.Paragraph(w, "", "", head); err != nil {
		return err
	}
	t := tables.Table{Head: []string{"time", "statistic", "noise ±", "between runs ±", "interval ±", "false positives", "widened ±", "false positives, widened"},
		Columns: []tables.Column{tables.Names(), {Left: true}, {}, {Short: "between ±"}, {Drop: 2}, {Short: "false pos."}, {Drop: 1}, {Short: "widened"}}}
	names := map[string]string{"cct": "CCT", "fct": "FCT", "write_time": "write time", "request_time": "request time", "mean_ratio": "ratio of averages", "median": "median", "geo_mean": "geometric mean"}
	share := func(s calibration.Share) string {
		return fmt.Sprintf("%.1f %% [%.1f, %.1f]", 100*s.Rate, 100*s.CI[0], 100*s.CI[1])
	}
	percent := func(x float64) string { return units.Percent(x, 1) }
	for _, f := range n.Figures {
		t.Rows = append(t.Rows, []string{names[f.Metric], names[f.Statistic], percent(f.Deviation), percent(f.Between), percent(f.Alone.Width), share(f.Alone), percent(f.Widened.Width), share(f.Widened)})
	}
	if err := drawTable(w, t, style); err != nil {
		return err
	}
	return style.Paragraph(w, "", "", "Noise: standard deviation of the logarithm of the ratio of two identical runs; between runs: the part that the items within the runs do not explain. Interval: half the median width of 95 % intervals of one repeat, without this noise, and widened by the noise of the other half of the pairs. False positives: intervals that exclude 1, with the 95 % interval of their share; 5 % are expected.")
}

// spreadPercent prints a spread times scale.
func spreadPercent(s calibration.Spread, scale float64) string {
	a, b := 100*scale*s.Least, 100*scale*s.Most
	return fmt.Sprintf("%+.2f %% (%+.2f to %+.2f)", 100*scale*s.Median, math.Min(a, b), math.Max(a, b))
}

func ms(s calibration.Spread) string {
	return fmt.Sprintf("%.2f (%.2f to %.2f)", s.Median, s.Least, s.Most)
}
