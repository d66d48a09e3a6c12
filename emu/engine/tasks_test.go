package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/emu/engine/tracker"
	"testbed/hosts/wire"
	"testbed/policies"
	schedulers "testbed/policies/tasks"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// firstPlaces places replicas on the first hosts that are not lost.
var firstPlaces = placeFunc(func(v *policies.PlacementView, b workloads.Block, _ *rand.Rand) (out []topo.HostID, _ error) {
	for h := range v.Hosts {
		if !v.Hosts[h].Lost && len(out) < b.Replicas {
			out = append(out, topo.HostID(h))
		}
	}
	if len(out) < b.Replicas {
		return nil, errors.New("too few hosts")
	}
	return out, nil
})

// latencies are those of decisions that take effect later, in turn.
type latencies int

func (l *latencies) next() time.Duration {
	*l++
	return []time.Duration{0, 300 * time.Millisecond, 1200 * time.Millisecond, 50 * time.Millisecond, 2 * time.Second}[*l%5]
}

// lateScheduler is a scheduler whose assignments take effect later.
type lateScheduler struct{ policies.TaskScheduler }

type lateInstance struct {
	policies.Fetcher
	latencies
}

func (s lateScheduler) New() policies.TaskInstance {
	return &lateInstance{Fetcher: s.TaskScheduler.New().(policies.Fetcher)}
}

func (x *lateInstance) Assign(v *policies.TaskView, a *policies.Assignment) {
	x.Fetcher.Assign(v, a)
	a.Latency = x.next()
}

// latePlaces are firstPlaces whose placements take effect later.
type latePlaces struct {
	placeFunc
	latencies
}

func (p *latePlaces) Answered() ([]byte, time.Duration) { return nil, p.next() }

// taskRun is a backend without a network: each command ends after a random time, or fails. It checks
// commands against what it knows of attempts and transfers.
type taskRun struct {
	t        *rapid.T
	cfg      Config
	latency  func(what string) time.Duration
	fails    func(what string) bool
	now      time.Duration
	due      []Arrival
	beat     time.Duration
	lost     []bool
	chains   map[workloads.BlockID][]topo.HostID // hosts of the pipeline of a block that were not lost since
	flows    map[workloads.FlowID]Event          // those in progress
	blocks   map[workloads.BlockID]bool
	stored   map[workloads.BlockID]bool // durable and not deleted
	deleted  int
	attempts map[jobs.AttemptID]*toyAttempt
	commits  map[jobs.TaskID]int
	open     map[int]int // flows of open coflows
	ended    map[jobs.JobID]wire.Moment
	moments  map[wire.Moment]int
}

type toyAttempt struct {
	host topo.HostID
	kind jobs.TaskKind
	over bool
	won  bool // committed
	busy int  // Compute and SpillOutput in progress
}

func (b *taskRun) errorf(format string, args ...any) {
	b.t.Helper()
	b.t.Fatalf("at %v: "+format, append([]any{b.now}, args...)...)
}

func (b *taskRun) after(d time.Duration, ev Event) {
	at, _ := slices.BinarySearchFunc(b.due, b.now+d, func(a Arrival, t time.Duration) int {
		if a.At <= t {
			return -1
		}
		return 1
	})
	b.due = slices.Insert(b.due, at, Arrival{b.now + d, ev})
}

// cancel removes the events of something that was stopped.
func (b *taskRun) cancel(is func(Event) bool) {
	b.due = slices.DeleteFunc(b.due, func(a Arrival) bool { return is(a.Event) })
}

func (b *taskRun) Await(_ context.Context, wake time.Duration) (time.Duration, []Event, error) {
	next := min(wake, b.beat)
	if len(b.due) > 0 {
		next = min(next, b.due[0].At)
	}
	b.now = max(b.now, next)
	if b.now > 10*time.Hour {
		b.errorf("the run does not end")
	}
	var evs []Event
	for len(b.due) > 0 && b.due[0].At <= b.now {
		ev := b.due[0].Event
		b.due = b.due[1:]
		if b.happens(ev) {
			evs = append(evs, ev)
		}
	}
	if b.now >= b.beat {
		b.beat += b.cfg.Heartbeat
		for h := range b.lost {
			if !b.lost[h] {
				evs = append(evs, Heartbeat{Host: topo.HostID(h)})
			}
		}
	}
	return b.now, evs, nil
}

