package rundir_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/longtest"
	"testbed/results/metrics"
	"testbed/results/rundir"
	"testbed/results/rundir/rundirtest"
	"testbed/results/summary"
)

func joinedSpec() rundirtest.Spec {
	s := rundirtest.Default()
	s.Jobs = true
	return s
}

// Requests, jobs and balance of a report are read back and give its figures.
func TestJoinedTables(t *testing.T) {
	r, err := rundir.Open(rundirtest.Write(t, joinedSpec()))
	if err != nil {
		t.Fatal(err)
	}
	const arm = "sebf+hdfs"
	a := r.Arm(arm)
	if len(r.Times("request_time", arm)) != 10 || len(r.Times("job_time", arm)) != 10 || len(r.Balance) != 12 || len(r.Times("cct", arm)) != 22 || len(r.Times("fct", arm)) != 44 {
		t.Fatalf("%d requests, %d jobs, %d samples, %d coflows, %d flows: want 10, 10, 12, 22 and 44, the background coflow left out",
			len(r.Times("request_time", arm)), len(r.Times("job_time", arm)), len(r.Balance), len(r.Times("cct", arm)), len(r.Times("fct", arm)))
	}
	for _, x := range []struct {
		name  string
		items []metrics.Item
		want  *summary.Metric
	}{{"request", r.Times("request_time", arm), a.RequestTime}, {"job", r.Times("job_time", arm), a.JobTime}} {
		s := metrics.Summarize(x.items)
		if x.want == nil || s.N != x.want.N || float64(s.Mean)/1e3 != x.want.MeanUS {
			t.Errorf("%s times %+v, the summary has %+v", x.name, s, x.want)
		}
	}
	if j := r.Jobs[0]; j.Job != 1 || j.Bin == nil || *j.Bin != 1 || j.Coflow == nil || *j.Coflow != 0 || j.Blocks != 1 {
		t.Errorf("first job %+v", j)
	}
	if j := r.Jobs[1]; j.Coflow != nil || *j.Bin != 2 {
		t.Errorf("second job %+v: want no coflow, and bin 2", j)
	}
	if a.JobBins["1"].N+a.JobBins["2"].N != a.JobTime.N || a.JobBins["1"].N != 6 {
		t.Errorf("bins of %d and %d jobs, want 6 and 4", a.JobBins["1"].N, a.JobBins["2"].N)
	}
	if c := a.Placement.Cv; c == nil || c.N != 4 || c.Median != 0.666667 {
		t.Errorf("Cv %+v: want 4 samples around 2/3", c)
	}
	if d := cmp.Diff([]string{"1.50 times the baseline's block-write bytes between racks", "1.50 times the baseline's total bytes between racks"}, a.Placement.NotLikeForLike); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestJoinedTablesDamaged(t *testing.T) {
	longtest.Computes(t)
	for _, tt := range []struct{ file, from, to, err string }{
		{summary.JobsFile, "fair+hdfs,0,pass,1,1,0,", "fair+hdfs,0,pass,1,1,x,", `jobs.csv:2: coflow: "x": must be a whole number`},
		{summary.RequestsFile, "fair+hdfs,0,pass,0,1,", "fair+hdfs,0,pass,0,-1,", `requests.csv:2: job: "-1"`},
		{summary.BalanceFile, ",0.000,1000000.000,0.5\n", ",0.000,0.000,0.5\n", "balance.csv:2: interval_us"},
		{summary.CoflowsFile, ",true,", ",yes,", `background: "yes": must be true or false`},
	} {
		t.Run(tt.file, func(t *testing.T) {
			dir := rundirtest.Write(t, joinedSpec())
			edit(t, dir, tt.file, func(s string) string { return strings.Replace(s, tt.from, tt.to, 1) })
			wantError(t, dir, tt.err)
		})
	}
}
