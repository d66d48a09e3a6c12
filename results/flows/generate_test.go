package flows

import (
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"testbed/hosts/wire"
	"testbed/results/pcap"
	"testbed/topo"
	"testbed/topo/units"
)

// generated is the traffic of one host as its capture would have it: many flows at
// once, half of them sent and half received, in turns of a few packets with an
// acknowledgement for every second. It is a stream, so that its size does not matter.
type generated struct {
	flows, packets int
	snap           int // of all but the packets with a transfer header, which are kept to 160
	t              testing.TB
}

// The host, and how its fabric is.
const generatedHost = "h0-00"

func generatedFabric() *topo.LeafSpine {
	return &topo.LeafSpine{Leaves: 4, Spines: 2, HostsPerLeaf: 5, HostLink: 10_000 * units.Mbps, Oversubscription: units.Ratio{Num: 5, Den: 1},
		Queue: topo.Queue{Time: 20 * time.Millisecond}, MTU: 1500}
}

// mss is the payload of a full packet, with time stamps.
const mss = 1448

type generatedFlow struct {
	frame [heads + wire.Size]byte // of the data
	back  [heads]byte             // of the acknowledgements
	sent  uint32
	left  int // packets
	owed  int // to be acknowledged
}

// write writes the capture and returns how many packets it has.
func (g generated) write(to io.Writer) int {
	w, err := pcap.NewWriter(to, pcap.Meta{Tool: "testbed", Run: testRun, Host: generatedHost, Seed: 7, Fabric: generatedFabric()},
		[]pcap.Interface{{Name: "eth0", SnapLen: 160}, {Name: "lo", SnapLen: 160}})
	if err != nil {
		g.t.Fatal(err)
	}
	f, err := generatedFabric().Build()
	if err != nil {
		g.t.Fatal(err)
	}
	n, now := 0, epoch.UnixNano()
	put := func(frame []byte, length int) {
		n++
		now += int64(1200 + 37*(n%11))
		if err := w.Write(0, time.Unix(0, now), frame, length); err != nil {
			g.t.Fatal(err)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	all := make([]generatedFlow, g.flows)
	// SYN, SYN-ACK, data and an acknowledgement for every second.
	each := max(2, (g.packets/g.flows-2)*2/3)
	for i := range all {
		fl := &all[i]
		peer := f.HostAddr(topo.HostID(1 + i%(f.Hosts()-1)))
		self := f.HostAddr(0)
		client, server := self, peer
		if i%2 == 1 {
			client, server = peer, self
		}
		fl.left = each
		size := uint64(each*mss) - wire.Size
		header := wire.Header{Kind: wire.KindFlow, Run: testRun, Group: uint32(i / 100), Member: uint32(i), Size: size, Sent: epoch}
		generatedHeads(fl.frame[:], client, server, uint16(10000+i%50000), wire.ShufflePort, uint16(rng.Uint32()))
		generatedHeads(fl.back[:], server, client, wire.ShufflePort, uint16(10000+i%50000), uint16(rng.Uint32()))
		copy(fl.frame[heads:], header.Append(nil))
		isn, theirs := rng.Uint32(), rng.Uint32()
		fl.frame[47], fl.back[47] = flagSYN, flagSYN|flagACK
		binary.BigEndian.PutUint32(fl.frame[38:], isn)
		binary.BigEndian.PutUint32(fl.back[38:], theirs)
		binary.BigEndian.PutUint32(fl.back[42:], isn+1)
		put(fl.frame[:heads], heads)
		put(fl.back[:], heads)
		fl.frame[47], fl.back[47] = flagACK, flagACK
		binary.BigEndian.PutUint32(fl.frame[42:], theirs+1)
		binary.BigEndian.PutUint32(fl.back[38:], theirs+1)
		fl.sent = isn + 1
	}
	data := make([]byte, 160)
	for open := g.flows; open > 0; {
		i := rng.IntN(open)
		fl := &all[i]
		for range min(fl.left, 1+rng.IntN(4)) {
			binary.BigEndian.PutUint32(fl.frame[38:], fl.sent)
			binary.BigEndian.PutUint16(fl.frame[18:], binary.BigEndian.Uint16(fl.frame[18:])+1)
			binary.BigEndian.PutUint16(fl.frame[16:], mss+heads-14)
			copy(data, fl.frame[:])
			kept := g.snap
			if fl.left == each {
				kept = 160
			} else {
				clear(data[heads:])
			}
			put(data[:kept], mss+heads)
			fl.sent += mss
			fl.left--
			if fl.owed++; fl.owed == 2 || fl.left == 0 {
				binary.BigEndian.PutUint32(fl.back[42:], fl.sent)
				put(fl.back[:], heads)
				fl.owed = 0
			}
		}
		if fl.left == 0 {
			open--
			all[i], all[open] = all[open], all[i]
		}
	}
	if err := w.Close(pcap.Stats{Received: uint64(n)}); err != nil {
		g.t.Fatal(err)
	}
	return n
}

// generatedHeads fills in the heads of a packet without payload.
func generatedHeads(b []byte, src, dst netip.Addr, from, to, ident uint16) {
	b[12], b[13] = 0x08, 0x00
	b[14] = 0x45
	binary.BigEndian.PutUint16(b[16:], heads-14)
	binary.BigEndian.PutUint16(b[18:], ident)
	b[22], b[23] = 64, protoTCP
	s, d := src.As4(), dst.As4()
	copy(b[26:], s[:])
	copy(b[30:], d[:])
	binary.BigEndian.PutUint16(b[34:], from)
	binary.BigEndian.PutUint16(b[36:], to)
	b[46] = 8 << 4
	b[48], b[49] = 0xff, 0xff
	copy(b[54:], []byte{1, 1, 8, 10}) // time stamps
}

// reduceGenerated reduces the capture in r, with all that a report asks for.
func reduceGenerated(t testing.TB, p *pcap.Reader, flows, packets int) Result {
	r := NewReducer(Options{Spacing: func(string, Direction) SpacingSpec { return SpacingSpec{Rate: 10_000 * units.Mbps} }})
	if err := r.Add(t.Context(), generatedHost, p); err != nil {
		t.Fatal(err)
	}
	res, err := r.Result()
	if err != nil {
		t.Fatal(err)
	}
	if res.Connections.Ours != flows || len(res.Trails) != flows || res.Captures[0].Captured != packets || !res.Captures[0].Whole {
		t.Fatalf("%+v of %d flows, %d trails, %d of %d packets: %q", res.Connections, flows, len(res.Trails), res.Captures[0].Captured, packets, res.Problems)
	}
	return res
}
