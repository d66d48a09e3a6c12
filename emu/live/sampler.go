package live

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"testbed/emu/fidelity"
	"testbed/emu/kernel"
	"testbed/emu/plan"
	"testbed/results/samples"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// sampler reads interface and qdisc counters: hosts' at every heartbeat, for the engine, and all links' as often as
// Settings.Sample says, for the samples of the run.
type sampler struct {
	fabric *topo.Fabric
	// ports is where each link's shaper is, by LinkID, and at are the links of a namespace.
	ports []port
	at    map[string][]topo.LinkID
	link  []string // names, by LinkID
	// held is what the delay of a link that stores and forwards holds at most, which the kernel counts
	// among the packets that wait.
	held []units.Bytes
	ns   map[string]*kernel.Namespace
	out  *samples.Writer
	zero time.Time // of the run; before begin, of the sampler

	mu    sync.Mutex // held for a round of readings
	early []samples.Sample
	begun bool
	last  []queueReading // the newest of each link
	looks int64
	turn  int        // which links are watched next
	waits *rand.Rand // times between readings
}

type port struct{ namespace, device string }

func newSampler(f *topo.Fabric, ns map[string]*kernel.Namespace, out *samples.Writer) *sampler {
	n := len(f.Links())
	s := &sampler{fabric: f, at: map[string][]topo.LinkID{}, held: make([]units.Bytes, n), ns: ns, out: out, zero: time.Now(),
		last: make([]queueReading, n), waits: workloads.Stream(0, "readings")}
	for id, l := range f.Links() {
		p := portOf(f, l)
		s.ports, s.link = append(s.ports, p), append(s.link, f.LinkName(topo.LinkID(id)))
		s.at[p.namespace] = append(s.at[p.namespace], topo.LinkID(id))
		if f.Shape().StoreAndForward {
			s.held[id] = l.Rate.BytesIn(l.Delay)
		}
	}
	return s
}

// begin sets the start of the run, since which the times of samples count.
func (s *sampler) begin(zero time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.early {
		s.early[i].At -= zero.Sub(s.zero)
	}
	s.out.Add(s.early...)
	s.zero, s.early, s.begun = zero, nil, true
}

// add adds samples that were taken at one time. The caller holds s.mu.
func (s *sampler) add(at time.Time, all ...samples.Sample) {
	for i := range all {
		all[i].At = at.Sub(s.zero)
	}
	if s.begun {
		s.out.Add(all...)
	} else {
		s.early = append(s.early, all...)
	}
}

// head describes the samples.
func (s *sampler) head(set Settings) samples.Head {
	h := samples.Head{Zero: s.zero, Sample: set.Sample, Interval: set.Interval, Frame: s.frame()}
	for id, l := range s.fabric.Links() {
		x := samples.Link{Name: s.link[id], Rate: l.Rate, Queue: l.Queue, Held: s.held[id],
			DropTail: l.RED == nil && !s.fabric.Shape().StoreAndForward}
		if n := plan.ShaperOf(s.fabric, topo.LinkID(id), l.Rate, nil).Packets; n > 0 {
			x.Queue = units.Bytes(n) * h.Frame
		}
		h.Links = append(h.Links, x)
	}
	return h
}

// frame returns the longest frame.
func (s *sampler) frame() units.Bytes { return s.fabric.Shape().MTU + plan.EthernetHeader }

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

// queueReading is what samples have of one reading of a link's queue.
type queueReading struct {
	known           bool
	sent, queue     units.Bytes
	packets         uint32
	dropped, marked uint32
}

// sampleLinks reads all links, and then up to n times, at intervals of up to d, those with packets that wait: such a link
// is busy whatever comes in meanwhile, so it must send what its rate allows. It follows a link for several intervals,
// because what it sends is counted in whole frames at either end of a spell.
// Of links of hosts whose queue is shorter than d, and of other links, it follows up to most.
func (s *sampler) sampleLinks(ctx context.Context, d time.Duration, n, most int) error {
	s.looks++
	if (s.looks-1)%s.out.Every() != 0 {
		return nil
	}
	follow, err := s.lookAtAll(d, most)
	timer := time.NewTimer(s.wait(d))
	defer timer.Stop()
	for k := 1; k <= n && len(follow) > 0 && err == nil; k++ {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		}
		timer.Reset(s.wait(d))
		follow, err = s.lookAgain(k, follow, d)
	}
	return err
}

// wait returns the time until the next reading: from half of d to d, drawn. With equal times a link would seem
// to have packets waiting always whose sender has that period: a disk at 2 MB/s takes a packet of 16 KB in 8 ms.
func (s *sampler) wait(d time.Duration) time.Duration {
	return d/2 + time.Duration(s.waits.Int64N(int64(d/2)+1))
}

// followed is a link that is read again: as long as packets wait, or always.
type followed struct {
	link   topo.LinkID
	always bool
}

