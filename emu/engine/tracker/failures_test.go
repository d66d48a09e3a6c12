package tracker

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// chaos is a scheduler with arbitrary but repeatable decisions, kills and backups among them.
type chaos struct {
	order
	seed           uint64
	kills, backups bool
}

func (c chaos) Needs() (needs policies.Facts) {
	needs = policies.Slots | policies.Attempts
	if c.kills || c.backups {
		needs |= policies.EveryHeartbeat
	}
	if c.backups {
		needs |= policies.TaskProgress
	}
	return needs
}

func (c chaos) New() policies.TaskInstance { return c }

func (c chaos) Assign(v *policies.TaskView, a *policies.Assignment) {
	rng := workloads.Stream(c.seed, "chaos", int(v.Now), int(v.Host))
	for k := range jobs.TaskKind(jobs.TaskKinds) {
		var can []policies.Launch
		for j := range v.Jobs {
			for s, st := range v.Jobs[j].Stages {
				for l, n := range st.Pending {
					for range min(n, 3) {
						if st.Kind == k {
							can = append(can, policies.Launch{Job: j, Stage: s, Locality: policies.Locality(l)})
						}
					}
				}
			}
		}
		rng.Shuffle(len(can), func(i, j int) { can[i], can[j] = can[j], can[i] })
		free := v.Slots[v.Host].Free(k)
		n := min(len(can), free)
		a.Launch = append(a.Launch, can[:n]...)
		if c.backups && rng.IntN(2) == 0 {
			a.Backup = append(a.Backup, c.tasks(v, k, rng, free-n)...)
		}
	}
	for j := range v.Jobs {
		if c.kills && v.Now < 5*time.Minute && len(v.Jobs[j].Running) > 0 && rng.IntN(10) == 0 {
			a.Kill = append(a.Kill, v.Jobs[j].Running[rng.IntN(len(v.Jobs[j].Running))].ID)
		}
	}
}

// tasks draws up to n running tasks of a kind that have no attempt on the host.
func (chaos) tasks(v *policies.TaskView, k jobs.TaskKind, rng *rand.Rand, n int) []jobs.TaskID {
	var can []jobs.TaskID
	here := map[jobs.TaskID]bool{}
	for j := range v.Jobs {
		for _, x := range v.Jobs[j].Running {
			if x.Kind == k && !x.Killing && !x.Spare && !slices.Contains(can, x.ID.Task) {
				can = append(can, x.ID.Task)
			}
			here[x.ID.Task] = here[x.ID.Task] || x.Host == v.Host
		}
	}
	can = slices.DeleteFunc(can, func(id jobs.TaskID) bool { return here[id] })
	rng.Shuffle(len(can), func(i, j int) { can[i], can[j] = can[j], can[i] })
	return can[:min(len(can), n)]
}

// copier lets attempts make copies for an arbitrary time, and chooses arbitrary ones, or waits as long as it may.
type copier struct{ chaos }

func (c copier) Needs() policies.Facts {
	return c.chaos.Needs() | policies.TaskHistory
}

func (c copier) Keep(v *policies.TaskView, j *policies.TaskJob, stage int) time.Duration {
	return []time.Duration{0, time.Second, 5 * time.Second, time.Hour, Never}[workloads.Stream(c.seed, "keep", int(v.Now), int(j.ID), stage).IntN(5)]
}

func (c copier) Source(x *policies.CopyChoice) int {
	n := len(x.Copies)
	if x.Running > 0 && x.Now < x.Until {
		n++
	}
	pick := workloads.Stream(c.seed, "source", int(x.Now), x.Rank, len(x.Copies)).IntN(n)
	if pick == len(x.Copies) {
		return -1
	}
	return pick
}

