package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/summary"
	"testbed/results/verdict"
	"testbed/topo/units"
	"testbed/workloads"
)

// placedRun has two arms of one repeat with twenty jobs in two bins; the second arm is
// twice as fast and moves 1.6 times the bytes of block writes.
func placedRun(fluid bool) Input {
	in := Input{RunID: "placed", Scenario: "placed", FluidModel: fluid, Seed: 3}
	asked := metrics.WorkloadMeta{Heartbeat: 250 * ms, Background: []workloads.CoflowID{50}}
	for j := 1; j <= 20; j++ {
		asked.Jobs = append(asked.Jobs, metrics.AskedJob{Job: workloads.JobID(j), Bin: 1 + j%2*4})
		asked.Writers = append(asked.Writers, metrics.AskedWriter{Writer: workloads.WriterID(j), Job: workloads.JobID(j), Blocks: []workloads.BlockID{workloads.BlockID(2 * j), workloads.BlockID(2*j + 1)}})
	}
	for i, name := range []string{"hdfs", "sinbad"} {
		speed := time.Duration(i + 1)
		r := flows.Records{Coflows: []flows.CoflowRecord{{Coflow: 50, Width: 1, Size: units.GB, End: time.Hour}}}
		for b := 2; b <= 41; b++ {
			at := time.Duration(b) * time.Second
			r.Blocks = append(r.Blocks, flows.BlockRecord{Block: workloads.BlockID(b), Client: "h0-00", Hosts: []string{"h0-00", "h1-00"}, Size: units.MB,
				Requested: at, Waited: 100 * ms, End: at + time.Duration(600+10*b)*ms/speed})
		}
		asked.Join(&r)
		disk := 0.02 / float64(speed)
		rep := summary.Repeat{Records: r, Verdict: pass(), Placement: &metrics.Placement{CrossRack: metrics.CrossRack{All: 1e9 + 1e6*(1+0.6*float64(i)), Writes: 1e6 * (1 + 0.6*float64(i))}, Disk: &disk,
			Balance: &metrics.Balance{Interval: 250 * ms, Links: 4, Samples: []metrics.BalanceSample{{From: 0, Cv: 0.8}, {From: time.Second, Cv: 0.9 - 0.3*float64(i)}, {From: 2 * time.Second, Cv: 1.2}}},
			Bounds:  metrics.Bounds{Blocks: 40, Lone: 200 * ms, Fluid: 250 * ms}}}
		in.Arms = append(in.Arms, Arm{Name: name, Repeats: []summary.Repeat{rep}})
	}
	return in
}

func value(a metrics.Average) float64 {
	x, _ := a.Value()
	return x
}

func TestPlacement(t *testing.T) {
	for _, fluid := range []bool{false, true} {
		r, err := New(placedRun(fluid))
		if err != nil {
			t.Fatal(err)
		}
		base, arm := r.Summary.Arms[0], r.Summary.Arms[1]
		if base.CCT != nil {
			t.Errorf("the background coflow is in an average: %+v", base.CCT)
		}
		if base.JobTime.N != 20 || base.RequestTime.N != 20 || base.JobBins["1"].N != 10 || base.JobBins["5"].N != 10 || len(base.JobBins) != 2 {
			t.Errorf("%d jobs, %d requests, bins %v", base.JobTime.N, base.RequestTime.N, base.JobBins)
		}
		// A request has two blocks, a second apart: it waits 0.1 s, and its second block ends
		// 1 s plus its write time after the placement of the first.
		want := 0.0
		for j := 1; j <= 20; j++ {
			want += 0.1 + 1 + 0.6 + 0.01*float64(2*j+1)
		}
		if got := base.RequestTime.MeanUS / 1e6; math.Abs(got-want/20) > 1e-6 || base.JobTime.MeanUS != base.RequestTime.MeanUS {
			t.Errorf("request time %v s, job time %v µs, want %v s", got, base.JobTime.MeanUS, want/20)
		}
		if p := arm.JobBins["5"].Paired; p == nil || p.Pairs != 10 || p.MeanRatio <= 1 || *arm.JobBins["5"].Speedup != p.MeanRatio {
			t.Errorf("speed-up of bin 5: %+v", p)
		}
		if got := arm.WriteTime.Paired.GeoMean; got != 2 {
			t.Errorf("write time: %v, want twice as fast: waits are not of it", got)
		}
		p := arm.Placement
		if p.Cv.N != 3 || p.Cv.Median != 0.8 || base.Placement.Cv.Median != 0.9 || p.Cv.Interval != 250_000 || value(p.DiskImbalance) != 0.01 || value(p.Wait) != 100_000 {
			t.Errorf("%+v, Cv %+v", p, p.Cv)
		}
		if b := base.Placement.Bounds; value(b.Lone) != 200_000 || math.Abs(value(b.OverLone)-base.WriteTime.MeanUS/200_000) > 1e-5 || math.Abs(value(b.OverFluid)-base.WriteTime.MeanUS/250_000) > 1e-5 {
			t.Errorf("bounds %+v, write time %v", b, base.WriteTime.MeanUS)
		}
		const why = "1.60 times the baseline's block-write bytes between racks"
		if len(base.Placement.NotLikeForLike) != 0 || len(p.NotLikeForLike) != 1 || p.NotLikeForLike[0] != why {
			t.Errorf("not like for like: %q and %q, want %q", base.Placement.NotLikeForLike, p.NotLikeForLike, why)
		}
		var term, md, page, head bytes.Buffer
		for _, err := range []error{r.Terminal(&term), r.Markdown(&md), r.Page(&page, noFigures), r.HeadlineCSV(&head)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		for form, text := range map[string]string{"terminal": term.String(), "markdown": md.String(), "page": page.String()} {
			text = strings.Join(strings.Fields(text), " ")
			for _, want := range []string{"Job time by bin", "Write request time", "Block placement", "≠ sinbad is not like for like with hdfs: 1.60 times the baseline", "2.00 %"} {
				if !strings.Contains(strings.ReplaceAll(text, "&#39;", "'"), want) {
					t.Errorf("%s: no %q", form, want)
				}
			}
		}
		rows, err := csv.NewReader(&head).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, row := range rows[1:] {
			if row[0] == "sinbad" {
				keys = append(keys, row[1])
			}
		}
		if got := strings.Join(keys, " "); got != "write_time request_time job_time job_time_by_bin.1 job_time_by_bin.5" {
			t.Errorf("headline has %q", got)
		}
	}
}

// The figures of a void arm are withheld, and its placement is not compared.
func TestPlacementOfVoidArm(t *testing.T) {
	in := placedRun(false)
	in.Arms[1].Repeats[0].Verdict = verdict.Of(verdict.Check{Name: "capture-drops", Level: verdict.Void, Value: "17", Pass: "0", Void: "> 0"})
	r, err := New(in)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(r.Summary.Arms[1])
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"placement", "job_time", "request_time", "write_time"} {
		if strings.Contains(string(b), `"`+key) {
			t.Errorf("a void arm has %q: %s", key, b)
		}
	}
	var term bytes.Buffer
	if err := r.Terminal(&term); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(term.String(), "≠") {
		t.Errorf("a void arm is compared:\n%s", term.String())
	}
}
