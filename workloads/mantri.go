package workloads

import (
	"fmt"
	"math"
	"math/big"
	"math/bits"
	"math/rand/v2"
	"slices"

	"testbed/topo/units"
)

// MapSkew specifies the skew among the mappers of a coflow: two quantiles, over the coflows
// of two mappers or more, of the coefficient of variation (standard deviation divided by
// mean) of the bytes that each mapper sends.
//
// Up to P90 the coefficients are log-normal through both quantiles. Above it they are equal
// to P90: no values are published, and with unbounded values one mapper would send nearly
// all bytes of a large coflow.
type MapSkew struct{ P50, P90 float64 }

// MantriSkew is the skew in the clusters of Mantri (OSDI 2010), as used in Philae's
// evaluation (USENIX ATC 2019).
var MantriSkew = MapSkew{P50: 0.34, P90: 3.1}

// MantriLike returns t with a skew among mappers, which a trace of reducers' totals does not
// record. The exact bytes of every reducer, ids, arrivals and ports do not change. The
// mappers of a coflow, which sent equal amounts, get weights, the same for all reducers,
// from a heavy-tailed distribution that is adjusted to the coefficient of variation of the
// coflow. The seed determines the coefficient of each coflow, among coflows with enough
// mappers: with m mappers it is below √(m-1). Every flow has at least one byte.
//
// The result is in bytes. If the trace does not define its MB (Trace.InBytes), mb does:
// units.MB or units.MiB. It is an error if the flows to one reducer differ in size: such a
// trace has its own skew.
func MantriLike(t *Trace, skew MapSkew, mb units.Bytes, seed uint64) (*Trace, error) {
	bad := func(format string, args ...any) (*Trace, error) {
		return nil, fmt.Errorf("trace %s: %s", t.Name, fmt.Sprintf(format, args...))
	}
	if !(0 < skew.P50 && skew.P50 <= skew.P90 && skew.P90 <= maxMapSkew) {
		return bad("skew of mappers %v at P50 and %v at P90: expected two coefficients of variation above 0 and up to %v, in ascending order", skew.P50, skew.P90, float64(maxMapSkew))
	}
	if mb != units.MB && mb != units.MiB {
		return bad("a MB of %d bytes: must be 10⁶ or 2²⁰", mb)
	}
	var mappers []int // of the coflows that have two or more
	for _, c := range t.Coflows {
		if !c.even() {
			return bad("coflow %d: its flows to one reducer differ in size: expected a trace of reducers' totals", c.ID)
		}
		if len(c.Mappers) > 1 {
			mappers = append(mappers, len(c.Mappers))
		}
	}
	coefficients := skew.assign(Stream(seed, "mantri-assign"), mappers)
	out := t.with(make([]TraceCoflow, len(t.Coflows)))
	out.InBytes = true
	for i, c := range t.Coflows {
		weights := []uint64{1}
		if len(c.Mappers) > 1 {
			weights = skewed(Stream(seed, "mantri-mappers", int(c.ID)), len(c.Mappers), coefficients[0])
			coefficients = coefficients[1:]
		}
		c.Reducers = slices.Clone(c.Reducers)
		for j := range c.Reducers {
			r := &c.Reducers[j]
			size, ok := ceilBytes(new(big.Int).Mul(big.NewInt(int64(r.Size)), big.NewInt(int64(t.MB(mb)))), big.NewInt(int64(megabyte)))
			if !ok || Megabytes(size) > maxReducerSize {
				return bad("coflow %d: %v MB at port %d: must be at most %v of 10⁶ bytes", c.ID, r.Size, r.Port, maxReducerSize)
			}
			if int64(size) < int64(len(weights)) {
				return bad("coflow %d: %d bytes at port %d from %d mappers: must be at least one byte each", c.ID, size, r.Port, len(weights))
			}
			r.Size = Megabytes(size) // a byte is a millionth of 10⁶ bytes
			r.Flows = split(int64(size), weights)
		}
		out.Coflows[i] = c
	}
	return out, out.check()
}

// maxMapSkew is above the coefficient of any trace.
const maxMapSkew = 1000

// curve returns the distribution of coefficients of variation. The difference of logarithms
// from P50 to P90 is 1.2816 standard deviations, so halves and multiples of it correspond
// to the probabilities below.
func (s MapSkew) curve() curve {
	half := math.Sqrt(s.P90 / s.P50)
	return curve{
		{0.00519, s.P50 / half / half / half / half}, {0.02728, s.P50 / half / half / half}, {0.1, s.P50 / half / half},
		{0.26083, s.P50 / half}, {0.5, s.P50}, {0.73917, s.P50 * half}, {0.9, s.P90},
	}
}

