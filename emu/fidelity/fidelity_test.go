package fidelity

import (
	"slices"
	"strings"
	"testing"
	"time"

	"testbed/results/verdict"
	"testbed/topo/units"
)

func clean() Samples {
	return Samples{
		Captures: []Capture{{Host: "h0-00", Bytes: 1e9, Counted: 1e9}},
		Sampled: Sampled{
			Links: []Link{
				{Name: "leaf0>spine0", Frame: 1514, Spells: 4, Delivered: 999e4, Could: 1000e4},
				{Name: "quiet", Frame: 1514, Spells: 4, Delivered: 1, Could: 800e3},
				{Name: "h0-00>leaf0", Frame: 1514, Spells: 4, Delivered: 960e4, Could: 1000e4, Pieces: slices.Repeat([]float64{0.5, 0.99, 1, 1.01}, 5)},
			},
			Lateness: 300 * time.Microsecond,
			Stall:    4 * time.Millisecond,
		},
		Bursts: []Conformance{{"h0-00>leaf0", 50 * units.Mbps, 2264, 1000, 2271, 9000, 1514, 1514, 0},
			{"quiet", 50 * units.Mbps, 2264, 10, 100_000, 100_000, 1514, 1514, 0}},
		Losses:    []Loss{{"h0-00", 1000, 0, 0, 0}, {"leaf0", 100_000, 0, 0, 0}},
		Engine:    2 * time.Millisecond,
		Machine:   Machine{true, 0.02, 0.2, 0.1, 0, 0.2, 0},
		Spacing:   []Spacing{{Link: "h0-00>leaf0", Gaps: 1000, Good: 950}, {Link: "quiet", Gaps: 10}},
		Disks:     []Disk{{"h0-00", 8 * units.Mbps, 1 * units.MB, time.Second, 0, 1, false}, {"idle", 8 * units.Mbps, 1, time.Millisecond, 0, 1, false}},
		Transfers: []Transfer{{Name: "flow 1", Completion: time.Second, Wire: 5 * time.Second, Engine: 5*time.Second + time.Millisecond}},
		MedianCCT: time.Second,
		Foreign:   []Foreign{foreignIn(1000, 1e6)},
		Switches:  []SwitchPackets{{"leaf0", 0, 0, 100_000}, {"spine0", 0, 0, 0}},
		Crossings: []Crossing{{"leaf0", true, 998, 1000, 2, 1514, 1e6, time.Second}, {"leaf0", false, 1003, 1000, 5, 1514, 1e6, time.Second}},
		TCP: TCP{
			Packets:    100_000,
			Resent:     2350,
			Repeated:   390,
			Dropped:    2000,
			Duplicates: 300,
			Shortest:   Segmented{"h0-00", "h1-00", 1090, 1000},
			Nearest:    []Nearest{{"leaf0", 10 * time.Microsecond, 100}, {"spine0", 20 * time.Millisecond, 4}},
			Limits:     []Limit{{"flows", "h0-00", 20, 10 * time.Second, 100 * time.Millisecond, 0}, {"blocks", "h0-01", 1, 90 * time.Millisecond, 90 * time.Millisecond, 0}},
		},
		Plausibility: []Plausibility{{"CCT", 20, 2.9, 2, ""}, {"write time", 10, 0.9, 1, ""}},
	}
}

func foreignIn(window, could units.Bytes) Foreign {
	return Foreign{Host: "h0-01", Link: "h0-01>leaf0", Packets: 900, Bytes: 1_234_567, Window: window, Could: could, At: 1250 * time.Millisecond, Length: 250 * time.Millisecond,
		Largest: "tcp 10.0.0.1:5201 > 10.0.3.1:44012", LargestBytes: 98_765}
}

func TestCleanRunPasses(t *testing.T) {
	v := Judge(clean(), Default())
	for _, c := range v.Checks {
		if c.Level != verdict.Pass || c.Reason != "" || c.Value == "" || c.Pass == "" || c.Void == "" {
			t.Errorf("%+v", c)
		}
	}
	if v.Level != verdict.Pass || len(v.Checks) != 22 {
		t.Errorf("verdict %v of %d checks, want pass of 22", v.Level, len(v.Checks))
	}
	if v := Judge(Samples{}, Default()); v.Level != verdict.Pass {
		t.Errorf("a run in which nothing happened: %+v", v)
	}
}

