package workloads

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/topo/units"
)

func parse(t testing.TB, text string) *Trace {
	t.Helper()
	trace, err := ParseTrace("t", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

// write returns a trace in the flows format, without the first line.
func write(t testing.TB, trace *Trace) string {
	t.Helper()
	var b strings.Builder
	if err := WriteTraceAs(&b, trace, FormatFlows); err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(b.String(), "\n")
	return text
}

func TestScale(t *testing.T) {
	trace := parse(t, "4 2\n1 10 2 0 1 2 2:8.0 3:0.000005\n2 105 1 3 1 3:5.0\n")
	got, err := trace.Scale(Factor{1, 3}, Factor{1, 10})
	if err != nil {
		t.Fatal(err)
	}
	// Arrivals remain whole milliseconds, and sizes are rounded up to a millionth.
	if want := "4 2\n1 1 2 0 1 2 2:2.666667 3:0.000002\n2 10 1 3 1 3:1.666667\n"; write(t, got) != want {
		t.Errorf("scaled:\n%swant\n%s", write(t, got), want)
	}
	flows, err := parseLines("t", strings.NewReader("3 1\n1 0.5 2 0 2 1 1 10 5\n"), true)
	if err != nil {
		t.Fatal(err)
	}
	if got, err = flows.Scale(Factor{1, 4}, Factor{1, 3}); err != nil {
		t.Fatal(err)
	}
	if want := "3 1\n1 0.166666 2 0 2 1 1 3 2\n"; write(t, got) != want {
		t.Errorf("scaled flows:\n%swant\n%s", write(t, got), want)
	}
	for _, tt := range []struct {
		size, times Factor
		want        string
	}{
		{Factor{-1, 1}, Factor{}, "scale of sizes: factor -1/1"},
		{Factor{}, Factor{1, 0}, "scale of times: factor 1/0"},
		{Factor{10_000_000, 1}, Factor{}, "coflow 1: 10000000.000001 MB: must be more than 0 and at most 10000000.0"},
		{Factor{}, Factor{1 << 60, 1}, "arrivals times 1152921504606846976 are out of range"},
	} {
		if _, err := trace.Scale(tt.size, tt.times); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("Scale(%v, %v): error %v, want %q", tt.size, tt.times, err, tt.want)
		}
	}
}

func TestFold(t *testing.T) {
	trace := parse(t, "6 3\n1 0 3 0 2 4 2 1:9.0 3:3.0\n2 0 3 0 1 2 1 5:6.0\n3 0 1 1 1 0:1.0\n")
	for _, tt := range []struct {
		ports int
		want  string
	}{
		// Three mappers on port 0 become one; two of three on port 0 send twice as much.
		{2, "2 3\n1 0 1 0 1 1:12.0\n2 0 2 0 1 1 1 4.0 2.0\n3 0 1 1 1 0:1.0\n"},
		{4, "4 3\n1 0 2 0 2 2 1 6.0 3.0 3 2.0 1.0\n2 0 3 0 1 2 1 1:6.0\n3 0 1 1 1 0:1.0\n"},
		{6, "6 3\n1 0 3 0 2 4 2 1:9.0 3:3.0\n2 0 3 0 1 2 1 5:6.0\n3 0 1 1 1 0:1.0\n"},
		{9, "9 3\n1 0 3 0 2 4 2 1:9.0 3:3.0\n2 0 3 0 1 2 1 5:6.0\n3 0 1 1 1 0:1.0\n"},
	} {
		got, err := trace.Fold(tt.ports)
		if err != nil {
			t.Errorf("%d ports: %v", tt.ports, err)
		} else if text := write(t, got); text != tt.want {
			t.Errorf("%d ports:\n%swant\n%s", tt.ports, text, tt.want)
		}
	}
	for _, n := range []int{0, -1, MaxTracePorts + 1} {
		if _, err := trace.Fold(n); err == nil || !strings.Contains(err.Error(), "must be 1 to 100000") {
			t.Errorf("%d ports: %v", n, err)
		}
	}
}

// Folding keeps ids, arrivals and, except for rounding up, bytes. Every pair of ports gets the
// bytes of the pairs that map to it.
func TestFoldConserves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		trace := anyTrace(t, rapid.Bool().Draw(t, "in bytes"))
		n := rapid.IntRange(1, 9).Draw(t, "ports")
		got, err := trace.Fold(n)
		if err != nil {
			t.Fatal(err)
		}
		if got.Ports != n || len(got.Coflows) != len(trace.Coflows) {
			t.Fatalf("%d ports, %d coflows, want %d, %d", got.Ports, len(got.Coflows), n, len(trace.Coflows))
		}
		for k, c := range got.Coflows {
			was := trace.Coflows[k]
			want, have := map[[2]int]float64{}, map[[2]int]float64{}
			for _, x := range []struct {
				c  TraceCoflow
				to map[[2]int]float64
			}{{was, want}, {c, have}} {
				for i, src := range x.c.Mappers {
					for j, r := range x.c.Reducers {
						if size, over := x.c.Flow(i, j); size > 0 {
							x.to[[2]int{src % n, r.Port % n}] += float64(size) / float64(over)
						}
					}
				}
			}
			if c.ID != was.ID || c.Arrival != was.Arrival || len(want) != len(have) {
				t.Fatalf("coflow %+v was %+v", c, was)
			}
			for pair, size := range want {
				if have[pair] < size-1e-3 || have[pair] > size+2 {
					t.Fatalf("coflow %d: %v has %v, want %v", c.ID, pair, have[pair], size)
				}
			}
		}
	})
}