// happens updates what is in progress. It reports whether the engine gets the event.
func (b *taskRun) happens(ev Event) bool {
	switch ev := ev.(type) {
	case HostLost:
		lost := 0
		for _, l := range b.lost {
			if l {
				lost++
			}
		}
		if b.lost[ev.Host] || lost == 2 { // input blocks have three replicas
			return false
		}
		b.lost[ev.Host] = true
		for block, hosts := range b.chains {
			b.chains[block] = slices.DeleteFunc(hosts, func(h topo.HostID) bool { return h == ev.Host })
		}
		b.after(b.latency("back"), HostBack{Host: ev.Host})
	case HostBack:
		b.lost[ev.Host] = false
	case TransferFinished:
		delete(b.flows, ev.Flow)
	case TransferFailed:
		delete(b.flows, ev.Flow)
	case BlockDurable:
		if len(b.chains[ev.Block]) == 0 { // all hosts of its pipeline have been lost
			b.after(0, BlockFailed{ev.Block, "planted"})
			return false
		}
		delete(b.blocks, ev.Block)
		b.stored[ev.Block] = true
	case BlockFailed:
		delete(b.blocks, ev.Block)
	case TaskComputed:
		return b.ends(ev.Attempt)
	case OutputSpilled:
		return b.ends(ev.Attempt)
	case TaskFailed:
		a := b.attempts[ev.Attempt]
		return a != nil && !a.over && a.busy > 0 && !b.lost[a.host]
	}
	return true
}

func (b *taskRun) ends(id jobs.AttemptID) bool {
	a := b.attempts[id]
	a.busy--
	return !b.lost[a.host]
}

func (b *taskRun) startFlow(id workloads.FlowID, ends ...topo.HostID) {
	if b.flows[id] != nil {
		b.errorf("flow %d starts twice", id)
	}
	for _, h := range ends {
		if b.lost[h] {
			b.errorf("flow %d starts on lost host %d", id, h)
		}
	}
	b.flows[id] = TransferFinished{id}
	if b.fails("flow") {
		b.after(b.latency("flow"), TransferFailed{id, "planted"})
		return
	}
	b.after(b.latency("flow"), TransferFinished{id})
}

func (b *taskRun) work(id jobs.AttemptID, host topo.HostID, ev Event) {
	a := b.attempts[id]
	if a == nil || a.over || a.host != host || b.lost[host] {
		b.errorf("%v works on host %d, where it does not run", id, host)
	}
	a.busy++
	if b.fails("work") {
		b.after(b.latency("work"), TaskFailed{id, "planted"})
	}
	b.after(b.latency("work"), ev)
}

func (b *taskRun) Do(_ context.Context, cmds []Command) error {
	for _, cmd := range cmds {
		switch cmd := cmd.(type) {
		case StartTransfer:
			if cmd.Task == nil || (cmd.Read != nil) == (cmd.Task.From != nil) {
				b.errorf("flow %d of task %v reads %v", cmd.Flow.ID, cmd.Task, cmd.Read)
			}
			b.startFlow(cmd.Flow.ID, cmd.Flow.Src, cmd.Flow.Dst)
		case ReadDisk:
			b.startFlow(cmd.ID, cmd.Host)
		case StopTransfer:
			b.stopFlow(cmd.Flow)
		case StopRead:
			b.stopFlow(cmd.ID)
		case StartChain:
			if slices.ContainsFunc(cmd.Targets, func(h topo.HostID) bool { return b.lost[h] }) || len(cmd.Targets) != cmd.Block.Replicas {
				b.errorf("%d replicas of block %d on hosts %v: must be that many that are not lost", cmd.Block.Replicas, cmd.Block.ID, cmd.Targets)
			}
			b.blocks[cmd.Block.ID] = true
			b.chains[cmd.Block.ID] = slices.Clone(cmd.Targets)
			if b.fails("block") {
				b.after(b.latency("block"), BlockFailed{cmd.Block.ID, "planted"})
			} else {
				b.after(b.latency("block"), BlockDurable{cmd.Block.ID})
			}
		case StopChain:
			delete(b.blocks, cmd.Block)
			b.cancel(func(ev Event) bool { return ev == BlockDurable(cmd) || ev == BlockFailed{cmd.Block, "planted"} })
		case DropBlock:
			if !b.stored[cmd.Block] || len(cmd.Hosts) == 0 || cmd.Size <= 0 || cmd.Durable > b.now {
				b.errorf("%+v: the block is stored: %v", cmd, b.stored[cmd.Block])
			}
			delete(b.stored, cmd.Block)
			b.deleted++
		case Compute:
			b.work(cmd.Attempt, cmd.Host, TaskComputed{cmd.Attempt})
		case SpillOutput:
			b.work(cmd.Attempt, cmd.Host, OutputSpilled{cmd.Attempt})
		case StopTask:
			if !b.attempts[cmd.Attempt].over {
				b.cancel(func(ev Event) bool {
					return ev == TaskComputed{cmd.Attempt} || ev == OutputSpilled{cmd.Attempt} || ev == TaskFailed{cmd.Attempt, "planted"}
				})
			}
		case Mark:
			if cmd.Kind == MarkBlockFailed { // StopChain drops what is stored, even if that was complete
				delete(b.stored, workloads.BlockID(cmd.ID))
			}
			b.marked(cmd)
		case MarkTask:
			b.moment(cmd)
		}
	}
	return nil
}

