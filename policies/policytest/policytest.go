// Package policytest is the contract of package policies as a test. Every
// policy's own test calls Scheduler or Placer, which draw random clusters and look
// for what a policy must not do: write to the View, remember, look at what it
// did not declare, overfill a link, or name what is not there.
//
// It does not tell whether a policy is any good.
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

// Placer fails t if the policy breaks the contract of policies.Placer on any of
// a number of random Views and blocks; of a policies.Batcher, on requests that wait
// besides.
func Placer(t rapid.TB, p policies.Placer) {
	t.Helper()
	rapid.Check(t, func(t *rapid.T) {
		v, other := PlacerViews().Draw(t, "view"), PlacerViews().Draw(t, "other view")
		b := blockFor(v).Draw(t, "block")
		if err := CheckPlacer(p, v, other, b, rapid.Uint64().Draw(t, "seed")); err != nil {
			t.Fatalf("%T: %v", p, err)
		}
		if q, ok := p.(policies.Batcher); ok {
			if err := checkBatcher(q, requests(v).Draw(t, "waiting")); err != nil {
				t.Fatalf("%T: %v", p, err)
			}
		}
	})
}

// checkBatcher checks the order of requests that wait.
func checkBatcher(p policies.Batcher, waiting []policies.Request) error {
	if every := p.Every(); every < 0 || every != p.Every() {
		return fmt.Errorf("method Every answers %v, then %v: want the same of 0 or more", every, p.Every())
	}
	before := slices.Clone(waiting)
	order := p.Order(waiting)
	if !slices.Equal(waiting, before) {
		return fmt.Errorf("method Order wrote to the requests")
	}
	seen := make([]bool, len(waiting))
	for _, i := range order {
		if i < 0 || i >= len(seen) || seen[i] || len(order) != len(seen) {
			return fmt.Errorf("order %v of %d requests: want each of them once", order, len(waiting))
		}
		seen[i] = true
	}
	if len(order) != len(waiting) {
		return fmt.Errorf("order %v of %d requests: want each of them once", order, len(waiting))
	}
	if again := p.Order(waiting); !slices.Equal(again, order) {
		return fmt.Errorf("asked twice, Order answers %v and %v", order, again)
	}
	return nil
}

// CheckPlacer checks the contract for the block b on the View v, with luck from
// seed. The other View is shown between two questions about v.
func CheckPlacer(p policies.Placer, v, other *policies.View, b workloads.Block, seed uint64) error {
	needs := p.Needs()
	shown := Mask(v, needs)
	before := clone(shown)
	ask := func(v *policies.View, b workloads.Block) ([]topo.HostID, error) {
		return p.Place(v, b, rand.New(rand.NewPCG(seed, 1)))
	}
	hosts, err := ask(shown, b)
	if !reflect.DeepEqual(shown, before) {
		return fmt.Errorf("method Place wrote to the View")
	}
	if err := checkHosts(shown, b, hosts, err); err != nil {
		return err
	}
	first, failed := slices.Clone(hosts), err != nil
	for i := range hosts {
		hosts[i] = -1 // the answer is the caller's
	}
	again := func(what string, v *policies.View, b workloads.Block) error {
		if got, err := ask(v, b); !slices.Equal(got, first) || (err != nil) != failed {
			return fmt.Errorf("%s: %v (%v), before %v", what, got, err, first)
		}
		return nil
	}
	if err := again("asked twice with the same luck, Place answers differently", shown, b); err != nil {
		return err
	}
	if b.Replicas <= len(other.Hosts) && int(b.Client) < len(other.Hosts) {
		_, _ = ask(Mask(other, needs), b)
	}
	if err := again("Place remembers another View", shown, b); err != nil {
		return err
	}
	if p.Needs() != needs {
		return fmt.Errorf("method Needs answers %b, before %b", p.Needs(), needs)
	}
	if err := again("Place looks at what Needs does not declare", clone(v), b); err != nil {
		return err
	}
	b.ID += 1000
	return again("Place depends on the ID of the block", shown, b)
}

// checkHosts looks for answers that no View like v can be given. Where there is
// room is judged by v, which is what the policy saw.
func checkHosts(v *policies.View, b workloads.Block, hosts []topo.HostID, err error) error {
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
			return fmt.Errorf("placement of %d replicas fails where %d hosts have room: %w", b.Replicas, room, err)
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
			return fmt.Errorf("host %d of %v: want 0 to %d", h, hosts, len(v.Hosts)-1)
		case slices.Contains(hosts[:i], h):
			return fmt.Errorf("two replicas on host %d: %v", h, hosts)
		case v.Hosts[h].Lost:
			return fmt.Errorf("host %d of %v is lost", h, hosts)
		case !fits(h, 1):
			return fmt.Errorf("host %d of %v has no room for %v", h, hosts, b.Size)
		}
		racks[v.Fabric.RackOf(h)] = true
	}
	// Room for many blocks: no policy has a reason to pass such a host over.
	const ample = 8
	for h := range topo.HostID(len(v.Hosts)) {
		roomElsewhere = roomElsewhere || fits(h, ample) && !racks[v.Fabric.RackOf(h)]
	}
	if b.Replicas >= 2 && len(racks) == 1 && roomElsewhere {
		return fmt.Errorf("all of %v in one rack, though another has room: one fault loses the block", hosts)
	}
	return nil
}
