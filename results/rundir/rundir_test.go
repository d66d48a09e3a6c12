package rundir_test

import (
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/longtest"
	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/report"
	"testbed/results/rundir"
	"testbed/results/rundir/rundirtest"
	"testbed/results/schema"
	"testbed/results/summary"
	"testbed/results/verdict"
	"testbed/topo/units"
	"testbed/workloads"
)

func open(t *testing.T, dir string) *rundir.Run {
	t.Helper()
	r, err := rundir.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The data read back gives the figures of the summary, to the nanosecond.
func TestFiguresReadBackAreThoseOfTheSummary(t *testing.T) {
	for _, fluid := range []bool{false, true} {
		s := rundirtest.Default()
		s.FluidModel, s.Timing = fluid, !fluid
		r := open(t, rundirtest.Write(t, s))
		if r.Simulated() != fluid || r.Manifest.Seed != 7 || len(r.Arms()) != 3 {
			t.Fatalf("run is %+v", r.Manifest)
		}
		for _, name := range r.Arms() {
			a := r.Arm(name)
			for _, x := range []struct {
				m     *summary.Metric
				items []metrics.Item
			}{{a.CCT, r.Times("cct", name)}, {a.FCT, r.Times("fct", name)}, {a.WriteTime, r.Times("write_time", name)}} {
				d := metrics.Summarize(x.items)
				got := [4]float64{float64(d.Mean) / 1e3, float64(d.P50) / 1e3, float64(d.P99) / 1e3, float64(d.Max) / 1e3}
				if want := [4]float64{x.m.MeanUS, x.m.P50US, x.m.P99US, x.m.MaxUS}; got != want || d.N != x.m.N {
					t.Errorf("%s: read back %v of %d, summary has %v of %d", name, got, d.N, want, x.m.N)
				}
			}
		}
		if (r.Flows[0].FluidFCT == nil) != fluid {
			t.Errorf("fluid prediction of a run (fluid %v): %v", fluid, r.Flows[0].FluidFCT)
		}
		if (len(r.Breakdown) > 0) != s.Timing || (len(r.Links) > 0) != s.Timing {
			t.Errorf("%d shares, %d loads", len(r.Breakdown), len(r.Links))
		}
	}
}

func TestRowsAreReadExactly(t *testing.T) {
	s := rundirtest.Default()
	r := open(t, rundirtest.Write(t, s))
	f := r.Flows[1]
	if f.Arm != "fair+hdfs" || f.Verdict != "pass" || f.Flow != 1 || f.Src != "h0-00" || f.Dst != "h0-02" || f.Start != f.Arrival+1000 || f.Wire != f.Size+f.Size/20 {
		t.Errorf("flow %+v", f)
	}
	if b := r.Blocks[1]; b.Size != 4*units.MB || !slices.Equal(b.Hosts, []string{"h1-01", "h0-02", "h1-03"}) || b.Requested != 50*time.Millisecond {
		t.Errorf("block %+v", b)
	}
	sum := map[string]time.Duration{}
	for _, x := range r.Breakdown {
		sum[fmt.Sprint(x.Arm, x.Repeat, x.Coflow)] += x.Time
	}
	for _, c := range r.Coflows {
		if c.Repeat == 1 && sum[fmt.Sprint(c.Arm, c.Repeat, c.Coflow)] != c.CCT {
			t.Errorf("shares of coflow %d add up to %v of %v", c.Coflow, sum[fmt.Sprint(c.Arm, c.Repeat, c.Coflow)], c.CCT)
		}
	}
	known := 0
	for _, l := range r.Links {
		if l.Rate != 10*units.Mbps || l.Interval != 100*time.Millisecond {
			t.Fatalf("load %+v", l)
		}
		if l.Queue != nil {
			known++
		}
	}
	if known*4 != len(r.Links)*3 {
		t.Errorf("%d of %d queues are known", known, len(r.Links))
	}
}

// Void repeats have no rows; the other rows of the arm can be read, and its verdict warns
// against them.
func TestVoidArm(t *testing.T) {
	s := rundirtest.Default()
	s.Arms[1].Level = verdict.Void
	r := open(t, rundirtest.Write(t, s))
	if level, ok := r.Level("sebf+hdfs"); !ok || level != verdict.Void {
		t.Errorf("level %v %v", level, ok)
	}
	for _, item := range r.Times("cct", "sebf+hdfs") {
		if item.Repeat != 0 {
			t.Errorf("item of the void repeat: %v", item)
		}
	}
}

// Flows that were given up before they ended are in no statistic, as in the report.
func TestFailedItemsAreNotCounted(t *testing.T) {
	flow := func(n int) flows.FlowRecord {
		return flows.FlowRecord{Coflow: 1, Flow: 3, Src: "a", Dst: "b", Size: 10, End: time.Duration(n) * time.Second}
	}
	bad := flows.Failure{Kind: flows.FailedFlow, Coflow: 1, Flow: 3, At: time.Second, Why: "late"}
	in := report.Input{RunID: "x", Arms: []report.Arm{{Name: "a", Repeats: []summary.Repeat{
		{Verdict: verdict.Of(), Records: flows.Records{Flows: []flows.FlowRecord{flow(1)}, Coflows: []flows.CoflowRecord{{Coflow: 1, End: time.Second}}, Failed: []flows.Failure{bad}},
			Failures: []summary.Failure{{Failure: bad}}},
		{Verdict: verdict.Of(), Records: flows.Records{Flows: []flows.FlowRecord{flow(2)}, Coflows: []flows.CoflowRecord{{Coflow: 1, End: 2 * time.Second}}}},
	}}}}
	rep, err := report.New(in)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := rep.Write(dir, rundirtest.NoFigures); err != nil {
		t.Fatal(err)
	}
	r := open(t, dir) // a run without a manifest can be read
	if r.Manifest != nil {
		t.Errorf("manifest %+v", r.Manifest)
	}
	want := []metrics.Item{{Repeat: 1, ID: 3, Time: 2 * time.Second, Cluster: 1}}
	if got := r.Times("fct", "a"); !slices.Equal(got, want) || len(r.Flows) != 2 || !r.Flows[0].Failed {
		t.Errorf("FCTs %v, want %v", got, want)
	}
	if got := r.Times("cct", "a"); len(got) != 1 || got[0].Repeat != 1 {
		t.Errorf("CCTs %v", got)
	}
}

// Failed items are identified by the IDs of summary.json, not by its descriptions; a list
// without IDs is refused.
func TestFailuresAreReadByTheirIDs(t *testing.T) {
	write := func() string {
		bad := flows.Failure{Kind: flows.FailedBlock, Block: 7, At: time.Second}
		block := flows.BlockRecord{Block: 7, Client: "a", Hosts: []string{"b"}, Size: 1, End: time.Second}
		rep, err := report.New(report.Input{RunID: "x", Arms: []report.Arm{{Name: "a", Repeats: []summary.Repeat{{Verdict: verdict.Of(),
			Records:  flows.Records{Blocks: []flows.BlockRecord{block}, Failed: []flows.Failure{bad}},
			Failures: []summary.Failure{{Failure: bad}, {Failure: flows.Failure{Kind: flows.FailedReplica, Block: 7, Host: "b"}}, {Failure: flows.Failure{Kind: flows.FailedJob, Job: 5, At: 2 * time.Second}}}}}}}})
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if _, err := rep.Write(dir, rundirtest.NoFigures); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	dir := write()
	edit(t, dir, summary.SummaryFile, func(s string) string { return strings.ReplaceAll(s, `"what": "block 7"`, `"what": "le bloc 7"`) })
	if r := open(t, dir); len(r.Blocks) != 1 || !r.Blocks[0].Failed || len(r.Times("write_time", "a")) != 0 {
		t.Errorf("blocks %+v", r.Blocks)
	}
	dir = write()
	edit(t, dir, summary.SummaryFile, func(s string) string { return strings.ReplaceAll(s, `"kind": "block",`, ``) })
	if _, err := rundir.Open(dir); err == nil || !strings.Contains(err.Error(), `arm "a": entry 1 of failures.list (block 7) does not identify its item in kind`) || !strings.Contains(err.Error(), "testbed report") {
		t.Errorf("a list without kinds: %v", err)
	}
}

// A file with more columns, in another order, reads the same.
func TestColumnsAreFoundByName(t *testing.T) {
	dir := rundirtest.Write(t, rundirtest.Default())
	want := open(t, dir).Coflows
	lone := 12500 * time.Nanosecond
	for i := range want {
		want[i].Lone = &lone
	}
	edit(t, dir, summary.CoflowsFile, func(s string) string {
		rows, err := csv.NewReader(strings.NewReader(s)).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		known := slices.Index(rows[0], "lone_us")
		var b strings.Builder
		w := csv.NewWriter(&b)
		for i, row := range rows {
			if known >= 0 {
				row = slices.Delete(row, known, known+1)
			}
			slices.Reverse(row)
			extra := []string{"0.75", "12.500"}
			if i == 0 {
				extra = []string{"other", "lone_us"}
			}
			if err := w.Write(append(row, extra...)); err != nil {
				t.Fatal(err)
			}
		}
		w.Flush()
		return b.String()
	})
	if diff := cmp.Diff(want, open(t, dir).Coflows); diff != "" {
		t.Error(diff)
	}
}

// edit changes a file of a run directory, and its sum with it, so that what the file says is checked.
func edit(t *testing.T, dir, name string, how func(string) string) {
	t.Helper()
	path := filepath.Join(dir, name)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s := how(string(b))
	if s == string(b) {
		t.Fatalf("%s: nothing was changed", name)
	}
	if err := os.WriteFile(path, []byte(s), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, rundir.ManifestFile)); err == nil {
		rundirtest.Seal(t, dir)
	}
}

func TestDamagedRuns(t *testing.T) {
	longtest.Computes(t)
	replace := func(old, new string) func(string) string {
		return func(s string) string { return strings.Replace(s, old, new, 1) }
	}
	for _, c := range []struct {
		name, file string
		how        func(string) string
		want       []string
	}{
		{"cut at a line's end", summary.CoflowsFile, func(s string) string { return s[:strings.LastIndex(s[:len(s)-1], "\n")+1] }, []string{"coflows.csv: it has 71 rows, but summary.json states 72", "testbed report "}},
		{"cut in a line", summary.FlowsFile, func(s string) string { return s[:len(s)-9] }, []string{"flows.csv: its last line has no newline: it was cut short"}},
		{"empty", summary.BlocksFile, func(string) string { return "" }, []string{"blocks.csv: it is empty"}},
		{"no column", summary.FlowsFile, replace("fct_us", "fct_ms"), []string{"flows.csv:1: no column fct_us"}},
		{"two columns", summary.FlowsFile, replace("fluid_fct_us", "fct_us"), []string{"flows.csv:1: duplicate column fct_us"}},
		{"no number", summary.FlowsFile, replace("h0-00,h1-01,", "h0-00,h1-01,x"), []string{"flows.csv:2: size_bytes: \"x"}},
		{"time without decimals", summary.CoflowsFile, replace(",100000.000,", ",100000,"), []string{"coflows.csv:3: arrival_us: \"100000\": must be microseconds with three decimals"}},
		{"foreign arm", summary.BlocksFile, replace("sebf+hdfs", "other"), []string{"blocks.csv:12: arm \"other\" is not in summary.json, which has fair+hdfs, "}},
		{"another repeat", summary.BlocksFile, replace("sebf+hdfs,0", "sebf+hdfs,7"), []string{"repeat 7: summary.json has 2 repeats"}},
		{"another verdict", summary.BlocksFile, replace("sebf+sinbad,1,degraded", "sebf+sinbad,1,pass"), []string{"blocks.csv:27: verdict \"pass\""}},
		{"too few cells", summary.CoflowsFile, replace("fair+hdfs,0,pass,2,", "fair+hdfs,0,pass2,"), []string{"coflows.csv:4: wrong number of fields"}},
		{"quote", summary.CoflowsFile, replace("fair+hdfs,0,pass,2,", "fair+hdfs,0,\"pass,2,"), []string{"coflows.csv:"}},
		{"foreign summary", summary.SummaryFile, replace(`"run_id": "made"`, `"run_id": "other"`), []string{`summary.json: it belongs to run "other", but manifest.json to run "made"`}},
		{"another format", summary.SummaryFile, replace(`"format": 1`, `"format": 99`), []string{"it has format 99, but this version of testbed reads format 1"}},
		{"no format", summary.SummaryFile, func(string) string { return "{}" }, []string{"it has no format"}},
		{"cut summary", summary.SummaryFile, func(s string) string { return s[:strings.Index(s, `"source"`)+5] }, []string{"summary.json:5: unexpected end"}},
		{"summary without arms", summary.SummaryFile, func(string) string { return `{"format":1,"run_id":"made","source":"packets"}` }, []string{"it has no arms"}},
		{"verdicts missing", summary.SummaryFile, replace(`"repeats": 2`, `"repeats": 3`), []string{"2 verdicts for 3 repeats"}},
		{"cut manifest", rundir.ManifestFile, func(s string) string { return s[:10] }, []string{"manifest.json:2: "}},
		{"wrong type", rundir.ManifestFile, replace(`"cpus": 2`, `"cpus": "two"`), []string{"manifest.json:5: "}},
		{"bad cause", summary.BreakdownFile, replace("serialisation", ""), []string{"breakdown.csv:2: cause: empty"}},
		{"bad interval", summary.LinksFile, replace("100000.000", "0.000"), []string{"links.csv:2: interval_us 0s: must be positive"}},
		{"another source", summary.DropsFile, replace("kernel", "memory"), []string{`drops.csv:2: source "memory": must be kernel or captures`}},
		{"drops of a foreign arm", summary.DropsFile, replace("fair+hdfs", "other"), []string{`drops.csv:2: arm "other" is not in summary.json`}},
		{"drops below zero", summary.DropsFile, replace("10000000,0,", "10000000,-1,"), []string{`drops.csv:2: dropped_packets: "-1"`}},
		{"no utilisation", summary.LinksFile, replace(",0,0,,0\n", ",0,NaN,,0\n"), []string{`links.csv:2: utilisation: "NaN"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := rundirtest.Write(t, rundirtest.Default())
			edit(t, dir, c.file, c.how)
			wantError(t, dir, c.want...)
		})
	}
}

func wantError(t *testing.T, dir string, want ...string) {
	t.Helper()
	_, err := rundir.Open(dir)
	if err == nil {
		t.Fatalf("%s was read; want an error with %q", dir, want)
	}
	for _, w := range append(want, "read run "+dir) {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("error %q has no %q", err, w)
		}
	}
}

func TestDirectoriesThatAreNoFinishedRun(t *testing.T) {
	empty := t.TempDir()
	wantError(t, empty, "not a run directory", "testbed report")
	wantError(t, filepath.Join(empty, "none"), "no such directory")
	file := filepath.Join(empty, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	wantError(t, file, "it is a file")

	made := rundirtest.Write(t, rundirtest.Default())
	wantError(t, filepath.Dir(made), "contains some, such as "+made)

	if err := os.Remove(filepath.Join(made, summary.SummaryFile)); err != nil {
		t.Fatal(err)
	}
	wantError(t, made, "summary.json is missing", "testbed report "+made)
	for state, want := range map[string]string{
		rundir.Running:     "the run has not ended",
		rundir.Failed:      "the run state is failed and no repeat completed, so it has no figures: no disk left",
		rundir.Interrupted: "the run state is interrupted",
	} {
		edit(t, made, rundir.ManifestFile, func(s string) string {
			i := strings.Index(s, `"state"`)
			j := i + strings.Index(s[i:], ",")
			return s[:i] + fmt.Sprintf(`"error": "no disk\nleft", "state": %q`, state) + s[j:]
		})
		wantError(t, made, want)
	}

	s := rundirtest.Default()
	s.FluidModel, s.Timing = true, false
	sim := rundirtest.Write(t, s)
	if err := os.Remove(filepath.Join(sim, summary.FlowsFile)); err != nil {
		t.Fatal(err)
	}
	wantError(t, sim, "flows.csv is missing", "testbed sim "+filepath.Join(sim, "scenario.yaml"))
}

// progress.csv gives the report's data, and damage is an error with its line.
func TestProgress(t *testing.T) {
	longtest.Computes(t)
	dir := rundirtest.Write(t, rundirtest.Default())
	r, err := rundir.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	transfers := map[string]int{}
	last := map[workloads.FlowID]schema.Moment{}
	for i := range r.Progress {
		m := &r.Progress[i]
		if i == 0 || m.Transfer() != r.Progress[i-1].Transfer() {
			transfers[m.Kind]++
		}
		if m.Kind == schema.KindFlow && m.Arm == "fair+hdfs" && m.Repeat == 1 {
			last[*m.Flow] = *m
			if (m.Sent == nil) != (*m.Flow%5 == 4) {
				t.Errorf("flow %d: sent %v", *m.Flow, m.Sent)
			}
		}
	}
	// 3 arms of 2 repeats of 24 flows, and of 5 blocks of 2 hops.
	if transfers[schema.KindFlow] != 144 || transfers[schema.KindBlock] != 60 {
		t.Errorf("transfers %v, want 144 flows and 60 hops", transfers)
	}
	for _, f := range r.Flows {
		if f.Arm != "fair+hdfs" || f.Repeat != 1 {
			continue
		}
		if m := last[f.Flow]; m.At != f.End || m.Received != f.Size || m.Size != f.Size {
			t.Errorf("flow %d ends at %v with %d bytes, want %v, %d", f.Flow, m.At, m.Received, f.End, f.Size)
		}
	}
	lines := func(how func([]string) []string) func(string) string {
		return func(s string) string { return strings.Join(how(strings.SplitAfter(s, "\n")), "") }
	}
	cell := func(line, column int, to string) func(string) string {
		return lines(func(all []string) []string {
			cells := strings.Split(all[line-1], ",")
			cells[column] = to
			all[line-1] = strings.Join(cells, ",")
			return all
		})
	}
	for _, c := range []struct {
		name string
		how  func(string) string
		want string
	}{
		{"another kind", cell(2, 3, "coflow"), `progress.csv:2: kind "coflow": must be "flow" or "block"`},
		{"no flow", cell(2, 5, ""), "progress.csv:2: a flow must have coflow and flow"},
		{"a flow with a block", cell(2, 6, "0"), "progress.csv:2: a flow must have coflow and flow, and no block"},
		{"a hop without one", func(s string) string { return strings.Replace(s, ",block,,,0,0,", ",block,,,0,,", 1) }, "a hop of a block must have block, hop and pipeline"},
		{"too much", cell(2, 11, "99999999"), "progress.csv:2: received_bytes: 99999999 of "},
		{"an arm that is not there", cell(2, 0, "other"), `progress.csv:2: arm "other"`},
		{"no column", func(s string) string { return strings.Replace(s, "received_bytes", "got", 1) }, "progress.csv:1: no column received_bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := rundirtest.Write(t, rundirtest.Default())
			edit(t, dir, summary.ProgressFile, c.how)
			wantError(t, dir, c.want)
		})
	}
}
