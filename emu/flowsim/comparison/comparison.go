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
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"testbed/emu/flowsim"
	"testbed/emu/outside"
	"testbed/emu/parallel"
	"testbed/policies"
	"testbed/policies/catalog"
	"testbed/policies/external"
	"testbed/results/safefile"
	"testbed/results/tracestats"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Policy is a coflow policy by name and parameters.
type Policy struct {
	Name   string         `json:"name"`
	Params map[string]any `json:"params,omitempty"`
}

// ParsePolicy parses a policy of a role such as "aalo" or "aalo:interval=8ms,queues=4", or "exec=python3 mine.py" or
// "wasm=mine.wasm,memory=1MB" for one outside of the program. The error joins all errors found.
func ParsePolicy(role, text string) (Policy, error) {
	name, rest, given := strings.Cut(text, ":")
	p := Policy{Name: name}
	if key, _, _ := strings.Cut(text, "="); catalog.IsExternal(key) {
		p.Name, rest, given = key, text, true
	}
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
			if p.Params[key] = scalar(value); key == catalog.Exec {
				p.Params[key] = command(value)
			}
		}
	}
	if err := errors.Join(catalog.All().Check(role, p.Name, p.Params)...); err != nil {
		return Policy{}, err
	}
	return p, nil
}

// command returns the words of a command.
func command(text string) []any {
	var list []any
	for _, word := range strings.Fields(text) {
		list = append(list, word)
	}
	return list
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
	between := ":"
	if b.WriteString(p.Name); catalog.IsExternal(p.Name) {
		b.WriteString("=" + strings.Trim(fmt.Sprint(p.Params[p.Name]), "[]"))
		between = ","
	}
	for _, key := range slices.Sorted(maps.Keys(p.Params)) {
		if key == p.Name {
			continue
		}
		b.WriteString(between)
		between = ","
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

// Study is a trace and what is simulated on it.
type Study struct {
	Trace *workloads.Trace
	Options
}

// Progress is the progress of studies.
type Progress struct {
	Policy    string
	Run, Runs int // of policies, from 1
	flowsim.Progress
}

// Do runs all policies on a trace, in parallel on the available processors. clock returns the
// time that has passed on the machine; report, which may be nil, is called with the progress
// of one policy after the other.
func Do(ctx context.Context, t *workloads.Trace, o Options, clock func() time.Duration, report func(Progress)) (*Outcome, error) {
	out, err := DoAll(ctx, []Study{{t, o}}, clock, report)
	if err != nil {
		return nil, err
	}
	return out[0], nil
}

// DoAll is Do for several studies. Policies on traces with more flows, which take longer, start
// first, so that no processor is idle for long at the end. If a study limits its memory, no more
// policies run in parallel than fit for it.
func DoAll(ctx context.Context, studies []Study, clock func() time.Duration, report func(Progress)) ([]*Outcome, error) {
	var outs []*Outcome
	var runs []run
	atOnce := runtime.GOMAXPROCS(0)
	for _, x := range studies {
		s, err := x.prepare(atOnce)
		if err != nil {
			return nil, err
		}
		for i := range x.Policies {
			runs = append(runs, run{s, i})
		}
		atOnce = s.atOnce
		outs = append(outs, s.out)
	}
	slices.SortStableFunc(runs, func(a, b run) int { return cmp.Compare(b.out.Flows, a.out.Flows) })
	do := func(ctx context.Context, i int, tell func(Progress)) error {
		return runs[i].simulate(ctx, clock, func(now flowsim.Progress) {
			tell(Progress{runs[i].out.Runs[runs[i].policy].Policy, i + 1, len(runs), now})
		})
	}
	wait := parallel.StartAtMost(ctx, len(runs), atOnce, report, do)
	for i := range runs {
		if err := wait(i); err != nil {
			return nil, err
		}
	}
	for k, out := range outs {
		base := out.Runs[studies[k].Base].Times()
		for i := range out.Runs {
			r := &out.Runs[i]
			var err error
			if r.Speedup, err = tracestats.Faster(base, r.Times()); err != nil {
				return nil, fmt.Errorf("policy %s compared with %s: %w", r.Policy, out.Base, err)
			}
		}
	}
	return outs, nil
}

// study is a Study that is ready to run.
type study struct {
	Options
	fabric *topo.Fabric
	work   []workloads.Coflow
	share  units.Bytes // memory of each policy
	atOnce int         // policies in parallel
	out    *Outcome
}

// run is one policy of a study.
type run struct {
	*study
	policy int
}

// prepare checks the study and lays out its trace. At most atOnce of its policies will run in
// parallel.
func (x Study) prepare(atOnce int) (*study, error) {
	t, s := x.Trace, &study{Options: x.Options}
	if err := s.complete(); err != nil {
		return nil, err
	}
	if s.Bins == (tracestats.Bins{}) {
		s.Bins = tracestats.DefaultBins(MB(t, s.Ports))
	}
	trace := *t
	if s.First > 0 && s.First < len(t.Coflows) {
		trace.Coflows = t.Coflows[:s.First]
	}
	var err error
	if s.share, s.atOnce, err = s.divide(&trace, atOnce); err != nil {
		return nil, err
	}
	if s.fabric, s.work, err = s.Ports.Coflows(&trace); err != nil {
		return nil, err
	}
	if len(s.work) == 0 {
		return nil, fmt.Errorf("trace %s: no coflows to simulate: must have one, with a flow between two ports if flows inside a port are left out", t.Name)
	}
	s.out = &Outcome{
		Trace:   t.Name,
		Coflows: len(s.work),
		Base:    s.Policies[s.Base].String(),
		Left:    len(trace.Coflows) - len(s.work),
	}
	if s.out.Rate = s.Ports.Rate; !t.InBytes {
		s.out.MB = s.Ports.MB
	}
	for _, c := range s.work {
		s.out.Flows += len(c.Flows)
	}
	for _, p := range s.Policies {
		s.out.Runs = append(s.out.Runs, Run{Policy: p.String()})
	}
	return s, nil
}

// simulate simulates the policy.
func (r run) simulate(ctx context.Context, clock func() time.Duration, report func(flowsim.Progress)) (err error) {
	p := r.Policies[r.policy]
	s, err := p.scheduler()
	if err != nil {
		return err
	}
	if x, ok := s.(*external.Scheduler); ok {
		policy, failed := outside.Start(ctx, &x.Policy, outside.Options{Read: safefile.Read})
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, policy.Close()) }()
		if err := x.Open(policy, r.fabric, 0); err != nil {
			return err
		}
	}
	began := clock()
	got, err := flowsim.Run(ctx, flowsim.Config{
		Fabric:     r.fabric,
		Scheduler:  s,
		Quantum:    r.Quantum,
		Resolution: r.Resolution,
		Interval:   r.Interval,
		Memory:     r.share,
	}, r.work, report)
	if err != nil {
		return fmt.Errorf("policy %s: %w", p, err)
	}
	out := &r.out.Runs[r.policy]
	out.Took, out.Events, out.Decisions = clock()-began, got.Events, got.Decisions
	out.Coordinator, out.Coflows = got.Coordinator, got.Coflows
	out.Summary = tracestats.Summarize(out.Times(), r.Bins)
	return nil
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
