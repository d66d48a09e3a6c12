package live

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"testbed/emu/engine"
	"testbed/emu/engine/tracker"
	"testbed/emu/fault"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/longtest"
	"testbed/hosts/wire"
	"testbed/policies"
	schedulers "testbed/policies/tasks"
	"testbed/results/flows"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// The jobs of a strike: job 1 is in a long phase when the fault begins, job 2 runs meanwhile, and job 3
// needs all slots at once afterwards.
const (
	victimJob, otherJob, probeJob jobs.JobID = 1, 2, 3
	strikeSlots                              = 2 // of each kind, on each host
	strikeDetect                             = 400 * time.Millisecond
	strikeDelay                              = 150 * time.Millisecond // from the beginning of the phase
)

// phase is what an attempt of job 1 does when the fault begins, and takes about a second.
type phase struct {
	name   string
	rate   units.Rate  // of the map and of the reduce
	output units.Bytes // of a map
	writes units.Bytes // of the reduce
	disk   units.Rate
	// begins returns the event with which the phase ends, if a command begins it, its attempt, and the
	// host that sends to the attempt's host, or that one.
	begins func(s *strike, c engine.Command) (ends engine.Event, of jobs.AttemptID, from topo.HostID)
}

var taskPhases = []phase{
	{name: "read", rate: 4 * units.Mbps, output: 20 * units.KB, disk: 40 * units.Mbps,
		begins: func(_ *strike, c engine.Command) (engine.Event, jobs.AttemptID, topo.HostID) {
			if c, ok := c.(engine.StartTransfer); ok && c.Read != nil {
				return engine.TransferFinished{Flow: c.Flow.ID}, c.Task.Attempt, c.Flow.Src
			}
			return nil, jobs.AttemptID{}, 0
		}},
	{name: "spill", rate: 40 * units.Mbps, output: units.MB, disk: 8 * units.Mbps,
		begins: func(_ *strike, c engine.Command) (engine.Event, jobs.AttemptID, topo.HostID) {
			if c, ok := c.(engine.SpillOutput); ok {
				return engine.OutputSpilled{Attempt: c.Attempt}, c.Attempt, c.Host
			}
			return nil, jobs.AttemptID{}, 0
		}},
	{name: "fetch", rate: 80 * units.Mbps, output: 3 * units.MB, disk: 80 * units.Mbps,
		begins: func(_ *strike, c engine.Command) (engine.Event, jobs.AttemptID, topo.HostID) {
			if c, ok := c.(engine.StartTransfer); ok && c.Task.From != nil {
				return engine.TransferFinished{Flow: c.Flow.ID}, c.Task.Attempt, c.Flow.Src
			}
			return nil, jobs.AttemptID{}, 0
		}},
	{name: "compute", rate: 8 * units.Mbps, output: 500 * units.KB, disk: 40 * units.Mbps,
		begins: func(_ *strike, c engine.Command) (engine.Event, jobs.AttemptID, topo.HostID) {
			if c, ok := c.(engine.Compute); ok {
				return engine.TaskComputed{Attempt: c.Attempt}, c.Attempt, c.Host
			}
			return nil, jobs.AttemptID{}, 0
		}},
	{name: "write", rate: 40 * units.Mbps, output: 20 * units.KB, writes: units.MB, disk: 8 * units.Mbps,
		begins: func(s *strike, c engine.Command) (engine.Event, jobs.AttemptID, topo.HostID) {
			if c, ok := c.(engine.StartChain); ok { // no other job writes
				return engine.BlockDurable{Block: c.Block.ID}, s.reduceOn(c.Block.Client), c.Targets[1]
			}
			return nil, jobs.AttemptID{}, 0
		}},
}

