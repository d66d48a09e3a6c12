package workloads

import (
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/topo"
	"testbed/topo/units"
)

func fabric(t testing.TB, leaves, hostsPerLeaf int) *topo.Fabric {
	t.Helper()
	f, err := topo.LeafSpine{
		Leaves: leaves, Spines: 2, HostsPerLeaf: hostsPerLeaf, HostLink: 50 * units.Mbps,
		Oversubscription: units.Ratio{Num: 5, Den: 1}, Queue: topo.Queue{Time: 20 * time.Millisecond}, MTU: 1500,
	}.Build()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestPortHost(t *testing.T) {
	f := fabric(t, 4, 5)
	var got []string
	for _, port := range []int{0, 1, 2, 3, 4, 19, 20, 149} {
		got = append(got, f.HostName(PortHost(f, port)))
	}
	want := []string{"h0-00", "h1-00", "h2-00", "h3-00", "h0-01", "h3-04", "h0-00", "h1-02"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("hosts of the ports (-want +got):\n%s", diff)
	}
	seen := map[topo.HostID]bool{}
	for port := range f.Hosts() {
		seen[PortHost(f, port)] = true
	}
	if len(seen) != f.Hosts() {
		t.Errorf("%d ports use %d hosts, want all", f.Hosts(), len(seen))
	}
}

// On 1 × 2 hosts the even ports map to host 0, the odd ones to host 1.
const replayTrace = `6 4
3 0 3 0 2 1 1 5:3.0
5 10 2 1 3 2 0:1.0 2:2.0
6 20 2 0 2 1 4:9.0
9 30 1 0 2 1:0.5 2:0.000001
`

func TestReplay(t *testing.T) {
	trace, err := ParseTrace("t", strings.NewReader(replayTrace))
	if err != nil {
		t.Fatal(err)
	}
	ms := time.Millisecond
	third := Factor{1, 3}
	for _, tt := range []struct {
		name   string
		o      ReplayOptions
		want   []Coflow
		report ReplayReport
	}{
		{
			name: "merged, MB of 10⁶, a third",
			o:    ReplayOptions{MB: units.MB, Size: third, Time: Factor{1, 10}},
			want: []Coflow{
				{ID: 3, Flows: []Flow{{0, 0, 1, 666_667}}}, // 2 of 3 mappers
				{ID: 5, Arrival: ms, Flows: []Flow{{1, 1, 0, 1_000_000}}},
				{ID: 9, Arrival: 3 * ms, Flows: []Flow{{2, 0, 1, 166_667}}},
			},
			report: ReplayReport{
				Ports: 6, Hosts: 2, TraceCoflows: 4, TraceFlows: 11, TraceSize: 666_667 + 333_334 + 1_000_000 + 3_000_000 + 166_667 + 1,
				Coflows: 3, Flows: 3, Size: 666_667 + 1_000_000 + 166_667, Last: 3 * ms,
				LocalFlows: 1 + 2 + 1, LocalSize: 333_334 + 3_000_000 + 1, Empty: []CoflowID{6}, Merged: 1 + 3, MB: units.MB,
			},
		},
		{
			name: "split, MB of 2²⁰, unscaled, the first two",
			o:    ReplayOptions{Split: true, First: 2, MB: units.MiB},
			want: []Coflow{
				{ID: 3, Flows: []Flow{{0, 0, 1, 1 << 20}, {1, 0, 1, 1 << 20}}},
				{ID: 5, Arrival: 10 * ms, Flows: []Flow{{2, 1, 0, 1 << 19}, {3, 1, 0, 1 << 20}, {4, 1, 0, 1 << 19}, {5, 1, 0, 1 << 20}}},
			},
			report: ReplayReport{
				Ports: 6, Hosts: 2, TraceCoflows: 2, TraceFlows: 7, TraceSize: 6 << 20,
				Coflows: 2, Flows: 6, Size: 5 << 20, Last: 10 * ms, LocalFlows: 1, LocalSize: 1 << 20, MB: units.MiB,
			},
		},
	} {
		got, report, err := Replay(trace, fabric(t, 1, 2), tt.o)
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
			continue
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s: coflows (-want +got):\n%s", tt.name, diff)
		}
		if diff := cmp.Diff(tt.report, report); diff != "" {
			t.Errorf("%s: report (-want +got):\n%s", tt.name, diff)
		}
	}
	_, report, err := Replay(trace, fabric(t, 1, 2), ReplayOptions{MB: units.MB})
	want := "3 coflows of 3 flows and 5.5MB, the last at 30ms (6 ports on 2 hosts; omitted 4 flows of 10000.001KB inside a host and 1 coflows without other flows; merged 4 flows into others between the same hosts; 1 MB is 10⁶ bytes)"
	if err != nil || report.String() != want {
		t.Errorf("report reads %q, %v, want %q", report, err, want)
	}
}

