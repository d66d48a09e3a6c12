package workloads

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// kindOf returns the index of a coflow's kind.
func kindOf(c TraceCoflow) int {
	s := shapeOf(c)
	many := func(n int) int { return min(n, 2) - 1 }
	switch b := c.Bin(); b {
	case ShortNarrow, LongNarrow:
		return int(b)*4 + many(s.mappers)*2 + many(len(s.flows))
	case ShortWide:
		if slices.Min(s.flows) == slices.Max(s.flows) {
			return 8
		}
		return 9
	}
	switch size := c.Size() / megabyte; {
	case size >= 500_000:
		return 12
	case c.Width() > 2000:
		return 11
	}
	return 10
}

func shapeOf(c TraceCoflow) shape {
	s := shape{mappers: len(c.Mappers)}
	for _, r := range c.Reducers {
		s.flows = append(s.flows, int64(r.Size/megabyte)/int64(len(c.Mappers)))
	}
	return s
}

// figures returns the five quantities of a kind: mappers, reducers, largest flow, skew and
// middle, the last only if flows differ.
func (s shape) figures() [5]float64 {
	least, most, sum := slices.Min(s.flows), slices.Max(s.flows), int64(0)
	for _, f := range s.flows {
		sum += f
	}
	f := [5]float64{float64(s.mappers), float64(len(s.flows)), float64(most), float64(most) / float64(least), math.NaN()}
	if most > least {
		f[4] = (float64(sum)/float64(len(s.flows)) - float64(least)) / float64(most-least)
	}
	return f
}

// fitted returns the values for evenly that describe a sample: its quantiles at the middles of
// ten equal shares, or of one share per value if it has fewer, and the whole sample for the
// giants. Equal values are merged.
func fitted(sample []float64, giant bool) []float64 {
	sample = slices.DeleteFunc(slices.Clone(sample), math.IsNaN)
	slices.Sort(sample)
	n := len(sample)
	if n == 0 {
		return []float64{1}
	}
	k := min(n, 10)
	if giant {
		k = n
	}
	values := make([]float64, k)
	for i := range values {
		at := (float64(i)+0.5)/float64(k)*float64(n) - 0.5
		low := max(0, min(int(at), n-1))
		high := min(low+1, n-1)
		v := sample[low] + (sample[high]-sample[low])*(max(at, 0)-float64(low))
		values[i], _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 3, 64), 64)
	}
	if values[0] == values[k-1] {
		values = values[:1]
	}
	return values
}

// The tables are the measurements of the trace, to three digits.
func TestFacebookTablesAreMeasured(t *testing.T) {
	trace, _ := facebookTrace(t)
	samples := make([][5][]float64, len(facebookKinds))
	counts := make([]int, len(facebookKinds))
	for _, c := range trace.Coflows {
		k := kindOf(c)
		counts[k]++
		for d, v := range shapeOf(c).figures() {
			samples[k][d] = append(samples[k][d], v)
		}
	}
	for i, k := range facebookKinds {
		want := fmt.Sprintf("share %d", counts[i])
		got := fmt.Sprintf("share %d", k.share)
		for d, q := range []curve{k.mapper, k.reducer, k.length, k.skew, k.middle} {
			values := make([]float64, len(q))
			for j := range q {
				values[j] = q[j][1]
			}
			got += "\n" + evenlySource(values)
			want += "\n" + evenlySource(fitted(samples[i][d], k.giant))
		}
		if got != want {
			t.Errorf("kind %s is\n%s\nbut the trace has\n%s", k.name, got, want)
		}
	}
}

func evenlySource(values []float64) string {
	s := make([]string, len(values))
	for i, v := range values {
		s[i] = strconv.FormatFloat(v, 'g', -1, 64)
	}
	return "evenly(" + strings.Join(s, ", ") + ")"
}

// quantile interpolates linearly between the two nearest ranks.
func quantile(p float64, sample []float64) float64 {
	s := slices.Sorted(slices.Values(sample))
	at := p * float64(len(s)-1)
	low := int(at)
	return s[low] + (s[min(low+1, len(s)-1)]-s[low])*(at-float64(low))
}

