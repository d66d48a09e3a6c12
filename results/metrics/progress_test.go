package metrics

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/hosts/wire"
	"testbed/results/flows"
	"testbed/topo/units"
)

// points returns n evenly spread points of a stream, a second apart.
func points(first time.Duration, header, size units.Bytes, n int) (out []flows.Point) {
	for i := range n {
		out = append(out, flows.Point{At: first + time.Duration(i)*time.Second, Bytes: wire.Size + header*units.Bytes(min(i, 1)) + size*units.Bytes(i)/units.Bytes(n-1)})
	}
	return out
}

func TestProgressOf(t *testing.T) {
	const s = time.Second
	flow := func(member uint32, first time.Duration, n int, complete bool) flows.Trail {
		in := points(first, 0, 9000, n)
		return flows.Trail{Kind: wire.KindFlow, Group: 3, Member: member, Size: 9000, Complete: complete, Sent: points(first-s, 0, 9000, n), Received: in, End: in[n-1].At, SrcName: "a", DstName: "b"}
	}
	short := flow(1, 5*s, 10, false) // broke off and was retried
	short.Sent, short.Received, short.End = short.Sent[:4], short.Received[:4], 0
	doubled := flow(1, 20*s, 10, true)
	blind := flow(2, 1*s, 10, true)
	blind.Sent = nil
	unseen := flow(4, s, 10, true)
	unseen.Received = nil
	hop := flows.Trail{Kind: wire.KindBlock, Group: 0, Member: 2, Generation: 1, Size: 9000, Complete: true, Sent: points(0, wire.TargetsSize, 9000, 10), Received: points(s, wire.TargetsSize, 9000, 10)}
	empty := flows.Trail{Kind: wire.KindBlock, Group: 1, Complete: true, Received: []flows.Point{{At: s, Bytes: wire.Size}, {At: 2 * s, Bytes: wire.Size + wire.TargetsSize}}}
	back := flow(5, s, 10, true) // its clock was set back
	back.Received[3].At = 30 * s
	res := &flows.Result{Trails: []flows.Trail{hop, doubled, short, flow(1, 2*s, 10, true), blind, unseen, empty, back}}
	res.Flows = []flows.FlowRecord{{Coflow: 3, Flow: 1, End: 11 * s}}

	got := ProgressOf(res, 4, 0)
	var names [][4]uint32
	for _, p := range got {
		names = append(names, [4]uint32{uint32(p.Kind), p.Group, p.Member, p.Generation})
	}
	if want := [][4]uint32{{uint32(wire.KindFlow), 3, 1, 0}, {uint32(wire.KindFlow), 3, 2, 0}, {uint32(wire.KindFlow), 3, 5, 0}, {uint32(wire.KindBlock), 0, 2, 1}, {uint32(wire.KindBlock), 1, 0, 0}}; !cmp.Equal(names, want) {
		t.Fatalf("transfers %v, want %v", names, want)
	}
	for i, want := range []Progress{
		// The connection with the record, neither the first nor the last.
		{Moments: []Moment{{0, 1 * s, 2 * s}, {3000, 4 * s, 5 * s}, {6000, 7 * s, 8 * s}, {9000, 10 * s, 11 * s}}},
		{Moments: []Moment{{0, 0, 1 * s}, {3000, 0, 4 * s}, {6000, 0, 7 * s}, {9000, 0, 10 * s}}},
		{Moments: []Moment{{0, 0, 1 * s}, {3000, 3 * s, 7 * s}, {6000, 6 * s, 7 * s}, {9000, 9 * s, 10 * s}}},
		{Moments: []Moment{{0, 0, 1 * s}, {3000, 3 * s, 4 * s}, {6000, 6 * s, 7 * s}, {9000, 9 * s, 10 * s}}},
		{Moments: []Moment{{0, 0, 2 * s}}},
	} {
		if diff := cmp.Diff(want.Moments, got[i].Moments); diff != "" {
			t.Errorf("transfer %d (-want +got):\n%s", i, diff)
		}
		if got[i].SentKnown != (i != 1 && i != 4) {
			t.Errorf("transfer %d: sender known: %v", i, got[i].SentKnown)
		}
	}
	// The moments of a repeat are bounded, but each transfer keeps a minimum.
	for most, want := range map[int]int{0: 10, 35: 7, 5: leastProgressPoints} {
		if n := len(ProgressOf(res, 0, most)[0].Moments); n != want {
			t.Errorf("about %d moments in all: %d of the first, want %d", most, n, want)
		}
	}
}

