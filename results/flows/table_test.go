package flows

import (
	"math/rand/v2"
	"testing"
)

// The table is a map with fewer operations.
func TestTableIsAMap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	got, counted := newTable(), newTally()
	want, counts := map[endpoints]int{}, map[endpoints]int{}
	for i := range 20_000 {
		// Close together, as addresses and ports are.
		e := endpoints{0x0a000001 + addr(rng.IntN(20))<<8, 0x0a010001 + addr(rng.IntN(20))<<8, uint16(30_000 + rng.IntN(40)), uint16(7000 + rng.IntN(2))}
		if n, ok := want[e]; ok != (got.get(e) >= 0) || ok && got.get(e) != n {
			t.Fatalf("get(%v) = %d, want %d (%v)", e, got.get(e), n, ok)
		}
		if rng.IntN(2) == 0 {
			got.put(e, i)
			want[e] = i
		}
		counted.add(e)
		counts[e]++
	}
	if got.used != len(want) || 3*got.used > 2*len(got.slots) {
		t.Errorf("%d of %d slots are used, want %d and at most two thirds", got.used, len(got.slots), len(want))
	}
	for e, n := range want {
		if got.get(e) != n {
			t.Errorf("get(%v) = %d, want %d", e, got.get(e), n)
		}
	}
	for e, n := range counts {
		if counted.of(e) != n {
			t.Errorf("of(%v) = %d, want %d", e, counted.of(e), n)
		}
	}
	if n := (*tally)(nil).of(endpoints{}); n != 0 {
		t.Errorf("of nothing = %d", n)
	}
}

// Few slots are searched, however endpoints are chosen.
func TestTableSearchesFewSlots(t *testing.T) {
	for name, next := range map[string]func(i int) endpoints{
		"hosts":   func(i int) endpoints { return endpoints{addr(i) << 8, 1, 2, 3} },
		"servers": func(i int) endpoints { return endpoints{1, addr(i) << 8, 2, 3} },
		"ports":   func(i int) endpoints { return endpoints{1, 2, uint16(i), 3} },
		"both":    func(i int) endpoints { return endpoints{addr(i), addr(i), uint16(i), 3} },
	} {
		table := newTable()
		const n = 40_000
		for i := range n {
			table.put(next(i), i)
		}
		steps, mask := 0, uint64(len(table.slots)-1)
		for i := range n {
			for at := table.home(next(i)); table.slots[at&mask].endpoints != next(i); at++ {
				steps++
			}
		}
		if steps > 3*n {
			t.Errorf("%s: %d steps beside the first for each of %d, want at most 3", name, steps/n, n)
		}
	}
}
