package jobs

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"time"

	"testbed/topo/units"
	"testbed/workloads"
)

// Stats describes jobs. Bytes exclude replicas. A slot-second is a second of one slot, on an
// unloaded machine: input divided by the rates of the task.
type Stats struct {
	Jobs    int `json:"jobs"`
	MapOnly int `json:"map_only_jobs"` // no stage fetches
	Total
	Reads   int64   `json:"block_reads"`    // tasks that read a block
	First   float64 `json:"first_submit_s"` // submission
	Last    float64 `json:"last_submit_s"`  //
	MeanGap float64 `json:"mean_gap_s"`     // between submissions; 0 of fewer than two
	// MapSlots and ReduceSlots are the slot-seconds divided by the time from the first submission
	// to the last: the slots that the workload keeps busy. They are 0 if that time is 0.
	MapSlots    float64 `json:"mean_map_slots"`
	ReduceSlots float64 `json:"mean_reduce_slots"`

	Quantiles []workloads.QuantileStat `json:"quantiles"` // over jobs
	Bins      []Group                  `json:"bins"`      // by number of maps
	Users     []Group                  `json:"users"`     // most jobs first
	Profiles  []Group                  `json:"profiles"`  // most jobs first
}

// Total is the sum over some jobs.
type Total struct {
	Maps          int     `json:"maps"` // tasks on slots for maps
	Reduces       int     `json:"reduces"`
	Input         int64   `json:"input_bytes"`   // of blocks
	Shuffled      int64   `json:"shuffle_bytes"` // between stages
	Written       int64   `json:"output_bytes"`
	MapSeconds    float64 `json:"map_slot_s"`
	ReduceSeconds float64 `json:"reduce_slot_s"`
}

// Group is the jobs of one bin, user or profile.
type Group struct {
	Name     string  `json:"name"`
	Jobs     int     `json:"jobs"`
	JobShare float64 `json:"job_share"`
	Total
	InputShare float64 `json:"input_share"`
}

// DefaultBins are the upper bounds of the bins by number of maps: those of jobs at Facebook in the
// FAIR report. The last bin has no bound.
func DefaultBins() []int { return []int{25, 50, 100, 200, 400, 800, 1600, 3200} }

// Fetched returns what each task of a stage fetches, by task; 0 for a stage without From.
func (j *Job) Fetched(stage int) []units.Bytes {
	fetched := make([]units.Bytes, len(j.Stages[stage].Tasks))
	for _, from := range j.Stages[stage].From {
		at := j.offset(from, stage)
		for t, n := range outputs(j.Stages[from].Tasks) {
			for i := range fetched {
				fetched[i] += t[at+i] * units.Bytes(n)
			}
		}
	}
	return fetched
}

// outputs returns the outputs of tasks, and of how many successive tasks each is.
func outputs(tasks []Task) iter.Seq2[[]units.Bytes, int] {
	return func(yield func([]units.Bytes, int) bool) {
		for i := 0; i < len(tasks); {
			n := 1
			for i+n < len(tasks) && shared(tasks[i].Output, tasks[i+n].Output) {
				n++
			}
			if !yield(tasks[i].Output, n) {
				return
			}
			i += n
		}
	}
}

// fetches reports whether a stage fetches from another.
func (j *Job) fetches(stage, from int) bool { return slices.Contains(j.Stages[stage].From, from) }

// offset returns the index in Task.Output of stage from at which the tasks of a stage that fetches
// from it begin.
func (j *Job) offset(from, stage int) int {
	at := 0
	for s := from + 1; s < stage; s++ {
		if j.fetches(s, from) {
			at += len(j.Stages[s].Tasks)
		}
	}
	return at
}

// targets calls f for each task of a later stage that fetches from task i of a stage, with its index in Task.Output.
func (j *Job) targets(s, i int, f func(at int)) {
	at := 0
	for to := s + 1; to < len(j.Stages); to++ {
		if !j.fetches(to, s) {
			continue
		}
		st := &j.Stages[to]
		for k := range st.Tasks {
			if st.Pattern.Fetches(i, len(j.Stages[s].Tasks), k, len(st.Tasks)) {
				f(at + k)
			}
		}
		at += len(st.Tasks)
	}
}

// patterned reports whether not all tasks of later stages fetch from all tasks of a stage.
func (j *Job) patterned(s int) bool {
	return slices.ContainsFunc(j.Stages[s+1:], func(to Stage) bool { return to.Pattern != AllToAll && slices.Contains(to.From, s) })
}

// even divides the output of task i of a stage into equal parts for the tasks that fetch from it.
func (j *Job) even(s, i int, total units.Bytes) []units.Bytes {
	var to []int
	j.targets(s, i, func(at int) { to = append(to, at) })
	out := make([]units.Bytes, j.consumers(s))
	for k, part := range splitEven(total, len(to)) {
		out[to[k]] = part
	}
	return out
}

// astray returns the index of an output of task i of a stage for a task that does not fetch from it; -1 if there is none.
func (j *Job) astray(s, i int, outputs []units.Bytes) int {
	if !j.patterned(s) {
		return -1
	}
	left := slices.Clone(outputs)
	j.targets(s, i, func(at int) { left[at] = 0 })
	return slices.IndexFunc(left, func(n units.Bytes) bool { return n != 0 })
}

// consumers returns the number of tasks that fetch from a stage.
func (j *Job) consumers(from int) int { return j.offset(from, len(j.Stages)) }

