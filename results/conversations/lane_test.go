package conversations

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"testbed/emu/longtest"
	"testbed/results/pcap"
)

// rows are all figures of a capture.
func rows(c *Capture) []Row {
	var out []Row
	for _, v := range c.Conversations {
		out = append(out, v.Row(c.Path))
	}
	return out
}

// Packets of many conversations, with segments that are resent, overtaken and lost, in both directions, in IPv4,
// IPv6 and VLANs, and packets of no conversation, have the same figures with any number of lanes. So has a
// capture that is cut off.
func TestLanesChangeNothing(t *testing.T) {
	for seed := range uint64(4) {
		rng := rand.New(rand.NewPCG(seed, 2))
		ps := script(t, rng, 40, 1500)
		for i := range ps {
			switch rng.IntN(40) {
			case 0: // an invalid header length: the first states which
				ps[i].frame[14] = 0x41 + byte(rng.IntN(3))
			case 1: // another protocol
				ps[i].frame[23] = byte(rng.IntN(256))
			case 2:
				ps[i].keep = 20 + rng.IntN(40)
			}
		}
		path := write(t, ps)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if seed%2 == 1 {
			if err := os.WriteFile(path, b[:len(b)-5], 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, wantErr := ReadFile(t.Context(), path, Options{})
		if (wantErr != nil) != (seed%2 == 1) || len(want.Conversations) < 40 || len(want.Other) < 3 {
			t.Fatalf("%d conversations, %d kinds of other packets, %v", len(want.Conversations), len(want.Other), wantErr)
		}
		again, late := 0, 0
		for _, v := range want.Conversations {
			again, late = again+v.Retransmissions(), late+v.AB.OutOfOrder+v.BA.OutOfOrder
		}
		if again == 0 || late == 0 {
			t.Fatalf("%d packets sent again, %d late: the capture tests nothing", again, late)
		}
		for _, lanes := range []int{2, 3, 8} {
			got, err := ReadFile(t.Context(), path, Options{Lanes: lanes})
			if fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Errorf("%d lanes: error %v, want %v", lanes, err, wantErr)
			}
			if diff := cmp.Diff(rows(want), rows(got)); diff != "" {
				t.Errorf("seed %d, %d lanes (-one +many):\n%s", seed, lanes, diff)
			}
			a, b := *want, *got
			a.Conversations, b.Conversations, a.Err, b.Err = nil, nil, nil, nil
			if diff := cmp.Diff(a, b); diff != "" {
				t.Errorf("seed %d, %d lanes (-one +many):\n%s", seed, lanes, diff)
			}
		}
	}
}

// All lanes have packets, though clients use only even ports.
func TestLanesHaveEqualShares(t *testing.T) {
	const lanes, flows = 4, 1000
	h := sharer{lanes: lanes}
	var count [lanes]int
	for i := range flows {
		p := tcpPacket{client: uint16(32768 + 2*i), server: 80, flags: "A"}
		to := pcap.Packet{Data: p.frame(t)}
		p.back, p.vlan = true, i%2 == 0
		back := pcap.Packet{Data: p.frame(t)}
		back.Len = len(back.Data)
		lane := h.lane(&to, pcap.LinkEthernet)
		if lane != h.lane(&back, pcap.LinkEthernet) {
			t.Fatalf("flow %d has two lanes", i)
		}
		count[lane]++
	}
	for i, n := range count {
		if n < flows/lanes*3/4 {
			t.Errorf("%d of %d flows in lane %d of %d", n, flows, i, lanes)
		}
	}
}

// busy is a capture of n packets in each of flows conversations.
func busy(t *testing.T, flows, n int) []byte {
	var ps []packet
	for k := range n {
		for i := range flows {
			p := tcpPacket{client: uint16(1000 + i), server: 2000, seq: uint32(1 + 500*k), flags: "A", window: 100, payload: make([]byte, 500)}
			ps = append(ps, packet{at: time.Duration(len(ps)) * time.Microsecond, frame: p.frame(t), keep: 96})
		}
	}
	b, err := os.ReadFile(write(t, ps))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// cost returns the number and bytes of allocations for reading a capture.
func cost(t *testing.T, capture []byte) (count, bytesOf uint64) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	r, err := pcap.NewReader(bytes.NewReader(capture))
	if err != nil {
		t.Fatal(err)
	}
	c, err := Read(t.Context(), r, Options{})
	if err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(c)
	return after.Mallocs - before.Mallocs, after.TotalAlloc - before.TotalAlloc
}

// Reading a packet allocates nothing, and a conversation takes at most maxBytes with its share of tables.
func TestMemoryOfAConversation(t *testing.T) {
	longtest.Computes(t)
	const maxSize = 272
	if size := unsafe.Sizeof(Conversation{}); size > maxSize {
		t.Errorf("a conversation has %d bytes, want at most %d", size, maxSize)
	}
	const flows, maxBytes = 2048, 280
	one, all := busy(t, flows, 1), busy(t, flows, 4)
	cost(t, one)                             // what is allocated once
	few, least := cost(t, busy(t, 1, flows)) // as many packets
	count, bytesOf := cost(t, one)
	if per := (bytesOf - least) / flows; per > maxBytes {
		t.Errorf("%d bytes a conversation, want at most %d", per, maxBytes)
	}
	if per := float64(count-few) / flows; per > 0.1 {
		t.Errorf("%g allocations a conversation, want those of slabs and tables alone", per)
	}
	again, _ := cost(t, all)
	if more := int(again) - int(count); more > 20 {
		t.Errorf("%d allocations more for %d packets more", more, 3*flows)
	}
}

// A row of CSV is written without keeping the rows before it, and with few allocations.
func TestAllocationsOfARow(t *testing.T) {
	const n, most = 200, 20
	c := read(t, []packet{{frame: tcpPacket{client: 1000, server: 2000, seq: 1, flags: "A", payload: make([]byte, 500)}.frame(t)}})
	allocs := testing.AllocsPerRun(5, func() {
		rows := func(yield func(Row) bool) {
			for range n {
				if !yield(c.Conversations[0].Row("x")) {
					return
				}
			}
		}
		if err := WriteCSV(io.Discard, rows); err != nil {
			t.Fatal(err)
		}
	})
	if allocs/n > most {
		t.Errorf("%g allocations a row, want at most %d", allocs/n, most)
	}
}

// The headers of IPv4 that are accepted, and their options, are those that gopacket's layer accepts.
func FuzzIPv4Header(f *testing.F) {
	for _, p := range script(f, rand.New(rand.NewPCG(8, 8)), 4, 8) {
		f.Add(p.frame[14:])
	}
	plain := tcpPacket{flags: "A", payload: make([]byte, 60)}.frame(f)[14:]
	for _, options := range [][]byte{{0, 9, 9, 9}, {1, 1, 1, 0}, {7, 3, 4, 0}, {7, 2, 1, 1}, {7, 5, 1, 1}, {1, 1, 1, 7}} {
		b := append(append(bytes.Clone(plain[:20]), options...), plain[20:]...)
		b[0] = 0x46
		f.Add(b)
		b = bytes.Clone(b)
		b[2], b[3] = 0, 0
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) == 0 {
			return
		}
		var d decoder
		var s segment
		got := d.decode(&s, pcap.LinkIPv4, b, len(b))
		var ip layers.IPv4
		// gopacket takes the length of a longer packet modulo 65,536.
		err := ip.DecodeFromBytes(b[:min(len(b), 60)], gopacket.NilDecodeFeedback)
		if (err != nil) != (got == badIPv4) {
			t.Errorf("%x: %q, gopacket %v", b[:min(len(b), 60)], got, err)
		}
	})
}
