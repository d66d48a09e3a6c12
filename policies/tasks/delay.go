package tasks

import (
	"math"
	"time"

	"testbed/policies"
	"testbed/topo/units"
	"testbed/workloads/jobs"
)

// Waiting is how a job waits for a host that stores its input.
type Waiting uint8

// The ways to wait.
const (
	NoWait  Waiting = iota
	ByTime          // up to T1 for a host that stores the input, then up to T2 for its rack
	BySkips         // up to D heartbeats that offer a slot
)

// Delay is delay scheduling: a job whose turn it is, but that has no map with input on the host,
// lets other jobs go first for a while. The version with times is that of the FAIR report, the
// version with skips that of EuroSys 2010.
type Delay struct {
	Waiting Waiting
	// T1 is the time that a job waits for a node-local map before it launches a rack-local one,
	// and T2 the time after that until it launches any. Time counts only between a heartbeat at
	// which the job was skipped and the next heartbeat of any host.
	T1, T2 time.Duration
	// Skips is D, the number of heartbeats that a job lets pass before it launches a map that is
	// not node-local. 0 computes it with SkipCount, from the job's number of maps, the hosts,
	// Locality and Replicas.
	Skips    int
	Locality float64 // λ, the part of node-local maps that SkipCount aims at, below 1
	Replicas int     // of a block, for SkipCount
	// ByRate sets T1 and T2 to 0 for jobs that are limited by the processor, which gain nothing
	// from local input (IO-rate biasing): those whose ended maps consumed input at less than
	// Rate. For a job without ended maps, those of earlier jobs with its profile count (our
	// addition: a job whose maps start at once is otherwise found out too late). If there are
	// none either, the job waits.
	ByRate bool
	// Rate is the threshold of ByRate; 0 is half the host's share of its slowest device for each
	// map slot: of the disk, if it has a rate, or the link.
	Rate units.Rate
}

// DefaultDelay returns the settings of the FAIR report, by time.
func DefaultDelay() Delay {
	return Delay{Waiting: ByTime, T1: 15 * time.Second, T2: 15 * time.Second, Locality: 0.95, Replicas: 3}
}

// SkipCount returns the number of skips D with which a job of a number of maps expects to run a
// part λ of them on hosts with their input (EuroSys 2010): ⌈−(M/R)·ln[(1−λ)N/(1+(1−λ)N)]⌉ for N
// maps, M hosts, and R replicas of a block. It is 0 without hosts or maps, or for λ ≤ 0, and
// math.MaxInt for λ ≥ 1.
func SkipCount(locality float64, maps, hosts, replicas int) int {
	if maps <= 0 || hosts <= 0 || !(locality > 0) {
		return 0
	}
	x := (1 - locality) * float64(maps)
	d := -float64(hosts) / float64(max(replicas, 1)) * math.Log(x/(1+x))
	if !(d < math.MaxInt32) {
		return math.MaxInt
	}
	return int(math.Ceil(d))
}

// delayed is what delay scheduling remembers of a job.
type delayed struct {
	level   policies.Locality // of the most recently launched map
	wait    time.Duration     // BySkips: the number of skips before the previous heartbeat
	skipped bool              // at the previous heartbeat
}

// delaying is delay scheduling during one decision.
type delaying struct {
	Delay
	jobs      []jobMemory
	threshold units.Rate
}

// start prepares a decision. A job that was skipped at the previous heartbeat has waited since then.
func (x *delaying) start(d *decision, p Delay) {
	x.Delay = p
	if p.Waiting == NoWait {
		return
	}
	x.jobs, x.threshold = d.jobs, p.threshold(d)
	since := time.Duration(1)
	if p.Waiting == ByTime {
		since = max(d.v.Now-d.last, 0)
	}
	for i := range x.jobs {
		if j := &x.jobs[i]; j.skipped {
			j.wait, j.skipped = j.wait+since, false
		}
	}
}

// threshold returns the input rate of a map below which the processor limits it.
func (p Delay) threshold(d *decision) units.Rate {
	if p.Rate > 0 || !p.ByRate {
		return p.Rate
	}
	device := d.v.Fabric.Link(d.v.Fabric.HostDown(d.v.Host)).Rate
	if disk := d.v.DiskRate; disk > 0 {
		device = min(device, disk)
	}
	return device / units.Rate(2*max(d.host.Total[jobs.Map], 1))
}

// allowed returns the farthest input with which the job may launch a map.
func (x *delaying) allowed(d *decision, q queue, job int) policies.Locality {
	if x.Waiting == NoWait || q.starving(job) {
		return policies.OffRack
	}
	j := &d.v.Jobs[job]
	if x.ByRate && x.processorBound(d, j) {
		return policies.OffRack
	}
	level, wait := x.jobs[job].level, x.jobs[job].wait
	if x.Waiting == BySkips {
		skips := x.Skips
		if skips <= 0 {
			skips = SkipCount(x.Locality, maps(j), len(d.v.Slots), x.Replicas)
		}
		if int64(wait) >= int64(skips) {
			return policies.OffRack
		}
		return policies.NodeLocal
	}
	switch {
	case level == policies.OffRack || level == policies.RackLocal && wait >= x.T2 || wait >= x.T1+x.T2:
		return policies.OffRack
	case level == policies.RackLocal || wait >= x.T1:
		return policies.RackLocal
	default:
		return policies.NodeLocal
	}
}

// maps returns the number of maps of a job whose input has a place.
func maps(j *policies.TaskJob) (n int) {
	for i := range j.Stages {
		if st := &j.Stages[i]; st.Kind == jobs.Map && !st.Anywhere {
			n += st.Tasks
		}
	}
	return n
}

// processorBound reports whether maps of a job consume their input at less than the threshold: its
// ended maps, or before the first of them ends, those of earlier jobs with the same profile.
func (x *delaying) processorBound(d *decision, j *policies.TaskJob) bool {
	var c policies.Consumption
	for i := range j.Stages {
		if st := &j.Stages[i]; st.Kind == jobs.Map && !st.Anywhere {
			c.Add(st.Consumption)
		}
	}
	if c.Busy == 0 {
		c = d.v.Profiles[j.Profile]
	}
	return c.Busy > 0 && c.Rate() < x.threshold
}

// skip notes that a job let its turn pass.
func (x *delaying) skip(job int) { x.jobs[job].skipped = true }

// launched notes the launch of a map with this locality.
func (x *delaying) launched(job int, l policies.Locality) {
	switch {
	case x.Waiting == ByTime:
		x.jobs[job].level, x.jobs[job].wait = l, 0
	case x.Waiting == BySkips && l == policies.NodeLocal:
		x.jobs[job].wait = 0
	}
}
