package runner

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/kernel/netnstest"
	"testbed/emu/longtest"
	"testbed/results/metrics"
	"testbed/results/rundir"
	"testbed/results/verdict"
)

// Jobs that shuffle and write, and background that keeps a rack hot, under placement
// that goes by hosts' reports, by leaves', by the true loads, and that lets requests
// wait for the next multiple of 300 ms.
const jobsAndBackground = `
name: jobs
fabric: {leaves: 4, spines: 1, hosts_per_leaf: 3, host_link: 20Mbps, oversubscription: "3:1", queue: 20ms}
disk: {write: 1.38MB/s, size: 64MB}
heartbeat: {interval: 100ms}
workload:
  - {kind: jobs, count: 5, interval: 200ms, start: 300ms, block: 320KB, packet: 8KB, window: 4, output: 640KB,
     mappers: 2-4, reducers: 1-3, shuffle_rate: 6Mbps, write_rate: 1.38MB/s, off_hot: true}
  - {kind: background, hot_leaves: 1, intensity: 0.25, hot_share: 0.8, persist: 10m, transfer: 200KB, for: 1500ms}
arms:
  - {name: hdfs, coflow: fair, placement: hdfs}
  - {name: leaf, coflow: fair, placement: {name: sinbad, rack_load: leaf}}
  - {name: oracle, coflow: fair, placement: oracle}
  - {name: waits, coflow: fair, placement: {name: sinbad, interval: 300ms}}
`

// On packets all of it ends, requests wait where they should and nowhere else, a
// report of the run directory has the same figures, and every log replays. No run with
// all that may be void: that is a matter of the moment, and tried again.
func TestJobsUnderPlacementPolicies(t *testing.T) {
	longtest.Nightly(t, "runs jobs under every placement policy, 15 s")
	const q = 300 * time.Millisecond
	netnstest.Timing(t, func(t *testing.T) bool {
		s := loadText(t, jobsAndBackground)
		fabric, err := s.Shape().Build()
		if err != nil {
			t.Fatal(err)
		}
		w, _, err := s.Workload(fabric, 0)
		if err != nil {
			t.Fatal(err)
		}
		meta := metrics.WorkloadMetaOf(w, nil)
		blocks := 0
		for _, wr := range meta.Writers {
			blocks += len(wr.Blocks)
		}
		if len(meta.Jobs) != 5 || blocks < 8 || len(meta.Background) < 3 {
			t.Fatalf("%d jobs, %d blocks, %d coflows of background: want some of each", len(meta.Jobs), blocks, len(meta.Background))
		}
		out, arms := onPackets(t, s)
		ok := true
		for name, rep := range arms {
			r := rep.Records
			t.Logf("%s: %v", name, rep.Verdict.Level)
			for _, c := range rep.Verdict.Checks {
				if c.Level != verdict.Pass {
					t.Logf("  %+v", c)
				}
			}
			ok = ok && rep.Verdict.Level != verdict.Void
			if len(r.Jobs) != 5 || len(r.Blocks) != blocks || len(r.Coflows) != len(w.Coflows) || len(r.Failed) != 0 {
				t.Errorf("%s: %d jobs, %d blocks, %d coflows, failed %v; want 5, %d, %d and none", name, len(r.Jobs), len(r.Blocks), len(r.Coflows), r.Failed, blocks, len(w.Coflows))
			}
			for _, j := range r.Jobs {
				if j.Coflow != nil && j.JobTime() <= cct(t, r, int(*j.Coflow)) {
					t.Errorf("%s: job %d takes %v, no more than its coflow", name, j.Job, j.JobTime())
				}
			}
			background := 0
			for _, c := range r.Coflows {
				if c.Background {
					background++
				}
			}
			if background != len(meta.Background) {
				t.Errorf("%s: %d coflows of background, want %d", name, background, len(meta.Background))
			}
			// Of 13 requests at random moments the odds that none waits a tenth of q are 1e-13.
			var longest time.Duration
			for _, b := range r.Blocks {
				longest = max(longest, b.Waited)
			}
			if (longest >= q/10) != (name == "waits") || name != "waits" && longest != 0 {
				t.Errorf("%s: the longest wait of a block is %v", name, longest)
			}
			ok = ok && longest <= q+q/10
			p := rep.Placement
			if p == nil || p.Balance == nil || p.Balance.Links != 4 || len(p.Balance.Samples) < 10 || p.CrossRack.Writes <= 0 || p.CrossRack.All <= p.CrossRack.Writes || p.Disk == nil || *p.Disk <= 0 {
				t.Errorf("%s: placement %+v", name, p)
			}
		}
		if !ok {
			return false
		}
		// The files, and what a report makes of the captures and asked.json, are the same.
		run, err := rundir.Open(out.Dir)
		if err != nil {
			t.Fatal(err)
		}
		waited := map[string]int{}
		for _, b := range run.Blocks {
			if b.Waited == nil {
				t.Fatalf("%s: block %d: no waited_us", b.Arm, b.Block)
			}
			if *b.Waited > 0 {
				waited[b.Arm]++
			}
		}
		if len(waited) != 1 || waited["waits"] < blocks/2 || len(run.Jobs) != 5*len(arms) {
			t.Errorf("by blocks.csv these had to wait: %v; %d rows of jobs.csv", waited, len(run.Jobs))
		}
		again, err := Report(t.Context(), out.Dir, ReportOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range again.Report.Summary.Arms {
			was := out.Report.Summary.Arms[i]
			if d := cmp.Diff(inJSON(t, was), inJSON(t, a)); d != "" {
				t.Errorf("%s (-run +report):\n%s", a.Name, d)
			}
			// Averages leave background out.
			if a.JobTime == nil || a.JobTime.N != 5 || a.CCT.N != len(w.Coflows)-len(meta.Background) || a.Placement.Cv == nil || a.Placement.Cv.Median <= 0 || (a.Placement.Wait.Sum > 0) != (a.Name == "waits") {
				t.Errorf("%s: job time %+v, CCT %+v, placement %+v", a.Name, a.JobTime, a.CCT, a.Placement)
			}
		}
		replayed, err := Replay(t.Context(), out.Dir, ReplayOptions{Repeat: AllRepeats})
		if err != nil || len(replayed.Repeats) != len(arms) {
			t.Fatalf("replay: %+v, %v", replayed, err)
		}
		for _, r := range replayed.Repeats {
			if r.Differs != nil || r.Unfinished != "" {
				t.Errorf("replay of %s: %+v", r.Arm, r)
			}
		}
		var text strings.Builder
		for _, a := range again.Report.Summary.Arms {
			fmt.Fprintf(&text, "%s: job time %.0f ms, write time %.0f ms, waited %.0f ms, median Cv %.2f, cross-rack %.1f MB\n", a.Name, a.JobTime.MeanUS/1e3, a.WriteTime.MeanUS/1e3, a.Placement.Wait.Sum/a.Placement.Wait.N/1e3, a.Placement.Cv.Median, a.Placement.Bytes().All/1e6)
		}
		t.Log(text.String())
		return true
	})
}

func inJSON(t *testing.T, v any) string {
	t.Helper()
	b, err := json.MarshalIndent(v, "", " ")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
