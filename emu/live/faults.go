package live

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"testbed/emu/engine"
	"testbed/emu/fault"
	"testbed/emu/kernel"
	"testbed/emu/plan"
	"testbed/hosts"
	"testbed/hosts/wire"
	"testbed/topo"
	"testbed/topo/units"
)

// faults carries a timeline out on the testbed, does what a routing protocol
// would about it, and knows which troubles of agents it explains.
type faults struct {
	b *Backend

	mu      sync.Mutex
	routes  *fault.Routes
	crashed []bool                     // by HostID
	rate    []units.Rate               // of links while they are up
	told    map[[2]topo.RackID][]int   // routes to one rack that leaves were given
	ports   map[dialled]netip.AddrPort // of flows between racks, at their senders
	links   map[topo.LinkID]string     // that a fault has touched so far, and which
	hosts   map[topo.HostID]string     // likewise
	disks   map[topo.HostID]string     // whose disk alone a fault has touched
	lossy   map[string]string          // namespaces at the ends of cables that were cut: elsewhere there is always a route
	notes   []string
	stale   atomic.Bool // flows may have changed their paths
	active  bool        // there are faults at all
	pending []pending   // by time and then in order of entry; only run touches it
}

type dialled struct {
	src, dst topo.HostID
	hash     uint32
}

type pending struct {
	at time.Duration
	do func(ctx context.Context) error
}

func newFaults(b *Backend) *faults {
	f := b.cfg.Fabric
	x := &faults{b: b, routes: fault.NewRoutes(f), crashed: make([]bool, f.Hosts()), told: map[[2]topo.RackID][]int{}, ports: map[dialled]netip.AddrPort{},
		links: map[topo.LinkID]string{}, hosts: map[topo.HostID]string{}, disks: map[topo.HostID]string{}, lossy: map[string]string{}}
	for _, l := range f.Links() {
		x.rate = append(x.rate, l.Rate)
	}
	x.schedule(b.cfg.Faults)
	return x
}

// schedule adds the steps of a timeline to those that are pending.
func (x *faults) schedule(steps fault.Timeline) {
	x.active = x.active || len(steps) > 0
	for _, s := range steps {
		x.at(s.At, func(ctx context.Context) error {
			if err := x.carryOut(ctx, s); err != nil {
				return fmt.Errorf("fault %s: %w", s.Why, err)
			}
			return nil
		})
	}
}

func (x *faults) at(t time.Duration, do func(context.Context) error) {
	i := slices.IndexFunc(x.pending, func(p pending) bool { return p.at > t })
	if i < 0 {
		i = len(x.pending)
	}
	x.pending = slices.Insert(x.pending, i, pending{t, do})
}

// after calls do after a duration.
func (x *faults) after(d time.Duration, do func(context.Context) error) {
	x.at(time.Since(x.b.zero)+d, do)
}

