package htmlreport

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/samples"
	"testbed/topo"
	"testbed/workloads"
)

// sampledFile writes samples of 15 s of all links and of two flows: those of the n-th arm differ.
func sampledFile(t testing.TB, f *topo.Fabric, n int) string {
	path := filepath.Join(t.TempDir(), samples.File)
	w := samples.Create(path, 1<<20)
	for k := range int64(300) {
		at := time.Duration(k) * 50 * ms
		add := func(object, metric string, value int64) {
			w.Add(samples.Sample{At: at, Object: object, Metric: metric, Value: value})
		}
		add(samples.Links, samples.Look, 0)
		for id := range f.Links() {
			link := f.LinkName(topo.LinkID(id))
			add(link, samples.SentBytes, k*int64(100_000+1000*id))
			add(link, samples.Dropped, k/10*int64(n+1))
			add(link, samples.QueueBytes, 1514*(k*int64(id+n)%40))
		}
		for flow := range workloads.FlowID(2) {
			o := samples.FlowObject(flow)
			add(o, samples.RTT, 20_000+1000*(k%17)*int64(n+1))
			add(o, samples.Window, 10+k%20)
			add(o, samples.DeliveryRate, 1_000_000*(1+k%7))
			add(o, samples.Retransmitted, k/5)
		}
	}
	head := samples.Head{Zero: time.Unix(1000, 0), Sample: 50 * ms}
	for id, l := range f.Links() {
		head.Links = append(head.Links, samples.Link{Name: f.LinkName(topo.LinkID(id)), Rate: l.Rate})
	}
	if err := w.Close(head); err != nil {
		t.Fatal(err)
	}
	return path
}

// A bin has the least and the largest of the values in it; one without a reading keeps the value before it.
func TestBinsKeepLeastAndLargest(t *testing.T) {
	at := func(k int) time.Duration { return time.Duration(k) * time.Second }
	b := binned{bin: 10 * time.Second, bins: 6}
	b.add(at(12), at(12), 5)
	b.add(at(13), at(13), 1)
	b.add(at(38), at(38), 7)
	b.add(at(41), at(55), 3) // over two bins
	b.add(at(70), at(70), 9) // after the end
	if d := cmp.Diff(lohis{1, []int64{1, 1, 7, 3, 3}, []int64{5, 1, 7, 3, 3}}, b.values()); d != "" {
		t.Error(d)
	}
	c := binned{bin: 10 * time.Second, bins: 3}
	c.count(at(1), 2)
	c.count(at(9), 1)
	c.count(at(25), 4)
	if d := cmp.Diff(lohis{0, nil, []int64{3, 0, 4}}, c.values()); d != "" {
		t.Error(d)
	}
}

// Values in the page are exact below 64², and have an error of at most half a step above.
func TestEncodingOfBins(t *testing.T) {
	for _, c := range []struct {
		in   lohis
		want string
	}{
		{lohis{3, nil, []int64{0, 1, 63, 64, 4095}}, `{"from":3,"step":1,"hi":"AAABA/BA//"}`},
		{lohis{0, []int64{0, 2}, []int64{4096, 3}}, `{"from":0,"step":2,"lo":"AAAB","hi":"gAAC"}`},
	} {
		if got, err := json.Marshal(c.in); err != nil || string(got) != c.want {
			t.Errorf("%+v: %s, %v, want %s", c.in, got, err, c.want)
		}
	}
}

// UnmarshalText reads what MarshalText wrote.
func (p *path) UnmarshalText(text []byte) error {
	*p = nil
	for ; len(text) > 3; text = text[4:] {
		pair := 0
		for _, digit := range text[:4] {
			pair = pair*len(packedDigits) + strings.IndexByte(packedDigits, digit)
		}
		*p = append(*p, pair/(progressShares+1), pair%(progressShares+1))
	}
	return nil
}

// A path is read as it was written.
func TestEncodingOfPaths(t *testing.T) {
	want := path{0, 0, 1, 999, 5000, 250, progressTimes, progressShares}
	b, err := json.Marshal(want)
	if err != nil || len(b) != 2+2*len(want) {
		t.Fatalf("%s, %v", b, err)
	}
	var got path
	if err := json.Unmarshal(b, &got); err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
}

func seriesOf(t *testing.T, d *Data) (*series, []string) {
	t.Helper()
	v := viewsOf(t, d)
	return v.charts.Series, v.Left["series"]
}

