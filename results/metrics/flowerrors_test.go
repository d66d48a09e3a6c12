package metrics

import (
	"math"
	"testing"
	"time"

	"testbed/results/flows"
	"testbed/topo"
	"testbed/topo/units"
)

var ethernet = Framing{Payload: 1448, Headers: 66}

// byHand sends every frame of a flow over links that store and forward, one after the other.
func byHand(f Framing, size units.Bytes, path []Hop) time.Duration {
	free := make([]time.Duration, len(path))
	var at time.Duration
	for size > 0 {
		payload := min(size, f.Payload)
		size -= payload
		at = 0
		for i, h := range path {
			at = max(at, free[i]) + h.Rate.TimeToSend(payload+f.Headers)
			free[i] = at
		}
	}
	return at
}

// Both times, for links of one rate by hand: 50 KB are 35 frames and 52,310 bytes, of which a
// bucket of 2,460 bytes passes at once; over four links that store and forward, three frames of
// 1,514 bytes come on top.
func TestTimesOfIsolatedFlows(t *testing.T) {
	path := func(n int) (out []Hop) {
		for range n {
			out = append(out, Hop{8 * units.Mbps, 2460}) // a byte in a microsecond
		}
		return out
	}
	for _, c := range []struct {
		size            units.Bytes
		links           int
		stored, buckets time.Duration
	}{
		{0, 4, 0, 0},
		{1, 1, 67 * time.Microsecond, 0},
		{1448, 4, 4 * 1514 * time.Microsecond, 0},
		{1500, 2, (2*1514 + 118) * time.Microsecond, 0}, // the short frame overtakes nothing: it waits for the first at each link
		{10_000, 2, (10_462 + 1514) * time.Microsecond, (10_462 - 2460) * time.Microsecond},
		{50_000, 4, (52_310 + 3*1514) * time.Microsecond, (52_310 - 2460) * time.Microsecond},
	} {
		if got := ethernet.StoreAndForward(c.size, path(c.links)); got != c.stored || got != byHand(ethernet, c.size, path(c.links)) {
			t.Errorf("%d bytes over %d links: stored and forwarded in %v, want %v (frame by frame %v)", int64(c.size), c.links, got, c.stored, byHand(ethernet, c.size, path(c.links)))
		}
		if got := ethernet.FullBuckets(c.size, path(c.links)); got != c.buckets {
			t.Errorf("%d bytes over %d links: with full buckets in %v, want %v", int64(c.size), c.links, got, c.buckets)
		}
	}
}

// Links of different rates, whichever is the slowest: the closed form equals a simulation of every frame.
func TestStoreAndForwardFrameByFrame(t *testing.T) {
	rates := []units.Rate{8 * units.Mbps, 4 * units.Mbps, 2 * units.Mbps, 16 * units.Mbps}
	for _, size := range []units.Bytes{1, 1448, 1449, 1500, 2896, 2897, 10_000, 250_000} {
		for i := range 256 {
			path := []Hop{{rates[i&3], 0}, {rates[i>>2&3], 0}, {rates[i>>4&3], 0}, {rates[i>>6], 0}}
			if got, want := ethernet.StoreAndForward(size, path), byHand(ethernet, size, path); got != want {
				t.Fatalf("%d bytes over %v: %v, frame by frame %v", int64(size), path, got, want)
			}
		}
	}
}

func TestFlowErrorsOfAFabric(t *testing.T) {
	shape := topo.LeafSpine{Leaves: 2, Spines: 1, HostsPerLeaf: 2, HostLink: 10 * units.Mbps, Oversubscription: units.Ratio{Num: 2, Den: 1}, Queue: topo.Queue{Bytes: units.MB}, MTU: 1500}
	f, err := shape.Build()
	if err != nil {
		t.Fatal(err)
	}
	e := NewFlowErrors(f, ethernet, func(units.Rate) units.Bytes { return 2460 })
	want := [][2]float64{{-1, -1}, {-0.332, -0.467}, {-0.074, -0.123}, {-0.015, -0.026}}
	for i, s := range e.Sizes() {
		if s.Size != FlowErrorSizes[i] || math.Abs(*s.Rack-want[i][0]) > 0.0006 || math.Abs(*s.Racks-want[i][1]) > 0.0006 {
			t.Errorf("%v: within a rack %.4f, across racks %.4f, want %v", s.Size, *s.Rack, *s.Racks, want[i])
		}
	}
	later := e.Later(0, flows.Records{Flows: []flows.FlowRecord{
		{Flow: 1, Src: "h0-00", Dst: "h1-00", Size: 50_000, End: time.Second},
		{Flow: 2, Src: "unknown", Dst: "h0-00", Size: 50_000, End: time.Second},
	}})
	early := (2460 + 3*1514) * 800 * time.Nanosecond // 0.8 µs a byte
	if got := later[0].Time - time.Second; (got-early).Abs() > 10*time.Nanosecond || later[1].Time != time.Second {
		t.Errorf("later by %v and %v, want %v and 0", got, later[1].Time-time.Second, early)
	}

	shape.Leaves, shape.HostsPerLeaf = 2, 1
	if f, err = shape.Build(); err != nil {
		t.Fatal(err)
	}
	for _, s := range NewFlowErrors(f, ethernet, func(units.Rate) units.Bytes { return 2460 }).Sizes() {
		if s.Rack != nil || s.Racks == nil {
			t.Errorf("%v with one host in a rack: %v, %v", s.Size, s.Rack, s.Racks)
		}
	}
}