// strike is a rig on which a fault begins in the middle of a phase of an attempt of job 1. It observes
// all attempts.
type strike struct {
	*rig
	schedulers.Scheduler
	policies.TaskInstance
	phase  phase
	hit    func(s *strike, now time.Duration)
	config engine.TaskConfig

	ends     engine.Event // that ends the phase; nil before it begins
	victim   jobs.AttemptID
	host     topo.HostID // of victim
	from     topo.HostID
	at       time.Duration // when the fault begins
	done     bool          // it has begun
	kill     bool
	crashed  topo.HostID   // by the fault; -1 for none
	struck   time.Duration // when the fault began
	back     time.Duration // when it is over
	attempts map[jobs.AttemptID]*observed
	jobs     map[jobs.JobID]wire.Moment
	busiest  [jobs.TaskKinds]int // of attempts of job 3 at the same time
	now      time.Duration
}

// observed is an attempt as its moments show it.
type observed struct {
	host       topo.HostID
	kind       jobs.TaskKind
	start, end time.Duration
	outcome    wire.Moment
}

// Needs, New and Assign make a strike a scheduler that kills the victim.
func (s *strike) Needs() policies.Facts {
	return s.Scheduler.Needs() | policies.EveryHeartbeat
}

func (s *strike) New() policies.TaskInstance {
	s.TaskInstance = s.Scheduler.New()
	return s
}

// Until the phase begins, no attempt of job 1 runs where its input is or, as a reduce, on the host of its map: it would
// read and fetch nothing over the network.
func (s *strike) Assign(v *policies.TaskView, a *policies.Assignment) {
	s.TaskInstance.Assign(v, a)
	a.Launch = slices.DeleteFunc(a.Launch, func(l policies.Launch) bool {
		return s.ends == nil && v.Jobs[l.Job].ID == victimJob && (l.Locality == policies.NodeLocal || l.Stage > 0 && s.ranOn(v.Host))
	})
	if s.kill {
		a.Kill, s.kill = append(a.Kill, s.victim), false
	}
}

// ranOn reports whether an attempt of job 1 has been on a host.
func (s *strike) ranOn(h topo.HostID) bool {
	for id, a := range s.attempts {
		if id.Task.Job == victimJob && a.host == h {
			return true
		}
	}
	return false
}

// Await is engine.Backend's: it begins the fault when it is time.
func (s *strike) Await(ctx context.Context, wake time.Duration) (time.Duration, []engine.Event, error) {
	if s.ends != nil && !s.done {
		wake = min(wake, s.at)
	}
	now, evs, err := s.rig.Await(ctx, wake)
	if err == nil && s.ends != nil && !s.done {
		if slices.ContainsFunc(evs, is(s.ends)) {
			return now, nil, fmt.Errorf("the phase ended before %v, when the fault begins: it must last longer", s.at)
		}
		if now >= s.at {
			s.done, s.struck, s.back = true, now, now
			s.hit(s, now)
		}
	}
	return now, evs, err
}

// observe is an engine.Observer.
func (s *strike) observe(now time.Duration, _ []engine.Event, cmds []engine.Command) error {
	s.now = now
	for _, cmd := range cmds {
		if m, ok := cmd.(engine.MarkTask); ok {
			s.marked(m)
		}
		if s.ends != nil {
			continue
		}
		if ends, of, from := s.phase.begins(s, cmd); ends != nil && of.Task.Job == victimJob {
			s.ends, s.victim, s.from, s.host, s.at = ends, of, from, s.attempts[of].host, now+strikeDelay
		}
	}
	return nil
}

func (s *strike) marked(m engine.MarkTask) {
	switch id := m.Attempt; {
	case m.Moment.OfJob():
		s.jobs[id.Task.Job] = m.Moment
	case m.Moment == wire.AttemptStarted:
		s.attempts[id] = &observed{host: m.Host, kind: m.Kind, start: s.now}
	case m.Moment >= wire.AttemptCommitted:
		s.attempts[id].end, s.attempts[id].outcome = s.now, m.Moment
	}
	var busy [jobs.TaskKinds]int
	for id, a := range s.attempts {
		if id.Task.Job == probeJob && a.outcome == 0 {
			busy[a.kind]++
			s.busiest[a.kind] = max(s.busiest[a.kind], busy[a.kind])
		}
	}
}

