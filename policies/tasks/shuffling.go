package tasks

import (
	"slices"
	"time"

	"testbed/policies"
	"testbed/policies/shuffle"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads/jobs"
)

// Shuffling is ShuffleWatcher (USENIX ATC 2014): it shapes the shuffle by the choice of tasks. The order of
// users stays that of the Order; Shuffling chooses among the tasks of the user whose turn it is. Its parts
// can be used alone.
type Shuffling struct {
	// NASS delays reduces with much shuffle while the links of racks are saturated. Without it, the network
	// is never saturated.
	NASS bool
	// SARP prefers reduces on racks with much intermediate data.
	SARP bool
	// SAMP prefers maps on few racks, by Rule. On more than shuffle.MaxSubsetRacks racks, BestSubset is
	// BestPrefix.
	SAMP bool
	Rule shuffle.Rule
	// MapCompletion is the share of the maps that must be exceeded before SARP uses the intermediate data.
	MapCompletion float64
	shuffle.NetSat
	// Interval is the time over which NetSat measures: one heartbeat in the paper.
	Interval time.Duration
	// TrueLoad uses the load of the links at that moment, which no master knows, instead of the counters that
	// racks report.
	TrueLoad bool
	Ratios   Knowledge
	// Strict launches tasks only on racks that SAMP and SARP prefer. Slots then stay idle while tasks wait, which
	// ShuffleWatcher never does: it shows what placement alone saves.
	Strict bool
}

// Knowledge is what ShuffleWatcher knows of the shuffle input ratio of a job.
type Knowledge uint8

// What is known.
const (
	Learned Knowledge = iota // the ratio of ended maps of the job's profile
	AtEnd                    // the ratio of jobs of the profile that have completed
	Given                    // the class of the job, stated at submission, which has a typical ratio
	Perfect                  // the ratio of the job, which no master knows
)

// DefaultShuffling returns ShuffleWatcher with the settings of the paper where it states them.
func DefaultShuffling() Shuffling {
	return Shuffling{NASS: true, SARP: true, SAMP: true, MapCompletion: shuffle.DefaultMapCompletion, NetSat: shuffle.DefaultNetSat(), Interval: 3 * time.Second}
}

// on reports whether any part is on.
func (p Shuffling) on() bool { return p.NASS || p.SARP || p.SAMP }

// needs returns what ShuffleWatcher needs to know.
func (p Shuffling) needs() (needs policies.Facts) {
	if p.on() {
		needs |= policies.Shuffle
		if p.Ratios > AtEnd {
			needs |= policies.OracleRatio
		}
	}
	if p.NASS {
		needs |= policies.EveryHeartbeat
		if p.TrueLoad {
			needs |= policies.OracleLoad
		} else {
			needs |= policies.LinkLoad
		}
	}
	return needs
}

// shuffling is ShuffleWatcher during one decision.
type shuffling struct {
	Shuffling
	d         *decision
	rack      int
	racks     int
	saturated bool
}

// plan is the choice of SAMP for a job, by rack, and in remote the number of maps that none of its racks stores; all
// zero without SAMP. It is nil before the first decision with the job.
type plan struct {
	maps, reduces []int
	remote        int
}

// measured is what NetSat has measured, by rack: the number of intervals above the threshold, and the counters at the
// time of the newest measurement.
type measured struct {
	at             time.Duration
	over           []int64
	received, sent []units.Bytes
}

// begin returns ShuffleWatcher for one decision; nil if all its parts are off.
func (p Shuffling) begin(d *decision) *shuffling {
	if !p.on() {
		return nil
	}
	racks := d.v.Fabric.Racks()
	x := &shuffling{Shuffling: p, d: d, rack: int(d.v.Fabric.RackOf(d.v.Host)), racks: racks}
	if p.NASS {
		if d.netSat.over == nil {
			d.netSat = measured{
				over: make([]int64, racks), received: make([]units.Bytes, racks), sent: make([]units.Bytes, racks),
			}
		}
		x.measure()
		x.saturated = p.Saturated(d.netSat.over, x.rack)
	}
	for i := range d.jobs {
		if d.jobs[i].plan.maps == nil {
			d.jobs[i].plan = x.plan(i)
		}
	}
	return x
}

