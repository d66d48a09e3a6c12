package compare

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"testbed/emu/longtest"
	"testbed/results/metrics"
	"testbed/results/verdict"
)

func TestParseGate(t *testing.T) {
	for text, want := range map[string]Gate{
		"cct > 3%":                   {CCT, true, 3},
		" job_time_by_bin.2<-2.5 % ": {JobTimeIn(2), false, -2.5},
		"job_slowdown>+0%":           {JobSlowdown, true, 0},
	} {
		if got, err := ParseGate(text); err != nil || got != want {
			t.Errorf("ParseGate(%q) = %v, %v, want %v", text, got, err, want)
		}
	}
	for text, want := range map[string]string{
		"":                     "column 1: expected a metric",
		"ctc > 3%":             "column 1: expected a metric: cct, fct",
		"cct >= 3%":            "column 6: expected a number of percent",
		"cct = 3%":             "column 5: expected > or <",
		"cct > 3":              "column 8: expected %",
		"cct > 3% or more":     "column 10: expected the end",
		"job_time_by_bin > 3%": "column 1: expected a metric",
	} {
		if _, err := ParseGate(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ParseGate(%q): %v, want %q", text, err, want)
		}
	}
}

// Eight pairs whose average changes by −50 %, and by +100 % the other way round, with intervals of no width.
func TestGateByHand(t *testing.T) {
	slow := arm("slow", verdict.Pass, 2*sec, 2*sec, 2*sec, 2*sec, 2*sec, 2*sec, 2*sec, 2*sec)
	fast := arm("fast", verdict.Pass, sec, sec, sec, sec, sec, sec, sec, sec)
	short := arm("short", verdict.Pass, sec, sec, sec, sec, sec, sec, sec)
	lacks := arm("lacks", verdict.Pass, append(eight(2*sec), sec)...)
	void := arm("void", verdict.Void, sec)
	for _, tt := range []struct {
		gate      string
		base, arm Arm
		want      GateOutcome
	}{
		{"cct > 99.9%", fast, slow, Failed},
		{"cct > 100%", fast, slow, Passed},
		{"cct < 0%", fast, slow, Passed},
		{"cct < -49.9%", slow, fast, Failed},
		{"cct < -50%", slow, fast, Passed},
		{"cct > 3%", slow, short, Undecided},
		{"cct > 3%", slow, void, Undecided},
		{"fct > 3%", slow, fast, Undecided},
		{"cct > 3%", slow, lacks, Undecided}, // a coflow of the same repeat that only one arm completed
		{"cct > 3%", fast, lacks, Failed},
	} {
		g, err := ParseGate(tt.gate)
		if err != nil {
			t.Fatal(err)
		}
		r := result(t, Input{Pairs: []Pairing{{tt.base, tt.arm}}, Gates: []Gate{g}})
		if got := r.Gates[0]; got.Outcome != tt.want || (got.Why == "") != (got.Outcome != Undecided) {
			t.Errorf("%s, %s compared with %s: %+v, want %s", tt.gate, tt.arm.Name, tt.base.Name, got, tt.want)
		}
	}
}

func eight(d time.Duration) []time.Duration { return []time.Duration{d, d, d, d, d, d, d, d} }

// drawn returns arms of coflows that run in some repeats of some seeds. Identical arms differ by deviations of
// 8 % of a coflow in a run and of 2 % of all coflows of a run; the second is slower by a factor.
func drawn(rng *rand.Rand, seeds, coflows, repeats int, slower float64) Pairing {
	var sides [2][]Pooled
	for seed := range seeds {
		pair := [2]Arm{arm("base", verdict.Pass), arm("arm", verdict.Pass)}
		for r := range repeats {
			common := [2]float64{0.02 * rng.NormFloat64(), 0.02*rng.NormFloat64() + math.Log(slower)}
			for c := range coflows {
				size := 1 + float64(c*c)/10 // in every repeat
				for k := range pair {
					at := time.Duration(size * float64(sec) * math.Exp(common[k]+0.08*rng.NormFloat64()))
					pair[k].Items[CCT] = append(pair[k].Items[CCT], Item{Item: metrics.Item{Repeat: r, ID: c, Cluster: c, Time: at}, Size: 1})
				}
			}
		}
		for k := range pair {
			sides[k] = append(sides[k], Pooled{Arm: pair[k], Workload: seed})
		}
	}
	return Pairing{Pool(sides[0]), Pool(sides[1])}
}

