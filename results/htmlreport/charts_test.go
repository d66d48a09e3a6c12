package htmlreport

import (
	"encoding/base64"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/results/flows"
	"testbed/topo/units"
	"testbed/workloads"
)

func TestUnion(t *testing.T) {
	s := func(from, to time.Duration) flows.Span { return flows.Span{From: from, To: to} }
	for _, tt := range []struct {
		name string
		in   []flows.Span
		most int
		want []flows.Span
	}{
		{"none", nil, 3, nil},
		{"apart, out of order", []flows.Span{s(5, 6), s(1, 2)}, 3, []flows.Span{s(1, 2), s(5, 6)}},
		{"one in another, and touching", []flows.Span{s(1, 9), s(2, 3), s(9, 10)}, 3, []flows.Span{s(1, 10)}},
		{"the shortest gap goes", []flows.Span{s(0, 1), s(4, 5), s(6, 7), s(20, 21)}, 3, []flows.Span{s(0, 1), s(4, 7), s(20, 21)}},
		{"to one", []flows.Span{s(0, 1), s(4, 5), s(6, 7)}, 1, []flows.Span{s(0, 7)}},
	} {
		if diff := cmp.Diff(tt.want, union(tt.in, tt.most)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		var in []flows.Span
		var covered [200]bool
		for range rapid.IntRange(0, 30).Draw(t, "spans") {
			from := rapid.IntRange(0, 150).Draw(t, "from")
			to := from + rapid.IntRange(0, 40).Draw(t, "length")
			in = append(in, s(time.Duration(from), time.Duration(to)))
			for k := from; k < to; k++ {
				covered[k] = true
			}
		}
		most := rapid.IntRange(1, 10).Draw(t, "most")
		got := union(in, most)
		if len(got) > most {
			t.Fatalf("%d spans, want at most %d", len(got), most)
		}
		var out [200]bool
		for i, x := range got {
			if i > 0 && x.From <= got[i-1].To {
				t.Fatalf("spans %v and %v are not apart", got[i-1], x)
			}
			for k := x.From; k < x.To; k++ {
				out[k] = true
			}
		}
		for k := range covered {
			if covered[k] && !out[k] {
				t.Fatalf("%d is covered no more", k)
			}
		}
	})
}

// The curve of many items goes through their quantiles and ends at the longest.
func TestCDFThins(t *testing.T) {
	d := Data{Arms: []Arm{{Name: "a", Repeats: []Repeat{{}}}}}
	for i := range 5000 {
		d.Arms[0].Repeats[0].Records.Coflows = append(d.Arms[0].Repeats[0].Records.Coflows, flows.CoflowRecord{Coflow: workloads.CoflowID(i), End: time.Duration(5000-i) * time.Second})
	}
	c := d.cdfs()
	if len(c) != 1 || c[0].ID != "cct" || c[0].Curves[0].N != 5000 || len(c[0].Curves[0].Times) != maxCDFPoints {
		t.Fatalf("curves %+v", c)
	}
	for k, x := range c[0].Curves[0].Times {
		if want := float64(5*(k+1)) * 1e6; x != want {
			t.Fatalf("point %d at %v µs, want %v: the share of items up to it is %d of %d", k, x, want, k+1, maxCDFPoints)
		}
	}
}

