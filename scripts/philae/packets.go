package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// fabrics are the scenarios of the part on packets. The first of their arms is the
// baseline.
var fabrics = []string{"switch", "leaf-spine"}

// public is what a trace of the sizes of the Facebook one asks of the scenarios, whose own
// is fitted to them: see their comments.
var public = map[string]map[string]string{
	"switch":     {"coflows": "100", "size": "1/1200", "first_queue": "8738B"},
	"leaf-spine": {"coflows": "100", "size": "1/5000", "first_queue": "2097B", "host_link": "40Mbps"},
}

// agree is by how much a speed-up on packets and that of the fluid model may differ
// before the report says where the time went.
const agree = 0.10

// summary is what is read here of what testbed run --json and sim --json print.
type summary struct {
	RunID    string `json:"run_id"`
	Baseline string `json:"baseline"`
	Arms     []arm  `json:"arms"`
}

// arm is one of a summary.
type arm struct {
	Name     string `json:"name"`
	Verdict  string `json:"verdict"`
	Verdicts []struct {
		Level string `json:"level"`
	} `json:"verdicts"`
	CCT *struct {
		N       int     `json:"n"`
		MeanUS  float64 `json:"mean_us"`
		P50US   float64 `json:"p50_us"`
		Speedup float64 `json:"speedup"`
		Paired  *struct {
			GeoMean     float64    `json:"geo_mean"`
			GeoMeanCI   [2]float64 `json:"geo_mean_ci"`
			MeanRatio   float64    `json:"mean_ratio"`
			MeanRatioCI [2]float64 `json:"mean_ratio_ci"`
		} `json:"paired"`
	} `json:"cct"`
	Time *struct {
		CoflowsUS map[string]float64 `json:"coflows_us"`
	} `json:"time"`
	Coordinator *coordinator `json:"coordinator"`
}

// errVoid is that an arm was void: the suite is not done.
var errVoid = errors.New("an arm is void")

// exitVoid is the exit code of a run of which an arm is void.
const exitVoid = 3

// packets runs every scenario on packets and on the fluid model.
func (s *suite) packets(ctx context.Context) error {
	var errs []error
	for _, f := range fabrics {
		err := s.fabric(ctx, f)
		if err != nil && !errors.Is(err, errVoid) {
			return fmt.Errorf("%s: %w", f, err)
		}
		errs = append(errs, err)
	}
	s.testbeds()
	return errors.Join(errs...)
}

func (s *suite) fabric(ctx context.Context, name string) error {
	scenario := filepath.Join("scripts", "philae", name+".yaml")
	set := []string{"--set", fmt.Sprintf("repeat=%d", s.repeat)}
	if s.options.trace != "" {
		set = append(set, "--set", "trace="+s.options.trace)
		for _, k := range slices.Sorted(maps.Keys(public[name])) {
			set = append(set, "--set", k+"="+public[name][k])
		}
	}
	fluid, _, err := s.testbed(ctx, "sim", scenario, set)
	if err != nil {
		return err
	}
	measured, void, err := s.testbed(ctx, "run", scenario, set)
	if err != nil {
		return err
	}
	s.say("### %s\n\nRun directories %s (packets) and %s (fluid model), %d repeats. Speed-ups are over %s, coflow by coflow (geometric mean, 95 %% interval); the prediction is that of the fluid model for the same coflows.\n",
		name, measured.RunID, fluid.RunID, s.repeat, measured.Baseline)
	var rows [][]string
	var apart []string
	for i, a := range measured.Arms {
		if i >= len(fluid.Arms) || fluid.Arms[i].Name != a.Name || fluid.Arms[i].CCT == nil {
			return fmt.Errorf("arm %s has no prediction", a.Name)
		}
		p := fluid.Arms[i]
		passed := 0
		for _, v := range a.Verdicts {
			if v.Level == "pass" {
				passed++
			}
		}
		row := []string{a.Name, fmt.Sprintf("%s (%d of %d pass)", a.Verdict, passed, len(a.Verdicts)), "–", ms(p.CCT.MeanUS), "–", "–", "–", "–"}
		if a.CCT != nil {
			row[2], row[4] = ms(a.CCT.MeanUS), fmt.Sprintf("%.2f", a.CCT.MeanUS/p.CCT.MeanUS)
		}
		if a.CCT != nil && a.CCT.Paired != nil && p.CCT.Paired != nil {
			got, want := a.CCT.Paired, p.CCT.Paired
			row[5] = fmt.Sprintf("%.2f× [%.2f, %.2f]", got.GeoMean, got.GeoMeanCI[0], got.GeoMeanCI[1])
			row[6] = fmt.Sprintf("%.2f×", want.GeoMean)
			row[7] = fmt.Sprintf("%.2f× / %.2f×", a.CCT.Speedup, p.CCT.Speedup)
			if math.Abs(got.GeoMean/want.GeoMean-1) > agree || math.Abs(a.CCT.Speedup/p.CCT.Speedup-1) > agree {
				apart = append(apart, a.Name)
			}
		}
		rows = append(rows, row)
	}
	if err := s.draw([]string{"arm", "verdict", "average CCT", "predicted", "ratio", "speed-up", "predicted ", "of averages, packets / predicted"}, rows); err != nil {
		return err
	}
	if len(apart) > 0 {
		s.say("Speed-ups of %s differ from the prediction by more than %.0f %%. Where the time of an average coflow went on packets, in ms, tells why: the fluid model has no host, latency and retransmission, and its queueing is sharing.\n", strings.Join(apart, ", "), 100*agree)
		if err := s.whereTimeWent(measured); err != nil {
			return err
		}
	}
	if err := s.decided(measured); err != nil {
		return err
	}
	if err := s.compared(ctx, measured); err != nil {
		return err
	}
	if void {
		return fmt.Errorf("%s: %w", name, errVoid)
	}
	return nil
}

