package live

import (
	"context"
	"time"

	"testbed/emu/fidelity"
	"testbed/emu/kernel"
	"testbed/hosts/wire"
	"testbed/topo"
	"testbed/topo/units"
)

// handshakeFrame is the size of a SYN's frame, and of its answer's, with all options of TCP.
const handshakeFrame = 74 * units.Byte

// probed is a path whose round-trip time is measured.
type probed struct {
	src, dst topo.HostID
	hash     uint32 // that selects the spine
	fidelity.RoundTrip
}

// probedPaths returns paths that together contain every directed link: from each host to the next one of its rack, and from
// each rack to the next one over each spine.
func probedPaths(f *topo.Fabric) (paths []probed) {
	add := func(src, dst topo.HostID, hash uint32) {
		p := probed{src, dst, hash, fidelity.RoundTrip{From: f.HostName(src), To: f.HostName(dst)}}
		for _, id := range f.Path(src, dst, hash) {
			l := f.Link(id)
			p.Links = append(p.Links, f.LinkName(id))
			// A link back has the same rate and delay. Full token buckets let a SYN pass at once.
			p.Planned += 2 * l.Delay
			if f.Shape().StoreAndForward {
				p.Planned += 2 * l.Rate.TimeToSend(handshakeFrame)
			}
		}
		paths = append(paths, p)
	}
	per := f.Shape().HostsPerLeaf
	for h := range topo.HostID(f.Hosts()) {
		if next := f.HostIn(f.RackOf(h), (int(h)+1)%per); next != h {
			add(h, next, 0)
		}
	}
	for r := range topo.RackID(f.Racks()) {
		if next := (r + 1) % topo.RackID(f.Racks()); next != r {
			for s := range f.Spines() {
				add(f.HostIn(r, s%per), f.HostIn(next, s%per), uint32(s))
			}
		}
	}
	return paths
}

// measureRoundTrips gives a path up after unansweredMost connections without an answer, and all others after deadMost paths.
const unansweredMost, deadMost = 2, 8

// measureRoundTrips measures the paths one after the other, while no transfer is under way. Those with links that faults
// changed are left out.
func (b *Backend) measureRoundTrips(ctx context.Context, to func(*probed) *time.Duration) error {
	exempt, longest, dead := b.faults.exempt(), time.Duration(0), 0
	for i := 0; i < len(b.paths) && dead < deadMost; i++ {
		p := &b.paths[i]
		if fidelity.ExemptLinks(exempt, p.Links) {
			continue
		}
		least := to(p)
		longest = max(longest, p.Planned)
		failed := 0
		for k := 0; k < b.cfg.Settings.RoundTrips && failed < unansweredMost; k++ {
			rtt, err := b.roundTrip(ctx, p)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			switch {
			case err != nil:
				failed++
			case rtt > 0 && (*least == 0 || rtt < *least):
				*least = rtt
			}
		}
		if *least == 0 {
			dead++
		}
	}
	// The last reset may still be under way.
	select {
	case <-time.After(longest):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// roundTrip returns the time from the SYN of a connection to its answer, as the kernel of the sender measures it.
func (b *Backend) roundTrip(ctx context.Context, p *probed) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, b.cfg.Settings.RoundTripTime)
	defer cancel()
	c, err := b.network.Dial(ctx, p.src, p.dst, wire.ShufflePort, p.hash)
	if err != nil {
		return 0, err
	}
	b.network.Greeted(c.LocalAddr()) // it will have no header
	defer drop(c)
	s, err := kernel.TCPStateOf(c.(*conn).TCPConn)
	return s.RTT, err
}

func (b *Backend) roundTrips() (out []fidelity.RoundTrip) {
	for _, p := range b.paths {
		out = append(out, p.RoundTrip)
	}
	return out
}