// measure compares the counters of racks with those an interval ago.
func (x *shuffling) measure() {
	m := &x.d.netSat
	elapsed := x.d.v.Now - m.at
	if elapsed < max(x.Interval, 1) {
		return
	}
	m.at = x.d.v.Now
	n := x.racks
	up, down, limit := make([]float64, n), make([]float64, n), make([]float64, n)
	f := x.d.v.Fabric
	for r := range n {
		if n < 2 {
			break // nothing leaves the rack
		}
		links := func(of []units.Rate) (out, in float64) {
			for spine := range f.Spines() {
				out += float64(of[f.LeafUp(topo.RackID(r), spine)]) / 8
				in += float64(of[f.LeafDown(topo.RackID(r), spine)]) / 8
			}
			return out, in
		}
		limit[r] = min(links(x.d.v.Capacity))
		switch {
		case x.TrueLoad && x.d.v.Load != nil:
			up[r], down[r] = links(x.d.v.Load)
		case !x.TrueLoad && r < len(x.d.v.Racks):
			s := &x.d.v.Racks[r]
			up[r], down[r] = perSecond(s.Sent-m.sent[r], elapsed), perSecond(s.Received-m.received[r], elapsed)
			m.received[r], m.sent[r] = s.Received, s.Sent
		}
	}
	x.Observe(m.over, up, down, limit)
}

func perSecond(b units.Bytes, d time.Duration) float64 { return float64(b) / d.Seconds() }

// ratio returns the shuffle input ratio of a job, as far as it is known.
func (x *shuffling) ratio(j *policies.TaskJob) float64 {
	if j.Shuffle != nil {
		switch x.Ratios {
		case Perfect:
			return j.Shuffle.Ratio
		case Given:
			return shuffle.ClassOf(j.Shuffle.Ratio).SIR()
		case Learned, AtEnd:
		}
	}
	profiles := x.d.v.Profiles
	if x.Ratios == AtEnd {
		profiles = x.d.v.EndedProfiles
	}
	if c := profiles[j.Profile]; c.Input > 0 {
		return float64(c.Output) / float64(c.Input)
	}
	return shuffle.UnknownSIR
}

// plan chooses the racks of a job that has just been submitted.
func (x *shuffling) plan(job int) plan {
	j := &x.d.v.Jobs[job]
	none := make([]int, x.racks)
	p := plan{maps: none, reduces: none}
	if !x.SAMP || j.Shuffle == nil || len(j.Shuffle.Blocks) == 0 {
		return p
	}
	in := shuffle.Input{Racks: x.racks, SIR: x.ratio(j), Reduces: reduces(j), Preferring: make([]int, x.racks)}
	for i := range x.d.jobs {
		for r, n := range x.d.jobs[i].plan.maps {
			in.Preferring[r] += min(n, 1)
		}
	}
	for _, b := range j.Shuffle.Blocks {
		racks := make([]int, len(b.Racks))
		for i, r := range b.Racks {
			racks[i] = int(r)
		}
		in.Blocks = append(in.Blocks, shuffle.Block{Size: b.Size, Racks: racks})
	}
	rule := x.Rule
	if x.racks > shuffle.MaxSubsetRacks {
		rule = min(rule, shuffle.BestPrefix)
	}
	c, err := shuffle.SAMP(in, rule)
	if err != nil {
		return p // of a view that is not valid
	}
	return plan{c.Maps, c.Reduces, c.Remote}
}

// reduces returns the number of reduces of a job.
func reduces(j *policies.TaskJob) (n int) {
	for i := range j.Stages {
		if st := &j.Stages[i]; st.Kind == jobs.Reduce {
			n += st.Tasks
		}
	}
	return n
}

// wantsReduce reports whether SARP prefers the host's rack for one more reduce of a job.
func (x *shuffling) wantsReduce(job int) bool {
	j := &x.d.v.Jobs[job]
	if !x.SARP || j.Shuffle == nil {
		return false
	}
	done, all := 0, 0
	for i := range j.Stages {
		if st := &j.Stages[i]; st.Kind == jobs.Map {
			done, all = done+st.Done, all+st.Tasks
		}
	}
	intermediate := make([]float64, x.racks)
	for r := range intermediate {
		intermediate[r] = float64(j.Shuffle.Intermediate[r])
	}
	preferred := shuffle.SARP(done, all, x.MapCompletion, intermediate, x.d.jobs[job].plan.reduces, reduces(j))
	placed := j.Shuffle.Reduces[x.rack] + x.d.launched(jobs.Reduce, job)
	return placed < preferred[x.rack]
}

// wantsMap reports whether SAMP prefers the host's rack for a map of a job: one whose input the rack stores, or
// another if the plan has maps that no preferred rack stores, until as many run there or are done as are assigned.
func (x *shuffling) wantsMap(job int, near policies.Locality) bool {
	p := &x.d.jobs[job].plan
	if near < policies.OffRack || p.maps[x.rack] == 0 {
		return p.maps[x.rack] > 0
	}
	return p.remote > 0 && x.d.v.Jobs[job].Shuffle.Maps[x.rack]+x.d.launched(jobs.Map, job) < p.maps[x.rack]
}

