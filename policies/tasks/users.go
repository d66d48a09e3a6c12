package tasks

import "testbed/workloads/jobs"

// users numbers the users of the unfinished jobs, in order of their first job.
type users struct {
	of    []int  // user of each job
	all   []user // by number
	table []int  // user + 1, by place of the name
	// byUser has the jobs of all users, in an order.
	byUser []int
}

type user struct {
	name             string
	first            int // job
	jobs             int
	end              int // of its jobs in users.byUser
	running, pending [jobs.TaskKinds]int
}

func (u *users) start(d *decision) {
	u.of, u.all, u.table = d.a.Ints(len(d.v.Jobs)), make([]user, 0, min(len(d.v.Jobs), 32)), d.a.Ints(64)
}

// add adds the next job.
func (u *users) add(d *decision, job int, name string, pending, running [jobs.TaskKinds]int) {
	at := u.find(name)
	if u.table[at] == 0 {
		u.all = append(u.all, user{name: name, first: job})
		if 2*len(u.all) >= len(u.table) {
			u.table = d.a.Ints(4 * len(u.table))
			for i := range u.all {
				at = u.find(u.all[i].name)
				u.table[at] = i + 1
			}
		}
		u.table[at] = len(u.all)
	}
	n := u.table[at] - 1
	u.of[job] = n
	x := &u.all[n]
	x.jobs++
	for k := range jobs.TaskKinds {
		x.running[k] += running[k]
		x.pending[k] += pending[k]
	}
}

// find returns the place of a name in the table, or a free place.
func (u *users) find(name string) int {
	at := place(name) & (len(u.table) - 1)
	for u.table[at] != 0 && u.all[u.table[at]-1].name != name {
		at = (at + 1) & (len(u.table) - 1)
	}
	return at
}

// sort orders the jobs of each user as in order, a permutation of all jobs; nil is by submission.
func (u *users) sort(d *decision, order []int) {
	at := 0
	for i := range u.all {
		u.all[i].end = at // its start, until its jobs are in
		at += u.all[i].jobs
	}
	u.byUser = d.a.Ints(len(u.of))
	for i, p := range u.of {
		if order != nil {
			i = order[i]
			p = u.of[i]
		}
		x := &u.all[p]
		u.byUser[x.end] = i
		x.end++
	}
}

// jobs returns the jobs of a user.
func (u *users) jobs(p int) []int { return u.byUser[u.all[p].end-u.all[p].jobs : u.all[p].end] }

// place returns a hash of a name for a table in memory.
func place(s string) int {
	h := uint64(len(s))
	for ; len(s) > 8; s = s[8:] {
		h = (h ^ (uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 | uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56)) * 0x9e3779b97f4a7c15
		h ^= h >> 32
	}
	x := uint64(0)
	for i := range len(s) {
		x = x<<8 | uint64(s[i])
	}
	h = (h ^ x) * 0x9e3779b97f4a7c15
	return int(h >> 40)
}

// hash is FNV-1a, which identifies a name in TaskView.Memory.
func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}