// run carries out what is pending until nothing is, or the run ends.
func (x *faults) run(ctx context.Context) error {
	for len(x.pending) > 0 {
		next := x.pending[0]
		timer := time.NewTimer(next.at - time.Since(x.b.zero))
		select {
		case <-ctx.Done():
			timer.Stop()
			return nil
		case <-timer.C:
		}
		x.pending = x.pending[1:]
		if err := next.do(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
	}
	return nil
}

func (x *faults) carryOut(ctx context.Context, s fault.Step) error {
	b := x.b
	switch a := s.Action.(type) {
	case fault.SetLink:
		return x.setLink(ctx, a, s.Why)
	case fault.SetRate:
		op := plan.ShaperOf(b.cfg.Fabric, a.Link, a.Rate, b.cfg.Burst)
		x.touchLink(a.Link, s.Why)
		if err := b.ns[op.Namespace].Reshape(op); err != nil {
			return err
		}
		x.mu.Lock()
		x.rate[a.Link] = a.Rate
		x.mu.Unlock()
		x.tellLink(a.Link)
	case fault.Crash:
		x.touchHost(a.Host, s.Why)
		x.setCrashed(a.Host, true)
		b.reports.crash(a.Host)
		b.agents[a.Host].Crash()
		x.after(b.cfg.Detect, func(context.Context) error {
			if x.isCrashed(a.Host) { // a return before this is reported separately
				b.push(engine.HostLost{Host: a.Host})
			}
			return nil
		})
	case fault.Return:
		if a.DiskLost && len(b.volumes) > 0 {
			if err := b.volumes[a.Host].Wipe(); err != nil {
				return err
			}
		}
		if err := b.agents[a.Host].Return(ctx); err != nil {
			return err
		}
		x.setCrashed(a.Host, false)
		b.push(engine.HostBack{Host: a.Host, DiskLost: a.DiskLost})
	case fault.SetDisk:
		x.touch(func() { first(x.disks, a.Host, s.Why) })
		if len(b.volumes) > 0 {
			rate := a.Rate
			if rate == 0 {
				rate = b.cfg.DiskRates[a.Host]
			}
			return b.volumes[a.Host].SetRate(rate)
		}
	case fault.SetCPU:
		x.touchHost(a.Host, s.Why)
		b.agents[a.Host].SetCPU(a.Share)
	case fault.SetReports:
		b.reports.set(a)
	default:
		return fmt.Errorf("unknown action %T", a)
	}
	return nil
}

// setLink cuts or mends the cable of a link with the first of its two directions, which arrive one
// after the other, and notifies the engine of each.
func (x *faults) setLink(ctx context.Context, a fault.SetLink, why string) error {
	b, f := x.b, x.b.cfg.Fabric
	x.touchLink(a.Link, why)
	link := f.Link(a.Link)
	uplink := link.Kind == topo.LeafUp || link.Kind == topo.LeafDown
	c := plan.CableOf(f, a.Link)
	leaf, far := b.ns[c.Leaf.Namespace], b.ns[c.Far.Namespace]
	x.mu.Lock()
	cable := x.routes.Up(fault.Reverse(a.Link)) != a.Up // not its second direction
	x.routes.SetLink(a.Link, a.Up)
	if cable {
		first(x.lossy, c.Leaf.Namespace, why)
		first(x.lossy, c.Far.Namespace, why)
		x.routes.SetLink(fault.Reverse(a.Link), a.Up)
	}
	x.mu.Unlock()
	if cable {
		// A leaf that loses its last uplink must discard, not refuse.
		if uplink && !a.Up {
			if err := x.leafRoutes(link.Rack); err != nil {
				return err
			}
		}
		var err error
		if a.Up {
			err = kernel.Mend(ctx, c, leaf, far)
		} else {
			err = kernel.Cut(c, leaf, far)
		}
		if err != nil {
			return err
		}
		if uplink {
			if a.Up {
				if err := x.leafRoutes(link.Rack); err != nil {
					return err
				}
			}
			x.after(b.cfg.Convergence, func(context.Context) error {
				x.mu.Lock()
				x.routes.Propagate(a.Link)
				x.routes.Propagate(fault.Reverse(a.Link))
				x.mu.Unlock()
				return x.converge()
			})
		}
	}
	x.tellLink(a.Link)
	x.changed()
	return nil
}

// leafRoutes gives a leaf its route to the fabric over the spines that it reaches,
// and its routes to single racks likewise.
func (x *faults) leafRoutes(r topo.RackID) error {
	x.mu.Lock()
	own := x.routes.Own(r)
	x.mu.Unlock()
	if err := x.b.ns[topo.LeafName(r)].ReplaceRoute(plan.FabricRoute(r, own)); err != nil {
		return err
	}
	return x.converge()
}

// converge gives each leaf a route of its own to those racks that not all of its
// spines reach, and takes it back where they do.
func (x *faults) converge() error {
	f := x.b.cfg.Fabric
	for r := range topo.RackID(f.Racks()) {
		for to := range topo.RackID(f.Racks()) {
			if r == to {
				continue
			}
			x.mu.Lock()
			own, want := x.routes.Own(r), x.routes.Spines(r, to)
			x.mu.Unlock()
			if slices.Equal(own, want) {
				want = nil // the route to the fabric does
			}
			key := [2]topo.RackID{r, to}
			leaf := x.b.ns[topo.LeafName(r)]
			switch {
			case slices.Equal(want, x.told[key]):
				continue
			case want == nil:
				if err := leaf.DeleteRoute(topo.RackPrefix(to)); err != nil {
					return err
				}
				delete(x.told, key)
			default:
				if err := leaf.ReplaceRoute(plan.RackRoute(r, to, want)); err != nil {
					return err
				}
				x.told[key] = want
			}
		}
	}
	x.changed()
	return nil
}

// changed makes Await look for flows that have changed their paths.
func (x *faults) changed() {
	x.stale.Store(true)
	x.b.poke()
}

func (x *faults) tellLink(l topo.LinkID) {
	x.mu.Lock()
	rate := x.rate[l]
	if !x.routes.Up(l) {
		rate = 0
	}
	x.mu.Unlock()
	x.b.push(engine.LinkChanged{Link: l, Rate: plan.Payload(rate, x.b.cfg.Fabric.Shape().MTU)})
}

// first keeps the first fault that touched something.
func first[K comparable](m map[K]string, k K, why string) {
	if _, ok := m[k]; !ok {
		m[k] = why
	}
}

func (x *faults) touch(do func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	do()
}

func (x *faults) touchLink(l topo.LinkID, why string) { x.touch(func() { first(x.links, l, why) }) }
func (x *faults) touchHost(h topo.HostID, why string) { x.touch(func() { first(x.hosts, h, why) }) }

func (x *faults) setCrashed(h topo.HostID, crashed bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.crashed[h] = crashed
}

func (x *faults) isCrashed(h topo.HostID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.crashed[h]
}

// marker is the host that sends a mark: the one that was named, or another where
// that one's link is down. ok is false where all are.
func (x *faults) marker(h topo.HostID) (_ topo.HostID, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f := x.b.cfg.Fabric
	if x.routes.Up(f.HostUp(h)) {
		return h, true
	}
	for o := range topo.HostID(f.Hosts()) {
		if x.routes.Up(f.HostUp(o)) {
			return o, true
		}
	}
	return 0, false
}

// explain reports whether a fault so far affects any of some hosts, or a link that packets between
// them may cross.
func (x *faults) explain(hosts ...topo.HostID) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	f := x.b.cfg.Fabric
	racks := map[topo.RackID]bool{}
	for _, h := range hosts {
		_, touched := x.hosts[h]
		if _, slow := x.disks[h]; touched || slow {
			return true
		}
		racks[f.RackOf(h)] = true
	}
	for l := range x.links {
		link := f.Link(l)
		onHost := link.Kind == topo.HostUp || link.Kind == topo.HostDown
		if onHost && slices.Contains(hosts, link.Host) || !onHost && len(racks) > 1 && racks[link.Rack] {
			return true
		}
	}
	return false
}