// The bins have all bytes received within them, for any borders.
func TestGoodputKeepsAllBytes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var moments []Moment
		at, bytes := time.Duration(rapid.IntRange(0, 50).Draw(t, "start")), units.Bytes(0)
		for range rapid.IntRange(1, 12).Draw(t, "moments") {
			moments = append(moments, Moment{Bytes: bytes, At: at})
			at += time.Duration(rapid.IntRange(0, 40).Draw(t, "step"))
			bytes += units.Bytes(rapid.IntRange(0, 1000).Draw(t, "bytes"))
		}
		bin := time.Duration(rapid.IntRange(1, 60).Draw(t, "bin"))
		last := moments[len(moments)-1]
		bins := make([]float64, last.At/bin+1)
		Goodput(bins, bin, moments)
		// Step by step: each nanosecond of a stretch has an equal part of its bytes.
		slow := make([]float64, len(bins))
		for i := 1; i < len(moments); i++ {
			a, b := moments[i-1], moments[i]
			if a.At == b.At {
				slow[max(0, a.At-1)/bin] += float64(b.Bytes - a.Bytes)
			}
			for ns := a.At; ns < b.At; ns++ {
				slow[ns/bin] += float64(b.Bytes-a.Bytes) / float64(b.At-a.At)
			}
		}
		sum := 0.0
		for k := range bins {
			sum += bins[k]
			if math.Abs(bins[k]-slow[k]) > 1e-6 {
				t.Fatalf("bin %d of %v has %v bytes, want %v (%v)", k, bin, bins[k], slow[k], moments)
			}
		}
		if math.Abs(sum-float64(last.Bytes)) > 1e-6 {
			t.Fatalf("%v bytes in all bins, want %v", sum, last.Bytes)
		}
	})
}

// What arrived faster than the link carries is moved to where there was room, first to earlier bins.
func TestWithin(t *testing.T) {
	rows := [][]float64{{0, 10, 30, 10}, {0, 0, 0, 10}}
	Within(rows, 20)
	if d := cmp.Diff([][]float64{{0, 20, 20, 10}, {0, 0, 0, 10}}, rows); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	rapid.Check(t, func(t *rapid.T) {
		bins := rapid.IntRange(1, 8).Draw(t, "bins")
		rows, sums, total := [][]float64{}, []float64{}, 0.0
		for range rapid.IntRange(1, 4).Draw(t, "rows") {
			row, sum := make([]float64, bins), 0.0
			for k := range row {
				row[k] = float64(rapid.IntRange(0, 50).Draw(t, "bytes"))
				sum += row[k]
			}
			rows, sums, total = append(rows, row), append(sums, sum), total+sum
		}
		most := total/float64(bins) + float64(rapid.IntRange(0, 20).Draw(t, "room"))
		Within(rows, most)
		for k := range bins {
			sum := 0.0
			for _, row := range rows {
				sum += row[k]
			}
			if sum > most+1e-6 {
				t.Fatalf("bin %d has %v, more than %v", k, sum, most)
			}
		}
		for i, row := range rows {
			sum := 0.0
			for _, x := range row {
				sum += x
			}
			if math.Abs(sum-sums[i]) > 1e-6 {
				t.Fatalf("row %d has %v, want %v", i, sum, sums[i])
			}
		}
	})
}