// samples returns the samples by which traces are compared, with one value per coflow or gap.
func samples(t *Trace) map[string][]float64 {
	s := map[string][]float64{}
	for i, c := range t.Coflows {
		f := shapeOf(c).figures()
		for name, v := range map[string]float64{"width": f[0] * f[1], "mappers": f[0], "reducers": f[1], "size": float64(c.Size() / megabyte), "length": f[2], "skew": f[3],
			"bound": float64(c.LowerBound(DefaultPerMB).Milliseconds())} {
			s[name] = append(s[name], v)
		}
		if i > 0 {
			s["gap"] = append(s["gap"], float64((c.Arrival - t.Coflows[i-1].Arrival).Milliseconds()))
		}
	}
	return s
}

// distance returns the Kolmogorov–Smirnov distance of two samples, the largest difference
// between their distribution functions. Logarithms do not change it.
func distance(a, b []float64) float64 {
	a, b = slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b))
	most, i, j := 0.0, 0, 0
	for i < len(a) && j < len(b) {
		x := min(a[i], b[j])
		for i < len(a) && a[i] == x {
			i++
		}
		for j < len(b) && b[j] == x {
			j++
		}
		most = max(most, math.Abs(float64(i)/float64(len(a))-float64(j)/float64(len(b))))
	}
	return most
}

// topShare returns the share of the n largest coflows in all bytes.
func topShare(t *Trace, n int) float64 {
	var sizes []float64
	sum := 0.0
	for _, c := range t.Coflows {
		sizes = append(sizes, float64(c.Size()))
		sum += float64(c.Size())
	}
	slices.Sort(sizes)
	top := 0.0
	for _, s := range sizes[len(sizes)-n:] {
		top += s
	}
	return top / sum
}

// portLoad returns the bytes of the busiest port relative to the mean, for senders and for
// receivers.
func portLoad(t *Trace) (send, receive float64) {
	out, in := make([]float64, t.Ports), make([]float64, t.Ports)
	sum := 0.0
	for _, c := range t.Coflows {
		for _, port := range c.Mappers {
			out[port] += float64(c.Size()) / float64(len(c.Mappers))
		}
		for _, r := range c.Reducers {
			in[r.Port] += float64(r.Size)
		}
		sum += float64(c.Size())
	}
	mean := sum / float64(t.Ports)
	return slices.Max(out) / mean, slices.Max(in) / mean
}

// published has the statistics of the trace by quantile, and the largest factor by which a
// generated trace may differ. It is larger at the ends and P99, which depend on few coflows.
var published = map[string]map[float64]float64{
	"width":    {0: 1, 0.1: 1, 0.25: 2, 0.5: 10, 0.75: 47, 0.9: 3593, 0.95: 11_260, 0.99: 20_690, 1: 21_170},
	"mappers":  {0: 1, 0.1: 1, 0.25: 1, 0.5: 3, 0.75: 15, 0.9: 64, 0.95: 138, 0.99: 147, 1: 147},
	"reducers": {0: 1, 0.1: 1, 0.25: 1, 0.5: 1, 0.75: 21, 0.9: 73, 0.95: 120, 0.99: 141, 1: 145},
	"size":     {0: 1, 0.1: 1, 0.25: 3, 0.5: 25, 0.75: 244, 0.9: 10_930, 0.95: 48_700, 0.99: 1.6e6, 1: 8.5e6},
	"length":   {0: 1, 0.1: 1, 0.25: 1, 0.5: 1, 0.75: 9, 0.9: 60, 0.95: 154, 0.99: 624, 1: 2472},
	"bound":    {0: 8, 0.5: 172, 0.9: 7324, 0.95: 35_524, 0.99: 262_644, 1: 1_857_160},
	"gap":      {0: 7, 0.5: 3062, 1: 82_436},
}

var within = map[float64]float64{0: 1.3, 0.1: 1.35, 0.25: 1.35, 0.5: 1.35, 0.75: 1.6, 0.9: 1.6, 0.95: 1.8, 0.99: 1.6, 1: 1.8}

func near(got, want, factor float64) bool { return got <= want*factor && got >= want/factor }

const facebookSeeds = 10

