package engine

import "testbed/workloads"

// FlowHash is by which routing chooses the spine of a flow, in an engine with
// that seed.
func FlowHash(seed uint64, id workloads.FlowID) uint32 {
	return workloads.Stream(seed, "path", int(id)).Uint32()
}

// HopHash is by which routing chooses the spine of one hop of a block's pipeline,
// from 0 for the hop from the client.
func HopHash(seed uint64, id workloads.BlockID, hop int) uint32 {
	return workloads.Stream(seed, "pipeline", int(id), hop).Uint32()
}
