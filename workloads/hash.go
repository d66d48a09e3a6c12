package workloads

// FlowHash returns the hash by which routing selects the spine of a flow of the workload, in a
// repeat with the given seed, for topo.Fabric.Path.
func FlowHash(seed uint64, id FlowID) uint32 { return Stream(seed, "path", int(id)).Uint32() }

// ReadHash returns FlowHash's for an attempt of a reader to fetch one of its blocks, counted
// from 0: these flows get their IDs during the run, so that IDs depend on the policies. It is
// never 0.
func ReadHash(seed uint64, reader ReaderID, read, attempt int) uint32 {
	return max(1, Stream(seed, "read-path", int(reader), read, attempt).Uint32())
}

// HopHash returns the hash by which routing selects the spine of one hop of a block's
// pipeline. Hop 0 begins at the client.
func HopHash(seed uint64, id BlockID, hop int) uint32 {
	return Stream(seed, "pipeline", int(id), hop).Uint32()
}
