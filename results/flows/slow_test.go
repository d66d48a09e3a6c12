package flows

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"pgregory.net/rapid"

	"testbed/hosts/wire"
	"testbed/results/pcap"
	"testbed/topo/units"
	"testbed/workloads/drawntest"
)

// sent is one segment of an oracle's flow.
type sent struct {
	from, to int
	at       time.Duration
	arrives  time.Duration // lost for never
}

// slowFlow is the plainly right answer for a stream of total bytes: one bool a
// byte, looked at from the start after every packet.
func slowFlow(segments []sent, total int) (start, end time.Duration, packets, resent int, ok bool) {
	out, in := make([]bool, total), make([]bool, total)
	start = segments[0].at
	for _, s := range segments {
		packets++
		again := false
		for i := s.from; i < s.to; i++ {
			again = again || out[i]
			out[i] = true
		}
		if again {
			resent++
		}
	}
	// Arrival order is time order; the test makes arrival times distinct.
	for {
		next := -1
		for i, s := range segments {
			if s.arrives != lost && (next < 0 || s.arrives < segments[next].arrives) {
				next = i
			}
		}
		if next < 0 {
			return start, 0, packets, resent, false
		}
		for i := segments[next].from; i < segments[next].to; i++ {
			in[i] = true
		}
		end = segments[next].arrives
		segments[next].arrives = lost
		whole := true
		for _, have := range in {
			whole = whole && have
		}
		if whole {
			return start, end, packets, resent, true
		}
	}
}

func TestAgainstSlowFlow(t *testing.T) {
	cases, complete := 0, 0
	rapid.Check(t, func(r *rapid.T) {
		size := rapid.IntRange(0, 400).Draw(r, "size")
		n := newNetwork(t, a, b)
		n.snap = 200
		if rapid.Bool().Draw(r, "of a task") {
			n.task = wire.Task{Job: 5, Index: 6, Outputs: 2}
		}
		n.mark(wire.KindCoflowMark, 0, 0, a, 1, 1, uint64(size))
		conn := n.dial(ms, a, b, 40001, wire.ShufflePort, rapid.Uint32().Draw(r, "isn"))
		stream := n.flow(1, 7, size)
		total := len(stream)
		var segments []sent
		used := map[time.Duration]bool{}
		count := rapid.IntRange(1, 40).Draw(r, "segments")
		for i := range count {
			from := rapid.IntRange(0, total-1).Draw(r, "from")
			s := sent{from: from, to: min(total, from+rapid.IntRange(1, 130).Draw(r, "length")), at: time.Duration(10+i) * ms}
			if i == 0 { // a sender begins at the beginning
				s.from, s.to = 0, min(total, s.to-s.from)
			}
			s.arrives = s.at + time.Duration(rapid.IntRange(-1, 20).Draw(r, "delay"))*ms
			if s.arrives < s.at {
				s.arrives = lost
			}
			for s.arrives != lost && used[s.arrives] {
				s.arrives++
			}
			used[s.arrives] = true
			segments = append(segments, s)
			conn.data(s.at, s.arrives, stream, s.from, s.to)
		}
		red := NewReducer(Options{})
		for _, host := range []string{a, b} {
			p, err := pcap.NewReader(bytes.NewReader(n.file(host)))
			if err != nil {
				r.Fatal(err)
			}
			if err := red.Add(context.Background(), host, p); err != nil {
				r.Fatal(err)
			}
		}
		got, err := red.Result()
		if err != nil {
			r.Fatal(err)
		}
		start, end, packets, resent, ok := slowFlow(segments, total)
		cases++
		if !ok {
			if len(got.Flows) != 0 || len(got.Problems) == 0 {
				r.Fatalf("incomplete flow: %+v, problems %q", got.Flows, got.Problems)
			}
			return
		}
		complete++
		if len(got.Flows) != 1 {
			r.Fatalf("%d flows, want 1: %q", len(got.Flows), got.Problems)
		}
		f := got.Flows[0]
		if f.Start != start || f.End != end || f.Packets != packets || f.Resent != resent {
			r.Fatalf("start %v end %v packets %d resent %d, want %v %v %d %d", f.Start, f.End, f.Packets, f.Resent, start, end, packets, resent)
		}
	})
	// Of 500 flows 160 were complete.
	drawntest.AtLeast(t, "flows that are complete", complete, cases, 0.27)
}

