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

// MapSkew says how unevenly the mappers of a coflow share its bytes: by two
// quantiles, over the coflows of two mappers or more, of the coefficient of variation
// (standard deviation over mean) of what the mappers of a coflow send.
//
// Below P90 the coefficients are log-normal through both. Above it they stay at P90:
// nothing is published of them, and unbounded ones would make a large coflow one
// sender's.
type MapSkew struct{ P50, P90 float64 }

// MantriSkew is what the clusters of Mantri (OSDI 2010) show, as Philae's evaluation
// (USENIX ATC 2019) uses it.
var MantriSkew = MapSkew{P50: 0.34, P90: 3.1}

// MantriLike is t with the skew among mappers that a trace of reducers' totals has
// lost. Every reducer keeps its bytes to the last one, and ids, arrivals and ports
// are untouched; but a coflow's mappers, which sent the same each, now have weights,
// one for all reducers, drawn from a heavy tail and then bent until their
// coefficient of variation is the coflow's. Which coflow gets which coefficient the
// seed decides, among those with enough mappers for it: of m mappers it is below
// √(m-1). Every flow has at least one byte.
//
// The result is in bytes. A MB of a trace that does not state it (Trace.InBytes) is
// taken as mb: units.MB or units.MiB. A trace whose flows to one reducer differ
// already has mappers of its own, and is an error.
func MantriLike(t *Trace, skew MapSkew, mb units.Bytes, seed uint64) (*Trace, error) {
	bad := func(format string, args ...any) (*Trace, error) {
		return nil, fmt.Errorf("trace %s: %s", t.Name, fmt.Sprintf(format, args...))
	}
	if !(0 < skew.P50 && skew.P50 <= skew.P90 && skew.P90 <= maxMapSkew) {
		return bad("skew of mappers %v at P50 and %v at P90: want two coefficients of variation above 0 and up to %v, the second not below the first", skew.P50, skew.P90, float64(maxMapSkew))
	}
	if mb != units.MB && mb != units.MiB {
		return bad("an MB of %d bytes: want 10⁶ or 2²⁰", mb)
	}
	var mappers []int // of the coflows that have two or more
	for _, c := range t.Coflows {
		if !c.even() {
			return bad("coflow %d: its flows to one reducer differ in size already: want a trace of reducers' totals alone", c.ID)
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
				return bad("coflow %d: %v MB at port %d: want at most %v of 10⁶ bytes", c.ID, r.Size, r.Port, maxReducerSize)
			}
			if int64(size) < int64(len(weights)) {
				return bad("coflow %d: %d bytes at port %d from %d mappers: want at least one byte each", c.ID, size, r.Port, len(weights))
			}
			r.Size = Megabytes(size) // a byte is a millionth of 10⁶ bytes
			r.Flows = split(int64(size), weights)
		}
		out.Coflows[i] = c
	}
	return out, out.check()
}

// maxMapSkew is above what the mappers of any trace can have.
const maxMapSkew = 1000

// curve is the distribution of coefficients of variation. A step of its logarithm
// from P50 to P90 is 1.2816 standard deviations, so that halves and multiples of it
// fall on the probabilities below.
func (s MapSkew) curve() curve {
	half := math.Sqrt(s.P90 / s.P50)
	return curve{
		{0.00519, s.P50 / half / half / half / half}, {0.02728, s.P50 / half / half / half}, {0.1, s.P50 / half / half},
		{0.26083, s.P50 / half}, {0.5, s.P50}, {0.73917, s.P50 * half}, {0.9, s.P90},
	}
}

// assign deals one coefficient each to coflows of so many mappers, at random among
// those that have enough of them, the largest coefficients first. Where none has, the
// coflow with most gets it and is as skewed as it can be.
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
			// So that the interpolated P50 and P90 of what is dealt are those of the curve.
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

// mostSkew is how near the square of a coefficient may come to the bound for so many
// mappers, m-1, at which one sends everything.
const mostSkew = 0.95

// skewed draws n weights whose coefficient of variation is v, or as much as n
// allow. They are 1/(d + u), u uniform from 0: a heavy tail, the more uneven the
// smaller d, which is searched for.
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

// weightBits is how finely weights are told apart: the largest is 1<<weightBits.
const weightBits = 40

// split divides size by weights into parts of at least 1 that add up to it. What
// rounding down leaves, less than one each, goes to the heaviest.
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

// MapSkews are the coefficients of variation of what the mappers of each coflow
// send, of the coflows of two mappers or more.
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