func TestEachCheckCatchesItsOwn(t *testing.T) {
	ratios := func(x float64) []Link {
		return []Link{{Name: "l", Frame: 1514, Spells: 4, Delivered: units.Bytes(x * 1e6), Could: 1e6}}
	}
	// Known by samples, with a quarter of idle pieces.
	watched := func(x float64) []Link {
		return []Link{{Name: "l", Frame: 1514, Spells: 4, Delivered: units.Bytes(x * 1e6), Could: 1e6, Pieces: append(slices.Repeat([]float64{x}, 15), 0, 0.3, 0.5, 0.6, 0.7)}}
	}
	// A link that is idle for moments between samples has lower windows and passes.
	windowed := func(short, long float64, pieces []float64) []Link {
		ends := func(short, long float64) []Window {
			return []Window{{WindowLengths[0], time.Second, short}, {WindowLengths[1], time.Second, long}}
		}
		return []Link{{Name: "leaf0>spine0", Frame: 1514, Spells: 4, Delivered: 1e7, Could: 1e7, Pieces: pieces, Low: ends(short, long), High: ends(1, 1)}}
	}
	crossed := func(up bool, counted, captured, dropped uint64) []Crossing {
		return []Crossing{{"leaf0", up, counted, captured, dropped, 1514, 1.5e6, 250 * time.Millisecond}}
	}
	disk := func(b units.Bytes) []Disk {
		return []Disk{{Host: "h", Rate: 8 * units.Mbps, Written: b, Busy: time.Second, Number: 2, Of: 4}}
	}
	late := func(d time.Duration) []Transfer {
		return []Transfer{{Name: "flow 1", Completion: 100 * time.Millisecond, Wire: time.Second, Engine: time.Second + d}}
	}
	for _, tt := range []struct {
		name, check string
		spoil       func(*Samples)
		want        verdict.Level
	}{
		{"clock set by little", "clock", func(s *Samples) { s.Clock = []ClockStep{{time.Second, -time.Millisecond}, {time.Second, 0}} }, verdict.Degraded},
		{"clock set back", "clock", func(s *Samples) { s.Clock = []ClockStep{{time.Second, 0}, {time.Second, -2 * time.Second}} }, verdict.Void},
		{"one packet dropped", "capture-drops", func(s *Samples) { s.Captures[0].Dropped = 1 }, verdict.Void},
		{"a few bytes missing", "captured-bytes", func(s *Samples) { s.Captures[0].Bytes -= 1500 }, verdict.Degraded},
		{"many bytes missing", "captured-bytes", func(s *Samples) { s.Captures[0].Bytes -= 2e6 }, verdict.Void},
		{"bytes too many", "captured-bytes", func(s *Samples) { s.Captures[0].Bytes += 2e6 }, verdict.Void},
		{"slow link", "delivered", func(s *Samples) { s.Links = ratios(0.93) }, verdict.Degraded},
		{"very slow link", "delivered", func(s *Samples) { s.Links = ratios(0.5) }, verdict.Void},
		{"fast link", "delivered", func(s *Samples) { s.Links = ratios(1.03) }, verdict.Degraded},
		{"very fast link", "delivered", func(s *Samples) { s.Links = ratios(1.2) }, verdict.Void},
		{"half the rate for a moment", "delivered", func(s *Samples) { s.Links = windowed(0.5, 1, nil) }, verdict.Void},
		{"80 % of the rate for a second", "delivered", func(s *Samples) { s.Links = windowed(0.9, 0.8, nil) }, verdict.Degraded},
		{"twice the rate for a moment", "delivered", func(s *Samples) { s.Links = windowed(1, 1, nil); s.Links[0].High[0].Share = 2 }, verdict.Void},
		{"two thirds for a moment, by samples", "delivered", func(s *Samples) { s.Links = windowed(0.66, 1, slices.Repeat([]float64{1}, 16)) }, verdict.Degraded},
		{"slow link known by samples", "delivered", func(s *Samples) { s.Links = watched(0.95) }, verdict.Degraded},
		{"very slow link known by samples", "delivered", func(s *Samples) { s.Links = watched(0.85) }, verdict.Void},
		{"fast link known by samples", "delivered", func(s *Samples) { s.Links = watched(1.1) }, verdict.Void},
		{"slow among faster ones", "delivered", func(s *Samples) { s.Links = append(watched(0.96), ratios(0.95)...) }, verdict.Degraded},
		{"large bucket", "burst", func(s *Samples) { s.Bursts[0].Level = 16_384 }, verdict.Degraded},
		{"very large bucket", "burst", func(s *Samples) { s.Bursts[0].Level = 900_000 }, verdict.Void},
		{"a frame too long", "frames", func(s *Samples) { s.Bursts[0].Long, s.Bursts[0].Longest = 1, 2962 }, verdict.Void},
		{"a packet lost before IP", "loss", func(s *Samples) { s.Losses[1].Before = 1 }, verdict.Degraded},
		{"a packet lost in IP", "loss", func(s *Samples) { s.Losses[1].Inside = 1 }, verdict.Degraded},
		{"many lost after IP", "loss", func(s *Samples) { s.Losses[0].After = 2 }, verdict.Void},
		{"stopped", "stall", func(s *Samples) { s.Stall = 80 * time.Millisecond }, verdict.Degraded},
		{"stopped for long", "stall", func(s *Samples) { s.Stall = 300 * time.Millisecond }, verdict.Void},
		{"engine kept waiting", "stall", func(s *Samples) { s.Engine = 90 * time.Millisecond }, verdict.Degraded},
		{"a slow policy", "policy-late", func(s *Samples) {
			s.Answers = []Answers{{"tasks", 100, 20 * time.Millisecond, 90 * time.Millisecond}, {"coflow", 100, 0, time.Second}}
		}, verdict.Degraded},
		{"a very slow policy", "policy-late", func(s *Samples) { s.Answers = []Answers{{"tasks", 1, 100 * time.Millisecond, 100 * time.Millisecond}} }, verdict.Void},
		{"busy machine", "machine", func(s *Samples) { s.Machine.Others = 0.2 }, verdict.Degraded},
		{"lumps for a moment", "packet-spacing", func(s *Samples) { s.Spacing[0].Poorest = Gaps{time.Second, 250 * time.Millisecond, 500, 250} }, verdict.Degraded},
		{"one burst", "burst", func(s *Samples) { s.Bursts[0].Most = 65_536 }, verdict.Degraded},
		{"a packet from a leaf to spines", "foreign", func(s *Samples) { s.Crossings = crossed(true, 1003, 1000, 2) }, verdict.Degraded},
		{"packets from a leaf to spines", "foreign", func(s *Samples) { s.Crossings = crossed(true, 1030, 1000, 0) }, verdict.Void},
		{"packets from spines to a leaf", "foreign", func(s *Samples) { s.Crossings = crossed(false, 1030, 1000, 5) }, verdict.Void},
		{"lumps", "packet-spacing", func(s *Samples) { s.Spacing[0].Good = 700 }, verdict.Degraded},
		{"all lumps", "packet-spacing", func(s *Samples) { s.Spacing[0].Good = 400 }, verdict.Void},
		{"late", "scheduling-lateness", func(s *Samples) { s.Lateness = 20 * time.Millisecond }, verdict.Degraded},
		{"very late", "scheduling-lateness", func(s *Samples) { s.Lateness = 100 * time.Millisecond }, verdict.Void},
		{"slow disk", "disk", func(s *Samples) { s.Disks = disk(950_000) }, verdict.Degraded},
		{"very slow disk", "disk", func(s *Samples) { s.Disks = disk(800_000) }, verdict.Void},
		{"slow reads", "disk", func(s *Samples) {
			s.Disks = append(disk(1_000_000), Disk{Host: "h", Rate: 8 * units.Mbps, Written: 950_000, Busy: time.Second, Reads: true})
		}, verdict.Degraded},
		{"fast disk", "disk", func(s *Samples) { s.Disks = disk(1_200_000) }, verdict.Void},
		{"agent late", "wire-vs-engine", func(s *Samples) { s.Transfers = late(5 * time.Millisecond) }, verdict.Degraded},
		{"agent very late", "wire-vs-engine", func(s *Samples) { s.Transfers = late(-50 * time.Millisecond) }, verdict.Void},
		{"foreign traffic", "foreign", func(s *Samples) { s.Foreign = append(s.Foreign, foreignIn(2000, 1e6)) }, verdict.Degraded},
		{"much foreign traffic", "foreign", func(s *Samples) { s.Foreign = append(s.Foreign, foreignIn(11_000, 1e6), foreignIn(1, 1e6)) }, verdict.Void},
		{"an ICMP error", "foreign", func(s *Samples) { s.Foreign[0].Errors = 1 }, verdict.Degraded},
		{"a packet to a switch", "foreign", func(s *Samples) { s.Switches[0].Delivered = 1 }, verdict.Degraded},
		{"many packets of a switch", "foreign", func(s *Samples) { s.Switches[0].Created = 101 }, verdict.Void},
		{"a packet of a switch that forwards none", "foreign", func(s *Samples) { s.Switches[1].Created = 1 }, verdict.Void},
		{"packets sent again that no queue dropped", "retransmission", func(s *Samples) { s.TCP.Resent = 2400 }, verdict.Degraded},
		{"many of them", "retransmission", func(s *Samples) { s.TCP.Resent = 3400 }, verdict.Void},
		{"packets received twice", "retransmission", func(s *Samples) { s.TCP.Repeated = 800 }, verdict.Degraded},
		{"short segments", "segments", func(s *Samples) { s.TCP.Shortest.Packets = 1200 }, verdict.Degraded},
		{"very short segments", "segments", func(s *Samples) { s.TCP.Shortest.Packets = 2700 }, verdict.Void},
		{"windows", "flow-control", func(s *Samples) { s.TCP.Limits[0].Window = time.Second }, verdict.Degraded},
		{"send buffers", "flow-control", func(s *Samples) { s.TCP.Limits[0].Buffer = 3 * time.Second }, verdict.Void},
		{"a delay in a switch", "round-trip", func(s *Samples) { s.TCP.Nearest[0].Excess = 2 * time.Millisecond }, verdict.Degraded},
		{"a long delay in a switch", "round-trip", func(s *Samples) { s.TCP.Nearest[0].Excess = 8 * time.Millisecond }, verdict.Void},
		{"slower than the fluid model", "fluid-model", func(s *Samples) { s.Plausibility[1].Ratio = 1.6 }, verdict.Degraded},
		{"much slower than the fluid model", "fluid-model", func(s *Samples) { s.Plausibility[0].Ratio = 6.1 }, verdict.Void},
		{"problem", "records", func(s *Samples) { s.Problems = []string{"flow 3 has no end"} }, verdict.Degraded},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := clean()
			tt.spoil(&s)
			v := Judge(s, Default())
			if v.Level != tt.want {
				t.Errorf("verdict %v, want %v", v.Level, tt.want)
			}
			for _, c := range v.Checks {
				if bad := c.Level != verdict.Pass; bad != (c.Name == tt.check) || bad && c.Reason == "" {
					t.Errorf("check %+v", c)
				}
			}
		})
	}
}

