package conversations

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/results/tooltest"
)

// streams are the conversations of a capture as tshark's streams. Retransmissions
// and what is out of order are in one number: see the package comment.
func streams(c *Capture) []tooltest.Stream {
	end := func(a netip.AddrPort) string { return fmt.Sprintf("%v %d", a.Addr(), a.Port()) }
	var out []tooltest.Stream
	for _, v := range c.Conversations {
		a, b := &v.AB, &v.BA
		out = append(out, tooltest.Stream{
			Protocol: v.Protocol, Number: v.Stream, A: end(v.A), B: end(v.B), First: v.From, Last: v.To,
			Packets: [2]int{a.Packets, b.Packets}, Bytes: [2]int64{int64(a.Bytes), int64(b.Bytes)}, Payload: [2]int64{int64(a.Payload), int64(b.Payload)},
			Retransmissions: [2]int{a.Retransmissions + a.OutOfOrder, b.Retransmissions + b.OutOfOrder},
			ZeroWindows:     [2]int{a.ZeroWindows, b.ZeroWindows},
			SYN:             [2]int{a.SYN, b.SYN}, FIN: [2]int{a.FIN, b.FIN}, RST: [2]int{a.RST, b.RST},
			RTT: int64(v.Handshake),
		})
	}
	slices.SortStableFunc(out, func(a, b tooltest.Stream) int { return strings.Compare(a.Protocol, b.Protocol) })
	return out
}

// agree compares a capture with what tshark makes of it. Without handshakes, it does
// not compare their times: tshark takes any acknowledgement after a SYN for the third
// packet of one, also where the second is missing.
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
		w.OutOfOrder, w.Data, w.FirstData, w.LastData = [2]int{}, [2]int{}, [2]int64{}, [2]int64{}
		if !handshakes && i < len(got) {
			w.RTT = got[i].RTT
		}
		// A is the client, also where its SYN was not captured.
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
