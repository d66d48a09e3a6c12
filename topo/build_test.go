package topo

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/topo/units"
)

func millis(n int) *time.Duration {
	d := time.Duration(n) * time.Millisecond
	return &d
}

// unlike has hosts, uplinks, queues and delays of several kinds.
func unlike() LeafSpine {
	s := quickstart()
	s.Oversubscription, s.CrossRack = units.Ratio{}, 40*units.Mbps
	s.Delay = time.Millisecond
	s.HostLinks = []HostLink{{"h*-03", 100 * units.Mbps}, {"h1-*", 20 * units.Mbps}}
	s.Links = []LinkChange{
		{Link: "leaf0<>spine1", Rate: 10 * units.Mbps, Queue: Queue{Time: 50 * time.Millisecond}, Delay: millis(2)},
		{Link: "spine1>leaf*", Delay: millis(0)},
	}
	return s
}

func TestBuildUnlikeLinks(t *testing.T) {
	f, err := unlike().Build()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		link  string
		rate  units.Rate
		queue units.Bytes
		delay time.Duration
	}{
		{"h0-00>leaf0", 50 * units.Mbps, 125 * units.KB, time.Millisecond},
		{"h0-03>leaf0", 100 * units.Mbps, 250 * units.KB, time.Millisecond},
		{"leaf2>h2-03", 100 * units.Mbps, 250 * units.KB, time.Millisecond},
		{"h1-03>leaf1", 20 * units.Mbps, 50 * units.KB, time.Millisecond}, // the later entry takes precedence
		{"leaf0>spine0", 20 * units.Mbps, 50 * units.KB, time.Millisecond},
		{"leaf0>spine1", 10 * units.Mbps, 62500, 2 * time.Millisecond},
		{"spine1>leaf0", 10 * units.Mbps, 62500, 0},
		{"spine1>leaf3", 20 * units.Mbps, 50 * units.KB, 0},
	} {
		ids, err := f.FindLinks(tt.link)
		if err != nil || len(ids) != 1 {
			t.Fatalf("FindLinks(%q) = %v, %v", tt.link, ids, err)
		}
		if l := f.Link(ids[0]); l.Rate != tt.rate || l.Queue != tt.queue || l.Delay != tt.delay {
			t.Errorf("%s: rate %v queue %v delay %v, want %v %v %v", tt.link, l.Rate, l.Queue, l.Delay, tt.rate, tt.queue, tt.delay)
		}
	}
	// Four hosts of 50 and one of 100 over 40, over 20 and 10, and five of 20 over 40.
	for r, want := range []float64{300.0 / 30, 100.0 / 40, 300.0 / 40, 300.0 / 40} {
		if got := f.Oversubscription(RackID(r)); got != want {
			t.Errorf("Oversubscription(%d) = %v, want %v", r, got, want)
		}
	}
	if got, want := f.PathDelay(0, 19, 1), (1+2+0+1)*time.Millisecond; got != want {
		t.Errorf("PathDelay over spine1 = %v, want %v", got, want)
	}
}

// Oversubscription counts the actual rates of a rack's hosts.
func TestOversubscriptionOfUnlikeHosts(t *testing.T) {
	s := quickstart()
	s.HostLinks = []HostLink{{"h2-0[01]", 100 * units.Mbps}}
	f, err := s.Build()
	if err != nil {
		t.Fatal(err)
	}
	for r, want := range []units.Rate{25 * units.Mbps, 25 * units.Mbps, 35 * units.Mbps, 25 * units.Mbps} {
		if got := f.Link(f.LeafDown(RackID(r), 1)).Rate; got != want || f.Oversubscription(RackID(r)) != 5 {
			t.Errorf("rack %d: uplinks of %v and a ratio of %v, want %v and 5", r, got, f.Oversubscription(RackID(r)), want)
		}
	}
}