func TestReplayErrors(t *testing.T) {
	trace, err := ParseTrace("t", strings.NewReader(replayTrace))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name string
		o    ReplayOptions
		want string
	}{
		{"too many", ReplayOptions{First: 5}, "first 5 coflows of trace t: it has 4"},
		{"negative", ReplayOptions{First: -1}, "first -1 coflows"},
		{"MB", ReplayOptions{MB: 7}, "a MB of 7 bytes"},
		{"size factor", ReplayOptions{Size: Factor{-1, 1}}, "scale of sizes: factor -1/1"},
		{"time factor", ReplayOptions{Time: Factor{1, 0}}, "scale of times: factor 1/0"},
		{"too many flows", ReplayOptions{Split: true, MaxFlows: 5}, "coflow 5: too many flows: more than 5 up to this coflow"},
		{"size overflow", ReplayOptions{Size: Factor{math.MaxInt64, 1}}, "coflow 3: sizes times 9223372036854775807 do not fit"},
		{"time overflow", ReplayOptions{Time: Factor{math.MaxInt64, 1}}, "coflow 5: arrival 10ms times 9223372036854775807 does not fit"},
	} {
		if _, _, err := Replay(trace, fabric(t, 1, 2), tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q", tt.name, err, tt.want)
		}
	}
}

// TestReplayConserves checks on random traces that no bytes are lost or duplicated, except by
// rounding up, which adds less than a byte per flow.
func TestReplayConserves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ports := rapid.IntRange(1, 12).Draw(t, "ports")
		trace := &Trace{Name: "t", Ports: ports}
		list := rapid.SliceOfNDistinct(rapid.IntRange(0, ports-1), 1, ports, rapid.ID[int])
		for i := range rapid.IntRange(1, 4).Draw(t, "coflows") {
			c := TraceCoflow{ID: CoflowID(i), Mappers: list.Draw(t, "mappers")}
			for _, port := range list.Draw(t, "reducers") {
				c.Reducers = append(c.Reducers, TraceReducer{Port: port, Size: Megabytes(rapid.Int64Range(1, 1e12).Draw(t, "size"))})
			}
			trace.Coflows = append(trace.Coflows, c)
		}
		shape := topo.LeafSpine{
			Leaves: rapid.IntRange(1, 3).Draw(t, "leaves"), HostsPerLeaf: rapid.IntRange(1, 3).Draw(t, "hosts"), Spines: 1, HostLink: units.Mbps,
			Oversubscription: units.Ratio{Num: 1, Den: 1}, Queue: topo.Queue{Bytes: units.KB}, MTU: 1500,
		}
		f, err := shape.Build()
		if err != nil {
			t.Fatal(err)
		}
		o := ReplayOptions{
			MB: units.MB, Split: rapid.Bool().Draw(t, "split"),
			Size: Factor{rapid.Int64Range(1, 9).Draw(t, "num"), rapid.Int64Range(1, 1e6).Draw(t, "den")},
		}
		coflows, r, err := Replay(trace, f, o)
		if err != nil {
			t.Fatal(err)
		}
		exact := new(big.Rat)
		flows := 0
		for _, c := range trace.Coflows {
			exact.Add(exact, big.NewRat(int64(c.Size()), 1))
			flows += c.Width()
		}
		exact.Mul(exact, big.NewRat(o.Size.Num, o.Size.Den))
		total, _ := exact.Float64()
		if extra := float64(r.TraceSize) - total; extra < -1e-3*total || extra > float64(flows)+1e-9*total {
			t.Errorf("%d bytes of %v: want at most one more a flow, of %d flows", r.TraceSize, total, flows)
		}
		if r.TraceFlows != flows || r.Flows+r.Merged+r.LocalFlows != flows || r.Size+r.LocalSize != r.TraceSize {
			t.Errorf("report does not add up for %d flows: %+v", flows, r)
		}
		if len(coflows)+len(r.Empty) != len(trace.Coflows) || len(coflows) != r.Coflows {
			t.Errorf("%d coflows replayed, %d empty, of %d", len(coflows), len(r.Empty), len(trace.Coflows))
		}
		next := FlowID(0)
		size := units.Bytes(0)
		for _, c := range coflows {
			pairs := map[[2]topo.HostID]bool{}
			for _, fl := range c.Flows {
				pair := [2]topo.HostID{fl.Src, fl.Dst}
				if fl.ID != next || fl.Src == fl.Dst || fl.Size < 1 || !o.Split && pairs[pair] {
					t.Errorf("coflow %d: flow %+v: want id %d, two ends, a byte and each pair of hosts once", c.ID, fl, next)
				}
				pairs[pair] = true
				next++
			}
			size += c.Size()
		}
		if size != r.Size || int(next) != r.Flows {
			t.Errorf("%d flows of %v, the report has %d of %v", next, size, r.Flows, r.Size)
		}
	})
}

