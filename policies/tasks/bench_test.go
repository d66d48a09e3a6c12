package tasks

import (
	"fmt"
	"testing"
	"time"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads/jobs"
)

// crowd returns a World of 100 hosts with 1,000 runnable jobs in 20 pools. No map has its input
// on the host, so that delay scheduling passes over all jobs.
func crowd(t testing.TB) *world {
	f, err := topo.LeafSpine{Leaves: 10, Spines: 2, HostsPerLeaf: 10, HostLink: units.Gbps, Oversubscription: units.Ratio{Num: 5, Den: 1}, Queue: topo.Queue{Time: time.Millisecond}, MTU: 1500}.Build()
	if err != nil {
		t.Fatal(err)
	}
	w := &world{TaskView: policies.TaskView{Cluster: &policies.Cluster{Fabric: f}}}
	for range f.Hosts() {
		w.Slots = append(w.Slots, policies.SlotState{Total: [2]int{6, 4}, Used: [2]int{4, 3}, Space: -1, Capacity: jobs.Resources{CPU: 16, Memory: 64 * units.GB}, Need: jobs.Resources{CPU: 7, Memory: 7 * units.GB}})
	}
	need := jobs.Resources{CPU: 1, Memory: units.GB}
	for i := range 1000 {
		m := policies.StageState{Kind: jobs.Map, Tasks: 40, Done: 10, Running: i % 3, Pending: [3]int{0, 0, 30 - i%3}, Waiting: 30 - i%3, Need: need}
		r := policies.StageState{Kind: jobs.Reduce, Tasks: 5, Running: i % 2, Pending: [3]int{0, 0, 5 - i%2}, Waiting: 5 - i%2, Need: need, Anywhere: true}
		w.add(fmt.Sprint("user-", i*7%20), m, r)
	}
	return w
}

// BenchmarkAssign measures one heartbeat of a host with 2 free map slots and 1 free reduce slot
// and 1,000 runnable jobs in 20 pools, whose target is 50 µs.
func BenchmarkAssign(b *testing.B) {
	patient := Delay{Waiting: ByTime, T1: time.Hour, T2: time.Hour}
	pools := []Pool{{Name: "user-3", Weight: 2, Min: [2]int{10, 5}}, {Name: "user-5", Min: [2]int{100, 50}}}
	for _, bench := range []struct {
		name string
		s    Scheduler
	}{
		{"fifo", DefaultFIFO()},
		{"fair", DefaultFair()},
		{"fair-multiple", Scheduler{Order: Fair{}}},
		{"fair-pools", Scheduler{Order: Fair{Pools: pools}, PerHeartbeat: PerHeartbeat{Tasks: 1}}},
		{"fair-delay", Scheduler{Order: Fair{Starvation: DefaultStarvation()}, PerHeartbeat: PerHeartbeat{Tasks: 1}, Delay: patient}},
		{"drf", DefaultDRF()},
	} {
		b.Run(bench.name, func(b *testing.B) {
			w := crowd(b)
			w.beat(bench.s, time.Second, 0)
			b.ReportAllocs()
			for b.Loop() {
				w.a.Reset()
				w.x.Assign(&w.TaskView, &w.a)
			}
		})
	}
}
