package flows

import (
	"hash/maphash"
	"math/bits"
)

// table finds a number by a connection's endpoints: open addressing with linear
// probing, in slots of which four share a cache line, and nothing for the garbage
// collector to follow. Where a slot is depends on a seed of the process, so that no
// capture can be made that is slow to read; what is found does not.
type table struct {
	slots []tableSlot // a power of two of them, of which at most two thirds are used
	used  int
	seed  [4]uint64
}

type tableSlot struct {
	endpoints
	number uint32 // plus one; 0 where the slot is free
}

// tableSlots is the size of a table that is new.
const tableSlots = 64

func newTable() table {
	s := maphash.MakeSeed()
	t := table{slots: make([]tableSlot, tableSlots)}
	for i := range t.seed {
		t.seed[i] = maphash.Comparable(s, i)
	}
	return t
}

// home is the slot where the search for endpoints begins, modulo the number of slots.
// One product would not do: where only one of its factors changes, as with one client
// and server, it goes up in even steps, some of which fall together.
func (t *table) home(e endpoints) uint64 {
	hi, lo := bits.Mul64(uint64(e.client)<<32^uint64(e.server)^t.seed[0], uint64(e.clientPort)<<16^uint64(e.serverPort)^t.seed[1])
	hi, lo = bits.Mul64(hi^lo^t.seed[2], t.seed[3])
	return hi ^ lo
}

// get is the number that was put last, or -1.
func (t *table) get(e endpoints) int {
	slots := t.slots
	mask := uint64(len(slots) - 1)
	for i := t.home(e); ; i++ {
		s := &slots[i&mask]
		if s.endpoints == e {
			return int(s.number) - 1
		}
		if s.number == 0 {
			return -1
		}
	}
}

// put gives endpoints a number, at most 2^32-2.
func (t *table) put(e endpoints, number int) {
	if 3*(t.used+1) > 2*len(t.slots) {
		old := t.slots
		t.slots = make([]tableSlot, 2*len(old))
		for _, s := range old {
			if s.number != 0 {
				*t.slot(s.endpoints) = s
			}
		}
	}
	s := t.slot(e)
	if s.number == 0 {
		t.used++
	}
	*s = tableSlot{e, uint32(number) + 1}
}

// slot is that of endpoints, or the free one where they belong.
func (t *table) slot(e endpoints) *tableSlot {
	mask := uint64(len(t.slots) - 1)
	for i := t.home(e); ; i++ {
		if s := &t.slots[i&mask]; s.number == 0 || s.endpoints == e {
			return s
		}
	}
}

// tally counts by endpoints.
type tally struct {
	at     table // in counts
	counts []int
}

func newTally() *tally { return &tally{at: newTable()} }

func (t *tally) add(e endpoints) {
	i := t.at.get(e)
	if i < 0 {
		i = len(t.counts)
		t.at.put(e, i)
		t.counts = append(t.counts, 0)
	}
	t.counts[i]++
}

// of is what was counted; t may be nil.
func (t *tally) of(e endpoints) int {
	if t == nil {
		return 0
	}
	if i := t.at.get(e); i >= 0 {
		return t.counts[i]
	}
	return 0
}