// total sums up a job.
func (j *Job) total() (t Total, reads int) {
	for s := range j.Stages {
		stage := &j.Stages[s]
		fetched := j.Fetched(s)
		var took time.Duration
		for i := range stage.Tasks {
			task := &stage.Tasks[i]
			in := fetched[i]
			if len(stage.From) == 0 {
				reads++
				in = task.InputSize
				t.Input += int64(in)
			}
			t.Shuffled += int64(fetched[i])
			t.Written += int64(task.Writes)
			for _, r := range []units.Rate{task.Rate, task.SortRate} {
				if d := r.TimeToSend(in); r > 0 {
					took = satAdd(took, d)
				}
			}
		}
		if stage.Kind == Map {
			t.Maps += len(stage.Tasks)
			t.MapSeconds += took.Seconds()
		} else {
			t.Reduces += len(stage.Tasks)
			t.ReduceSeconds += took.Seconds()
		}
	}
	return t, reads
}

// satAdd adds durations that are not negative, at most the longest.
func satAdd(a, b time.Duration) time.Duration {
	if sum := a + b; sum >= 0 {
		return sum
	}
	return 1<<63 - 1
}

func (t *Total) add(o Total) {
	t.Maps, t.Reduces = t.Maps+o.Maps, t.Reduces+o.Reduces
	t.Input, t.Shuffled, t.Written = t.Input+o.Input, t.Shuffled+o.Shuffled, t.Written+o.Written
	t.MapSeconds, t.ReduceSeconds = t.MapSeconds+o.MapSeconds, t.ReduceSeconds+o.ReduceSeconds
}

// CheckBins reports whether bounds of bins are positive and ascending.
func CheckBins(bounds []int) error {
	for i, b := range bounds {
		if b < 1 || i > 0 && b <= bounds[i-1] {
			return fmt.Errorf("bound %d of bins: must be positive numbers in ascending order", b)
		}
	}
	return nil
}

// Describe describes at least one job, in order of submission. Bins are by number of maps, at most
// each bound.
func Describe(list []Job, bounds []int) Stats {
	s := Stats{Jobs: len(list), Users: []Group{}, Profiles: []Group{}}
	s.First, s.Last = list[0].Submit.Seconds(), list[len(list)-1].Submit.Seconds()
	span := s.Last - s.First
	bins := make([]Group, len(bounds)+1)
	for i := range bins {
		from := 0
		if i > 0 {
			from = bounds[i-1] + 1
		}
		if i == len(bounds) {
			bins[i].Name = fmt.Sprintf("%d or more", max(1, from))
		} else {
			bins[i].Name = fmt.Sprintf("%d–%d", max(1, from), bounds[i])
			if from == bounds[i] || i == 0 && bounds[i] == 1 {
				bins[i].Name = fmt.Sprint(bounds[i])
			}
		}
	}
	users, profiles := map[string]*Group{}, map[string]*Group{}
	into := func(groups map[string]*Group, name string) *Group {
		if groups[name] == nil {
			groups[name] = &Group{Name: name}
		}
		return groups[name]
	}
	var values [7][]float64
	for i := range list {
		j := &list[i]
		t, reads := j.total()
		s.Total.add(t)
		s.Reads += int64(reads)
		fetching := slices.ContainsFunc(j.Stages, func(s Stage) bool { return len(s.From) > 0 })
		if !fetching {
			s.MapOnly++
		}
		at, _ := slices.BinarySearch(bounds, t.Maps)
		for _, g := range []*Group{&bins[at], into(users, j.User), into(profiles, j.Profile)} {
			g.Jobs++
			g.Total.add(t)
		}
		for k, x := range []float64{float64(t.Maps), float64(t.Reduces), mb(t.Input), mb(t.Shuffled), mb(t.Written), t.MapSeconds, t.ReduceSeconds} {
			values[k] = append(values[k], x)
		}
	}
	var gaps []float64
	for i := 1; i < len(list); i++ {
		gaps = append(gaps, (list[i].Submit - list[i-1].Submit).Seconds())
	}
	if n := len(gaps); n > 0 {
		s.MeanGap = span / float64(n)
	}
	if span > 0 {
		s.MapSlots, s.ReduceSlots = s.MapSeconds/span, s.ReduceSeconds/span
	}
	for k, q := range []workloads.QuantileStat{{Name: "maps"}, {Name: "reduces"}, {Name: "input", Unit: "MB"}, {Name: "shuffle", Unit: "MB"},
		{Name: "output", Unit: "MB"}, {Name: "map slots", Unit: "s"}, {Name: "reduce slots", Unit: "s"}, {Name: "gap", Unit: "s"}} {
		v := gaps
		if k < len(values) {
			v = values[k]
		}
		if len(v) > 0 {
			q.Fill(v)
			s.Quantiles = append(s.Quantiles, q)
		}
	}
	finish := func(g *Group) {
		g.JobShare = float64(g.Jobs) / float64(s.Jobs)
		if s.Input > 0 {
			g.InputShare = float64(g.Input) / float64(s.Input)
		}
	}
	for i := range bins {
		finish(&bins[i])
	}
	s.Bins = bins
	for _, x := range []struct {
		from map[string]*Group
		to   *[]Group
	}{{users, &s.Users}, {profiles, &s.Profiles}} {
		for _, g := range x.from {
			finish(g)
			*x.to = append(*x.to, *g)
		}
		slices.SortFunc(*x.to, func(a, b Group) int { return cmp.Or(b.Jobs-a.Jobs, cmp.Compare(a.Name, b.Name)) })
	}
	return s
}

func mb(n int64) float64 { return float64(n) / float64(units.MB) }