// reduceOn returns the newest attempt of the reduce of job 1 on a host.
func (s *strike) reduceOn(h topo.HostID) (id jobs.AttemptID) {
	for a, o := range s.attempts {
		if a.Task.Job == victimJob && a.Task.Stage == 1 && o.host == h && a.N >= id.N {
			id = a
		}
	}
	return id
}

// fault begins faults now.
func (s *strike) fault(t *testing.T, faults ...fault.Fault) {
	steps, err := fault.Compile(s.fabric, faults)
	if err != nil {
		t.Error(err)
	}
	s.faults.schedule(steps)
	s.work.Go(func() error {
		if err := s.faults.run(s.workCtx); err != nil {
			s.fail(err)
		}
		return nil
	})
}

// job adds a job of maps, whose blocks are stored on the given hosts, and reduces.
func (s *strike) job(id jobs.JobID, blocks [][]topo.HostID, size units.Bytes, reduces int, m, r jobs.Task, output units.Bytes) {
	j := jobs.Job{ID: id, Stages: []jobs.Stage{{Kind: jobs.Map}, {Kind: jobs.Reduce, From: []int{0}, Tasks: slices.Repeat([]jobs.Task{r}, reduces)}}}
	for _, hosts := range blocks {
		m.Input, m.InputSize = workloads.BlockID(1+len(s.config.Stored)), size
		m.Output = slices.Repeat([]units.Bytes{output / units.Bytes(reduces)}, reduces)
		s.config.Stored = append(s.config.Stored, engine.StoredBlock{Block: m.Input, Size: size, Hosts: hosts})
		j.Stages[0].Tasks = append(j.Stages[0].Tasks, m)
	}
	s.config.Jobs = append(s.config.Jobs, j)
}

