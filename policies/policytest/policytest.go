// Package policytest tests policies against the contract of package policies. The test
// of every policy calls Scheduler, Placer or Tasks, which draw random clusters and detect
// violations: the policy writes to the View or keeps it, has a state that instances share (of
// placement: any), depends on facts that it did not declare, exceeds a link's
// capacity, or names unknown flows, coflows or hosts.
//
// It does not judge the quality of a policy's decisions.
package policytest

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"

	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Placer fails t if the policy breaks the contract of policies.Placer on any of several
// random Views and blocks. A policies.Batcher is also tested on random waiting requests.
func Placer(t rapid.TB, p policies.Placer) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		if err := PlacerCases().Draw(t, "case").Check(p); err != nil {
			t.Fatalf("%T: %v", p, err)
		}
	})
}

// PlacerCase is what a policy is tested with: Views, a block with its seed, and waiting requests.
type PlacerCase struct {
	View, Other *policies.PlacementView
	Block       workloads.Block
	Seed        uint64
	Waiting     []policies.Request
}

// PlacerCases generates random cases.
func PlacerCases() *rapid.Generator[PlacerCase] {
	return rapid.Custom(func(t *rapid.T) PlacerCase {
		c := PlacerCase{View: PlacerViews().Draw(t, "view"), Other: PlacerViews().Draw(t, "other view")}
		c.Block = blockFor(c.View).Draw(t, "block")
		c.Seed = rapid.Uint64().Draw(t, "seed")
		c.Waiting = requests(c.View).Draw(t, "waiting")
		return c
	})
}

// Check checks the contract for the case, which it uses up.
func (c PlacerCase) Check(p policies.Placer) error {
	if err := CheckPlacer(p, c.View, c.Other, c.Block, c.Seed); err != nil {
		return err
	}
	if q, ok := p.(policies.Batcher); ok {
		return checkBatcher(q, c.Waiting)
	}
	return nil
}

// checkBatcher checks the contract of policies.Batcher for waiting requests.
func checkBatcher(p policies.Batcher, waiting []policies.Request) error {
	if every := p.Every(); every < 0 || every != p.Every() {
		return fmt.Errorf("method Every returned %v, then %v: must be constant and 0 or more", every, p.Every())
	}
	before := slices.Clone(waiting)
	order := p.Order(waiting)
	if !slices.Equal(waiting, before) {
		return fmt.Errorf("method Order modified the requests")
	}
	seen := make([]bool, len(waiting))
	for _, i := range order {
		if i < 0 || i >= len(seen) || seen[i] || len(order) != len(seen) {
			return fmt.Errorf("order %v of %d requests: must contain each of them once", order, len(waiting))
		}
		seen[i] = true
	}
	if len(order) != len(waiting) {
		return fmt.Errorf("order %v of %d requests: must contain each of them once", order, len(waiting))
	}
	if again := p.Order(waiting); !slices.Equal(again, order) {
		return fmt.Errorf("two identical calls of Order returned %v and %v", order, again)
	}
	return nil
}

// CheckPlacer checks the contract for the block b on the View v, with a random source
// from seed. Between two calls for v, the policy is called for the other View.
func CheckPlacer(p policies.Placer, v, other *policies.PlacementView, b workloads.Block, seed uint64) error {
	needs := p.Needs()
	shown := MaskPlacement(v, needs)
	call := func(v *policies.PlacementView, b workloads.Block) ([]topo.HostID, error) {
		v = clonePlacement(v)
		scratch := slices.Repeat([]topo.HostID{-1}, len(v.Hosts))
		v.Scratch = scratch
		defer func() {
			overwritePlacement(v)
			for i := range scratch {
				scratch[i] = -1
			}
		}()
		return p.Place(v, b, rand.New(rand.NewPCG(seed, 1)))
	}
	before := clonePlacement(shown)
	hosts, err := p.Place(shown, b, rand.New(rand.NewPCG(seed, 1)))
	if !reflect.DeepEqual(shown, before) {
		return fmt.Errorf("method Place modified the View")
	}
	overwritePlacement(shown)
	shown = before
	if err := checkHosts(shown, b, hosts, err); err != nil {
		return err
	}
	first, failed := slices.Clone(hosts), err != nil
	for i := range hosts {
		hosts[i] = -1 // the caller owns the result
	}
	repeat := func(problem string, v *policies.PlacementView, b workloads.Block) error {
		if got, err := call(v, b); !slices.Equal(got, first) || (err != nil) != failed {
			return fmt.Errorf("%s: %v (%v), before %v", problem, got, err, first)
		}
		return nil
	}
	if err := repeat("two identical calls of Place return different hosts", shown, b); err != nil {
		return err
	}
	if b.Replicas <= len(other.Hosts) && int(b.Client) < len(other.Hosts) {
		_, _ = call(MaskPlacement(other, needs), b)
	}
	if err := repeat("Place depends on an earlier View", shown, b); err != nil {
		return err
	}
	if p.Needs() != needs {
		return fmt.Errorf("method Needs returned %v, before %v", p.Needs(), needs)
	}
	if err := repeat("Place depends on facts that Needs does not declare", clonePlacement(v), b); err != nil {
		return err
	}
	b.ID += 1000
	return repeat("Place depends on the ID of the block", shown, b)
}

// checkHosts rejects results of Place that are invalid for the View v, as the policy saw
// it. Room on disks is judged by v.
func checkHosts(v *policies.PlacementView, b workloads.Block, hosts []topo.HostID, err error) error {
	room, roomElsewhere := 0, false
	fits := func(h topo.HostID, blocks units.Bytes) bool {
		s := v.Hosts[h]
		return !s.Lost && (s.Disk == 0 || s.Disk-s.Used >= blocks*b.Size)
	}
	for h := range topo.HostID(len(v.Hosts)) {
		if fits(h, 1) {
			room++
		}
	}
	if err != nil {
		if room >= b.Replicas {
			return fmt.Errorf("placement of %d replicas failed although %d hosts have room: %w", b.Replicas, room, err)
		}
		return nil
	}
	if len(hosts) != b.Replicas {
		return fmt.Errorf("%d hosts %v for %d replicas", len(hosts), hosts, b.Replicas)
	}
	racks := map[topo.RackID]bool{}
	for i, h := range hosts {
		switch {
		case h < 0 || int(h) >= len(v.Hosts):
			return fmt.Errorf("host %d of %v: must be from 0 to %d", h, hosts, len(v.Hosts)-1)
		case slices.Contains(hosts[:i], h):
			return fmt.Errorf("two replicas on host %d: %v", h, hosts)
		case v.Hosts[h].Lost:
			return fmt.Errorf("host %d of %v is lost", h, hosts)
		case !fits(h, 1):
			return fmt.Errorf("host %d of %v has no room for %v", h, hosts, b.Size)
		}
		racks[v.Fabric.RackOf(h)] = true
	}
	// No policy has a reason to skip a host with room for many blocks.
	const ample = 8
	for h := range topo.HostID(len(v.Hosts)) {
		roomElsewhere = roomElsewhere || fits(h, ample) && !racks[v.Fabric.RackOf(h)]
	}
	if b.Replicas >= 2 && len(racks) == 1 && roomElsewhere {
		return fmt.Errorf("all of %v in one rack although another has room: a single fault loses the block", hosts)
	}
	return nil
}
