package runner

import (
	"testing"
	"time"

	"testbed/results/rundir"
)

// Placement policies as a scenario states them: zones reach them, requests that wait
// count their waiting, and each writes every block.
func TestPlacementPolicies(t *testing.T) {
	s := loadText(t, `
name: placed
fabric: {leaves: 4, spines: 2, hosts_per_leaf: 3, host_link: 20Mbps, oversubscription: "3:1", zone_racks: 2, queue: 20ms}
disk: {write: 2MB/s, size: 640MB}
workload:
  - {kind: trace, path: trace.txt, mb: MB}
  - {kind: writers, count: 4, blocks: 2, block: 1MB, replicas: 3, packet: 32KB, window: 3, spread: 1s}
arms:
  - {name: zones, coflow: fair, placement: {name: sinbad, partitions: 2}}
  - {name: named, coflow: fair, placement: {name: sinbad, hosts: "h0-*,h1-*", partitions: 1}}
  - {name: waits, coflow: fair, placement: {name: sinbad, interval: 2s, form: v1, rack_load: hosts}}
  - {name: least, coflow: fair, placement: {name: least-loaded, form: ve}}
  - {name: two, coflow: fair, placement: power-of-two}
  - {name: racks, coflow: fair, placement: {name: uniform, form: two-racks}}
`, "1 0 3 0 1 2 2 8:1.5 4:0.5", "2 300 2 3 4 1 0:0.9")
	out, err := Simulate(t.Context(), s, Options{Out: t.TempDir(), Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	run, err := rundir.Open(out.Dir)
	if err != nil {
		t.Fatal(err)
	}
	written := map[string]int{}
	waited := false
	for _, b := range run.Blocks {
		written[b.Arm]++
		if b.Waited == nil {
			t.Fatalf("%s: block %d: no waited_us", b.Arm, b.Block)
		}
		zones, racks := map[bool]bool{}, map[string]bool{}
		for _, h := range b.Hosts {
			zones[h < "h2"], racks[h[:2]] = true, true
		}
		switch {
		case len(racks) < 2,
			b.Arm == "zones" && len(zones) != 2,
			b.Arm == "named" && (len(zones) != 1 || !zones[true]),
			(b.Arm == "waits" || b.Arm == "racks") && len(racks) != 3:
			t.Errorf("%s: block %d on %v", b.Arm, b.Block, b.Hosts)
		}
		// Requests that wait are placed at multiples of 2 s, and at the next one.
		if b.Arm == "waits" {
			if b.Requested%(2*time.Second) != 0 || *b.Waited >= 2*time.Second {
				t.Errorf("block %d waited %v and was placed at %v", b.Block, *b.Waited, b.Requested)
			}
			waited = waited || *b.Waited > 0
		} else if *b.Waited != 0 {
			t.Errorf("%s: block %d waited %v", b.Arm, b.Block, *b.Waited)
		}
	}
	for _, arm := range []string{"zones", "named", "waits", "least", "two", "racks"} {
		if written[arm] != 8 {
			t.Errorf("%s: %d blocks written, want 8", arm, written[arm])
		}
	}
	if !waited {
		t.Error("no block of the arm that waits had to")
	}
	replayed, err := Replay(t.Context(), out.Dir, all())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range replayed.Repeats {
		if r.Differs != nil || r.Unfinished != "" {
			t.Errorf("replay of %s: %+v", r.Arm, r.Replayed)
		}
	}
}
