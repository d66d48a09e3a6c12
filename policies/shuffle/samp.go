// Package shuffle holds the parts of ShuffleWatcher, the shuffle-aware scheduling of jobs in shared
// clusters (Ahmad and others, USENIX ATC 2014), as pure functions: NetSat finds out which links are saturated,
// NASS chooses a task of a user, SAMP the racks of a job's maps, and SARP those of its reduces.
//
// It launches nothing: tasks.Scheduler does, with these parts.
package shuffle

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"testbed/topo/units"
)

// Rule is the way in which SAMP searches for sets of racks.
type Rule uint8

// The rules of SAMP.
const (
	// FirstIncrease adds racks in order until the cost does not fall, and leaves that last rack out.
	// The pseudo-code of the paper keeps it, although it raises the cost.
	FirstIncrease Rule = iota
	// BestPrefix takes the best of all prefixes of the order. It is ours: FirstIncrease can stop at
	// a local minimum.
	BestPrefix
	// BestSubset takes the best of all sets of racks, by branch and bound. It is ours, a reference.
	BestSubset
)

// MaxSubsetRacks is the largest number of racks that BestSubset accepts: it visits up to 2^racks sets.
const MaxSubsetRacks = 16

// Block is a block of a job's input.
type Block struct {
	Size  units.Bytes
	Racks []int // racks with a replica; a rack may occur twice
}

// Input is what SAMP knows of a job at its submission.
type Input struct {
	Racks   int // number of racks of the cluster
	Blocks  []Block
	SIR     float64 // shuffle input ratio: intermediate bytes for each byte of input
	Reduces int     // number of reduces; 0 for a job of maps alone
	// Preferring is the number of jobs that prefer each rack. Nil is no job.
	Preferring []int
}

// Choice is the answer of SAMP.
type Choice struct {
	Racks        []int     // preferred racks of the maps, ascending
	Maps         []int     // blocks that are assigned to each rack
	Remote       int       // of all blocks, those without a replica on the preferred racks
	Intermediate []float64 // expected intermediate bytes by rack
	Reduces      []int     // tentative reduces by rack
	Cost         float64   // bytes across racks: input read remotely, and shuffle
}

// check returns all errors of the input.
func (in Input) check(rule Rule) error {
	var errs []error
	if in.Racks < 1 {
		errs = append(errs, fmt.Errorf("racks %d: must be positive", in.Racks))
	}
	if rule > BestSubset {
		errs = append(errs, fmt.Errorf("rule %d: unknown", rule))
	}
	if rule == BestSubset && in.Racks > MaxSubsetRacks {
		errs = append(errs, fmt.Errorf("racks %d: the best subset is searched among %d racks at most (use the best prefix)", in.Racks, MaxSubsetRacks))
	}
	if !(in.SIR >= 0) || math.IsInf(in.SIR, 1) {
		errs = append(errs, fmt.Errorf("shuffle input ratio %v: must be finite and not negative", in.SIR))
	}
	if in.Reduces < 0 {
		errs = append(errs, fmt.Errorf("reduces %d: must not be negative", in.Reduces))
	}
	if in.Preferring != nil && len(in.Preferring) != in.Racks {
		errs = append(errs, fmt.Errorf("jobs that prefer racks: %d counts for %d racks", len(in.Preferring), in.Racks))
	}
	for i, b := range in.Blocks {
		if b.Size < 0 {
			errs = append(errs, fmt.Errorf("block %d: size %d: must not be negative", i, b.Size))
		}
		for _, r := range b.Racks {
			if r < 0 || r >= in.Racks {
				errs = append(errs, fmt.Errorf("block %d: rack %d: must be in [0, %d)", i, r, in.Racks))
			}
		}
	}
	return errors.Join(errs...)
}

// replicas is a block with its racks sorted, each once.
type replicas struct {
	size  units.Bytes
	racks []int
}

// search is the state of one call of SAMP.
type search struct {
	in     Input
	blocks []replicas // in an order that does not depend on that of the input
	order  []int      // racks by bytes of input, jobs that prefer them, id
}

// SAMP chooses the racks of a job's maps (ShuffleWatcher, Shuffle-Aware Map Placement): many racks
// save remote reads, few racks save shuffle. It returns all errors of the input.
func SAMP(in Input, rule Rule) (Choice, error) {
	if err := in.check(rule); err != nil {
		return Choice{}, err
	}
	s := newSearch(in)
	var set []int
	best := Choice{Cost: math.Inf(1)}
	for _, r := range s.order {
		set = append(set, r)
		if c := s.place(set); c.Cost < best.Cost {
			best = c
		} else if rule == FirstIncrease {
			break
		}
	}
	if rule == BestSubset {
		best = s.subsets(best)
	}
	best.Reduces = Shares(best.Intermediate, in.Reduces)
	return best, nil
}

