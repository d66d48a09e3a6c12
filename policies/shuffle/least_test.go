package shuffle

import (
	"math"

	"testbed/topo/units"
)

// leastCrossing returns the least bytes across racks of any assignment of blocks to racks, if reduces follow the data as
// SARP places them. SAMP costs more: it spreads the blocks of a set over its racks, and shuffles between racks
// are least if few racks have them. It returns all errors of the input; the racks are limited as for BestSubset.
//
// The cost falls by the squares of the loads, and so is least at an end of what is possible: some racks have all
// blocks that they store, one rack takes the blocks of all others, and blocks with a choice are on the first such
// rack of an order that begins with that one. So the best set of racks is the best smaller one and its last rack.
func leastCrossing(in Input) (float64, error) {
	if err := in.check(BestSubset); err != nil {
		return 0, err
	}
	var all units.Bytes
	for _, b := range in.Blocks {
		all += b.Size
	}
	if all == 0 {
		return 0, nil
	}
	stored, total, ratio := newSearch(in).stored(), float64(all), in.SIR
	if in.Reduces == 0 {
		ratio = 0
	}
	least := math.Inf(1)
	squares := make([]float64, len(stored)) // of the loads of a set's racks except the first one, at most
	for first := range in.Racks {
		for set := range stored {
			if set>>first&1 == 0 {
				continue
			}
			squares[set] = 0
			for rest := set &^ (1 << first); rest != 0; rest &= rest - 1 {
				without := set &^ (rest & -rest)
				load := float64(stored[set] - stored[without])
				squares[set] = max(squares[set], squares[without]+float64(load*load))
			}
			remote := total - float64(stored[set])
			load := float64(stored[1<<first]) + remote
			crossing := total - (squares[set]+float64(load*load))/total
			least = min(least, remote+float64(ratio*crossing))
		}
	}
	return least, nil
}

// stored returns, by set of racks, the size of the blocks with a replica there.
func (s *search) stored() []units.Bytes {
	without := make([]units.Bytes, 1<<s.in.Racks) // of the blocks that have no replica outside of a set
	for _, b := range s.blocks {
		mask := 0
		for _, r := range b.racks {
			mask |= 1 << r
		}
		without[mask] += b.size
	}
	for r := range s.in.Racks {
		for set := range without {
			if set>>r&1 == 1 {
				without[set] += without[set&^(1<<r)]
			}
		}
	}
	all := len(without) - 1
	out := make([]units.Bytes, len(without))
	for set := range out {
		out[set] = without[all] - without[all&^set]
	}
	return out
}