// lookAtAll reads all links, and returns those to read again.
func (s *sampler) lookAtAll(d time.Duration, most int) (follow []followed, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beginRound(0)
	seen := map[string]readings{}
	var waiting []topo.LinkID // of hosts
	queued := 0
	for id, p := range s.ports {
		id := topo.LinkID(id)
		q, err := s.shaper(seen, p, id)
		if err != nil {
			return nil, err
		}
		l := s.fabric.Link(id)
		if fidelity.Lasts(q.Backlog, l.Rate, d) {
			follow = append(follow, followed{link: id})
		}
		if !fidelity.Waits(q.Backlog, s.frame()) {
			continue
		}
		if l.Kind == topo.HostUp || l.Kind == topo.HostDown {
			waiting = append(waiting, id)
		} else if queued < most {
			queued++
			follow = append(follow, followed{id, true})
		}
	}
	for i := range min(most, len(waiting)) { // in turn
		id := waiting[(i+s.turn)%len(waiting)]
		follow = append(follow, followed{link: id})
		s.add(time.Now(), samples.Sample{Object: s.link[id], Metric: samples.Followed, Value: 1})
	}
	s.turn += min(most, len(waiting))
	return follow, nil
}

// lookAgain reads links again, and returns those to read once more.
func (s *sampler) lookAgain(k int, follow []followed, d time.Duration) ([]followed, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beginRound(int64(k))
	seen := map[string]readings{}
	still := follow[:0]
	for _, f := range follow {
		q, err := s.shaper(seen, s.ports[f.link], f.link)
		if err != nil {
			return nil, err
		}
		if f.always || fidelity.Waits(q.Backlog, s.frame()) || fidelity.Lasts(q.Backlog, s.fabric.Link(f.link).Rate, d) {
			still = append(still, f)
		}
	}
	return still, nil
}

// beginRound marks the beginning of readings. The caller holds s.mu.
func (s *sampler) beginRound(number int64) {
	s.add(time.Now(), samples.Sample{Object: samples.Links, Metric: samples.Look, Value: number})
}

// shaper is a link's shaper, of readings that are taken as they are needed, and then added to the samples. Its
// backlog is without what its delay holds. The caller holds s.mu.
func (s *sampler) shaper(taken map[string]readings, p port, id topo.LinkID) (kernel.QdiscStats, error) {
	r, ok := taken[p.namespace]
	if !ok {
		var err error
		if r, err = s.read(p.namespace); err != nil {
			return kernel.QdiscStats{}, err
		}
		taken[p.namespace] = r
		s.record(p.namespace, r)
	}
	d, ok := r.device(p.device)
	if !ok {
		return kernel.QdiscStats{}, fmt.Errorf("counters of %s: no device %s", p.namespace, p.device)
	}
	d.Qdisc.Backlog = max(0, d.Qdisc.Backlog-s.held[id])
	return d.Qdisc, nil
}

// record adds the queues of a namespace to the samples. A queue that is empty and has not changed has none.
func (s *sampler) record(namespace string, r readings) {
	for _, id := range s.at[namespace] {
		d, ok := r.device(s.ports[id].device)
		if !ok {
			continue // the caller reports it for the port that it reads
		}
		q := d.Qdisc
		is, was := queueReading{true, q.Bytes, q.Backlog, q.Queued, q.Dropped, q.Marked}, s.last[id]
		if is == was && is.queue == 0 {
			continue
		}
		s.last[id] = is
		all := make([]samples.Sample, 0, 5)
		add := func(metric string, value int64, change bool) {
			if change || !was.known {
				all = append(all, samples.Sample{Object: s.link[id], Metric: metric, Value: value})
			}
		}
		add(samples.SentBytes, int64(is.sent), true)
		add(samples.Dropped, int64(is.dropped), is.dropped != was.dropped)
		add(samples.Marked, int64(is.marked), is.marked != was.marked)
		add(samples.QueuePackets, int64(is.packets), is.packets != was.packets)
		add(samples.QueueBytes, int64(is.queue), true) // the last: it completes the reading
		s.add(r.at, all...)
	}
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

// probe samples by how much sleeps overshoot, until ctx ends.
func (s *sampler) probe(ctx context.Context, every time.Duration) {
	t := time.NewTimer(every)
	defer t.Stop()
	due := time.Now().Add(every)
	for i := int64(0); ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		now := time.Now()
		if i%s.out.Every() == 0 {
			s.out.Add(samples.Sample{At: now.Sub(s.zero), Object: samples.Machine, Metric: samples.Lateness,
				Value: max(now.Sub(due).Microseconds(), 1)})
		}
		due = time.Now().Add(every)
		t.Reset(every)
	}
}

// drops is how many packets the queue ahead of each link has dropped since it was made,
// by LinkID.
func (s *sampler) drops() ([]uint32, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.beginRound(samples.OutsideOfLooks)
	out := make([]uint32, len(s.ports))
	seen := map[string]readings{}
	for id, p := range s.ports {
		q, err := s.shaper(seen, p, topo.LinkID(id))
		if err != nil {
			return nil, err
		}
		out[id] = q.Dropped
	}
	return out, nil
}
