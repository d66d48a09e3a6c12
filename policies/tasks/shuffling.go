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

// DefaultShuffling returns ShuffleWatcher with all parts off, and the settings of the paper where it states
// them.
func DefaultShuffling() Shuffling {
	return Shuffling{MapCompletion: shuffle.DefaultMapCompletion, NetSat: shuffle.DefaultNetSat(), Interval: 3 * time.Second}
}

// on reports whether any part is on.
func (p Shuffling) on() bool { return p.NASS || p.SARP || p.SAMP }

// shuffling is ShuffleWatcher during one decision.
//
// Its memory is its own length, the time of the newest measurement; for each rack the number of intervals
// above the threshold and the counters at that time; then for each unfinished job its ID, the maps and reduces
// that SAMP has assigned to each rack, and the number of these maps that no such rack stores.
type shuffling struct {
	Shuffling
	d         *decision
	rack      int
	racks     int
	saturated bool
	plans     []plan // by job
	head      []int64
}

// plan is the choice of SAMP for a job, by rack, and in remote the number of maps that none of its racks stores; all
// zero without SAMP.
type plan struct{ maps, reduces, remote []int64 }

// planSize returns the number of elements of a plan.
func planSize(racks int) int { return 2*racks + 1 }

// planOf returns the plan in a part of a memory.
func planOf(m []int64) plan {
	racks := len(m) / 2
	return plan{m[:racks], m[racks : 2*racks], m[2*racks:]}
}

const shuffleHead = 2 // elements of the memory before those of racks

// size returns the number of elements of a memory that belong to ShuffleWatcher.
func (p Shuffling) size(memory []int64) int {
	if !p.on() || len(memory) == 0 {
		return 0
	}
	return int(min(max(memory[0], 0), int64(len(memory)))) // memory of another policy is not trusted
}

// begin returns ShuffleWatcher for one decision; nil if all its parts are off.
func (p Shuffling) begin(d *decision, memory []int64) *shuffling {
	if !p.on() {
		return nil
	}
	racks := d.v.Fabric.Racks()
	x := &shuffling{Shuffling: p, d: d, rack: int(d.v.Fabric.RackOf(d.v.Host)), racks: racks, plans: make([]plan, len(d.v.Jobs))}
	x.head = d.a.Counts(shuffleHead + 3*racks)
	if len(memory) >= len(x.head) {
		copy(x.head, memory)
		memory = memory[len(x.head):]
	} else {
		memory = nil
	}
	if p.NASS {
		x.measure()
		x.saturated = p.Saturated(x.head[shuffleHead:shuffleHead+racks], x.rack)
	}
	// Jobs keep their order, and end.
	size := 1 + planSize(racks)
	for i := range d.v.Jobs {
		for len(memory) >= size && memory[0] != int64(d.v.Jobs[i].ID) && !known(d.v.Jobs[i:], memory[0]) {
			memory = memory[size:]
		}
		if len(memory) >= size && memory[0] == int64(d.v.Jobs[i].ID) {
			x.plans[i] = planOf(memory[1:size])
			memory = memory[size:]
		}
	}
	for i := range x.plans {
		if x.plans[i].maps == nil {
			x.plans[i] = x.plan(i)
		}
	}
	return x
}

func known(list []policies.TaskJob, id int64) bool {
	for i := range list {
		if int64(list[i].ID) == id {
			return true
		}
	}
	return false
}

// measure compares the counters of racks with those an interval ago.
func (x *shuffling) measure() {
	now, since := int64(x.d.v.Now), x.head[1]
	if now-since < max(int64(x.Interval), 1) {
		return
	}
	x.head[1] = now
	n := x.racks
	over, rx, tx := x.head[shuffleHead:shuffleHead+n], x.head[shuffleHead+n:shuffleHead+2*n], x.head[shuffleHead+2*n:]
	elapsed := time.Duration(now - since)
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
			up[r], down[r] = perSecond(s.Sent-units.Bytes(tx[r]), elapsed), perSecond(s.Received-units.Bytes(rx[r]), elapsed)
			rx[r], tx[r] = int64(s.Received), int64(s.Sent)
		}
	}
	x.Observe(over, up, down, limit)
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
	p := planOf(x.d.a.Counts(planSize(x.racks)))
	if !x.SAMP || j.Shuffle == nil || len(j.Shuffle.Blocks) == 0 {
		return p
	}
	in := shuffle.Input{Racks: x.racks, SIR: x.ratio(j), Reduces: reduces(j), Preferring: make([]int, x.racks)}
	for _, other := range x.plans {
		for r, n := range other.maps {
			in.Preferring[r] += int(min(n, 1))
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
	for r := range x.racks {
		p.maps[r], p.reduces[r] = int64(c.Maps[r]), int64(c.Reduces[r])
	}
	p.remote[0] = int64(c.Remote)
	return p
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
	tentative, intermediate := make([]int, x.racks), make([]float64, x.racks)
	for r := range x.racks {
		tentative[r], intermediate[r] = int(x.plans[job].reduces[r]), float64(j.Shuffle.Intermediate[r])
	}
	preferred := shuffle.SARP(done, all, x.MapCompletion, intermediate, tentative, reduces(j))
	placed := j.Shuffle.Reduces[x.rack] + x.launched(job, jobs.Reduce)
	return placed < preferred[x.rack]
}

// wantsMap reports whether SAMP prefers the host's rack for a map of a job: one whose input the rack stores, or
// another if the plan has maps that no preferred rack stores, until as many run there or are done as are assigned.
func (x *shuffling) wantsMap(job int, near policies.Locality) bool {
	p := x.plans[job]
	if near < policies.OffRack || p.maps[x.rack] == 0 {
		return p.maps[x.rack] > 0
	}
	return p.remote[0] > 0 && int64(x.d.v.Jobs[job].Shuffle.Maps[x.rack]+x.launched(job, jobs.Map)) < p.maps[x.rack]
}

// launched returns the number of tasks of a job and a kind that this decision has launched.
func (x *shuffling) launched(job int, k jobs.TaskKind) (n int) {
	for _, l := range x.d.a.Launch {
		if l.Job == job && x.d.v.Jobs[job].Stages[l.Stage].Kind == k {
			n++
		}
	}
	return n
}

// memory returns what ShuffleWatcher remembers.
func (x *shuffling) memory() []int64 {
	if x == nil {
		return nil
	}
	out := x.d.a.Counts(len(x.head) + len(x.plans)*(1+planSize(x.racks)))
	n := copy(out, x.head)
	for i, p := range x.plans {
		out[n] = int64(x.d.v.Jobs[i].ID)
		n += 1 + copy(out[n+1:], p.maps)
		n += copy(out[n:], p.reduces)
		n += copy(out[n:], p.remote)
	}
	out[0] = int64(len(out))
	return out
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
