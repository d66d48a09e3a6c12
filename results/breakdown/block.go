package breakdown

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"testbed/results/flows"
)

// block divides one block's write time by cause. It walks the critical path back from the
// last acknowledgement at the client: each step leads to the event that had to happen just
// before, as far as packets show it.
//
//   - Network: bytes of a packet or its acknowledgement are in flight on a hop, or those of
//     the packet before it on the same connection.
//   - Disk: a host has all of a packet and the acknowledgement of its downstream host, but
//     has not acknowledged the packet; or it has all of a packet and does not forward it
//     while it still writes an earlier one, whose acknowledgement it owes; or its window is
//     closed while it sends nothing on. A client that waits for window space is not a cause:
//     the walk continues from the acknowledgement that opens the window.
//   - Host: the rest, including the time from the request to the first SYN and, if a
//     pipeline broke, up to the SYN of the pipeline that completed the block.
//   - Held: nothing. The wait for placement is before the write time.
//
// The moments of some packets of long blocks are not kept; they are interpolated.
func (r *run) block(rec flows.BlockRecord) (Block, error) {
	out := Block{Block: rec.Block, WriteTime: rec.WriteTime()}
	if out.WriteTime < 0 {
		return Block{}, errors.New("its end is before its request")
	}
	hops, err := r.lastPipeline(r.hops[rec.Block], len(rec.Hosts))
	if err != nil {
		return Block{}, err
	}
	w := &walk{now: rec.End, floor: rec.Requested, hops: hops}
	w.pipeline()
	out.Setup = w.now - rec.Requested
	w.setUp()
	w.to(rec.Requested, Host)
	out.Shares = w.l.shares(BlockCauses())
	return out, nil
}

// lastPipeline returns the hops of the last generation, which completed the block.
func (r *run) lastPipeline(all []*flows.Trail, hosts int) ([]*hop, error) {
	hops := make([]*hop, hosts)
	generation := uint32(0)
	for _, t := range all {
		generation = max(generation, t.Generation)
	}
	for _, t := range all {
		if t.Generation == generation && t.Complete && int64(t.Member) < int64(hosts) {
			hops[t.Member] = &hop{t, r.quiet(t)}
		}
	}
	for i, h := range hops {
		switch {
		case h == nil:
			return nil, fmt.Errorf("hop %d of pipeline %d has no complete trail", i, generation)
		case len(h.Acks) == 0:
			return nil, fmt.Errorf("hop %d of pipeline %d has no acknowledgement", i, generation)
		case h.first() != hops[0].first() || h.last() != hops[0].last():
			return nil, fmt.Errorf("hop %d has acknowledgements of packets %d to %d, hop 0 of %d to %d", i, h.first(), h.last(), hops[0].first(), hops[0].last())
		}
		for k := 1; k < len(h.Acks); k++ {
			if h.Acks[k].Packet <= h.Acks[k-1].Packet {
				return nil, fmt.Errorf("hop %d: the acknowledgements are out of order at packet %d", i, h.Acks[k].Packet)
			}
		}
	}
	if len(hops) == 0 {
		return nil, errors.New("no host stores it")
	}
	return hops, nil
}

// hop is one hop of a pipeline.
type hop struct {
	*flows.Trail
	quiet []flows.Span
}

func (h *hop) first() int { return h.Acks[0].Packet }
func (h *hop) last() int  { return h.Acks[len(h.Acks)-1].Packet }

// packet returns the moments of a packet, interpolated if they were not kept.
func (h *hop) packet(n int) flows.Ack {
	i, found := slices.BinarySearchFunc(h.Acks, n, func(a flows.Ack, n int) int { return a.Packet - n })
	switch {
	case found:
		return h.Acks[i]
	case i == 0:
		return h.Acks[0]
	case i == len(h.Acks):
		return h.Acks[i-1]
	}
	a, b := h.Acks[i-1], h.Acks[i]
	part := float64(n-a.Packet) / float64(b.Packet-a.Packet)
	mid := func(x, y time.Duration) time.Duration { return x + time.Duration(float64(y-x)*part) }
	return flows.Ack{Packet: n, Sent: mid(a.Sent, b.Sent), Received: mid(a.Received, b.Received), Acked: mid(a.Acked, b.Acked), Back: mid(a.Back, b.Back)}
}