func (b *taskRun) stopFlow(id workloads.FlowID) {
	delete(b.flows, id)
	b.cancel(func(ev Event) bool { return ev == TransferFinished{id} || ev == TransferFailed{id, "planted"} })
}

func (b *taskRun) marked(m Mark) {
	switch {
	case m.Kind == MarkCoflow && m.Parts == 0:
		if _, twice := b.open[m.ID]; twice {
			b.errorf("coflow %d opens twice", m.ID)
		}
		b.open[m.ID] = 0
	case m.Kind == MarkCoflowClosed:
		if _, open := b.open[m.ID]; !open || m.Parts == 0 || m.Size == 0 {
			b.errorf("coflow %d closes with %d flows and %v, open: %v", m.ID, m.Parts, m.Size, open)
		}
		delete(b.open, m.ID)
	}
}

func (b *taskRun) moment(m MarkTask) {
	b.moments[m.Moment]++
	id := m.Attempt
	a := b.attempts[id]
	switch m.Moment {
	case wire.JobSubmitted:
	case wire.JobDone, wire.JobFailed:
		if was, twice := b.ended[id.Task.Job]; twice {
			b.errorf("job %d ends as %v after %v", id.Task.Job, m.Moment, was)
		}
		b.ended[id.Task.Job] = m.Moment
	case wire.AttemptStarted:
		if a != nil {
			b.errorf("%v starts twice", id)
		}
		b.attempts[id] = &toyAttempt{host: m.Host, kind: m.Kind}
		used := 0
		for _, o := range b.attempts {
			if o.host == m.Host && o.kind == m.Kind && !o.over {
				used++
			}
		}
		if used > b.cfg.Tasks.Slots[m.Kind] {
			b.errorf("%d attempts of kind %d on host %d", used, m.Kind, m.Host)
		}
	default:
		if a == nil || a.over {
			b.errorf("%v has moment %d, but does not run", id, m.Moment)
		}
		a.over = m.Moment >= wire.AttemptCommitted
		if m.Moment == wire.AttemptCommitted {
			b.commits[id.Task]++
			a.won = true
		}
	}
}

