package breakdown

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/results/flows"
	"testbed/topo/units"
	"testbed/workloads"
)

func share(c Cause, d time.Duration) Share { return Share{Cause: c, Time: d} }

func queued(link string, d time.Duration) Share { return Share{Cause: Queueing, Link: link, Time: d} }

// Schedules whose shares are known by hand.
func TestCoflowShares(t *testing.T) {
	whole := func(from, to time.Duration) []stretch {
		return []stretch{{from, to, units.Bytes((to - from) / time.Microsecond), false}} // at full rate
	}
	for _, tt := range []struct {
		name       string
		holds      bool
		plans      []plan // the first coflow is judged
		want       []Share
		bottleneck string
		slowest    int
		lone       time.Duration
		skew       float64
	}{
		{"lone", true, []plan{{coflow: 1, src: 0, dst: 1, stretches: whole(2*ms, 102*ms)}},
			[]Share{share(Setup, 2*ms), share(Serialisation, 100*ms)}, "h0-00>leaf0", 0, 100 * ms, 1},
		{"half rate on a free path", true, []plan{{coflow: 1, src: 0, dst: 1, stretches: []stretch{{0, 100 * ms, 50_000, false}}}},
			[]Share{share(Serialisation, 50*ms), share(Latency, 50*ms)}, "h0-00>leaf0", 0, 50 * ms, 1},
		{"held by the order of arrival", true, []plan{
			{coflow: 2, flow: 2, src: 0, dst: 1, arrival: 5 * ms, syn: 50 * ms, stretches: whole(52*ms, 102*ms)},
			{coflow: 1, flow: 1, src: 0, dst: 1, stretches: whole(0, 50*ms)}},
			[]Share{share(Held, 45*ms), share(Setup, 2*ms), share(Serialisation, 50*ms)}, "h0-00>leaf0", 2, 50 * ms, 1},
		{"late without a holding policy", false, []plan{{coflow: 1, src: 0, dst: 1, syn: 50 * ms, stretches: whole(52*ms, 102*ms)}},
			[]Share{share(Setup, 52*ms), share(Serialisation, 50*ms)}, "h0-00>leaf0", 0, 50 * ms, 1},
		{"late behind others at its host", false, []plan{
			{coflow: 1, flow: 1, src: 0, dst: 1, syn: 50 * ms, stretches: whole(50*ms, 100*ms)},
			{coflow: 2, flow: 2, src: 0, dst: 2, stretches: whole(0, 40*ms)}},
			[]Share{share(Setup, 10*ms), share(Serialisation, 50*ms), queued("h0-00>leaf0", 40*ms)}, "h0-00>leaf0", 1, 50 * ms, 1},
		// Its header states when the policy released it: later time of the host is not the
		// policy's.
		{"released before its host was ready", true, []plan{
			{coflow: 1, flow: 1, src: 0, dst: 1, released: 40 * ms, syn: 43 * ms, stretches: whole(45*ms, 95*ms)}},
			[]Share{share(Held, 40*ms), share(Setup, 5*ms), share(Serialisation, 50*ms)}, "h0-00>leaf0", 1, 50 * ms, 1},
		{"released late by a policy without ceilings", false, []plan{
			{coflow: 1, flow: 1, src: 0, dst: 1, released: 40 * ms, syn: 43 * ms, stretches: whole(45*ms, 95*ms)}},
			[]Share{share(Held, 40*ms), share(Setup, 5*ms), share(Serialisation, 50*ms)}, "h0-00>leaf0", 1, 50 * ms, 1},
		{"connected before its arrival", true, []plan{
			{coflow: 1, flow: 1, src: 0, dst: 1, arrival: 10 * ms, released: 20 * ms, syn: 2 * ms, stretches: whole(21*ms, 71*ms)}},
			[]Share{share(Held, 10*ms), share(Setup, ms), share(Serialisation, 50*ms)}, "h0-00>leaf0", 1, 50 * ms, 1},
		{"its SYN was lost", false, []plan{
			{coflow: 1, flow: 1, src: 0, dst: 1, syn: ms, stretches: whole(1005*ms, 1055*ms), stalled: []flows.Span{{From: ms, To: 1001 * ms}}}},
			[]Share{share(Setup, 5*ms), share(Serialisation, 50*ms), share(Retransmission, 1000*ms)}, "h0-00>leaf0", 1, 50 * ms, 1},
		// The handshake takes 20 ms because others fill the receiver's link.
		{"connects behind others", false, []plan{
			{coflow: 1, flow: 1, src: 0, dst: 2, syn: ms, setUp: 21 * ms, stretches: whole(22*ms, 72*ms)},
			{coflow: 2, flow: 2, src: 1, dst: 2, stretches: whole(0, 22*ms)}},
			[]Share{share(Setup, 2*ms), share(Serialisation, 50*ms), queued("leaf0>h0-02", 20*ms)}, "leaf0>h0-02", 1, 50 * ms, 1},
		{"waits for the disk that it is read from", true, []plan{
			{coflow: 1, flow: 1, src: 0, dst: 1, read: true, syn: ms, setUp: 2 * ms, stretches: whole(32*ms, 82*ms)}},
			[]Share{share(Held, ms), share(Setup, ms), share(Serialisation, 50*ms), share(Host, 30*ms)}, "h0-00>leaf0", 1, 50 * ms, 1},
		{"preempted", true, []plan{
			{coflow: 1, flow: 1, src: 0, dst: 1, stretches: []stretch{{0, 40 * ms, 40_000, false}, {70 * ms, 130 * ms, 60_000, true}}},
			{coflow: 2, flow: 2, src: 0, dst: 1, arrival: 40 * ms, syn: 40 * ms, stretches: whole(40*ms, 70*ms)}},
			// It waits for its link for one frame of 1514 bytes before it continues.
			[]Share{share(Held, 28490*time.Microsecond), share(Serialisation, 100*ms), queued("h0-00>leaf0", 1520*time.Microsecond)}, "h0-00>leaf0", 1, 100 * ms, 1},
		// One of its flows is held and the other is not: the coflow is not held.
		{"half of it held", true, []plan{
			{coflow: 1, flow: 1, src: 0, dst: 1, stretches: whole(0, 30*ms)},
			{coflow: 1, flow: 2, src: 0, dst: 2, syn: 30 * ms, stretches: whole(35*ms, 55*ms)}},
			[]Share{share(Setup, 5*ms), share(Serialisation, 50*ms)}, "h0-00>leaf0", 2, 50 * ms, 1.2},
		{"two share a receiver", false, []plan{
			{coflow: 1, flow: 1, src: 0, dst: 2, stretches: []stretch{{0, 200 * ms, 100_000, false}}},
			{coflow: 2, flow: 2, src: 1, dst: 2, stretches: []stretch{{0, 200 * ms, 100_000, false}}}},
			[]Share{share(Serialisation, 100*ms), queued("leaf0>h0-02", 100*ms)}, "leaf0>h0-02", 1, 100 * ms, 1},
		{"shares an uplink", false, []plan{
			{coflow: 1, flow: 1, src: 0, dst: 4, stretches: []stretch{{0, 80 * ms, 40_000, false}, {80 * ms, 100 * ms, 20_000, false}}},
			{coflow: 2, flow: 2, src: 1, dst: 5, stretches: []stretch{{0, 80 * ms, 40_000, false}}}},
			[]Share{share(Serialisation, 60*ms), queued("leaf0>spine0", 40*ms)}, "leaf0>spine0", 1, 60 * ms, 1},
		// Its two flows meet at a receiver, the bottleneck; the wait is behind others on the
		// slower sender's link.
		{"queues elsewhere than at its bottleneck", false, []plan{
			{coflow: 1, flow: 1, src: 0, dst: 2, stretches: whole(0, 30*ms)},
			{coflow: 1, flow: 2, src: 1, dst: 2, stretches: whole(90*ms, 110*ms)},
			{coflow: 2, flow: 3, src: 1, dst: 3, stretches: whole(0, 90*ms)}},
			[]Share{share(Serialisation, 50*ms), queued("h0-01>leaf0", 60*ms)}, "leaf0>h0-02", 2, 50 * ms, 1.2},
		{"incast with a loss", false, []plan{
			{coflow: 1, flow: 1, src: 0, dst: 3, stretches: []stretch{{0, 60 * ms, 20_000, false}}},
			{coflow: 1, flow: 2, src: 1, dst: 3, stretches: []stretch{{0, 60 * ms, 20_000, false}}},
			{coflow: 1, flow: 3, src: 2, dst: 3, stretches: []stretch{{0, 60 * ms, 19_000, false}, {260 * ms, 261 * ms, 1000, false}}, recovery: []flows.Span{{From: 60 * ms, To: 261 * ms}}}},
			// The last millisecond of the recovery is on the wire. Before, the bottleneck
			// carries 59 bytes in 60.
			[]Share{share(Serialisation, 60*ms), share(Retransmission, 200*ms), share(Latency, ms)}, "leaf0>h0-03", 3, 60 * ms, 1},
		// The others have half the link while it continues during its recovery. Its own rate is
		// a quarter for a while, because of the loss.
		{"recovers while it continues", false, []plan{
			{coflow: 1, flow: 1, src: 0, dst: 2, recovery: []flows.Span{{From: 20 * ms, To: 80 * ms}},
				stretches: []stretch{{0, 20 * ms, 10_000, false}, {20 * ms, 40 * ms, 10_000, false}, {40 * ms, 80 * ms, 10_000, false}}},
			{coflow: 2, flow: 2, src: 1, dst: 2, stretches: []stretch{{0, 80 * ms, 40_000, false}}}},
			[]Share{share(Serialisation, 30*ms), queued("leaf0>h0-02", 40*ms), share(Retransmission, 10*ms)}, "leaf0>h0-02", 1, 30 * ms, 1},
		// Others have all of the link while it is stalled, and it has nothing waiting there.
		{"stalled while others send", false, []plan{
			{coflow: 1, flow: 1, src: 0, dst: 2, recovery: []flows.Span{{From: 20 * ms, To: 80 * ms}}, stalled: []flows.Span{{From: 20 * ms, To: 60 * ms}},
				stretches: []stretch{{0, 20 * ms, 10_000, false}, {60 * ms, 80 * ms, 10_000, false}}},
			{coflow: 2, flow: 2, src: 1, dst: 2, stretches: []stretch{{0, 20 * ms, 10_000, false}, {20 * ms, 60 * ms, 40_000, false}, {60 * ms, 80 * ms, 10_000, false}}}},
			[]Share{share(Serialisation, 20*ms), queued("leaf0>h0-02", 20*ms), share(Retransmission, 40*ms)}, "leaf0>h0-02", 1, 20 * ms, 1},
		{"closed window", false, []plan{
			{coflow: 1, src: 0, dst: 1, stretches: []stretch{{0, 30 * ms, 30_000, false}, {50 * ms, 60 * ms, 10_000, false}}, closed: []flows.Span{{From: 30 * ms, To: 49 * ms}}}},
			[]Share{share(Serialisation, 40*ms), share(Host, 19*ms), share(Latency, ms)}, "h0-00>leaf0", 0, 40 * ms, 1},
		{"skewed", true, []plan{
			{coflow: 1, flow: 1, src: 0, dst: 1, stretches: []stretch{{0, 20 * ms, 10_000, false}}},
			{coflow: 1, flow: 2, src: 0, dst: 4, stretches: []stretch{{0, 20 * ms, 10_000, false}, {20 * ms, 60 * ms, 40_000, false}}}},
			[]Share{share(Serialisation, 60*ms)}, "h0-00>leaf0", 2, 60 * ms, 50_000. / 30_000},
		{"on one host", false, []plan{{coflow: 1, src: 0, dst: 0, syn: ms, stretches: []stretch{{2 * ms, 3 * ms, 90_000, false}}, recovery: []flows.Span{{From: 2500 * time.Microsecond, To: 3 * ms}}}},
			[]Share{share(Setup, 2*ms), share(Retransmission, ms/2), share(Latency, ms/2)}, "", 0, 0, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSchedule(t, tt.holds)
			for _, p := range tt.plans {
				s.flow(p)
			}
			got := s.of(t).Coflows[0]
			// Loads are in whole bytes and fixed intervals: a microsecond is a byte.
			if diff := cmp.Diff(tt.want, round(got.Shares, 10*time.Microsecond)); diff != "" {
				t.Errorf("shares (-want +got):\n%s", diff)
			}
			if sum := Sum(got.Shares); sum != got.CCT {
				t.Errorf("the shares add up to %v of %v", sum, got.CCT)
			}
			if got.Bottleneck != tt.bottleneck || got.Slowest != workloads.FlowID(tt.slowest) || got.Lone != tt.lone || got.Skew != tt.skew {
				t.Errorf("bottleneck %q, slowest %d, lone %v, skew %v; want %q, %d, %v, %v", got.Bottleneck, got.Slowest, got.Lone, got.Skew, tt.bottleneck, tt.slowest, tt.lone, tt.skew)
			}
			if tt.lone > 0 && got.Slowdown != float64(got.CCT)/float64(tt.lone) {
				t.Errorf("slowdown %v of %v over %v", got.Slowdown, got.CCT, tt.lone)
			}
		})
	}
}

