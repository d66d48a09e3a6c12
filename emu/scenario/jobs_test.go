package scenario

import (
	"bytes"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/topo/units"
	"testbed/workloads"
)

const jobsScenario = `name: jobs
fabric: {leaves: 10, spines: 1, hosts_per_leaf: 5, host_link: 100Mbps, oversubscription: "5:1", queue: 20ms}
disk: {write: 6.9MB/s, size: 4GB}
workload:
  - {kind: jobs, count: 50, load: 0.2, block: 8MB, small: 0.1, off_hot: true}
  - {kind: background, hot_leaves: 3, intensity: 0.35, hot_share: 0.7, persist: 20s, transfer: 4MB, for: 2m}
  - {kind: jobs, count: 25, interval: 2s, block: 4MB, bins: [{jobs: 1, bytes: 2, from: 0.2, to: 0.5}, {jobs: 3, bytes: 1, from: 1, to: 1}]}
  - {kind: writers, count: 2, blocks: 1, block: 1MB, packet: 16KB, start: 3s}
arms: {coflow: [fair], placement: [hdfs]}
repeat: 2
`

func parseJobs(t *testing.T, text string, files fstest.MapFS) (*Scenario, error) {
	t.Helper()
	return Parse("s.yaml", []byte(text), Options{Catalog: testPolicies, Open: files.Open})
}

func workloadOf(t *testing.T, s *Scenario, repeat int) (workloads.Workload, Notes) {
	t.Helper()
	f, err := s.Shape().Build()
	if err != nil {
		t.Fatal(err)
	}
	w, notes, err := s.Workload(f, repeat)
	if err != nil {
		t.Fatal(err)
	}
	return w, notes
}

// Items are joined: each keeps its jobs and coflows, all IDs are unique,
// and writers with off_hot are on leaves that are not hot.
func TestJobsItems(t *testing.T) {
	s, err := parseJobs(t, jobsScenario, nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := s.Shape().Build()
	if err != nil {
		t.Fatal(err)
	}
	w, notes := workloadOf(t, s, 1)
	if again, _ := workloadOf(t, s, 1); !cmp.Equal(w, again) {
		t.Error("the same repeat is another workload")
	}
	if len(w.Jobs) != 75 {
		t.Fatalf("%d jobs, want 75", len(w.Jobs))
	}
	bins := map[int]int{}
	for i, j := range w.Jobs {
		if int(j.ID) != i+1 {
			t.Fatalf("job %d at place %d", j.ID, i)
		}
		if i >= 50 {
			bins[j.Bin]++
		}
	}
	if bins[1] < 6 || bins[1] > 7 || bins[1]+bins[2] != 25 {
		t.Errorf("bins of the second item %v, want a quarter of 25 in the first", bins)
	}
	background, shuffles := 0, map[workloads.JobID]time.Duration{}
	for i, c := range w.Coflows {
		if i > 0 && (c.Arrival < w.Coflows[i-1].Arrival || c.Arrival == w.Coflows[i-1].Arrival && c.ID <= w.Coflows[i-1].ID) {
			t.Fatalf("coflow %d out of order", c.ID)
		}
		if c.Background {
			background++
		} else if _, again := shuffles[c.Job]; again || w.Jobs[c.Job-1].Arrival != c.Arrival {
			t.Fatalf("coflow %d of job %d at %v", c.ID, c.Job, c.Arrival)
		} else {
			shuffles[c.Job] = c.Arrival
		}
	}
	// 0.35 of ten downlinks of 100 Mbps for 120 s, in transfers of 4 MB.
	if background < 1302 || background > 1323 {
		t.Errorf("%d coflows of background, want 1312.5 within one a leaf", background)
	}
	spec := s.Spec.Workload[1].Background.spec(1)
	alone, hot := 0, 0
	for _, wr := range w.Writers {
		if wr.Job == 0 {
			alone++
			continue
		}
		j := w.Jobs[wr.Job-1]
		if _, shuffle := shuffles[j.ID]; shuffle != (wr.Start == 0) {
			t.Errorf("writer %d of job %d starts at %v", wr.ID, j.ID, wr.Start)
		}
		for _, r := range spec.HotLeaves(f, s.RepeatSeed(1), j.Arrival) {
			if j.ID <= 50 && f.RackOf(wr.Client) == r {
				t.Errorf("writer %d of job %d is in hot leaf %d", wr.ID, j.ID, r)
			} else if f.RackOf(wr.Client) == r {
				hot++
			}
		}
	}
	if alone != 2 || hot == 0 {
		t.Errorf("%d writers of no job and %d in hot leaves of the jobs that do not mind, want 2 and some", alone, hot)
	}
	text := strings.Join(notes, "\n")
	for _, want := range []string{
		"workload[0]: 50 jobs, one every ", "offered load 20.0% of the links toward the racks",
		"workload[0]: assumed rates of a reducer: fetch 20Mbps, write 55.2Mbps",
		"offered load 35.0% of the links toward the racks, 81.7% of a hot leaf's and 15.0% of another's; 3 of 10 leaves hot for 20s",
		"workload[0]: one block takes 4.64 heartbeats on a disk and 2.56 on a NIC; window : block 0.048", "workload[2]: one block takes 2.32 heartbeats on a disk",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("notes without %q:\n%s", want, text)
		}
	}
}

