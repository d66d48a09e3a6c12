package kernel

import (
	"strings"
	"testing"
	"time"

	"testbed/emu/plan"
	"testbed/topo"
	"testbed/topo/units"
)

// Links that store and forward: every port has its rate, alterations are reported by name and restored by the
// command that the plan prints, and a change of the rate keeps limit and delay.
func TestVerifyNamesAlteredLinksThatStoreAndForward(t *testing.T) {
	t.Parallel()
	requireQdiscs(t, "netem")
	s := topo.LeafSpine{Leaves: 1, HostsPerLeaf: 2, HostLink: 20 * units.Mbps, Queue: topo.Queue{Bytes: 151_400}, MTU: 1500, Delay: time.Millisecond, StoreAndForward: true}
	k := keep(t, s)
	if d := k.verify(); len(d) > 0 {
		t.Fatalf("as built it differs: %q", d)
	}
	f, err := s.Build()
	if err != nil {
		t.Fatal(err)
	}
	link := f.HostDown(1)
	built := plan.ShaperOf(f, link, 20*units.Mbps, nil)
	command := strings.Replace(built.String(), " -n leaf0", "", 1)
	// 100 frames of 1514 bytes in the queue, one more in a millisecond.
	if want := "tc qdisc replace dev h0-01 root handle 1: netem delay 1000us rate 20000000bit limit 101"; command != want {
		t.Errorf("the plan prints %q, want %q", command, want)
	}
	for _, c := range []struct{ from, to, want string }{
		{"rate 20000000bit", "rate 10000000bit", "rate 20Mbps in the plan, 10Mbps in the kernel"},
		{" rate 20000000bit", "", "rate 20Mbps in the plan, none in the kernel"},
		{"limit 101", "limit 50", "delay's limit 101 packets in the plan, 50 packets in the kernel"},
		{"delay 1000us", "delay 6ms", "delay 1ms in the plan, 6ms in the kernel"},
		{"limit 101", "limit 101 loss 0.0001%", "delay's loss none in the plan, loss in the kernel"},
		{"netem delay 1000us rate 20000000bit limit 101", "tbf rate 20000000bit burst 1514b limit 151400b", "qdisc netem at root in the plan, tbf in the kernel"},
	} {
		k.sh("leaf0", "tc qdisc del dev h0-01 root && "+strings.Replace(command, c.from, c.to, 1))
		if got := k.verify(); len(got) != 1 || got[0] != "leaf0>h0-01: "+c.want {
			t.Errorf("with %q in place of %q: %q, want %q", c.to, c.from, got, c.want)
		}
		k.sh("leaf0", "tc qdisc del dev h0-01 root && "+command)
		if left := k.verify(); len(left) > 0 {
			t.Fatalf("after %q it still differs: %q", command, left)
		}
	}
}

func TestPortsThatStoreAndForward(t *testing.T) {
	requireQdiscs(t, "netem")
	s := topo.LeafSpine{Leaves: 1, HostsPerLeaf: 2, HostLink: 20 * units.Mbps, Queue: topo.Queue{Bytes: 151_400}, MTU: 1500, StoreAndForward: true}
	b := build(t, s, plan.Options{Seed: 1})
	for _, l := range b.Links() {
		if p := b.port(l.ID); p.Rate != l.Rate || p.Packets != 100 || !p.Up || p.Qdisc.Kind != "netem" {
			t.Errorf("%s: %+v, want %v and a queue of 100 packets", b.LinkName(l.ID), p, l.Rate)
		}
	}
	namespace, _ := plan.Egress(b.Fabric, 0)
	if err := b.ns(namespace).Reshape(plan.ShaperOf(b.Fabric, 0, 5*units.Mbps, nil)); err != nil {
		t.Fatal(err)
	}
	if p := b.port(0); p.Rate != 5*units.Mbps || p.Packets != 100 {
		t.Errorf("at another rate: %+v", p)
	}
}
