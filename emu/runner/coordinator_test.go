package runner

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"testbed/emu/engine"
	"testbed/policies"
	"testbed/results/summary"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// The coordinator's latency delays every coflow, the counts of what it did are in the
// run directory, in the summary and on the page, and the logs replay.
func TestCoordinator(t *testing.T) {
	var averages []float64
	for _, latency := range []string{"0s", "20ms"} {
		s := loadText(t, `
name: coordinator
fabric: {leaves: 2, spines: 1, hosts_per_leaf: 3, host_link: 50Mbps, oversubscription: "3:1", queue: 20ms}
coordinator: {latency: `+latency+`}
workload:
  - {kind: trace, path: trace.txt, mb: MB}
arms: {coflow: [sebf, fair]}
repeat: 2
`, "1 0 2 0 2 2 1:1.0 3:1.0", "2 100 1 4 2 1:0.4 5:0.2")
		out, err := Simulate(t.Context(), s, Options{Out: t.TempDir()})
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range out.Report.Summary.Arms {
			c := a.Coordinator
			if c == nil || c.Repeats != 2 || c.Decisions < 2 || c.Flushes < 1 || c.Flushes > c.Decisions || c.HostsTold < c.Flushes || c.Updates < 2 || c.Took != nil || c.Missed != nil {
				t.Fatalf("latency %s, %s: %+v", latency, a.Name, c)
			}
			one, err := readCoordinator(repeatFiles{dir: repeatDir(out.Dir, a.Name, 1)})
			if err != nil || one == nil || 2*one.Decisions != c.Decisions || one.Took != nil {
				t.Errorf("latency %s, %s: repeat 1: %+v, %v", latency, a.Name, one, err)
			}
		}
		// Fair decides when coflows arrive or end, SEBF at the ends of flows too.
		if sebf, fair := out.Report.Summary.Arms[0].Coordinator, out.Report.Summary.Arms[1].Coordinator; fair.Decisions >= sebf.Decisions {
			t.Errorf("latency %s: decisions of fair %d, of sebf %d: want fewer", latency, fair.Decisions, sebf.Decisions)
		}
		averages = append(averages, out.Report.Summary.Arms[1].CCT.MeanUS)
		page, err := os.ReadFile(filepath.Join(out.Dir, summary.MarkdownFile))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(page), "\n## Coordinator\n") {
			t.Errorf("no table of the coordinator:\n%s", page)
		}
		r, err := Replay(t.Context(), out.Dir, ReplayOptions{Repeat: AllRepeats})
		if err != nil {
			t.Fatal(err)
		}
		for _, x := range r.Repeats {
			if x.Differs != nil || x.Unfinished != "" {
				t.Errorf("latency %s: %s/%d does not replay: %+v", latency, x.Arm, x.Repeat, x)
			}
		}
	}
	// Under fair every coflow is free from its arrival on, or 20 ms later; they do not meet.
	if d := averages[1] - averages[0]; d < 19_999 || d > 20_001 {
		t.Errorf("a latency of 20 ms takes %.0f µs of a coflow on average, want 20000", d)
	}
}

// paced is a backend on which time passes as a list says.
type paced struct{ at []time.Duration }

func (p *paced) Do(context.Context, []engine.Command) error { return nil }
func (p *paced) Await(context.Context, time.Duration) (time.Duration, []engine.Event, error) {
	now := p.at[0]
	p.at = p.at[1:]
	return now, nil, nil
}

// periodic lets everything go, every so often.
type periodic time.Duration

func (periodic) Needs() policies.Facts                               { return 0 }
func (p periodic) New() policies.CoflowInstance                      { return p }
func (p periodic) Triggers() policies.Triggers                       { return policies.Triggers{Every: time.Duration(p)} }
func (periodic) Decide(v *policies.CoflowView, s *policies.Schedule) {}

// A decision that comes an interval late is missed, and so is one that takes longer
// than an interval; steps that decide nothing are not counted.
func TestMissedIntervals(t *testing.T) {
	f, err := topo.LeafSpine{Leaves: 1, HostsPerLeaf: 2, HostLink: units.Gbps, Oversubscription: units.Ratio{Num: 1, Den: 1}, Queue: topo.Queue{Time: time.Millisecond}, MTU: 1500}.Build()
	if err != nil {
		t.Fatal(err)
	}
	const every = time.Minute
	e, err := engine.New(engine.Config{Fabric: f, Coflow: periodic(every), Heartbeat: time.Second, Alpha: 0.2})
	if err != nil {
		t.Fatal(err)
	}
	s := &stopwatch{Backend: &paced{at: []time.Duration{1, every, every + 1, 3 * every, 4 * every}}, e: e}
	for i, want := range []summary.Coordinator{
		{},
		{Decisions: 1},
		{Decisions: 1},            // no interval is over
		{Decisions: 2, Missed: 1}, // the second was due at 2
		{Decisions: 3, Missed: 2}, // it takes too long
	} {
		now, evs, err := s.Await(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			evs = append(evs, engine.CoflowArrived{Coflow: workloads.Coflow{ID: 1, Flows: []workloads.Flow{{ID: 1, Src: 0, Dst: 1, Size: 100}}}})
		}
		if _, err := e.Step(now, evs...); err != nil {
			t.Fatal(err)
		}
		if i == 4 {
			s.began = s.began.Add(-2 * every)
		}
		s.stepped()
		if got := s.record(true); got.Decisions != want.Decisions || got.Missed != want.Missed || len(got.Took) != got.Decisions || got.Interval != every {
			t.Errorf("step %d: %+v, want %+v", i, got, want)
		}
	}
}