// A shape that is encoded and decoded builds the same fabric. Unused fields are not
// encoded.
func TestShapeRebuildsFromJSON(t *testing.T) {
	red := unlike()
	red.RED = &RED{Min: 10 * units.KB, Max: 30 * units.KB, Probability: 0.1, ECN: true}
	plain := quickstart()
	for _, s := range []LeafSpine{unlike(), red, plain} {
		f, err := s.Build()
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(f.Shape())
		if err != nil {
			t.Fatal(err)
		}
		var back LeafSpine
		if err := json.Unmarshal(data, &back); err != nil {
			t.Fatal(err)
		}
		again, err := back.Build()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(f.Links(), again.Links()); diff != "" {
			t.Errorf("links after %s (-before +after):\n%s", data, diff)
		}
	}
	data, err := json.Marshal(plain)
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"Leaves":4,"Spines":2,"HostsPerLeaf":5,"HostLink":"50Mbps","Oversubscription":"5:1","Queue":"20ms","MTU":"1.5KB"}`; string(data) != want {
		t.Errorf("plain shape: %s, want %s", data, want)
	}
}

func TestShapeIsNotShared(t *testing.T) {
	s := unlike()
	f, err := s.Build()
	if err != nil {
		t.Fatal(err)
	}
	s.HostLinks[0].Rate, s.Links[0].Link, *s.Links[0].Delay = 1, "x", 5
	if _, err := f.Shape().Build(); err != nil {
		t.Errorf("the caller changed the fabric's shape: %v", err)
	}
}

func TestBuildRefuses(t *testing.T) {
	tests := []struct {
		name   string
		change func(*LeafSpine)
		want   string
	}{
		{"two rates of uplinks", func(s *LeafSpine) { s.Uplink, s.CrossRack = units.Mbps, units.Mbps }, "uplink, cross_rack: mutually exclusive"},
		{"none", func(s *LeafSpine) { s.CrossRack = 0 }, "oversubscription: missing"},
		{"negative uplink", func(s *LeafSpine) { s.Uplink, s.CrossRack = -1, 0 }, "uplink: -1bps"},
		{"cross-rack rate of nothing", func(s *LeafSpine) { s.CrossRack = 1 }, "no capacity"},
		{"host that is not there", func(s *LeafSpine) { s.HostLinks[1].Hosts = "h9-*" }, `host_links[1]: hosts "h9-*": the fabric has no such host`},
		{"bad pattern", func(s *LeafSpine) { s.HostLinks[1].Hosts = "h[" }, "host_links[1]: hosts \"h[\": syntax error"},
		{"host rate", func(s *LeafSpine) { s.HostLinks[0].Rate = 0 }, "host_links[0]: rate 0"},
		{"link that is not there", func(s *LeafSpine) { s.Links[1].Link = "leaf0>leaf1" }, "links[1]: link"},
		{"link rate", func(s *LeafSpine) { s.Links[0].Rate = -5 }, "links[0]: rate -5bps"},
		{"link delay", func(s *LeafSpine) { s.Links[0].Delay = millis(-1) }, "links[0]: delay -1ms"},
		{"delay", func(s *LeafSpine) { s.Delay = time.Minute }, "delay: 1m0s: must be 0s to 10s"},
		{"RED order", func(s *LeafSpine) { s.RED = &RED{2, 1, 0.5, false} }, "red: min 2B and max 1B"},
		{"RED probability", func(s *LeafSpine) { s.RED = &RED{1, 2, 0, false} }, "red: probability 0"},
		{"RED above the queue", func(s *LeafSpine) { s.RED = &RED{1, units.MB, 0.1, true} }, "red: max 1MB is more than the queue of leaf0>h0-00, 125KB"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := unlike()
			tt.change(&s)
			if _, err := s.Build(); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Build() = %v, want an error with %q", err, tt.want)
			}
		})
	}
}

// A switch of 250 ports has names of 15 bytes at most and a different address at
// every port.
func TestSwitchNames(t *testing.T) {
	f, err := LeafSpine{Leaves: 1, HostsPerLeaf: 250, HostLink: units.Gbps, Queue: Queue{Time: time.Millisecond}, MTU: 9000}.Build()
	if err != nil {
		t.Fatal(err)
	}
	if got := f.HostName(249); got != "h0-249" || f.HostAddr(249).String() != "10.0.249.1" {
		t.Errorf("last host is %s at %v", got, f.HostAddr(249))
	}
	if h, err := f.FindHost("h0-249"); err != nil || h != 249 || f.Oversubscription(0) != 0 {
		t.Errorf("FindHost = %d, %v; oversubscription %v", h, err, f.Oversubscription(0))
	}
}
