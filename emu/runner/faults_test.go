package runner

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/kernel/netnstest"
	"testbed/emu/longtest"
	"testbed/results/flows"
	"testbed/results/summary"
	"testbed/results/verdict"
)

// withFaults loses a spine and a host while two blocks are written, of one of which
// that host is the client and of the other a datanode, and has a link that flaps.
// With two hosts a rack, HDFS's rules leave block 0 no other hosts than h0-00, h1-00
// and h1-01, and block 2 none but h1-01, h0-00 and h0-01. Trace port p is host p/2 of
// rack p%2.
const withFaults = `
name: faults
fabric: {leaves: 2, spines: 2, hosts_per_leaf: 2, host_link: 20Mbps, oversubscription: "1:1", queue: 20ms}
disk: {write: 1MB/s, size: 64MB}
heartbeat: {interval: 100ms, lost_after: 5}
workload:
  - {kind: trace, path: trace.txt, mb: MB}
  - {kind: writers, hosts: [h0-00, h1-01], blocks: 2, block: 2MB, packet: 32KB, window: 4}
faults:
  - {at: 500ms, kind: spine-down, spine: spine1, for: 2s}
  - {at: 800ms, kind: link-flap, link: "h0-01<>leaf0", down: 100ms, up: 200ms, times: 3}
  - {at: 1s, kind: host-crash, host: h1-01}
arms: {coflow: [fair], placement: [hdfs]}
limits: {duration: 1m}
`

var withFaultsTrace = []string{
	"1 0 1 2 1 0:0.1",         // h0-01 to h0-00, before the first fault
	"2 300 1 1 1 2:3.0",       // h1-00 to h0-01, over the link that flaps
	"3 300 1 2 2 1:0.5 3:4.0", // h0-01 to h1-00, and to h1-01, which crashes
	"4 4000 1 1 1 0:0.5",      // h1-00 to h0-00, after all faults but one
	"5 4000 1 1 1 3:0.5",      // h1-00 to h1-01, which is gone
}

// whatFailed names each failure of a repeat and the fault, in a total order.
func whatFailed(r summary.Repeat) []string {
	var out []string
	for _, f := range r.Failures {
		switch f.Kind {
		case flows.FailedFlow:
			out = append(out, fmt.Sprintf("flow of coflow %d: %s", f.Coflow, f.Fault))
		case flows.FailedBlock:
			out = append(out, fmt.Sprintf("block %d: %s", f.Block, f.Fault))
		default:
			out = append(out, fmt.Sprintf("block %d without %s: %s", f.Block, f.Host, f.Fault))
		}
	}
	slices.Sort(out)
	return out
}

