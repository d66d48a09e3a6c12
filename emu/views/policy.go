package views

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"time"

	"testbed/emu/outside"
	"testbed/policies"
	"testbed/policies/catalog"
	"testbed/policies/external"
	"testbed/policies/policytest"
	"testbed/results/safefile"
	"testbed/topo"
	"testbed/workloads"
)

// Policy is a policy of the program or outside of it.
type Policy struct {
	Role   string
	Name   string
	Params map[string]any
	Stderr io.Writer // gets what a policy outside of the program writes besides answers; nil drops it

	modules *outside.Modules // of its instances; nil for one instance
}

// Subject is an instance of a policy that answers.
type Subject struct {
	Needs  policies.Facts
	coflow policies.CoflowInstance
	tasks  policies.TaskInstance
	place  policies.Placer
	talk   outside.Policy // nil for a policy of the program
	hello  []byte         // its answer to the first message
}

// Start makes an instance. One outside of the program begins its conversation.
func (p Policy) Start(ctx context.Context, f *topo.Fabric, seed uint64) (_ *Subject, err error) {
	s := &Subject{}
	made, err := p.made()
	if err != nil {
		return nil, err
	}
	if o := external.Of(made); o != nil {
		if s.talk, err = p.open(ctx, o, f, seed); err != nil {
			return nil, err
		}
		s.hello = o.Hello()
	}
	switch made := made.(type) {
	case policies.CoflowScheduler:
		s.Needs, s.coflow = made.Needs(), made.New()
	case policies.TaskScheduler:
		s.Needs, s.tasks = made.Needs(), made.New()
	case policies.Placer:
		s.Needs, s.place = made.Needs(), made
	}
	return s, nil
}

// made returns the policy before any conversation.
func (p Policy) made() (any, error) {
	switch p.Role {
	case catalog.RoleCoflow:
		return catalog.Coflow(p.Name, p.Params)
	case catalog.RoleTask:
		return catalog.Task(p.Name, p.Params)
	case catalog.RolePlacement:
		return catalog.Placement(p.Name, p.Params)
	}
	return nil, fmt.Errorf("role %q: no views of it", p.Role)
}

func (p Policy) open(ctx context.Context, x *external.Policy, f *topo.Fabric, seed uint64) (outside.Policy, error) {
	talk, err := outside.Start(ctx, x, outside.Options{Dir: ".", Read: safefile.Read, Modules: p.modules, Stderr: p.Stderr, Seed: seed})
	if err != nil {
		return nil, err
	}
	if err := x.Open(talk, f, seed); err != nil {
		return nil, errors.Join(err, talk.Close())
	}
	return talk, nil
}

// Close ends the instance.
func (s *Subject) Close() error {
	if s.talk == nil {
		return nil
	}
	return s.talk.Close()
}

// Answer returns the answer to a view without what the policy does not need, in the form of package external, and the
// time that it took.
func (s *Subject) Answer(d *Decision, seed uint64) (answer []byte, took time.Duration, err error) {
	switch {
	case s.coflow != nil:
		v, out := policytest.Mask(d.Coflow, s.Needs), policies.Schedule{}
		began := time.Now()
		s.coflow.Decide(v, &out)
		took = time.Since(began)
		return external.FormatSchedule(&out), took, out.Err
	case s.tasks != nil:
		v, out := policytest.MaskTasks(d.Tasks, s.Needs), policies.Assignment{}
		began := time.Now()
		s.tasks.Assign(v, &out)
		took = time.Since(began)
		return external.FormatAssignment(v, &out), took, out.Err
	}
	v := policytest.MaskPlacement(d.Placement, s.Needs)
	v.Scratch = d.Placement.Scratch
	began := time.Now()
	hosts, failed := s.place.Place(v, d.Block, placementStream(seed, d.Block))
	if took = time.Since(began); errors.As(failed, &policies.OutsideError{}) {
		return nil, took, failed
	}
	return external.FormatPlacement(hosts, failed), took, nil
}

// placementStream returns the random source of a block, which is that of the engine.
func placementStream(seed uint64, b workloads.Block) *rand.Rand {
	return workloads.Stream(seed, "placement", int(b.ID))
}