// With arbitrary failures at arbitrary events, and any number of attempts of a task at the same time, every job
// ends. A job fails only if one of its tasks has failed 4 times, or all hosts of a block were lost. The same draws
// give the same commands.
func TestFailuresAtAnyEvent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		leaves, hosts := rapid.IntRange(1, 3).Draw(t, "leaves"), rapid.IntRange(1, 3).Draw(t, "hosts")
		f := fabric(leaves, hosts)
		sched := chaos{order: fifo(), seed: rapid.Uint64().Draw(t, "seed"), kills: rapid.Bool().Draw(t, "kills"), backups: rapid.Bool().Draw(t, "backups")}
		sched.computing = rapid.IntRange(0, 2).Draw(t, "computing")
		c := config(f, sched)
		c.Slots = [2]int{rapid.IntRange(1, 3).Draw(t, "maps"), rapid.IntRange(1, 3).Draw(t, "reduces")}
		sched.computing = min(sched.computing, c.Slots[1])
		sched.byMemory, sched.pausing = rapid.Bool().Draw(t, "by memory"), rapid.Bool().Draw(t, "pausing")
		c.Scheduler = sched
		copies := rapid.Bool().Draw(t, "copies")
		if copies {
			sched.backups = true
			c.Scheduler = copier{sched}
		}
		c.OutOfBand, c.Barrier = rapid.Bool().Draw(t, "oob"), rapid.Bool().Draw(t, "barrier")
		c.Batch, c.Fetches = rapid.IntRange(0, 3).Draw(t, "batch"), rapid.IntRange(1, 3).Draw(t, "fetches")
		c.Slowstart = rapid.SampledFrom([]float64{0, 0.05, 0.5, 1}).Draw(t, "slowstart")
		c.Space, c.Resources = 1e9, jobs.Resources{CPU: 4, Memory: 3 * units.GB}
		c.Blocks = blocksOn(f, 40)
		latency := 100 * time.Millisecond * time.Duration(rapid.SampledFrom([]int{1, 30, 200}).Draw(t, "latency"))
		var list []*jobs.Job
		for id := range rapid.IntRange(1, 4).Draw(t, "jobs") {
			list = append(list, drawJob(t, jobs.JobID(id+1)))
		}
		plan := rapid.SliceOfN(rapid.IntRange(0, 99), 0, 60).Draw(t, "plan")
		after := rapid.SliceOfN(rapid.IntRange(0, 20), 0, 5).Draw(t, "crashes after copies")
		run := func() (string, *sim) {
			s := newSim(t, c, 3*time.Second)
			s.audit, s.varied = true, copies
			var log strings.Builder
			s.log = func(line string) { log.WriteString(line + "\n") }
			for _, j := range list {
				s.submit(j)
			}
			s.latency = latency
			s.inject(plan)
			n := 0
			s.atCopy = func(c Copied) { // the host of the first or of the second copy crashes afterwards
				if n++; n <= len(after) && after[n-1] > 0 {
					h := c.Host
					if first, ok := s.outputs[s.committed[c.Attempt.Task]]; ok && n%2 == 0 {
						h = first
					}
					s.after(time.Duration(after[n-1]-1)*time.Second, func() { s.crash(h, time.Second, time.Minute, false) })
				}
			}
			s.run(10 * time.Hour)
			return log.String(), s
		}
		log, s := run()
		if again, _ := run(); again != log {
			t.Errorf("the same events give other commands")
		}
		for _, j := range list {
			how := s.ended[j.ID]
			most := 0
			for id, n := range s.failures {
				if id.Job == j.ID {
					most = max(most, n)
				}
			}
			switch {
			case how == "done" && most >= c.Attempts:
				t.Errorf("job %d is done, but a task has failed %d times", j.ID, most)
			case how != "done" && most < c.Attempts && !strings.Contains(how, "no replica"):
				t.Errorf("job %d failed (%s), but no task more than %d times", j.ID, how, most)
			}
		}
	})
}

