package compare

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"testbed/results/metrics"
	tables "testbed/results/table"
	"testbed/results/verdict"
	"testbed/topo/units"
)

// arm returns an arm with one coflow per time, in repeat 0, of 1 MB times its number.
func arm(name string, level verdict.Level, times ...time.Duration) Arm {
	a := Arm{Name: name, Level: level, Items: map[Metric][]Item{}}
	for i, d := range times {
		a.Items[CCT] = append(a.Items[CCT], Item{Item: metrics.Item{ID: i + 1, Cluster: i + 1, Time: d}, Size: units.Bytes(i+1) * units.MB})
	}
	return a
}

func result(t testing.TB, in Input) *Result {
	t.Helper()
	r, err := New(in)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const sec = time.Second

// Eight pairs worked by hand: ratios 2 (seven times) and 4; times of the base sum to
// 14+8 = 22 s, those of the arm to 7+2 = 9 s.
func TestByHand(t *testing.T) {
	base := arm("fair", verdict.Pass, 2*sec, 2*sec, 2*sec, 2*sec, 2*sec, 2*sec, 2*sec, 8*sec)
	fast := arm("sebf", verdict.Pass, sec, sec, sec, sec, sec, sec, sec, 2*sec, 5*sec) // the ninth is unpaired
	r := result(t, Input{Pairs: []Pairing{{base, fast}, {fast, base}, {base, base}}})
	f := r.Comparisons[0].Figures[0]
	if f.Metric != CCT || f.Pairs != 8 || f.Clusters != 8 || f.Unpaired != 1 || len(r.Comparisons[0].Figures) != 1 {
		t.Errorf("%+v", f)
	}
	geo := math.Round(1e6*math.Exp2(9.0/8)) / 1e6 // (7·1 + 1·2)/8 in log2
	if f.MeanRatio.Value != 2.444444 || f.MedianRatio.Value != 2 || f.GeoMean.Value != geo {
		t.Errorf("ratios %v, %v, %v, want 2.444444, 2, %v", f.MeanRatio.Value, f.MedianRatio.Value, f.GeoMean.Value, geo)
	}
	// Medians of resamples lie between 2 and 4. The intervals of the other statistics also
	// account for values beyond the seven equal ones.
	for _, e := range []Estimate{f.MeanRatio, f.MedianRatio, f.GeoMean} {
		if e.CI.Low > e.Value || e.CI.High < e.Value || e.CI.Low < 1.5 || e.CI.High > 8 || e.Outcome != Faster {
			t.Errorf("%+v", e)
		}
	}
	if f.MedianRatio.CI.Low < 2 || f.MedianRatio.CI.High > 4 {
		t.Errorf("%+v", f.MedianRatio)
	}
	if back := r.Comparisons[1].Figures[0]; back.MeanRatio.Outcome != Slower || math.Abs(back.GeoMean.Value*geo-1) > 1e-5 {
		t.Errorf("the other way round: %+v", back)
	}
	same := r.Comparisons[2].Figures[0]
	if same.MeanRatio != (Estimate{metrics.Estimate{Value: 1, CI: metrics.Interval{Low: 1, High: 1}}, NoneYet}) || same.GeoMean != same.MeanRatio || same.MedianRatio != same.MeanRatio {
		t.Errorf("an arm against itself: %+v", same)
	}
	var b bytes.Buffer
	if err := r.Terminal(&b, tables.Style{}); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(b.String()), " ")
	for _, want := range []string{"faster than fair, coflow by coflow (geometric mean); ratio of averages 2.44× [1.81, ", "slower than sebf, coflow by coflow (geometric mean); ratio of averages 2.44× [1.81, ", "CCT: fair compared with fair: not significant.", "Unpaired coflows"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

// Seven items, or seven items in many repeats, are too few.
func TestTooFew(t *testing.T) {
	base, fast := arm("a", verdict.Pass, sec, sec, sec, sec, sec, sec, sec), arm("b", verdict.Pass, sec/2, sec/2, sec/2, sec/2, sec/2, sec/2, sec/2)
	for repeat := range 4 {
		for i := range 7 {
			x, y := base.Items[CCT][i], fast.Items[CCT][i]
			x.Repeat, y.Repeat = repeat+1, repeat+1
			base.Items[CCT], fast.Items[CCT] = append(base.Items[CCT], x), append(fast.Items[CCT], y)
		}
	}
	f := result(t, Input{Pairs: []Pairing{{base, fast}}}).Comparisons[0].Figures[0]
	if f.Pairs != 35 || f.Clusters != 7 || f.MeanRatio.Outcome != TooFew || f.GeoMean.Outcome != TooFew || f.MeanRatio.Value != 2 || f.GeoMean.CI.Known() {
		t.Errorf("%+v", f)
	}
	r := result(t, Input{Pairs: []Pairing{{base, fast}}})
	var forms bytes.Buffer
	if err := errors.Join(r.Terminal(&forms, tables.Style{Width: 200}), r.Markdown(&forms), r.CSV(&forms), json.NewEncoder(&forms).Encode(r)); err != nil {
		t.Fatal(err)
	}
	if text := forms.String(); strings.Contains(text, "× [") || strings.Contains(text, `"ci":[`) || strings.Count(text, metrics.FewPairs) < 8 || strings.Count(text, metrics.FewPairsMark) < 6 {
		t.Errorf("an interval of 7 items, or no word of why there is none:\n%s", text)
	}
	none := result(t, Input{Pairs: []Pairing{{arm("a", verdict.Pass, sec), Arm{Name: "b", Level: verdict.Pass}}}}).Comparisons[0].Figures[0]
	if none.Pairs != 0 || none.Unpaired != 1 || none.GeoMean.Outcome != TooFew {
		t.Errorf("nothing in common: %+v", none)
	}
}

// For 200 pairs of arms with equal distributions, the interval includes 1 in 90 % or more;
// with a true ratio of 1.5 and 30 items it never does.
func TestCoverage(t *testing.T) {
	alike, missed := 0, 0
	for d := range 200 {
		rng := rand.New(rand.NewPCG(uint64(d), 4))
		draw := func(name string, sizes []float64, over float64) Arm {
			var times []time.Duration
			for _, s := range sizes {
				times = append(times, time.Duration(s*math.Exp(0.25*rng.NormFloat64())/over*float64(sec)))
			}
			return arm(name, verdict.Pass, times...)
		}
		sizes := make([]float64, 30)
		for i := range sizes {
			sizes[i] = math.Exp(rng.NormFloat64())
		}
		base := draw("base", sizes, 1)
		r := result(t, Input{Seed: uint64(d), Pairs: []Pairing{{base, draw("same", sizes, 1)}, {base, draw("fast", sizes, 1.5)}}})
		if r.Comparisons[0].Figures[0].GeoMean.Outcome == NoneYet {
			alike++
		}
		if r.Comparisons[1].Figures[0].GeoMean.Outcome != Faster {
			missed++
		}
	}
	t.Logf("not significant in %d of 200 equal pairs; missed %d of 200 with a ratio of 1.5", alike, missed)
	if alike < 180 || alike == 200 || missed > 0 {
		t.Errorf("not significant in %d of 200 equal pairs, want 180 or more and not all; missed %d with a ratio of 1.5, want none", alike, missed)
	}
}

func TestVoidIsRefused(t *testing.T) {
	times := []time.Duration{sec, sec, sec, sec, sec, sec, sec, sec}
	void := arm("starved", verdict.Void, times...)
	void.Why = []string{"repeat 0: capture-drops is void: 17 packets"}
	degraded := arm("late", verdict.Degraded, times...)
	degraded.Why = []string{"repeat 0: stall is degraded: 60 ms"}
	base := arm("fair", verdict.Pass, times...)
	r := result(t, Input{Runs: []Run{{ID: "r1", Backend: "packets"}}, Pairs: []Pairing{{base, void}, {base, degraded}}})
	if !r.Void() || len(r.Comparisons[0].Figures) != 0 || !strings.Contains(r.Comparisons[0].Refused, "starved is void") || r.Comparisons[1].Refused != "" {
		t.Errorf("%+v", r.Comparisons)
	}
	for name, write := range map[string]func(*bytes.Buffer) error{
		"terminal": func(b *bytes.Buffer) error { return r.Terminal(b, tables.Style{}) },
		"markdown": func(b *bytes.Buffer) error { return r.Markdown(b) },
		"csv":      func(b *bytes.Buffer) error { return r.CSV(b) },
	} {
		var b bytes.Buffer
		if err := write(&b); err != nil {
			t.Fatal(err)
		}
		want := []string{"starved", "void", "late", "degraded"}
		if name != "csv" {
			want = append(want, "capture-drops is void: 17 packets", "degraded [2]", "relative to fair (pass)")
		}
		for _, w := range want {
			if !strings.Contains(b.String(), w) {
				t.Errorf("%s: no %q in\n%s", name, w, &b)
			}
		}
	}
	only := result(t, Input{Pairs: []Pairing{{void, base}}})
	var b bytes.Buffer
	if err := only.Terminal(&b, tables.Style{}); err != nil || !strings.Contains(b.String(), "are not compared") {
		t.Errorf("%v\n%s", err, &b)
	}
}

// Items with the same number and different sizes are refused.
func TestMismatch(t *testing.T) {
	base, other := arm("a", verdict.Pass, sec, sec), arm("b", verdict.Pass, sec, sec)
	other.Run, base.Run = "B", "A"
	other.Items[CCT][1].Size = units.KB
	_, err := New(Input{Pairs: []Pairing{{base, other}}})
	var bad *MismatchError
	if !errors.As(err, &bad) || bad.ID != 2 || !strings.Contains(err.Error(), "coflow 2 of repeat 0 has 2MB in A a and 1KB in B b") {
		t.Errorf("error %v", err)
	}
	if _, err := New(Input{}); err == nil || !strings.Contains(err.Error(), "nothing to compare") {
		t.Errorf("error %v", err)
	}
}

// All formats have the same numbers, and the terminal tables fit.
func TestFormsAgree(t *testing.T) {
	base := arm("fair+hdfs", verdict.Pass, 2*sec, 3*sec, 2*sec, 5*sec, 2*sec, 2*sec, 2*sec, 8*sec, 3*sec)
	fast := arm("sebf+with-a-very-long-name-of-a-policy-and-its-parameters", verdict.Degraded, sec, 2*sec, 3*sec, sec, sec, sec, sec, 2*sec)
	base.Run, fast.Run = "A", "B"
	r := result(t, Input{Runs: []Run{{Label: "A", ID: "a-1", Backend: "packets"}, {Label: "B", ID: "b-2", Backend: "packets"}}, Notes: []string{"the kernel differs: 6.1 in A, 6.2 in B"},
		Pairs: []Pairing{{base, fast}}})
	var text, wide, markdown, table, data bytes.Buffer
	if err := errors.Join(r.Terminal(&text, tables.Style{}), r.Terminal(&wide, tables.Style{Width: 300}), r.Markdown(&markdown), r.CSV(&table), json.NewEncoder(&data).Encode(r)); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(text.String()) {
		if w := tables.Width(strings.TrimSuffix(line, "\n")); w > tables.DefaultWidth {
			t.Errorf("%d columns: %s", w, line)
		}
	}
	var back struct {
		Comparisons []struct {
			Figures []map[string]any
		}
	}
	if err := json.Unmarshal(data.Bytes(), &back); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&table).ReadAll()
	if err != nil || len(rows) != 2 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	cell := map[string]string{}
	for i, h := range rows[0] {
		cell[h] = rows[1][i]
	}
	f := back.Comparisons[0].Figures[0]
	for _, k := range []string{"pairs", "clusters", "unpaired"} {
		if got, err := strconv.ParseFloat(cell[k], 64); err != nil || got != f[k] {
			t.Errorf("%s: %q in CSV, %v in JSON", k, cell[k], f[k])
		}
	}
	for _, k := range []string{"mean_ratio", "median", "geo_mean"} {
		e := f[k].(map[string]any)
		ci := e["ci"].([]any)
		for h, want := range map[string]any{k: e["value"], k + "_low": ci[0], k + "_high": ci[1]} {
			if got, err := strconv.ParseFloat(cell[h], 64); err != nil || got != want {
				t.Errorf("%s: %q in CSV, %v in JSON", h, cell[h], want)
			}
		}
		if cell[k+"_outcome"] != e["outcome"] {
			t.Errorf("%s: %q in CSV, %v in JSON", k+"_outcome", cell[k+"_outcome"], e["outcome"])
		}
		shown := metrics.Estimate{Value: e["value"].(float64), CI: metrics.Interval{Low: ci[0].(float64), High: ci[1].(float64)}}.String()
		for name, form := range map[string]string{"terminal": wide.String(), "markdown": markdown.String()} {
			if !strings.Contains(form, shown) {
				t.Errorf("no %q in the %s:\n%s", shown, name, form)
			}
		}
	}
}

// Jobs are compared together, by bin and by size, and arms that transfer different amounts between
// racks are marked in every format.
func TestJobsAndLikeForLike(t *testing.T) {
	job := func(name string, over int, writes float64) Arm {
		a := Arm{Name: name, Level: verdict.Pass, Items: map[Metric][]Item{}, CrossRack: &metrics.CrossRack{All: 100 + writes, Writes: writes}, Frames: true}
		for i := range 20 {
			x := Item{Item: metrics.Item{ID: i, Cluster: i, Time: time.Duration(20+i) * sec / time.Duration(over)}, Size: units.MB}
			a.Items[JobTime] = append(a.Items[JobTime], x)
			a.Items[JobTimeIn(1+i%2*4)] = append(a.Items[JobTimeIn(1+i%2*4)], x)
			a.Items[JobTimeOf(1+i%2*600)] = append(a.Items[JobTimeOf(1+i%2*600)], x)
		}
		return a
	}
	base, fast, wide := job("hdfs", 1, 20), job("v2", 2, 20.9), job("v1", 2, 34)
	r := result(t, Input{Pairs: []Pairing{{base, fast}, {base, wide}}})
	var got []string
	for _, f := range r.Comparisons[0].Figures {
		got = append(got, string(f.Metric))
		if f.GeoMean.Value != 2 || f.GeoMean.Outcome != Faster || f.Pairs != map[Metric]int{JobTime: 20}[f.Metric] && f.Pairs != 10 {
			t.Errorf("%s: %+v", f.Metric, f)
		}
	}
	if want := "job_time job_time_by_bin.1 job_time_by_bin.5 job_time_by_tasks.1 job_time_by_tasks.501"; strings.Join(got, " ") != want {
		t.Errorf("figures of %q, want %q", got, want)
	}
	if n := r.Comparisons[0].NotLikeForLike; n != nil {
		t.Errorf("5 %% apart: %q", n)
	}
	const why = "1.70 times the baseline's block-write bytes between racks"
	if n := r.Comparisons[1].NotLikeForLike; len(n) != 2 || n[0] != why {
		t.Errorf("not like for like: %q", n)
	}
	var term, md, table bytes.Buffer
	if err := errors.Join(r.Terminal(&term, tables.Style{}), r.Markdown(&md), r.CSV(&table)); err != nil {
		t.Fatal(err)
	}
	for form, text := range map[string]string{"terminal": term.String(), "markdown": md.String()} {
		text = strings.Join(strings.Fields(text), " ")
		for _, want := range []string{"Job time, bin 5", "Job time, 501 or more tasks", "≠ v1 is not like for like with hdfs: " + why} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q in\n%s", form, want, text)
			}
		}
		if strings.Contains(text, "≠ v2") {
			t.Errorf("%s marks v2", form)
		}
	}
	rows, err := csv.NewReader(&table).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if last := rows[len(rows)-1]; rows[0][len(last)-2] != "not_like_for_like" || !strings.HasPrefix(last[len(last)-2], why) || rows[1][len(last)-2] != "" {
		t.Errorf("rows %q", rows)
	}
	// Frames are not comparable with payload.
	fluid := job("v1", 2, 34)
	fluid.Frames, fluid.Level = false, 0
	if c := result(t, Input{Pairs: []Pairing{{base, fluid}}}).Comparisons[0]; c.NotLikeForLike != nil {
		t.Errorf("packets against fluid: %q", c.NotLikeForLike)
	}
}