func TestLatenessIsJudgedAgainstCCT(t *testing.T) {
	s := clean()
	s.Lateness, s.MedianCCT = 8*time.Millisecond, 2*time.Second
	if v := Judge(s, Default()); v.Level != verdict.Pass {
		t.Errorf("8 ms of 2 s: %v", v.Level)
	}
	s.Lateness, s.MedianCCT = 4*time.Millisecond, 10*time.Millisecond
	if v := Judge(s, Default()); v.Level != verdict.Pass {
		t.Errorf("4 ms is always good enough: %v", v.Level)
	}
}

func TestEveryTransferIsJudged(t *testing.T) {
	s := clean()
	for range 150 {
		s.Transfers = append(s.Transfers, Transfer{Name: "flow", Completion: time.Second, Wire: time.Second, Engine: time.Second})
	}
	s.Transfers[70].Engine += 20 * time.Millisecond
	if v := Judge(s, Default()); v.Level != verdict.Degraded {
		t.Errorf("one of 151 is 2 %% late: %v", v.Level)
	}
	s.Transfers[90].Engine -= 110 * time.Millisecond
	if v := Judge(s, Default()); v.Level != verdict.Degraded {
		t.Errorf("one of 151 is 11 %% early: %v", v.Level)
	}
	s.Transfers[91].Engine -= 110 * time.Millisecond
	if v := Judge(s, Default()); v.Level != verdict.Void {
		t.Errorf("two of 151 are 11 %% early: %v", v.Level)
	}
}