// option is what NASS may choose of one job.
//
// A map on a rack that SAMP prefers waits for the host of a block as delay scheduling has it, unless it is planned:
// SAMP wants it to read from another rack, or the network is saturated, where row 1 is not to lose the map to
// another rack. The job's other maps still wait for their hosts after it.
type option struct {
	job, mapStage, reduceStage int
	near                       policies.Locality // of the map
	planned                    bool
	waits                      int // the row whose map waits for a nearer host; 0 for none
}

// runShuffling fills slots with ShuffleWatcher: for each, the order chooses the user, and NASS the task. An order
// that gives out the slots of each kind separately begins with the kind that comes first in the table of NASS.
func (f *filler) runShuffling(x *shuffling) {
	groups := f.queue.kinds()
	if !x.saturated {
		groups = slices.Clone(groups)
		slices.Reverse(groups)
	}
	for _, kinds := range groups {
		refused := f.a.Ints(len(f.v.Jobs))
		for f.open(kinds) && f.launchNext(kinds, x, refused) {
		}
	}
}

// launchNext launches a task of the first user in order who has one, and reports whether there is one.
func (f *filler) launchNext(kinds []jobs.TaskKind, x *shuffling, refused []int) bool {
	for i := range f.queue.jobs(kinds) {
		if refused[i] == 0 && f.launchOf(f.v.Jobs[i].User, kinds, x, refused) {
			return true
		}
	}
	return false
}

// launchOf launches the task of a user that NASS chooses. If there is none, it refuses all jobs of the user.
func (f *filler) launchOf(user string, kinds []jobs.TaskKind, x *shuffling, refused []int) bool {
	var options []option
	var list []shuffle.Tasks
	for i := range f.queue.jobs(kinds) {
		if f.v.Jobs[i].User != user {
			continue
		}
		refused[i] = 1
		o, t := f.option(i, kinds, x)
		options, list = append(options, o), append(list, t)
	}
	p := shuffle.NASS(list, x.saturated)
	for n, o := range options {
		if p.Job >= 0 {
			refused[o.job] = 0
		}
		// A job lets its turn pass in the row of its map, in which the user's jobs have their turns in order.
		if o.waits > 0 && (p.Job < 0 || p.Row > o.waits || p.Row == o.waits && p.Job > n) {
			f.delay.skip(o.job)
		}
	}
	if p.Job < 0 {
		return false
	}
	switch o := options[p.Job]; {
	case p.Reduce:
		f.launch(o.job, o.reduceStage, policies.OffRack)
	case o.planned:
		f.place(o.job, o.mapStage, o.near)
	default:
		f.launch(o.job, o.mapStage, o.near)
	}
	return true
}

// option returns what a job has to run on the host.
func (f *filler) option(job int, kinds []jobs.TaskKind, x *shuffling) (option, shuffle.Tasks) {
	o, t := option{job: job}, shuffle.Tasks{Class: shuffle.ClassOf(x.ratio(&f.v.Jobs[job]))}
	for _, k := range kinds {
		if f.left[k] <= 0 || f.pending(k, job) <= 0 {
			continue
		}
		if k == jobs.Reduce {
			stage, near, _ := f.closest(job, k, policies.OffRack)
			o.reduceStage, t.Reduce = stage, near < policies.Localities
			t.ReduceRack = t.Reduce && x.wantsReduce(job)
			t.Reduce = t.ReduceRack || t.Reduce && !(x.Strict && x.SARP)
			continue
		}
		stage, near, _ := f.closest(job, k, policies.OffRack)
		t.LocalMap, t.MapRack = near == policies.NodeLocal, near < policies.Localities && x.wantsMap(job, near)
		if x.Strict && x.SAMP && !t.MapRack {
			t.LocalMap = false
			continue
		}
		o.planned = t.MapRack && !t.LocalMap && (x.saturated || near == policies.OffRack)
		if !t.LocalMap && !o.planned {
			var waits bool
			if stage, near, waits = f.closest(job, k, f.delay.allowed(f.decision, f.queue, job)); waits && near == policies.Localities {
				o.waits = shuffle.LastRow
				if t.MapRack {
					o.waits = shuffle.MapRow(x.saturated)
				}
			}
			t.MapRack = t.MapRack && near < policies.Localities
		}
		o.mapStage, o.near, t.Map = stage, near, near < policies.Localities
	}
	return o, t
}