// The noise of the machine widens intervals of packets, not of the fluid model, and is
// stated; without a calibration it is stated as unknown.
func TestNoise(t *testing.T) {
	noise := &metrics.Noise{Pairs: 40, Total: map[string]metrics.Deviations{"cct": {GeoMean: 0.25}}, Between: map[string]metrics.Deviations{"cct": {MeanRatio: 0.2, Median: 0.2, GeoMean: 0.2}}}
	times := []time.Duration{sec, 2 * sec, 3 * sec, 4 * sec, 5 * sec, 6 * sec, 7 * sec, 8 * sec, 9 * sec}
	half := make([]time.Duration, len(times))
	for i, d := range times {
		half[i] = d/2 + time.Duration(i)*sec/100
	}
	for _, level := range []verdict.Level{verdict.Pass, 0} {
		pairs := []Pairing{{arm("a", level, times...), arm("b", level, half...)}}
		bare, with := result(t, Input{Pairs: pairs}), result(t, Input{Pairs: pairs, Noise: noise})
		a, b := bare.Comparisons[0].Figures[0].GeoMean.CI, with.Comparisons[0].Figures[0].GeoMean.CI
		if wider := b.Low < 0.8*a.Low && b.High > 1.2*a.High; wider != (level != 0) || level == 0 && a != b {
			t.Errorf("verdict %d: %v with noise, %v without", level, b, a)
		}
		for r, want := range map[*Result]string{bare: "Intervals are valid for these runs only.", with: "CCT 25.0 %. Intervals are widened"} {
			var out bytes.Buffer
			if err := r.Terminal(&out, tables.Style{Width: 500}); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(out.String(), want) != (level != 0) {
				t.Errorf("verdict %d: %q in\n%s", level, want, out.String())
			}
		}
	}
}
