// Package coflowtest supports tests of coflow policies: it builds Views of coflows that
// have just arrived, and simulates coflows under a policy (Loop).
//
// It checks nothing. Package policytest checks the contract of policies.
package coflowtest

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/policies/alloc"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Flow is one flow of a test coflow: bytes from host Src to host Dst. It is an alias, so
// that tables of tests may omit the names of its fields.
type Flow = struct {
	Src, Dst topo.HostID
	Bytes    units.Bytes
}

// Fabric builds a fabric with queues of 1 ms and, unless set, no oversubscription.
func Fabric(t testing.TB, s topo.LeafSpine) *topo.Fabric {
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

// EightMillis returns a switch with the given number of hosts, on whose ports 1 MiB takes
// 8 ms.
func EightMillis(t testing.TB, hosts int) *topo.Fabric {
	return Fabric(t, topo.LeafSpine{Leaves: 1, HostsPerLeaf: hosts, HostLink: 1048576000})
}

// Millis returns durations of the given milliseconds.
func Millis(ms ...float64) (out []time.Duration) {
	for _, m := range ms {
		out = append(out, time.Duration(m*1e6))
	}
	return out
}

// About compares times with a tolerance for the rounding of events to nanoseconds.
var About = cmp.Comparer(func(a, b time.Duration) bool { return (a - b).Abs() < time.Microsecond })

// NewView returns a View at time 0 without coflows.
func NewView(f *topo.Fabric) *policies.CoflowView {
	v := &policies.CoflowView{Cluster: &policies.Cluster{Fabric: f, Hosts: make([]policies.HostState, f.Hosts())}}
	for _, l := range f.Links() {
		v.Capacity = append(v.Capacity, l.Rate)
	}
	return v
}

// Arrive returns the state and the demand of a coflow that arrives now. The IDs of its flows
// are consecutive from 100000·id, in the order given.
func Arrive(v *policies.CoflowView, id workloads.CoflowID, flows []Flow) (policies.CoflowState, *alloc.Demand) {
	c := policies.CoflowState{ID: id, Arrival: v.Now, Since: v.Now, Width: len(flows), Left: len(flows)}
	senders, receivers := map[topo.HostID]bool{}, map[topo.HostID]bool{}
	var of []alloc.Flow
	for j, d := range flows {
		senders[d.Src], receivers[d.Dst] = true, true
		c.Size, c.Largest = c.Size+d.Bytes, max(c.Largest, d.Bytes)
		of = append(of, alloc.Flow{ID: workloads.FlowID(100000*int(id) + j), Size: d.Bytes, Links: v.Fabric.Path(d.Src, d.Dst, uint32(j))})
	}
	c.Senders, c.Receivers, c.Remaining = len(senders), len(receivers), c.Size
	d := alloc.NewDemand(of, len(v.Capacity))
	c.Links = slices.Clone(d.Links(policies.Sizes))
	for _, l := range c.Links {
		if v.Capacity[l.Link] > 0 {
			c.Bound = max(c.Bound, v.Capacity[l.Link].TimeToSend(l.Remaining))
		}
	}
	return c, d
}

// View returns the View of coflows that have just arrived in the given order, with IDs from
// 1. It does not show their flows.
func View(f *topo.Fabric, coflows ...[]Flow) *policies.CoflowView {
	v := NewView(f)
	for i, flows := range coflows {
		c, _ := Arrive(v, workloads.CoflowID(i+1), flows)
		v.Coflows = append(v.Coflows, c)
	}
	return v
}

// Shown adds the flows of new coflows to a View.
func Shown(v *policies.CoflowView, coflows ...[]Flow) *policies.CoflowView {
	for i, flows := range coflows {
		c := &v.Coflows[i]
		for j, d := range flows {
			c.Flows = append(c.Flows, policies.FlowState{ID: workloads.FlowID(100*(i+1) + j), Src: d.Src, Dst: d.Dst, Path: v.Fabric.Path(d.Src, d.Dst, uint32(j))})
		}
	}
	return v
}

// Sampled adds a coflow that shares no port with the others and has the given numbers of
// unfinished pilot flows on links.
func Sampled(v *policies.CoflowView, pilots map[topo.LinkID]int) *policies.CoflowView {
	c := policies.CoflowState{ID: 99, Width: 8, Left: 8, Senders: 8, Receivers: 8, Pilots: 3, PilotsLeft: 3}
	for l, n := range pilots {
		c.Links = append(c.Links, policies.LinkState{Link: l, Flows: n, Pilots: n})
	}
	slices.SortFunc(c.Links, func(a, b policies.LinkState) int { return int(a.Link - b.Link) })
	v.Coflows = append(v.Coflows, c)
	return v
}

// All returns flows from every sender to every receiver, of equal size.
func All(senders, receivers []topo.HostID, bytes units.Bytes) (out []Flow) {
	for _, s := range senders {
		for _, r := range receivers {
			out = append(out, Flow{s, r, bytes})
		}
	}
	return out
}

// Hosts returns the hosts from one to another, inclusive.
func Hosts(from, to topo.HostID) (out []topo.HostID) {
	for h := from; h <= to; h++ {
		out = append(out, h)
	}
	return out
}

// PilotsOf returns the (sender, receiver) pairs of the pilot flows that a policy chooses.
func PilotsOf(v *policies.CoflowView, p policies.CoflowScheduler) (out []string) {
	var s policies.Schedule
	p.New().Decide(v, &s)
	for _, id := range s.Pilots {
		for i := range v.Coflows {
			for _, f := range v.Coflows[i].Flows {
				if f.ID == id {
					out = append(out, fmt.Sprintf("%d->%d", f.Src, f.Dst))
				}
			}
		}
	}
	return out
}

// Steps returns the steps of a schedule as text.
func Steps(s *policies.Schedule) (out []string) {
	for _, st := range s.Steps {
		part := [...]string{"all", "pilots", "others", "chosen"}[st.Part]
		out = append(out, fmt.Sprint(st.Coflows, " ", part, " ", st.Rule, " ", st.Budget))
	}
	return out
}

// Worked returns a View with a coflow of 2 senders and 4 receivers, whose one pilot flow of
// 2 MiB has ended. One other coflow shares its sender 0, one its sender 0 and receiver 4.
func Worked(t testing.TB) *policies.CoflowView {
	v := View(EightMillis(t, 12), All(Hosts(0, 1), Hosts(4, 7), 2*mib), []Flow{{0, 8, mib}}, []Flow{{0, 4, mib}})
	c := &v.Coflows[0]
	c.Pilots, c.PilotSent, c.Sent, c.Left = 1, 2*mib, 7*mib, 5
	return v
}

// DrawJobs draws up to six coflows of up to five flows of at most the given size. They
// arrive within 60 ms.
func DrawJobs(t *rapid.T, hosts int, largest units.Bytes) (jobs []Job) {
	host := rapid.IntRange(0, hosts-1)
	for range rapid.IntRange(1, 6).Draw(t, "coflows") {
		j := Job{At: time.Duration(rapid.IntRange(0, 60).Draw(t, "ms")) * time.Millisecond}
		for range rapid.IntRange(1, 5).Draw(t, "flows") {
			src, dst := host.Draw(t, "src"), host.Draw(t, "dst")
			if src == dst {
				dst = (dst + 1) % hosts
			}
			j.Flows = append(j.Flows, Flow{topo.HostID(src), topo.HostID(dst), units.Bytes(rapid.Int64Range(1, int64(largest)).Draw(t, "bytes"))})
		}
		jobs = append(jobs, j)
	}
	return jobs
}
