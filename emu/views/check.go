package views

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"testbed/emu/outside"
	"testbed/policies"
	"testbed/policies/external"
	"testbed/policies/policytest"
	"testbed/topo"
	"testbed/workloads"
)

// CheckOptions select what a policy is tested with.
type CheckOptions struct {
	Clusters int    // random ones
	Seed     uint64 // of the clusters
	// ByID is for a policy whose random draws follow from IDs: its answers may change with them.
	ByID   bool
	Limits Limits
	// Progress is called before each cluster, from 0; nil for none.
	Progress func(cluster int)
}

// taskDecisions is the number of decisions of each cluster at which a task scheduler is tested.
const taskDecisions = 12

// Checked is the result of a test of the contract of package policies.
type Checked struct {
	Role      string `json:"role"`
	Policy    string `json:"policy"`
	Clusters  int    `json:"clusters"`
	Decisions int    `json:"decisions"`
	Times
	// Problem is how it breaks the contract, in the smallest of the clusters; "" if it does not.
	Problem string          `json:"problem,omitempty"`
	Failed  int             `json:"failed_clusters"`
	View    json.RawMessage `json:"view,omitempty"` // of the problem, as the message of a process
	// File has the views of the problem.
	File []byte `json:"-"`
}

// Check tests a policy at the decisions of random clusters. The error is that of a policy that cannot be started.
func Check(ctx context.Context, p Policy, o CheckOptions) (*Checked, error) {
	out := &Checked{Role: p.Role, Policy: p.Name}
	p.modules = &outside.Modules{}
	made, err := p.made()
	if err != nil {
		return nil, err
	}
	w := &watched{ctx: ctx, policy: p, made: made, limits: o.Limits, seed: o.Seed}
	if err := w.probe(); err != nil {
		return nil, err
	}
	for i := range o.Clusters {
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		if o.Progress != nil {
			o.Progress(i)
		}
		w.instances, w.last, w.failed = nil, nil, nil
		problem := w.cluster(int(o.Seed)*1_000_003+2*i, o.ByID)
		closing := w.close()
		if err := context.Cause(ctx); err != nil {
			return nil, err
		}
		outside := errors.Join(w.failed, closing)
		if outside != nil {
			problem = outside
		}
		out.Clusters++
		if problem == nil {
			continue
		}
		out.Failed++
		if file, view := w.shown(problem); out.File == nil || len(file) < len(out.File) {
			out.Problem, out.File, out.View = fmt.Sprintf("cluster %d: %v", i+1, problem), file, view
		}
		if outside != nil {
			break // others would wait as long
		}
	}
	out.Decisions, out.Times = len(w.times), timesOf(w.times)
	return out, nil
}

// watched is a policy whose instances are kept, with what they see, while a cluster is tested.
type watched struct {
	ctx       context.Context
	policy    Policy
	made      any    // for what does not depend on an instance
	hello     []byte // of a policy outside of the program
	limits    Limits
	seed      uint64
	instances []*instance // that have seen a view, in the order of their first one
	last      *instance
	failed    error // the first error of a policy outside of the program
	times     []time.Duration
}

// instance is one instance with its views.
type instance struct {
	of      *watched
	subject *Subject
	fabric  *topo.Fabric
	views   []line
}

// probe begins a conversation, to learn what the policy needs.
func (w *watched) probe() error {
	o := external.Of(w.made)
	if o == nil {
		return nil
	}
	f, err := topo.LeafSpine{Leaves: 1, HostsPerLeaf: 2, HostLink: 1e9, Queue: topo.Queue{Time: time.Millisecond}, MTU: 1500}.Build()
	if err != nil {
		return err
	}
	talk, err := w.policy.open(w.ctx, o, f, w.seed)
	if err != nil {
		return err
	}
	w.hello = bytes.Clone(o.Hello())
	return talk.Close()
}

// cluster tests the policy with the clusters of a number.
func (w *watched) cluster(n int, byID bool) error {
	switch p := w.made.(type) {
	case policies.CoflowScheduler:
		c, other := policytest.Clusters().Example(n), policytest.Clusters().Example(n+1)
		if byID {
			return policytest.CheckSchedulerByID(watchedCoflow{w, p}, c, other)
		}
		return policytest.CheckScheduler(watchedCoflow{w, p}, c, other)
	case policies.TaskScheduler:
		return policytest.CheckTasks(watchedTasks{w, p}, policytest.TaskClusters().Example(n), policytest.TaskClusters().Example(n+1), taskDecisions)
	case policies.Placer:
		c, other := policytest.Clusters().Example(n), policytest.Clusters().Example(n+1)
		if b, ok := p.(policies.Batcher); ok {
			return policytest.CheckPlacer(watchedBatcher{watchedPlacer{w, p}, b}, c, other)
		}
		return policytest.CheckPlacer(watchedPlacer{w, p}, c, other)
	}
	return fmt.Errorf("policy %T has no contract", w.made)
}

// close ends the instances.
func (w *watched) close() error {
	var errs []error
	for _, x := range w.instances {
		if x.subject != nil {
			errs = append(errs, x.subject.Close())
		}
	}
	return errors.Join(errs...)
}

