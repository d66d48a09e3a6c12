package workloads

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/topo/units"
)

// Four coflows whose statistics can be computed by hand.
const statsTrace = `4 4
1 0 2 0 1 2 2:8.0 3:4.0
2 100 1 3 1 3:5.0
5 300 1 0 1 1:6.0
9 1300 2 0 2 1 1:2.0
`

func TestStats(t *testing.T) {
	trace, err := ParseTrace("t", strings.NewReader(statsTrace))
	if err != nil {
		t.Fatal(err)
	}
	got := trace.Stats(8 * time.Millisecond)
	mib := (25 * megabyte).float() * (1 << 20)
	want := TraceStats{
		Trace: "t", PerMB: 8 * time.Millisecond,
		Coflows: 4, Ports: 4, PortsUsed: 4, UnusedPorts: []int{}, Flows: 4 + 1 + 1 + 2,
		Size: 25, BytesAtMB: 25_000_000, MeanSize: 6.25,
		Last: 1300, Gaps: &GapStat{100, 200, 1300. / 3, 1000},
		// Port 0 sends 4+2, 6 and 1; port 1 sends 4+2; port 2 sends 1; port 3 sends 5.
		Send: PortStat{25. / 4, 13, 0, 104},
		// Port 1 receives 6 and 2; port 2 8; port 3 4 and 5.
		Receive: PortStat{25. / 4, 9, 3, 72},
		Largest: CoflowStat{1, 12, 12. / 25, 2, 2, 4, 0},
		Widest:  CoflowStat{1, 12, 12. / 25, 2, 2, 4, 0},
		Top:     []TopStat{{1, 12. / 25, []CoflowID{1}}},
		// All have at most 7 flows; those of coflow 1 have 4 and 2 MB.
		SingleFlow: 2, Thin: 4, OneMapper: 2, OneReducer: 3, EqualFlows: 3,
		Local: LocalStat{1, 1, 5, 5. / 25},
		Quantiles: []QuantileStat{
			{"width", "flows", 1, 1, 1, 1.5, 2.5, 3.4, 3.7, 3.94, 4, 2},
			{"mappers", "", 1, 1, 1, 1.5, 2, 2, 2, 2, 2, 1.5},
			{"reducers", "", 1, 1, 1, 1, 1.25, 1.7, 1.85, 1.97, 2, 1.25},
			{"size", "MB", 2, 2.9, 4.25, 5.5, 7.5, 10.2, 11.1, 11.82, 12, 6.25},
			{"length", "MB", 1, 1.9, 3.25, 4.5, 5.25, 5.7, 5.85, 5.97, 6, 4},
			{"lower bound", "ms", 16, 23.2, 34, 44, 52, 59.2, 61.6, 63.52, 64, 42},
		},
		Bins: []BinStat{{"SN", 3, .75, 19, 19. / 25}, {"LN", 1, .25, 6, 6. / 25}, {"SW", 0, 0, 0, 0}, {"LW", 0, 0, 0, 0}},
	}
	if got.BytesAtMiB == nil || float64(*got.BytesAtMiB) != mib {
		t.Errorf("bytes with a MB of 2²⁰ %v, want %v", got.BytesAtMiB, mib)
	}
	want.BytesAtMiB = got.BytesAtMiB
	close := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-9 })
	if diff := cmp.Diff(want, got, close); diff != "" {
		t.Errorf("statistics (-want +got):\n%s", diff)
	}
}

// With flows of different sizes, the statistics count the actual flows.
func TestStatsOfFlows(t *testing.T) {
	// Coflow 1: 0→1 3 MB, 0→2 1 MB, 2→2 5 MB (local), 2→1 nothing.
	trace, err := parseLines("t", strings.NewReader("3 1\n1 0.5 2 0 2 2 1 3000000 0 2 1000000 5000000\n"), true)
	if err != nil {
		t.Fatal(err)
	}
	s := trace.Stats(8 * time.Millisecond)
	if s.Flows != 3 || s.Size != 9 || s.Send.Max != 5 || s.Send.Port != 2 || s.Receive.Max != 6 || s.EqualFlows != 0 || s.Uneven != 1 || s.First != .5 || s.Gaps != nil || s.BytesAtMiB != nil {
		t.Errorf("statistics %+v", s)
	}
	if want := (LocalStat{1, 1, 5, 5. / 9}); s.Local != want {
		t.Errorf("local flows %+v, want %+v", s.Local, want)
	}
	c := trace.Coflows[0]
	if c.Length() != 5*megabyte || c.LowerBound(8*time.Millisecond) != 48*time.Millisecond {
		t.Errorf("length %v, lower bound %v, want 5 MB, 48ms", c.Length(), c.LowerBound(8*time.Millisecond))
	}
}