// round rounds each share and drops those that round to zero.
func round(shares []Share, to time.Duration) []Share {
	var out []Share
	for _, s := range shares {
		if s.Time = s.Time.Round(to); s.Time > 0 {
			out = append(out, s)
		}
	}
	return out
}

// Frames are whole, and bytes are interpolated: a lone flow of large frames at half a
// link's rate does not queue.
func TestNothingButFramesIsNoQueueing(t *testing.T) {
	s := newSchedule(t, false)
	s.flow(plan{coflow: 1, src: 0, dst: 1, stretches: []stretch{{0, 1000 * ms, 500_000, false}}})
	for _, l := range s.fabric.Path(0, 1, 0) {
		clear(s.res.Links[l].Bytes)
		for at := units.Bytes(9000); at <= 500_000; at += 9000 { // as each frame is complete
			s.res.Links[l].Bytes[min(999, at*2/1000)] += 9000
		}
	}
	got := s.of(t).Coflows[0]
	if q := Total(got.Shares, Queueing); q > 20*ms || Total(got.Shares, Serialisation).Round(ms) != 500*ms {
		t.Errorf("shares %v: %v of queueing on an idle fabric", got.Shares, q)
	}
}

// A flow that fills its link has nothing in flight each time the link is about to send the
// next frame. That is not a wait.
func TestFillingALinkIsNotHeld(t *testing.T) {
	s := newSchedule(t, true)
	var frames []stretch
	for at := time.Duration(0); at < 150*ms; at += 1500 * time.Microsecond {
		frames = append(frames, stretch{at + 1400*time.Microsecond, at + 1500*time.Microsecond, 1500, at > 0})
	}
	frames[0].from = 0 // its first byte leaves at once
	s.flow(plan{coflow: 1, src: 0, dst: 1, stretches: frames})
	want := []Share{share(Serialisation, 150*ms)}
	if got := s.of(t).Coflows[0].Shares; !cmp.Equal(want, round(got, 2*ms)) {
		t.Errorf("shares %v, want %v", got, want)
	}
}