// A link that is known by samples is judged by its busy pieces, however many idle ones
// there are.
func TestIdleMomentsAreNotJudged(t *testing.T) {
	for _, tt := range []struct {
		name   string
		spells int
		pieces []float64
		want   verdict.Level
	}{
		{"none", 3, slices.Repeat([]float64{1}, 16), verdict.Pass},
		{"two in three", 3, slices.Repeat([]float64{0.5, 1, 0.9}, 8), verdict.Pass},
		{"four in five", 3, slices.Repeat([]float64{0.5, 0.85, 0.85, 0.85, 1}, 5), verdict.Void},
		{"in one spell alone", 1, slices.Repeat([]float64{0.85}, 20), verdict.Pass},
		{"few pieces", 3, slices.Repeat([]float64{0.85}, 15), verdict.Pass},
		{"too fast, and idle", 3, slices.Repeat([]float64{0.5, 1.1, 1.1, 1.1, 1.1}, 5), verdict.Void},
		{"read late and early in turn", 3, slices.Repeat([]float64{0.8, 1.2}, 10), verdict.Pass},
	} {
		t.Run(tt.name, func(t *testing.T) {
			v := Judge(Samples{Sampled: Sampled{Links: []Link{{Name: "h0-00>leaf0", Frame: 1514, Spells: tt.spells, Delivered: 1, Could: 1e6, Pieces: tt.pieces}}}}, Default())
			if v.Level != tt.want {
				t.Errorf("%v, want %v: %+v", v.Level, tt.want, v.Checks[2])
			}
		})
	}
}