// drawTaskConfig draws jobs of one and two stages over hosts with few slots.
func drawTaskConfig(t *rapid.T) Config {
	f := must(topo.LeafSpine{Leaves: 2, Spines: 1, HostsPerLeaf: 3, HostLink: 10 * units.Mbps,
		Oversubscription: units.Ratio{Num: 2, Den: 1}, Queue: topo.Queue{Time: time.Millisecond}, MTU: 1500}.Build())
	tasks := &TaskConfig{Slots: [jobs.TaskKinds]int{rapid.IntRange(1, 2).Draw(t, "map slots"), 1}, Settings: tracker.DefaultSettings(),
		Output: workloads.Block{Size: units.KB, Replicas: 2, Packet: 100, Window: 4}}
	tasks.Barrier, tasks.OutOfBand = rapid.Bool().Draw(t, "barrier"), rapid.Bool().Draw(t, "out of band")
	tasks.Attempts = 1000
	order := schedulers.DefaultFair()
	order.Order = schedulers.Fair{Starvation: schedulers.Starvation{MinTimeout: time.Second, FairTimeout: 2 * time.Second, Fraction: 1, Kill: rapid.Bool().Draw(t, "kill"), Every: time.Second}}
	if rapid.Bool().Draw(t, "backups") {
		order.Speculation = schedulers.DefaultSpeculation()
		order.Speculation.After, order.Speculation.Cap = 0, 1
		order.Speculation.TaskPercentile, order.Speculation.HostPercentile = 1, 0
	}
	if rapid.Bool().Draw(t, "clones") {
		order.Cloning = schedulers.DefaultCloning()
		order.Cloning.Budget, order.Cloning.Utilization = 1, 1
		order.Cloning.Reads = rapid.SampledFrom([]schedulers.Reads{schedulers.FirstCopy, schedulers.ExclusiveCopy, schedulers.DelayedCopy}).Draw(t, "reads")
	}
	tasks.Scheduler = order
	if rapid.Bool().Draw(t, "stragglers") {
		tasks.Stragglers = &jobs.Stragglers{Probability: 0.3, Factor: [2]float64{2, 4}, Spread: 0.1, MidTask: 0.5, Sticky: 0.2, Window: 5 * time.Second}
		tasks.Read, tasks.Write = units.Mbps, units.Mbps
	}
	for id := range rapid.IntRange(1, 4).Draw(t, "jobs") {
		j := jobs.Job{ID: jobs.JobID(id + 1), User: fmt.Sprint(id % 2), Submit: time.Duration(rapid.IntRange(0, 5).Draw(t, "submit")) * time.Second}
		if id > 0 && rapid.Bool().Draw(t, "follows") {
			j.After = jobs.JobID(rapid.IntRange(1, id).Draw(t, "after"))
			j.Submit += tasks.Jobs[j.After-1].Submit
		}
		reduces := rapid.IntRange(0, 3).Draw(t, "reduces")
		maps := jobs.Stage{Kind: jobs.Map}
		for range rapid.IntRange(1, 20).Draw(t, "maps") {
			task := jobs.Task{InputSize: units.Bytes(rapid.IntRange(0, 2).Draw(t, "input")) * units.KB, Rate: units.Mbps}
			if task.InputSize > 0 {
				task.Input = workloads.BlockID(len(tasks.Stored))
				h := rapid.IntRange(0, 5).Draw(t, "replica")
				tasks.Stored = append(tasks.Stored, StoredBlock{Block: task.Input, Size: task.InputSize,
					Hosts: []topo.HostID{topo.HostID(h), topo.HostID((h + 1) % 6), topo.HostID((h + 3) % 6)}})
			}
			if reduces == 0 {
				task.Writes = units.Bytes(rapid.IntRange(0, 3).Draw(t, "writes")) * 700
			}
			for range reduces {
				task.Output = append(task.Output, units.Bytes(rapid.IntRange(0, 2).Draw(t, "output"))*units.KB)
			}
			maps.Tasks = append(maps.Tasks, task)
		}
		j.Stages = []jobs.Stage{maps}
		if reduces > 0 {
			st := jobs.Stage{Kind: jobs.Reduce, From: []int{0}}
			for range reduces {
				st.Tasks = append(st.Tasks, jobs.Task{SortRate: units.Rate(rapid.IntRange(0, 1).Draw(t, "sort")) * units.Mbps, Rate: units.Rate(rapid.IntRange(0, 1).Draw(t, "rate")) * units.Mbps,
					Writes: units.Bytes(rapid.IntRange(0, 3).Draw(t, "writes")) * 700})
			}
			j.Stages = append(j.Stages, st)
		}
		tasks.Jobs = append(tasks.Jobs, j)
	}
	var places policies.Placer = firstPlaces
	if rapid.Bool().Draw(t, "latency") {
		tasks.Scheduler, places = lateScheduler{order}, &latePlaces{placeFunc: firstPlaces}
	}
	coflow := always(free)
	coflow.unlimited = rapid.Bool().Draw(t, "unlimited")
	return Config{Fabric: f, Coflow: coflow, Placement: places, Heartbeat: time.Second, Alpha: 0.2, Seed: 1,
		Tasks: tasks, IDs: workloads.IDs{Coflow: 100, Flow: 100, Block: workloads.BlockID(len(tasks.Stored))}}
}

