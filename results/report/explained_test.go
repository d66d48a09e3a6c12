package report

import (
	"math"
	"strings"
	"testing"
	"time"

	"testbed/results/breakdown"
	"testbed/results/flows"
	"testbed/results/summary"
	"testbed/topo"
	"testbed/topo/units"
)

// Coflows of 100 ms each, against predictions of a share of that: what transport explains has no
// note, the rest names its likeliest cause.
func TestFiguresFarFromTheFluidModel(t *testing.T) {
	q := func(link string, d time.Duration) breakdown.Share {
		return breakdown.Share{Cause: breakdown.Queueing, Link: link, Time: d}
	}
	of := func(c breakdown.Cause, d time.Duration) breakdown.Share { return breakdown.Share{Cause: c, Time: d} }
	for _, c := range []struct {
		name   string
		fluid  float64 // predicted, of the measured time
		resent int     // of 100 packets
		shares []breakdown.Share
		want   string // part of the note
	}{
		{"as predicted", 1, 0, []breakdown.Share{of(breakdown.Serialisation, 100*ms)}, ""},
		{"explained by latency", 1 / 1.3, 0, []breakdown.Share{of(breakdown.Serialisation, 80*ms), of(breakdown.Latency, 20*ms)}, ""},
		{"explained by packets sent again", 1 / 1.3, 20, []breakdown.Share{of(breakdown.Serialisation, 100*ms)}, ""},
		{"retransmission explains a part", 1 / 1.5, 0, []breakdown.Share{of(breakdown.Serialisation, 50*ms), of(breakdown.Retransmission, 10*ms), q("leaf0>spine0", 10*ms), q("leaf1>spine0", 30*ms)},
			"1.50 times that of the fluid model. Set-up, retransmission and latency explain 1.11 times; the likeliest cause of the rest is queueing, 40 % of the time, most of it at leaf1>spine0 (30 %)"},
		{"hosts", 1 / 1.5, 0, []breakdown.Share{of(breakdown.Serialisation, 60*ms), of(breakdown.Host, 20*ms), q("leaf0>spine0", 20*ms)}, "is hosts, for which coflows waited 20 %"},
		{"policy", 1 / 1.5, 0, []breakdown.Share{of(breakdown.Serialisation, 50*ms), of(breakdown.Held, 30*ms), q("leaf0>spine0", 20*ms)}, "held flows back for 30 %"},
		{"faster", 1 / 0.8, 0, []breakdown.Share{of(breakdown.Serialisation, 100*ms)}, "0.80 times that of the fluid model, although packets have headers, set-up and losses besides; the likeliest cause is that TCP shares links unequally"},
	} {
		r := records(0, 100*ms)
		r.Flows = []flows.FlowRecord{{Src: "h0-00", Dst: "h1-00", Packets: 100, Resent: c.resent, End: 100 * ms}}
		rep := measured(r, pass(), scaled(r, c.fluid))
		rep.Timing = &breakdown.Run{CoflowTotal: c.shares}
		out, err := New(Input{RunID: "r", Scenario: "s", Arms: []Arm{{Name: "fair", Repeats: []summary.Repeat{rep}}}})
		if err != nil {
			t.Fatal(err)
		}
		note := out.Summary.Arms[0].CCT.Fluid.Note
		if c.want == "" && note != "" || !strings.Contains(note, c.want) {
			t.Errorf("%s: note %q, want %q", c.name, note, c.want)
		}
		var text strings.Builder
		if err := out.Markdown(&text); err != nil {
			t.Fatal(err)
		}
		if note != "" && !strings.Contains(text.String(), note) {
			t.Errorf("%s: the report does not have the note", c.name)
		}
	}
}

// Set-up explains the time of blocks as that of coflows, at most 100 ms of each, and 20 round trips.
func TestSetUpExplainsTimesOfBlocks(t *testing.T) {
	f := topo.LeafSpine{Leaves: 2, Spines: 1, HostsPerLeaf: 1, HostLink: units.Gbps, Oversubscription: units.Ratio{Num: 1, Den: 1}, Queue: topo.Queue{Bytes: 100 * units.KB}, MTU: 1500}
	fabric, err := f.Build()
	if err != nil {
		t.Fatal(err)
	}
	for setup, want := range map[time.Duration]float64{0: 1, 50 * ms: 1 / (1 - 0.25), 150 * ms: 2} {
		block := breakdown.Block{WriteTime: 200 * ms, Setup: setup, Shares: []breakdown.Share{{Cause: breakdown.Network, Time: 200 * ms}}}
		run := &breakdown.Run{Blocks: []breakdown.Block{block, block}, BlockTotal: []breakdown.Share{{Cause: breakdown.Network, Time: 400 * ms}}}
		if got := explained([]summary.Repeat{{Timing: run, Fabric: fabric}}, ofBlocks); math.Abs(got-want) > 1e-6 {
			t.Errorf("set-up of %v of 200 ms explains %g times, want %g", setup, got, want)
		}
	}
}