// slowPoints returns the times at which a stream reached each offset, byte by byte: at
// its sender when a packet up to that offset or further had left, at its receiver when
// all bytes before it had arrived.
func slowPoints(segments []sent, total int, offsets []int) (out, in []time.Duration) {
	for _, off := range offsets {
		for _, s := range segments {
			if s.to >= off {
				out = append(out, s.at)
				break
			}
		}
		last := lost
		for i := range off {
			first := lost
			for _, s := range segments {
				if s.arrives != lost && s.from <= i && i < s.to && (first == lost || s.arrives < first) {
					first = s.arrives
				}
			}
			if first == lost {
				return out, in
			}
			last = max(last, first)
		}
		in = append(in, last)
	}
	return out, in
}

func TestCheckpointsAgainstSlow(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		size := rapid.IntRange(0, 9000).Draw(r, "size")
		total := wire.Size + size
		n := newNetwork(t, a, b)
		n.mark(wire.KindCoflowMark, 0, 0, a, 1, 1, uint64(size))
		conn := n.dial(ms, a, b, 40001, wire.ShufflePort, rapid.Uint32().Draw(r, "isn"))
		stream := n.flow(1, 7, size)
		var segments []sent
		next, left, came := 0, 0, 0
		for i := range rapid.IntRange(1, 25).Draw(r, "segments") {
			s := sent{from: next, at: time.Duration(10+i) * ms}
			if i > 0 && (next == total || rapid.IntRange(0, 3).Draw(r, "again") == 0) {
				s.from = rapid.IntRange(0, next-1).Draw(r, "from")
			}
			s.to = min(total, s.from+rapid.IntRange(1, 1448).Draw(r, "length"))
			if i == 0 { // the header in one piece, so that the capture keeps it
				s.to = max(s.to, wire.Size)
			}
			next = max(next, s.to)
			s.arrives = s.at + time.Duration(rapid.IntRange(0, 20).Draw(r, "delay"))*ms + time.Duration(i)*time.Microsecond
			left++
			if came++; rapid.IntRange(0, 5).Draw(r, "lost") == 0 {
				s.arrives = lost
				came--
			}
			segments = append(segments, s)
			conn.data(s.at, s.arrives, stream, s.from, s.to)
		}
		res := n.reduce(Options{Points: 3})
		if len(res.Trails) != 1 {
			r.Fatalf("%d trails, want 1: %q", len(res.Trails), res.Problems)
		}
		got := res.Trails[0]
		offsets := []int{wire.Size}
		step := max(segment, (total+2)/3)
		for off := step; off < total; off += step {
			offsets = append(offsets, off)
		}
		if size > 0 {
			offsets = append(offsets, total)
		}
		out, in := slowPoints(segments, total, offsets)
		both := min(len(out), len(in))
		if came > 0 && !hasHeader(segments) {
			both = 0 // only one end knows what it is
		}
		var want [2][]Point
		for i := range both {
			want[0] = append(want[0], Point{out[i], units.Bytes(offsets[i])})
			want[1] = append(want[1], Point{in[i], units.Bytes(offsets[i])})
		}
		if came > 0 && (!slices.Equal(got.Sent, want[0]) || !slices.Equal(got.Received, want[1])) {
			r.Fatalf("sent %v, received %v, want %v", got.Sent, got.Received, want)
		}
		if got.Lost != left-came {
			r.Fatalf("Lost = %d, want %d", got.Lost, left-came)
		}
		again, seen := 0, 0
		for _, s := range segments {
			again += max(0, min(s.to, seen)-s.from)
			seen = max(seen, s.to)
		}
		if int(got.ResentBytes) != again {
			r.Fatalf("ResentBytes = %d, want %d", got.ResentBytes, again)
		}
	})
}

// hasHeader reports whether all of the transfer header arrives.
func hasHeader(segments []sent) bool {
	var have [wire.Size]bool
	for _, s := range segments {
		for i := s.from; s.arrives != lost && i < min(s.to, wire.Size); i++ {
			have[i] = true
		}
	}
	return !slices.Contains(have[:], false)
}