// Whatever fails and whenever, each job ends, each task of a job that is done was committed, and
// nothing is left behind in the engine or on hosts.
func TestTasksUnderFailures(t *testing.T) {
	moments, deleted := map[wire.Moment]int{}, 0
	rapid.Check(t, func(t *rapid.T) {
		cfg := drawTaskConfig(t)
		rate := rapid.IntRange(0, 30).Draw(t, "failures in percent")
		if rapid.IntRange(0, 5).Draw(t, "few attempts") == 0 {
			cfg.Tasks.Attempts = 2
		}
		draw := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		b := &taskRun{t: t, cfg: cfg, lost: make([]bool, cfg.Fabric.Hosts()), flows: map[workloads.FlowID]Event{}, blocks: map[workloads.BlockID]bool{}, chains: map[workloads.BlockID][]topo.HostID{}, stored: map[workloads.BlockID]bool{},
			attempts: map[jobs.AttemptID]*toyAttempt{}, commits: map[jobs.TaskID]int{}, open: map[int]int{}, ended: map[jobs.JobID]wire.Moment{}, moments: moments,
			latency: func(string) time.Duration { return time.Duration(draw.IntN(3000)) * time.Millisecond },
			fails:   func(string) bool { return draw.IntN(100) < rate }}
		for range rapid.IntRange(0, 4).Draw(t, "losses") {
			b.after(time.Duration(draw.IntN(20000))*time.Millisecond, HostLost{topo.HostID(draw.IntN(6))})
		}
		e, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		var arrivals []Arrival
		for _, j := range cfg.Tasks.Jobs {
			if j.After == 0 {
				arrivals = append(arrivals, Arrival{j.Submit, JobArrived{j.ID}})
			}
		}
		slices.SortStableFunc(arrivals, func(a, b Arrival) int { return int(a.At - b.At) })
		if err := Run(context.Background(), e, b, arrivals, nil); err != nil {
			t.Fatal(err)
		}
		x := &e.tasks
		for _, o := range x.orders {
			if len(o.what) > 0 {
				t.Errorf("commands %+v are left", o.what)
			}
		}
		for what, n := range map[string]int{"attempts": len(x.running), "reads": len(x.reads), "fetches": len(x.flows), "writes": len(x.writes),
			"flows": len(b.flows), "blocks": len(b.blocks), "open coflows": len(b.open) + len(e.coflows.open), "events": len(x.events)} {
			if n > 0 {
				t.Errorf("%d %s are left", n, what)
			}
		}
		for _, j := range cfg.Tasks.Jobs {
			if b.ended[j.ID] == wire.JobFailed && cfg.Tasks.Attempts == 1000 || b.ended[j.ID] == 0 {
				t.Errorf("job %d ends as %v", j.ID, b.ended[j.ID])
			}
			for s, st := range j.Stages {
				for i := range st.Tasks {
					n := b.commits[jobs.TaskID{Job: j.ID, Stage: s, Index: i}]
					if b.ended[j.ID] == wire.JobDone && (n == 0 || n > 1 && s == len(j.Stages)-1) {
						t.Errorf("task %d.%d of job %d was committed %d times", s, i, j.ID, n)
					}
				}
			}
		}
		// Exactly the blocks of attempts that committed are stored.
		deleted += b.deleted
		for id, a := range b.attempts {
			if !a.over {
				t.Errorf("%v never ended", id)
			}
			writes := cfg.Tasks.Jobs[id.Task.Job-1].Stages[id.Task.Stage].Tasks[id.Task.Index].Writes
			for i := range (writes + units.KB - 1) / units.KB {
				block := x.first[id.Task] + x.stride*workloads.BlockID(id.N) + workloads.BlockID(i)
				if b.stored[block] != a.won {
					t.Errorf("%v, committed: %v, block %d stored: %v", id, a.won, block, b.stored[block])
				}
				delete(b.stored, block)
			}
		}
		if len(b.stored) > 0 {
			t.Errorf("blocks of no attempt are stored: %v", b.stored)
		}
	})
	if testing.Short() {
		return // too few cases for each to occur
	}
	if deleted == 0 {
		t.Error("no case deletes a block")
	}
	for m := wire.JobSubmitted; int(m) < wire.Moments; m++ {
		if moments[m] == 0 {
			t.Errorf("no case has moment %d", m)
		}
	}
}