func TestFilter(t *testing.T) {
	trace := parse(t, `4 5
1 0 2 0 1 2 2:8.0 3:4.0
2 100 1 3 1 3:5.0
5 300 1 0 1 1:60.0
9 1300 2 0 2 1 1:2.0
12 1400 2 2 3 2 2:3.0 3:1.0
`)
	ids := func(s string) []IDRange {
		r, err := ParseIDs(s)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, tt := range []struct {
		name string
		f    TraceFilter
		want []CoflowID
	}{
		{"all", TraceFilter{}, []CoflowID{1, 2, 5, 9, 12}},
		{"first", TraceFilter{First: 2}, []CoflowID{1, 2}},
		{"ids", TraceFilter{IDs: ids("2,5..10")}, []CoflowID{2, 5, 9}},
		{"first of ids", TraceFilter{IDs: ids("2,5..10"), First: 2}, []CoflowID{2, 5}},
		{"bins", TraceFilter{Bins: []Bin{LongNarrow, LongWide}}, []CoflowID{5}},
		{"width", TraceFilter{MinWidth: 2, MaxWidth: 3}, []CoflowID{9}},
		{"size", TraceFilter{MinSize: 5 * megabyte, MaxSize: 12 * megabyte}, []CoflowID{1, 2}},
		{"arrival", TraceFilter{From: 100 * time.Millisecond, Until: 1300 * time.Millisecond}, []CoflowID{2, 5}},
		{"no local", TraceFilter{NoLocal: true}, []CoflowID{1, 5, 9, 12}},
		{"no local, and their width", TraceFilter{NoLocal: true, MaxWidth: 2}, []CoflowID{5, 9, 12}},
	} {
		got, err := trace.Filter(tt.f)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		var have []CoflowID
		for _, c := range got.Coflows {
			have = append(have, c.ID)
		}
		if diff := cmp.Diff(tt.want, have); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
	got, err := trace.Filter(TraceFilter{NoLocal: true, IDs: ids("9,12"), Rebase: true})
	if err != nil {
		t.Fatal(err)
	}
	// Without 2 → 2 and 3 → 3, port 2 sends only to 3, and 3 only to 2.
	if want := "4 2\n9 0 2 0 2 1 1:2.0\n12 100 2 2 3 2 2 0 1.5 3 0.5 0\n"; write(t, got) != want {
		t.Errorf("without local flows:\n%swant\n%s", write(t, got), want)
	}
	for _, tt := range []struct {
		name string
		f    TraceFilter
		want string
	}{
		{"nothing left", TraceFilter{MinWidth: 9}, "trace t: no coflow passes the filter"},
		{"id", TraceFilter{IDs: ids("1,3")}, "no coflow 3: trace t has 1 to 12"},
		{"ids", TraceFilter{IDs: ids("20..30")}, "no coflow of 20 to 30: trace t has 1 to 12"},
		{"first", TraceFilter{First: -1}, "first -1 coflows"},
		{"width", TraceFilter{MinWidth: 3, MaxWidth: 2}, "widths of 3 to 2 flows"},
		{"size", TraceFilter{MinSize: 3, MaxSize: 2}, "sizes of 0.000003 to 0.000002 MB"},
		{"arrival", TraceFilter{From: 3, Until: 2}, "arrivals from 3ns until 2ns"},
	} {
		if _, err := trace.Filter(tt.f); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
	for _, s := range []string{"", "x", "1,", "3..2", "..4", "-1", "99999999999", "1..2..3"} {
		if got, err := ParseIDs(s); err == nil {
			t.Errorf("ParseIDs(%q) = %v, want an error", s, got)
		}
	}
	for _, s := range []string{"", "XX", "S"} {
		if got, err := ParseBin(s); err == nil {
			t.Errorf("ParseBin(%q) = %v, want an error", s, got)
		}
	}
	if b, err := ParseBin("lw"); b != LongWide || err != nil {
		t.Errorf("ParseBin(lw) = %v, %v", b, err)
	}
}

// Removing local flows keeps exactly the others.
func TestFilterLocal(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		trace := anyTrace(t, rapid.Bool().Draw(t, "in bytes"))
		got, err := trace.Filter(TraceFilter{NoLocal: true})
		left := map[CoflowID]TraceCoflow{}
		if err == nil {
			for _, c := range got.Coflows {
				left[c.ID] = c
			}
		}
		for _, c := range trace.Coflows {
			sizes := map[[2]int]float64{}
			for _, x := range []struct {
				c    TraceCoflow
				sign float64
			}{{c, -1}, {left[c.ID], 1}} {
				for i, src := range x.c.Mappers {
					for j, r := range x.c.Reducers {
						size, over := x.c.Flow(i, j)
						if size > 0 && (src != r.Port || x.sign > 0) {
							sizes[[2]int{src, r.Port}] += x.sign * float64(size) / float64(over)
						}
					}
				}
			}
			for pair, extra := range sizes {
				if pair[0] == pair[1] || extra < -1e-3 || extra > 1+1e-3 {
					t.Fatalf("coflow %d: flow %v differs by %v: %+v became %+v (%v)", c.ID, pair, extra, c, left[c.ID], err)
				}
			}
		}
	})
}

// Different sizes of flows are kept on the fabric.
func TestReplayFlows(t *testing.T) {
	trace, err := parseLines("t", strings.NewReader("6 1\n3 0 3 0 2 1 2 1 1000 0 7 5 30 40 50\n"), true)
	if err != nil {
		t.Fatal(err)
	}
	// On 2 hosts the even ports map to host 0, the odd ones to host 1.
	got, report, err := Replay(trace, fabric(t, 1, 2), ReplayOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Coflow{{ID: 3, Flows: []Flow{{0, 0, 1, 1000 + 30 + 40}}}}, got); diff != "" {
		t.Errorf("merged (-want +got):\n%s", diff)
	}
	if report.TraceFlows != 5 || report.TraceSize != 1127 || report.LocalFlows != 2 || report.LocalSize != 57 || report.Merged != 2 {
		t.Errorf("report %+v", report)
	}
	got, report, err = Replay(trace, fabric(t, 1, 2), ReplayOptions{Split: true, Size: Factor{1, 3}, MB: units.MiB})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Coflow{{ID: 3, Flows: []Flow{{0, 0, 1, 334}, {1, 0, 1, 10}, {2, 0, 1, 14}}}}, got); diff != "" {
		t.Errorf("split, a third (-want +got):\n%s", diff)
	}
	if report.Flows != 3 || report.LocalFlows != 2 {
		t.Errorf("report %+v", report)
	}
}

// A trace whose flows do not add up to the reducer's size is not written.
func TestCheckFlows(t *testing.T) {
	for _, tt := range []struct {
		flows []Megabytes
		want  string
	}{
		{[]Megabytes{4}, "reducer's port 1: 1 flows from 2 mappers"},
		{[]Megabytes{4, 4}, "reducer's port 1: flows of 0.000008 MB or more in total: expected 0.000007"},
		{[]Megabytes{4, 2}, "reducer's port 1: flows of 0.000006 MB in total: expected 0.000007"},
		{[]Megabytes{8, -1}, "reducer's port 1: flows of 0.000008 MB or more"},
		{[]Megabytes{7, 0}, "mapper's port 2 sends nothing"},
	} {
		trace := &Trace{Name: "t", Ports: 3, Coflows: []TraceCoflow{{Mappers: []int{0, 2}, Reducers: []TraceReducer{{Port: 1, Size: 7, Flows: tt.flows}}}}}
		var b strings.Builder
		if err := WriteTraceAs(&b, trace, FormatFlows); err == nil || !strings.Contains(err.Error(), tt.want) || b.Len() > 0 {
			t.Errorf("flows %v: wrote %q, error %v, want %q", tt.flows, b.String(), err, tt.want)
		}
	}
}