// A link that is idle for moments between samples passes.
func TestIdleMomentsPass(t *testing.T) {
	s := clean()
	s.Links[2].Low = []Window{{WindowLengths[0], time.Second, 0.75}, {WindowLengths[1], time.Second, 0.91}}
	s.Links[2].High = []Window{{WindowLengths[0], time.Second, 0.6}, {WindowLengths[1], time.Second, 0.7}}
	if v := Judge(s, Default()); v.Level != verdict.Pass {
		t.Errorf("%+v", v)
	}
}

// Objects that a scenario changes on purpose are not judged, and the values say so.
func TestExempt(t *testing.T) {
	bad := func() Samples {
		s := clean()
		s.Links[0] = Link{Name: "h0-01>leaf0", Frame: 1514, Spells: 4, Delivered: 500e4, Could: 1000e4}
		s.Spacing[0] = Spacing{Link: "leaf0>h0-01", Gaps: 1000, Good: 100}
		s.Bursts[0].Link, s.Bursts[0].Level = "h0-01>leaf0", 900_000
		s.Losses[0] = Loss{"h0-01", 1000, 0, 500, 0}
		s.Disks[0].Host, s.Disks[0].Written = "h0-01", 1
		s.Captures[0] = Capture{"h0-01", 0, 90e3, 100e3}
		s.TCP.Limits[0].Host, s.TCP.Limits[0].Window = "h0-01", 5*time.Second
		return s
	}
	names := []string{"delivered", "packet-spacing", "burst", "disk", "loss", "captured-bytes", "flow-control"}
	for _, tt := range []struct {
		name          string
		exempt, lossy map[string]string
		judged        []string // of names
	}{
		{"nothing", nil, nil, names},
		{"another host", map[string]string{"h0-02": "down"}, map[string]string{"leaf0": "down"}, names},
		{"the host", map[string]string{"h0-01": "down at 3s"}, nil, []string{"loss", "captured-bytes"}},
		{"the host and its cable", map[string]string{"h0-01": "down at 3s"}, map[string]string{"h0-01": "down at 3s"}, nil},
		{"the link up", map[string]string{"h0-01>leaf0": "half rate at 3s"}, nil, []string{"packet-spacing", "disk", "loss", "captured-bytes", "flow-control"}},
		{"the disk", map[string]string{"h0-01/disk": "slow at 3s"}, nil, []string{"delivered", "packet-spacing", "burst", "loss", "captured-bytes"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := bad()
			s.Exempt, s.Lossy = tt.exempt, tt.lossy
			for _, c := range Judge(s, Default()).Checks {
				if !slices.Contains(names, c.Name) {
					continue
				}
				if judged := slices.Contains(tt.judged, c.Name); judged != (c.Level != verdict.Pass) {
					t.Errorf("judged %v: %+v", judged, c)
				} else if said := strings.Contains(c.Value, "not judged: "); said == judged {
					t.Errorf("%s: value %q", c.Name, c.Value)
				}
			}
		})
	}
}