func newSearch(in Input) *search {
	s := &search{in: in, blocks: make([]replicas, len(in.Blocks)), order: make([]int, in.Racks)}
	input := make([]units.Bytes, in.Racks)
	for i, b := range in.Blocks {
		racks := slices.Clone(b.Racks)
		slices.Sort(racks)
		s.blocks[i] = replicas{b.Size, slices.Compact(racks)}
		for _, r := range s.blocks[i].racks {
			input[r] += b.Size
		}
	}
	slices.SortFunc(s.blocks, func(a, b replicas) int {
		return cmp.Or(cmp.Compare(b.size, a.size), slices.Compare(a.racks, b.racks))
	})
	for r := range s.order {
		s.order[r] = r
	}
	slices.SortFunc(s.order, func(a, b int) int {
		preferring := 0
		if in.Preferring != nil {
			preferring = cmp.Compare(in.Preferring[a], in.Preferring[b])
		}
		return cmp.Or(cmp.Compare(input[b], input[a]), preferring, cmp.Compare(a, b))
	})
	return s
}

// place assigns each block to the least loaded rack of the set with a replica: blocks with the fewest
// choices first, those without a choice last, to the least loaded rack.
func (s *search) place(set []int) Choice {
	racks := slices.Clone(set)
	slices.Sort(racks)
	in := make([]bool, s.in.Racks)
	for _, r := range racks {
		in[r] = true
	}
	byChoices := make([][]replicas, len(racks)+1)
	for _, b := range s.blocks {
		n := 0
		for _, r := range b.racks {
			if in[r] {
				n++
			}
		}
		byChoices[n] = append(byChoices[n], b)
	}
	load, maps := make([]units.Bytes, s.in.Racks), make([]int, s.in.Racks)
	assign := func(b replicas, among []int) {
		best := -1
		for _, r := range among {
			if in[r] && (best < 0 || load[r] < load[best]) {
				best = r
			}
		}
		load[best] += b.size
		maps[best]++
	}
	for _, blocks := range byChoices[1:] {
		for _, b := range blocks {
			assign(b, b.racks)
		}
	}
	var remote units.Bytes
	for _, b := range byChoices[0] {
		remote += b.size
		assign(b, racks)
	}
	c := Choice{Racks: racks, Maps: maps, Remote: len(byChoices[0]), Intermediate: make([]float64, s.in.Racks)}
	for r, l := range load {
		c.Intermediate[r] = s.in.SIR * float64(l)
	}
	c.Cost = float64(remote)
	if s.in.Reduces > 0 {
		c.Cost += crossing(c.Intermediate)
	}
	return c
}

// crossing returns the shuffle bytes across racks if the reduces are spread as the data.
func crossing(intermediate []float64) float64 {
	var total, cross float64
	for _, b := range intermediate {
		total += b
	}
	if total == 0 {
		return 0
	}
	for _, b := range intermediate {
		cross += float64(b * ((total - b) / total))
	}
	return cross
}

// subsets returns the best set of racks, and best if no set costs less. A branch ends where the
// remote reads of all racks that it can still hold cost at least as much as the best set.
func (s *search) subsets(best Choice) Choice {
	masks := make([]uint32, len(s.blocks))
	for i, b := range s.blocks {
		for _, r := range b.racks {
			masks[i] |= 1 << r
		}
	}
	var visit func(next int, in, possible uint32)
	visit = func(next int, in, possible uint32) {
		var remote units.Bytes
		for i, m := range masks {
			if m&possible == 0 {
				remote += s.blocks[i].size
			}
		}
		if float64(remote) >= best.Cost {
			return
		}
		if next == len(s.order) {
			if in == 0 {
				return
			}
			set := make([]int, 0, bits.OnesCount32(in))
			for m := in; m != 0; m &= m - 1 {
				set = append(set, bits.TrailingZeros32(m))
			}
			if c := s.place(set); c.Cost < best.Cost {
				best = c
			}
			return
		}
		rack := uint32(1) << s.order[next]
		visit(next+1, in|rack, possible)
		visit(next+1, in, possible&^rack)
	}
	visit(0, 0, uint32(1)<<s.in.Racks-1)
	return best
}