// A run that loses a spine and a host, and has a link that flaps, ends by itself.
// Transfers that needed the host fail, with the reason; the block that it was storing
// completes on the others; other transfers have their results, and a verdict. The
// captures alone, the log and the fluid model agree.
func TestFaultsOnPackets(t *testing.T) {
	t.Parallel()
	longtest.Skip(t, "runs faults on packets, 7 s")
	netnstest.Require(t)
	s := loadText(t, withFaults, withFaultsTrace...)
	const crash = "host-crash h1-01 at 1s"
	want := []string{"block 0 without h1-01: " + crash, "block 2: " + crash, "block 3: " + crash, "flow of coflow 3: " + crash, "flow of coflow 5: " + crash}

	o := options(t)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second) // it takes about 10 s
	defer cancel()
	out, err := Execute(ctx, s, o)
	if err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(o.StateRoot); err != nil || slices.ContainsFunc(left, fs.DirEntry.IsDir) {
		t.Errorf("left behind: %v, %v", left, err)
	}
	dir := repeatDir(out.Dir, "fair+hdfs", 0)
	res, err := flows.Reduce(t.Context(), filepath.Join(dir, "captures"), flows.Options{})
	if err != nil {
		t.Fatal(err)
	}
	rep, err := repeatOf(repeatFiles{dir: dir}, res)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, whatFailed(rep)); d != "" {
		t.Errorf("failures (-want +got):\n%s", d)
	}
	if len(rep.Records.Problems) > 0 {
		t.Errorf("problems: %v", rep.Records.Problems)
	}
	addsUp(t, rep)

	var coflows []int
	for _, c := range rep.Records.Coflows {
		coflows = append(coflows, int(c.Coflow))
	}
	if want := []int{1, 2, 4}; !slices.Equal(coflows, want) {
		t.Errorf("coflows with a completion time are %v, want %v", coflows, want)
	}
	if n := len(rep.Records.Flows); n != 4 {
		t.Errorf("%d flows have a completion time, want those of coflows 1, 2 and 4 and one of coflow 3", n)
	}
	blocks := map[int][]string{}
	for _, b := range rep.Records.Blocks {
		hosts := slices.Sorted(slices.Values(b.Hosts))
		blocks[int(b.Block)] = append(hosts, fmt.Sprintf("lost %v", b.Lost))
	}
	if d := cmp.Diff(map[int][]string{0: {"h0-00", "h1-00", "lost [h1-01]"}, 1: {"h0-00", "h0-01", "h1-00", "lost []"}}, blocks); d != "" {
		t.Errorf("hosts of blocks (-want +got):\n%s", d)
	}

	sum := out.Report.Summary.Arms[0]
	if f := sum.Failures; f == nil || f.Coflows != 2 || f.Flows != 2 || f.Blocks != 2 || f.Replicas != 1 || f.CoflowsCompleted != 3 || f.BlocksCompleted != 2 || len(f.List) != 5 {
		t.Errorf("failures in the summary: %+v", f)
	}
	if b, err := os.ReadFile(filepath.Join(out.Dir, summary.SummaryFile)); err != nil || !bytes.Contains(b, []byte(`"what": "replica of block 0 on h1-01"`)) {
		t.Errorf("no lost replica in %s (%v):\n%s", summary.SummaryFile, err, b)
	}
	for _, f := range rep.Failures {
		if f.At < time.Second || f.At > 6*time.Second {
			t.Errorf("%v at %v: want it after the crash at 1s", f.Kind, f.At)
		}
	}

	judged := ""
	for _, c := range rep.Verdict.Checks {
		judged += c.Value + "\n"
		// The others judge timing, which this test does not.
		if slices.Contains([]string{"capture-drops", "captured-bytes", "frames", "loss", "records"}, c.Name) && c.Level != verdict.Pass {
			t.Errorf("%+v", c)
		}
	}
	if len(rep.Verdict.Checks) < 10 || !strings.Contains(judged, "not judged: ") || !strings.Contains(judged, crash) {
		t.Errorf("the verdict does not name what it did not judge:\n%s", judged)
	}
	replayed, err := Replay(t.Context(), out.Dir, ReplayOptions{Repeat: AllRepeats})
	if err != nil || len(replayed.Repeats) != 1 || replayed.Repeats[0].Differs != nil || replayed.Repeats[0].Steps < 10 {
		t.Errorf("replay: %+v, %v", replayed, err)
	}

	bare := filepath.Join(t.TempDir(), "captures")
	if err := os.CopyFS(bare, os.DirFS(filepath.Join(dir, "captures"))); err != nil {
		t.Fatal(err)
	}
	again, err := Report(t.Context(), filepath.Dir(bare), ReportOptions{})
	if err != nil {
		t.Fatal(err)
	}
	names := func(a summary.Arm) (out []string) {
		for _, x := range a.Failures.List {
			out = append(out, x.What)
		}
		slices.Sort(out)
		return out
	}
	if again.Report.Summary.Arms[0].Failures == nil {
		t.Fatal("captures alone show no failures")
	}
	if d := cmp.Diff(names(sum), names(again.Report.Summary.Arms[0])); d != "" {
		t.Errorf("failures from captures alone (-whole run, +captures):\n%s", d)
	}
	reasons := func(a summary.Arm) (out []string) {
		for _, x := range a.Failures.List {
			if x.Kind != flows.FailedReplica { // its client knows the reason only if the disk is full
				out = append(out, x.What+": "+x.Why)
			}
		}
		slices.Sort(out)
		return out
	}
	if d := cmp.Diff(reasons(sum), reasons(again.Report.Summary.Arms[0])); d != "" {
		t.Errorf("reasons from captures alone (-whole run, +captures):\n%s", d)
	}

	sim, err := Simulate(t.Context(), s, options(t))
	if err != nil {
		t.Fatal(err)
	}
	if f := sim.Report.Summary.Arms[0].Failures; f == nil {
		t.Error("the fluid model has no failures")
	} else if d := cmp.Diff(names(sum), names(sim.Report.Summary.Arms[0])); d != "" {
		t.Errorf("failures in the fluid model (-packets, +fluid):\n%s", d)
	}
}