// Shares add up and none is negative for any trails and loads.
func TestSharesAddUp(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newSchedule(t, rapid.Bool().Draw(rt, "holds"))
		at := func(name string) time.Duration {
			return time.Duration(rapid.Int64Range(0, int64(40*ms)).Draw(rt, name))
		}
		spans := func(name string) (out []flows.Span) {
			for range rapid.IntRange(0, 3).Draw(rt, name) {
				from := at(name)
				out = append(out, flows.Span{From: from, To: from + at(name)})
			}
			return out
		}
		points := func() (out []flows.Point) {
			for range rapid.IntRange(0, 5).Draw(rt, "points") {
				out = append(out, flows.Point{At: at("point"), Bytes: units.Bytes(rapid.Int64Range(0, 100_000).Draw(rt, "bytes"))})
			}
			return out
		}
		for i := range rapid.IntRange(1, 4).Draw(rt, "flows") {
			arrival := at("arrival")
			s.flow(plan{coflow: rapid.IntRange(0, 1).Draw(rt, "coflow"), flow: i, src: rapid.IntRange(0, 7).Draw(rt, "src"), dst: rapid.IntRange(0, 7).Draw(rt, "dst"), arrival: arrival, syn: at("syn"),
				stretches: []stretch{{arrival, arrival + at("length"), 1000, false}}, recovery: spans("recovery"), stalled: spans("stalled"), closed: spans("closed")})
			tr := &s.res.Trails[i]
			tr.Sent, tr.Received, tr.Quiet = points(), points(), spans("quiet")
			tr.ResentBytes = units.Bytes(rapid.Int64Range(0, 1000).Draw(rt, "resent"))
		}
		for l := range s.res.Links {
			if rapid.Bool().Draw(rt, "loaded") {
				s.carry(s.res.Links[l].Link, 0, at("load"), units.Bytes(rapid.Int64Range(0, 100_000).Draw(rt, "load of")))
			}
		}
		for b := range rapid.IntRange(0, 2).Draw(rt, "blocks") {
			s.block(b, 0, at("syn"), 0, pipeline{packets: rapid.IntRange(1, 6).Draw(rt, "packets"), window: 2, send: []time.Duration{at("send"), at("send")}, disk: []time.Duration{at("disk"), at("disk")}, ack: at("ack")})
			for h := len(s.res.Trails) - 2; h < len(s.res.Trails); h++ {
				for k := range s.res.Trails[h].Acks { // any values
					if a := &s.res.Trails[h].Acks[k]; rapid.Bool().Draw(rt, "odd") {
						a.Sent, a.Received, a.Acked, a.Back = at("sent"), at("received"), at("acked"), at("back")
					}
				}
				s.res.Trails[h].Quiet = spans("quiet")
				s.res.Trails[h].Closed = spans("closed")
			}
		}
		for i := range s.res.Coflows {
			s.res.Coflows[i].Background = rapid.Bool().Draw(rt, "background")
		}
		r := s.of(t)
		if len(r.Coflows) != len(s.res.Coflows) || len(r.Blocks) != len(s.res.Blocks) {
			rt.Fatalf("missing: %v", r.Missing)
		}
		var all time.Duration
		check := func(what string, total time.Duration, shares []Share) {
			for _, x := range shares {
				if x.Time < 0 || x.Time > total {
					rt.Errorf("%s: share %+v of %v", what, x, total)
				}
			}
			if Sum(shares) != total {
				rt.Errorf("%s: shares add up to %v of %v", what, Sum(shares), total)
			}
			all += total
		}
		for i, c := range r.Coflows {
			check("coflow", s.res.Coflows[i].CCT(), c.Shares)
			if s.res.Coflows[i].Background {
				all -= c.CCT
			}
		}
		check("coflows", all, r.CoflowTotal)
		all = 0
		for i, b := range r.Blocks {
			check("block", s.res.Blocks[i].WriteTime(), b.Shares)
		}
		check("blocks", all, r.BlockTotal)
	})
}