func TestLoads(t *testing.T) {
	f := fabric(t)
	up := f.LeafUp(0, 0)
	// 10 ms of 10 Mbps are 12,500 bytes.
	series := flows.LinkSeries{Link: up, Name: "leaf0>spine0", Rate: 10 * units.Mbps, Interval: 10 * time.Millisecond, Bytes: []units.Bytes{12500, 0, 6250}}
	other := flows.LinkSeries{Link: f.LeafUp(0, 1), Name: "leaf0>spine1", Rate: 10 * units.Mbps, Interval: 10 * time.Millisecond, Bytes: []units.Bytes{12500}}
	d := Data{Arms: []Arm{{Name: "a", Repeats: []Repeat{{Fabric: f, Links: []flows.LinkSeries{series, other}}}}}}
	b, ok := d.gather()
	if !ok || b.bin != b.interval {
		t.Fatalf("bins %+v, %v", b, ok)
	}
	l := d.loads(b)
	if diff := cmp.Diff([]float64{0.5, 0.3333}, l.Runs[0].Mean); diff != "" {
		t.Errorf("means (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]float64{1, 1}, l.Runs[0].Peak); diff != "" {
		t.Errorf("peaks (-want +got):\n%s", diff)
	}
	cells, err := base64.StdEncoding.DecodeString(l.Runs[0].Loads[0])
	if diff := cmp.Diff([]byte{loadSteps, 0, loadSteps / 2}, cells); err != nil || diff != "" {
		t.Errorf("cells, %v (-want +got):\n%s", err, diff)
	}
	// Equal loads, no traffic, and one of two: Cv 0, none and 1.
	cv := d.balances()
	if len(cv) != 2 || cv[0].ID != "all" || cv[1].ID != "up" {
		t.Fatalf("balance %+v", cv)
	}
	v := cv[0].Curves[0].Values
	if len(v) != 3 || v[0] == nil || *v[0] != 0 || v[1] != nil || v[2] == nil || math.Abs(*v[2]-1) > 1e-9 {
		t.Errorf("Cv %v, want 0, none and 1", v)
	}
	// The last bin of two intervals has one interval.
	b.bin = 2 * b.interval
	if l := d.loads(b); l.Runs[0].Bins != 2 {
		t.Errorf("%d bins, want 2", l.Runs[0].Bins)
	} else if cells, _ := base64.StdEncoding.DecodeString(l.Runs[0].Loads[0]); cells[0] != loadSteps/2 || cells[1] != loadSteps/2 {
		t.Errorf("cells %v, want both %d", cells, loadSteps/2)
	}
}

func TestSpeedups(t *testing.T) {
	rec := func(times ...time.Duration) Repeat {
		var r Repeat
		for i, x := range times {
			if x > 0 {
				r.Records.Coflows = append(r.Records.Coflows, flows.CoflowRecord{Coflow: workloads.CoflowID(i), Size: units.Bytes(i + 1), End: x})
			}
		}
		return r
	}
	d := Data{Arms: []Arm{{Name: "base", Repeats: []Repeat{rec(4*time.Second, 2*time.Second, time.Second)}}, {Name: "x", Repeats: []Repeat{rec(time.Second, 4*time.Second, 0, time.Second)}}}}
	want := []speedups{{Arm: 1, N: 2, Pair: []pair{{0.5, 2, 1, 0}, {4, 1, 0, 0}}}}
	if diff := cmp.Diff(want, d.speedups()); diff != "" {
		t.Errorf("speed-ups (-want +got):\n%s", diff)
	}
}

// Drops of a link are summed over repeats; one estimate makes the sum an estimate.
func TestDropsOfLinks(t *testing.T) {
	f := fabric(t)
	rep := func(drops int, counted bool) Repeat {
		return Repeat{Fabric: f, Links: []flows.LinkSeries{{Link: f.LeafUp(0, 0), Name: "leaf0>spine0", Rate: 10 * units.Mbps, Interval: 10 * time.Millisecond,
			Bytes: []units.Bytes{12500}, Drops: drops, Counted: counted}}}
	}
	d := Data{Arms: []Arm{{Name: "counted", Repeats: []Repeat{rep(300, true), rep(29, true)}}, {Name: "mixed", Repeats: []Repeat{rep(1, true), rep(2, false)}}}}
	v := &views{Left: map[string][]string{}}
	v.links(&d)
	if v.Loads == nil || len(v.Loads.Rows) != 1 {
		t.Fatalf("%+v", v.Loads)
	}
	got := map[string]string{}
	arm := ""
	for i, head := range v.Loads.Head {
		if name, ok := strings.CutSuffix(head, ": mean"); ok {
			arm = name
		}
		if head == "drops" {
			got[arm] = v.Loads.Rows[0][i].Text
		}
	}
	if diff := cmp.Diff(map[string]string{"counted": "329", "mixed": "≈3"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
