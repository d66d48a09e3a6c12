// Package comparison compares coflow policies on a whole trace, in the model of the papers on
// coflows: one non-blocking switch, simulated with fluid flows (emu/flowsim). Every
// policy gets the same coflows at the same times, so completion times are compared
// coflow by coflow.
//
// Experiments (emu/runner) measure the same policies on packets.
package comparison

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"testbed/emu/flowsim"
	"testbed/emu/parallel"
	"testbed/policies"
	"testbed/policies/catalog"
	"testbed/results/tracestats"
	"testbed/topo/units"
	"testbed/workloads"
)

// Policy is a coflow policy by name and parameters.
type Policy struct {
	Name   string         `json:"name"`
	Params map[string]any `json:"params,omitempty"`
}

// ParsePolicy parses a policy such as "aalo" or "aalo:interval=8ms,queues=4". The error joins
// all errors found.
func ParsePolicy(text string) (Policy, error) {
	name, rest, given := strings.Cut(text, ":")
	p := Policy{Name: name}
	if given {
		p.Params = map[string]any{}
		for pair := range strings.SplitSeq(rest, ",") {
			key, value, ok := strings.Cut(pair, "=")
			if !ok || key == "" || value == "" {
				return Policy{}, fmt.Errorf("policy %q: %q: expected parameters such as aalo:interval=8ms,inside=even", text, pair)
			}
			if _, twice := p.Params[key]; twice {
				return Policy{}, fmt.Errorf("policy %q: parameter %q twice", text, key)
			}
			p.Params[key] = scalar(value)
		}
	}
	if err := errors.Join(catalog.All().Check(catalog.RoleCoflow, p.Name, p.Params)...); err != nil {
		return Policy{}, err
	}
	return p, nil
}

// scalar returns a value as YAML would read it.
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

// String returns the form that ParsePolicy parses, with parameters in order of name.
func (p Policy) String() string {
	var b strings.Builder
	b.WriteString(p.Name)
	for i, key := range slices.Sorted(maps.Keys(p.Params)) {
		b.WriteString(map[bool]string{true: ":", false: ","}[i == 0])
		fmt.Fprintf(&b, "%s=%v", key, p.Params[key])
	}
	return b.String()
}

// Options state what is simulated. The zero value, with Policies, is the papers' model: 1 Gbps
// ports on which 1 MB takes 8 ms.
type Options struct {
	Policies []Policy // distinct, at least one
	Base     int      // index of the one with which the others are compared
	Ports    flowsim.Ports
	First    int // only the first First coflows; 0 is all
	// Quantum and Resolution are those of flowsim.Config, as is Interval, for the
	// coordinator's counts; 0 counts nothing.
	Quantum, Resolution, Interval time.Duration
	// Memory bounds the memory of the study without the trace; 0 is no limit. Fewer
	// policies run in parallel if that fits. A study that does not fit is refused with a
	// *flowsim.MemoryError, or ends with one as soon as that is known.
	Memory units.Bytes
	Bins   tracestats.Bins // zero stands for tracestats.DefaultBins of the trace's MB
}

// Outcome is the result of a study.
type Outcome struct {
	Trace   string `json:"trace"`
	Coflows int    `json:"coflows"`
	Flows   int    `json:"flows"`
	// Rate is that of a port; MB is the bytes of a MB of the trace, 0 if its sizes are in bytes.
	Rate units.Rate  `json:"rate"`
	MB   units.Bytes `json:"bytes_per_mb,omitempty"`
	Base string      `json:"base"`
	Runs []Run       `json:"runs"` // parallel to Options.Policies
	// Left is the number of coflows left out because they had only flows from a port to itself.
	Left int `json:"left_out"`
}

// Run is the result of one policy.
type Run struct {
	Policy      string              `json:"policy"`
	Summary     tracestats.Summary  `json:"summary"`
	Speedup     tracestats.Speedup  `json:"speedup"` // relative to the base
	Took        time.Duration       `json:"took_ns"` // to simulate
	Events      int64               `json:"events"`
	Decisions   int64               `json:"decisions"`
	Coordinator flowsim.Coordinator `json:"coordinator"`
	Coflows     []flowsim.Coflow    `json:"-"`
}

