// Package study puts coflow policies side by side on a whole trace, in the model of
// the papers on coflows: one non-blocking switch, simulated as fluids (emu/tracesim).
// Every policy meets the same coflows at the same moments, so its completion times
// are compared coflow by coflow.
//
// What packets make of the same policies is measured by experiments
// (emu/experiment).
package study

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"testbed/emu/abreast"
	"testbed/emu/tracesim"
	"testbed/policies"
	"testbed/policies/catalog"
	"testbed/results/coflows"
	"testbed/topo/units"
	"testbed/workloads"
)

// Policy is a coflow policy by name and parameters.
type Policy struct {
	Name   string         `json:"name"`
	Params map[string]any `json:"params,omitempty"`
}

// ParsePolicy reads a policy as "aalo" or "aalo:interval=8ms,queues=4". The error joins
// all that is wrong with it.
func ParsePolicy(text string) (Policy, error) {
	name, rest, given := strings.Cut(text, ":")
	p := Policy{Name: name}
	if given {
		p.Params = map[string]any{}
		for pair := range strings.SplitSeq(rest, ",") {
			key, value, ok := strings.Cut(pair, "=")
			if !ok || key == "" || value == "" {
				return Policy{}, fmt.Errorf("policy %q: %q: want parameters as in aalo:interval=8ms,inside=even", text, pair)
			}
			if _, twice := p.Params[key]; twice {
				return Policy{}, fmt.Errorf("policy %q: parameter %q twice", text, key)
			}
			p.Params[key] = scalar(value)
		}
	}
	if err := catalog.Check(catalog.RoleCoflow, p.Name, p.Params); err != nil {
		return Policy{}, err
	}
	return p, nil
}

// scalar is a value as YAML would read it.
func scalar(s string) any {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n
	}
	if f, err := strconv.ParseFloat(s, 64); err == nil {
		return f
	}
	if s == "true" || s == "false" {
		return s == "true"
	}
	return s
}

// String is what ParsePolicy reads, parameters in order of name.
func (p Policy) String() string {
	var b strings.Builder
	b.WriteString(p.Name)
	for i, key := range slices.Sorted(maps.Keys(p.Params)) {
		b.WriteString(map[bool]string{true: ":", false: ","}[i == 0])
		fmt.Fprintf(&b, "%s=%v", key, p.Params[key])
	}
	return b.String()
}

// Options say what is simulated. The zero value but for Policies is the papers' model:
// 1 Gbps ports on which 1 MB takes 8 ms.
type Options struct {
	Policies []Policy // different ones, at least one
	Base     int      // place of the one that the others are compared with
	Ports    tracesim.Ports
	First    int // only so many coflows from the start; 0 is all
	// Quantum and Resolution are those of tracesim.Config. Interval, for the
	// coordinator's counts, too; 0 counts nothing.
	Quantum, Resolution, Interval time.Duration
	Bins                          coflows.Bins // zero stands for coflows.DefaultBins of the trace's MB
}

// Outcome is what a study came to.
type Outcome struct {
	Trace   string `json:"trace"`
	Coflows int    `json:"coflows"`
	Flows   int    `json:"flows"`
	Base    string `json:"base"`
	Runs    []Run  `json:"runs"` // parallel to Options.Policies
	// Left is how many coflows had only flows from a port to itself, and were left out.
	Left int `json:"left_out"`
}

// Run is one policy's.
type Run struct {
	Policy      string               `json:"policy"`
	Summary     coflows.Summary      `json:"summary"`
	Speedup     coflows.Speedup      `json:"speedup"` // over the base
	Took        time.Duration        `json:"took_ns"` // to simulate
	Events      int64                `json:"events"`
	Decisions   int64                `json:"decisions"`
	Coordinator tracesim.Coordinator `json:"coordinator"`
	Coflows     []tracesim.Coflow    `json:"-"`
}

// Times are a run's coflows as results know them.
func (r Run) Times() []coflows.Coflow {
	out := make([]coflows.Coflow, len(r.Coflows))
	for i, c := range r.Coflows {
		out[i] = coflows.Coflow{ID: c.ID, Arrival: c.Arrival, CCT: c.CCT(), Bound: c.Bound, Width: c.Width, Size: c.Size, Largest: c.Largest}
	}
	return out
}

