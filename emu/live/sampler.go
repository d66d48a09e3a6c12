package live

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"testbed/emu/fidelity"
	"testbed/emu/kernel"
	"testbed/topo"
	"testbed/topo/units"
)

// sampler reads interface and qdisc counters: hosts' at every heartbeat, for the
// engine, and all links' as often as Settings.Sample says, for the verdict.
type sampler struct {
	fabric *topo.Fabric
	// ports is where each link's shaper is, by LinkID.
	ports []port
	// held is what the delay of a link that stores and forwards holds at most, which the kernel counts
	// among the packets that wait.
	held      map[port]units.Bytes
	ns        map[string]*kernel.Namespace
	saturated []saturated // by LinkID
	spells    [][]Spell   // by LinkID, in order of time
	watched   []saturated // by LinkID
	turn      int         // which links are watched next
	zero      time.Time   // of the run
	queues    *queues

	lateness *hdrhistogram.Histogram // µs
}

// saturated is what a link delivered, and could have, in spells in which it must
// have been busy.
type saturated struct {
	spells           int
	delivered, could units.Bytes
	pieces           []float64 // of links that are watched: fidelity.Link.Pieces
	windows          windows
}

type port struct{ namespace, device string }

func newSampler(f *topo.Fabric, ns map[string]*kernel.Namespace) *sampler {
	s := &sampler{fabric: f, ns: ns, held: map[port]units.Bytes{}, saturated: make([]saturated, len(f.Links())), spells: make([][]Spell, len(f.Links())), watched: make([]saturated, len(f.Links())),
		lateness: hdrhistogram.New(1, int64(time.Minute/time.Microsecond), 3)}
	for _, l := range f.Links() {
		s.ports = append(s.ports, portOf(f, l))
		if f.Shape().StoreAndForward {
			s.held[portOf(f, l)] = l.Rate.BytesIn(l.Delay)
		}
	}
	s.queues = newQueues(f, s.ports)
	return s
}

func portOf(f *topo.Fabric, l topo.Link) port {
	switch l.Kind {
	case topo.HostUp:
		return port{f.HostName(l.Host), "eth0"}
	case topo.HostDown:
		return port{topo.LeafName(l.Rack), f.HostName(l.Host)}
	case topo.LeafUp:
		return port{topo.LeafName(l.Rack), topo.SpineName(l.Spine)}
	default:
		return port{topo.SpineName(l.Spine), topo.LeafName(l.Rack)}
	}
}

// readings are one namespace's counters and the moment they were read.
type readings struct {
	at    time.Time
	links []kernel.LinkStats
}

func (s *sampler) read(namespace string) (readings, error) {
	before := time.Now()
	links, err := s.ns[namespace].Links()
	if err != nil {
		return readings{}, fmt.Errorf("counters of %s: %w", namespace, err)
	}
	// The kernel fills the answer somewhere between: half way is off by at most
	// half of what the call took.
	return readings{before.Add(time.Since(before) / 2), links}, nil
}

func (r readings) device(name string) (kernel.LinkStats, bool) {
	i := slices.IndexFunc(r.links, func(l kernel.LinkStats) bool { return l.Device == name })
	if i < 0 {
		return kernel.LinkStats{}, false
	}
	return r.links[i], true
}

// reading is what a link's shaper had sent and had waiting at one moment.
type reading struct {
	link topo.LinkID
	at   time.Time
	kernel.QdiscStats
}

