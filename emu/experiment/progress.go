package experiment

import (
	"os"
	"strings"
	"sync"
	"time"

	"testbed/emu/engine"
	"testbed/results/flows"
	"testbed/results/verdict"
	"testbed/workloads"
)

// Progress is where a run is.
type Progress struct {
	Arm, Arms       int // from 1
	Repeat, Repeats int // from 1
	Name            string
	Phase           string        // such as "build", "run", "read captures"
	Elapsed         time.Duration // of the arm, on its own clock
	Expected        time.Duration // as the fluid model has it; 0 if unknown
	Coflows, Blocks Count
	Events          int // that the engine was told of in this repeat
	// Read of ReadAll bytes of captures were read; 0 in other phases.
	Read, ReadAll int64
	// Verdict is that of the repeat that ended last; 0 where none has, and in a
	// simulation.
	Verdict verdict.Level
}

// Parts of a repeat on packets, roughly: what the bar takes building and predicting
// for, and where reading captures begins.
const (
	shareOfBuild = 0.05
	shareOfRun   = 0.8
)

// Share is roughly how much of the whole is done, from 0 to 1. A repeat of an arm
// counts as much as any other.
func (p Progress) Share() float64 {
	if p.Arms <= 0 || p.Repeats <= 0 {
		return 0
	}
	work := float64(p.Coflows.Done+p.Blocks.Done) / float64(max(1, p.Coflows.All+p.Blocks.All))
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
	case PhaseEnd:
		within = 1
	}
	return min(1, (float64((p.Repeat-1)*p.Arms+p.Arm-1)+within)/float64(p.Arms*p.Repeats))
}

// Phases of a repeat, as in Progress.Phase.
const (
	PhaseSimulate = "simulate"
	PhasePredict  = "predict"
	PhaseBuild    = "build"
	PhaseRun      = "run"
	PhaseSettle   = "settle"
	PhaseRead     = "read captures"
	PhaseReport   = "read captures again" // for a report
	PhaseEnd      = "ended"
)

// Count is how many of how many are done.
type Count struct{ Done, All int }

// progress is that of a try of a repeat of an arm.
func (r *run) progress(arm, repeat int, w workloads.Workload) *progress {
	p := &progress{tell: r.o.Progress, now: Progress{Arm: arm + 1, Arms: len(r.arms), Repeat: repeat + 1, Repeats: r.s.Spec.Repeat, Name: r.arms[arm].Name, Verdict: r.last}}
	p.count(w)
	return p
}

// progress keeps and tells Progress. A nil progress tells nobody.
type progress struct {
	tell func(Progress)
	now  Progress
	left map[workloads.CoflowID]int
	of   map[workloads.FlowID]workloads.CoflowID
}

func (p *progress) count(w workloads.Workload) {
	p.left, p.of = map[workloads.CoflowID]int{}, map[workloads.FlowID]workloads.CoflowID{}
	p.now.Coflows.All = len(w.Coflows)
	for _, wr := range w.Writers {
		p.now.Blocks.All += len(wr.Blocks)
	}
}

func (p *progress) phase(name string) {
	p.now.Phase = name
	if p.tell != nil {
		p.tell(p.now)
	}
}

// reading tells how much of the captures under some directories is read, as a
// flows.Options.Read. It is called from several goroutines. It is nil where nobody
// is to be told.
func (p *progress) reading(dirs ...string) func(n int64) {
	if p == nil || p.tell == nil {
		return nil
	}
	var all int64
	for _, dir := range dirs {
		entries, err := os.ReadDir(dir)
		if err != nil {
			continue // whoever reads them says so
		}
		for _, e := range entries {
			if info, err := e.Info(); err == nil && strings.HasSuffix(e.Name(), flows.Suffix) {
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
		p.tell(p.now)
	}
}

func (p *progress) at(now time.Duration, evs []engine.Event) {
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
			if c, known := p.of[ev.Flow]; known && p.left[c] > 0 { // it may have been given up before, or be a read
				if p.left[c]--; p.left[c] == 0 {
					p.now.Coflows.Done++
				}
			}
		case engine.BlockDurable:
			p.now.Blocks.Done++
		}
	}
	if p.tell != nil {
		p.tell(p.now)
	}
}
