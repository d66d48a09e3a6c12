package archive_test

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

	"testbed/results/archive"
	"testbed/results/archive/archivetest"
	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/report"
	"testbed/results/verdict"
	"testbed/topo/units"
	"testbed/workloads"
)

func open(t *testing.T, dir string) *archive.Run {
	t.Helper()
	r, err := archive.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// What is read back gives the figures that the summary has, to the nanosecond.
func TestFiguresReadBackAreThoseOfTheSummary(t *testing.T) {
	for _, fluid := range []bool{false, true} {
		s := archivetest.Default()
		s.FluidModel, s.Timing = fluid, !fluid
		r := open(t, archivetest.Write(t, s))
		if r.Simulated() != fluid || r.Manifest.Seed != 7 || len(r.Arms()) != 3 {
			t.Fatalf("run is %+v", r.Manifest)
		}
		for _, name := range r.Arms() {
			a := r.Arm(name)
			for _, x := range []struct {
				m     *report.Metric
				items []metrics.Item
			}{{a.CCT, r.CCTs(name)}, {a.FCT, r.FCTs(name)}, {a.WriteTime, r.WriteTimes(name)}} {
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
	s := archivetest.Default()
	r := open(t, archivetest.Write(t, s))
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

// Void repeats have no rows; what else the arm has can be read, and its verdict says
// not to.
func TestVoidArm(t *testing.T) {
	s := archivetest.Default()
	s.Arms[1].Level = verdict.Void
	r := open(t, archivetest.Write(t, s))
	if level, ok := r.Level("sebf+hdfs"); !ok || level != verdict.Void {
		t.Errorf("level %v %v", level, ok)
	}
	for _, item := range r.CCTs("sebf+hdfs") {
		if item.Repeat != 0 {
			t.Errorf("item of the void repeat: %v", item)
		}
	}
}

// Flows that were given up and ended all the same are in no statistic, as in the
// report.
func TestFailedItemsAreNotCounted(t *testing.T) {
	flow := func(n int) flows.FlowRecord {
		return flows.FlowRecord{Coflow: 1, Flow: 3, Src: "a", Dst: "b", Size: 10, End: time.Duration(n) * time.Second}
	}
	bad := flows.Failure{Kind: flows.FailedFlow, Coflow: 1, Flow: 3, At: time.Second}
	in := report.Input{RunID: "x", Arms: []report.Arm{{Name: "a", Repeats: []report.Repeat{
		{Verdict: verdict.Of(), Records: flows.Records{Flows: []flows.FlowRecord{flow(1)}, Coflows: []flows.CoflowRecord{{Coflow: 1, End: time.Second}}, Failed: []flows.Failure{bad}},
			Failures: []report.Failure{{Failure: bad, Why: "late"}}},
		{Verdict: verdict.Of(), Records: flows.Records{Flows: []flows.FlowRecord{flow(2)}, Coflows: []flows.CoflowRecord{{Coflow: 1, End: 2 * time.Second}}}},
	}}}}
	rep, err := report.New(in)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if _, err := rep.Write(dir); err != nil {
		t.Fatal(err)
	}
	r := open(t, dir) // and a run without a manifest can be read
	if r.Manifest != nil {
		t.Errorf("manifest %+v", r.Manifest)
	}
	want := []metrics.Item{{Repeat: 1, ID: 3, Time: 2 * time.Second, Cluster: 1}}
	if got := r.FCTs("a"); !slices.Equal(got, want) || len(r.Flows) != 2 || !r.Flows[0].Failed {
		t.Errorf("FCTs %v, want %v", got, want)
	}
	if got := r.CCTs("a"); len(got) != 1 || got[0].Repeat != 1 {
		t.Errorf("CCTs %v", got)
	}
}

// What failed is read off the IDs of summary.json, not off its prose; a list without
// them is refused.
func TestFailuresAreReadByTheirIDs(t *testing.T) {
	write := func() string {
		bad := flows.Failure{Kind: flows.FailedBlock, Block: 7, At: time.Second}
		block := flows.BlockRecord{Block: 7, Client: "a", Hosts: []string{"b"}, Size: 1, End: time.Second}
		rep, err := report.New(report.Input{RunID: "x", Arms: []report.Arm{{Name: "a", Repeats: []report.Repeat{{Verdict: verdict.Of(),
			Records:  flows.Records{Blocks: []flows.BlockRecord{block}, Failed: []flows.Failure{bad}},
			Failures: []report.Failure{{Failure: bad}, {Failure: flows.Failure{Kind: flows.FailedReplica, Block: 7, Host: "b"}}}}}}}})
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		if _, err := rep.Write(dir); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	dir := write()
	edit(t, dir, report.SummaryFile, func(s string) string { return strings.ReplaceAll(s, `"what": "block 7"`, `"what": "le bloc 7"`) })
	if r := open(t, dir); len(r.Blocks) != 1 || !r.Blocks[0].Failed || len(r.WriteTimes("a")) != 0 {
		t.Errorf("blocks %+v", r.Blocks)
	}
	dir = write()
	edit(t, dir, report.SummaryFile, func(s string) string { return strings.ReplaceAll(s, `"kind": "block",`, ``) })
	if _, err := archive.Open(dir); err == nil || !strings.Contains(err.Error(), `arm "a": entry 1 of failures.list (block 7) does not say in kind`) || !strings.Contains(err.Error(), "testbed report") {
		t.Errorf("a list without kinds: %v", err)
	}
}

// A file with more columns, in another order, is read the same.
func TestColumnsAreFoundByName(t *testing.T) {
	dir := archivetest.Write(t, archivetest.Default())
	want := open(t, dir).Coflows
	lone := 12500 * time.Nanosecond
	for i := range want {
		want[i].Lone = &lone
	}
	edit(t, dir, report.CoflowsFile, func(s string) string {
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
}

func TestDamagedRuns(t *testing.T) {
	replace := func(old, new string) func(string) string {
		return func(s string) string { return strings.Replace(s, old, new, 1) }
	}
	for _, c := range []struct {
		name, file string
		how        func(string) string
		want       []string
	}{
		{"cut at a line's end", report.CoflowsFile, func(s string) string { return s[:strings.LastIndex(s[:len(s)-1], "\n")+1] }, []string{"coflows.csv: it has 23 completed items of arm sebf+sinbad, and summary.json has 24", "testbed report "}},
		{"cut in a line", report.FlowsFile, func(s string) string { return s[:len(s)-9] }, []string{"flows.csv: its last line has no end: it was cut short"}},
		{"empty", report.BlocksFile, func(string) string { return "" }, []string{"blocks.csv: it is empty"}},
		{"no column", report.FlowsFile, replace("fct_us", "fct_ms"), []string{"flows.csv:1: no column fct_us"}},
		{"two columns", report.FlowsFile, replace("fluid_fct_us", "fct_us"), []string{"flows.csv:1: two columns fct_us"}},
		{"no number", report.FlowsFile, replace("h0-00,h1-01,", "h0-00,h1-01,x"), []string{"flows.csv:2: size_bytes: \"x"}},
		{"time without decimals", report.CoflowsFile, replace(",100000.000,", ",100000,"), []string{"coflows.csv:3: arrival_us: \"100000\": want microseconds with three decimals"}},
		{"times that disagree", report.CoflowsFile, replace(",100000.000,", ",100000.001,"), []string{"coflows.csv:3: coflow 1 takes "}},
		{"foreign arm", report.BlocksFile, replace("sebf+hdfs", "other"), []string{"blocks.csv:12: arm \"other\" is not in summary.json, which has fair+hdfs, "}},
		{"another repeat", report.BlocksFile, replace("sebf+hdfs,0", "sebf+hdfs,7"), []string{"repeat 7: summary.json has 2 repeats"}},
		{"another verdict", report.BlocksFile, replace("sebf+sinbad,1,degraded", "sebf+sinbad,1,pass"), []string{"blocks.csv:27: verdict \"pass\""}},
		{"twice", report.BlocksFile, replace("fair+hdfs,0,pass,1,", "fair+hdfs,0,pass,0,"), []string{"blocks.csv:3: block 0 of arm fair+hdfs, repeat 0, is there twice"}},
		{"too few cells", report.CoflowsFile, replace("fair+hdfs,0,pass,2,", "fair+hdfs,0,pass2,"), []string{"coflows.csv:4: wrong number of fields"}},
		{"quote", report.CoflowsFile, replace("fair+hdfs,0,pass,2,", "fair+hdfs,0,\"pass,2,"), []string{"coflows.csv:"}},
		{"foreign summary", report.SummaryFile, replace(`"run_id": "made"`, `"run_id": "other"`), []string{`summary.json: it is of run "other", and manifest.json of run "made"`}},
		{"another format", report.SummaryFile, replace(`"format": 1`, `"format": 99`), []string{"it is of format 99, and this testbed reads format 1"}},
		{"no format", report.SummaryFile, func(string) string { return "{}" }, []string{"it has no format"}},
		{"cut summary", report.SummaryFile, func(s string) string { return s[:strings.Index(s, `"source"`)+5] }, []string{"summary.json:5: unexpected end"}},
		{"summary without arms", report.SummaryFile, func(string) string { return `{"format":1,"run_id":"made","source":"packets"}` }, []string{"it has no arm"}},
		{"verdicts missing", report.SummaryFile, replace(`"repeats": 2`, `"repeats": 3`), []string{"2 verdicts of 3 repeats"}},
		{"cut manifest", archive.ManifestFile, func(s string) string { return s[:10] }, []string{"manifest.json:2: "}},
		{"wrong type", archive.ManifestFile, replace(`"cpus": 2`, `"cpus": "two"`), []string{"manifest.json:5: "}},
		{"bad cause", report.BreakdownFile, replace("serialisation", ""), []string{"breakdown.csv:2: cause: empty"}},
		{"bad interval", report.LinksFile, replace("100000.000", "0.000"), []string{"links.csv:2: interval_us: 0s: want more than 0"}},
		{"no utilisation", report.LinksFile, replace("0.000000", "NaN"), []string{`links.csv:2: utilisation: "NaN"`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := archivetest.Write(t, archivetest.Default())
			edit(t, dir, c.file, c.how)
			wantError(t, dir, c.want...)
		})
	}
}

func wantError(t *testing.T, dir string, want ...string) {
	t.Helper()
	_, err := archive.Open(dir)
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
	wantError(t, empty, "no run directory", "testbed report")
	wantError(t, filepath.Join(empty, "none"), "no such directory")
	file := filepath.Join(empty, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	wantError(t, file, "it is a file")

	made := archivetest.Write(t, archivetest.Default())
	wantError(t, filepath.Dir(made), "holds some, such as "+made)

	if err := os.Remove(filepath.Join(made, report.SummaryFile)); err != nil {
		t.Fatal(err)
	}
	wantError(t, made, "summary.json is missing", "testbed report "+made)
	for state, want := range map[string]string{
		archive.Running:     "the run has not ended",
		archive.Failed:      "the run was failed before a repeat of it had ended, so it has no figures: no disk left",
		archive.Interrupted: "the run was interrupted before",
	} {
		edit(t, made, archive.ManifestFile, func(s string) string {
			i := strings.Index(s, `"state"`)
			j := i + strings.Index(s[i:], ",")
			return s[:i] + fmt.Sprintf(`"error": "no disk\nleft", "state": %q`, state) + s[j:]
		})
		wantError(t, made, want)
	}

	s := archivetest.Default()
	s.FluidModel, s.Timing = true, false
	sim := archivetest.Write(t, s)
	if err := os.Remove(filepath.Join(sim, report.FlowsFile)); err != nil {
		t.Fatal(err)
	}
	wantError(t, sim, "flows.csv is missing", "testbed sim "+filepath.Join(sim, "scenario.yaml"))
}

// progress.csv is read into what the report had, and damage is an error with its line.
func TestProgress(t *testing.T) {
	dir := archivetest.Write(t, archivetest.Default())
	r, err := archive.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	transfers := map[string]int{}
	last := map[workloads.FlowID]archive.Moment{}
	for i := range r.Progress {
		m := &r.Progress[i]
		if i == 0 || !m.Same(&r.Progress[i-1]) {
			transfers[m.Kind]++
		}
		if m.Kind == archive.KindFlow && m.Arm == "fair+hdfs" && m.Repeat == 1 {
			last[*m.Flow] = *m
			if (m.Sent == nil) != (*m.Flow%5 == 4) {
				t.Errorf("flow %d: sent %v", *m.Flow, m.Sent)
			}
		}
	}
	// 3 arms of 2 repeats of 24 flows, and of 5 blocks of 2 hops.
	if transfers[archive.KindFlow] != 144 || transfers[archive.KindBlock] != 60 {
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
		{"another kind", cell(2, 3, "coflow"), `progress.csv:2: kind "coflow": want "flow" or "block"`},
		{"no flow", cell(2, 5, ""), "progress.csv:2: a flow: want its coflow and flow"},
		{"a flow with a block", cell(2, 6, "0"), "progress.csv:2: a flow: want its coflow and flow, and no block"},
		{"a hop without one", func(s string) string { return strings.Replace(s, ",block,,,0,0,", ",block,,,0,,", 1) }, "a hop of a block: want its block, hop and pipeline"},
		{"too much", cell(2, 11, "99999999"), "progress.csv:2: received_bytes: 99999999 of "},
		{"backwards", lines(func(all []string) []string { all[1], all[2] = all[2], all[1]; return all }), "want time and bytes to go forward"},
		{"another end", cell(7, 10, "999999999.000"), "progress.csv:7: flow 0 is complete at 16m39.999999s, and at "},
		{"twice", lines(func(all []string) []string { return append(all, all[1]) }), "its transfer is there twice"},
		{"an arm that is not there", cell(2, 0, "other"), `progress.csv:2: arm "other"`},
		{"no column", func(s string) string { return strings.Replace(s, "received_bytes", "got", 1) }, "progress.csv:1: no column received_bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := archivetest.Write(t, archivetest.Default())
			edit(t, dir, report.ProgressFile, c.how)
			wantError(t, dir, c.want)
		})
	}
}
