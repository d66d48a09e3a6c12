package flows

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket/layers"
	"pgregory.net/rapid"

	"testbed/hosts/wire"
)

const us = time.Microsecond

// stalls is one flow of 4,344 bytes behind its header, in packets of 1,448, that waits
// once for its host, loses a packet, and meets a closed window.
func stalls(n *network) {
	n.mark(wire.KindCoflowMark, 0, 0, a, 1, 1, 4*1448)
	conn := n.dial(20*ms, a, b, 40001, wire.ShufflePort, 0xffff_ff00)
	s := n.flow(1, 7, 4*1448)
	conn.data(22*ms, 23*ms, s, 0, 64)
	conn.ack(23*ms, 24*ms, 64, 100) // a round trip of 2 ms; nothing is under way
	conn.data(30*ms, 31*ms, s, 64, 1512)
	conn.data(30*ms+us, lost, s, 1512, 2960)
	conn.data(30*ms+2*us, 31*ms+2*us, s, 2960, 4408)
	conn.ack(31*ms, 33*ms, 1512, 0)        // 3 ms; closed
	conn.ack(31*ms+2*us, 34*ms, 1512, 0)   // again
	conn.data(50*ms, 52*ms, s, 1512, 2960) // again
	conn.ack(52*ms, 54*ms, 4408, 100)      // all, and open: no sample
	conn.data(54*ms, 60*ms, s, 4408, 5856) // at once
	conn.ack(60*ms, 64*ms, len(s), 100)    // 10 ms
	conn.ack(61*ms, 65*ms, len(s), 100)    // no sample
	conn.segment(true, 70*ms, 71*ms, layers.TCP{RST: true, Seq: conn.cisn + 1 + uint32(len(s))}, nil)
}

func TestTrail(t *testing.T) {
	n := newNetwork(t, a, b)
	stalls(n)
	res := n.reduce(Options{Points: 2})
	wantProblems(t, res)
	want := Trail{Kind: wire.KindFlow, Group: 1, Member: 7, SrcName: a, DstName: b, Size: 4 * 1448, Wire: res.Flows[0].Wire, Complete: true,
		SYN: 20 * ms, SetUp: 21 * ms, FirstSent: 22 * ms, FirstByte: 23 * ms, End: 60 * ms,
		Sent:     []Point{{22 * ms, 64}, {30*ms + us, 2928}, {54 * ms, 5856}},
		Received: []Point{{23 * ms, 64}, {52 * ms, 2928}, {60 * ms, 5856}},
		Quiet:    []Span{{24 * ms, 30 * ms}}, // not the microseconds before the end
		Recovery: []Span{{33 * ms, 54 * ms}},
		Stalled:  []Span{{34 * ms, 54 * ms}}, // longer than 10 ms
		Closed:   []Span{{33 * ms, 54 * ms}},
		Packets:  6, Resent: 1, ResentBytes: 1448, Lost: 1, ZeroWindows: 2, Resets: 1, RTTMin: 2 * ms, RTTMedian: 3 * ms}
	if diff := cmp.Diff([]Trail{want}, res.Trails); diff != "" {
		t.Errorf("trails (-want +got):\n%s", diff)
	}
	f := res.Flows[0]
	if f.FirstByte != 23*ms || f.ResentBytes != 1448 || f.RTTMin != 2*ms || f.RTTMedian != 3*ms {
		t.Errorf("%+v", f)
	}
	if c := (Connections{Ours: 1, Resets: 1, Resent: 1, ZeroWindows: 2}); res.Connections != c {
		t.Errorf("Connections = %+v, want %+v", res.Connections, c)
	}
}

