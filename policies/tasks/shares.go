package tasks

import (
	"math"
	"slices"
)

// Claim is what a pool, or a job in its pool, could use of a number of slots.
type Claim struct {
	Demand float64 // running tasks and those that could run now; may be infinite
	Min    float64 // minimum share, in slots
	Weight float64 // of the slots above the minimum shares; must be positive
}

// Shares returns the fair shares of a number of slots by water filling (FAIR report, section on
// slot allocation): first every claim gets its minimum share or its demand, whichever is less;
// then the lowest shares relative to their weights rise together, each up to its demand. Shares
// are fractions; the order of launches makes them whole. If the minimum shares that are demanded
// exceed the slots, all minimum shares are scaled down in proportion.
//
// The three phases are equal to the closed form share = min(demand, max(min, weight·R)), where R
// is such that the shares add up to the slots or to all demand. R is computed exactly, because
// the sum is linear between the points at which a share starts or stops to rise.
func Shares(slots float64, claims []Claim) []float64 {
	out := make([]float64, len(claims))
	pour(slots, claims, out, make([]float64, 2*len(claims)))
	return out
}

// pour is Shares into out. points has room for two numbers per claim.
func pour(slots float64, claims []Claim, out, points []float64) {
	scale := minimumScale(slots, claims)
	demand, least := 0.0, 0.0
	for i, c := range claims {
		out[i] = min(float64(c.Min*scale), c.Demand)
		demand += c.Demand
		least += out[i]
	}
	if demand <= slots {
		for i, c := range claims {
			out[i] = c.Demand
		}
		return
	}
	if least >= slots {
		return
	}
	// From here on, out has the minimum shares.
	points = points[:0]
	for i, c := range claims {
		points = append(points, out[i]/c.Weight)
		if !math.IsInf(c.Demand, 1) {
			points = append(points, c.Demand/c.Weight)
		}
	}
	slices.Sort(points)
	at, _ := slices.BinarySearchFunc(points, slots, func(r, slots float64) int {
		sum := 0.0
		for i, c := range claims {
			sum += share(c, out[i], r)
		}
		if sum < slots {
			return -1
		}
		return 1
	})
	low, high := 0.0, math.Inf(1)
	if at > 0 {
		low = points[at-1]
	}
	if at < len(points) {
		high = points[at]
	}
	fixed, weights := 0.0, 0.0
	for i, c := range claims {
		if out[i]/c.Weight <= low && c.Demand/c.Weight >= high {
			weights += c.Weight
		} else {
			fixed += share(c, out[i], low)
		}
	}
	level := low
	if weights > 0 {
		level = max(low, min((slots-fixed)/weights, high))
	}
	for i, c := range claims {
		out[i] = share(c, out[i], level)
	}
}

// share returns the share of a claim with an effective minimum share at a level of the water.
func share(c Claim, least, level float64) float64 {
	return min(c.Demand, max(least, float64(c.Weight*level)))
}

// minimumScale returns the factor of all minimum shares: 1, unless those that are demanded exceed
// the slots.
func minimumScale(slots float64, claims []Claim) float64 {
	used, all := 0.0, 0.0
	for _, c := range claims {
		used += min(c.Min, c.Demand)
		all += c.Min
	}
	if used <= slots {
		return 1
	}
	return slots / all
}