// assign assigns a coefficient to each coflow, given the numbers of mappers. It assigns the
// largest coefficients first, each to a random coflow with enough mappers or, if there is
// none, to the coflow with the most mappers, which then has its maximum skew.
func (s MapSkew) assign(rng *rand.Rand, mappers []int) []float64 {
	byMappers := make([]int, len(mappers))
	for i := range byMappers {
		byMappers[i] = i
	}
	slices.SortStableFunc(byMappers, func(a, b int) int { return mappers[b] - mappers[a] })
	assigned := make([]float64, len(mappers))
	q := s.curve()
	var pool []int
	for i := len(mappers) - 1; i >= 0; i-- {
		p := 0.5
		if len(mappers) > 1 {
			// The interpolated P50 and P90 of the result are those of the curve.
			p = float64(i) / float64(len(mappers)-1)
		}
		v := q.at(p)
		for len(byMappers) > 0 && (len(pool) == 0 || float64(v*v) < mostSkew*float64(mappers[byMappers[0]]-1)) {
			pool = append(pool, byMappers[0])
			byMappers = byMappers[1:]
		}
		at := rng.IntN(len(pool))
		assigned[pool[at]] = v
		pool[at] = pool[len(pool)-1]
		pool = pool[:len(pool)-1]
	}
	return assigned
}

// mostSkew is the maximum square of a coefficient relative to its bound m-1 for m mappers,
// at which one mapper sends everything.
const mostSkew = 0.95

// skewed draws n weights with coefficient of variation v, or the maximum for n. They are
// 1/(d + u) with u uniform from 0: a heavy tail, with more skew for a smaller d. It
// searches for d.
func skewed(rng *rand.Rand, n int, v float64) []uint64 {
	u := make([]float64, n)
	for i := range u {
		u[i] = rng.Float64()
	}
	least := slices.Min(u)
	for i := range u {
		u[i] -= least
	}
	low, high := 1e-9, 1e9
	for range 80 {
		d := math.Sqrt(low * high)
		sum, squares := 0.0, 0.0
		for _, x := range u {
			w := d / (d + x)
			sum += w
			squares += float64(w * w)
		}
		if float64(squares*float64(n))/float64(sum*sum) > 1+float64(v*v) {
			low = d
		} else {
			high = d
		}
	}
	weights := make([]uint64, n)
	for i, x := range u {
		weights[i] = max(1, uint64(math.Round(high/(high+x)*(1<<weightBits))))
	}
	return weights
}

// weightBits is the resolution of weights: the largest is 1<<weightBits.
const weightBits = 40

// split divides size by weights into parts of at least 1 that add up to size. The remainder
// of rounding down, less than one per part, goes to the heaviest.
func split(size int64, weights []uint64) []Megabytes {
	var total uint64
	heaviest := 0
	for i, w := range weights {
		total += w
		if w > weights[heaviest] {
			heaviest = i
		}
	}
	parts := make([]Megabytes, len(weights))
	left := size
	for i, w := range weights {
		hi, lo := bits.Mul64(uint64(size-int64(len(weights))), w)
		n, _ := bits.Div64(hi, lo, total) // sizes are below 2⁴⁴, so hi is below 2²⁰
		parts[i] = Megabytes(n + 1)
		left -= int64(n) + 1
	}
	parts[heaviest] += Megabytes(left)
	return parts
}

// MapSkews returns, for each coflow of two mappers or more, the coefficient of variation of
// the bytes that its mappers send.
func (t *Trace) MapSkews() []float64 {
	var skews []float64
	for _, c := range t.Coflows {
		if len(c.Mappers) < 2 {
			continue
		}
		if c.even() {
			skews = append(skews, 0)
			continue
		}
		sent := make([]float64, len(c.Mappers))
		for _, r := range c.Reducers {
			for i := range sent {
				if r.Flows == nil {
					sent[i] += float64(r.Size) / float64(len(sent))
				} else {
					sent[i] += float64(r.Flows[i])
				}
			}
		}
		mean, squares := 0.0, 0.0
		for _, s := range sent {
			mean += s / float64(len(sent))
		}
		for _, s := range sent {
			squares += float64((s/mean - 1) * (s/mean - 1))
		}
		skews = append(skews, math.Sqrt(squares/float64(len(sent))))
	}
	return skews
}