// Times returns a run's coflows in the form of package results.
func (r Run) Times() []tracestats.Coflow {
	out := make([]tracestats.Coflow, len(r.Coflows))
	for i, c := range r.Coflows {
		out[i] = tracestats.Coflow{ID: c.ID, Arrival: c.Arrival, CCT: c.CCT(), Bound: c.Bound, Width: c.Width, Size: c.Size, Largest: c.Largest}
	}
	return out
}

// Progress is the progress of a study.
type Progress struct {
	Policy    string
	Run, Runs int // of policies, from 1
	flowsim.Progress
}

// Do runs all policies on a trace, in parallel on the available processors. clock returns the
// time that has passed on the machine; report, which may be nil, is called with the progress
// of one policy after the other.
func Do(ctx context.Context, t *workloads.Trace, o Options, clock func() time.Duration, report func(Progress)) (*Outcome, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	if o.Bins == (tracestats.Bins{}) {
		o.Bins = tracestats.DefaultBins(MB(t, o.Ports))
	}
	trace := *t
	if o.First > 0 && o.First < len(t.Coflows) {
		trace.Coflows = t.Coflows[:o.First]
	}
	share, atOnce, err := o.divide(&trace)
	if err != nil {
		return nil, err
	}
	fabric, work, err := o.Ports.Coflows(&trace)
	if err != nil {
		return nil, err
	}
	if len(work) == 0 {
		return nil, fmt.Errorf("trace %s: no coflows to simulate: must have one, with a flow between two ports if flows inside a port are left out", t.Name)
	}
	out := &Outcome{Trace: t.Name, Coflows: len(work), Base: o.Policies[o.Base].String(), Left: len(trace.Coflows) - len(work)}
	if out.Rate = o.Ports.Rate; !t.InBytes {
		out.MB = o.Ports.MB
	}
	for _, c := range work {
		out.Flows += len(c.Flows)
	}
	out.Runs = make([]Run, len(o.Policies))
	wait := parallel.StartAtMost(ctx, len(o.Policies), atOnce, report, func(ctx context.Context, i int, tell func(Progress)) error {
		p := o.Policies[i]
		s, err := p.scheduler()
		if err != nil {
			return err
		}
		cfg := flowsim.Config{Fabric: fabric, Scheduler: s, Quantum: o.Quantum, Resolution: o.Resolution, Interval: o.Interval, Memory: share}
		began := clock()
		r, err := flowsim.Run(ctx, cfg, work, func(now flowsim.Progress) { tell(Progress{p.String(), i + 1, len(o.Policies), now}) })
		if err != nil {
			return fmt.Errorf("policy %s: %w", p, err)
		}
		run := Run{Policy: p.String(), Took: clock() - began, Events: r.Events, Decisions: r.Decisions, Coordinator: r.Coordinator, Coflows: r.Coflows}
		run.Summary = tracestats.Summarize(run.Times(), o.Bins)
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
		if out.Runs[i].Speedup, err = tracestats.Faster(base, out.Runs[i].Times()); err != nil {
			return nil, fmt.Errorf("policy %s compared with %s: %w", out.Runs[i].Policy, out.Base, err)
		}
	}
	return out, nil
}

// MB returns the bytes of an MB of the trace on ports: 2²⁰ in a trace in bytes, as in
// workloads.Trace.Bin.
func MB(t *workloads.Trace, p flowsim.Ports) units.Bytes {
	if t.InBytes {
		return units.MiB
	}
	return cmp.Or(p.MB, workloads.DefaultMB)
}

func (p Policy) scheduler() (policies.CoflowScheduler, error) {
	return catalog.Coflow(p.Name, p.Params)
}

func (o *Options) complete() error {
	if len(o.Policies) == 0 {
		return errors.New("no policies to simulate: must be at least one")
	}
	if o.Base < 0 || o.Base >= len(o.Policies) {
		return fmt.Errorf("policy %d of %d as the base: must be one of them", o.Base, len(o.Policies))
	}
	if o.First < 0 {
		return fmt.Errorf("the first %d coflows: must be 0 (all) or more", o.First)
	}
	for i, p := range o.Policies {
		for _, q := range o.Policies[:i] {
			if p.String() == q.String() {
				return fmt.Errorf("policy %s twice: policies must differ", p)
			}
		}
	}
	o.Ports.MB = cmp.Or(o.Ports.MB, workloads.DefaultMB)
	o.Ports.Rate = cmp.Or(o.Ports.Rate, units.Gbps)
	return nil
}
