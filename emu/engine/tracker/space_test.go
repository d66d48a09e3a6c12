package tracker

import (
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/topo/units"
	"testbed/workloads/jobs"
)

// Two jobs fill the space of two hosts with half of their outputs each, so that neither can continue. The
// rule decides which one begins again; both end. A job that cannot end alone fails, and harms no other.
func TestEviction(t *testing.T) {
	f := fabric(1, 2)
	for _, tt := range []struct {
		name  string
		evict Evict
		space units.Bytes // of each host
		maps  [2]int
		want  []jobs.JobID // evicted
		ends  [2]string
	}{
		{"latest", EvictLatest, 400, [2]int{6, 6}, []jobs.JobID{2}, [2]string{"done", "done"}},
		{"least", EvictLeast, 400, [2]int{7, 5}, []jobs.JobID{1}, [2]string{"done", "done"}},
		{"tie", EvictLeast, 400, [2]int{6, 6}, []jobs.JobID{2}, [2]string{"done", "done"}},
		{"room", EvictLatest, 600, [2]int{6, 6}, nil, [2]string{"done", "done"}},
		{"alone", EvictLatest, 400, [2]int{6, 9}, []jobs.JobID{2}, [2]string{"done", "its outputs exceed the space of the cluster, 400B on each host"}},
		{"one output", EvictLatest, 99, [2]int{6, 9}, nil, [2]string{"the output of a task exceeds the space of a host, 99B", "the output of a task exceeds the space of a host, 99B"}},
		{"off", NoEviction, 100, [2]int{6, 6}, nil, [2]string{"done", "done"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := config(f, fair())
			c.Space, c.Evict, c.Blocks = tt.space, tt.evict, blocksOn(f, 20)
			s := newSim(t, c, time.Second)
			s.audit = tt.evict != NoEviction
			for i, maps := range tt.maps {
				s.submit(mapReduce(jobs.JobID(i+1), time.Duration(i), 0, maps, 1, 100))
			}
			s.run(time.Hour)
			if !slices.Equal(s.evicted, tt.want) || s.ended[1] != tt.ends[0] || s.ended[2] != tt.ends[1] {
				t.Errorf("evicted %v, want %v; ended %v, want %q", s.evicted, tt.want, s.ended, tt.ends)
			}
			for h := range s.k.hosts {
				if s.k.hosts[h].stored != 0 {
					t.Errorf("host %d stores %v after all jobs", h, s.k.hosts[h].stored)
				}
			}
		})
	}
}

// Outputs never exceed the space, all jobs end, and a job whose outputs fit on one host, each as the largest of
// its stage, is not failed for lack of space: for random graphs of stages, schedulers and failures of attempts.
func TestSpaceIsKept(t *testing.T) {
	evictions := 0
	rapid.Check(t, func(t *rapid.T) {
		f := fabric(rapid.IntRange(1, 2).Draw(t, "racks"), rapid.IntRange(1, 2).Draw(t, "hosts"))
		c := config(f, rapid.SampledFrom([]order{fifo(), fair()}).Draw(t, "scheduler"))
		c.Evict = Evict(rapid.IntRange(1, 2).Draw(t, "evict"))
		c.Space = units.Bytes(rapid.IntRange(1000, 3000).Draw(t, "space"))
		c.Slots = [2]int{2, 2}
		c.Blocks = blocksOn(f, 40)
		s := newSim(t, c, time.Second)
		s.audit = true
		fits := map[jobs.JobID]bool{}
		for i := range rapid.IntRange(4, 8).Draw(t, "jobs") {
			j := drawJob(t, jobs.JobID(i+1))
			j.Submit /= 20 // so that they compete
			total := units.Bytes(0)
			for k := range j.Stages {
				total += largestOutput(&j.Stages[k]) * units.Bytes(len(j.Stages[k].Tasks))
			}
			fits[j.ID] = total <= c.Space
			s.submit(j)
		}
		left := rapid.IntRange(0, 3).Draw(t, "failures")
		s.spoil = func(ev Event) bool {
			for h := range s.k.hosts {
				if s.k.hosts[h].stored > c.Space {
					t.Fatalf("%v: host %d stores %v of %v", s.now, h, s.k.hosts[h].stored, c.Space)
				}
			}
			if done, ok := ev.(ComputeDone); ok && left > 0 && s.running[done.Attempt] != nil && !s.running[done.Attempt].stopped {
				left--
				s.post(0, AttemptFailed{done.Attempt, "spoiled"})
				return true
			}
			return false
		}
		s.run(time.Hour)
		evictions += len(s.evicted)
		for id, how := range s.ended {
			if fits[id] && strings.Contains(how, "space") {
				t.Errorf("job %d, which fits on a host, failed: %s", id, how)
			}
		}
	})
	if evictions == 0 {
		t.Error("no job was evicted")
	}
}