// whereTimeWent is each arm's average CCT by cause.
func (s *suite) whereTimeWent(run summary) error {
	causes := map[string]bool{}
	for _, a := range run.Arms {
		if a.Time != nil {
			for c := range a.Time.CoflowsUS {
				causes[c] = true
			}
		}
	}
	head := append([]string{"arm"}, slices.Sorted(maps.Keys(causes))...)
	var rows [][]string
	for _, a := range run.Arms {
		row := []string{a.Name}
		for _, c := range head[1:] {
			cell := "–"
			if a.Time != nil && a.CCT != nil {
				cell = fmt.Sprintf("%.1f", a.Time.CoflowsUS[c]/1e3/float64(a.CCT.N))
			}
			row = append(row, cell)
		}
		rows = append(rows, row)
	}
	return s.draw(head, rows)
}

// compared is testbed compare with Philae as the baseline: is it chance?
func (s *suite) compared(ctx context.Context, run summary) error {
	at := slices.IndexFunc(run.Arms, func(a arm) bool { return strings.HasPrefix(a.Name, "philae") })
	if at < 0 {
		return nil
	}
	out, err := s.command(ctx, "compare", filepath.Join(s.dir, run.RunID), "--baseline", run.Arms[at].Name, "--markdown")
	var exit *exec.ExitError
	if err != nil && !(errors.As(err, &exit) && exit.ExitCode() == exitVoid) {
		return err
	}
	s.say("%s", bytes.TrimSpace(out))
	s.say("")
	return nil
}

func ms(us float64) string { return fmt.Sprintf("%.0f ms", us/1e3) }

// testbed runs a verb that leaves a run directory, and reads its figures. void tells
// that an arm's figures may not be believed.
func (s *suite) testbed(ctx context.Context, verb, scenario string, set []string) (out summary, void bool, _ error) {
	text, err := s.command(ctx, slices.Concat([]string{verb, scenario, "--out", s.dir, "--json"}, set)...)
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == exitVoid {
		void, err = true, nil
	}
	if err != nil {
		return out, void, err
	}
	if err := json.Unmarshal(text, &out); err != nil {
		return out, void, fmt.Errorf("testbed %s --json: %w", verb, err)
	}
	return out, void, nil
}

// command runs the program. What it tells on standard error goes to ours; a context
// that ends interrupts it and lets it clean up.
func (s *suite) command(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, s.binary, args...)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("testbed %s: %w", args[0], err)
	}
	return out, err
}