// Halving all rates and sizes halves the sizes of the workload and changes nothing else.
func TestJobsScaled(t *testing.T) {
	s, err := parseJobs(t, jobsScenario, nil)
	if err != nil {
		t.Fatal(err)
	}
	half, err := s.Scaled(workloads.Factor{Num: 2, Den: 1})
	if err != nil {
		t.Fatal(err)
	}
	a, _ := workloadOf(t, s, 0)
	b, _ := workloadOf(t, half, 0)
	if len(a.Coflows) != len(b.Coflows) || len(a.Writers) != len(b.Writers) {
		t.Fatalf("%d coflows and %d writers, want %d and %d", len(b.Coflows), len(b.Writers), len(a.Coflows), len(a.Writers))
	}
	for i, c := range a.Coflows {
		d := b.Coflows[i]
		if late := c.Arrival - d.Arrival; late < -time.Millisecond || late > time.Millisecond || len(c.Flows) != len(d.Flows) || c.Flows[0].Src != d.Flows[0].Src {
			t.Fatalf("coflow %d: at %v with %d flows, half of it at %v with %d", i, c.Arrival, len(c.Flows), d.Arrival, len(d.Flows))
		}
		if diff := c.Size() - 2*d.Size(); diff < -units.Bytes(2*len(c.Flows)) || diff > units.Bytes(2*len(c.Flows)) {
			t.Errorf("coflow %d: %v and %v, want twice", i, c.Size(), d.Size())
		}
	}
	for i, wr := range a.Writers {
		if hw := b.Writers[i]; hw.Client != wr.Client || len(hw.Blocks) != len(wr.Blocks) || wr.Blocks[0].Size-2*hw.Blocks[0].Size > 2 {
			t.Fatalf("writer %d: %+v, halved %+v", i, wr, hw)
		}
	}
}

