package tasks

import (
	"math"
	"slices"

	"testbed/policies"
	"testbed/workloads/jobs"
)

// Splitting is copy-compute splitting (FAIR report, section of that name): a host runs more
// reduces than it has reduce slots, but at most as many as it has slots sort and reduce at the
// same time. The others fetch or wait. Reduces of one long job, which wait for maps, then do not
// keep those of other jobs from starting.
type Splitting struct {
	// Factor is the number of reduces that may run per reduce slot: maxReducers = Factor ×
	// maxComputing. At most 1 is no splitting. The report's example is 3.
	Factor int
	// PerJob is the number of reduces of one job on one host that may fetch, or wait to
	// compute, at the same time. 0 is the number of reduce slots, maxComputing. It applies only
	// if Factor is above 1.
	PerJob int
	// PerUser is the number of reduces of one user on one host at the same time, whatever they do; 0 is
	// no limit. It also applies without splitting.
	PerUser int
	// These are other options of the report, which also apply without splitting; it does not describe them further.
	//
	// Reserved is the number of reduce slots of a host, of those that may run, that only reduces of jobs take
	// whose maps have all ended. Those of other jobs may wait for maps for long.
	Reserved int
	// ByMemory admits reduces to computing by memory in place of reduce slots (policies.Limits).
	ByMemory bool
	// Pausing lets reduces without outputs to fetch give their slots to others (policies.Limits).
	Pausing bool
}

// DefaultSplitting returns that of the report's example.
func DefaultSplitting() Splitting { return Splitting{Factor: 3} }

// Slots returns Factor reduces per reduce slot, of which one computes.
func (s Splitting) Slots(n [jobs.TaskKinds]int) policies.Limits {
	l := policies.Limits{Running: n, Computing: n, ByMemory: s.ByMemory, Pausing: s.Pausing}
	if r := n[jobs.Reduce]; s.Factor > 1 && r > 0 {
		l.Running[jobs.Reduce] = math.MaxInt
		if r <= math.MaxInt/s.Factor {
			l.Running[jobs.Reduce] = r * s.Factor
		}
	}
	if s.ByMemory {
		l.Computing[jobs.Reduce] = l.Running[jobs.Reduce]
	}
	return l
}

// admits reports whether the host may start one more reduce of a job.
func (s Splitting) admits(d *decision, job int) bool {
	if s.PerUser > 0 && s.ofUser(d, d.v.Jobs[job].User) >= s.PerUser {
		return false
	}
	if s.Reserved > 0 && d.host.Free(jobs.Reduce) <= s.Reserved && mapping(&d.v.Jobs[job]) {
		return false
	}
	if s.Factor <= 1 {
		return true
	}
	most := s.PerJob
	if most <= 0 {
		most = max(d.host.Total[jobs.Reduce]/s.Factor, 1)
	}
	n := countOn(&d.v.Jobs[job], d.v.Host, func(x *policies.AttemptState) bool { return x.Kind == jobs.Reduce && x.Phase != policies.Computing })
	return n+d.launched(jobs.Reduce, job) < most
}

// mapping reports whether a job has maps that have not ended.
func mapping(j *policies.TaskJob) bool {
	return slices.ContainsFunc(j.Stages, func(st policies.StageState) bool { return st.Kind == jobs.Map && st.Done < st.Tasks })
}

// ofUser returns the number of reduces of a user on the host, including launches.
func (s Splitting) ofUser(d *decision, user string) (n int) {
	for i := range d.v.Jobs {
		if d.v.Jobs[i].User == user {
			n += d.launched(jobs.Reduce, i)
			n += countOn(&d.v.Jobs[i], d.v.Host, func(x *policies.AttemptState) bool { return x.Kind == jobs.Reduce })
		}
	}
	return n
}