// drawJob draws a job of up to 4 stages in which each fetches from earlier ones.
func drawJob(t *rapid.T, id jobs.JobID) *jobs.Job {
	j := &jobs.Job{ID: id, Submit: time.Duration(rapid.IntRange(0, 60).Draw(t, "submit")) * time.Second}
	n := rapid.IntRange(1, 4).Draw(t, "stages")
	for s := range n {
		st := jobs.Stage{Kind: jobs.TaskKind(rapid.IntRange(0, 1).Draw(t, "kind")), Tasks: make([]jobs.Task, rapid.IntRange(1, 6).Draw(t, "tasks"))}
		if s == 0 {
			st.Kind = jobs.Map
		}
		for from := range s {
			if from == s-1 || rapid.IntRange(0, 3).Draw(t, "from") == 0 {
				st.From = append(st.From, from)
			}
		}
		pattern := jobs.Pattern(rapid.IntRange(0, 2).Draw(t, "pattern"))
		fits := func(from int) bool {
			m, n := len(j.Stages[from].Tasks), len(st.Tasks)
			return m == n || pattern == jobs.AllToAll || pattern == jobs.ManyToOne && n < m
		}
		if len(st.From) > 0 && !slices.ContainsFunc(st.From, func(from int) bool { return !fits(from) }) {
			st.Pattern = pattern
		}
		for i := range st.Tasks {
			st.Tasks[i] = jobs.Task{Input: workloads.BlockID(rapid.IntRange(0, 39).Draw(t, "input")), InputSize: 1000, Writes: units.Bytes(rapid.IntRange(0, 1).Draw(t, "writes")), Need: jobs.Resources{CPU: 0.1, Memory: units.GB * units.Bytes(i%3)}}
		}
		j.Stages = append(j.Stages, st)
	}
	for s := range j.Stages {
		for _, from := range j.Stages[s].From {
			for i := range j.Stages[from].Tasks {
				k := &j.Stages[from].Tasks[i]
				for to := range j.Stages[s].Tasks {
					size := units.Bytes(100 * (i % 3)) // those of each third task are empty
					if !j.Stages[s].Pattern.Fetches(i, len(j.Stages[from].Tasks), to, len(j.Stages[s].Tasks)) {
						size = 0
					}
					k.Output = append(k.Output, size)
				}
			}
		}
	}
	return j
}

// inject spoils events: the n-th one of those that can fail by the n-th number of a plan.
func (s *sim) inject(plan []int) {
	n := 0
	next := func() int {
		if n >= len(plan) {
			return 99
		}
		n++
		return plan[n-1]
	}
	spoiling := false
	s.spoil = func(ev Event) bool {
		if spoiling {
			return false
		}
		hosts := s.cfg.Fabric.Hosts()
		p := next()
		if p < 8 { // a host crashes at this event
			s.crash(topo.HostID((p+n)%hosts), time.Duration(p)*time.Second, time.Duration(1+p%4*20)*time.Second, p == 3)
			return false
		}
		var id jobs.AttemptID
		switch ev := ev.(type) {
		case FetchEnded:
			if p < 40 {
				if _, ok := s.fetches[ev.ID]; ok {
					s.post(0, FetchFailed{ev.ID, "reset"})
					return true
				}
			}
			return false
		case InputRead:
			if p < 20 && s.running[ev.Attempt] != nil && !s.running[ev.Attempt].stopped {
				s.post(0, ReadFailed{ev.Attempt, "reset"})
				if s.k.mayFailRead(ev.Attempt) {
					s.fail(ev.Attempt)
				}
				return true
			}
			return false
		case ComputeDone:
			id = ev.Attempt
		case OutputSpilled:
			id = ev.Attempt
		case OutputWritten:
			id = ev.Attempt
		default:
			return false
		}
		if x := s.running[id]; p < 25 && x != nil && !x.stopped {
			s.post(0, AttemptFailed{id, "disk error"})
			return true
		}
		return false
	}
	beats := 0
	s.skipBeat = func(topo.HostID) bool { beats++; return len(plan) > 0 && beats < 200 && plan[beats%len(plan)] < 20 }
}

// mayFailRead reports whether an attempt has read from all replicas of its input that can be read.
func (t *Tracker) mayFailRead(id jobs.AttemptID) bool {
	a, err := t.attempt(id)
	if err != nil || a == nil || a.source < 0 || a.read {
		return false
	}
	h, _ := t.replica(a)
	return h < 0
}
