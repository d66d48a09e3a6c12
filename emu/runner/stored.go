package runner

import (
	"fmt"
	"slices"

	"testbed/emu/engine"
	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// storedBlocks returns the input blocks of jobs, in order of ID, with the hosts of their replicas. A
// placement policy chooses the hosts, block by block, for a client that is drawn for each block.
// Draws are keyed by the seed and the block, so they are the same for every arm.
func storedBlocks(c *policies.Cluster, p policies.Placer, list []jobs.Job, replicas int, seed uint64) ([]engine.StoredBlock, error) {
	sizes := map[workloads.BlockID]units.Bytes{}
	var largest units.Bytes
	for i := range list {
		for _, stage := range list[i].Stages {
			if len(stage.From) > 0 {
				continue
			}
			for _, t := range stage.Tasks {
				sizes[t.Input] = t.InputSize
				largest = max(largest, t.InputSize)
			}
		}
	}
	v := policies.PlacementView{Cluster: c, LargestBlock: largest, Scratch: make([]topo.HostID, len(c.Hosts))}
	var out []engine.StoredBlock
	for id, size := range sizes {
		out = append(out, engine.StoredBlock{Block: id, Size: size})
	}
	slices.SortFunc(out, func(a, b engine.StoredBlock) int { return int(a.Block - b.Block) })
	for i := range out {
		b := &out[i]
		rng := workloads.Stream(seed, "stored-block", int(b.Block))
		hosts, err := p.Place(&v, workloads.Block{ID: b.Block, Client: topo.HostID(rng.IntN(len(c.Hosts))), Size: b.Size, Replicas: replicas}, rng)
		if err != nil {
			return nil, fmt.Errorf("store input block %d of %v before the run: %w: use fewer or smaller blocks, fewer tasks.input.replicas, or raise disk.size or disk.count", b.Block, b.Size, err)
		}
		b.Hosts = slices.Clone(hosts)
		for _, h := range hosts {
			c.Hosts[h].Used += b.Size
		}
	}
	return out, nil
}