// Pipelines whose cause is known by hand. Connecting a hop takes 1 ms, the header on it 1 ms
// and the host 2 ms; half a round trip of the answer is 0.5 ms.
func TestBlockShares(t *testing.T) {
	const us = time.Microsecond
	three := func(d time.Duration) []time.Duration { return []time.Duration{d, d, d} }
	for _, tt := range []struct {
		name string
		syn  time.Duration
		p    pipeline
		want []Share
	}{
		// Each packet is sent, written and acknowledged before the next.
		{"one replica, one packet at a time", 3 * ms, pipeline{4, 1, []time.Duration{5 * ms}, []time.Duration{10 * ms}, ms},
			[]Share{share(Network, 2500*us+4*6*ms), share(Disk, 40*ms), share(Host, 1500*us+3*ms)}},
		// The first packet is sent, then the disk writes ten in turn, and the last
		// acknowledgement travels. The window makes the client wait, but not the block.
		{"one replica, slow disk", 0, pipeline{10, 4, []time.Duration{ms}, []time.Duration{10 * ms}, ms},
			[]Share{share(Network, 2500*us+2*ms), share(Disk, 100*ms), share(Host, 1500*us)}},
		{"one replica, slow network", 0, pipeline{10, 4, []time.Duration{10 * ms}, []time.Duration{ms}, ms},
			[]Share{share(Network, 2500*us+101*ms), share(Disk, ms), share(Host, 1500*us)}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSchedule(t, true)
			s.block(0, 0, tt.syn, 0, tt.p)
			got := s.of(t).Blocks[0]
			if diff := cmp.Diff(tt.want, got.Shares); diff != "" {
				t.Errorf("shares (-want +got):\n%s", diff)
			}
			if Sum(got.Shares) != got.WriteTime {
				t.Errorf("the shares add up to %v of %v", Sum(got.Shares), got.WriteTime)
			}
			if want := tt.syn + 4*ms; got.Setup != want {
				t.Errorf("set-up %v, want %v", got.Setup, want)
			}
		})
	}
	for _, tt := range []struct {
		name string
		p    pipeline
		most Cause
	}{
		{"three replicas, slow disks", pipeline{40, 6, three(ms), three(10 * ms), ms / 10}, Disk},
		{"three replicas, slow last disk", pipeline{40, 6, three(ms), []time.Duration{ms, ms, 10 * ms}, ms / 10}, Disk},
		{"three replicas, slow first disk", pipeline{40, 6, three(ms), []time.Duration{10 * ms, ms, ms}, ms / 10}, Disk},
		{"three replicas, slow network", pipeline{40, 6, three(10 * ms), three(ms), ms / 10}, Network},
		{"three replicas, slow last hop", pipeline{40, 6, []time.Duration{ms, ms, 10 * ms}, three(ms), ms / 10}, Network},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, keep := range []int{1, 5} { // every packet, or every fifth and the last two
				s := newSchedule(t, false)
				s.block(0, 0, 0, 0, tt.p)
				for i := range s.res.Trails {
					var kept []flows.Ack
					for k, a := range s.res.Trails[i].Acks {
						if k%keep == 0 || k >= tt.p.packets-2 {
							kept = append(kept, a)
						}
					}
					s.res.Trails[i].Acks = kept
				}
				got := s.of(t).Blocks[0]
				if part := float64(Total(got.Shares, tt.most)) / float64(got.WriteTime); part < 0.8 {
					t.Errorf("%d-th packets: %s is %.2f of %v: %v", keep, tt.most, part, got.WriteTime, got.Shares)
				}
			}
		})
	}
}