// newStrike makes the jobs and their rig. The input of job 1 has replicas on the given hosts.
func newStrike(t *testing.T, p phase, replicas ...topo.HostID) *strike {
	t.Helper()
	s := &strike{Scheduler: schedulers.DefaultFIFO(), phase: p, crashed: -1, attempts: map[jobs.AttemptID]*observed{}, jobs: map[jobs.JobID]wire.Moment{}}
	s.config = engine.TaskConfig{Slots: [jobs.TaskKinds]int{strikeSlots, strikeSlots}, Scheduler: s, Settings: tracker.DefaultSettings(),
		Output: workloads.Block{Size: units.MB, Replicas: 2, Packet: 16 * units.KB, Window: 4}}
	s.config.Slowstart = 1
	const small = 100 * units.KB
	s.job(victimJob, [][]topo.HostID{replicas}, 500*units.KB, 1,
		jobs.Task{Rate: p.rate}, jobs.Task{Rate: p.rate, Writes: p.writes}, p.output)
	s.job(otherJob, [][]topo.HostID{{0, 5}, {1, 4}, {2, 3}, {3, 0}, {4, 1}, {5, 2}}, small, 4, jobs.Task{Rate: 4 * units.Mbps}, jobs.Task{Rate: 4 * units.Mbps}, small)
	var everywhere [][]topo.HostID
	for i := range strikeSlots * 6 {
		everywhere = append(everywhere, []topo.HostID{topo.HostID(i % 6), topo.HostID((i + 1) % 6)})
	}
	s.job(probeJob, everywhere, small, strikeSlots*6, jobs.Task{Rate: 2 * units.Mbps}, jobs.Task{Rate: 400 * units.Kbps}, 2*small/units.Bytes(10))

	running := goroutines(t)
	before := running()
	t.Cleanup(func() { // after the testbed is removed
		awaitGoroutines(t, running, before)
		if s.rig == nil {
			return
		}
		if left, err := os.ReadDir(filepath.Dir(s.cfg.Pins)); !os.IsNotExist(err) {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
	s.rig = newRigWith(t, 20*units.Mbps, slices.Repeat([]units.Rate{p.disk}, 6), nil, nil, func(c *Config) {
		c.Stored, c.DiskRead, c.Detect, c.Settings.PeerTimeout = s.config.Stored, 80*units.Mbps, strikeDetect, strikeDetect+time.Second
	})
	return s
}

// run runs jobs 1 and 2 with the fault, then job 3, and checks what must hold after any fault. It
// returns what the captures show.
func (s *strike) run(t *testing.T, failed ...jobs.JobID) flows.Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), netnstest.Patience(25*time.Second))
	defer cancel()
	e := taskEngine(t, s.rig, &s.config)
	submit := func(at time.Duration, jobs ...jobs.JobID) {
		var arrivals []engine.Arrival
		for _, id := range jobs {
			arrivals = append(arrivals, engine.Arrival{At: at, Event: engine.JobArrived{Job: id}})
		}
		if err := engine.Run(ctx, e, s, arrivals, s.observe); err != nil {
			t.Fatal(err)
		}
	}
	submit(0, victimJob, otherJob)
	if !s.done {
		t.Fatal("no attempt was in the phase")
	}
	submit(s.back+200*time.Millisecond, probeJob)

	for _, j := range s.config.Jobs {
		want := wire.JobDone
		if slices.Contains(failed, j.ID) {
			want = wire.JobFailed
		}
		if s.jobs[j.ID] != want {
			t.Errorf("job %d: %v, want %v", j.ID, s.jobs[j.ID], want)
		}
	}
	for k, n := range s.busiest {
		if n != strikeSlots*s.fabric.Hosts() {
			t.Errorf("at most %d attempts of kind %d at the same time after the fault, want one on each of %d slots", n, k, strikeSlots*s.fabric.Hosts())
		}
	}
	s.nothingLeft(t)
	_, res := s.finish(t)
	if len(res.Problems) > 0 {
		t.Errorf("problems: %v", res.Problems)
	}
	if len(res.Attempts) != len(s.attempts) || len(res.Jobs) != len(s.config.Jobs)-len(failed) {
		t.Errorf("captures show %d attempts and %d jobs, want %d and %d", len(res.Attempts), len(res.Jobs), len(s.attempts), len(s.config.Jobs)-len(failed))
	}
	commits, lost := map[jobs.TaskID]int{}, map[jobs.TaskID]int{}
	for _, a := range res.Attempts {
		id := jobs.TaskID{Job: jobs.JobID(a.Job), Stage: a.Stage, Index: a.Task}
		o := s.attempts[jobs.AttemptID{Task: id, N: a.Attempt}]
		switch {
		case o == nil || o.outcome == 0 || a.Slot >= strikeSlots:
			t.Errorf("attempt %+v, observed %+v", a, o)
		case a.Outcome != flows.Committed:
		case a.Stage == 0 && o.host == s.crashed && o.end < s.struck+strikeDetect: // its output is lost
			lost[id]++
		default:
			commits[id]++
		}
	}
	for _, j := range s.config.Jobs {
		for stage, st := range j.Stages {
			for i := range st.Tasks {
				id := jobs.TaskID{Job: j.ID, Stage: stage, Index: i}
				if n := commits[id]; n > 1 || lost[id] > 1 || n+lost[id] == 0 && !slices.Contains(failed, j.ID) {
					t.Errorf("task %d.%d of job %d commits %d times, and %d times before its output is lost", stage, i, j.ID, n, lost[id])
				}
			}
		}
	}
	return res
}

