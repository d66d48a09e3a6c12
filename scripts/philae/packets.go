package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"path/filepath"
	"slices"
	"strings"

	"testbed/results/metrics"
	"testbed/results/report"
	"testbed/results/safefile"
	"testbed/scripts/suite"
	"testbed/workloads"
)

// fabrics are the scenarios of the part packets. The first arm of each is the baseline.
var fabrics = []string{"switch", "leaf-spine"}

// facebookSettings has the settings of the scenarios for a trace with the sizes of the Facebook
// trace, as their comments show. Fewer hosts reduce the number of flows, since the flows of
// a coflow between the same two hosts become one.
var facebookSettings = map[string]map[string]string{
	"switch":     {"ports": "12", "size": "1/100", "first_queue": "104858B"},
	"leaf-spine": {"leaves": "3", "hosts_per_leaf": "4", "host_link": "125Mbps", "size": "1/100", "first_queue": "104858B"},
}

// carried selects the coflows of a given trace that run on packets: the first ones without
// the largest, which have most of the bytes and would take minutes each.
var carried = workloads.TraceFilter{First: 64, MaxSize: 50_000 * megabyte}

// megabyte is one MB of a trace.
const megabyte workloads.Megabytes = 1_000_000

// maxDifference is the largest relative difference between a speed-up on packets and on the fluid
// model for which the report omits the causes of times.
const maxDifference = 0.10

// packets runs every scenario on packets and on the fluid model.
func (s *philae) packets(ctx context.Context) error {
	trace, err := s.carry()
	if err != nil {
		return err
	}
	var errs []error
	for _, f := range fabrics {
		err := s.fabric(ctx, f, trace)
		if err != nil && !errors.Is(err, suite.ErrVoid) {
			return fmt.Errorf("%s: %w", f, err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// carry writes the selected coflows of a given trace to a file, and returns its path.
func (s *philae) carry() (string, error) {
	if s.from == "" {
		return "", nil
	}
	t, err := s.trace.Filter(carried)
	if err != nil {
		return "", err
	}
	s.Say("Trace: the first %[2]d coflows of %[1]s with at most %[3]v MB each.\n", s.trace.Name, len(t.Coflows), carried.MaxSize)
	path, err := filepath.Abs(filepath.Join(s.Dir, "carried.flows"))
	if err != nil {
		return "", err
	}
	return path, safefile.Write(path, func(w io.Writer) error { return workloads.WriteTraceAs(w, t, workloads.FormatFlows) })
}

// fabric runs a scenario on both backends, with a trace of its own if trace is not empty.
func (s *philae) fabric(ctx context.Context, name, trace string) error {
	scenario := filepath.Join("scripts", "philae", name+".yaml")
	set := []string{"--set", fmt.Sprintf("repeat=%d", s.Repeat)}
	if trace != "" {
		set = append(set, "--set", "trace="+trace)
		for _, k := range slices.Sorted(maps.Keys(facebookSettings[name])) {
			set = append(set, "--set", k+"="+facebookSettings[name][k])
		}
	}
	fluid, err := s.program.Run(ctx, "sim", scenario, set...)
	if err != nil {
		return err
	}
	measured, void := s.program.Run(ctx, "run", scenario, set...)
	if measured == nil {
		return void
	}
	s.Say("### %s\n\nRun directories %s (packets) and %s (fluid model), %d repeats. Speed-ups are relative to %s, coflow by coflow (geometric mean, 95 %% interval); predictions are the fluid model's, for the same coflows.\n",
		name, measured.RunID, fluid.RunID, s.Repeat, measured.Baseline)
	var rows [][]string
	var apart []string
	for i, a := range measured.Arms {
		if i >= len(fluid.Arms) || fluid.Arms[i].Name != a.Name || fluid.Arms[i].CCT == nil {
			return fmt.Errorf("arm %s has no prediction", a.Name)
		}
		p := fluid.Arms[i]
		row := []string{a.Name, suite.Passed(a), "–", suite.MS(p.CCT.MeanUS), "–", "–", "–", "–"}
		if a.CCT != nil {
			row[2], row[4] = suite.MS(a.CCT.MeanUS), fmt.Sprintf("%.2f", a.CCT.MeanUS/p.CCT.MeanUS)
		}
		if a.CCT != nil && a.CCT.Paired != nil && p.CCT.Paired != nil {
			got, want := a.CCT.Paired, p.CCT.Paired
			row[5] = got.String()
			row[6] = fmt.Sprintf("%.2f×", want.GeoMean)
			row[7] = fmt.Sprintf("%.2f× / %.2f×", *a.CCT.Speedup, *p.CCT.Speedup)
			if math.Abs(got.GeoMean/want.GeoMean-1) > maxDifference || math.Abs(*a.CCT.Speedup / *p.CCT.Speedup - 1) > maxDifference {
				apart = append(apart, a.Name)
			}
		}
		rows = append(rows, row)
	}
	if err := s.Draw([]string{"arm", "verdict", "average CCT", "predicted", "ratio", "speed-up", "predicted ", "ratio of averages, packets / predicted"}, rows); err != nil {
		return err
	}
	if len(apart) > 0 {
		s.Say("Speed-ups of %s differ from the prediction by more than %.0f %%. The table shows the time of an average coflow on packets by cause, in ms. The fluid model has no host time, latency or retransmissions, and its queueing is the sharing of links.\n", strings.Join(apart, ", "), 100*maxDifference)
		if err := s.WhereTimeWent(measured.Arms, false); err != nil {
			return err
		}
	}
	if err := s.decisionCosts(name, measured); err != nil {
		return err
	}
	if err := s.compared(ctx, name, measured); err != nil {
		return err
	}
	return void
}

// compared writes the output of testbed compare with Philae as the baseline, to show which
// differences are significant, and records the speed-up relative to Aalo.
func (s *philae) compared(ctx context.Context, fabric string, run *report.Summary) error {
	at := slices.IndexFunc(run.Arms, func(a report.ArmSummary) bool { return strings.HasPrefix(a.Name, "philae") })
	if at < 0 {
		return nil
	}
	trace := "generated"
	if s.from != "" {
		trace = "facebook"
	}
	c, err := s.program.Compare(ctx, run, "aalo", run.Arms[at].Name)
	if err != nil {
		return err
	}
	for name, ratios := range map[string]map[string]metrics.Estimate{"average": c.Mean, "median": c.Median, "geo-mean": c.GeoMean} {
		if r, ok := ratios["cct"]; ok {
			s.claims.Measured("packets/"+trace+"/"+fabric+"/"+name, r.Value, r.CI)
		}
	}
	out, err := s.program.Command(ctx, "compare", s.program.RunDir(run), "--baseline", run.Arms[at].Name, "--markdown")
	if err != nil && !errors.Is(err, suite.ErrVoid) {
		return err
	}
	s.Say("%s", bytes.TrimSpace(out))
	s.Say("")
	return nil
}
