package tasks

import (
	"slices"

	"testbed/policies/clone"
	"testbed/workloads/jobs"
)

// Cloning is Dolly: it starts several copies of each task of small jobs and uses the first one to end (Ananthanarayanan
// and others, Effective Straggler Mitigation: Attack of the Clones, NSDI 2013). Its zero value is off.
type Cloning struct {
	On bool
	clone.Dolly
}

// DefaultCloning returns Dolly's settings, with cloning off.
func DefaultCloning() Cloning { return Cloning{Dolly: clone.DefaultDolly()} }

// cloning is Dolly during one decision.
//
// Its memory is its own length, then for each unfinished job its ID, its number of stages, and for each stage the number
// of copies of each task; 0 as long as none of its tasks has been launched.
type cloning struct {
	Cloning
	d      *decision
	copies [][]int64 // by job and stage
}

// size returns the number of elements of a memory that belong to Dolly.
func (p Cloning) size(memory []int64) int {
	if !p.On || len(memory) == 0 {
		return 0
	}
	return int(min(max(memory[0], 0), int64(len(memory)))) // memory of another policy is not trusted
}

// begin returns Dolly for one decision; nil if it is off.
func (p Cloning) begin(d *decision, memory []int64) *cloning {
	if !p.On {
		return nil
	}
	x := &cloning{Cloning: p, d: d, copies: make([][]int64, len(d.v.Jobs))}
	memory = memory[min(1, len(memory)):]
	for i := range d.v.Jobs {
		j := &d.v.Jobs[i]
		for len(memory) >= 2 && memory[0] != int64(j.ID) && !known(d.v.Jobs[i:], memory[0]) {
			memory = memory[min(int64(len(memory)), 2+max(0, memory[1])):]
		}
		if len(memory) >= 2 && memory[0] == int64(j.ID) && memory[1] == int64(len(j.Stages)) && len(memory) >= 2+len(j.Stages) {
			x.copies[i] = memory[2 : 2+len(j.Stages)]
			memory = memory[2+len(j.Stages):]
		}
	}
	for i := range x.copies {
		copied := d.a.Counts(len(d.v.Jobs[i].Stages))
		copy(copied, x.copies[i])
		x.copies[i] = copied
	}
	return x
}

// memory returns what Dolly must remember; nil if it is off.
func (x *cloning) memory() []int64 {
	if x == nil {
		return nil
	}
	size := 1
	for _, c := range x.copies {
		size += 2 + len(c)
	}
	out := x.d.a.Counts(size)
	out[0] = int64(size)
	rest := out[1:]
	for i, c := range x.copies {
		rest[0], rest[1] = int64(x.d.v.Jobs[i].ID), int64(len(c))
		copy(rest[2:], c)
		rest = rest[2+len(c):]
	}
	return out
}

// launched decides on the copies of a stage's tasks at the launch of the first one: those of all tasks, or none.
func (x *cloning) launched(job, stage int) {
	if x == nil || x.copies[job][stage] != 0 {
		return
	}
	j := &x.d.v.Jobs[job]
	st := &j.Stages[stage]
	c := x.Copies(st.Tasks)
	// Tasks that fetch have no more copies than those before them.
	for _, before := range x.copies[job][:stage] {
		if before > 0 {
			c = min(c, int(before))
		}
	}
	slots := x.d.slots()
	used := 0
	for h := range x.d.v.Slots {
		if s := &x.d.v.Slots[h]; !s.Lost {
			used += s.Used[jobs.Map] + s.Used[jobs.Reduce]
		}
	}
	if !x.Admits(x.reserved(), used, c*st.Tasks, slots[jobs.Map]+slots[jobs.Reduce]) {
		c = 1
	}
	x.copies[job][stage] = int64(c)
}

// reserved returns the slots for the copies of tasks that have not ended, of stages with more than one copy.
func (x *cloning) reserved() (n int) {
	for i, list := range x.copies {
		for s, c := range list {
			if st := &x.d.v.Jobs[i].Stages[s]; c > 1 {
				n += int(c) * (st.Tasks - st.Done)
			}
		}
	}
	return n
}

// runClones starts copies of running tasks that have too few, the jobs in order. They come before other tasks: their
// slots are part of the budget.
func (f *filler) runClones() {
	x := f.cloning
	if x == nil {
		return
	}
	for i := range f.v.Jobs {
		j := &f.v.Jobs[i]
		for r := range j.Running {
			a := &j.Running[r]
			stage := a.ID.Task.Stage
			if stage < 0 || stage >= len(j.Stages) || x.copies[i][stage] <= 1 || a.Killing || slices.Contains(f.a.Backup, a.ID.Task) {
				continue
			}
			st := &j.Stages[stage]
			if f.left[st.Kind] <= 0 || !f.host.Fits(st.Kind, st.Need) || !f.host.HasRoom(st.Output) {
				continue
			}
			n, here := 0, false
			for _, b := range j.Running {
				if b.ID.Task == a.ID.Task {
					here = here || b.Host == f.v.Host
					if !b.Killing {
						n++
					}
				}
			}
			if !here && n < int(x.copies[i][stage]) {
				f.backup(a.ID.Task, st)
			}
		}
	}
}