// A closed window counts as disk, unless the host that closes it is sending.
func TestClosedWindowOfAHop(t *testing.T) {
	s := newSchedule(t, true)
	s.block(0, 0, 0, 0, pipeline{1, 1, []time.Duration{50 * ms, 20 * ms}, []time.Duration{10 * ms, 10 * ms}, ms})
	first := s.of(t).Blocks[0].Shares // the first packet leaves at 8 ms
	if want := []Share{share(Network, 5*ms+72*ms), share(Disk, 10*ms), share(Host, 3*ms)}; !cmp.Equal(want, first) {
		t.Fatalf("shares %v, want %v", first, want)
	}
	s.res.Trails[0].Closed = []flows.Span{{From: 10 * ms, To: 20 * ms}, {From: 30 * ms, To: 45 * ms}}
	s.res.Trails[1].Closed = []flows.Span{{From: 60 * ms, To: 67 * ms}}
	want := []Share{share(Network, 45*ms), share(Disk, 42*ms), share(Host, 3*ms)}
	if diff := cmp.Diff(want, s.of(t).Blocks[0].Shares); diff != "" {
		t.Errorf("shares (-want +got):\n%s", diff)
	}
	// From 15 ms on the host is sending: the network after it closes the window.
	s.res.Trails[1].Acks[0].Sent = 15 * ms
	want = []Share{share(Network, 65*ms), share(Disk, 22*ms), share(Host, 3*ms)}
	if diff := cmp.Diff(want, s.of(t).Blocks[0].Shares); diff != "" {
		t.Errorf("shares (-want +got):\n%s", diff)
	}
}