// With every seed the generated trace has the published statistics.
func TestFacebookIsAsPublished(t *testing.T) {
	var tops [3]float64
	for seed := uint64(1); seed <= facebookSeeds; seed++ {
		g, err := Facebook{}.Generate(seed)
		if err != nil {
			t.Fatal(err)
		}
		if len(g.Coflows) != 526 || g.Ports != 150 || g.Coflows[0].ID != 1 || g.Coflows[0].Arrival != 0 {
			t.Fatalf("seed %d: %d coflows on %d ports from %d at %v, want 526 on 150 from 1 at 0", seed, len(g.Coflows), g.Ports, g.Coflows[0].ID, g.Coflows[0].Arrival)
		}
		check := func(what string, got, want, off float64) {
			if math.Abs(got-want) > off {
				t.Errorf("seed %d: %s %.4g, want %v ± %v", seed, what, got, want, off)
			}
		}
		s := samples(g)
		for name, quantiles := range published {
			for p, want := range quantiles {
				if got := quantile(p, s[name]); !near(got, want, within[p]) {
					t.Errorf("seed %d: %s at P%v is %.4g, want %v within a factor of %v", seed, name, 100*p, got, want, within[p])
				}
			}
		}
		count := func(name string, want func(float64) bool) (n float64) {
			for _, v := range s[name] {
				if want(v) {
					n++
				}
			}
			return n
		}
		one := func(v float64) bool { return v == 1 }
		check("coflows of one flow", count("width", one), 123, 2)
		check("coflows of at most 7 flows", count("width", func(v float64) bool { return v <= 7 }), 257, 12)
		check("coflows of one mapper", count("mappers", one), 175, 8)
		check("coflows of one reducer", count("reducers", one), 334, 8)
		check("coflows of equal flows", count("skew", one), 384, 8)
		sum, gaps := 0.0, 0.0
		var bytes [4]float64
		var bins [4]int
		for _, c := range g.Coflows {
			size := float64(c.Size() / megabyte)
			sum += size
			bytes[c.Bin()] += size
			bins[c.Bin()]++
			for _, f := range shapeOf(c).flows {
				if f < 1 {
					t.Fatalf("seed %d: coflow %d has a flow of %d MB", seed, c.ID, f)
				}
			}
		}
		if want := [4]int{315, 84, 63, 64}; bins != want {
			t.Errorf("seed %d: bins SN, LN, SW, LW of %v coflows, want %v", seed, bins, want)
		}
		for b, want := range map[Bin]float64{ShortNarrow: 0.00010, LongNarrow: 0.00111, ShortWide: 0.00877, LongWide: 0.99001} {
			if got := bytes[b] / sum; !near(got, want, 1.5) {
				t.Errorf("seed %d: bin %v has %.3g of the bytes, want %v within a factor of 1.5", seed, b, got, want)
			}
		}
		if !near(sum, 35_533_534, 1.3) {
			t.Errorf("seed %d: %.4g MB, want 35,533,534 within a factor of 1.3", seed, sum)
		}
		for _, v := range s["gap"] {
			gaps += v / 525
		}
		check("mean gap", gaps, 6913, 200)
		check("share of the largest coflow", topShare(g, 1), 0.239, 0.11)
		check("share of the largest 10", topShare(g, 10), 0.791, 0.08)
		check("share of the largest 26", topShare(g, 26), 0.977, 0.015)
		for i, n := range []int{1, 10, 26} {
			tops[i] += topShare(g, n) / facebookSeeds
		}
		send, receive := portLoad(g)
		check("busiest sender over the mean", send, 258_014.0/236_890, 0.1)
		check("busiest receiver over the mean", receive, 440_422.0/236_890, 0.4)
	}
	for i, want := range []float64{0.239, 0.791, 0.977} {
		if math.Abs(tops[i]-want) > 0.04 {
			t.Errorf("over %d seeds the largest coflows have %.3f of the bytes, want %v ± 0.04", facebookSeeds, tops[i], want)
		}
	}
}

// mostDistance bounds the distance from the trace. For two samples of 526 from the same
// distribution the distance is 0.084 or more with probability 1/20.
const mostDistance = 0.05

