package flows

import (
	"hash/maphash"
	"math/bits"
)

// table maps the endpoints of connections to numbers. It is a hash table with open
// addressing and linear probing, without pointers for the garbage collector to follow;
// four slots share a cache line. Hashes depend on a random seed of the process, so that no
// crafted capture is slow to read. Results do not depend on the seed.
type table struct {
	slots []tableSlot // their number is a power of two
	used  int         // slots in use, at most two thirds
	seed  [4]uint64
}

type tableSlot struct {
	endpoints
	number uint32 // plus one; 0 if the slot is free
}

// tableSlots is the initial number of slots.
const tableSlots = 64

func newTable() table {
	s := maphash.MakeSeed()
	t := table{slots: make([]tableSlot, tableSlots)}
	for i := range t.seed {
		t.seed[i] = maphash.Comparable(s, i)
	}
	return t
}

// home returns the hash of endpoints. Modulo the number of slots, it is the slot where
// their search begins. It takes two products, because one collides if only one of its
// factors changes, as it does for the connections of one client and server.
func (t *table) home(e endpoints) uint64 {
	hi, lo := bits.Mul64(uint64(e.client)<<32^uint64(e.server)^t.seed[0], uint64(e.clientPort)<<16^uint64(e.serverPort)^t.seed[1])
	hi, lo = bits.Mul64(hi^lo^t.seed[2], t.seed[3])
	return hi ^ lo
}

// get returns the number of endpoints, or -1 if they have none.
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

// put sets the number of endpoints, at most 2^32-2.
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

// slot returns the slot of endpoints, or the free slot in which to store them.
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
	at     table // indexes of counts
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

// of returns the count of endpoints. t may be nil.
func (t *tally) of(e endpoints) int {
	if t == nil {
		return 0
	}
	if i := t.at.get(e); i >= 0 {
		return t.counts[i]
	}
	return 0
}
