package conversations

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/longtest"
	"testbed/results/tooltest"
)

// streams converts the conversations of a capture to tshark's streams. Retransmissions and
// out-of-order packets are one number: see the package comment.
func streams(c *Capture) []tooltest.Stream {
	end := func(a netip.AddrPort) string { return fmt.Sprintf("%v %d", a.Addr(), a.Port()) }
	var out []tooltest.Stream
	for _, v := range c.Conversations {
		a, b := &v.AB, &v.BA
		out = append(out, tooltest.Stream{
			Protocol: v.Protocol(), Number: v.Stream, A: end(v.A()), B: end(v.B()), First: v.From, Last: v.To,
			Packets: [2]int{a.Packets, b.Packets}, Bytes: [2]int64{int64(a.Bytes), int64(b.Bytes)}, Payload: [2]int64{int64(a.Payload), int64(b.Payload)},
			Retransmissions: [2]int{a.Retransmissions + a.OutOfOrder, b.Retransmissions + b.OutOfOrder},
			ZeroWindows:     [2]int{a.ZeroWindows, b.ZeroWindows},
			SYN:             [2]int{int(a.SYN), int(b.SYN)}, FIN: [2]int{int(a.FIN), int(b.FIN)}, RST: [2]int{int(a.RST), int(b.RST)},
			RTT: int64(v.Handshake),
		})
	}
	slices.SortStableFunc(out, func(a, b tooltest.Stream) int { return strings.Compare(a.Protocol, b.Protocol) })
	return out
}

// agree compares a capture with tshark's streams. Without handshakes, it does not compare
// their times: tshark takes any acknowledgement after a SYN for the third packet of the
// handshake, even if the second is missing.
func agree(t testing.TB, path string, handshakes bool) *Capture {
	t.Helper()
	c, err := ReadFile(t.Context(), path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	want := tooltest.Streams(t, path)
	got := streams(c)
	for i := range want {
		w := &want[i]
		for d := range w.OutOfOrder {
			w.Retransmissions[d] += w.OutOfOrder[d]
		}
		w.OutOfOrder, w.Data, w.FINAgain, w.LoneFINAgain, w.FirstData, w.LastData = [2]int{}, [2]int{}, [2]int{}, [2]int{}, [2]int64{}, [2]int64{}
		if !handshakes && i < len(got) {
			w.RTT = got[i].RTT
		}
		// A is the client, even if its SYN was not captured.
		if i < len(got) && got[i].A == w.B {
			w.A, w.B = w.B, w.A
			for _, p := range []*[2]int{&w.Packets, &w.Retransmissions, &w.ZeroWindows, &w.SYN, &w.FIN, &w.RST} {
				p[0], p[1] = p[1], p[0]
			}
			w.Bytes[0], w.Bytes[1] = w.Bytes[1], w.Bytes[0]
			w.Payload[0], w.Payload[1] = w.Payload[1], w.Payload[0]
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s: %d conversations, tshark has %d", path, len(got), len(want))
	}
	for i := range min(len(got), len(want)) {
		if diff := cmp.Diff(want[i], got[i]); diff != "" {
			t.Fatalf("%s: %s stream %d (-tshark +ours):\n%s", path, want[i].Protocol, want[i].Number, diff)
		}
	}
	return c
}

// Payload that was acknowledged but never captured counts as resent. This package uses the
// last acknowledgement. tshark also uses the acknowledgement number 0 of a SYN or RST, which
// acknowledge nothing, and then forgets the earlier ones.
func TestTsharkForgetsAcknowledgements(t *testing.T) {
	longtest.Skip(t, "compares with tshark, 2 s")
	tooltest.Need(t, "tshark")
	for _, tt := range []struct {
		name    string
		between *tcpPacket
		want    int // tshark's count
	}{
		{"nothing between", nil, 1},
		{"the same SYN again", &tcpPacket{client: 1, server: 2, seq: 999, flags: "S", window: 9}, 0},
		{"a reset", &tcpPacket{client: 1, server: 2, seq: 1000, flags: "R"}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			list := []*tcpPacket{
				{client: 1, server: 2, seq: 999, flags: "S", window: 9},
				{client: 1, server: 2, seq: 1000, ack: 5000, flags: "A", window: 9},
				tt.between,
				{client: 1, server: 2, back: true, seq: 4000, ack: 1000, flags: "A", window: 9, payload: make([]byte, 300)},
			}
			var ps []packet
			for _, p := range list {
				if p != nil {
					ps = append(ps, packet{at: time.Duration(len(ps)) * time.Second, frame: p.frame(t)})
				}
			}
			path := write(t, ps)
			c, err := ReadFile(t.Context(), path, Options{})
			if err != nil {
				t.Fatal(err)
			}
			if v := c.Conversations[0]; v.BA.Retransmissions != 1 || v.BA.ResentBytes != 300 {
				t.Errorf("%+v, want one packet sent again", v.BA)
			}
			if w := tooltest.Streams(t, path)[0]; w.Retransmissions[1] != tt.want {
				t.Errorf("tshark has %v sent again, want %d", w.Retransmissions, tt.want)
			}
		})
	}
}
