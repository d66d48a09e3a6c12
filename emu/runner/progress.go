package runner

import (
	"os"
	"sync"
	"time"

	"testbed/emu/engine"
	"testbed/hosts/wire"
	"testbed/results/pcap"
	"testbed/results/verdict"
	"testbed/workloads"
)

// Progress is the state of a run.
type Progress struct {
	Trial, Trials   int // from 1; all arms, repeats and scales
	Arm, Arms       int // from 1
	Repeat, Repeats int // from 1
	Name            string
	Phase           string        // such as "build", "run", "read captures"
	Elapsed         time.Duration // of the arm, on its own clock
	Expected        time.Duration // predicted by the fluid model; 0 if unknown
	// Coflows and Blocks exclude those of tasks.
	Coflows, Blocks, Tasks Count
	Events                 int // number of events of the engine in this repeat
	// Read is the number of bytes of captures read so far, out of ReadAll; 0 in other phases.
	Read, ReadAll int64
	// Verdict is the verdict of the latest repeat; 0 if none has ended, and in a
	// simulation.
	Verdict verdict.Level `json:"-"`
}

// Approximate shares of a repeat on packets, for the progress bar: the end of prediction and
// construction, and the start of reading captures.
const (
	shareOfBuild = 0.05
	shareOfRun   = 0.8
)

// Share returns the approximate share of the whole run that is done, from 0 to 1. All trials have
// the same weight.
func (p Progress) Share() float64 {
	if p.Trials <= 0 {
		return 0
	}
	work := float64(p.Coflows.Done+p.Blocks.Done+p.Tasks.Done) / float64(max(1, p.Coflows.All+p.Blocks.All+p.Tasks.All))
	within := 0.0
	switch p.Phase {
	case PhaseSimulate:
		within = work
	case PhaseRun:
		if p.Expected > 0 {
			work = max(work, min(0.99, float64(p.Elapsed)/float64(p.Expected)))
		}
		within = shareOfBuild + (shareOfRun-shareOfBuild)*work
	case PhaseSettle:
		within = shareOfRun
	case PhaseRead:
		within = shareOfRun
		if p.ReadAll > 0 {
			within += (1 - shareOfRun) * float64(p.Read) / float64(p.ReadAll)
		}
	case PhaseReport:
		if p.ReadAll > 0 {
			within = float64(p.Read) / float64(p.ReadAll)
		}
	case PhaseStore, PhaseEnd:
		within = 1
	}
	return min(1, (float64(p.Trial-1)+within)/float64(p.Trials))
}

// Phases of a repeat, as in Progress.Phase.
const (
	PhaseSimulate = "simulate"
	PhasePredict  = "predict"
	PhaseBuild    = "build"
	PhaseRun      = "run"
	PhaseSettle   = "settle"
	PhaseRead     = "read captures"
	PhaseStore    = "compress captures"   // or remove them
	PhaseReport   = "read captures again" // for a report
	PhaseEnd      = "ended"
)

// Count is a number of finished items out of all.
type Count struct{ Done, All int }

// progress returns the progress of the first attempt at a trial.
func (t *trial) progress(of Progress, report func(Progress)) *progress {
	of.Arm, of.Arms, of.Repeat, of.Repeats, of.Name, of.Verdict = t.place+1, len(t.of.arms), t.repeat+1, len(t.done), t.label(), t.of.last
	p := &progress{report: report, now: of}
	p.count(t.work)
	return p
}

// again returns the progress of the next attempt.
func (p *progress) again(t *trial) *progress {
	return t.progress(Progress{Trial: p.now.Trial, Trials: p.now.Trials}, p.report)
}

// progress updates and reports Progress. A nil progress does nothing.
type progress struct {
	report func(Progress)
	now    Progress
	left   map[workloads.CoflowID]int
	of     map[workloads.FlowID]workloads.CoflowID
}

func (p *progress) count(w work) {
	p.left, p.of = map[workloads.CoflowID]int{}, map[workloads.FlowID]workloads.CoflowID{}
	p.now.Coflows.All = len(w.Coflows)
	for _, wr := range w.Writers {
		p.now.Blocks.All += len(wr.Blocks)
	}
	for i := range w.tasks {
		for _, stage := range w.tasks[i].Stages {
			p.now.Tasks.All += len(stage.Tasks)
		}
	}
}

func (p *progress) phase(name string) {
	p.now.Phase = name
	if p.report != nil {
		p.report(p.now)
	}
}

// reading returns a flows.Options.Read that reports the progress of reading the captures under
// some directories. Several goroutines may call it. It is nil if nothing is to be reported.
func (p *progress) reading(dirs ...string) func(n int64) {
	if p == nil || p.report == nil {
		return nil
	}
	var all int64
	for _, dir := range dirs {
		list, err := pcap.List(dir)
		if err != nil {
			continue // the reader of the directory reports the error
		}
		for _, f := range list {
			if info, err := os.Stat(f.Path); err == nil {
				all += info.Size()
			}
		}
	}
	p.now.Read, p.now.ReadAll = 0, all
	var mu sync.Mutex
	return func(n int64) {
		mu.Lock()
		defer mu.Unlock()
		p.now.Read = min(p.now.Read+n, all)
		p.report(p.now)
	}
}

func (p *progress) at(now time.Duration, evs []engine.Event, cmds []engine.Command) {
	if p == nil {
		return
	}
	p.now.Elapsed = now
	p.now.Events += len(evs)
	for _, ev := range evs {
		switch ev := ev.(type) {
		case engine.CoflowArrived:
			p.left[ev.Coflow.ID] = len(ev.Coflow.Flows)
			for _, f := range ev.Coflow.Flows {
				p.of[f.ID] = ev.Coflow.ID
			}
		case engine.TransferFinished:
			if c, known := p.of[ev.Flow]; known && p.left[c] > 0 { // unless it was given up before, or is a read
				if p.left[c]--; p.left[c] == 0 {
					p.now.Coflows.Done++
				}
			}
		case engine.BlockDurable:
			if int(ev.Block) < p.now.Blocks.All { // those of writers are numbered from 0, those of tasks above
				p.now.Blocks.Done++
			}
		}
	}
	for _, c := range cmds {
		if c, ok := c.(engine.MarkTask); ok && c.Moment == wire.AttemptCommitted {
			p.now.Tasks.Done++
		}
	}
	if p.report != nil {
		p.report(p.now)
	}
}