func TestReplayFacebook(t *testing.T) {
	trace, _ := facebookTrace(t)
	coflows, r, err := Replay(trace, fabric(t, 15, 10), ReplayOptions{MB: units.MiB})
	if err != nil {
		t.Fatal(err)
	}
	// With one host per port only flows inside a rack of the trace are excluded: 4,911 flows
	// of 243,936 MB.
	if r.TraceFlows != 706_397 || r.LocalFlows != 4_911 || r.LocalSize != 243_936*units.MiB || r.Merged != 0 || len(coflows)+len(r.Empty) != 526 {
		t.Errorf("replay on 150 hosts: %+v", r)
	}
}

func TestParseFactor(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want Factor
		out  string
	}{
		{"1/100", Factor{1, 100}, "1/100"}, {"0.01", Factor{1, 100}, "1/100"}, {"2", Factor{2, 1}, "2"}, {"10/4", Factor{5, 2}, "5/2"}, {"1.50", Factor{3, 2}, "3/2"},
	} {
		got, err := ParseFactor(tt.in)
		if err != nil || got != tt.want || got.String() != tt.out {
			t.Errorf("ParseFactor(%q) = %v, %v, want %v", tt.in, got, err, tt.out)
		}
	}
	for _, in := range []string{"", "0", "0.0", "1/0", "0/1", "-1", "1/-2", "+1", ".5", "1.", "1.5/2", "1/2/3", "1e3", "NaN", "Inf", "99999999999999999999", "1/99999999999999999999", "0.0000000000000000001", strings.Repeat("1", 99)} {
		if got, err := ParseFactor(in); err == nil {
			t.Errorf("ParseFactor(%q) = %v, want an error", in, got)
		}
	}
	if got := (Factor{}).String(); got != "1" {
		t.Errorf("zero Factor prints %q, want 1", got)
	}
}

// Errors cut the quoted text between runes.
func TestErrorsCutBetweenRunes(t *testing.T) {
	for _, r := range []string{"a", "é", "€", "😀"} {
		for shift := range 4 {
			in := strings.Repeat("x", shift) + strings.Repeat(r, 2*units.MaxEcho)
			_, err := ParseFactor(in)
			if want := string([]rune(in)[:units.MaxEcho]) + "…"; err == nil || !strings.Contains(err.Error(), `"`+want+`"`) {
				t.Errorf("ParseFactor(%q): error %q, want one that quotes %q", in, err, want)
			}
		}
	}
}

func FuzzParseFactor(f *testing.F) {
	for _, s := range []string{"1/100", "0.01", "2", "x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := ParseFactor(s)
		if err != nil {
			return
		}
		back, err := ParseFactor(v.String())
		if err != nil || back != v || v.check() != nil {
			t.Errorf("ParseFactor(%q) = %v, which reads back as %v, %v", s, v, back, err)
		}
	})
}