// oneTask returns an engine with a job of one map without input, whose output a reduce fetches, and
// the map's attempt, which spills.
func oneTask(t *testing.T) (*Engine, jobs.AttemptID) {
	t.Helper()
	cfg := testConfig(t, always(free), nil)
	scheduler := schedulers.DefaultFIFO()
	scheduler.Order = schedulers.FIFO{}
	cfg.Tasks = &TaskConfig{Slots: [jobs.TaskKinds]int{1, 1}, Scheduler: scheduler, Settings: tracker.DefaultSettings(),
		Jobs: []jobs.Job{{ID: 7, Stages: []jobs.Stage{{Kind: jobs.Map, Tasks: []jobs.Task{{Output: []units.Bytes{100}}}}, {Kind: jobs.Reduce, From: []int{0}, Tasks: make([]jobs.Task, 1)}}}}}
	e := newEngine(t, cfg)
	step(t, e, 0, JobArrived{7})
	id := jobs.AttemptID{Task: jobs.TaskID{Job: 7}}
	if cmds := step(t, e, time.Second, Heartbeat{Host: 0}); !slices.Contains(cmds, Command(SpillOutput{Attempt: id, Size: 100})) {
		t.Fatalf("commands %v: want the map to spill", cmds)
	}
	return e, id
}

// has reports whether a moment of an attempt is marked.
func has(cmds []Command, m wire.Moment, id jobs.AttemptID) bool {
	return slices.ContainsFunc(cmds, func(c Command) bool {
		mark, ok := c.(MarkTask)
		return ok && mark.Moment == m && mark.Attempt == id
	})
}

// An attempt that fails in the step in which its output is complete does not commit.
func TestFailureAfterTheLastReport(t *testing.T) {
	e, id := oneTask(t)
	cmds := step(t, e, 2*time.Second, OutputSpilled{id}, TaskFailed{id, "planted"})
	if has(cmds, wire.AttemptCommitted, id) || !has(cmds, wire.AttemptFailed, id) {
		t.Errorf("commands %v: want the attempt to fail only", cmds)
	}
}

// A job that follows another one is submitted its think time after that has ended, at once without one.
func TestClosedLoop(t *testing.T) {
	for _, think := range []time.Duration{0, 5 * time.Second} {
		cfg := testConfig(t, always(free), nil)
		scheduler := schedulers.DefaultFIFO()
		scheduler.Order = schedulers.FIFO{}
		one := []jobs.Stage{{Kind: jobs.Map, Tasks: make([]jobs.Task, 1)}}
		cfg.Tasks = &TaskConfig{Slots: [jobs.TaskKinds]int{1, 0}, Scheduler: scheduler, Settings: tracker.DefaultSettings(),
			Jobs: []jobs.Job{{ID: 1, Submit: time.Second, Stages: one}, {ID: 2, Submit: time.Second + think, After: 1, Stages: one}}}
		e := newEngine(t, cfg)
		step(t, e, time.Second, JobArrived{1})
		submitted := func(cmds []Command) bool {
			return has(cmds, wire.JobSubmitted, jobs.AttemptID{Task: jobs.TaskID{Job: 2}})
		}
		cmds := step(t, e, 3*time.Second, Heartbeat{Host: 0}) // the map has nothing to do: job 1 ends
		if submitted(cmds) != (think == 0) || e.Idle() {
			t.Errorf("think time %v: commands %v at the end of job 1, idle: %v", think, cmds, e.Idle())
		}
		if think > 0 {
			if next := e.NextWake(); next != 3*time.Second+think {
				t.Errorf("next step at %v, want %v", next, 3*time.Second+think)
			}
			if cmds := step(t, e, 3*time.Second+think); !submitted(cmds) {
				t.Errorf("commands %v after the think time", cmds)
			}
		}
		step(t, e, 10*time.Second, Heartbeat{Host: 0})
		if !e.Idle() {
			t.Errorf("%s are left", e.Unfinished())
		}
	}
}