func TestFacebookIsLikeTheTrace(t *testing.T) {
	trace, _ := facebookTrace(t)
	want := samples(trace)
	for seed := uint64(1); seed <= facebookSeeds; seed++ {
		g, err := Facebook{}.Generate(seed)
		if err != nil {
			t.Fatal(err)
		}
		for name, sample := range samples(g) {
			if d := distance(sample, want[name]); d > mostDistance {
				t.Errorf("seed %d: %s is %.3f from the trace, want %v or less", seed, name, d, mostDistance)
			}
		}
	}
	// The distance detects a trace with other coflows.
	other, _ := Facebook{Ports: 20}.Generate(1)
	if d := distance(samples(other)["width"], want["width"]); d <= mostDistance {
		t.Errorf("widths on 20 ports are %.3f from the trace", d)
	}
}

func TestFacebookOptions(t *testing.T) {
	generate := func(f Facebook, seed uint64) *Trace {
		t.Helper()
		g, err := f.Generate(seed)
		if err != nil {
			t.Fatal(err)
		}
		return g
	}
	last := func(g *Trace) time.Duration { return g.Coflows[len(g.Coflows)-1].Arrival }
	if got := last(generate(Facebook{Span: 10 * time.Minute}, 1)); got != 10*time.Minute {
		t.Errorf("a span of 10m ends at %v", got)
	}
	g := generate(Facebook{Load: 0.25, PerMB: 4 * time.Millisecond, Ports: 40, Coflows: 300}, 1)
	busy := 0.0
	for _, c := range g.Coflows {
		busy += float64(c.Size()/megabyte) * 0.004
	}
	if got := busy / (last(g).Seconds() * 40); math.Abs(got-0.25) > 1e-4 {
		t.Errorf("a load of 0.25 is %v", got)
	}
	tail, none := generate(Facebook{}, 3), generate(Facebook{NoTail: true}, 3)
	total := func(g *Trace) (n Megabytes) {
		for _, c := range g.Coflows {
			n += c.Size()
		}
		return n
	}
	if got, whole := total(none), total(tail); got > whole/4 {
		t.Errorf("without a tail there are %v MB, with it %v", got, whole)
	}
	if none.Coflows[len(none.Coflows)-1].Bin() != tail.Coflows[len(tail.Coflows)-1].Bin() {
		t.Error("the tail changes the order of bins")
	}
	for _, c := range none.Coflows {
		if c.Size() >= 1_500_000*megabyte {
			t.Errorf("without a tail coflow %d has %v MB", c.ID, c.Size())
		}
	}
	if got := generate(Facebook{Coflows: 1}, 1); len(got.Coflows) != 1 || got.Coflows[0].Arrival != 0 {
		t.Errorf("one coflow: %+v", got.Coflows)
	}
	// A trace with ten times the coflows has the same distribution.
	if d := distance(samples(generate(Facebook{Coflows: 5260}, 1))["size"], samples(tail)["size"]); d > mostDistance {
		t.Errorf("sizes of ten times the coflows are %.3f apart", d)
	}
	wide := generate(Facebook{Ports: 900}, 1)
	used := map[int]bool{}
	for _, c := range wide.Coflows {
		for _, port := range c.Mappers {
			used[port] = true
		}
	}
	if len(used) < 850 {
		t.Errorf("of 900 ports %d send", len(used))
	}
}

// For every specification the trace is valid, the bins have their shares, and a seed
// determines the trace.
func TestFacebookProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := Facebook{Coflows: rapid.IntRange(1, 100).Draw(t, "coflows"), Ports: rapid.IntRange(8, 200).Draw(t, "ports"), NoTail: rapid.Bool().Draw(t, "no tail")}
		switch rapid.IntRange(0, 2).Draw(t, "times") {
		case 1:
			f.Span = time.Duration(rapid.IntRange(1, 10_000_000).Draw(t, "span")) * time.Millisecond
		case 2:
			f.Load = rapid.Float64Range(0.01, 10).Draw(t, "load")
		}
		seed := rapid.Uint64().Draw(t, "seed")
		g, err := f.Generate(seed)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.check(); err != nil {
			t.Fatal(err)
		}
		if err := WriteTrace(io.Discard, g); err != nil {
			t.Fatal(err)
		}
		text := written(t, g)
		if again, _ := f.Generate(seed); written(t, again) != text {
			t.Fatal("the same seed gives another trace")
		}
		if other, _ := f.Generate(seed + 1); f.Coflows > 20 && written(t, other) == text {
			t.Fatal("another seed gives the same trace")
		}
		var bins [4]int
		for _, c := range g.Coflows {
			bins[c.Bin()]++
			if f := shapeOf(c).flows; slices.Min(f) < 1 {
				t.Fatalf("coflow %d has a flow below 1 MB", c.ID)
			}
		}
		for b, share := range [4]float64{315, 84, 63, 64} {
			// A bin has up to four kinds, each of which may be rounded.
			if want := share * float64(f.Coflows) / 526; math.Abs(float64(bins[b])-want) > 4 {
				t.Fatalf("bin %v has %d of %d coflows, want %.1f", Bin(b), bins[b], f.Coflows, want)
			}
		}
	})
}

