package flowsim_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/emu/flowsim"
	"testbed/policies"
	"testbed/policies/alloc"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// byFlow simulates coflows in order of arrival, flow by flow, with the rates of
// alloc.Reference, and returns their completion times. It decides at every arrival and end
// of a flow, and shares no code with flowsim.Run and alloc.Allocator.
func byFlow(f *topo.Fabric, p policies.CoflowScheduler, coflows []workloads.Coflow) []time.Duration {
	var ref alloc.Reference
	v := &policies.CoflowView{Cluster: &policies.Cluster{Fabric: f}}
	for _, l := range f.Links() {
		v.Capacity, ref.Capacity = append(v.Capacity, l.Rate), append(ref.Capacity, float64(l.Rate))
	}
	decide := p.New().Decide
	var active []int // coflows
	cct, left := make([]time.Duration, len(coflows)), make([][]float64, len(coflows))
	queue, since := make([]int, len(coflows)), make([]time.Duration, len(coflows))
	now := 0.0 // ns
	for next := 0; next < len(coflows) || len(active) > 0; {
		if next < len(coflows) && float64(coflows[next].Arrival) <= now {
			for _, fl := range coflows[next].Flows {
				left[next] = append(left[next], 8*float64(fl.Size))
			}
			active, since[next] = append(active, next), coflows[next].Arrival
			next++
			continue
		}
		v.Now, v.Coflows, ref.Flows = time.Duration(math.Round(now)), nil, nil
		var bits []*float64 // parallel to ref.Flows
		for at, i := range active {
			c := &coflows[i]
			s := policies.CoflowState{ID: c.ID, Arrival: c.Arrival, Width: len(c.Flows), Queue: queue[i], Since: since[i]}
			flows, remaining := make([]int, len(v.Capacity)), make([]float64, len(v.Capacity))
			for j, fl := range c.Flows {
				s.Size, s.Largest = s.Size+fl.Size, max(s.Largest, fl.Size)
				if left[i][j] == 0 {
					continue
				}
				s.Left++
				s.Remaining += units.Bytes(math.Ceil(left[i][j] / 8))
				path := f.Path(fl.Src, fl.Dst, 0)
				for _, l := range path {
					flows[l]++
					remaining[l] += left[i][j] / 8
				}
				ref.Flows = append(ref.Flows, alloc.ReferenceFlow{Coflow: at, ID: fl.ID, Links: path, Left: left[i][j]})
				bits = append(bits, &left[i][j])
			}
			s.Sent, s.Finished = s.Size-s.Remaining, s.Width-s.Left
			for l, n := range flows {
				if n > 0 {
					s.Links = append(s.Links, policies.LinkState{Link: topo.LinkID(l), Flows: n, Remaining: units.Bytes(math.Round(remaining[l]))})
				}
			}
			v.Coflows = append(v.Coflows, s)
		}
		var s policies.Schedule
		decide(v, &s)
		for at, q := range s.Queues {
			if i := active[at]; queue[i] != q {
				queue[i], since[i] = q, v.Now
			}
		}
		ref.Share(&s)
		until := math.Inf(1) // ns
		if next < len(coflows) {
			until = float64(coflows[next].Arrival) - now
		}
		for _, fl := range ref.Flows {
			if fl.Rate > 0 {
				until = min(until, fl.Left/fl.Rate*1e9)
			}
		}
		now += until
		for k, fl := range ref.Flows {
			if *bits[k] -= fl.Rate * until / 1e9; *bits[k] <= fl.Rate*1e-12 {
				*bits[k] = 0
			}
		}
		running := active[:0]
		for _, i := range active {
			for _, b := range left[i] {
				if b > 0 {
					running = append(running, i)
					break
				}
			}
			if n := len(running); n == 0 || running[n-1] != i {
				cct[i] = time.Duration(math.Round(now)) - coflows[i].Arrival
			}
		}
		active = running
	}
	return cct
}

// Without an interval, the rates of a flow change whenever a flow of an earlier coflow ends.
// With priority classes, those of several coflows change together.
func TestSameAsReference(t *testing.T) {
	const hosts = 6
	f, err := topo.BigSwitch(hosts, units.Gbps)
	if err != nil {
		t.Fatal(err)
	}
	maxmin := func(priorities int) map[string]any {
		return map[string]any{"allocation": "maxmin", "priorities": priorities}
	}
	for name, p := range map[string]policies.CoflowScheduler{
		"sincronia maxmin":               policy(t, "sincronia", maxmin(0)),
		"sincronia maxmin, 2 priorities": policy(t, "sincronia", maxmin(2)),
		"sincronia maxmin, 8 priorities": policy(t, "sincronia", maxmin(8)),
		"fifo maxmin, 1 priority":        policy(t, "fifo", maxmin(1)),
		"fifo even":                      policy(t, "fifo", map[string]any{"allocation": "even"}),
		"fifo madd":                      policy(t, "fifo", map[string]any{"allocation": "madd"}),
	} {
		t.Run(name, func(t *testing.T) {
			few(t, 20, func(t *rapid.T) {
				coflows := wideCoflows(t, hosts)
				r, err := flowsim.Run(t.Context(), flowsim.Config{Fabric: f, Scheduler: p}, coflows, nil)
				if err != nil {
					t.Fatal(err)
				}
				for i, want := range byFlow(f, p, coflows) {
					if got := r.Coflows[i].CCT(); (got - want).Abs() > time.Microsecond {
						t.Errorf("coflow %d takes %v, flow by flow %v", coflows[i].ID, got, want)
					}
				}
			})
		})
	}
}