// sent returns the last packet that began to leave by a moment; it is below the first packet
// if none did.
func (h *hop) sent(at time.Duration) int {
	low, high := h.first(), h.last()+1
	for low < high {
		if mid := int(uint(low+high) / 2); h.packet(mid).Sent <= at {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low - 1
}

// before returns the last packet below n whose acknowledgement had arrived by a moment; ok
// is false if there is none.
func (h *hop) before(n int, at time.Duration) (packet int, ok bool) {
	low, high := h.first(), n // bounds of the first packet whose acknowledgement had not arrived
	for low < high {
		if mid := int(uint(low+high) / 2); h.packet(mid).Back <= at {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low - 1, low > h.first()
}

// walk is a moment that moves back in time, and the time by cause that it passed.
type walk struct {
	now, floor time.Duration
	hops       []*hop
	l          ledger
}

// to moves back to a moment and adds the time passed to a cause. A moment that is not
// before the current one moves nothing.
func (w *walk) to(at time.Duration, c Cause) {
	at = min(w.now, max(at, w.floor))
	w.l.add(c, "", w.now-at)
	w.now = at
}

// pipeline walks from the last acknowledgement to the first byte of the first packet.
func (w *walk) pipeline() {
	n := w.acknowledged(w.hops[0].last())
	for n > w.hops[0].first() { // packet n leaves the client
		earlier := w.hops[0].packet(n - 1)
		back, ok := w.hops[0].before(n, w.now)
		switch {
		case ok && w.hops[0].packet(back).Back >= earlier.Received && earlier.Received <= w.now:
			// The client had nothing in flight until an acknowledgement arrived.
			w.to(w.hops[0].packet(back).Back, Host)
			n = w.acknowledged(back)
		default:
			n--
			if earlier.Received < w.now { // idle except for TCP acknowledgements
				w.pause(w.hops[0], earlier.Received)
			}
			w.bytes(0, earlier.Sent)
		}
	}
}

// acknowledged walks from the acknowledgement of packet n at the client back to the first
// byte of a packet there, and returns that packet: n, or an earlier one for whose disk write
// n waited.
func (w *walk) acknowledged(n int) int {
	k := 0
	w.to(w.hops[0].packet(n).Back, Network)
	w.to(w.hops[0].packet(n).Acked, Network)
	for {
		p := w.hops[k].packet(n)
		var below, earlier time.Duration = -1, -1
		if k+1 < len(w.hops) {
			below = w.hops[k+1].packet(n).Back
		}
		if n > w.hops[k].first() {
			earlier = w.hops[k].packet(n - 1).Acked
		}
		if earlier > p.Received && earlier > below {
			w.to(earlier, Disk) // the disk writes one packet after the other
			n--
			continue
		}
		if below < p.Received {
			break
		}
		w.to(below, Disk)
		k++
		w.to(w.hops[k].packet(n).Acked, Network)
	}
	w.to(w.hops[k].packet(n).Received, Disk)
	for ; k > 0; k-- {
		w.bytes(k, w.hops[k].packet(n).Sent)
		w.forward(k, n, w.hops[k-1].packet(n).Received)
	}
	w.bytes(0, w.hops[0].packet(n).Sent)
	return n
}

// bytes walks over a period in which hop k has bytes of a packet to carry.
func (w *walk) bytes(k int, at time.Duration) {
	for _, c := range slices.Backward(w.hops[k].Closed) {
		if c.To > at && c.From < w.now {
			w.to(max(at, c.To), Network)
			w.unread(k, max(at, c.From))
		}
	}
	w.to(at, Network)
}

// unread walks over a period in which the receiver of hop k does not read: it sends to the
// next hop, or else writes.
func (w *walk) unread(k int, at time.Duration) {
	if k+1 < len(w.hops) {
		next := w.hops[k+1]
		for n := next.sent(w.now); n >= next.first() && w.now > at; n-- {
			p := next.packet(n)
			w.to(max(at, p.Received), Disk)
			w.bytes(k+1, max(at, p.Sent))
		}
	}
	w.to(at, Disk)
}

// forward walks over the wait of packet n at the sender of hop k, which has all of it since
// the given moment.
func (w *walk) forward(k, n int, since time.Duration) {
	for q := n - 1; q >= w.hops[k].first() && w.now > since; q-- {
		ahead, owed := w.hops[k].packet(q), w.hops[k-1].packet(q).Acked
		idle := max(since, ahead.Received)
		w.to(max(idle, owed), Host)
		w.to(idle, Disk)
		w.bytes(k, max(since, ahead.Sent))
	}
	w.to(since, Host)
}

// pause walks over a period in which a sender has all its packets delivered and sends none:
// it counts as network while TCP has something in flight, else as host.
func (w *walk) pause(h *hop, since time.Duration) {
	for _, q := range slices.Backward(h.quiet) {
		if q.To > since && q.From < w.now {
			w.to(q.To, Network)
			w.to(max(q.From, since), Host)
		}
	}
	w.to(since, Network)
}

// setUp walks from the first byte of the first packet to the first SYN. Hosts connect to the
// next one by one, and the last one answers through all of them. The path of the answer is
// not recorded: half a round trip of each hop counts as network.
func (w *walk) setUp() {
	var answer time.Duration
	for _, h := range w.hops {
		answer += h.RTTMin / 2
	}
	w.to(max(w.now-answer, w.hops[len(w.hops)-1].FirstByte), Network)
	for _, h := range slices.Backward(w.hops) {
		w.to(h.FirstByte, Host)
		w.to(h.FirstSent, Network)
		w.to(h.SetUp, Host)
		w.to(h.SYN, Network)
	}
}
