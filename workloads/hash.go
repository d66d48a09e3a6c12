package workloads

// FlowHash is by which routing chooses the spine of a flow, in a repeat with that
// seed: topo.Fabric.Path takes it.
func FlowHash(seed uint64, id FlowID) uint32 { return Stream(seed, "path", int(id)).Uint32() }

// HopHash is by which routing chooses the spine of one hop of a block's pipeline,
// from 0 for the hop from the client.
func HopHash(seed uint64, id BlockID, hop int) uint32 {
	return Stream(seed, "pipeline", int(id), hop).Uint32()
}