// nothingLeft checks that disks have the input, and the replicas of the output of the reduce that
// committed.
func (s *strike) nothingLeft(t *testing.T) {
	t.Helper()
	s.deletions.Wait()
	files, err := filepath.Glob(filepath.Join(s.cfg.Disks, "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	var stored, used units.Bytes
	for _, v := range s.volumes {
		used += v.Used()
	}
	written := len(files)
	for _, b := range s.config.Stored {
		stored += b.Size * units.Bytes(len(b.Hosts))
		written -= len(b.Hosts)
	}
	if least := int(min(1, s.phase.writes)); written < least || written > 2*least || used != stored+units.Bytes(written)*s.phase.writes {
		t.Errorf("disks have %v in files %v, want the input of %v and at most two replicas of the output", used, files, stored)
	}
}

// outcomes counts the attempts that ended with an outcome, by job.
func outcomes(res flows.Result, outcome string) map[jobs.JobID]int {
	n := map[jobs.JobID]int{}
	for _, a := range res.Attempts {
		if a.Outcome == outcome {
			n[jobs.JobID(a.Job)]++
		}
	}
	return n
}

// crash crashes a host for a time.
func (s *strike) crash(t *testing.T, h topo.HostID, d time.Duration) {
	s.crashed, s.back = h, s.back+d
	s.fault(t, fault.Fault{Kind: fault.HostCrash, Name: "crash", At: s.struck, For: d, Host: h})
}

// A host that crashes in whatever phase an attempt on it is, and returns, costs this attempt and the
// others on the host. All jobs end, all slots are free again, no task commits twice and nothing is left.
func TestCrashInEveryPhase(t *testing.T) {
	t.Parallel()
	longtest.Skip(t, "runs jobs on packets, 17 s")
	for _, p := range taskPhases {
		t.Run(p.name, func(t *testing.T) {
			s := newStrike(t, p, 1, 4)
			s.hit = func(s *strike, _ time.Duration) { s.crash(t, s.host, 800*time.Millisecond) }
			res := s.run(t)
			if o := s.attempts[s.victim]; o.outcome != wire.AttemptFailed || o.end < s.struck+strikeDetect/2 {
				t.Errorf("attempt %v on %d: %v at %v, after a crash at %v", s.victim, s.host, o.outcome, o.end, s.struck)
			}
			if n := outcomes(res, flows.Failed)[probeJob]; n > 0 {
				t.Errorf("%d attempts fail after the return", n)
			}
		})
	}
}

// A host that crashes while clones of the attempt on it run, in whatever phase, costs no job: a clone wins, or the attempt
// that the task gets next. With the time to make copies, a lost output has another copy or is computed again.
func TestCrashAmongClonesInEveryPhase(t *testing.T) {
	t.Parallel()
	longtest.Nightly(t, "runs jobs on packets, 17 s")
	for _, p := range taskPhases {
		t.Run(p.name, func(t *testing.T) {
			s := newStrike(t, p, 1, 4, 5)
			s.Cloning.On, s.Cloning.Budget, s.Cloning.Utilization = true, 0.4, 1 // job 3 is too large for clones
			s.Cloning.Reads, s.Cloning.Wait = schedulers.DelayedCopy, schedulers.SameWaits(time.Second)
			var alive int
			s.hit = func(s *strike, _ time.Duration) {
				for id, o := range s.attempts {
					if id.Task == s.victim.Task && id != s.victim && o.outcome == 0 {
						alive++
					}
				}
				s.crash(t, s.host, 800*time.Millisecond)
			}
			s.run(t)
			if o := s.attempts[s.victim]; o.outcome != wire.AttemptFailed && o.outcome != wire.AttemptKilled {
				t.Errorf("attempt %v on %d: %v at %v, after a crash at %v", s.victim, s.host, o.outcome, o.end, s.struck)
			}
			if alive == 0 {
				t.Errorf("no clone of %v ran at the crash", s.victim)
			}
		})
	}
}

// If the host from which an attempt reads or fetches, or that stores a replica of its output, crashes, the
// attempt continues with another one, or waits for the output of a new attempt.
func TestCrashOfTheOtherEnd(t *testing.T) {
	t.Parallel()
	longtest.Nightly(t, "runs jobs on packets, 12 s")
	for _, p := range taskPhases {
		if !slices.Contains([]string{"read", "fetch", "write"}, p.name) {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			s := newStrike(t, p, 1, 4)
			s.hit = func(s *strike, _ time.Duration) {
				if s.from == s.host {
					t.Fatalf("host %d is at both ends", s.host)
				}
				s.crash(t, s.from, 800*time.Millisecond)
			}
			s.run(t)
			if o := s.attempts[s.victim]; o.outcome != wire.AttemptCommitted || o.end < s.struck+strikeDetect/2 {
				t.Errorf("attempt %v on %d: %v at %v, after a crash of %d at %v", s.victim, s.host, o.outcome, o.end, s.from, s.struck)
			}
		})
	}
}

// A job fails if the only replica of its input is on a host that is lost. No other job does.
func TestCrashOfTheOnlyReplica(t *testing.T) {
	t.Parallel()
	longtest.Skip(t, "runs jobs on packets, 4 s")
	s := newStrike(t, taskPhases[0], 1)
	s.hit = func(s *strike, _ time.Duration) { s.crash(t, s.from, 1500*time.Millisecond) }
	s.run(t, victimJob)
}

// A host that returns before the master misses it has lost its attempts too.
func TestShortCrash(t *testing.T) {
	t.Parallel()
	longtest.Skip(t, "runs jobs on packets, 4 s")
	s := newStrike(t, taskPhases[3], 1, 4)
	s.hit = func(s *strike, _ time.Duration) { s.crash(t, s.host, strikeDetect/2) }
	s.run(t)
	if o := s.attempts[s.victim]; o.outcome != wire.AttemptFailed {
		t.Errorf("attempt %v: %v", s.victim, o.outcome)
	}
}

// An attempt that is killed in whatever phase ends, and its task runs again. Nothing else ends.
func TestKillInEveryPhase(t *testing.T) {
	t.Parallel()
	longtest.Nightly(t, "runs jobs on packets, 15 s")
	for _, p := range taskPhases {
		t.Run(p.name, func(t *testing.T) {
			s := newStrike(t, p, 1, 4)
			s.hit = func(s *strike, _ time.Duration) { s.kill = true }
			res := s.run(t)
			if o := s.attempts[s.victim]; o.outcome != wire.AttemptKilled {
				t.Errorf("attempt %v: %v, want killed", s.victim, o.outcome)
			}
			if killed, failed := outcomes(res, flows.Killed), outcomes(res, flows.Failed); killed[victimJob] != 1 || len(killed) != 1 || len(failed) > 0 {
				t.Errorf("attempts killed %v and failed %v, by job", killed, failed)
			}
		})
	}
}

// Attempts on a host whose reports are lost for a second continue and commit. Meanwhile it gets no new
// ones.
func TestSilenceUnderTasks(t *testing.T) {
	t.Parallel()
	longtest.Skip(t, "runs jobs on packets, 3 s")
	s := newStrike(t, taskPhases[0], 1, 4)
	s.hit = func(s *strike, now time.Duration) {
		s.back = now + time.Second
		s.fault(t, fault.Fault{Kind: fault.LostReports, Name: "lost reports", At: now, For: time.Second, Hosts: []topo.HostID{s.host}})
	}
	res := s.run(t)
	if n := len(outcomes(res, flows.Failed)) + len(outcomes(res, flows.Killed)); n > 0 {
		t.Errorf("attempts of %d jobs did not commit", n)
	}
	const report = 100 * time.Millisecond // the last one before may arrive later
	for id, o := range s.attempts {
		if o.host == s.host && o.start > s.struck+report && o.start < s.back {
			t.Errorf("attempt %v begins at %v on host %d, which is silent from %v to %v", id, o.start, o.host, s.struck, s.back)
		}
	}
}
