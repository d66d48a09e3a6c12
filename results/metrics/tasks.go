package metrics

import (
	"cmp"
	"slices"
	"time"

	"testbed/results/flows"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// TaskSlots are the slots of a cluster for attempts of tasks.
type TaskSlots struct {
	Hosts  int `json:"hosts"`
	Map    int `json:"map"`    // of each host
	Reduce int `json:"reduce"` // of each host
}

// Of returns the slots of a kind on all hosts together.
func (s TaskSlots) Of(kind string) int {
	if kind == flows.MapTask {
		return s.Hosts * s.Map
	}
	return s.Hosts * s.Reduce
}

// TaskKinds returns the kinds of slots, in printing order.
func TaskKinds() []string { return []string{flows.MapTask, flows.ReduceTask} }

// Phases of an attempt, in order.
const (
	ReadingInput   = iota // reads its block or fetches; a task that reads a block computes meanwhile
	WaitingCompute        // has all its input and may not compute yet
	ComputingTask
	WritingOutput // spills or writes its output, until it commits
	AttemptPhases
)

// PhasesOf returns the bounds of an attempt's phases: phase i lasts from the i-th to the next one.
// An attempt that did not reach a phase ends in the one before, and later ones are empty.
func PhasesOf(a *flows.AttemptRecord) (at [AttemptPhases + 1]time.Duration) {
	compute := a.Compute
	if a.Locality != "" { // it computes from its start on
		compute = a.InputEnd
	}
	at[0], at[AttemptPhases] = a.Start, max(a.Start, a.End)
	for i, t := range [...]time.Duration{a.InputEnd, compute, a.Computed} {
		if t == 0 || t > a.End {
			t = a.End
		}
		at[i+1] = max(at[i], t)
	}
	return at
}

// Parts of a job's time. Each moment counts to the first part that one of the job's attempts is in.
const (
	JobMapping   = iota // an attempt that reads a block has not processed it yet
	JobShuffling        // an attempt fetches, or has fetched everything and waits to compute
	JobComputing        // an attempt that fetched computes
	JobWriting          // all attempts have computed: they spill, write blocks, or commit
	JobWaiting          // no attempt runs
	JobParts
)

// JobPartsOf divides a job's time: the parts add up to it. Attempts are those of the job.
func JobPartsOf(j flows.JobRecord, attempts []flows.AttemptRecord) (parts [JobParts]time.Duration) {
	type change struct {
		at   time.Duration
		part int
		by   int
	}
	changes := make([]change, 0, 6*len(attempts))
	add := func(from, to time.Duration, part int) {
		if from, to = max(from, j.Arrival), min(to, j.End); from < to {
			changes = append(changes, change{from, part, 1}, change{to, part, -1})
		}
	}
	for i := range attempts {
		a := &attempts[i]
		at := PhasesOf(a)
		if a.Locality != "" {
			add(at[ReadingInput], at[WritingOutput], JobMapping)
		} else {
			add(at[ReadingInput], at[ComputingTask], JobShuffling)
			add(at[ComputingTask], at[WritingOutput], JobComputing)
		}
		add(at[WritingOutput], at[AttemptPhases], JobWriting)
	}
	slices.SortFunc(changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	var running [JobParts]int
	running[JobWaiting] = 1
	now := j.Arrival
	until := func(t time.Duration) {
		for part, n := range running {
			if n > 0 {
				parts[part] += t - now
				break
			}
		}
		now = t
	}
	for _, c := range changes {
		until(c.at)
		running[c.part] += c.by
	}
	until(j.End)
	return parts
}

// Locality counts the attempts that committed after reading a block, by where the replica was.
type Locality struct{ Node, Rack, OffRack int }

// Total returns the number of attempts.
func (l Locality) Total() int { return l.Node + l.Rack + l.OffRack }

// Add adds other attempts.
func (l *Locality) Add(o Locality) {
	l.Node, l.Rack, l.OffRack = l.Node+o.Node, l.Rack+o.Rack, l.OffRack+o.OffRack
}

// Count adds an attempt that read a block at a place.
func (l *Locality) Count(of string) {
	switch of {
	case flows.NodeLocal:
		l.Node++
	case flows.RackLocal:
		l.Rack++
	case flows.OffRack:
		l.OffRack++
	}
}

// MapClasses are the largest numbers of maps of a job in the classes by size; a last class has the
// larger jobs. A map is a task that reads a block.
var MapClasses = [...]int{2, 10, 100}

func classOf(maps int) int {
	k, _ := slices.BinarySearch(MapClasses[:], maps)
	return k
}

// Shuffle identifies a shuffle: the coflow of a stage that fetches.
type Shuffle struct {
	Job   workloads.JobID
	Stage int
}

// ShufflesOf returns the shuffles of jobs of tasks. Reads of input blocks are no coflows.
func ShufflesOf(r *flows.Records) map[workloads.CoflowID]Shuffle {
	out := map[workloads.CoflowID]Shuffle{}
	for f := range r.Transfers() {
		if t := f.Task; t != nil && t.Outputs > 0 {
			out[f.Coflow] = Shuffle{t.Job, t.Stage}
		}
	}
	return out
}

// TaskBytes is payload that completed flows of tasks carried, each flow once. Reads and fetches from
// the attempt's own host are no flows.
type TaskBytes struct {
	Read, ReadCrossRack       units.Bytes // input blocks
	Fetched, FetchedCrossRack units.Bytes // outputs of tasks
}

// Tasks are the figures of the jobs of tasks of one repeat.
type Tasks struct {
	Jobs     int           // that completed
	Makespan time.Duration // from the first submission to the last end of them

	Committed, Copied, Killed, Failed int // attempts, by outcome
	// WastedTime is the slot time of attempts that did not commit, and WastedInput the inputs that
	// they had read or fetched completely.
	WastedTime  time.Duration
	WastedInput units.Bytes

	Locality Locality
	ByMaps   [len(MapClasses) + 1]Locality // by the job's class of size
	Moved    TaskBytes
	// Busy is the slot time in use within the makespan, by kind; Slots are nil if unknown.
	Busy  map[string]time.Duration
	Slots *TaskSlots
	// Stragglers has, for each stage with LeastStage tasks or more that committed, the time of the
	// slowest one over their median.
	Stragglers []float64
	Straggling Straggling
	Clones     *Clones // nil if no task had several attempts at the same time
	// Parts is the sum of the parts of the times of the jobs with attempts, and Divided their number.
	Parts   [JobParts]time.Duration
	Divided int
	// Slowdowns are the job times over those of the jobs alone, if these are known.
	Slowdowns []float64
	// Jain is Jain's index of the users' slots, averaged over JainTime: the time in which two users
	// or more have jobs, and any slot is in use.
	Jain     float64
	JainTime time.Duration
	Shuffle  *ShuffleFigures // nil if no task that committed has fetched
}

// LeastStage is the least number of tasks of a stage with a straggler ratio.
const LeastStage = 5

// Attempts returns the number of attempts, which all started.
func (t *Tasks) Attempts() int { return t.Committed + t.Copied + t.Killed + t.Failed }

// Add adds the figures of another repeat to those of repeats, which are none if t is zero. Slots become unknown if those
// of o are.
func (t *Tasks) Add(o *Tasks) {
	if t.Busy == nil {
		t.Busy, t.Slots = map[string]time.Duration{}, o.Slots
	} else if t.Slots != nil {
		t.Slots = o.Slots
	}
	t.Jobs, t.Makespan = t.Jobs+o.Jobs, t.Makespan+o.Makespan
	t.Committed, t.Copied = t.Committed+o.Committed, t.Copied+o.Copied
	t.Killed, t.Failed = t.Killed+o.Killed, t.Failed+o.Failed
	t.WastedTime, t.WastedInput = t.WastedTime+o.WastedTime, t.WastedInput+o.WastedInput
	t.Locality.Add(o.Locality)
	for k, l := range o.ByMaps {
		t.ByMaps[k].Add(l)
	}
	t.Moved.Add(o.Moved)
	for kind, busy := range o.Busy {
		t.Busy[kind] += busy
	}
	t.Stragglers, t.Slowdowns = append(t.Stragglers, o.Stragglers...), append(t.Slowdowns, o.Slowdowns...)
	t.Straggling.Add(o.Straggling)
	if t.Clones == nil {
		t.Clones = &Clones{}
	}
	t.Clones.Add(o.Clones)
	for k, part := range o.Parts {
		t.Parts[k] += part
	}
	t.Divided += o.Divided
	if time := t.JainTime + o.JainTime; time > 0 {
		t.Jain, t.JainTime = (t.Jain*float64(t.JainTime)+o.Jain*float64(o.JainTime))/float64(time), time
	}
	if o.Shuffle != nil {
		if t.Shuffle == nil {
			t.Shuffle = &ShuffleFigures{}
		}
		t.Shuffle.Add(o.Shuffle)
	}
}

// TasksOf returns the figures of the jobs of tasks of one repeat; nil if there are no attempts.
func TasksOf(r *flows.Records, slots *TaskSlots) *Tasks {
	if len(r.Attempts) == 0 {
		return nil
	}
	t := &Tasks{Slots: slots, Busy: map[string]time.Duration{}}
	jobs := map[workloads.JobID]*flows.JobRecord{}
	for i := range r.Jobs {
		j := &r.Jobs[i]
		if j.Tasks == 0 {
			continue
		}
		t.Jobs++
		jobs[j.Job] = j
		if j.Lone > 0 {
			t.Slowdowns = append(t.Slowdowns, float64(j.JobTime())/float64(j.Lone))
		}
	}
	first, last := TaskSpan(r)
	t.Makespan = last - first
	slices.Sort(t.Slowdowns)
	for _, of := range ByJob(r.Attempts) {
		t.job(of)
		for i := range of {
			if a := &of[i]; min(a.End, last) > max(a.Start, first) {
				t.Busy[a.Kind] += min(a.End, last) - max(a.Start, first)
			}
		}
		if j := jobs[of[0].Job]; j != nil {
			for k, part := range JobPartsOf(*j, of) {
				t.Parts[k] += part
			}
			t.Divided++
		}
	}
	slices.Sort(t.Stragglers)
	for f := range r.Transfers() {
		t.Moved.AddFlow(f)
	}
	t.Jain, t.JainTime = jain(r, jobs)
	t.Shuffle, t.Clones, t.Straggling = ShuffleOf(r), ClonesOf(r), StragglingOf(r.Attempts)
	return t
}

// TaskSpan returns the first submission and the last end of the jobs of tasks that completed; both are 0
// if there are none.
func TaskSpan(r *flows.Records) (first, last time.Duration) {
	n := 0
	for _, j := range r.Jobs {
		if j.Tasks == 0 {
			continue
		}
		if n++; n == 1 || j.Arrival < first {
			first = j.Arrival
		}
		last = max(last, j.End)
	}
	return first, last
}

// ByJob divides attempts, in order of job, by job.
func ByJob(attempts []flows.AttemptRecord) [][]flows.AttemptRecord {
	return chunks(attempts, func(a, b *flows.AttemptRecord) bool { return a.Job == b.Job })
}

func chunks[T any](all []T, same func(a, b *T) bool) (out [][]T) {
	for from := 0; from < len(all); {
		to := from + 1
		for to < len(all) && same(&all[from], &all[to]) {
			to++
		}
		out, from = append(out, all[from:to]), to
	}
	return out
}

// job adds the attempts of one job.
func (t *Tasks) job(of []flows.AttemptRecord) {
	maps := 0
	for i := range of {
		a := &of[i]
		if a.Locality != "" && (i == 0 || of[i-1].Stage != a.Stage || of[i-1].Task != a.Task) {
			maps++
		}
	}
	class := &t.ByMaps[classOf(maps)]
	for _, stage := range chunks(of, func(a, b *flows.AttemptRecord) bool { return a.Stage == b.Stage }) {
		var times []float64
		for i := range stage {
			a := &stage[i]
			switch a.Outcome {
			case flows.Committed:
				t.Committed++
				t.Locality.Count(a.Locality)
				class.Count(a.Locality)
				times = append(times, float64(a.End-a.Start))
				continue
			case flows.Copied:
				t.Copied++
			case flows.Killed:
				t.Killed++
			default:
				t.Failed++
			}
			t.WastedTime += a.End - a.Start
			if a.InputEnd > 0 { // what it had of an incomplete input is not recorded
				t.WastedInput += a.Input
			}
		}
		if m := Median(times); len(times) >= LeastStage && m > 0 {
			t.Stragglers = append(t.Stragglers, slices.Max(times)/m)
		}
	}
}

// Add adds other bytes.
func (b *TaskBytes) Add(o TaskBytes) {
	b.Read, b.ReadCrossRack = b.Read+o.Read, b.ReadCrossRack+o.ReadCrossRack
	b.Fetched, b.FetchedCrossRack = b.Fetched+o.Fetched, b.FetchedCrossRack+o.FetchedCrossRack
}

// AddFlow adds the payload of a flow of a task. What stays on its host is no traffic.
func (b *TaskBytes) AddFlow(f *flows.FlowRecord) {
	if f.Task == nil || f.Src == f.Dst {
		return
	}
	from, _, ok1 := topo.ParseHostName(f.Src)
	to, _, ok2 := topo.ParseHostName(f.Dst)
	all, cross := &b.Read, &b.ReadCrossRack
	if f.Task.Outputs > 0 {
		all, cross = &b.Fetched, &b.FetchedCrossRack
	}
	*all += f.Size
	if ok1 && ok2 && from != to {
		*cross += f.Size
	}
}

// jain returns the average of Jain's index over the time in which it is defined.
func jain(r *flows.Records, jobs map[workloads.JobID]*flows.JobRecord) (float64, time.Duration) {
	type user struct{ jobs, slots int }
	type change struct {
		at          time.Duration
		user        *user
		jobs, slots int
	}
	users := map[string]*user{}
	var changes []change
	for i := range r.Jobs {
		if j := &r.Jobs[i]; jobs[j.Job] == j {
			u := users[j.User]
			if u == nil {
				u = &user{}
				users[j.User] = u
			}
			changes = append(changes, change{j.Arrival, u, 1, 0}, change{j.End, u, -1, 0})
		}
	}
	if len(users) < 2 {
		return 0, 0
	}
	for i := range r.Attempts {
		a := &r.Attempts[i]
		if j := jobs[a.Job]; j != nil {
			if from, to := max(a.Start, j.Arrival), min(a.End, j.End); from < to {
				changes = append(changes, change{from, users[j.User], 0, 1}, change{to, users[j.User], 0, -1})
			}
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	var now, known time.Duration
	var sum float64
	active, slots, squares := 0, 0, 0
	for _, c := range changes {
		if d := c.at - now; d > 0 && active >= 2 && slots > 0 {
			known += d
			sum += float64(d) * (float64(slots) * float64(slots) / (float64(active) * float64(squares)))
		}
		now = c.at
		u := c.user
		if c.jobs > 0 && u.jobs == 0 {
			active++
		}
		if u.jobs += c.jobs; c.jobs < 0 && u.jobs == 0 {
			active--
		}
		slots += c.slots
		squares -= u.slots * u.slots
		u.slots += c.slots
		squares += u.slots * u.slots
	}
	if known == 0 {
		return 0, 0
	}
	return sum / float64(known), known
}

// UserSlots is the average number of slots in use by the jobs of a user in each interval.
type UserSlots struct {
	User  string
	Slots []float64
	Time  time.Duration // slot time in total
}

// SharesOf returns the slots of each user over time, in intervals from 0, the user with most slot
// time first. Attempts of jobs without a record belong to the user "".
func SharesOf(r *flows.Records, interval time.Duration) []UserSlots {
	of := map[workloads.JobID]string{}
	for _, j := range r.Jobs {
		of[j.Job] = j.User
	}
	var end time.Duration
	for i := range r.Attempts {
		end = max(end, r.Attempts[i].End)
	}
	users := map[string]*UserSlots{}
	for i := range r.Attempts {
		a := &r.Attempts[i]
		u := users[of[a.Job]]
		if u == nil {
			u = &UserSlots{User: of[a.Job], Slots: make([]float64, (end+interval-1)/interval)}
			users[u.User] = u
		}
		u.Time += a.End - a.Start
		addBytes(u.Slots, interval, a.Start, a.End, (a.End-a.Start).Seconds()/interval.Seconds())
	}
	out := make([]UserSlots, 0, len(users))
	for _, u := range users {
		out = append(out, *u)
	}
	slices.SortFunc(out, func(a, b UserSlots) int { return cmp.Or(cmp.Compare(b.Time, a.Time), cmp.Compare(a.User, b.User)) })
	return out
}
