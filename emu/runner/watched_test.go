package runner

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/deploy"
	"testbed/emu/fault"
	"testbed/emu/kernel"
	"testbed/results/flows"
	"testbed/topo/units"
)

// A fault explains what it changes, from its time on, and nothing else.
func TestFaultsExplainWhatTheyChange(t *testing.T) {
	text, trace := at50()
	f, err := loadText(t, text, trace...).Shape().Build()
	if err != nil {
		t.Fatal(err)
	}
	faults := fault.Timeline{
		{At: time.Second, Action: fault.SetRate{Link: f.HostDown(1), Rate: 10 * units.Mbps}, Why: "slow"},
		{At: 2 * time.Second, Action: fault.SetLink{Link: f.HostUp(2)}, Why: "host cut"},
		{At: 3 * time.Second, Action: fault.SetLink{Link: f.LeafUp(0, 0)}, Why: "uplink cut"},
	}
	const later = 4 * time.Second
	for _, tt := range []struct {
		namespace, device, what string
		after                   time.Duration
		want                    string
	}{
		{"leaf0", "h0-01", "rate", later, "slow"},
		{"leaf0", "h0-01", "burst", later, "slow"},
		{"leaf0", "h0-01", "rate", 900 * time.Millisecond, ""},
		{"leaf0", "h0-01", "MTU", later, ""},
		{"leaf0", "h0-01", "queue", later, ""},
		{"h0-01", "eth0", "rate", later, ""},
		{"leaf0", "h0-02", "device", later, "host cut"},
		{"leaf0", "h0-02", "neighbour 10.0.2.1", later, "host cut"},
		{"leaf0", "h0-02", "device", 1900 * time.Millisecond, ""},
		{"leaf0", "h0-02", "rate", later, ""},
		{"h0-02", "eth0", "device", later, "host cut"},
		{"h0-02", "", "route default", later, "host cut"},
		{"h0-02", "", "net.ipv4.tcp_sack", later, ""},
		{"h0-01", "", "route default", later, ""},
		{"leaf1", "", "route 10.0.0.0/16", later, "uplink cut"},
		{"leaf1", "", "route 10.0.0.0/16", 2900 * time.Millisecond, ""},
		{"leaf1", "", "rule 100: table 7", later, ""},
		{"leaf1", "h1-00", "device", later, ""},
		{"spine0", "leaf0", "device", later, "uplink cut"},
		{"spine0", "leaf1", "device", later, ""},
	} {
		if got := explains(f, faults, deploy.Difference{Namespace: tt.namespace, Device: tt.device, What: tt.what}, tt.after); got != tt.want {
			t.Errorf("%s %s %s after %v is explained by %q, want %q", tt.namespace, tt.device, tt.what, tt.after, got, tt.want)
		}
	}
}

// What handled packets before the run is noted, and no change; what comes, goes or is replaced is one.
func TestWhatWasThereBeforeIsNoted(t *testing.T) {
	const accounts, is = "BPF program of a cgroup that sends packets", "1 programs [7]"
	before := map[string]kernel.Snapshot{thisProgram: {accounts: is}, "h0-00": {"net.ipv4.tcp_rmem": "4096"}}
	w := &watched{before: before}
	if diff := cmp.Diff([]string{"there before the run, and not judged: " + thisProgram + ": " + accounts + ", " + is}, w.notes()); diff != "" {
		t.Errorf("notes (-want +got):\n%s", diff)
	}
	for _, tt := range []struct {
		now  map[string]kernel.Snapshot
		want []string
	}{
		{before, nil},
		{map[string]kernel.Snapshot{thisProgram: {accounts: "1 programs [8]"}, "h0-00": before["h0-00"]}, []string{is + " > 1 programs [8]"}},
		{map[string]kernel.Snapshot{thisProgram: {accounts: "2 programs [7 8]"}, "h0-00": before["h0-00"]}, []string{is + " > 2 programs [7 8]"}},
		{map[string]kernel.Snapshot{thisProgram: {}, "h0-00": {"net.ipv4.tcp_rmem": "8192", "ip table filter": "one"}},
			[]string{"none > one", "4096 > 8192", is + " > none"}},
	} {
		var got []string
		for _, k := range w.differences(tt.now) {
			got = append(got, k.Planned+" > "+k.Found)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
	}
}

// ICMP errors are counted for the link on which they came.
func TestErrorsOfForeignTraffic(t *testing.T) {
	text, trace := at50()
	f, err := loadText(t, text, trace...).Shape().Build()
	if err != nil {
		t.Fatal(err)
	}
	seen := flows.Foreign{Counts: flows.Counts{Packets: 2, Bytes: 140}, Errors: 2}
	got := foreignOf(f, flows.Result{Captures: []flows.Capture{{Host: "h0-01", Interfaces: []flows.Interface{{Name: "eth0", InForeign: seen}}}}})
	if len(got) != 1 || got[0].Link != "leaf0>h0-01" || got[0].Errors != 2 {
		t.Errorf("%+v", got)
	}
}
