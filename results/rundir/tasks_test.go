package rundir_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/report"
	"testbed/results/rundir"
	"testbed/results/rundir/rundirtest"
)

func taskSpec() rundirtest.Spec {
	s := rundirtest.Default()
	s.Tasks, s.Coflows, s.Blocks = true, 0, 0
	return s
}

// Attempts and jobs of tasks are read back as they were, and give the figures of the summary.
func TestTaskTables(t *testing.T) {
	spec := taskSpec()
	r, err := rundir.Open(rundirtest.Write(t, spec))
	if err != nil {
		t.Fatal(err)
	}
	for _, arm := range spec.Arms {
		a := r.Arm(arm.Name)
		s := metrics.Summarize(r.JobTimes(arm.Name))
		if s.N != 24 || a.JobTime == nil || float64(s.Mean)/1e3 != a.JobTime.MeanUS {
			t.Errorf("%s: job times %+v, the summary has %+v", arm.Name, s, a.JobTime)
		}
		if n := len(r.CCTs(arm.Name)); n < 8 || a.CCT == nil || n != a.CCT.N {
			t.Errorf("%s: %d shuffles, the summary has %+v", arm.Name, n, a.CCT)
		}
		if len(r.FCTs(arm.Name)) != 0 || a.FCT != nil || len(r.Flows) == 0 {
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
	if !(fast.Locality.Node > slow.Locality.Node+0.1 && fast.Bytes.Read < slow.Bytes.Read && fast.MakespanUS < slow.MakespanUS && fast.JobsPerHour > slow.JobsPerHour) {
		t.Errorf("faster arm: %+v, slower arm: %+v", fast, slow)
	}
}

func TestTaskTablesDamaged(t *testing.T) {
	one := taskSpec()
	one.Arms, one.Repeats = one.Arms[:1], 1
	for _, tt := range []struct{ file, from, to, err string }{
		{report.AttemptsFile, ",committed,", ",killed,", "attempts.csv: it has"},
		{report.AttemptsFile, ",committed,", ",done,", `attempts.csv:2: outcome "done": must be committed, copied, killed or failed`},
		{report.AttemptsFile, ",committed,", ",copied,", "attempts.csv: attempt 0 of task 0 of stage 0 of job 1 of arm fair+hdfs, repeat 0, copied, but no attempt of its task had committed"},
		{report.AttemptsFile, ",copied,", ",failed,", "attempts.csv: it has"},
		{report.SummaryFile, "\"extra_us\": ", "\"extra_us\": 1", "clones and backups (tasks, started, won; extra slot time in µs)"},
		{report.SummaryFile, "\"judged\": ", "\"judged\": 1", "attempts with known progress rate"},
		{report.AttemptsFile, "fair+hdfs,0,pass,1,0,0,0,map,", "fair+hdfs,0,pass,1,0,0,0,mapper,", `attempts.csv:2: kind "mapper"`},
		{report.AttemptsFile, "fair+hdfs,0,pass,1,0,1,0,", "fair+hdfs,0,pass,1,0,0,0,", "attempts.csv:3: attempt 0 of task 0 of stage 0 of job 1 of arm fair+hdfs, repeat 0, is duplicated"},
		{report.AttemptsFile, ",node,", ",close,", `locality "close"`},
		{report.AttemptsFile, ",off-rack,", ",node,", "attempts.csv: it has"},
		{report.AttemptsFile, "fair+hdfs,0,pass,1,0,1,0,map,h0-01,", "fair+hdfs,0,pass,1,0,1,0,map,h0-00,", "attempts.csv:3: attempt 0 of task 1 of stage 0 of job 1 is in map slot 0 of h0-00 from "},
		{report.JobsFile, "fair+hdfs,0,pass,1,,", "fair+hdfs,0,pass,13,,", "are not those of its attempts in attempts.csv"},
	} {
		t.Run(tt.file+" "+tt.to, func(t *testing.T) {
			dir := rundirtest.Write(t, one)
			path := filepath.Join(dir, tt.file)
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			changed := strings.Replace(string(b), tt.from, tt.to, 1)
			if changed == string(b) {
				t.Fatalf("%s has no %q:\n%.600s", tt.file, tt.from, b)
			}
			if err := os.WriteFile(path, []byte(changed), 0o644); err != nil {
				t.Fatal(err)
			}
			if _, err := rundir.Open(dir); err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%v: want %q", err, tt.err)
			}
		})
	}
	dir := rundirtest.Write(t, one)
	if err := os.Remove(filepath.Join(dir, report.AttemptsFile)); err != nil {
		t.Fatal(err)
	}
	if _, err := rundir.Open(dir); err == nil || !strings.Contains(err.Error(), "attempts.csv") {
		t.Errorf("%v: want that attempts.csv has no attempts", err)
	}
}