// A stream that wraps 32-bit sequence numbers more than once.
func TestCoverageBeyondFourGigabytes(t *testing.T) {
	c := coverage{base: 0xfff0_0000}
	const step, total = 1 << 20, int64(10) << 30
	for off := int64(0); off < total; off += 2 * step {
		for _, o := range []int64{off + step, off, off + step} { // late, early, again
			at := c.place(c.base + uint32(o))
			if at != o {
				t.Fatalf("place = %d, want %d", at, o)
			}
			c.add(at, step)
		}
	}
	if c.next != total || c.seen() != total || len(c.ahead) != 0 {
		t.Errorf("next %d, seen %d, %d spans ahead, want %d, %d, 0", c.next, c.seen(), len(c.ahead), total, total)
	}
}

// gopacket's layers are the oracle of the hand-made decoder.
func TestParseAgreesWithGopacket(t *testing.T) {
	n := newNetwork(t, a)
	rng := rand.New(rand.NewPCG(3, 4))
	var eth layers.Ethernet
	var ip layers.IPv4
	var tcp layers.TCP
	var udp layers.UDP
	var payload gopacket.Payload
	parser := gopacket.NewDecodingLayerParser(layers.LayerTypeEthernet, &eth, &ip, &tcp, &udp, &payload)
	for range 500 {
		body := make([]byte, rng.IntN(300))
		var b []byte
		if rng.IntN(2) == 0 {
			l := &layers.TCP{SrcPort: layers.TCPPort(rng.Uint32()), DstPort: 9, Seq: rng.Uint32(), SYN: rng.IntN(2) == 0, ACK: rng.IntN(2) == 0, RST: rng.IntN(9) == 0}
			for range rng.IntN(5) {
				l.Options = append(l.Options, layers.TCPOption{OptionType: layers.TCPOptionKindMSS, OptionLength: 4, OptionData: []byte{1, 2}})
			}
			b = n.frame(ipOf(t, "h0-00"), ipOf(t, "h7-31"), layers.IPProtocolTCP, l, body)
		} else {
			b = n.frame(ipOf(t, "h0-00"), ipOf(t, "h7-31"), layers.IPProtocolUDP, &layers.UDP{SrcPort: layers.UDPPort(rng.Uint32()), DstPort: 9}, body)
		}
		length := len(b)
		if rng.IntN(2) == 0 {
			b = b[:min(len(b), 160)]
		}
		if len(b) == length && rng.IntN(2) == 0 {
			b = append(b, 0, 0, 0) // padding
			length += 3
		}
		var got frame
		if kind := got.parse(b, length); kind != frameWhole {
			t.Fatalf("parse = %d, want whole", kind)
		}
		payload = nil
		var found []gopacket.LayerType
		if err := parser.DecodeLayers(b, &found); err != nil {
			t.Fatal(err)
		}
		want := frame{src: addr(binary.BigEndian.Uint32(ip.SrcIP)), dst: addr(binary.BigEndian.Uint32(ip.DstIP)), proto: uint8(ip.Protocol), payload: payload}
		if ip.Protocol == layers.IPProtocolTCP {
			want.srcPort, want.dstPort, want.seq, want.length = uint16(tcp.SrcPort), uint16(tcp.DstPort), tcp.Seq, int(ip.Length)-20-4*int(tcp.DataOffset)
			if (got.flags&flagSYN != 0) != tcp.SYN || (got.flags&flagACK != 0) != tcp.ACK || (got.flags&flagRST != 0) != tcp.RST {
				t.Errorf("flags %x of %+v", got.flags, tcp)
			}
			got.flags = 0
		} else {
			want.srcPort, want.dstPort, want.length = uint16(udp.SrcPort), uint16(udp.DstPort), int(udp.Length)-8
		}
		if fmt.Sprintf("%+v", got) != fmt.Sprintf("%+v", want) {
			t.Fatalf("parse = %+v, want %+v", got, want)
		}
	}
}

func FuzzFrame(f *testing.F) {
	n := newNetwork(f, a)
	f.Add(n.frame(ipOf(f, a), ipOf(f, b), layers.IPProtocolTCP, &layers.TCP{SYN: true}, []byte("xyz")), 1514)
	f.Add([]byte{}, 0)
	f.Fuzz(func(t *testing.T, b []byte, length int) {
		if length < len(b) || length > 1<<20 {
			return
		}
		var got frame
		if got.parse(b, length) == frameWhole && (got.length < 0 || len(got.payload) > got.length || got.length > length) {
			t.Errorf("%d captured of %d payload bytes in a frame of %d", len(got.payload), got.length, length)
		}
	})
}
