package rundir_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/longtest"
	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/rundir"
	"testbed/results/rundir/rundirtest"
	"testbed/results/summary"
)

func taskSpec() rundirtest.Spec {
	s := rundirtest.Default()
	s.Tasks, s.Coflows, s.Blocks = true, 0, 0
	return s
}

// Attempts and jobs of tasks are read back as they were, and give the figures of the summary.
func TestTaskTables(t *testing.T) {
	longtest.Computes(t)
	spec := taskSpec()
	r, err := rundir.Open(rundirtest.Write(t, spec))
	if err != nil {
		t.Fatal(err)
	}
	for _, arm := range spec.Arms {
		a := r.Arm(arm.Name)
		s := metrics.Summarize(r.Times("job_time", arm.Name))
		if s.N != 24 || a.JobTime == nil || float64(s.Mean)/1e3 != a.JobTime.MeanUS {
			t.Errorf("%s: job times %+v, the summary has %+v", arm.Name, s, a.JobTime)
		}
		if n := len(r.Times("cct", arm.Name)); n < 8 || a.CCT == nil || n != a.CCT.N {
			t.Errorf("%s: %d shuffles, the summary has %+v", arm.Name, n, a.CCT)
		}
		if len(r.Times("fct", arm.Name)) != 0 || a.FCT != nil || len(r.Flows) == 0 {
			t.Errorf("%s: flows of tasks are items of FCT", arm.Name)
		}
	}
	for k := range spec.Repeats {
		want := rundirtest.Cluster(spec.Arms[1]).Records(uint64(k))
		var got []flows.AttemptRecord
		for i := range r.Attempts {
			if x := &r.Attempts[i]; x.Arm == spec.Arms[1].Name && x.Repeat == k {
				got = append(got, x.Record())
			}
		}
		if d := cmp.Diff(want.Attempts, got); d != "" {
			t.Errorf("repeat %d (-want +got):\n%s", k, d)
		}
	}
	for _, j := range r.Jobs {
		if j.User == "" || j.Profile == "" || *j.Tasks < 1 || *j.Input < 1 || *j.Lone <= 0 || *j.Slowdown <= 0 {
			t.Fatalf("job %+v", j)
		}
		if sum := *j.Waiting + *j.Mapping + *j.Shuffling + *j.Computing + *j.Writing; sum != j.JobTime {
			t.Errorf("job %d: parts of %v, want %v", j.Job, sum, j.JobTime)
		}
	}
	// The faster arm reads more blocks from its own hosts.
	slow, fast := r.Arm(spec.Arms[0].Name).Tasks, r.Arm(spec.Arms[2].Name).Tasks
	of := func(average metrics.Average) float64 { x, _ := average.Value(); return x }
	if !(fast.Locality.Node > slow.Locality.Node+0.1 && of(fast.Bytes.Read) < of(slow.Bytes.Read) &&
		of(fast.Makespan) < of(slow.Makespan) && of(fast.JobsPerHour) > of(slow.JobsPerHour)) {
		t.Errorf("faster arm: %+v, slower arm: %+v", fast, slow)
	}
}

func TestTaskTablesDamaged(t *testing.T) {
	longtest.Computes(t)
	one := taskSpec()
	one.Arms, one.Repeats = one.Arms[:1], 1
	for _, tt := range []struct{ from, to, err string }{
		{",committed,", ",done,", `attempts.csv:2: outcome "done": must be committed, copied, killed or failed`},
		{"fair+hdfs,0,pass,1,0,0,0,map,", "fair+hdfs,0,pass,1,0,0,0,mapper,", `attempts.csv:2: kind "mapper"`},
		{",node,", ",close,", `locality "close"`},
	} {
		t.Run(tt.to, func(t *testing.T) {
			dir := rundirtest.Write(t, one)
			edit(t, dir, summary.AttemptsFile, func(s string) string { return strings.Replace(s, tt.from, tt.to, 1) })
			wantError(t, dir, tt.err)
		})
	}
}
