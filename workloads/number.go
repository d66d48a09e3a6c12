package workloads

// number renumbers all IDs except those of jobs, from 0, in the order of the lists.
func (w *Workload) number() {
	flow, block := FlowID(0), BlockID(0)
	for i := range w.Coflows {
		c := &w.Coflows[i]
		c.ID = CoflowID(i)
		for j := range c.Flows {
			c.Flows[j].ID = flow
			flow++
		}
	}
	for i := range w.Writers {
		wr := &w.Writers[i]
		wr.ID = WriterID(i)
		for j := range wr.Blocks {
			wr.Blocks[j].ID, wr.Blocks[j].Writer = block, wr.ID
			block++
		}
	}
}
