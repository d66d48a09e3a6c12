package coflow

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

func TestDeadlines(t *testing.T) {
	at := func(factor float64) Deadline { return Deadline{Factor: factor} }
	// The two coflows need 64 ms and 32 ms alone, at one port.
	shared := [][]demandOf{{{0, 4, 8 * mb}}, {{0, 5, 4 * mb}}}
	for _, tt := range []struct {
		name    string
		mode    Deadline
		now     time.Duration // after the arrival of all
		coflows [][]demandOf
		queues  []int // 0 before the decision, unless now is later
		want    [][]float64
	}{
		// Deadlines at 128 ms and 64 ms: half of the port each.
		{"both fit", at(2), 0, shared, []int{Admitted, Admitted}, [][]float64{{500}, {500}}},
		{"the second does not", at(1.9), 0, shared, []int{Admitted, Rejected}, [][]float64{{1e3 / 1.9}, {1e3 - 1e3/1.9}}},
		{"with padding", Deadline{Factor: 2, Padding: 0.1}, 0, shared, []int{Admitted, Rejected}, [][]float64{{500}, {500}}},
		{"padding that leaves no time", Deadline{Factor: 2, Padding: 1.5}, 0, shared, []int{Rejected, Rejected}, [][]float64{{0}, {1000}}},
		{"rejected last", Deadline{Factor: 1.9, RejectedLast: true}, 0, shared, []int{Admitted, Rejected}, [][]float64{{1000}, {0}}},
		{"too short", Deadline{Factor: 2, Least: 100 * time.Millisecond}, 0, shared, []int{Admitted, Rejected}, [][]float64{{500}, {500}}},
		{"less than alone", at(0.9), 0, shared, []int{Rejected, Rejected}, [][]float64{{0}, {1000}}},
		// No other coflow can use the rest: the one with the earlier deadline gets it.
		{"rest to the admitted", at(4), 0, shared, []int{Admitted, Admitted}, [][]float64{{250}, {750}}},
		// The second must end by 64 ms, the first by 128: in 28 ms.
		{"late", at(2), 100 * time.Millisecond, [][]demandOf{{{0, 4, 1400 * kb}}, {{0, 5, mb}}}, []int{Admitted, Admitted}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := SEBF{Deadline: tt.mode}
			w := viewOf(bigSwitch(t), tt.coflows...)
			if tt.now > 0 {
				for i, bound := range []time.Duration{64 * time.Millisecond, 32 * time.Millisecond} {
					w.Coflows[i].Bound, w.Coflows[i].Queue = bound, Admitted
				}
				w.Now, tt.want = tt.now, [][]float64{{400}, {600}}
			}
			if d := cmp.Diff(tt.want, w.rates(t, p), near); d != "" {
				t.Errorf("Mbit/s (-want +got):\n%s", d)
			}
			if d := cmp.Diff(tt.queues, w.schedule.Queues); d != "" {
				t.Errorf("queues (-want +got):\n%s", d)
			}
			before := append([]int{}, w.schedule.Queues...)
			if w.decide(t, p); !cmp.Equal(before, w.schedule.Queues) {
				t.Errorf("queues of coflows that are not new: %v, before %v", w.schedule.Queues, before)
			}
		})
	}
}

// A coflow past its deadline gets the capacity that those in time leave, before rejected
// coflows.
func TestLateCoflow(t *testing.T) {
	w := viewOf(bigSwitch(t), []demandOf{{0, 4, 4 * mb}, {1, 5, mb}}, []demandOf{{1, 6, mb}}, []demandOf{{0, 7, mb}})
	w.Now = time.Second
	w.Coflows[0].Queue, w.Coflows[1].Queue, w.Coflows[2].Queue = Admitted, Rejected, Admitted
	w.Coflows[2].Arrival = w.Now // 8 ms alone: deadline in 32 ms
	if d := cmp.Diff([][]float64{{750, 1000}, {0}, {250}}, w.rates(t, SEBF{Deadline: Deadline{Factor: 4}}), near); d != "" {
		t.Errorf("Mbit/s (-want +got):\n%s", d)
	}
}

// A coflow whose deadline leaves no time in hand ends with the rates of MADD even if rounding
// has made the deadline too short by less than 1 ns: served flow by flow, its last flow to
// host 4 would wait for port 1 and end 1 µs late.
func TestTightDeadlineAfterRounding(t *testing.T) {
	f := fabric(t, topo.LeafSpine{Leaves: 1, HostsPerLeaf: testHosts, HostLink: units.Gbps})
	tight := []demandOf{{0, 1, kb}, {0, 1, kb}, {0, 1, kb}, {0, 4, kb}, {1, 0, kb}, {1, 4, 2459}}
	took := completionTimes(t, f, SEBF{Deadline: Deadline{Factor: 1}}, job{0, tight}, job{0, []demandOf{{2, 0, kb}}})
	if want := 32 * time.Microsecond; took[0] > want+10*time.Nanosecond {
		t.Errorf("took %v, want %v", took[0], want)
	}
}

// spy records which coflows were admitted.
type spy struct {
	policies.CoflowScheduler
	queue map[workloads.CoflowID]int
}

func (s spy) New() policies.CoflowInstance { return spyInstance{s.CoflowScheduler.New(), s.queue} }

type spyInstance struct {
	policies.CoflowInstance
	queue map[workloads.CoflowID]int
}

func (s spyInstance) Decide(v *policies.CoflowView, to *policies.Schedule) {
	s.CoflowInstance.Decide(v, to)
	for i, q := range to.Queues {
		s.queue[v.Coflows[i].ID] = q
	}
}

// Every admitted coflow meets its deadline, independently of later ones, and every other
// coflow ends.
func TestAdmittedCoflowsEndInTime(t *testing.T) {
	f := fabric(t, topo.LeafSpine{Leaves: 1, HostsPerLeaf: testHosts, HostLink: units.Gbps})
	rapid.Check(t, func(t *rapid.T) {
		var arrivals []job
		now := time.Duration(0)
		for _, flows := range append(randomCoflows().Draw(t, "workload"), randomCoflows().Draw(t, "more")...) {
			arrivals = append(arrivals, job{now, flows})
			now += time.Duration(rapid.Int64Range(0, 4e9).Draw(t, "gap"))
		}
		mode := Deadline{Factor: rapid.Float64Range(1, 6).Draw(t, "factor"), Padding: rapid.SampledFrom([]float64{0, 0.1}).Draw(t, "padding"),
			RejectedLast: rapid.Bool().Draw(t, "rejected last")}
		s := spy{SEBF{Deadline: mode}, map[workloads.CoflowID]int{}}
		for i, took := range completionTimes(t, f, s, arrivals...) {
			bound := viewOf(f, arrivals[i].Flows).Coflows[0].Bound
			deadline := time.Duration(mode.Factor * float64(bound))
			if s.queue[workloads.CoflowID(i+1)] == Admitted && took > deadline+time.Microsecond {
				t.Errorf("coflow %d, admitted, takes %v, want at most %v", i+1, took, deadline)
			}
		}
	})
}
