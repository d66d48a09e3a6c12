package coflow

import (
	"cmp"
	"reflect"
	"slices"
	"time"

	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/policies/alloc"
	"testbed/policies/coflow/coflowtest"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Short names of package coflowtest.
type (
	demandOf = coflowtest.Flow
	job      = coflowtest.Job
)

var (
	fabric, eightMillis, millis, about = coflowtest.Fabric, coflowtest.EightMillis, coflowtest.Millis, coflowtest.About
	view, shown, all, hosts            = coflowtest.View, coflowtest.Shown, coflowtest.All, coflowtest.Hosts
	steps, pilotsOf                    = coflowtest.Steps, coflowtest.PilotsOf
)

// world holds coflows on a fabric: an unmasked View and the demands from which rates are
// computed.
type world struct {
	*policies.CoflowView
	demands  []*alloc.Demand // parallel to Coflows
	ended    [][]units.Bytes // sizes of ended flows, parallel to Coflows
	sizes    [][]units.Bytes // sizes of flows by index
	capacity []float64
	share    alloc.Allocator
	schedule policies.Schedule
	policy   policies.CoflowScheduler // of instance
	instance policies.CoflowInstance
}

// of returns the instance of a policy, which is another one than before if the policy is.
func (w *world) of(p policies.CoflowScheduler) policies.CoflowInstance {
	if !reflect.DeepEqual(w.policy, p) {
		w.policy, w.instance = p, p.New()
	}
	return w.instance
}

func newWorld(f *topo.Fabric) *world {
	w := &world{CoflowView: coflowtest.NewView(f)}
	for _, rate := range w.Capacity {
		w.capacity = append(w.capacity, float64(rate))
	}
	return w
}

// viewOf returns a world of coflows that have just arrived in the given order, with IDs
// from 1.
func viewOf(f *topo.Fabric, coflows ...[]demandOf) *world {
	w := newWorld(f)
	for i, flows := range coflows {
		w.arrive(workloads.CoflowID(i+1), flows)
	}
	return w
}

// arrive adds a coflow.
func (w *world) arrive(id workloads.CoflowID, flows []demandOf) {
	c, d := coflowtest.Arrive(w.CoflowView, id, flows)
	var sizes []units.Bytes
	for _, d := range flows {
		sizes = append(sizes, d.Bytes)
	}
	w.Coflows, w.demands, w.ended, w.sizes = append(w.Coflows, c), append(w.demands, d), append(w.ended, nil), append(w.sizes, sizes)
}

// refresh updates the state of a coflow from its flows.
func (w *world) refresh(i int) {
	c, d := &w.Coflows[i], w.demands[i]
	c.Links = slices.Clone(d.Links(policies.Sizes))
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

// decide calls the policy and sets the rates.
func (w *world) decide(t rapid.TB, p policies.CoflowScheduler) {
	t.Helper()
	w.schedule.Reset()
	w.of(p).Decide(w.CoflowView, &w.schedule)
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
}

// rates returns the rates of a decision in Mbit/s, by coflow and flow, in the order of
// arrive.
func (w *world) rates(t rapid.TB, p policies.CoflowScheduler) [][]float64 {
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

// advance lets time pass until the next flow ends, at most until the given time. It reports
// whether a flow and a coflow have ended, and removes the ended coflow.
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

// completionTimes simulates coflows, with IDs from 1, under a policy. It calls the policy
// according to When and ignores Schedule.Watch and Wake.
func completionTimes(t rapid.TB, f *topo.Fabric, p policies.CoflowScheduler, arrivals ...job) []time.Duration {
	t.Helper()
	w := newWorld(f)
	done := map[workloads.CoflowID]time.Duration{}
	when := p.Triggers()
	const never = time.Duration(1 << 62)
	for next, steps, due := 0, 0, false; len(done) < len(arrivals); steps++ {
		if steps > 1e5 {
			t.Fatalf("%T: %d of %d coflows have ended after %d steps", p, len(done), len(arrivals), steps)
		}
		for next < len(arrivals) && arrivals[next].At <= w.Now {
			w.arrive(workloads.CoflowID(next+1), arrivals[next].Flows)
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
			until = arrivals[next].At
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

// served returns the IDs of the coflows of the steps, in order of first occurrence.
func (w *world) served(p policies.CoflowScheduler) []workloads.CoflowID {
	w.schedule.Reset()
	p.New().Decide(w.CoflowView, &w.schedule)
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

// bipartite returns a coflow with a flow from each sender to each receiver, sorted by both.
func bipartite(senders, receivers []topo.HostID, size func() units.Bytes) []demandOf {
	var out []demandOf
	for _, s := range senders {
		for _, r := range receivers {
			if s != r {
				out = append(out, demandOf{s, r, size()})
			}
		}
	}
	slices.SortStableFunc(out, func(a, b demandOf) int { return cmp.Or(cmp.Compare(a.Src, b.Src), cmp.Compare(a.Dst, b.Dst)) })
	return out
}