// A broken pipeline counts as host, up to the SYN of the next one.
func TestBlockOfTwoPipelines(t *testing.T) {
	s := newSchedule(t, false)
	s.block(0, 0, 0, 0, pipeline{3, 1, []time.Duration{ms, ms}, []time.Duration{ms, ms}, ms})
	s.res.Blocks = nil
	s.block(0, 0, 500*ms, 1, pipeline{4, 1, []time.Duration{5 * ms}, []time.Duration{10 * ms}, ms})
	want := []Share{share(Network, 5*ms/2+24*ms), share(Disk, 40*ms), share(Host, 3*ms/2+500*ms)}
	if diff := cmp.Diff(want, s.of(t).Blocks[0].Shares); diff != "" {
		t.Errorf("shares (-want +got):\n%s", diff)
	}
}

func TestTraffic(t *testing.T) {
	s := newSchedule(t, false)
	s.flow(plan{coflow: 1, flow: 1, src: 0, dst: 4, arrival: 10 * ms, syn: 10 * ms, stretches: []stretch{{10 * ms, 80 * ms, 40_000, false}}})
	s.flow(plan{coflow: 2, flow: 2, src: 0, dst: 1, arrival: 20 * ms, syn: 20 * ms, stretches: []stretch{{20 * ms, 90 * ms, 10_000, false}}})
	s.flow(plan{coflow: 3, flow: 3, src: 0, dst: 4, arrival: 20 * ms, syn: 20 * ms, stretches: []stretch{{20 * ms, 80 * ms, 5_000, false}}})
	s.res.Trails[len(s.res.Trails)-1].Read = true
	s.carry(s.fabric.LeafUp(1, 0), 10*ms, 80*ms, 700) // acknowledgements
	p := pipeline{1, 1, []time.Duration{ms, ms, ms, ms}, []time.Duration{ms, ms, ms, ms}, ms}
	s.block(0, 30*ms, 30*ms, 0, p) // from host 0 over 1, 2 and 3 to 4, in the other rack
	s.carry(s.fabric.LeafUp(0, 0), 10*ms, 80*ms, 1100)
	got := s.of(t).Traffic
	want := Traffic{CrossRack: map[string]units.Bytes{Shuffle: 40_000, Write: 1100, Control: 700, MapRead: 5_000}, DiskImbalance: 1, Makespan: 80 * ms}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("traffic (-want +got):\n%s", diff)
	}
}