// A link at a quarter of its rate and a disk at a quarter of its rate take four times as long. A
// host that works for a fiftieth of the time takes longer, although data in socket buffers
// continues to flow: it waits for its turn ten times in a transfer of 4 MB (1.5 to 1.7 times as
// long; of 1 MB, 1.2 to 1.5). Each transfer is made before, during and after the fault. The bound is
// loose: only a fault without effect, or one that was not reverted, exceeds it.
func TestSlowFaultsOnPackets(t *testing.T) {
	longtest.Skip(t, "runs slow faults on packets, 10 s")
	netnstest.Require(t)
	const slow = `
name: slow
fabric: {leaves: 2, spines: 1, hosts_per_leaf: 2, host_link: 20Mbps, oversubscription: "1:1", queue: 20ms}
disk: {write: 1MB/s, size: 64MB}
workload:
  - {kind: trace, path: trace.txt, mb: MB}
  - {kind: writers, hosts: [h1-00], blocks: 1, block: 1MB, replicas: 1, packet: 32KB, window: 3}
  - {kind: writers, hosts: [h1-00], blocks: 1, block: 1MB, replicas: 1, packet: 32KB, window: 3, start: 2s}
  - {kind: writers, hosts: [h1-00], blocks: 1, block: 1MB, replicas: 1, packet: 32KB, window: 3, start: 8s}
faults:
  - {at: 1900ms, kind: link-rate, link: "h0-00>leaf0", rate: 5Mbps, for: 4s}
  - {at: 1900ms, kind: slow-disk, host: h1-00, rate: 250KB/s, for: 5500ms}
  - {at: 1900ms, kind: slow-cpu, host: h1-01, share: 0.02, for: 5500ms}
arms: {coflow: [fair], placement: [hdfs]}
limits: {duration: 1m}
`
	s := loadText(t, slow, "1 0 1 0 1 2:1.0", "2 0 1 3 1 1:4.0", "3 2000 1 0 1 2:1.0", "4 2000 1 3 1 1:4.0", "5 8000 1 0 1 2:1.0", "6 8000 1 3 1 1:4.0")
	netnstest.Timing(t, func(t *testing.T) bool {
		_, arms := onPackets(t, s)
		rep := arms["fair+hdfs"]
		if len(rep.Records.Blocks) != 3 || len(rep.Failures) > 0 {
			t.Fatalf("blocks %+v, failures %+v", rep.Records.Blocks, rep.Failures)
		}
		var writes []time.Duration
		for _, b := range rep.Records.Blocks {
			writes = append(writes, b.WriteTime())
		}
		link := []time.Duration{cct(t, rep.Records, 1), cct(t, rep.Records, 3), cct(t, rep.Records, 5)}
		cpu := []time.Duration{cct(t, rep.Records, 2), cct(t, rep.Records, 4), cct(t, rep.Records, 6)}
		ok := true
		for _, tt := range []struct {
			name        string
			took        []time.Duration
			least, most float64 // during the fault, of what it took before
		}{
			{"link-rate", link, 2.5, 6},
			{"slow-disk", writes, 2.5, 6},
			{"slow-cpu", cpu, 1.2, 20},
		} {
			ratio := float64(tt.took[1]) / float64(tt.took[0])
			t.Logf("%s: %v before, during and after: %.2f times as long", tt.name, tt.took, ratio)
			if ratio < tt.least || ratio > tt.most || tt.took[2] > tt.took[1]*3/4 {
				t.Logf("%s: want %g to %g times as long during it as before, and no more than ¾ of that after", tt.name, tt.least, tt.most)
				ok = false
			}
		}
		for _, c := range rep.Verdict.Checks {
			if slices.Contains([]string{"captured-bytes", "loss"}, c.Name) && (c.Level != verdict.Pass || strings.Contains(c.Value, "not judged")) {
				t.Errorf("no cable was cut: %+v", c)
			}
		}
		return ok
	})
}