// written returns a trace in the flows format.
func written(t rapid.TB, g *Trace) string {
	var out bytes.Buffer
	if err := WriteTraceAs(&out, g, FormatFlows); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestFacebookErrors(t *testing.T) {
	for _, tt := range []struct {
		f    Facebook
		want string
	}{
		{Facebook{Ports: 7}, "on 8 to"},
		{Facebook{Ports: -1}, "on 8 to"},
		{Facebook{Ports: MaxTracePorts + 1}, "on 8 to"},
		{Facebook{Coflows: -1}, "expected 1 to"},
		{Facebook{Coflows: MaxTraceCoflows + 1}, "expected 1 to"},
		{Facebook{Span: -1}, "at least a millisecond"},
		{Facebook{Span: time.Microsecond}, "at least a millisecond"},
		{Facebook{Load: -1}, "share of the ports' capacity"},
		{Facebook{Load: math.NaN()}, "share of the ports' capacity"},
		{Facebook{Load: 0.5, Span: time.Minute}, "mutually exclusive"},
		{Facebook{Load: 1e-300}, "ms: must be at most"},
		{Facebook{PerMB: time.Microsecond, Load: 1}, "must be 1ms to 1h"},
	} {
		tt.f.Name = "t"
		if _, err := tt.f.Generate(1); err == nil || !strings.HasPrefix(err.Error(), "generated trace t: ") || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: error %v, want %q", tt.f, err, tt.want)
		}
	}
}

func TestFlowsOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(3, 200).Draw(t, "n")
		least := rapid.Int64Range(1, 1000).Draw(t, "least")
		most := least + rapid.Int64Range(100, 10_000).Draw(t, "spread")
		// With n flows, one smallest and one largest, the mean is at least 1/n of the way.
		middle := rapid.Float64Range(1.5/float64(n), 0.5).Draw(t, "middle")
		flows := flowsOf(Stream(1, "test"), n, least, most, middle)
		sum := int64(0)
		for _, f := range flows {
			sum += f
		}
		got := (float64(sum)/float64(n) - float64(least)) / float64(most-least)
		if slices.Min(flows) != least || slices.Max(flows) != most || math.Abs(got-middle) > 0.01 {
			t.Fatalf("%d flows from %d to %d with the mean at %v of the way, want %d to %d at %v", n, slices.Min(flows), slices.Max(flows), got, least, most, middle)
		}
	})
	for _, n := range []int{1, 2} {
		if got := flowsOf(Stream(1, "test"), n, 3, 3, 0.5); len(got) != n || got[0] != 3 {
			t.Errorf("%d flows of 3: %v", n, got)
		}
	}
}

func TestCurve(t *testing.T) {
	q := curve{{0.1, 2}, {0.5, 8}, {0.9, 800}}
	for _, tt := range []struct{ p, want float64 }{{0, 2}, {0.1, 2}, {0.3, 4}, {0.5, 8}, {0.7, 80}, {0.9, 800}, {1, 800}} {
		if got := q.at(tt.p); math.Abs(got-tt.want) > 1e-9 {
			t.Errorf("at(%v) = %v, want %v", tt.p, got, tt.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.Float64Range(0, 1)
		if a, b := p.Draw(t, "a"), p.Draw(t, "b"); (a < b) && q.at(a) > q.at(b) {
			t.Fatalf("at(%v) = %v, at(%v) = %v", a, q.at(a), b, q.at(b))
		}
	})
	if got := quotas(10, []int{1, 1, 1}); !slices.Equal(got, []int{4, 3, 3}) {
		t.Errorf("ten in thirds: %v", got)
	}
}

func BenchmarkFacebook(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		if _, err := (Facebook{}).Generate(1); err != nil {
			b.Fatal(err)
		}
	}
}