// sampleLinks looks for links that have more waiting than they can send in the
// time d and reads those again after d: whatever comes in meanwhile, such a link
// was busy all the time, so it must have sent what its rate allows. It follows a
// link that stays busy for up to n such times, because what it sends is counted in
// whole frames at either end of a spell.
// It also watches up to most links of hosts with a smaller backlog, for the spacing of their packets.
func (s *sampler) sampleLinks(ctx context.Context, d time.Duration, n, most int) error {
	var busy, waiting []reading
	var queued []topo.LinkID
	seen := map[string]readings{}
	for id, p := range s.ports {
		at, q, err := s.shaper(seen, p)
		if err != nil {
			return err
		}
		r := reading{topo.LinkID(id), at, q}
		if s.lasts(r, d) {
			busy = append(busy, r)
		}
		if kind := s.fabric.Link(r.link).Kind; s.waits(r) && (kind == topo.HostUp || kind == topo.HostDown) {
			waiting = append(waiting, r)
		} else if s.waits(r) && len(queued) < most {
			queued = append(queued, r.link) // read again for its queue: queues.note
		}
	}
	watched := s.watch(waiting, most)
	defer func() {
		for _, w := range watched {
			s.record(w)
		}
	}()
	timer := time.NewTimer(d)
	defer timer.Stop()
	begun := make(map[topo.LinkID]bool, len(busy))
	for range n {
		if len(busy)+len(watched)+len(queued) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		timer.Reset(d)
		clear(seen)
		var err error
		if watched, err = s.look(watched, seen); err != nil {
			return err
		}
		for _, id := range queued {
			if _, _, err := s.shaper(seen, s.ports[id]); err != nil {
				return err
			}
		}
		var still []reading
		for _, was := range busy {
			at, q, err := s.shaper(seen, s.ports[was.link])
			if err != nil {
				return err
			}
			if was.Backlog < s.fabric.Link(was.link).Rate.BytesIn(at.Sub(was.at)) {
				continue // this thread ran late, and the queue may have run empty
			}
			x := &s.saturated[was.link]
			if !begun[was.link] {
				begun[was.link] = true
				x.spells++
			}
			rate := s.fabric.Link(was.link).Rate
			p := part{was.at, at, q.Bytes - was.Bytes, rate.BytesIn(at.Sub(was.at))}
			x.delivered += p.delivered
			x.could += p.could
			x.windows.add(p, s.zero, s.judgeBusy(rate))
			if r := (reading{was.link, at, q}); s.lasts(r, d) {
				still = append(still, r)
			}
		}
		busy = still
	}
	return nil
}

// lasts reports whether the backlog of a link keeps it busy for d.
func (s *sampler) lasts(r reading, d time.Duration) bool {
	return r.Backlog >= s.fabric.Link(r.link).Rate.BytesIn(d)
}

// shaper is a link's shaper, of readings that are taken as they are needed.
func (s *sampler) shaper(taken map[string]readings, p port) (time.Time, kernel.QdiscStats, error) {
	r, ok := taken[p.namespace]
	if !ok {
		var err error
		if r, err = s.read(p.namespace); err != nil {
			return time.Time{}, kernel.QdiscStats{}, err
		}
		taken[p.namespace] = r
		s.queues.note(s.fabric, p.namespace, s.ports, r)
	}
	d, ok := r.device(p.device)
	if !ok {
		return time.Time{}, kernel.QdiscStats{}, fmt.Errorf("counters of %s: no device %s", p.namespace, p.device)
	}
	d.Qdisc.Backlog = max(0, d.Qdisc.Backlog-s.held[p])
	return r.at, d.Qdisc, nil
}

// links is what the verdict needs of links that were saturated at all, or watched.
func (s *sampler) links() []fidelity.Link {
	var out []fidelity.Link
	add := func(all []saturated, watched bool) {
		for id, x := range all {
			if x.spells > 0 && watched == (len(x.pieces) > 0) {
				low, high := x.windows.found()
				out = append(out, fidelity.Link{Name: s.fabric.LinkName(topo.LinkID(id)), Frame: s.frame(),
					Spells: x.spells, Delivered: x.delivered, Could: x.could, Pieces: x.pieces, Low: low, High: high})
			}
		}
	}
	add(s.saturated, false)
	add(s.watched, true)
	return out
}

