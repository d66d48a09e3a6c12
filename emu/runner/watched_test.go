package runner

import (
	"testing"
	"time"

	"testbed/emu/deploy"
	"testbed/emu/fault"
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
