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

	"testbed/results/files"
	"testbed/results/report"
	"testbed/scripts/suite"
	"testbed/workloads"
)

// fabrics are the scenarios of the part on packets. The first of their arms is the
// baseline.
var fabrics = []string{"switch", "leaf-spine"}

// public is what a trace of the sizes of the Facebook one asks of the scenarios, whose own
// is fitted to them: see their comments. Fewer hosts make fewer flows of it, since those of
// a coflow between the same two hosts are one.
var public = map[string]map[string]string{
	"switch":     {"ports": "12", "size": "1/100", "first_queue": "104858B"},
	"leaf-spine": {"leaves": "3", "hosts_per_leaf": "4", "host_link": "125Mbps", "size": "1/100", "first_queue": "104858B"},
}

// carried is what of a trace that is given runs on packets: its first coflows, but for
// the largest, which are most of its bytes and would take minutes each.
var carried = workloads.TraceFilter{First: 64, MaxSize: 50_000 * megabyte}

// megabyte is one MB of a trace.
const megabyte workloads.Megabytes = 1_000_000

// agree is by how much a speed-up on packets and that of the fluid model may differ
// before the report says where the time went.
const agree = 0.10

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
	s.testbeds()
	return errors.Join(errs...)
}

// carry writes what is carried of the trace, if one is given, and returns the file's path.
func (s *philae) carry() (string, error) {
	if s.from == "" {
		return "", nil
	}
	t, err := s.trace.Filter(carried)
	if err != nil {
		return "", err
	}
	s.Say("Of %s the first %d coflows of at most %v MB each.\n", s.trace.Name, len(t.Coflows), carried.MaxSize)
	path, err := filepath.Abs(filepath.Join(s.Dir, "carried.flows"))
	if err != nil {
		return "", err
	}
	return path, files.Write(path, func(w io.Writer) error { return workloads.WriteTraceAs(w, t, workloads.FormatFlows) })
}

// fabric is one of the scenarios, with another trace if one is named.
func (s *philae) fabric(ctx context.Context, name, trace string) error {
	scenario := filepath.Join("scripts", "philae", name+".yaml")
	set := []string{"--set", fmt.Sprintf("repeat=%d", s.Repeat)}
	if trace != "" {
		set = append(set, "--set", "trace="+trace)
		for _, k := range slices.Sorted(maps.Keys(public[name])) {
			set = append(set, "--set", k+"="+public[name][k])
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
	s.Say("### %s\n\nRun directories %s (packets) and %s (fluid model), %d repeats. Speed-ups are over %s, coflow by coflow (geometric mean, 95 %% interval); the prediction is that of the fluid model for the same coflows.\n",
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
			row[5] = fmt.Sprintf("%.2f× [%.2f, %.2f]", got.GeoMean, got.GeoMeanCI[0], got.GeoMeanCI[1])
			row[6] = fmt.Sprintf("%.2f×", want.GeoMean)
			row[7] = fmt.Sprintf("%.2f× / %.2f×", *a.CCT.Speedup, *p.CCT.Speedup)
			if math.Abs(got.GeoMean/want.GeoMean-1) > agree || math.Abs(*a.CCT.Speedup / *p.CCT.Speedup - 1) > agree {
				apart = append(apart, a.Name)
			}
		}
		rows = append(rows, row)
	}
	if err := s.Draw([]string{"arm", "verdict", "average CCT", "predicted", "ratio", "speed-up", "predicted ", "of averages, packets / predicted"}, rows); err != nil {
		return err
	}
	if len(apart) > 0 {
		s.Say("Speed-ups of %s differ from the prediction by more than %.0f %%. Where the time of an average coflow went on packets, in ms, tells why: the fluid model has no host, latency and retransmission, and its queueing is sharing.\n", strings.Join(apart, ", "), 100*agree)
		if err := s.WhereTimeWent(measured.Arms, false); err != nil {
			return err
		}
	}
	if err := s.decided(measured); err != nil {
		return err
	}
	if err := s.compared(ctx, measured); err != nil {
		return err
	}
	return void
}

// compared is testbed compare with Philae as the baseline: is it chance?
func (s *philae) compared(ctx context.Context, run *report.Summary) error {
	at := slices.IndexFunc(run.Arms, func(a report.ArmSummary) bool { return strings.HasPrefix(a.Name, "philae") })
	if at < 0 {
		return nil
	}
	out, err := s.program.Command(ctx, "compare", s.program.RunDir(run), "--baseline", run.Arms[at].Name, "--markdown")
	if err != nil && !errors.Is(err, suite.ErrVoid) {
		return err
	}
	s.Say("%s", bytes.TrimSpace(out))
	s.Say("")
	return nil
}