// A fetch is a flow that joins the job's open coflow, and its policy sees the coflow only while a
// flow of it runs.
func TestShuffleIsAnOpenCoflow(t *testing.T) {
	e, id := oneTask(t)
	step(t, e, 2*time.Second, OutputSpilled{id})
	cmds := step(t, e, 3*time.Second, Heartbeat{Host: 3}) // the reduce
	at := slices.IndexFunc(cmds, func(c Command) bool { _, is := c.(StartTransfer); return is })
	if at < 0 || !slices.Contains(cmds, Command(Mark{Kind: MarkCoflow, ID: 100, Host: 3})) {
		t.Fatalf("commands %v: want an open coflow 100 and a flow", cmds)
	}
	f := cmds[at].(StartTransfer)
	if f.Coflow != 100 || f.Flow.Src != 0 || f.Flow.Dst != 3 || f.Flow.Size != 100 || *f.Task.From != id || f.Task.Outputs != 1 {
		t.Errorf("transfer %+v of task %+v: want 100 bytes of %v from host 0 to 3 in coflow 100", f, f.Task, id)
	}
	if len(e.coflows.active) != 1 {
		t.Errorf("%d active coflows while a fetch runs, want 1", len(e.coflows.active))
	}
	cmds = step(t, e, 4*time.Second, TransferProgressed{[]workloads.FlowID{f.Flow.ID}, []units.Bytes{100}}, TransferFinished{f.Flow.ID})
	if !slices.Contains(cmds, Command(Mark{Kind: MarkCoflowClosed, ID: 100, Host: 3, Parts: 1, Size: 100})) || len(e.coflows.active) != 0 || !e.Idle() {
		t.Errorf("commands %v with %d active coflows, idle: %v: want the coflow closed and the job done", cmds, len(e.coflows.active), e.Idle())
	}
}

