package tasks

import (
	"testbed/policies"
	"testbed/workloads/jobs"
)

// users numbers the users of the unfinished jobs, in order of their first job.
type users struct {
	counts []policies.TaskCount
	all    []user // by number
	table  []int  // user + 1, by policies.TaskCount.User
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
	u.counts, u.all, u.table = d.v.Counts, make([]user, 0, min(len(d.v.Jobs), d.v.Users)), d.a.Ints(d.v.Users)
	for i := range u.counts {
		c := &u.counts[i]
		if u.table[c.User] == 0 {
			u.all = append(u.all, user{name: d.v.Jobs[i].User, first: i})
			u.table[c.User] = len(u.all)
		}
		x := &u.all[u.of(i)]
		x.jobs++
		for k := range jobs.TaskKinds {
			x.running[k] += c.Running[k]
			x.pending[k] += c.Pending[k]
		}
	}
}

// of returns the user of a job.
func (u *users) of(job int) int { return u.table[u.counts[job].User] - 1 }

// sort orders the jobs of each user as in order, a permutation of all jobs; nil is by submission.
func (u *users) sort(d *decision, order []int) {
	at := 0
	for i := range u.all {
		u.all[i].end = at // its start, until its jobs are in
		at += u.all[i].jobs
	}
	u.byUser = d.a.Ints(len(u.counts))
	for i := range u.counts {
		if order != nil {
			i = order[i]
		}
		x := &u.all[u.of(i)]
		u.byUser[x.end] = i
		x.end++
	}
}

// jobs returns the jobs of a user.
func (u *users) jobs(p int) []int { return u.byUser[u.all[p].end-u.all[p].jobs : u.all[p].end] }
