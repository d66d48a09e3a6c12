// Package policytest tests policies against the contract of package policies. The test
// of every policy calls Scheduler, Placer or Tasks, which draw random clusters and detect
// violations: the policy writes to the View or keeps it, has a state that instances share (of
// placement: any), depends on facts that it did not declare, exceeds a link's
// capacity, or names unknown flows, coflows or hosts.
//
// It does not judge the quality of a policy's decisions.
package policytest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"

	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Placer fails t if the policy breaks the contract of policies.Placer, or that of policies.Batcher if it is one, at any
// block of several random clusters.
func Placer(t rapid.TB, p policies.Placer) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		c, other := Clusters().Draw(t, "cluster"), Clusters().Draw(t, "other cluster")
		if err := CheckPlacer(p, c, other); err != nil {
			t.Fatalf("%T: %v", p, err)
		}
	})
}

// placing is a policy in the engine of a cluster. It calls a function for each block.
type placing struct {
	policies.Placer
	needs, shown policies.Facts // of the policy, and of the engine
	every        time.Duration
	seed         uint64
	place        func(*asked)
	err          error // the first problem
}

// asked is a call of Place.
type asked struct {
	view   *policies.PlacementView
	block  workloads.Block
	hosts  []topo.HostID
	failed error
}

// noPlace ends a cluster unless a host is lost.
type noPlace struct{}

func (noPlace) Error() string { return "the policy does not place a block" }

// CheckPlacer checks the contract at every block of a cluster. An engine shows what the policy needs, and then another
// one all facts. Between two calls for a block, the policy is called for the other cluster.
func CheckPlacer(p policies.Placer, c, other *Cluster) error {
	x := &placing{Placer: p, needs: p.Needs(), seed: c.config.Seed}
	if b, ok := p.(policies.Batcher); ok {
		if x.every = b.Every(); x.every < 0 || x.every != b.Every() {
			return fmt.Errorf("method Every returned %v, then %v: must be constant and 0 or more", x.every, b.Every())
		}
	}
	var away *asked
	var seen []*asked
	x.run(*other, x.needs, func(a *asked) { away, a.failed = a, noPlace{} })
	x.run(*c, x.needs, func(a *asked) {
		seen = append(seen, a)
		x.call(a)
		x.repeat(*a, "two identical calls of Place return different hosts")
	})
	x.run(*c, everything, func(a *asked) {
		first := *seen[0]
		seen = seen[1:]
		a.hosts, a.failed = first.hosts, first.failed
		x.err = checkHosts(&first)
		if away != nil {
			x.call(away)
		}
		x.repeat(first, "Place depends on an earlier View")
		x.repeat(*a, "Place depends on facts that Needs does not declare")
		first.block.ID += 1000
		x.repeat(first, "Place depends on the ID of the block")
	})
	return x.err
}

// run shows facts of a cluster, until there is a problem.
func (x *placing) run(c Cluster, facts policies.Facts, place func(*asked)) {
	if x.err != nil {
		return
	}
	x.shown, x.place, c.config.Placement = facts, place, x
	nothing := func(*policies.CoflowView, *policies.Schedule) {}
	coflows := coflowPolicy{triggers: policies.Triggers{Coflows: true}, decide: nothing}
	err := c.Run(coflows, 0, func(_, _ *policies.CoflowView, _ *policies.Schedule) error { return nil })
	if x.err == nil && !errors.Is(err, noPlace{}) {
		x.err = err
	}
}

// call asks the policy unless there is a problem.
func (x *placing) call(a *asked) {
	if x.err != nil {
		return
	}
	v, scratch := clonePlacement(a.view), slices.Repeat([]topo.HostID{-1}, len(a.view.Hosts))
	if a.hosts != nil { // the first call has none
		v.Scratch = scratch
	}
	random := workloads.Stream(x.seed, "placement", int(a.block.ID)%1000) // of the block, whatever its ID is changed to
	hosts, failed := x.Placer.Place(v, a.block, random)
	v.Scratch = nil
	switch {
	case errors.As(failed, &policies.OutsideError{}):
		x.err = failed
	case !reflect.DeepEqual(v, a.view):
		x.err = errors.New("method Place modified the View")
	case x.Placer.Needs() != x.needs:
		x.err = fmt.Errorf("method Needs returned %v, before %v", x.Placer.Needs(), x.needs)
	}
	overwritePlacement(v)
	fill(scratch, -1)
	a.hosts, a.failed = slices.Clone(hosts), failed
	fill(hosts, -1) // the caller owns the result
}

// repeat asks again, and compares the answers.
func (x *placing) repeat(a asked, problem string) {
	hosts, failed := a.hosts, a.failed
	x.call(&a)
	if x.err == nil && (!slices.Equal(a.hosts, hosts) || (a.failed != nil) != (failed != nil)) {
		x.err = fmt.Errorf("%s: %v (%v), before %v", problem, a.hosts, a.failed, hosts)
	}
}

func (x *placing) Needs() policies.Facts { return x.shown }
func (x *placing) Every() time.Duration  { return x.every }

func (x *placing) Place(v *policies.PlacementView, b workloads.Block, _ *rand.Rand) ([]topo.HostID, error) {
	a := &asked{view: clonePlacement(v), block: b}
	if x.err == nil {
		x.place(a)
	}
	switch {
	case x.err != nil:
		return nil, policies.OutsideError{Err: x.err}
	case a.failed != nil:
		return nil, noPlace{}
	}
	return slices.Clone(a.hosts), nil
}

// Order checks what the engine does not.
func (x *placing) Order(waiting []policies.Request) []int {
	p, before := x.Placer.(policies.Batcher), slices.Clone(waiting)
	order := p.Order(waiting)
	if !slices.Equal(waiting, before) {
		x.err = errors.New("method Order modified the requests")
	} else if again := p.Order(waiting); !slices.Equal(again, order) {
		x.err = fmt.Errorf("two identical calls of Order returned %v and %v", order, again)
	}
	return order
}

// checkHosts rejects answers that are invalid for the View, as the policy saw it, although the engine accepts them. Room
// on disks is judged by the View.
func checkHosts(a *asked) error {
	fits := func(h topo.HostID, blocks units.Bytes) bool {
		s := a.view.Hosts[h]
		return !s.Lost && (s.Disk == 0 || s.Disk-s.Used >= blocks*a.block.Size)
	}
	racks := map[topo.RackID]bool{}
	for _, h := range a.hosts {
		if !fits(h, 1) {
			return fmt.Errorf("host %d of %v has no room for %v", h, a.hosts, a.block.Size)
		}
		racks[a.view.Fabric.RackOf(h)] = true
	}
	// No policy has a reason to skip a host with room for many blocks.
	const ample = 8
	room, roomElsewhere := 0, false
	for h := range topo.HostID(len(a.view.Hosts)) {
		if fits(h, 1) {
			room++
		}
		roomElsewhere = roomElsewhere || fits(h, ample) && !racks[a.view.Fabric.RackOf(h)]
	}
	n := a.block.Replicas
	switch {
	case a.failed != nil && room >= n:
		return fmt.Errorf("placement of %d replicas failed although %d hosts have room: %w", n, room, a.failed)
	case a.failed == nil && n >= 2 && len(racks) == 1 && roomElsewhere:
		return fmt.Errorf("all of %v in one rack although another has room: a single fault loses the block", a.hosts)
	}
	return nil
}