// Times of samples count from the start of the trial, those of records from the first arrival.
func TestSeriesShareTheAxisOfRecords(t *testing.T) {
	d := data(t, "a", "b")
	s, _ := seriesOf(t, &d)
	if got := len(s.Groups); got != 3 || s.Groups[0].ID != "link" || s.Groups[1].ID != "flow" || s.Groups[2].ID != "task" {
		t.Fatalf("%d groups: %+v", got, s.Groups)
	}
	d.Fabric = fabric(t)
	if m := d.flowMetrics()[2]; m.ID != "delivery" || m.Most != 2*float64(d.Fabric.Link(d.Fabric.HostUp(0)).Rate) || flowMetrics[2].Most != 0 {
		t.Errorf("the axis of %s ends at %v", m.ID, m.Most)
	}
	before := s.Groups[1].Runs[0].Values[0][0]
	for i := range d.Arms {
		d.Arms[i].Faults = []Mark{{3 * time.Second, "spine-down spine0"}, {4 * time.Second, "of " + d.Arms[i].Name}}
		for k := range d.Arms[i].Repeats {
			d.Arms[i].Repeats[k].Zero = time.Unix(998, 0) // two seconds before the samples
		}
	}
	s, _ = seriesOf(t, &d)
	after := s.Groups[1].Runs[0].Values[0][0]
	if want := int(2e6 / s.BinUS); before.From != 0 || after.From != want {
		t.Errorf("the first bins are %d and %d, want 0 and %d", before.From, after.From, want)
	}
	var marks []seriesMark
	for _, m := range s.Marks {
		if m.Repeat == 0 {
			marks = append(marks, m)
		}
	}
	if want := []seriesMark{{0, 5e6, 1}, {0, 6e6, 2}, {0, 6e6, 3}}; !slices.Equal(marks, want) ||
		!slices.Equal(s.Faults, []string{"spine-down spine0", "of a", "of b"}) {
		t.Errorf("the faults %q are marked at %v, want %v", s.Faults, marks, want)
	}
}

// The page of a run of any length has a bounded number of values, and says what it leaves out.
func TestSeriesAreBounded(t *testing.T) {
	d := data(t, strings.Split("abcdefghijkl", "")...)
	for i := range d.Arms {
		for len(d.Arms[i].Repeats) <= maxSeriesRepeats {
			d.Arms[i].Repeats = append(d.Arms[i].Repeats, d.Arms[i].Repeats[0])
		}
	}
	s, left := seriesOf(t, &d)
	values := 0
	for _, g := range s.Groups[:2] {
		if len(g.Objects) > maxSeriesObjects {
			t.Errorf("%d objects of group %s", len(g.Objects), g.ID)
		}
		for _, r := range g.Runs {
			for _, object := range r.Values {
				for _, v := range object {
					values += len(v.Low) + len(v.High)
				}
			}
		}
	}
	if values == 0 || values > maxSeriesValues {
		t.Errorf("%d values, want at most %d", values, maxSeriesValues)
	}
	all := strings.Join(left, "\n")
	if !strings.Contains(all, "12 of 56 links are on this page") || !strings.Contains(all, "the first 3 of 4 repeats") {
		t.Errorf("left out: %s", all)
	}
}

// Attempts count with the share of a bin in which they run.
func TestTasksInProgress(t *testing.T) {
	attempt := func(kind string, from, to time.Duration) flows.AttemptRecord {
		return flows.AttemptRecord{Kind: kind, Start: from * time.Second, End: to * time.Second}
	}
	d := Data{Arms: []Arm{{Name: "a", Repeats: []Repeat{{
		Records: flows.Records{Attempts: []flows.AttemptRecord{attempt("map", 0, 10), attempt("map", 5, 20), attempt("reduce", 15, 30)}},
		Slots:   &metrics.TaskSlots{Hosts: 4, Map: 2, Reduce: 1},
	}}}}}
	g := d.taskSeries(10*time.Second, 3)
	if !slices.Equal(g.Runs[0].Values[0][0].High, []int64{15, 10, 0}) || !slices.Equal(g.Runs[0].Values[1][0].High, []int64{0, 5, 10}) {
		t.Errorf("in tenths of tasks: %+v", g.Runs)
	}
	if !slices.Equal(g.Limits, []int{8, 4}) {
		t.Errorf("slots: %v", g.Limits)
	}
}

// A damaged file is an error that names it, not a page without charts.
func TestDamagedSamples(t *testing.T) {
	d := data(t, "a", "b")
	d.Arms[1].Repeats[0].Samples = "none.parquet"
	if _, err := newViews(&d); err == nil || !strings.Contains(err.Error(), "none.parquet") {
		t.Errorf("%v", err)
	}
}