// Of 200 comparisons of identical arms, the gate cct > 0% fails in at most 5 %, and so of pooled seeds. Of arms that are
// slower by 10 %, cct > 0% fails in 80 % or more: with 22 coflows, 5 repeats or 5 seeds, and the noise of drawn. The
// bounds were stated before the first measurement.
func TestGateErrors(t *testing.T) {
	longtest.Skip(t, "computes intervals of 1,200 drawn comparisons, 5 s")
	longtest.Computes(t)
	g := Gate{Metric: CCT, Above: true}
	for _, tt := range []struct {
		name           string
		seeds, repeats int
	}{{"repeats", 1, 5}, {"seeds", 5, 1}, {"repeats of seeds", 3, 2}} {
		failed := [2]int{}
		for d := range 200 {
			for k, slower := range []float64{1, 1.1} {
				rng := rand.New(rand.NewPCG(uint64(d), uint64(k)))
				r := result(t, Input{Seed: uint64(d), Pairs: []Pairing{drawn(rng, tt.seeds, 22, tt.repeats, slower)}, Gates: []Gate{g}})
				if r.Gates[0].Outcome == Failed {
					failed[k]++
				}
			}
		}
		t.Logf("%s: of 200 identical pairs %d fail, of 200 that are 10 %% slower %d", tt.name, failed[0], failed[1])
		if failed[0] > 10 || failed[1] < 160 {
			t.Errorf("%s: of 200 identical pairs %d fail, want 10 or fewer; of 200 that are 10 %% slower %d, want 160 or more", tt.name, failed[0], failed[1])
		}
	}
}

// Of 200 comparisons of identical arms whose repeats stop at a look, at most 5 % are significant in either direction, by
// either statistic at the look at which they stop. Of arms that are slower by 10 %, the gate cct > 0% fails in 80 % or
// more. The bounds were stated before the first measurement.
func TestLooksErrors(t *testing.T) {
	longtest.Skip(t, "computes intervals of 400 drawn comparisons at up to three looks, 10 s")
	longtest.Computes(t)
	g := Gate{Metric: CCT, Above: true}
	red, failed, stops := 0, 0, map[int]int{}
	for d := range 200 {
		for k, slower := range []float64{1, 1.1} {
			l := metrics.NewLooks([]int{5, 13, 30}, map[string]float64{"cct": 3})
			var pair Pairing
			for more := true; more; {
				pair = drawn(rand.New(rand.NewPCG(uint64(d), uint64(k))), 1, 22, l.Repeats, slower)
				x := metrics.PairBlocks(blocks(pair.Base.Items[CCT], pair.Arm.Items[CCT]), uint64(d), nil, l)
				more = l.Look([]metrics.Seen{{Arm: "arm", Key: "cct", Paired: x}})
			}
			r := result(t, Input{Seed: uint64(d), Pairs: []Pairing{pair}, Gates: []Gate{g}, Looks: l})
			f := r.Comparisons[0].Figures[0]
			if slower > 1 {
				if r.Gates[0].Outcome == Failed {
					failed++
				}
				continue
			}
			stops[l.Repeats]++
			if f.MeanRatio.Outcome != NoneYet || f.GeoMean.Outcome != NoneYet {
				red++
			}
		}
	}
	t.Logf("of 200 identical pairs %d are significant, of 200 that are 10 %% slower %d fail; stops by repeats %v", red, failed, stops)
	if red > 10 || failed < 160 || len(stops) < 2 {
		t.Errorf("of 200 identical pairs %d are significant, want 10 or fewer; of 200 that are 10 %% slower %d fail, want 160 or more; stops %v",
			red, failed, stops)
	}
}

// A pool of one seed on two machines has the clusters of the seed; a pool of two seeds has those of both.
func TestPoolClusters(t *testing.T) {
	times := []time.Duration{sec, sec, sec, sec, sec, sec, sec, sec}
	of := func(second int) Arm {
		return Pool([]Pooled{{Arm: arm("a", verdict.Pass, times...)}, {Arm: arm("a", verdict.Degraded, times...), Workload: second}})
	}
	for second, clusters := range []int{8, 16} {
		p := Pairing{of(second), of(second)}
		if f := result(t, Input{Pairs: []Pairing{p}}).Comparisons[0].Figures[0]; f.Pairs != 16 || f.Clusters != clusters || f.Repeats != 2 || f.Unpaired != 0 || p.Arm.Level != verdict.Degraded {
			t.Errorf("second of workload %d: %+v, %v, want 16 pairs of %d clusters in 2 repeats", second, f, p.Arm.Level, clusters)
		}
	}
}
