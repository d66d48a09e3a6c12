package main

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"

	"testbed/policies/external/messages"
)

func init() { placements = &LeastLoaded{} }

// LeastLoaded places the first replica on the writer, the second on the host of another rack that receives least, and the
// others on the hosts that do.
type LeastLoaded struct{ racks []int }

// Start returns what the policy needs to know.
func (p *LeastLoaded) Start(h *messages.Hello) []string {
	p.racks = h.Fabric.HostRacks
	return []string{"link_load", "disk_use"}
}

// Place returns the hosts, in the order of the pipeline. Ties are broken by the block's draws.
func (p *LeastLoaded) Place(v *messages.PlacementView) ([]int, error) {
	b := v.Block
	recent := make([]int, len(p.racks)) // placements that are not in Rx yet
	for _, placed := range v.Placements {
		for _, h := range placed.Hosts {
			if h != placed.Client {
				recent[h]++
			}
		}
	}
	var left []int
	for _, h := range rand.New(rand.NewPCG(v.Seed, 0)).Perm(len(p.racks)) {
		disk := messages.At(v.Disk, h)
		if messages.At(v.Lost, h) == 0 && (disk == 0 || messages.At(v.Used, h)+b.Size <= disk) {
			left = append(left, h)
		}
	}
	if len(left) < b.Replicas {
		return nil, fmt.Errorf("%d disks have room for %d replicas", len(left), b.Replicas)
	}
	slices.SortStableFunc(left, func(x, y int) int {
		return cmp.Or(cmp.Compare(recent[x], recent[y]), cmp.Compare(messages.At(v.Rx, x), messages.At(v.Rx, y)))
	})
	var chosen []int
	for len(chosen) < b.Replicas {
		at := 0
		switch len(chosen) {
		case 0:
			at = max(0, slices.Index(left, b.Client))
		case 1:
			at = max(0, slices.IndexFunc(left, func(h int) bool { return p.racks[h] != p.racks[chosen[0]] }))
		}
		chosen = append(chosen, left[at])
		left = slices.Delete(left, at, at+1)
	}
	return chosen, nil
}