// answer passes a view to the instance, which begins with its first one, and keeps both.
func (x *instance) answer(view any, block *workloads.Block, f *topo.Fabric, call func(*Subject) (answer []byte, err error)) {
	w := x.of
	if x.fabric == nil {
		x.fabric = f
		w.instances = append(w.instances, x)
	}
	w.last = x
	l := line{N: len(x.views) + 1, Block: block}
	l.View, _ = compact(view) // its numbers are those of the generator
	defer func() { x.views = append(x.views, l) }()
	if w.failed != nil {
		return
	}
	if x.subject == nil {
		if x.subject, w.failed = w.policy.Start(w.ctx, f, w.seed); w.failed != nil {
			return
		}
		if x.subject.hello != nil && !bytes.Equal(x.subject.hello, w.hello) {
			w.failed = fmt.Errorf("the answer to hello is %s, and was %s: it must not depend on the fabric", x.subject.hello, w.hello)
			return
		}
	}
	began := time.Now()
	answer, err := call(x.subject)
	w.times = append(w.times, time.Since(began))
	l.Answer, _ = compact(json.RawMessage(answer))
	w.failed = err
}

// shown returns the views of the instance that was asked last, with the answers of the first instance, and the last view.
func (w *watched) shown(problem error) (file []byte, view json.RawMessage) {
	if w.last == nil {
		return nil, nil
	}
	x := w.last
	var b bytes.Buffer
	h := Header{
		Format: Format, Role: w.policy.Role, Policy: w.policy.Name, Seed: w.seed, Needs: needsOf(w.made), Fabric: x.fabric.Shape(),
		Problem: strings.ReplaceAll(problem.Error(), "\n", "; "),
	}
	put := func(v any) {
		text, _ := compact(v) // of what was JSON
		b.Write(append(text, '\n'))
	}
	put(h)
	first := w.instances[0]
	for i, l := range x.views {
		if i < len(first.views) && bytes.Equal(first.views[i].View, l.View) {
			l.Answer = first.views[i].Answer
		}
		put(l)
	}
	r, err := NewReader(bytes.NewReader(b.Bytes()), w.limits)
	for err == nil {
		var d *Decision
		if d, err = r.Next(w.ctx); d == nil {
			break
		}
		view = d.Message(w.seed)
	}
	return b.Bytes(), view
}

// needsOf returns the needs of a policy of any role.
func needsOf(made any) policies.Facts {
	return made.(interface{ Needs() policies.Facts }).Needs()
}

// watchedCoflow makes instances that are watched.
type watchedCoflow struct {
	w *watched
	policies.CoflowScheduler
}

// New implements policies.CoflowScheduler.
func (p watchedCoflow) New() policies.CoflowInstance { return &coflowInstance{instance{of: p.w}} }

type coflowInstance struct{ instance }

// Decide implements policies.CoflowInstance.
func (x *coflowInstance) Decide(v *policies.CoflowView, out *policies.Schedule) {
	x.answer(coflowView{CoflowView: v}, nil, v.Fabric, func(s *Subject) ([]byte, error) {
		s.coflow.Decide(v, out)
		return external.FormatSchedule(out), out.Err
	})
}

// watchedTasks makes instances that are watched. Those that fetch do so unwatched.
type watchedTasks struct {
	w *watched
	policies.TaskScheduler
}

// New implements policies.TaskScheduler.
func (p watchedTasks) New() policies.TaskInstance {
	x := &taskInstance{instance{of: p.w}}
	if external.Of(p.TaskScheduler) != nil {
		return x
	}
	own := p.TaskScheduler.New()
	x.subject = &Subject{Needs: p.Needs(), tasks: own}
	if f, ok := own.(policies.Fetcher); ok {
		return fetcher{x, f}
	}
	return x
}

type taskInstance struct{ instance }

// Assign implements policies.TaskInstance.
func (x *taskInstance) Assign(v *policies.TaskView, out *policies.Assignment) {
	x.answer(shownTasks(v), nil, v.Fabric, func(s *Subject) ([]byte, error) {
		s.tasks.Assign(v, out)
		return external.FormatAssignment(v, out), out.Err
	})
}

// fetcher is a taskInstance with the methods of a policies.Fetcher.
type fetcher struct {
	*taskInstance
	own policies.Fetcher
}

// Keep implements policies.Fetcher.
func (x fetcher) Keep(v *policies.TaskView, j *policies.TaskJob, stage int) time.Duration {
	return x.own.Keep(v, j, stage)
}

// Source implements policies.Fetcher.
func (x fetcher) Source(c *policies.CopyChoice) int { return x.own.Source(c) }

// watchedPlacer has an instance for each fabric.
type watchedPlacer struct {
	w *watched
	policies.Placer
}

// Place implements policies.Placer.
func (p watchedPlacer) Place(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) (hosts []topo.HostID, err error) {
	at := slices.IndexFunc(p.w.instances, func(x *instance) bool { return x.fabric == v.Fabric })
	x := &instance{of: p.w}
	if at >= 0 {
		x = p.w.instances[at]
	}
	x.answer(placementView{PlacementView: v}, &b, v.Fabric, func(s *Subject) ([]byte, error) {
		if hosts, err = s.place.Place(v, b, rng); errors.As(err, &policies.OutsideError{}) {
			return nil, err
		}
		return external.FormatPlacement(hosts, err), nil
	})
	if p.w.failed != nil {
		err = p.w.failed
	}
	return hosts, err
}

// watchedBatcher is a watchedPlacer that lets requests wait.
type watchedBatcher struct {
	watchedPlacer
	policies.Batcher
}

// Needs and Place are those of the watched policy.
func (p watchedBatcher) Needs() policies.Facts { return p.Batcher.Needs() }

// Place implements policies.Placer.
func (p watchedBatcher) Place(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
	return p.watchedPlacer.Place(v, b, rng)
}
