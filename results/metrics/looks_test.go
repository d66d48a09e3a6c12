package metrics

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"testbed/emu/longtest"
)

// seen returns a comparison with intervals of a half-width in percent; 0 is none.
func seen(arm, key string, half float64) Seen {
	x := Seen{arm, key, Paired{N: 9, MeanRatio: 2, GeoMean: 2}}
	if half > 0 {
		x.MeanRatioCI, x.GeoMeanCI = Interval{2 - half/100, 2 + half/100}, Interval{2 - half/50, 2 + half/50}
	}
	return x
}

// Looks stop when the widest interval is within its bound, at the last one, and if nothing can be compared.
func TestLooksStop(t *testing.T) {
	until := map[string]float64{"cct": 5, "fct": 10}
	for _, tt := range []struct {
		name    string
		looks   [][]Seen
		repeats int
		why     string
	}{
		{"at once", [][]Seen{{seen("a", "cct", 4.9), seen("a", "fct", 9.9)}}, 5,
			"all intervals are narrow enough; the widest interval is that of fct of a: ±9.9 %, for a bound of ±10 %"},
		{"when all are", [][]Seen{{seen("a", "cct", 4), seen("b", "cct", 5.1)}, {seen("a", "cct", 4), seen("b", "cct", 4.5)}}, 13,
			"narrow enough; the widest interval is that of cct of b: ±4.5 %, for a bound of ±5 %; no interval of fct"},
		{"at the last", [][]Seen{{seen("a", "cct", 9)}, {seen("a", "cct", 9)}, {seen("a", "cct", 8)}}, 30,
			"it was the last look; the widest interval is that of cct of a: ±8.0 %"},
		{"without pairs", [][]Seen{{seen("a", "fct", 0)}, {seen("a", "fct", 0)}, {seen("a", "fct", 0)}}, 30,
			"it was the last look; the widest interval is that of fct of a: fewer than 8 independent pairs, for"},
		{"void", [][]Seen{nil}, 5, "no arm can be compared with the baseline; no interval of cct; no interval of fct"},
	} {
		l := NewLooks([]int{5, 13, 30}, until)
		for i, all := range tt.looks {
			if more := l.Look(all); more == (i == len(tt.looks)-1) {
				t.Errorf("%s: look %d: more repeats: %v", tt.name, i, more)
			}
		}
		if l.Repeats != tt.repeats || l.Made != len(tt.looks) || !strings.Contains(l.Why, tt.why) || !strings.Contains(l.String(), l.Why) {
			t.Errorf("%s: %v, want %d repeats, %s", tt.name, l, tt.repeats, tt.why)
		}
		again := *l
		if again.Resume(l.Repeats); again.Repeats != l.Repeats || again.Made != l.Made-1 || again.Why != "" {
			t.Errorf("%s: resumed at %d repeats: %+v", tt.name, l.Repeats, again)
		}
	}
}

// With two and three looks, intervals leave out 5 %/2 and 5 %/3: of normal deviates, z is 2.241 and 2.394.
func TestLooksWidenIntervals(t *testing.T) {
	for at, want := range map[int]float64{0: 1.95996, 2: 2.24140, 3: 2.39398} {
		var l *Looks
		if at > 0 {
			l = NewLooks(make([]int, at), nil)
		}
		if z := student(1e9, l.tail()); math.Abs(z-want) > 1e-4 {
			t.Errorf("%d looks: z = %.5f, want %.5f", at, z, want)
		}
	}
	flows, _ := runs{run: 0.03, coflow: 0.08, flow: 0.2}.draw(22, 5, rand.New(rand.NewPCG(1, 2)))
	blocks := []Block{{flows[0], flows[1]}}
	fixed, looked := PairBlocks(blocks, 1, nil, nil), PairBlocks(blocks, 1, nil, NewLooks([]int{5, 13, 30}, nil))
	inside := func(a, b Interval) bool { return b.Low < a.Low && a.High < b.High }
	if !inside(fixed.MeanRatioCI, looked.MeanRatioCI) || !inside(fixed.GeoMeanCI, looked.GeoMeanCI) || !inside(fixed.MedianCI, looked.MedianCI) {
		t.Errorf("%+v\nwith looks %+v", fixed, looked)
	}
}

// With normal deviates of 1 % of a cluster, 4 % of a repeat and a large effect, the number of repeats is that at which
// the effect is half of the interval and the deviation with a probability of 20 %, and grows with looks.
func TestRepeatsByHand(t *testing.T) {
	v := Variances{Clusters: 1e6, Within: 0, Runs: 0.0016, Freedom: 1e6}
	// n = 5: (2.776 + 0.941) 4 %/√5 = 6.65 %; n = 4: (3.182 + 0.978) 4 %/2 = 8.32 %. With three looks,
	// n = 5: (3.961 + 0.941) 4 %/√5 = 8.77 %; n = 6: (3.534 + 0.920) 4 %/√6 = 7.27 %.
	for _, tt := range []struct {
		log  float64
		at   []int
		most int
		want int
	}{{0.0667, nil, 100, 5}, {0.0831, nil, 100, 5}, {0.0834, nil, 100, 4}, {0.0665, nil, 4, 0}, {0.0834, []int{5, 13, 30}, 100, 6}} {
		var l *Looks
		if tt.at != nil {
			l = NewLooks(tt.at, nil)
		}
		if got := v.RepeatsFor(math.Exp(tt.log), nil, l, tt.most); got != tt.want {
			t.Errorf("effect %.4f, %d looks: %d repeats, want %d", tt.log, len(tt.at), got, tt.want)
		}
	}
	v.Items = 0.01 // more repeats do not help
	if got := v.RepeatsFor(1.1, nil, nil, 100); got != 0 {
		t.Errorf("%d repeats show 10 %% of items that differ by 10 %%", got)
	}
}

// At the number of repeats that a first run of five names for an effect of 10 %, other runs show it in 80 % or more. 90 % or
// more of first runs name one, of 30 or less on average. The bound of 80 % was stated before the
// first measurement, the others after it.
func TestPlannedRepeats(t *testing.T) {
	longtest.Skip(t, "computes intervals of 400 drawn comparisons, 5 s")
	longtest.Computes(t)
	const draws, most = 100, 100
	for _, looks := range []*Looks{nil, NewLooks([]int{5, 13, 30}, nil)} {
		var found, named, sum int
		for d := range draws {
			p := runs{run: 0.04, coflow: 0.1, flow: 0.2}
			_, pilot := p.draw(22, 5, rand.New(rand.NewPCG(uint64(d), 5)))
			n := Pair(pilot[0], pilot[1], uint64(d), nil).Variances.RepeatsFor(1.1, nil, looks, most)
			if n == 0 {
				continue
			}
			named, sum = named+1, sum+n
			p.effect = math.Log(1.1)
			_, ccts := p.draw(22, n, rand.New(rand.NewPCG(uint64(d), 6)))
			if PairBlocks([]Block{{ccts[0], ccts[1]}}, uint64(d), nil, looks).GeoMeanCI.Low > 1 {
				found++
			}
		}
		t.Logf("looks %v: found in %d of %d, at %d repeats on average", looks != nil, found, named, sum/named)
		if found*10 < named*8 || named < draws*9/10 || sum > 30*named {
			t.Errorf("looks %v: found in %d of %d, in %d repeats", looks != nil, found, named, sum)
		}
	}
}