// A straggler reads at a lower rate from its onset on, not above that of its slow disk, and spills and serves its output
// slowly. It sorts and reduces slowly from its onset on, and its progress is that of its work.
func TestStragglerCommands(t *testing.T) {
	const r80 = 80 * units.Mbps
	late, early := jobs.Stragglers{Probability: 1, Factor: [2]float64{8, 8}, MidTask: 1}, jobs.Stragglers{Probability: 1, Factor: [2]float64{8, 8}}
	for _, tt := range []struct {
		name             string
		s                *jobs.Stragglers
		rate, disk       units.Rate
		want             TaskTransfer // Rate and Slow
		spill, served    units.Rate
		sortIs, reduceIs float64 // times, relative to unloaded ones
	}{
		{"none", nil, r80, r80, TaskTransfer{Rate: r80}, 0, 0, 1, 1},
		{"from the start", &early, r80, 2 * r80, TaskTransfer{Rate: r80 / 8}, r80 / 4, r80 / 4, 8, 8},
		{"above the disk, in memory", &early, r80, r80 / 2, TaskTransfer{Rate: r80 / 8}, r80 / 16, r80 / 16, 8, 8},
		{"above the disk", &early, r80, r80 / 2, TaskTransfer{Rate: r80 / 16}, r80 / 16, r80 / 16, 8, 8},
		{"without a rate", &early, 0, r80, TaskTransfer{Rate: r80 / 8}, r80 / 8, r80 / 8, 8, 0},
		{"without any limit", &early, 0, 0, TaskTransfer{}, 0, 0, 8, 0},
		{"later", &late, r80, 2 * r80, TaskTransfer{Rate: r80, Slow: r80 / 8}, r80 / 4, r80 / 4, 0, 0},
		{"later, without a rate", &late, 0, r80, TaskTransfer{Rate: r80, Slow: r80 / 8}, r80 / 8, r80 / 8, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			const size, out = units.MB, 500 * units.KB
			cfg := testConfig(t, always(free), nil)
			scheduler := schedulers.DefaultFIFO()
			scheduler.Order = schedulers.FIFO{}
			cfg.Tasks = &TaskConfig{Slots: [jobs.TaskKinds]int{1, 1}, Scheduler: scheduler, Settings: tracker.DefaultSettings(), Stragglers: tt.s, Read: tt.disk, Write: tt.disk,
				Stored: []StoredBlock{{Block: 0, Size: size, Hosts: []topo.HostID{1}, Cached: tt.name == "above the disk, in memory"}},
				Jobs: []jobs.Job{{ID: 1, Stages: []jobs.Stage{{Kind: jobs.Map, Tasks: []jobs.Task{{InputSize: size, Rate: tt.rate, Output: []units.Bytes{out}}}},
					{Kind: jobs.Reduce, From: []int{0}, Tasks: []jobs.Task{{SortRate: r80, Rate: tt.rate}}}}}}}
			e := newEngine(t, cfg)
			step(t, e, 0, JobArrived{1})
			read, ok := commandOf[StartTransfer](step(t, e, time.Second, Heartbeat{Host: 0}))
			id := jobs.AttemptID{Task: jobs.TaskID{Job: 1}}
			slow := tt.s.Of(cfg.Seed, id, 0, time.Second)
			tt.want.Attempt, tt.want.Onset = id, units.Bytes(slow.Onset*float64(size))
			if d := cmp.Diff(&tt.want, read.Task); !ok || d != "" || tt.s == &late && tt.want.Onset == 0 {
				t.Fatalf("the read (-want +got):\n%s", d)
			}
			spill, ok := commandOf[SpillOutput](step(t, e, 2*time.Second, TransferFinished{read.Flow.ID}))
			if !ok || spill.Rate != tt.spill {
				t.Errorf("the spill: %+v, want a rate of %v", spill, tt.spill)
			}
			step(t, e, 3*time.Second, OutputSpilled{id})
			fetch, ok := commandOf[StartTransfer](step(t, e, 4*time.Second, Heartbeat{Host: 3}))
			if !ok || fetch.Task.Served != tt.served {
				t.Errorf("the fetch: %+v, want it served at %v", fetch.Task, tt.served)
			}
			reduce := fetch.Task.Attempt
			slow = tt.s.Of(cfg.Seed, reduce, 3, 4*time.Second)
			sort, reduceTime := timeFor(r80, out), timeFor(tt.rate, out)
			all := sort + reduceTime
			for i, cmds := 0, step(t, e, 5*time.Second, TransferFinished{fetch.Flow.ID}); i < 2; i++ {
				part, factor := []time.Duration{sort, reduceTime}[i], []float64{tt.sortIs, tt.reduceIs}[i]
				if part == 0 {
					continue
				}
				c, ok := commandOf[Compute](cmds)
				want := slow.Takes(time.Duration(i)*sort, part, all)
				if factor > 0 && want != time.Duration(factor*float64(part)) || !ok || c.Time != want {
					t.Errorf("part %d computes for %v, want %v", i, c.Time, want)
				}
				step(t, e, time.Duration(6+2*i)*time.Second, TaskProgressed{[]jobs.AttemptID{reduce}, []float64{0.5}})
				if got, want := e.tasks.running[reduce].share, slow.Share(0.5, time.Duration(i)*sort, part, all); got != want || want < 0.5-1e-9 {
					t.Errorf("part %d has done %v after half its time, want %v", i, got, want)
				}
				cmds = step(t, e, time.Duration(7+2*i)*time.Second, TaskComputed{reduce})
			}
			if !e.Idle() || len(e.tasks.served) > 0 {
				t.Errorf("%s, and outputs of %d jobs, are left", e.Unfinished(), len(e.tasks.served))
			}
		})
	}
}

// commandOf returns the first command of a type.
func commandOf[C Command](cmds []Command) (c C, ok bool) {
	for _, cmd := range cmds {
		if c, ok = cmd.(C); ok {
			return c, true
		}
	}
	return c, false
}

// Outputs in one fetch are served one after another, those of others at once.
func TestServedAt(t *testing.T) {
	const slow, fast = 1, 2
	id := func(i int) jobs.AttemptID { return jobs.AttemptID{Task: jobs.TaskID{Job: 1, Index: i}} }
	x := tasks{served: map[jobs.JobID]map[jobs.AttemptID]units.Rate{1: {id(slow): 8 * units.Mbps}}}
	for want, outputs := range map[units.Rate][]tracker.Output{
		0:               {{Attempt: id(fast), Size: units.MB}},
		8 * units.Mbps:  {{Attempt: id(slow), Size: units.MB}},
		32 * units.Mbps: {{Attempt: id(fast), Size: 3 * units.MB}, {Attempt: id(slow), Size: units.MB}},
	} {
		if got := x.servedAt(outputs); got != want {
			t.Errorf("%v: %v, want %v", outputs, got, want)
		}
	}
}