// The statistics of the public trace, as measured independently of this program.
func TestFacebookStats(t *testing.T) {
	trace, _ := facebookTrace(t)
	s := trace.Stats(DefaultPerMB)
	whole := func(name string, got, want float64) {
		t.Helper()
		if math.Round(got) != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	whole("coflows", float64(s.Coflows), 526)
	whole("ports", float64(s.Ports), 150)
	whole("ports used", float64(s.PortsUsed), 147)
	if diff := cmp.Diff([]int{39, 110, 111}, s.UnusedPorts); diff != "" {
		t.Errorf("unused ports (-want +got):\n%s", diff)
	}
	whole("flows", float64(s.Flows), 706_397)
	whole("MB", s.Size, 35_533_534)
	if tib := float64(*s.BytesAtMiB) / (1 << 40); math.Abs(tib-33.89) > .005 {
		t.Errorf("%v TiB, want 33.89", tib)
	}
	whole("mean size", s.MeanSize, 67_554)
	whole("first", s.First, 0)
	whole("last", s.Last, 3_629_235)
	whole("least gap", s.Gaps.Min, 7)
	whole("P50 gap", s.Gaps.P50, 3_062)
	whole("mean gap", s.Gaps.Mean, 6_913)
	whole("largest gap", s.Gaps.Max, 82_436)
	whole("mean sent", s.Send.Mean, 236_890)
	whole("most sent", s.Send.Max, 258_014)
	whole("by port", float64(s.Send.Port), 130)
	whole("mean received", s.Receive.Mean, 236_890)
	whole("most received", s.Receive.Max, 440_422)
	whole("by port", float64(s.Receive.Port), 16)
	whole("in seconds", s.Receive.Time/1000, 3_523)
	if l := s.Largest; l.ID != 406 || l.Size != 8_501_205 || math.Abs(l.Share-.239) > 5e-4 || l.Mappers != 145 || l.Reducers != 117 || l.Arrival != 2_355_160 {
		t.Errorf("largest coflow %+v", l)
	}
	if w := s.Widest; w.ID != 299 || w.Mappers != 146 || w.Reducers != 145 || w.Flows != 21_170 {
		t.Errorf("widest coflow %+v", w)
	}
	if diff := cmp.Diff([]CoflowID{406, 163, 299, 215, 198, 187, 225, 209, 207, 219}, s.Top[1].IDs); diff != "" || s.Top[1].Coflows != 10 || math.Abs(s.Top[1].Share-.791) > 5e-4 {
		t.Errorf("largest ten have %v (-want +got):\n%s", s.Top[1].Share, diff)
	}
	if s.Top[2].Coflows != 26 || math.Abs(s.Top[2].Share-.977) > 5e-4 {
		t.Errorf("largest %d have %v, want 26, 0.977", s.Top[2].Coflows, s.Top[2].Share)
	}
	for name, x := range map[string][2]int{
		"single flow": {s.SingleFlow, 123}, "at most 7 flows": {s.Thin, 257}, "one mapper": {s.OneMapper, 175}, "one reducer": {s.OneReducer, 334},
		"equal flows": {s.EqualFlows, 384}, "uneven": {s.Uneven, 0}, "local flows": {s.Local.Flows, 4_911}, "coflows with them": {s.Local.Coflows, 172}, "local MB": {int(s.Local.Size), 243_936},
	} {
		if x[0] != x[1] {
			t.Errorf("%s: %d, want %d", name, x[0], x[1])
		}
	}
	if math.Abs(s.Local.Share-.0069) > 5e-5 {
		t.Errorf("local share %v, want 0.0069", s.Local.Share)
	}
	// Published values, to three digits or more; NaN if not published.
	no := math.NaN()
	table := map[string][]float64{
		"width":       {1, 1, 2, 10, 47, 3_593, 11_260, 20_690, 21_170, 1_343},
		"mappers":     {1, 1, 1, 3, 15, 64, 138, 147, 147, 20.4},
		"reducers":    {1, 1, 1, 1, 21, 73, 120, 141, 145, 20.2},
		"size":        {1, 1, 3, 25, 244, 10_930, 48_700, 1.6e6, 8.5e6, 67_554},
		"length":      {1, 1, 1, 1, 9, 60, 154, 624, 2_472, 37.8},
		"lower bound": {8, no, no, 172, no, 7_324, 35_524, 262_644, 1_857_160, 14_721.3},
	}
	for _, q := range s.Quantiles {
		for i, got := range []float64{q.Min, q.P10, q.P25, q.P50, q.P75, q.P90, q.P95, q.P99, q.Max, q.Mean} {
			want := table[q.Name][i]
			// Half of the last published digit, or of the unit.
			off := .5
			switch {
			case want >= 1e6 && want != 1_857_160:
				off = 5e4
			case math.Mod(want, 100) == 0 && want >= 1e4:
				off = 50
			case math.Mod(want, 10) == 0 && want >= 1e4:
				off = 5
			case want != math.Trunc(want):
				off = .05
			}
			if !math.IsNaN(want) && !(math.Abs(got-want) <= off+1e-9) {
				t.Errorf("%s, value %d: %v, want %v ± %v", q.Name, i, got, want, off)
			}
		}
	}
	for i, want := range []struct {
		bin            string
		coflows        int
		share, ofBytes float64 // %
	}{{"SN", 315, 59.9, .010}, {"LN", 84, 16.0, .111}, {"SW", 63, 12.0, .877}, {"LW", 64, 12.2, 99.001}} {
		b := s.Bins[i]
		if b.Bin != want.bin || b.Coflows != want.coflows || math.Abs(100*b.CoflowShare-want.share) > .05 || math.Abs(100*b.Share-want.ofBytes) > .0005 {
			t.Errorf("bin %+v, want %+v", b, want)
		}
	}
	if _, err := json.Marshal(s); err != nil {
		t.Error(err)
	}
}

// A trace in bytes has the same bins as in MB, with either definition of MB.
func TestBinsInBytes(t *testing.T) {
	trace, _ := facebookTrace(t)
	want := trace.Stats(DefaultPerMB).Bins
	for _, mb := range []int64{1_000_000, 1 << 20} {
		fitted, rounded := trace.inBytes(units.Bytes(mb))
		if rounded != 0 {
			t.Errorf("MB of %d bytes: %d flows rounded, want none", mb, rounded)
		}
		got := fitted.Stats(DefaultPerMB).Bins
		for i := range got {
			if got[i].Coflows != want[i].Coflows || math.Abs(got[i].Share-want[i].Share) > 1e-12 {
				t.Errorf("MB of %d bytes: bin %+v, want %+v", mb, got[i], want[i])
			}
		}
	}
}
