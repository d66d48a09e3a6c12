package shuffle

// NetSat finds out which racks have saturated links to other racks (ShuffleWatcher, section on the
// network saturation monitor): those whose use was above a share of the capacity in several intervals,
// one after the other.
type NetSat struct {
	Share     float64 // of the capacity, above which an interval counts
	Intervals int     // that count before a rack is saturated, at least 1
	Variant   Variant
}

// Variant is what a host sees as a saturated network. The paper defines saturation by link, and uses one
// flag.
type Variant uint8

// The variants.
const (
	OwnRack  Variant = iota // the links of the host's rack, in either direction
	AnyRack                 // the links of any rack, in either direction
	BothWays                // the links of the host's rack, in both directions at once
)

// DefaultNetSat returns the share of the paper, and 3 intervals, which are ours: the paper names
// their number n without a value.
func DefaultNetSat() NetSat { return NetSat{Share: 0.8, Intervals: 3} }

// Observe updates the number of intervals, one after the other, in which each rack was above the share,
// from the bytes that left and entered it in an interval and those that its links can carry in each
// direction. A rack without links to others (limit 0) is never saturated.
func (n NetSat) Observe(over []int64, up, down, limit []float64) {
	for r := range over {
		used := max(up[r], down[r])
		if n.Variant == BothWays {
			used = min(up[r], down[r])
		}
		if limit[r] > 0 && used > float64(n.Share*limit[r]) {
			over[r]++
		} else {
			over[r] = 0
		}
	}
}

// Saturated reports whether the network is saturated for the hosts of a rack.
func (n NetSat) Saturated(over []int64, rack int) bool {
	if n.Variant == AnyRack {
		for _, x := range over {
			if x >= int64(max(n.Intervals, 1)) {
				return true
			}
		}
		return false
	}
	return over[rack] >= int64(max(n.Intervals, 1))
}