// A workload file replays as it was saved, is stored with the run, scales, and its
// errors are reported with their lines.
func TestWorkloadItem(t *testing.T) {
	s, err := parseJobs(t, jobsScenario, nil)
	if err != nil {
		t.Fatal(err)
	}
	f, err := s.Shape().Build()
	if err != nil {
		t.Fatal(err)
	}
	want, _ := workloadOf(t, s, 0)
	var b bytes.Buffer
	if err := workloads.WriteWorkload(&b, f, want, "saved"); err != nil {
		t.Fatal(err)
	}
	at := strings.Index(jobsScenario, "workload:")
	end := strings.Index(jobsScenario, "arms:")
	text := jobsScenario[:at] + "workload:\n  - {kind: workload, path: w.txt}\n" + jobsScenario[end:]
	files := fstest.MapFS{"w.txt": {Data: b.Bytes()}, "small.txt": {Data: []byte("3 1\n1 0 1 0 1 1:8.0\n")}}
	loaded, err := parseJobs(t, text, files)
	if err != nil {
		t.Fatal(err)
	}
	for repeat := range 2 { // random draws of repeats do not affect the file
		if got, _ := workloadOf(t, loaded, repeat); !cmp.Equal(want, got) {
			t.Fatalf("repeat %d (-want +got):\n%s", repeat, cmp.Diff(want, got))
		}
	}
	kept := fstest.MapFS{}
	for _, file := range loaded.Files() {
		kept[file.Name] = &fstest.MapFile{Data: file.Data}
	}
	again, err := parseJobs(t, string(kept["scenario.yaml"].Data), kept)
	if err != nil {
		t.Fatal(err)
	}
	if fingerprint(t, again) != fingerprint(t, loaded) || fingerprint(t, loaded) == fingerprint(t, s) {
		t.Error("what is kept has another fingerprint, or the file does not count")
	}
	changed := fstest.MapFS{"w.txt": {Data: bytes.Replace(b.Bytes(), []byte("# saved"), []byte("# other"), 1)}}
	other, err := parseJobs(t, text, changed)
	if err != nil {
		t.Fatal(err)
	}
	if diff, err := WorkloadDiffers(loaded, other); err != nil || len(diff) != 1 || diff[0].Key != "workload[0].path" {
		t.Errorf("another file: %+v, %v", diff, err)
	}
	scaled, err := parseJobs(t, strings.Replace(text, "arms:", "scale: {size: 1/2, time: 2}\narms:", 1), files)
	if err != nil {
		t.Fatal(err)
	}
	got, _ := workloadOf(t, scaled, 0)
	if a, b := want.Writers[0].Blocks[0], got.Writers[0].Blocks[0]; b.Size != (a.Size+1)/2 || b.Packet != (a.Packet+1)/2 || got.Jobs[5].Arrival != 2*want.Jobs[5].Arrival {
		t.Errorf("block %+v of %+v, job at %v of %v", b, a, got.Jobs[5].Arrival, want.Jobs[5].Arrival)
	}
	for _, tt := range []struct{ name, text, file, want string }{
		{"a bad line", text, strings.Replace(b.String(), "fabric racks=10", "fabric racks=x", 1), `w.txt:3:8: racks "x"`},
		{"a trace", text, "3 1\n1 0 1 0 1 1:8.0\n", "w.txt:1:1: not a workload file: expected a first line"},
		{"a workload for a trace", strings.Replace(text, "kind: workload", "kind: trace", 1), b.String(), "w.txt: a workload file: use a trace, or kind: workload"},
		{"too small a fabric", strings.Replace(text, "leaves: 10", "leaves: 9", 1), b.String(), "the fabric has 9 racks of 5 hosts: expected 10 of 5"},
		{"missing", strings.Replace(text, "w.txt", "v.txt", 1), "", "v.txt: file does not exist: expected a workload file"},
		{"no disk", strings.Replace(text, "disk: {write: 6.9MB/s, size: 4GB}\n", "", 1), b.String(), "disk: missing: the workload writes blocks"},
		{"no placement", strings.Replace(text, ", placement: [hdfs]", "", 1), b.String(), "arms.placement: missing"},
		{"full disks", strings.Replace(text, "size: 4GB", "size: 100MB", 1), b.String(), "do not fit on 50 disks of 100MB"},
		{"several full disks", strings.Replace(text, "size: 4GB", "size: 20MB, count: 5", 1), b.String(), "do not fit on 250 disks of 20MB"},
		{"a block larger than a disk", strings.Replace(text, "size: 4GB", "size: 7MB, count: 64", 1), b.String(), "workload[0]: a block of 8MB on disks of 7MB"},
	} {
		if _, err := parseJobs(t, tt.text, fstest.MapFS{"w.txt": {Data: []byte(tt.file)}}); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// Blocks of jobs that fit on one disk of each host also fit on several smaller disks of the same
// total size.
func TestJobsFitOnSeveralDisks(t *testing.T) {
	for _, disks := range []string{"size: 4GB", "size: 1GB, count: 4", "size: 125MB, count: 32"} {
		if _, err := parseJobs(t, strings.Replace(jobsScenario, "size: 4GB", disks, 1), nil); err != nil {
			t.Errorf("%s: %v", disks, err)
		}
	}
}

func TestJobsItemErrors(t *testing.T) {
	for _, tt := range []struct{ old, new, want string }{
		{"load: 0.2", "load: 0.2, interval: 1s", "workload[0].load: excludes interval: remove one of them"},
		{"load: 0.2, ", "", "workload[0].interval: missing: state the mean time between jobs, or a load"},
		{"count: 50", "count: 50, mappers: 8-2", `workload[0].mappers: range "8-2": expected two whole numbers`},
		{"count: 50", "count: 50, mappers: 40-60", "60 mappers and 8 reducers on 50 hosts"},
		{"count: 50", "count: 50, writers: 1-51", "workload[0]: off_hot with up to 51 reducers or writers, and only 35 hosts"},
		{"count: 50", "count: 50, packet: 9MB", "workload[0].packet: 9MB in a block of 8MB"},
		{"count: 50", "count: 50, window: 13", "workload[0].window: 13 unacknowledged packets of 64KB are 10.4 % of a block of 8MB"},
		{"count: 50", "count: 50, small_block: 9MB", "workload[0].small_block: 9MB: must be at most the size of a block, 8MB"},
		{"small: 0.1", "small_block: 1MB", "workload[0].small_block: requires small above 0"},
		{"from: 0.2, to: 0.5", "from: 0.6, to: 0.5", "workload[2].bins[0].to: writing from 0.6 to 0.5"},
		{"from: 1, to: 1", "from: 0.9, to: 0.95", "workload[2]: jobs: no bin of jobs that only write"},
		{"hot_leaves: 3", "hot_leaves: 10", "10 hot leaves of 10"},
		{"hot_leaves: 3", "hot_leaves: 1", "245% of the downlinks of a hot leaf"},
		{"kind: background, ", "", "workload[1].kind: missing: expected one of trace, writers, readers, jobs, tasks, background, workload"},
		{"transfer: 4MB", "transfer: 10KB", "workload[1]: background: too many flows"},
		{"count: 50", "count: 50, output: 1TB", "workload[0]: jobs: too many blocks"},
		{"repeat: 2", "limits: {blocks: 300}", "the limit is 300: reduce the item, or raise limits.blocks"},
		{"size: 4GB", "size: 60MB", "do not fit on 50 disks of 60MB"},
		{"size: 4GB", "size: 20MB, count: 3", "do not fit on 150 disks of 20MB"},
		{"disk: {write: 6.9MB/s, size: 4GB}\n", "", "disk: missing: the workload writes blocks"},
		{jobsScenario[strings.Index(jobsScenario, "  - {kind: background"):strings.Index(jobsScenario, "  - {kind: jobs, count: 25")], "", "workload[0].off_hot: requires an item of kind background"},
	} {
		text := strings.Replace(jobsScenario, tt.old, tt.new, 1)
		if text == jobsScenario {
			t.Fatalf("nothing changed by %q", tt.old)
		}
		if _, err := parseJobs(t, text, nil); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%q for %q: %v, want %q", tt.new, tt.old, err, tt.want)
		}
	}
}
