package engine

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"testbed/policies"
	"testbed/topo"
	"testbed/workloads"
)

// batchFunc is a policy that places requests every 10 s, those of the writers with the fewest
// unplaced blocks first.
type batchFunc struct {
	placeFunc
	order func([]policies.Request) []int
}

func (batchFunc) Every() time.Duration { return 10 * time.Second }

func (p batchFunc) Order(waiting []policies.Request) []int {
	if p.order != nil {
		return p.order(waiting)
	}
	out := make([]int, len(waiting))
	for i := range out {
		out[i] = i
	}
	slices.SortStableFunc(out, func(a, b int) int { return cmp.Compare(waiting[a].Left, waiting[b].Left) })
	return out
}

func TestWaitingRejects(t *testing.T) {
	for name, order := range map[string]func([]policies.Request) []int{
		"none":     func([]policies.Request) []int { return nil },
		"twice":    func([]policies.Request) []int { return []int{0, 0} },
		"stranger": func([]policies.Request) []int { return []int{0, 2} },
		"negative": func([]policies.Request) []int { return []int{0, -1} },
		"many":     func([]policies.Request) []int { return []int{0, 1, 1} },
	} {
		e := newEngine(t, testConfig(t, always(free), batchFunc{onHosts(3, 2), order}))
		step(t, e, 1, writerOf(block(1, 0, 2)), writerOf(block(2, 0, 2)))
		if _, err := e.Step(10 * time.Second); err == nil || !strings.Contains(err.Error(), "of 2 requests: must contain each of them once") {
			t.Errorf("%s: error %v", name, err)
		}
	}
	c := testConfig(t, always(free), onHosts(3))
	c.Zone = []int{1, 2, 3}
	if _, err := New(c); err == nil || !strings.Contains(err.Error(), "zones of 3 racks: must be given for all 2") {
		t.Errorf("three zones: %v", err)
	}
}

// A placement policy sees the zones and the largest block of all writers.
func TestPlacerSeesZonesAndLargest(t *testing.T) {
	var views []policies.PlacementView
	c := testConfig(t, always(free), placeFunc(func(v *policies.PlacementView, b workloads.Block, rng *rand.Rand) ([]topo.HostID, error) {
		views = append(views, *v)
		return onHosts(3)(v, b, rng)
	}))
	c.Zone = []int{4, 5}
	e := newEngine(t, c)
	big := block(2, 0, 1)
	big.Size = 7000
	step(t, e, 1, writerOf(block(1, 0, 1), big))
	step(t, e, 2, writerOf(block(3, 1, 1)))
	for _, v := range views {
		if v.LargestBlock != 7000 || !slices.Equal(v.Zone, []int{4, 5}) {
			t.Errorf("largest %v, zones %v, want 7 KB and 4, 5", v.LargestBlock, v.Zone)
		}
	}
	if len(views) != 2 {
		t.Errorf("asked %d times", len(views))
	}
}