// A packet that is lost when nothing else was under way stalls the transfer from when
// it was sent, and not from the acknowledgement before.
func TestRecoveryBeginsWithThePacket(t *testing.T) {
	n := newNetwork(t, a, b)
	n.mark(wire.KindCoflowMark, 0, 0, a, 1, 1, 100)
	conn := n.dial(20*ms, a, b, 40001, wire.ShufflePort, 5)
	s := n.flow(1, 7, 100)
	conn.data(22*ms, 23*ms, s, 0, 64)
	conn.ack(23*ms, 24*ms, 64, 100)
	conn.data(50*ms, lost, s, 64, 164)
	conn.data(250*ms, 251*ms, s, 64, 164)
	conn.ack(251*ms, 252*ms, 164, 100)
	conn.data(260*ms, 261*ms, s, 64, 164) // needless: it has been acknowledged
	res := n.reduce(Options{})
	wantProblems(t, res)
	got := res.Trails[0]
	if diff := cmp.Diff([]Span{{50 * ms, 252 * ms}}, got.Recovery); diff != "" {
		t.Errorf("Recovery (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(got.Recovery, got.Stalled); diff != "" {
		t.Errorf("all of it is stalled (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Span{{24 * ms, 50 * ms}}, got.Quiet); diff != "" {
		t.Errorf("Quiet (-want +got):\n%s", diff)
	}
	if got.RTTMin != 2*ms || got.RTTMedian != 2*ms || got.Resent != 2 {
		t.Errorf("%+v", got)
	}
}

// A flow that recovers from one loss while the rest of its window goes on is not
// stalled, and one whose segment is lost again is from the last that it hears.
func TestStalled(t *testing.T) {
	n := newNetwork(t, a, b)
	n.mark(wire.KindCoflowMark, 0, 0, a, 1, 1, 9*1000)
	conn := n.dial(20*ms, a, b, 40001, wire.ShufflePort, 5)
	s := n.flow(1, 7, 9*1000)
	at := func(k int) int { return min(k*1000, len(s)) }
	send := func(k int, sent, came time.Duration) { conn.data(sent, came, s, at(k), at(k+1)) }
	send(0, 30*ms, 35*ms)
	conn.ack(35*ms, 40*ms, at(1), 100) // a round trip of 10 ms, the longest
	send(1, 40*ms, lost)
	for k := 2; k < 6; k++ {
		send(k, 40*ms+time.Duration(k)*ms, 45*ms+time.Duration(k)*ms)
		conn.ack(45*ms+time.Duration(k)*ms, 50*ms+time.Duration(k)*ms, at(1), 100)
	}
	send(1, 56*ms, lost)
	send(6, 56*ms+us, 61*ms)
	conn.ack(61*ms, 66*ms, at(1), 100) // after 11 ms, which is more than 10
	send(1, 270*ms, 275*ms)
	conn.ack(275*ms, 280*ms, at(7), 100)
	send(7, 280*ms, lost)
	send(8, 280*ms+us, 285*ms)
	conn.ack(285*ms, 290*ms, at(7), 100)
	send(9, 290*ms, 295*ms)
	conn.ack(295*ms, 299*ms, at(7), 100)
	send(7, 299*ms, 304*ms)
	conn.ack(304*ms, 309*ms, len(s), 100)
	res := n.reduce(Options{})
	wantProblems(t, res)
	if diff := cmp.Diff([]Span{{40 * ms, 280 * ms}, {280 * ms, 309 * ms}}, res.Trails[0].Recovery); diff != "" {
		t.Errorf("Recovery (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]Span{{55 * ms, 66 * ms}, {66 * ms, 280 * ms}}, res.Trails[0].Stalled); diff != "" {
		t.Errorf("Stalled (-want +got):\n%s", diff)
	}
}

// A SYN that is sent again stalls the flow that has not begun.
func TestLostSYNStalls(t *testing.T) {
	n := newNetwork(t, a, b)
	n.mark(wire.KindCoflowMark, 0, 0, a, 1, 1, 100)
	early := &tcp{n: n, client: a, server: b, cport: 40001, sport: wire.ShufflePort, cisn: 5}
	for _, at := range []time.Duration{20 * ms, 520 * ms} {
		early.segment(true, at, lost, layers.TCP{SYN: true, Seq: 5}, nil)
	}
	conn := n.dial(1020*ms, a, b, 40001, wire.ShufflePort, 5)
	s := n.flow(1, 7, 100)
	conn.data(1022*ms, 1023*ms, s, 0, len(s))
	conn.ack(1023*ms, 1024*ms, len(s), 100)
	res := n.reduce(Options{})
	got := res.Trails[0]
	if got.SYN != 20*ms {
		t.Errorf("SYN at %v, want 20ms", got.SYN)
	}
	if diff := cmp.Diff([]Span{{20 * ms, 520 * ms}, {520 * ms, 1020 * ms}}, got.Stalled); diff != "" {
		t.Errorf("Stalled (-want +got):\n%s", diff)
	}
}

// Two packets change places on the way, and one is sent again.
func TestReorderedIsNotSentAgain(t *testing.T) {
	for _, numbered := range []bool{true, false} {
		n := newNetwork(t, a, b)
		n.mark(wire.KindCoflowMark, 0, 0, a, 1, 1, 4000)
		conn := n.dial(ms, a, b, 40001, wire.ShufflePort, 5)
		s := n.flow(1, 7, 4000)
		conn.data(10*ms, 11*ms, s, 0, 1000)
		conn.data(12*ms, 14*ms, s, 1000, 2000) // overtaken
		conn.data(13*ms, 13*ms+us, s, 2000, 3000)
		conn.data(15*ms, lost, s, 3000, 4000)
		conn.data(16*ms, 17*ms, s, 4000, 4064)
		conn.data(30*ms, 31*ms, s, 3000, 4000) // sent again
		if numbered {
			ident := uint16(0xfffd) // wraps
			for _, host := range []string{a, b} {
				for i, p := range n.packets[host] {
					if p.frame[14+9] == protoTCP && p.frame[14+12+3] == 1 && len(p.frame) > heads {
						n.packets[host][i].frame = slices.Clone(p.frame)
						id := ident + uint16(slices.Index([]int{0, 1000, 2000, 3000, 4000}, offsetOf(p.frame, conn))+1)
						if p.at == 31*ms || p.at == 30*ms {
							id = ident + 10
						}
						n.packets[host][i].frame[18], n.packets[host][i].frame[19] = byte(id>>8), byte(id)
					}
				}
			}
		}
		res := n.reduce(Options{})
		wantProblems(t, res)
		if got := res.Trails[0]; got.Reordered != 1 || got.Resent != 1 || got.Lost != 1 {
			t.Errorf("numbered %v: %d reordered, %d resent, %d lost, want one of each", numbered, got.Reordered, got.Resent, got.Lost)
		}
	}
}

func offsetOf(frame []byte, c *tcp) int {
	return int(uint32(frame[38])<<24|uint32(frame[39])<<16|uint32(frame[40])<<8|uint32(frame[41])) - int(c.cisn) - 1
}

// A connection whose SYN is missing in a host's capture is recognized by its header.
func TestNoSYN(t *testing.T) {
	for _, lacks := range [][]string{{a}, {b}, {a, b}} {
		n := newNetwork(t, a, b)
		stalls(n)
		for _, host := range lacks {
			n.packets[host] = slices.DeleteFunc(n.packets[host], func(s seen) bool { return s.frame[14+9] == protoTCP && s.frame[47]&flagSYN != 0 })
		}
		res := n.reduce(Options{})
		wantProblems(t, res)
		if len(res.Flows) != 1 || len(res.Notes) != len(lacks) || res.Flows[0].End != 60*ms || res.Flows[0].Resent != 1 || res.Trails[0].Lost != 1 || len(res.Trails[0].Quiet) != 1 {
			t.Errorf("without SYN at %v: flows %+v, notes %q", lacks, res.Flows, res.Notes)
		}
	}
}

// A later connection between the same ports whose SYN is not there.
func TestPortReuseWithoutSYN(t *testing.T) {
	n := newNetwork(t, a, b)
	simple(n)
	n.mark(wire.KindCoflowMark, 40*ms, 41*ms, a, 2, 1, 100)
	again := &tcp{n: n, client: a, server: b, cport: 40001, sport: wire.ShufflePort, cisn: 777_000}
	again.data(52*ms, 53*ms, n.flow(2, 8, 100), 0, 164)
	got := n.reduce(Options{})
	wantProblems(t, got)
	if len(got.Flows) != 2 || got.Flows[0] != simpleFlow() || got.Flows[1].End != 43*ms || got.Flows[1].Flow != 8 {
		t.Errorf("flows %+v", got.Flows)
	}
}

// A hop of 10 pipeline packets, of which the first, every fourth and the last two are
// kept.
func TestAcks(t *testing.T) {
	n := newNetwork(t, a, b)
	n.mark(wire.KindWriteMark, 0, 0, a, 3, 1, 3950)
	conn := n.dial(10*ms, a, b, 41000, wire.BlockPort, 99)
	h := wire.Header{Kind: wire.KindBlock, Run: n.run, Group: 3, Parts: 1, Size: 3950, Packet: 400, Sent: epoch}
	s := h.Append(nil)
	s, err := wire.AppendTargets(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	head := len(s)
	s = append(s, make([]byte, 3950)...)
	conn.data(20*ms, 21*ms, s, 0, head)
	answer := func(sent, received time.Duration, from int, acks ...wire.Ack) {
		var b []byte
		for _, a := range acks {
			b = a.Append(b)
		}
		conn.segment(false, sent, received, layers.TCP{ACK: true, Seq: conn.sisn + 1 + uint32(from)}, b)
	}
	answer(22*ms, 23*ms, 0, wire.Ack{})
	at := 8
	for i := range 10 {
		when := time.Duration(100*(i+1)) * ms
		half := head + 400*i + 200
		conn.data(when, when+10*ms, s, head+400*i, half)
		conn.data(when+ms, when+11*ms, s, half, min(len(s), head+400*(i+1)))
		acks := []wire.Ack{{Seq: uint32(i + 1)}}
		if i == 3 {
			acks = []wire.Ack{{Alive: true}, {Seq: uint32(i + 1)}}
		}
		answer(when+30*ms, when+35*ms, at, acks...)
		at += 8 * len(acks)
	}
	res := n.reduce(Options{Points: 3})
	wantProblems(t, res)
	var want []Ack
	for _, i := range []int{0, 4, 8, 9} {
		when := time.Duration(100*(i+1)) * ms
		want = append(want, Ack{i, when, when + 11*ms, when + 30*ms, when + 35*ms})
	}
	if diff := cmp.Diff(want, res.Trails[0].Acks); diff != "" {
		t.Errorf("Acks (-want +got):\n%s", diff)
	}
	if end := 1035 * ms; res.Trails[0].End != end || res.Blocks[0].End != end {
		t.Errorf("ends at %v and %v, want %v", res.Trails[0].End, res.Blocks[0].End, end)
	}
}

func TestSpansAgainstSlow(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		most := rapid.IntRange(1, 6).Draw(r, "most")
		var s spans
		var all []stretch
		at, sum := int64(0), int64(0)
		for range rapid.IntRange(0, 40).Draw(r, "n") {
			at += rapid.Int64Range(0, 5).Draw(r, "gap")
			v := stretch{at, at + rapid.Int64Range(0, 50).Draw(r, "length")}
			at = v.to
			s.add(v.from, v.to, most)
			if v.to > v.from {
				all = append(all, v)
			}
			sum += v.to - v.from
		}
		total := s.rest
		for i, v := range s.list {
			total += v.to - v.from
			if i > 0 && v.from < s.list[i-1].to {
				r.Fatalf("out of order: %v", s.list)
			}
		}
		if total != sum || len(s.list) != min(most, len(all)) {
			r.Fatalf("%d spans and %d ns in all, want %d and %d", len(s.list), total, min(most, len(all)), sum)
		}
		longest := func(list []stretch) []int64 {
			var l []int64
			for _, v := range list {
				l = append(l, v.from-v.to)
			}
			slices.Sort(l)
			return l[:min(most, len(l))]
		}
		if !slices.Equal(longest(s.list), longest(all)) {
			r.Fatalf("kept %v of %v", s.list, all)
		}
	})
}

// The median of what is kept is near that of all.
func TestRoundTripMedian(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	var r roundTrips
	var all []int64
	for i := range 10_000 {
		now, d := int64(i)*1e6, 1e5+rng.Int64N(1e6)
		r.sent(int64(i+1), now)
		r.acknowledged(int64(i+1), now+d)
		all = append(all, d)
	}
	slices.Sort(all)
	if r.least != all[0] {
		t.Errorf("least %d, want %d", r.least, all[0])
	}
	if m := r.median(); m < all[3500] || m > all[6500] {
		t.Errorf("median %d, that of all is %d", m, all[5000])
	}
	if len(r.keep) > samples {
		t.Errorf("%d samples are kept", len(r.keep))
	}
}

func TestHolesAreBounded(t *testing.T) {
	var c coverage
	const holes = 5 * maxHoles
	seen := int64(0)
	for i := range int64(holes) {
		c.add(2*i+1, 1)
		seen++
	}
	if len(c.ahead) > maxHoles || c.seen() != seen || c.covers(1) {
		t.Errorf("%d spans, %d bytes seen, want at most %d and %d", len(c.ahead), c.seen(), maxHoles, seen)
	}
}

// What is sent again although it arrived reaches the receiver twice; what was lost does not.
func TestRepeated(t *testing.T) {
	n := newNetwork(t, a, b)
	n.mark(wire.KindCoflowMark, 0, 0, a, 1, 1, 4*1448)
	conn := n.dial(20*ms, a, b, 40001, wire.ShufflePort, 1000)
	s := n.flow(1, 7, 4*1448)
	conn.data(22*ms, 23*ms, s, 0, 1448)
	conn.data(22*ms+us, lost, s, 1448, 2896)
	conn.data(22*ms+2*us, 23*ms+2*us, s, 2896, len(s))
	conn.data(30*ms, 31*ms, s, 1448, 2896) // was lost
	conn.data(40*ms, 41*ms, s, 0, 1448)    // was not
	res := n.reduce(Options{})
	if got := res.Trails[0]; got.Packets != 5 || got.Resent != 2 || got.Lost != 1 || got.Repeated != 1 {
		t.Errorf("%d packets, %d sent again, %d lost, %d received twice: want 5, 2, 1 and 1", got.Packets, got.Resent, got.Lost, got.Repeated)
	}
}