func TestWhatIsMissing(t *testing.T) {
	s := newSchedule(t, false)
	s.flow(plan{coflow: 1, flow: 1, src: 0, dst: 1, stretches: []stretch{{0, ms, 1000, false}}})
	s.flow(plan{coflow: 2, flow: 2, src: 0, dst: 1, stretches: []stretch{{0, ms, 1000, false}}})
	s.block(3, 0, 0, 0, pipeline{1, 1, []time.Duration{ms, ms}, []time.Duration{ms, ms}, ms})
	s.res.Trails[0].Complete = false
	s.res.Trails[3].Acks = nil
	r := s.of(t)
	want := []string{"coflow 1: 0 of its 1 flows have a trail", "block 3: hop 1 of pipeline 0 has no acknowledgement"}
	if diff := cmp.Diff(want, r.Missing); diff != "" || len(r.Coflows) != 1 || len(r.Blocks) != 0 {
		t.Errorf("%d coflows, %d blocks, missing (-want +got):\n%s", len(r.Coflows), len(r.Blocks), diff)
	}

	for want, spoil := range map[string]func(*flows.Result){
		ErrNoFabric.Error():        func(r *flows.Result) { r.Meta.Fabric = nil },
		"leaves: 0: must be 1":     func(r *flows.Result) { r.Meta.Fabric.Leaves = 0 },
		"loads of 19 links for":    func(r *flows.Result) { r.Links = r.Links[1:] },
		"load 3 has link 3 and in": func(r *flows.Result) { r.Links[3].Interval = 0 },
		"uses link 99 of":          func(r *flows.Result) { r.Trails[0].Path[0] = 99 },
	} {
		s := newSchedule(t, false)
		s.flow(plan{coflow: 1, flow: 1, src: 0, dst: 1, stretches: []stretch{{0, ms, 1000, false}}})
		spoil(&s.res)
		_, err := Of(&s.res)
		if err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, ErrNoFabric) != (want == ErrNoFabric.Error()) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