// mostNotes bounds the remarks on troubles that faults explain.
const mostNotes = 20

// excuse reports whether a fault may be the cause of an agent's error that names no flow or block:
// after the first fault it may. The error is then recorded as a note.
func (x *faults) excuse(err error) bool {
	if !x.met() {
		return false
	}
	x.note("after a fault: " + err.Error())
	return true
}

// met reports whether any fault has begun.
func (x *faults) met() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.links)+len(x.hosts)+len(x.disks) > 0
}

func (x *faults) note(s string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.notes = append(x.notes, s)
}

func (x *faults) said() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	if more := len(x.notes) - mostNotes; more > 0 {
		return append(slices.Clone(x.notes[:mostNotes]), fmt.Sprintf("and %d more after faults", more))
	}
	return slices.Clone(x.notes)
}

// exempt are the names of links, disks and hosts that faults touched, for the
// verdict. A host that crashed or was slow has links that did not do what they could;
// one whose disk was slow has not.
func (x *faults) exempt() map[string]string {
	x.mu.Lock()
	defer x.mu.Unlock()
	f := x.b.cfg.Fabric
	out := map[string]string{}
	for h, why := range x.hosts {
		out[f.HostName(h)] = why
		out[f.LinkName(f.HostUp(h))] = why
		out[f.LinkName(f.HostDown(h))] = why
	}
	for h, why := range x.disks {
		out[f.HostName(h)+"/disk"] = why
	}
	for l, why := range x.links {
		out[f.LinkName(l)] = why
	}
	return out
}

func (x *faults) lossyNames() map[string]string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return maps.Clone(x.lossy)
}

// spine is of routes.
func (x *faults) spine(src, dst topo.HostID, hash uint32) (spine int, crosses, lost bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	spine, crosses = x.routes.Spine(src, dst, hash)
	lost = crosses && len(x.routes.Own(x.b.cfg.Fabric.RackOf(src))) == 0
	return spine, crosses, lost
}

// dialled is of routes.
func (x *faults) dialled(src, dst topo.HostID, hash uint32, local netip.AddrPort) {
	f := x.b.cfg.Fabric
	if !x.active || f.RackOf(src) == f.RackOf(dst) {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.ports[dialled{src, dst, hash}] = local
	if own, _ := f.SpineFor(src, dst, hash); len(x.links) > 0 {
		if now, _ := x.routes.Spine(src, dst, hash); now != own {
			x.stale.Store(true)
			x.b.poke()
		}
	}
}

// pathChanges asks the kernel for the paths of the running flows, if they may
// have changed, and returns those that did.
func (b *Backend) pathChanges() (evs []engine.Event) {
	x, f := b.faults, b.cfg.Fabric
	if !x.stale.Swap(false) {
		return nil
	}
	for _, r := range b.running {
		if b.byFlow[r.flow] == nil || f.RackOf(r.src) == f.RackOf(r.dst) || f.Spines() < 2 {
			continue
		}
		x.mu.Lock()
		spine, _ := x.routes.Spine(r.src, r.dst, r.hash)
		local, connected := x.ports[dialled{r.src, r.dst, r.hash}]
		x.mu.Unlock()
		if connected {
			leaf := b.ns[topo.LeafName(f.RackOf(r.src))]
			dev, err := leaf.NextHopDevice(f.HostName(r.src), local, netip.AddrPortFrom(f.HostAddr(r.dst), wire.ShufflePort))
			if err != nil {
				continue // there is no path, so it has none to change to
			}
			for s := range f.Spines() {
				if topo.SpineName(s) == dev {
					spine = s
				}
			}
		}
		if spine != r.spine {
			r.spine = spine
			evs = append(evs, engine.PathChanged{Flow: r.flow, Spine: spine})
		}
	}
	return evs
}

// stopTransfer ends a flow at both ends.
func (b *Backend) stopTransfer(c engine.StopTransfer) {
	r := b.byFlow[c.Flow]
	if r == nil {
		return // its last byte came in meanwhile
	}
	delete(b.byFlow, c.Flow)
	b.agents[r.src].Stop(c.Flow)
	b.agents[r.dst].Stop(c.Flow)
	r.stop(errors.Join(hosts.ErrStopped, fmt.Errorf("flow %d is given up", c.Flow)))
}
