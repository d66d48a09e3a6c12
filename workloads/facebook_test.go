package workloads

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// kindOf is the index of the kind that a coflow of the trace belongs to.
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

// figures are the five quantities of a kind: mappers, reducers, largest flow, skew
// and middle, the last only where flows differ.
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

// fitted are the values of evenly that describe a sample: its quantiles at the
// middles of ten equal shares, or of as many as it has, and the whole sample for the
// giants. Those that do not differ are one.
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

// The tables are what the trace measures, to three digits.
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

// quantile is linearly interpolated between the two nearest ranks.
func quantile(p float64, sample []float64) float64 {
	s := slices.Sorted(slices.Values(sample))
	at := p * float64(len(s)-1)
	low := int(at)
	return s[low] + (s[min(low+1, len(s)-1)]-s[low])*(at-float64(low))
}

// samples are what a trace is compared by, one value a coflow or gap.
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

// distance is the largest difference between the distribution functions of two
// samples (Kolmogorov and Smirnov): the same for their logarithms.
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

// topShare is the share of all bytes that the n largest coflows have.
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

// portLoad is the busiest port's bytes over the mean's, of senders and of receivers.
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

func TestZZ(t *testing.T) {
	trace, _ := facebookTrace(t)
	real := samples(trace)
	show := func(tr *Trace, name string) {
		s := samples(tr)
		bins := map[Bin]int{}
		bytes := map[Bin]float64{}
		equal, flows := 0, 0
		tot := 0.0
		for i, c := range tr.Coflows {
			bins[c.Bin()]++
			bytes[c.Bin()] += float64(c.Size() / megabyte)
			tot += float64(c.Size() / megabyte)
			flows += c.Width()
			if s["skew"][i] == 1 {
				equal++
			}
		}
		send, recv := portLoad(tr)
		fmt.Printf("%s bins %v bytes %.5f %.5f %.5f %.5f total %.0f equal %d flows %d top %.3f %.3f %.3f send %.2f recv %.2f span %v\n", name, bins, bytes[0]/tot, bytes[1]/tot, bytes[2]/tot, bytes[3]/tot, tot, equal, flows, topShare(tr, 1), topShare(tr, 10), topShare(tr, 26), send, recv, tr.Coflows[len(tr.Coflows)-1].Arrival)
		for _, k := range []string{"width", "mappers", "reducers", "size", "length", "bound", "skew", "gap"} {
			fmt.Printf("   %-9s KS %.3f", k, distance(s[k], real[k]))
			for _, p := range []float64{0, .1, .25, .5, .75, .9, .95, .99, 1} {
				fmt.Printf(" %.4g", quantile(p, s[k]))
			}
			m := 0.0
			for _, v := range s[k] {
				m += v / float64(len(s[k]))
			}
			fmt.Printf(" mean %.4g\n", m)
		}
	}
	show(trace, "real")
	for seed := uint64(1); seed < 6; seed++ {
		g, err := Facebook{}.Generate(seed)
		if err != nil {
			t.Fatal(err)
		}
		show(g, fmt.Sprint(seed))
	}
}
func TestZY(t *testing.T) {
	for _, p := range []float64{-0.6, -0.3, 0, 0.3} {
		for _, l := range []float64{0.9, 1} {
			facebookKinds[12].tie[2] = l
			facebookKinds[12].tie[4] = p
			worst := map[string]float64{}
			trace, _ := facebookTrace(t)
			real := samples(trace)
			var a, b, c, s, rc []float64
			for seed := uint64(1); seed <= 40; seed++ {
				g, _ := Facebook{}.Generate(seed)
				a = append(a, topShare(g, 1))
				b = append(b, topShare(g, 10))
				c = append(c, topShare(g, 26))
				sum := 0.0
				for _, x := range g.Coflows {
					sum += float64(x.Size() / megabyte)
				}
				s = append(s, sum/1e6)
				_, r := portLoad(g)
				rc = append(rc, r)
				for k, v := range samples(g) {
					worst[k] = max(worst[k], distance(v, real[k]))
				}
			}
			fmt.Println(l, p, worst)
			for _, x := range [][]float64{a, b, c, s, rc} {
				fmt.Printf("%.3f %.3f %.3f | ", slices.Min(x), quantile(.5, x), slices.Max(x))
			}
			fmt.Println()
		}
	}
}
