package tracker

import (
	"runtime"
	"testing"
	"time"

	"testbed/policies"
	"testbed/topo"
	"testbed/workloads/jobs"
)

// noop is a scheduler that launches nothing.
type noop struct{ order }

func (noop) New() policies.TaskInstance                      { return noop{} }
func (noop) Assign(*policies.TaskView, *policies.Assignment) {}

// One heartbeat of a host, without the scheduler, with 1,000 jobs of 60 pending maps each.
func BenchmarkHeartbeat(b *testing.B) {
	f := fabric(20, 30)
	c := config(f, noop{fifo()})
	c.Blocks = blocksOn(f, 60000)
	k := must(New(c))
	for i := range 1000 {
		must(k.Step(0, JobSubmitted{mapReduce(jobs.JobID(i+1), 0, 0, 60, 6, 1000)}))
	}
	h := 0
	b.ReportAllocs()
	for b.Loop() {
		must(k.Step(time.Second, Heartbeat{Host: topo.HostID(h % f.Hosts())}))
		h++
	}
}

// A workload of 210,000 maps on 600 hosts: jobs of 1 to 3,000 maps, with a reduce for each 20 maps.
func BenchmarkWorkload(b *testing.B) {
	f := fabric(20, 30)
	for b.Loop() {
		c := config(f, fifoByJob{})
		c.Batch = 0
		c.Slots = [2]int{4, 2}
		c.Blocks = blocksOn(f, 20000)
		s := newSim(b, c, 3*time.Second)
		for i, maps := 0, 0; maps < 210000; i++ {
			n := []int{1, 2, 3, 5, 10, 10, 20, 50, 100, 200}[i%10]
			if i%500 == 499 {
				n = 3000
			}
			s.submit(mapReduce(jobs.JobID(i+1), time.Duration(i)*500*time.Millisecond, 0, n, n/20, 1000))
			maps += n
		}
		s.run(100 * time.Hour)
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		b.ReportMetric(float64(len(s.jobs)), "jobs")
		b.ReportMetric(float64(s.steps), "steps")
		b.ReportMetric(float64(s.commands), "commands")
		b.ReportMetric(float64(m.HeapSys)/1e6, "MB")
		b.ReportMetric(s.spent.Seconds(), "tracker-s")
	}
}

// fifoByJob is fifo without a list of all jobs in each call.
type fifoByJob struct{ order }

func (fifoByJob) New() policies.TaskInstance { return fifoByJob{} }

func (fifoByJob) Assign(v *policies.TaskView, a *policies.Assignment) {
	for k := range jobs.TaskKind(jobs.TaskKinds) {
		free := v.Slots[v.Host].Free(k)
		for j := 0; j < len(v.Jobs) && free > 0; j++ {
			for s, st := range v.Jobs[j].Stages {
				if st.Kind != k {
					continue
				}
				for l, n := range st.Pending {
					for range min(n, free) {
						a.Launch = append(a.Launch, policies.Launch{Job: j, Stage: s, Locality: policies.Locality(l)})
						free--
					}
				}
			}
		}
	}
}