// hostCounters is what a host's eth0 has counted, toward and away from the host, or
// all ports of a leaf toward spines, toward and away from its rack.
type hostCounters struct{ rx, tx units.Bytes }

func (s *sampler) host(h topo.HostID) (hostCounters, time.Time, error) {
	return s.ofDevices(s.fabric.HostName(h), "eth0")
}

func (s *sampler) leaf(r topo.RackID) (hostCounters, time.Time, error) {
	spines := make([]string, s.fabric.Spines())
	for i := range spines {
		spines[i] = topo.SpineName(i)
	}
	return s.ofDevices(topo.LeafName(r), spines...)
}

// ofDevices returns sums over devices of a namespace, and the time at which they were read.
func (s *sampler) ofDevices(name string, devices ...string) (c hostCounters, at time.Time, err error) {
	r, err := s.read(name)
	if err != nil {
		return c, at, err
	}
	for _, device := range devices {
		d, ok := r.device(device)
		if !ok {
			return c, at, fmt.Errorf("counters of %s: no device %s", name, device)
		}
		c.rx += d.Rx.Bytes
		c.tx += d.Tx.Bytes
	}
	return c, r.at, nil
}

// sent is what had left by a link at a time, in frames' bytes.
type sent struct {
	at    time.Time
	bytes units.Bytes
}

// all is what had left by all links, by LinkID.
func (s *sampler) all() ([]sent, error) { return s.left(s.ports) }

// left is what had left by ports, of each namespace read once.
func (s *sampler) left(ports []port) ([]sent, error) {
	out := make([]sent, len(ports))
	seen := make(map[string]readings, len(s.ns))
	for i, p := range ports {
		r, ok := seen[p.namespace]
		if !ok {
			var err error
			if r, err = s.read(p.namespace); err != nil {
				return nil, err
			}
			seen[p.namespace] = r
		}
		d, ok := r.device(p.device)
		if !ok {
			return nil, fmt.Errorf("counters of %s: no device %s", p.namespace, p.device)
		}
		out[i] = sent{r.at, d.Tx.Bytes}
	}
	return out, nil
}

func (s *sampler) allHosts() ([]hostCounters, error) {
	out := make([]hostCounters, s.fabric.Hosts())
	for h := range out {
		var err error
		if out[h], _, err = s.host(topo.HostID(h)); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// sent is what the devices that links leave by have sent, in frames' bytes.
func (s *sampler) sent(links []topo.LinkID) ([]units.Bytes, error) {
	ports := make([]port, len(links))
	for i, id := range links {
		ports[i] = s.ports[id]
	}
	left, err := s.left(ports)
	out := make([]units.Bytes, len(left))
	for i, x := range left {
		out[i] = x.bytes
	}
	return out, err
}

// probe measures by how much sleeps overshoot, until ctx ends.
func (s *sampler) probe(ctx context.Context, every time.Duration) {
	t := time.NewTimer(every)
	defer t.Stop()
	due := time.Now().Add(every)
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		late := max(time.Since(due).Microseconds(), 1)
		if s.lateness.RecordValue(late) != nil {
			_ = s.lateness.RecordValue(s.lateness.HighestTrackableValue())
		}
		due = time.Now().Add(every)
		t.Reset(every)
	}
}

// stalled is the longest that a probe was late.
func (s *sampler) stalled() time.Duration {
	return time.Duration(s.lateness.Max()) * time.Microsecond
}

func (s *sampler) lateP99() time.Duration {
	return time.Duration(s.lateness.ValueAtQuantile(99)) * time.Microsecond
}

// drops is how many packets the queue ahead of each link has dropped since it was made,
// by LinkID.
func (s *sampler) drops() ([]uint32, error) {
	out := make([]uint32, len(s.ports))
	seen := map[string]readings{}
	for id, p := range s.ports {
		_, q, err := s.shaper(seen, p)
		if err != nil {
			return nil, err
		}
		out[id] = q.Dropped
	}
	return out, nil
}
