package report

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"testbed/results/flows"
	"testbed/results/summary"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// What was realized of rates comes from the transfers of the same class of jobs, and of p from all attempts.
func TestEstimateSummary(t *testing.T) {
	const class = 1
	in := taskRun()
	arm := &in.Arms[1]
	// A job of 20 tasks: one of 10 maps straggles. Of a reduce with three attempts, two fetch from the same copy at the same time, at 100 and 50 B/s, and one
	// fetches alone, at 200 B/s.
	var attempts []flows.AttemptRecord
	for i := range 10 {
		attempts = append(attempts, flows.AttemptRecord{Job: 1, Task: i, Kind: flows.MapTask, Host: "h0-00", Locality: flows.NodeLocal, Input: 100, End: 3 * time.Second, Outcome: flows.Committed})
	}
	attempts[4].End = 9 * time.Second
	for n := range 3 {
		attempts = append(attempts, flows.AttemptRecord{Job: 1, Stage: 1, Attempt: n, Kind: flows.ReduceTask, Host: "h0-00", End: 10 * time.Second, Outcome: flows.Killed})
	}
	fetch := func(id, n, from int, size units.Bytes, took time.Duration) flows.FlowRecord {
		return flows.FlowRecord{Flow: workloads.FlowID(id), Src: "h0-00", Dst: "h1-00", Size: size, Start: time.Second, End: time.Second + took,
			Task: &flows.TaskTransfer{Job: 1, Stage: 1, Attempt: n, FromAttempt: from, Outputs: 1}}
	}
	for k := range arm.Repeats {
		var s summary.EstimateSample
		s.Straggle, s.Copies[class] = 0.12, summary.CopyEstimates{Alone: 2000, Shared: 500, Wait: time.Duration(2+k) * time.Second}
		given, first := summary.EstimateSample{}, s // the given ω is no estimate
		given.Copies[class].Wait, first.Copies[class].Wait = 9*time.Second, time.Second
		first.At, s.At = time.Second, 2*time.Second
		arm.Repeats[k] = summary.Repeat{Slots: arm.Repeats[k].Slots, Coordinator: &summary.Coordinator{Estimates: []summary.EstimateSample{given, first, s}}, Records: flows.Records{
			Jobs:     []flows.JobRecord{{Job: 1, Tasks: 20, End: 10 * time.Second}},
			Attempts: attempts,
			Flows:    []flows.FlowRecord{fetch(1, 0, 0, 100, time.Second), fetch(2, 1, 0, 100, 2*time.Second), fetch(3, 2, 1, 200, time.Second)}}}
	}
	r, err := New(in)
	if err != nil {
		t.Fatal(err)
	}
	if got := r.Summary.Arms[0].Estimates; got != nil {
		t.Errorf("estimates of an arm without: %+v", got)
	}
	want := map[string][3]float64{"straggle": {0.12, 0.1, 0.2}, "alone_bps": {2000, 1600, 0.25}, "shared_bps": {500, 8 * 200 / 3., 1 - 500*3/1600.}, "wait_us": {2.5e6}}
	near := func(a, b float64) bool { return math.Abs(a-b) <= 1e-5*math.Abs(b) }
	all := r.Summary.Arms[1].Estimates
	for _, e := range all {
		w, ok := want[e.Of]
		delete(want, e.Of)
		switch {
		case !ok || !near(e.Last, w[0]) || (e.Realized == nil) != (w[1] == 0):
			t.Errorf("%s: %+v, want %v", e.Of, e, w)
		case e.Realized != nil && (!near(*e.Realized, w[1]) || !near(*e.Error, w[2])):
			t.Errorf("%s: realized %v with an error of %v, want %v", e.Of, *e.Realized, *e.Error, w)
		case e.Of == "wait_us" && (!near(e.Least, 1e6) || !near(e.Most, 2.5e6)):
			t.Errorf("ω from %v to %v µs, want 1 to 2.5 s", e.Least, e.Most)
		case (e.SizeRange == nil) != (e.Of == "straggle") || e.SizeRange != nil && jobs.SizeClass(e.LeastTasks) != class:
			t.Errorf("%s: of jobs %+v, want class %d", e.Of, e.SizeRange, class)
		}
	}
	if len(want) > 0 {
		t.Errorf("no estimates of %v in %+v", want, all)
	}
	var text bytes.Buffer
	if err := r.Markdown(&text); err != nil {
		t.Fatal(err)
	}
	if s := text.String(); !strings.Contains(s, "Estimates of the task scheduler") || !strings.Contains(s, "20.0 %") {
		t.Errorf("the report has no table of estimates:\n%s", s)
	}
}