// The checks of earlier attempts are kept if captures are found to be damaged later.
func TestDoubtKeepsEarlierTries(t *testing.T) {
	v := verdict.Of(verdict.Check{Name: "stall", Level: verdict.Pass})
	v.Earlier = []verdict.Verdict{verdict.Of(verdict.Check{Name: "stall", Level: verdict.Void})}
	got := Doubt(v, []string{"h0: cut off"}, nil, nil)
	if got.Level != verdict.Degraded || len(got.Earlier) != 1 || got.Earlier[0].Level != verdict.Void {
		t.Errorf("Doubt = %+v, want a degraded verdict after a try that was void", got)
	}
}

// A repeat is void if more than 5 % of its coflows, blocks or jobs have no record, even if its verdict
// contains a milder doubt already.
func TestRecordsHaveABoundForVoid(t *testing.T) {
	for _, tt := range []struct {
		completed, recorded map[string]int
		want                verdict.Level
		value               string
	}{
		{map[string]int{"coflows": 30}, map[string]int{"coflows": 30}, verdict.Pass, ""},
		{map[string]int{"coflows": 30}, map[string]int{"coflows": 29}, verdict.Degraded, "0 problems, records of 29 of 30 coflows"},
		{map[string]int{"coflows": 30}, map[string]int{"coflows": 19}, verdict.Void, "0 problems, records of 19 of 30 coflows"},
		{map[string]int{"coflows": 20, "blocks": 9}, map[string]int{"coflows": 19}, verdict.Void, "0 problems, records of 0 of 9 blocks and 19 of 20 coflows"},
	} {
		v := Judge(Samples{Completed: tt.completed, Recorded: tt.recorded}, Default())
		again := Doubt(Doubt(verdict.Of(), []string{"h0: cut off"}, nil, nil), nil, tt.completed, tt.recorded)
		for _, c := range v.Checks {
			if c.Name == "records" && (c.Level != tt.want || c.Value != tt.value) {
				t.Errorf("%v of %v: %+v, want %v, %q", tt.recorded, tt.completed, c, tt.want, tt.value)
			}
		}
		if v.Level < tt.want || again.Level != max(verdict.Degraded, tt.want) || len(again.Checks) != 1 {
			t.Errorf("%v of %v: %v, and after a doubt %+v, want %v", tt.recorded, tt.completed, v.Level, again, tt.want)
		}
	}
}

// The end of a read may be after its last packet by the lag that its mark states, and not before it.
func TestLagOfReads(t *testing.T) {
	for _, tt := range []struct {
		after time.Duration
		want  verdict.Level
	}{{0, verdict.Pass}, {170 * time.Millisecond, verdict.Pass}, {205 * time.Millisecond, verdict.Degraded}, {-5 * time.Millisecond, verdict.Degraded}} {
		v := Judge(Samples{Transfers: []Transfer{{Name: "input flow 1", Completion: 200 * time.Millisecond, Wire: time.Second, Engine: time.Second + tt.after, Lag: 200 * time.Millisecond}}}, Default())
		for _, c := range v.Checks {
			if c.Name == "wire-vs-engine" && c.Level != tt.want {
				t.Errorf("%v after the last packet: %v, want %v", tt.after, c.Level, tt.want)
			}
		}
	}
}

func TestForeignReason(t *testing.T) {
	check := func(s Samples) verdict.Check { return foreign(s, Default()) }
	s := clean()
	s.Foreign = append(s.Foreign, foreignIn(31_000, 1e6))
	s.Switches[1] = SwitchPackets{"spine0", 2, 3, 1000}
	c := check(s)
	const hosts = "h0-01 carried 1.23MB of foreign traffic, most tcp 10.0.0.1:5201 > 10.0.3.1:44012 (98.8KB), up to 3.1 % of what h0-01>leaf0 can carry in 250ms, at 1.25s"
	if want := hosts + "; spine0 created 2 packets and received 3 (stop what sends it and run again)"; c.Reason != want {
		t.Errorf("reason %q, want %q", c.Reason, want)
	}
	if want := "3.1 % of h0-01>leaf0 at worst, 5 own packets of switches"; c.Value != want {
		t.Errorf("value %q, want %q", c.Value, want)
	}
	s = Samples{Switches: s.Switches, Lossy: map[string]string{"spine0": "down at 3s"}}
	if c := check(s); c.Level != verdict.Pass || c.Value != "none at hosts; 1 not judged: down at 3s" {
		t.Errorf("a switch without a route: %+v", c)
	}
}

