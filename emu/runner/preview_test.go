package runner

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"testing"

	"testbed/results/rundir"
	"testbed/topo"
	"testbed/topo/units"
)

// With several spines, the links in use are those on the routes of flows and blocks in the
// log of the engine.
func TestLoadIsOnThePathsOfFlowsAndBlocks(t *testing.T) {
	s := loadText(t, `
name: spines
fabric: {leaves: 2, spines: 4, hosts_per_leaf: 8, host_link: 20Mbps, oversubscription: "2:1", queue: 20ms}
disk: {write: 10MB/s, size: 64MB}
workload:
  - {kind: trace, path: trace.txt, mb: MB}
  - {kind: writers, count: 2, blocks: 1, block: 400KB, packet: 10KB, window: 4}
arms: {coflow: [fair], placement: [hdfs]}
`, "1 0 3 0 1 2 3 8:0.3 9:0.3 10:0.3")
	f, err := Predict(t.Context(), s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	r, err := newRun(s, Options{}, rundir.Fluid)
	if err != nil {
		t.Fatal(err)
	}
	w, err := r.drawn(0)
	if err != nil {
		t.Fatal(err)
	}
	fabric := r.fabric
	log := filepath.Join(t.TempDir(), "events.jsonl")
	rec, err := r.arms[0].trial(0, *w).simulate(t.Context(), log, nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if end := lastEnd(rec).Seconds(); end > 1 {
		t.Fatalf("it takes %v s, want one second, so that all links are in use in it", end)
	}
	file, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	links, onFirst, spines := map[topo.LinkID]bool{}, map[topo.LinkID]bool{}, map[int]bool{}
	goes := func(src, dst topo.HostID, hash uint32) {
		for _, l := range fabric.Path(src, dst, hash) {
			links[l] = true
			if k := fabric.Links()[l]; k.Kind == topo.LeafUp {
				spines[int(l)%fabric.Spines()] = true
			}
		}
		for _, l := range fabric.Path(src, dst, 0) {
			onFirst[l] = true
		}
	}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, int(units.MiB))
	for lines.Scan() {
		var step struct {
			Commands []struct {
				StartTransfer *struct {
					Flow struct{ Src, Dst topo.HostID }
					Hash uint32
				}
				StartChain *struct {
					Block   struct{ Client topo.HostID }
					Targets []topo.HostID
					Hashes  []uint32
				}
			}
		}
		if err := json.Unmarshal(lines.Bytes(), &step); err != nil {
			t.Fatal(err)
		}
		for _, c := range step.Commands {
			if x := c.StartTransfer; x != nil {
				goes(x.Flow.Src, x.Flow.Dst, x.Hash)
			}
			if x := c.StartChain; x != nil {
				from := x.Block.Client
				for hop, to := range x.Targets {
					goes(from, to, x.Hashes[hop])
					from = to
				}
			}
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if len(spines) < 2 || len(links) == len(onFirst) {
		t.Fatalf("%d links over %d spines, and %d if all went over the first: the case tests nothing", len(links), len(spines), len(onFirst))
	}
	if got := f.Load[0].PeakLinks; got != len(links) {
		t.Errorf("PeakLinks = %d, want %d (%d if all went over the first spine)", got, len(links), len(onFirst))
	}
}

// Links carry no more than their rate. A policy that gives a link to one coflow after
// the other makes the life of the last one span those of all others; its packets are
// sent at the end.
func TestLoadIsWithinWhatLinksCarry(t *testing.T) {
	var trace []string
	for i := range 20 { // 1 s each at 50 Mbps
		trace = append(trace, fmt.Sprintf("%d 0 1 0 1 1:%g", i+1, 6.25+0.01*float64(i)))
	}
	for _, policy := range []string{"fair", "sebf", "fifo"} {
		f, err := Predict(t.Context(), load(t, policy, trace...), Options{})
		if err != nil {
			t.Fatal(err)
		}
		const wire = 4 * 50e6 / 8 / 1514 // packets/s, over 4 links
		l := f.Load[0]
		if l.PeakPackets > wire*1.0001 || l.PeakPackets < 0.99*wire {
			t.Errorf("%s: %.0f packets in the busiest second, want %.0f, which the links carry", policy, l.PeakPackets, wire)
		}
		if mean := 4 * (20*6.25e6 + 0.01e6*190) / 1448 / l.Duration.Seconds(); math.Abs(l.Packets/mean-1) > 0.06 {
			t.Errorf("%s: %.0f packets/s, want %.0f", policy, l.Packets, mean)
		}
	}
}

// A forecast is of one point: a scenario with several is refused, not taken for its first one.
func TestForecastOfOnePoint(t *testing.T) {
	s := loadText(t, `
name: swept
vars: {rate: }
sweep: {rate: [20Mbps, 40Mbps]}
fabric: {leaves: 1, spines: 0, hosts_per_leaf: 4, host_link: "${rate}"}
workload: [{kind: trace, path: trace.txt, mb: MB}]
arms: [{}]
`, "1 0 1 0 1 1:0.3")
	want := "scenario swept has a sweep of 2 points, and this takes one: remove the sweep and set its variables"
	if _, err := Predict(t.Context(), s, Options{}); err == nil || err.Error() != want {
		t.Errorf("plan: %v", err)
	}
}
