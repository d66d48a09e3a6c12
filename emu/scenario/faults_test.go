package scenario

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/fault"
	"testbed/topo"
	"testbed/topo/units"
)

func TestFaults(t *testing.T) {
	text, err := os.ReadFile("testdata/good.yaml")
	if err != nil {
		t.Fatal(err)
	}
	data := strings.Replace(string(text), "repeat: 2\n", `repeat: 2
faults:
  - {at: 1s, kind: link-down, link: "leaf0<>spine1", for: 500ms}
  - {at: 1s, kind: link-flap, link: "h0-03<>leaf0", down: 100ms, up: 200ms, times: 5}
  - {at: 2s, kind: link-rate, link: "leaf0>spine*", rate: 10Mbps, for: 3s}
  - {at: 2s, kind: host-crash, host: h1-02, for: 3s, disk: lost}
  - {at: 2s, kind: slow-disk, host: h1-02, rate: 1MB/s, for: 2s}
  - {at: 2s, kind: slow-cpu, host: h1-02, share: 0.25, for: 2s}
  - {at: 4s, kind: spine-down, spine: "spine1"}
  - {at: 4s, kind: lost-reports, host: "h1-0[0-1]", for: 1s}
  - {at: 5s, kind: late-reports, host: "h1-02", by: 300ms, for: 1s}
`, 1)
	s, err := Parse("testdata/s.yaml", []byte(data), Options{Catalog: testPolicies})
	if err != nil {
		t.Fatal(err)
	}
	f, err := s.Shape().Build()
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Faults(f)
	if err != nil {
		t.Fatal(err)
	}
	const sec, ms = time.Second, time.Millisecond
	h, err := f.FindHost("h1-02")
	if err != nil {
		t.Fatal(err)
	}
	want := []fault.Fault{
		{Kind: fault.LinkDown, Name: "link-down leaf0<>spine1 at 1s", At: sec, For: 500 * ms, Links: []topo.LinkID{f.LeafUp(0, 1), f.LeafDown(0, 1)}},
		{Kind: fault.LinkFlap, Name: "link-flap h0-03<>leaf0 at 1s", At: sec, Down: 100 * ms, Up: 200 * ms, Times: 5, Links: []topo.LinkID{f.HostUp(3), f.HostDown(3)}},
		{Kind: fault.LinkRate, Name: "link-rate leaf0>spine* at 2s", At: 2 * sec, For: 3 * sec, Rate: 10 * units.Mbps, Links: []topo.LinkID{f.LeafUp(0, 0), f.LeafUp(0, 1)}},
		{Kind: fault.HostCrash, Name: "host-crash h1-02 at 2s", At: 2 * sec, For: 3 * sec, Host: h, DiskLost: true},
		{Kind: fault.SlowDisk, Name: "slow-disk h1-02 at 2s", At: 2 * sec, For: 2 * sec, Host: h, Rate: 8 * units.Mbps},
		{Kind: fault.SlowCPU, Name: "slow-cpu h1-02 at 2s", At: 2 * sec, For: 2 * sec, Host: h, Share: 0.25},
		{Kind: fault.SpineDown, Name: "spine-down spine1 at 4s", At: 4 * sec, Spine: 1},
		{Kind: fault.LostReports, Name: "lost-reports h1-0[0-1] at 4s", At: 4 * sec, For: sec, Hosts: []topo.HostID{h - 2, h - 1}},
		{Kind: fault.LateReports, Name: "late-reports h1-02 at 5s", At: 5 * sec, For: sec, By: 300 * ms, Hosts: []topo.HostID{h}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if _, err := fault.Compile(f, got); err != nil {
		t.Error(err)
	}
	// Resolved faults load again as the same faults.
	resolved, err := s.Resolved()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("testdata/s.yaml", resolved, Options{Catalog: testPolicies})
	if err != nil {
		t.Fatalf("%v\n%s", err, resolved)
	}
	if d := cmp.Diff(s.Spec.Faults, again.Spec.Faults); d != "" {
		t.Errorf("read again (-want +got):\n%s", d)
	}
	if d := s.Spec.Heartbeat.Detect(); d != sec {
		t.Errorf("Detect() = %v, want 4 intervals of 250ms", d)
	}
}

// A slow disk has no effect if the workload writes no blocks.
func TestSlowDiskWithoutBlocks(t *testing.T) {
	text := `name: x
fabric: {leaves: 2, spines: 1, hosts_per_leaf: 4, host_link: 10Mbps, queue: 20ms}
disk: {write: 1MB/s}
workload:
  - {kind: background, hot_leaves: 1, intensity: 0.2, hot_share: 0.5, persist: 1s, transfer: 100KB, for: 2s}
arms: {coflow: [fair]}
faults: [{at: 1s, kind: slow-disk, host: h0-01, rate: 100KB/s}]
`
	const want = "s.yaml:7:25: faults[0].kind: slow-disk changes nothing, because the workload writes no blocks"
	if _, err := Parse("s.yaml", []byte(text), Options{Catalog: testPolicies}); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v, want %q", err, want)
	}
	blocks := strings.Replace(text, "arms: {coflow: [fair]}", "  - {kind: writers, count: 1, blocks: 1, block: 1MB, packet: 16KB, replicas: 2}\narms: {coflow: [fair], placement: [hdfs]}", 1)
	if _, err := Parse("s.yaml", []byte(blocks), Options{Catalog: testPolicies}); err != nil {
		t.Errorf("with blocks: %v", err)
	}
}