// A verdict without the check, such as that of captures alone, has it if there is foreign traffic.
func TestDoubtForeign(t *testing.T) {
	missing := verdict.Missing("captures alone")
	if v := DoubtForeign(missing, clean().Foreign); len(v.Checks) != 1 || v.Level != verdict.Unverified {
		t.Errorf("little foreign traffic: %+v", v)
	}
	v := DoubtForeign(missing, []Foreign{foreignIn(31_000, 1e6)})
	if len(v.Checks) != 2 || v.Level != verdict.Void {
		t.Errorf("much foreign traffic: %+v", v)
	}
	if again := DoubtForeign(v, []Foreign{foreignIn(31_000, 1e6)}); len(again.Checks) != 2 {
		t.Errorf("added twice: %+v", again)
	}
}

// Other processes that delay nothing degrade a run; it is void if packets or the program were late too.
func TestOtherProcessesThatDelay(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Samples)
		want   verdict.Level
		says   string
	}{
		{"quiet", func(*Samples) {}, verdict.Pass, ""},
		{"others", func(s *Samples) { s.Machine.Others = 0.6 }, verdict.Degraded, "other processes took 60 %"},
		{"a stall alone", func(s *Samples) { s.Stall = 60 * time.Millisecond }, verdict.Pass, ""},
		{"others and a stall", func(s *Samples) { s.Machine.Others, s.Stall = 0.6, 60*time.Millisecond }, verdict.Void, "and stall is degraded: 60ms at most"},
	} {
		s := clean()
		s.MedianCCT = 10 * time.Second
		c.change(&s)
		v := Judge(s, Default())
		for _, x := range v.Checks {
			if x.Name == "machine" && (x.Level != c.want || !strings.Contains(x.Reason, c.says)) {
				t.Errorf("%s: machine is %v (%s), want %v", c.name, x.Level, x.Reason, c.want)
			}
		}
		if c.want == verdict.Void && v.Level != verdict.Void {
			t.Errorf("%s: verdict %v", c.name, v.Level)
		}
	}
}

// Lateness of a run in which nothing completed is not compared with a completion time of 0.
func TestLatenessWithoutCompletions(t *testing.T) {
	s := clean()
	s.MedianCCT, s.Lateness, s.Stall = 0, time.Second, time.Second
	for _, c := range []verdict.Check{lateness(s, Default()), stall(s, Default())} {
		if c.Level != verdict.Degraded || !strings.Contains(c.Reason, "and nothing completed") {
			t.Errorf("%+v", c)
		}
	}
}

// The reason of a change is the state that was left, not what was there for a moment before it.
func TestLastStateFirst(t *testing.T) {
	none := KernelChange{After: time.Second, For: 2 * time.Microsecond, Where: "leaf0>h0-01", What: "qdisc", Planned: "tbf at root", Found: "none"}
	other := KernelChange{After: time.Second, Where: "leaf0>h0-01", What: "qdisc", Planned: "tbf at root", Found: "pfifo at root"}
	longer := none
	longer.For, longer.Found = time.Second, "sfq at root"
	for _, tt := range []struct {
		changes []KernelChange
		want    string
	}{
		{[]KernelChange{none, other}, "pfifo at root in the kernel"},
		{[]KernelChange{none, longer}, "sfq at root in the kernel"},
		{[]KernelChange{other, none}, "pfifo at root in the kernel"},
		{[]KernelChange{longer, none}, "sfq at root in the kernel"},
	} {
		if c := Kernel(tt.changes, false); !strings.Contains(c.Reason, tt.want) || !strings.Contains(c.Reason, "and 1 more") {
			t.Errorf("%q does not name %q first", c.Reason, tt.want)
		}
	}
}
