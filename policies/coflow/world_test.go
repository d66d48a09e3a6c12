package coflow

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/policies/rates"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// demandOf is one flow of a test's coflow: bytes from host src to host dst.
type demandOf struct {
	src, dst topo.HostID
	bytes    units.Bytes
}

func fabric(t testing.TB, s topo.LeafSpine) *topo.Fabric {
	t.Helper()
	s.Queue, s.MTU = topo.Queue{Time: time.Millisecond}, 1500
	if s.Oversubscription.Num == 0 {
		s.Oversubscription = units.Ratio{Num: 1, Den: 1}
	}
	f, err := s.Build()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// world is coflows on a fabric, with what the master knows of them (all there is to
// know, nothing hidden) and what rates are computed from.
type world struct {
	*policies.View
	demands  []*rates.Demand // parallel to Coflows
	ended    [][]units.Bytes // sizes of flows that have, parallel to Coflows
	sizes    [][]units.Bytes // of flows by place
	capacity []float64
	share    rates.Sharer
	schedule policies.Schedule
}

func newWorld(f *topo.Fabric) *world {
	w := &world{View: &policies.View{Fabric: f, Hosts: make([]policies.HostState, f.Hosts())}}
	for _, l := range f.Links() {
		w.Capacity = append(w.Capacity, l.Rate)
		w.capacity = append(w.capacity, float64(l.Rate))
	}
	return w
}

// viewOf is a world of coflows that have just arrived in the order given, with IDs
// from 1 and flow IDs from 100000·ID.
func viewOf(f *topo.Fabric, coflows ...[]demandOf) *world {
	w := newWorld(f)
	for i, flows := range coflows {
		w.arrive(workloads.CoflowID(i+1), flows)
	}
	return w
}

const flowsPerCoflow = 100000

// arrive adds a coflow. Its flows' IDs are in the order given.
func (w *world) arrive(id workloads.CoflowID, flows []demandOf) {
	c := policies.CoflowState{ID: id, Arrival: w.Now, Since: w.Now, Width: len(flows), Left: len(flows)}
	senders, receivers := map[topo.HostID]bool{}, map[topo.HostID]bool{}
	var of []rates.Flow
	var sizes []units.Bytes
	for j, d := range flows {
		senders[d.src], receivers[d.dst] = true, true
		c.Size, c.Largest = c.Size+d.bytes, max(c.Largest, d.bytes)
		of = append(of, rates.Flow{ID: workloads.FlowID(flowsPerCoflow*int(id) + j), Size: d.bytes, Links: w.Fabric.Path(d.src, d.dst, uint32(j))})
		sizes = append(sizes, d.bytes)
	}
	c.Senders, c.Receivers = len(senders), len(receivers)
	d := rates.NewDemand(of, len(w.Capacity))
	for _, l := range d.Links(true) {
		if w.Capacity[l.Link] > 0 {
			c.Bound = max(c.Bound, w.Capacity[l.Link].TimeToSend(l.Remaining))
		}
	}
	w.Coflows = append(w.Coflows, c)
	w.demands, w.ended, w.sizes = append(w.demands, d), append(w.ended, nil), append(w.sizes, sizes)
	w.refresh(len(w.Coflows) - 1)
}

// refresh shows what has become of a coflow's flows.
func (w *world) refresh(i int) {
	c, d := &w.Coflows[i], w.demands[i]
	c.Links = slices.Clone(d.Links(true))
	c.Left, c.Finished, c.Sent, c.MostSent, c.Remaining = 0, len(w.ended[i]), 0, 0, 0
	for place, size := range w.sizes[i] {
		left := units.Bytes(0)
		if !d.Ended(place) {
			left = max(min(units.Bytes(d.Left[place]/8+0.5), size), 1)
			c.Left++
		}
		c.Remaining += left
		c.Sent += size - left
		c.MostSent = max(c.MostSent, size-left)
	}
	slices.Sort(w.ended[i])
	if n := len(w.ended[i]); n > 0 {
		c.Median = w.ended[i][(n-1)/2]
	}
}

// decide asks the policy and sets the rates.
func (w *world) decide(t rapid.TB, p policies.Scheduler) {
	t.Helper()
	w.schedule.Reset()
	p.Schedule(w.View, &w.schedule)
	if err := w.share.Share(&w.schedule, w.demands, w.capacity, p.Needs(), false); err != nil {
		t.Fatalf("%T: %v", p, err)
	}
	if q := w.schedule.Queues; len(q) > 0 {
		for i := range w.Coflows {
			if c := &w.Coflows[i]; c.Queue != q[i] {
				c.Queue, c.Since = q[i], w.Now
			}
		}
	}
	if w.schedule.Memory != nil {
		w.Memory = slices.Clone(w.schedule.Memory)
	}
}

// rates are those that the policy's decision gives each coflow's flows, in Mbit/s
// and in the order in which arrive was told of them.
func (w *world) rates(t rapid.TB, p policies.Scheduler) [][]float64 {
	t.Helper()
	w.decide(t, p)
	out := [][]float64{}
	for _, d := range w.demands {
		d.Moving()
		var r []float64
		for _, x := range d.Rates() {
			r = append(r, x/1e6)
		}
		out = append(out, r)
	}
	return out
}

// advance lets time pass until the next flow ends, or until a moment if that comes
// first, and tells whether a flow has ended and whether a coflow has, which is
// taken off.
func (w *world) advance(until time.Duration, done map[workloads.CoflowID]time.Duration) (flow, coflow bool) {
	seconds := (until - w.Now).Seconds()
	for _, d := range w.demands {
		d.Moving()
		for place, r := range d.Rates() {
			if r > 0 && !d.Ended(place) {
				seconds = min(seconds, d.Left[place]/r)
			}
		}
	}
	w.Now = min(w.Now+time.Duration(seconds*1e9+0.5), until)
	for i, d := range w.demands {
		d.Advance(seconds)
		for place, size := range w.sizes[i] {
			if !d.Ended(place) && d.Left[place] < 0.01 {
				d.End(place)
				w.ended[i] = append(w.ended[i], size)
				flow = true
			}
		}
		w.refresh(i)
	}
	for i := len(w.demands) - 1; i >= 0; i-- {
		if c := w.Coflows[i]; c.Left == 0 {
			done[c.ID] = w.Now - c.Arrival
			w.Coflows, w.demands = slices.Delete(w.Coflows, i, i+1), slices.Delete(w.demands, i, i+1)
			w.ended, w.sizes = slices.Delete(w.ended, i, i+1), slices.Delete(w.sizes, i, i+1)
			coflow = true
		}
	}
	return flow, coflow
}

// arrival is a coflow that comes at a moment.
type arrival struct {
	at    time.Duration
	flows []demandOf
}

// completionTimes runs coflows, with IDs from 1, under a policy that is asked when
// it says, without regard to Schedule.Watch and Wake.
func completionTimes(t rapid.TB, f *topo.Fabric, p policies.Scheduler, arrivals ...arrival) []time.Duration {
	t.Helper()
	w := newWorld(f)
	done := map[workloads.CoflowID]time.Duration{}
	when := p.When()
	const never = time.Duration(1 << 62)
	for next, steps, due := 0, 0, false; len(done) < len(arrivals); steps++ {
		if steps > 1e5 {
			t.Fatalf("%T: %d of %d coflows have ended after %d steps", p, len(done), len(arrivals), steps)
		}
		for next < len(arrivals) && arrivals[next].at <= w.Now {
			w.arrive(workloads.CoflowID(next+1), arrivals[next].flows)
			next, due = next+1, due || when.Coflows
		}
		if when.Every > 0 {
			due = w.Now%when.Every == 0
		}
		if due && len(w.Coflows) > 0 {
			w.decide(t, p)
		}
		until := never
		if next < len(arrivals) {
			until = arrivals[next].at
		}
		if when.Every > 0 && len(w.Coflows) > 0 {
			until = min(until, (w.Now/when.Every+1)*when.Every)
		}
		flow, coflow := w.advance(until, done)
		due = flow && when.Flows || coflow && when.Coflows
	}
	out := make([]time.Duration, len(arrivals))
	for id, d := range done {
		out[id-1] = d
	}
	return out
}

// served is the order of the coflows that steps name, by ID, each where it is first
// named.
func (w *world) served(p policies.Scheduler) []workloads.CoflowID {
	w.schedule.Reset()
	p.Schedule(w.View, &w.schedule)
	out := []workloads.CoflowID{}
	for _, st := range w.schedule.Steps {
		for _, i := range st.Coflows {
			if id := w.Coflows[i].ID; !slices.Contains(out, id) {
				out = append(out, id)
			}
		}
	}
	return out
}

// bipartite is a coflow of flows from each sender to each receiver, sorted by both.
func bipartite(senders, receivers []topo.HostID, size func() units.Bytes) []demandOf {
	var out []demandOf
	for _, s := range senders {
		for _, r := range receivers {
			if s != r {
				out = append(out, demandOf{s, r, size()})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b demandOf) int { return cmp.Or(cmp.Compare(a.src, b.src), cmp.Compare(a.dst, b.dst)) })
	return out
}
