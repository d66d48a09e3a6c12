package flows

import (
	"time"

	"testbed/hosts/wire"
	"testbed/topo/units"
)

// trails builds the trail of each transfer of this run.
func (a *assembly) trails() {
	first := map[[2]uint32]map[addr]wire.Header{} // hops of each block's first pipeline, by server
	for _, t := range a.transfers {
		if t.standing == ours && t.header.Kind == wire.KindBlock && t.header.Generation == 0 {
			k := [2]uint32{t.header.Group}
			if first[k] == nil {
				first[k] = map[addr]wire.Header{}
			}
			first[k][t.server] = t.header
		}
	}
	for _, t := range a.transfers {
		if t.standing != ours || !t.onItsPort() {
			continue
		}
		trail := a.trail(t)
		if a.fabric != nil {
			src, ok1 := hostAt(a.fabric, t.client)
			dst, ok2 := hostAt(a.fabric, t.server)
			h := t.header
			if h.Kind == wire.KindBlock && h.Generation > 0 {
				// A rebuilt pipeline keeps the hash of the hop to each host.
				if old, ok := first[[2]uint32{h.Group}][t.server]; ok {
					h = old
				}
			}
			if hash, ok := a.paths.hash(h); ok1 && ok2 && ok {
				trail.Src, trail.Dst, trail.Path = src, dst, a.fabric.Path(src, dst, hash)
			} else if ok1 && ok2 {
				trail.Src, trail.Dst = src, dst
			}
		}
		a.Trails, a.carried = append(a.Trails, trail), append(a.carried, t)
	}
}

func (t *transfer) onItsPort() bool {
	return t.header.Kind == wire.KindFlow && t.serverPort == wire.ShufflePort || t.header.Kind == wire.KindBlock && t.serverPort == wire.BlockPort
}

// trail returns the trail of t from the captures of both ends.
func (a *assembly) trail(t *transfer) Trail {
	h := t.header
	out := Trail{Kind: h.Kind, Group: h.Group, Member: h.Member, Generation: h.Generation, Read: h.Read, Task: h.Task,
		Size: units.Bytes(h.Size - h.Resumes()), PacketSize: units.Bytes(h.Packet), Complete: t.complete(), SrcName: hostName(t.client), DstName: hostName(t.server)}
	since := func(stamp int64) time.Duration {
		if stamp == 0 {
			return 0
		}
		return a.since(stamp)
	}
	checks := newCheckpoints(h, a.opt.Points)
	points := func(c *conn) []Point {
		if c == nil || c.checks.total == 0 {
			return nil
		}
		list := make([]Point, len(c.checks.times))
		at := checks.at
		for i, stamp := range c.checks.times {
			list[i] = Point{a.since(stamp), units.Bytes(at)}
			at = checks.after(at)
		}
		return list
	}
	out.Sent, out.Received = points(t.atClient), points(t.atServer)
	if t.atClient != nil && t.atServer != nil {
		n := min(len(out.Sent), len(out.Received))
		out.Sent, out.Received = out.Sent[:n], out.Received[:n]
	}
	if c := t.atClient; c != nil {
		s := c.out
		out.Wire, out.Resent, out.ResentBytes, out.ZeroWindows, out.Resets = c.wire, c.resent, s.resentBytes, c.zeroWindows, c.resets
		out.Packets = c.packets
		out.SYN, out.SetUp, out.FirstSent = since(s.syn), since(s.setUp), since(c.start)
		out.RTTMin, out.RTTMedian = time.Duration(s.rtt.least), time.Duration(s.rtt.median())
		out.Quiet, out.QuietRest = a.spans(&s.quiet)
		out.Recovery, out.RecoveryRest = a.spans(&s.recovery)
		out.Stalled = a.stalled(s)
		out.Closed, out.ClosedRest = a.spans(&s.closed)
		if c.hop != nil {
			out.End = since(c.hop.end)
		}
	}
	if c := t.atServer; c != nil {
		out.FirstByte, out.Reordered, out.Repeated = since(c.start), c.in.reordered, c.resent
		out.Resets, out.ZeroWindows = max(out.Resets, c.resets), max(out.ZeroWindows, c.zeroWindows)
		if h.Kind == wire.KindFlow {
			out.End = since(c.end)
		}
		if t.atClient != nil {
			out.Lost = max(0, t.atClient.packets-c.packets)
			out.Acks = a.acks(t)
		}
	}
	return out
}

func (a *assembly) spans(s *spans) ([]Span, time.Duration) {
	var list []Span
	for _, v := range s.list {
		list = append(list, Span{a.since(v.from), a.since(v.to)})
	}
	return list, time.Duration(s.rest)
}

// stalled returns the spans that exceed the longest round-trip time. It filters them at
// the end, because that time may have been measured after a span.
func (a *assembly) stalled(s *sender) []Span {
	var list []Span
	for _, v := range s.stalled.list {
		if v.to-v.from > s.rtt.most {
			list = append(list, Span{a.since(v.from), a.since(v.to)})
		}
	}
	return list
}

// acks returns the recorded pipeline packets of a hop whose four times are known.
func (a *assembly) acks(t *transfer) []Ack {
	if t.header.Kind != wire.KindBlock || t.header.Packet == 0 || t.atClient.hop == nil || t.atServer.hop == nil {
		return nil
	}
	c, s := t.atClient.hop, t.atServer.hop
	before := int(min(t.header.Offset, t.header.Size) / uint64(t.header.Packet))
	var list []Ack
	for i := range min(len(c.first), len(s.last), len(s.acked), len(c.acked)) {
		list = append(list, Ack{before + int(c.picks[i]), a.since(c.first[i]), a.since(s.last[i]), a.since(s.acked[i]), a.since(c.acked[i])})
	}
	return list
}
