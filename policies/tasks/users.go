package tasks

import (
	"testbed/policies"
	"testbed/workloads/jobs"
)

// users numbers the users of the unfinished jobs, in order of their first job.
type users struct {
	of    []int  // user of each job
	all   []user // by number
	table []int  // user + 1, by policies.TaskCount.User
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
	n := len(d.v.Jobs)
	u.of, u.all, u.table = d.a.Ints(n), make([]user, 0, min(n, d.v.Users)), d.a.Ints(d.v.Users)
}

// add adds the next job.
func (u *users) add(d *decision, job int, c *policies.TaskCount) {
	if u.table[c.User] == 0 {
		u.all = append(u.all, user{name: d.v.Jobs[job].User, first: job})
		u.table[c.User] = len(u.all)
	}
	n := u.table[c.User] - 1
	u.of[job] = n
	x := &u.all[n]
	x.jobs++
	for k := range jobs.TaskKinds {
		x.running[k] += c.Running[k]
		x.pending[k] += c.Pending[k]
	}
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

// hash is FNV-1a, which identifies a name in TaskView.Memory.
func hash(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}
