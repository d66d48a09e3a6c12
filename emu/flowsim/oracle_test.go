package flowsim_test

import (
	"flag"
	"math"
	"testing"
	"time"

	"testbed/emu/flowsim"
	"testbed/policies"
	"testbed/policies/catalog"
	"testbed/policies/coflow"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/oracletest"
)

var whole = flag.Bool("whole", false, "compare the whole public trace with the independent simulators too, which takes minutes")

func policy(t testing.TB, name string, params map[string]any) policies.CoflowScheduler {
	t.Helper()
	p, err := catalog.Coflow(name, params)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// comparison is one policy and the same policy of another simulator.
type comparison struct {
	name   string
	policy policies.CoflowScheduler
	ports  flowsim.Ports
	cfg    flowsim.Config // its Quantum
	oracle string         // a file of results
	part   float64        // allowed relative difference of averages
	near   float64        // share of the coflows that must be within two quanta
}

// compare runs the policy and compares the completion times with the oracle's.
func (c comparison) compare(t testing.TB, trace *workloads.Trace) {
	t.Helper()
	want := oracletest.Times(t, c.oracle, "cct_ms")
	f, coflows, err := c.ports.Coflows(trace)
	if err != nil {
		t.Fatal(err)
	}
	c.cfg.Fabric, c.cfg.Scheduler = f, c.policy
	began := time.Now()
	r, err := flowsim.Run(t.Context(), c.cfg, coflows, nil)
	if err != nil {
		t.Fatal(err)
	}
	took := time.Since(began)
	const twoQuanta = 16 // ms
	var ours, theirs float64
	near := 0
	for _, co := range r.Coflows {
		ms := co.CCT().Seconds() * 1e3
		ours, theirs = ours+ms, theirs+want[co.ID]
		if math.Abs(ms-want[co.ID]) <= twoQuanta {
			near++
		}
		if co.CCT() < co.Bound-time.Microsecond {
			t.Errorf("coflow %d takes %v, less than its bottleneck, %v", co.ID, co.CCT(), co.Bound)
		}
	}
	n := float64(len(r.Coflows))
	t.Logf("%-24s average %10.1f ms, oracle %10.1f ms, ratio %.5f; %5.1f %% within 16 ms; %d events, %d decisions, %v",
		c.name, ours/n, theirs/n, ours/theirs, 100*float64(near)/n, r.Events, r.Decisions, took.Round(time.Millisecond))
	if len(r.Coflows) != len(want) {
		t.Errorf("%d coflows, the oracle has %d", len(r.Coflows), len(want))
	}
	if math.Abs(ours/theirs-1) > c.part {
		t.Errorf("%s: average %.1f ms, want %.1f within %g %%", c.name, ours/n, theirs/n, 100*c.part)
	}
	if float64(near) < c.near*n {
		t.Errorf("%s: %d of %d coflows within 16 ms, want %g %%", c.name, near, len(r.Coflows), 100*c.near)
	}
}

// TestPrefixOfFacebook compares the first 150 coflows of the trace, on which several simulators
// agree coflow by coflow.
func TestPrefixOfFacebook(t *testing.T) {
	trace := oracletest.Trace(t, oracletest.First150)
	in := func(name string) string { return "oracle/prefix150/" + name }
	for _, c := range []comparison{
		{name: "fair", policy: policy(t, "fair", nil), oracle: in("refsim-fair-maxmin.csv"), part: 0.01, near: 0.95},
		{name: "equal-share", policy: policy(t, "equal-share", nil), oracle: in("coflowsim_epoch8-fair.csv"), part: 0.01, near: 0.95},
		{name: "sebf greedy", policy: policy(t, "sebf", map[string]any{"allocation": "greedy"}), oracle: in("refsim-sebf-greedy.csv"), part: 0.01, near: 0.95},
		{name: "sebf initial fair-share", policy: coflow.SEBF{Initial: true, Sharing: coflow.Sharing{Backfill: coflow.FairShare, Pace: coflow.Pace{CoflowsOnly: true}}},
			oracle: in("refsim-sebf0-maddfs.csv"), part: 0.01, near: 0.95},
		{name: "aalo", policy: policy(t, "aalo", nil), oracle: in("coflowsim_epoch8_delta8-dark.csv"), part: 0.01, near: 0.95},
	} {
		t.Run(c.name, func(t *testing.T) { c.compare(t, trace) })
	}
}

// TestFacebook compares the whole trace, and takes minutes.
func TestFacebook(t *testing.T) {
	if !*whole {
		t.Skip("the whole trace takes minutes: run it with -args -whole")
	}
	trace := oracletest.Trace(t, oracletest.Facebook)
	in := func(name string) string { return "oracle/" + name }
	published := flowsim.Ports{Rate: 134_217 * 8000, MB: units.MiB, Batch: 10240 * time.Millisecond}
	// A flow of 1 MiB is one cycle, and arrivals are admitted up to 8 ms early.
	rounded := flowsim.Ports{Rate: 131_072 * 8000, MB: units.MiB, Batch: 8 * time.Millisecond}
	const quantum = 8 * time.Millisecond
	for _, c := range []comparison{
		{name: "fair", policy: policy(t, "fair", nil), oracle: in("refsim-fair-maxmin.csv"), part: 0.01, near: 0.95},
		{name: "sebf greedy", policy: policy(t, "sebf", map[string]any{"allocation": "greedy"}), oracle: in("refsim-sebf-greedy.csv"), part: 0.01, near: 0.95},
		{name: "aalo", policy: policy(t, "aalo", nil), oracle: in("coflowsim_epoch8_delta8-dark.csv"), part: 0.05, near: 0.9},
		{name: "philae-sim published", policy: policy(t, "philae-sim", nil), ports: published, cfg: flowsim.Config{Quantum: quantum}, oracle: in("philaesim-d-sumport.csv"), part: 0.001, near: 0.99},
		{name: "philae-sim 8 ms a MiB", policy: policy(t, "philae-sim", nil), ports: rounded, cfg: flowsim.Config{Quantum: quantum}, oracle: in("philaesim_epoch8_rate131072-d-sumport.csv"), part: 1e-9, near: 1},
		{name: "equal-share", policy: policy(t, "equal-share", nil), oracle: in("refsim-equalshare.csv"), part: 0.01, near: 0.95},
	} {
		t.Run(c.name, func(t *testing.T) { c.compare(t, trace) })
	}
}
