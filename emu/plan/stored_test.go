package plan

import (
	"testing"
	"time"

	"testbed/topo"
	"testbed/topo/units"
)

// Links that store and forward have one netem each, whose limit is the queue and what the delay holds,
// in full frames, also at another rate. The plan needs netem, and names the key that needs it.
func TestLinksThatStoreAndForward(t *testing.T) {
	for _, c := range []struct {
		queue units.Bytes
		delay time.Duration
		want  string
	}{
		{151_400, 0, "tc -n h0-00 qdisc replace dev eth0 root handle 1: netem rate 20000000bit limit 100"},
		{151_400, time.Millisecond, "tc -n h0-00 qdisc replace dev eth0 root handle 1: netem delay 1000us rate 20000000bit limit 101"},
		{1, 0, "tc -n h0-00 qdisc replace dev eth0 root handle 1: netem rate 20000000bit limit 1"},
	} {
		s := topo.LeafSpine{Leaves: 1, HostsPerLeaf: 2, HostLink: 20 * units.Mbps, Queue: topo.Queue{Bytes: c.queue}, MTU: 1500, Delay: c.delay, StoreAndForward: true}
		f, err := s.Build()
		if err != nil {
			t.Fatal(err)
		}
		p := Compile("stored", f, Options{})
		shapers := 0
		for _, op := range p.Ops() {
			switch op := op.(type) {
			case Delay, RED:
				t.Errorf("besides its shaper a link has %v", op)
			case Shaper:
				if shapers++; op.Namespace == "h0-00" && op.String() != c.want {
					t.Errorf("%q, want %q", op, c.want)
				}
				if op.Burst != 1514 || op.Packets == 0 {
					t.Errorf("%+v: want a bucket of one frame and a limit", op)
				}
			}
		}
		if shapers != len(f.Links()) {
			t.Errorf("%d shapers of %d links", shapers, len(f.Links()))
		}
		if needs := p.Needs(); len(needs) != 1 || needs[0].Feature.Name != "netem" || needs[0].Key != "link_model" {
			t.Errorf("needs %+v, want netem for link_model", needs)
		}
		if other := ShaperOf(f, 0, units.Mbps, nil); other.Rate != units.Mbps || other.Packets == 0 || other.Delay != c.delay {
			t.Errorf("at another rate: %+v", other)
		}
	}
	s := topo.LeafSpine{Leaves: 1, HostsPerLeaf: 2, HostLink: 20 * units.Mbps, Queue: topo.Queue{Bytes: 151_400}, MTU: 1500, StoreAndForward: true,
		RED: &topo.RED{Min: 10_000, Max: 30_000, Probability: 0.1}}
	if _, err := s.Build(); err == nil {
		t.Error("a link that stores and forwards has RED")
	}
}
