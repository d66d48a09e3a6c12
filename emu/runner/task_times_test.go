package runner

import (
	"strings"
	"testing"
	"time"

	"testbed/emu/kernel/netnstest"
	"testbed/emu/longtest"
	"testbed/results/flows"
	"testbed/results/summary"
	"testbed/results/verdict"
)

// loneJobs is a scenario of equal jobs, submitted at once, on racks that are 5:1 oversubscribed. A map
// takes 4.2 s, and 16 maps two waves. Waves begin at heartbeats: maps of a multiple of the interval
// would miss one on packets, by milliseconds, and none on the fluid model.
const loneJobs = `
name: lone
fabric: {leaves: 2, spines: 1, hosts_per_leaf: 5, host_link: 40Mbps, oversubscription: "5:1", queue: 20ms}
disk: {write: 2.7MB/s, size: 256MB}
heartbeat: {interval: 250ms}
workload:
  - {kind: tasks, generator: mix, jobs: JOBS, gap: 0s, users: JOBS, block: 2.1MB, map_rate: 0.5MB/s, reduce_rate: 2MB/s, sort_rate: 10MB/s, profiles: [PROFILE]}
tasks: {map_slots: 1, reduce_slots: 1, output: {packet: 16KB, window: 6}}
arms:
  - {name: fifo, coflow: fair, placement: hdfs, tasks: fifo}
  - {name: fair, coflow: fair, placement: hdfs, tasks: fair}
`

const mapOnly = "{name: scan, maps: 16-16, keep_map: 0}"

// jobTimes are the times of the jobs of an arm, and when each began its last map.
func jobTimes(t *testing.T, rep summary.Repeat, jobs int) (times, last []time.Duration) {
	t.Helper()
	r := rep.Records
	if len(r.Jobs) != jobs || len(rep.Fluid.Jobs) != jobs {
		t.Fatalf("%d jobs on packets and %d on the fluid model, want %d", len(r.Jobs), len(rep.Fluid.Jobs), jobs)
	}
	last = make([]time.Duration, jobs)
	for _, a := range r.Attempts {
		if a.Outcome != flows.Committed {
			t.Errorf("attempt %+v", a)
		}
		if a.Kind == flows.MapTask {
			last[a.Job-1] = max(last[a.Job-1], a.Start)
		}
	}
	for _, j := range r.Jobs {
		times = append(times, j.JobTime())
	}
	for _, c := range rep.Verdict.Checks {
		if c.Level > verdict.Pass {
			t.Logf("verdict %v: %s: %s", c.Level, c.Name, c.Value)
		}
	}
	return times, last
}

// A job that is alone takes as long as on the fluid model: its maps, and a little longer in all, as its shuffle and
// outputs start and end slowly.
func TestLoneJobTakesWhatTheFluidModelSays(t *testing.T) {
	longtest.Skip(t, "runs a job on packets, 17 s")
	netnstest.OnlyTiming(t)
	text, _, _ := strings.Cut(loneJobs, "  - {name: fair,")
	const profile = "{name: sort, maps: 16-16, reduces: 0.25, keep_map: 1, keep_reduce: 0.5}"
	s := loadText(t, strings.NewReplacer("JOBS", "1", "PROFILE", profile).Replace(text))
	maps := func(r flows.Records) (last time.Duration) {
		for _, a := range r.Attempts {
			if a.Kind == flows.MapTask {
				last = max(last, a.End-r.Jobs[0].Arrival)
			}
		}
		return last
	}
	netnstest.Timing(t, func(t *testing.T) bool {
		_, arms := onPackets(t, s)
		rep, ok := arms["fifo"], true
		times, _ := jobTimes(t, rep, 1)
		for _, x := range []struct {
			name        string
			took, fluid time.Duration
			most        float64
		}{
			{"maps", maps(rep.Records), maps(*rep.Fluid), 1.06},
			{"job", times[0], rep.Fluid.Jobs[0].JobTime(), 1.08},
		} {
			ratio := float64(x.took) / float64(x.fluid)
			t.Logf("%s: %v on packets, %v on the fluid model: %.3f", x.name, x.took, x.fluid, ratio)
			ok = ok && ratio >= 0.98 && ratio <= x.most
		}
		return ok
	})
}

// Two equal jobs end together under FAIR, and one after the other under FIFO.
func TestTwoEqualJobs(t *testing.T) {
	longtest.Nightly(t, "runs jobs on packets, 35 s")
	netnstest.OnlyTiming(t)
	s := loadText(t, strings.NewReplacer("JOBS", "2", "PROFILE", mapOnly).Replace(loneJobs))
	netnstest.Timing(t, func(t *testing.T) bool {
		_, arms := onPackets(t, s)
		fifo, last := jobTimes(t, arms["fifo"], 2)
		fair, _ := jobTimes(t, arms["fair"], 2)
		both, after := float64(fair[1])/float64(fair[0]), float64(fifo[1])/float64(fifo[0])
		t.Logf("FIFO %v, the last maps from %v, %.3f; FAIR %v, %.3f", fifo, last, after, fair, both)
		return last[1] > last[0] && after > 1.8 && after < 2.2 && both > 0.95 && both < 1.05
	})
}