// Progress tells how far a study is.
type Progress struct {
	Policy    string
	Run, Runs int // of policies, from 1
	tracesim.Progress
}

// Do runs all policies on a trace, as many at once as there are processors. clock tells
// the time that has passed on the machine, and report, which may be nil, is told of the
// progress of one after the other.
func Do(ctx context.Context, t *workloads.Trace, o Options, clock func() time.Duration, report func(Progress)) (*Outcome, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	if o.Bins == (coflows.Bins{}) {
		o.Bins = coflows.DefaultBins(MB(t, o.Ports))
	}
	trace := *t
	if o.First > 0 && o.First < len(t.Coflows) {
		trace.Coflows = t.Coflows[:o.First]
	}
	fabric, work, err := o.Ports.Coflows(&trace)
	if err != nil {
		return nil, err
	}
	if len(work) == 0 {
		return nil, fmt.Errorf("trace %s: no coflows to simulate: want one, with a flow between two ports if flows inside a port are left out", t.Name)
	}
	out := &Outcome{Trace: t.Name, Coflows: len(work), Base: o.Policies[o.Base].String(), Left: len(trace.Coflows) - len(work)}
	for _, c := range work {
		out.Flows += len(c.Flows)
	}
	out.Runs = make([]Run, len(o.Policies))
	wait := abreast.Start(ctx, len(o.Policies), report, func(ctx context.Context, i int, tell func(Progress)) error {
		p := o.Policies[i]
		s, err := p.scheduler()
		if err != nil {
			return err
		}
		cfg := tracesim.Config{Fabric: fabric, Scheduler: s, Quantum: o.Quantum, Resolution: o.Resolution, Interval: o.Interval}
		began := clock()
		r, err := tracesim.Run(ctx, cfg, work, func(now tracesim.Progress) { tell(Progress{p.String(), i + 1, len(o.Policies), now}) })
		if err != nil {
			return fmt.Errorf("policy %s: %w", p, err)
		}
		run := Run{Policy: p.String(), Took: clock() - began, Events: r.Events, Decisions: r.Decisions, Coordinator: r.Coordinator, Coflows: r.Coflows}
		run.Summary = coflows.Summarize(run.Times(), o.Bins)
		out.Runs[i] = run
		return nil
	})
	for i := range out.Runs {
		if err := wait(i); err != nil {
			return nil, err
		}
	}
	base := out.Runs[o.Base].Times()
	for i := range out.Runs {
		if out.Runs[i].Speedup, err = coflows.Faster(base, out.Runs[i].Times()); err != nil {
			return nil, fmt.Errorf("policy %s beside %s: %w", out.Runs[i].Policy, out.Base, err)
		}
	}
	return out, nil
}

// MB is how many bytes a MB of the trace has on ports: 2²⁰ in a trace in bytes, as
// workloads.Trace.Bin takes it.
func MB(t *workloads.Trace, p tracesim.Ports) units.Bytes {
	switch {
	case t.InBytes:
		return units.MiB
	case p.MB == 0:
		return units.MB
	}
	return p.MB
}

func (p Policy) scheduler() (policies.Scheduler, error) { return catalog.Coflow(p.Name, p.Params) }

func (o *Options) complete() error {
	if len(o.Policies) == 0 {
		return errors.New("no policies to simulate: want at least one")
	}
	if o.Base < 0 || o.Base >= len(o.Policies) {
		return fmt.Errorf("policy %d of %d as the base: want one of them", o.Base, len(o.Policies))
	}
	if o.First < 0 {
		return fmt.Errorf("the first %d coflows: want 0 for all, or more", o.First)
	}
	for i, p := range o.Policies {
		for _, q := range o.Policies[:i] {
			if p.String() == q.String() {
				return fmt.Errorf("policy %s twice: want different ones", p)
			}
		}
	}
	if o.Ports.MB == 0 {
		o.Ports.MB = units.MB
	}
	return nil
}
