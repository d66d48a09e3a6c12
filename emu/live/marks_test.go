package live

import (
	"errors"
	"net/netip"
	"testing"
	"time"

	"testbed/emu/engine"
	"testbed/emu/kernel"
	"testbed/emu/kernel/netnstest"
	"testbed/hosts/wire"
	"testbed/topo"
	"testbed/topo/units"
)

// The engine does not wait for room in the queue of a host that sends a mark. All marks reach the wire, with the time at which
// they were made.
func TestMarksWaitForRoom(t *testing.T) {
	const marks = 20
	notes := map[uint32]wire.Note{}
	for id := range uint32(marks) {
		notes[id] = wire.Note{Job: id + 1}
	}
	r := newRigWith(t, 4*units.Mbps, nil, nil, nil, func(c *Config) { c.Notes.Coflows = notes })
	to := netip.AddrPortFrom(r.fabric.HostAddr(4), 9)
	full := false
	for i := 0; i < 10000 && !full; i++ {
		err := r.network.of(0).SendUDP(make([]byte, 1400), to)
		if full = errors.Is(err, kernel.ErrQueueFull); err != nil && !full {
			t.Fatal(err)
		}
	}
	if !full {
		t.Fatal("10,000 datagrams fill no queue")
	}
	start := time.Now()
	for id := range marks {
		r.do(t, engine.Mark{Kind: engine.MarkCoflow, ID: id, Host: 0})
	}
	took := time.Since(start)
	// A frame of 1,442 bytes leaves in 2.9 ms, and makes room for several marks.
	if n := r.network.waitingMarks(); n == 0 && !netnstest.NotJudged(t) {
		t.Errorf("no mark waits after %v", took)
	}
	r.do(t, engine.Mark{Kind: engine.MarkCoflow, ID: marks, Host: 1})
	m, res := r.finish(t)
	t.Logf("%d marks after %v; %q", marks, took, m.Notes)
	for id, note := range notes {
		if res.Groups.Coflows[id] != note {
			t.Errorf("the mark of coflow %d is not on the wire: %+v", id, res.Groups.Coflows[id])
		}
	}
	if got := r.network.discards(); got[topo.LeafName(0)] != marks+1 {
		t.Errorf("%v marks were sent, want %d", got, marks+1)
	}
	if res.MarkWait < 5*time.Millisecond && !netnstest.NotJudged(t) {
		t.Errorf("the longest wait of a mark is %v, want that for a full queue", res.MarkWait)
	}
}
