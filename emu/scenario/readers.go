package scenario

import (
	"cmp"
	"fmt"
	"slices"

	"testbed/topo"
	"testbed/workloads"
)

// readers draws the readers, adds them to a workload whose blocks are numbered.
func (s *Scenario) readers(w *workloads.Workload, f *topo.Fabric, seed uint64) (notes Notes, err error) {
	for i, item := range s.Spec.Workload {
		r := item.Readers
		if r == nil {
			continue
		}
		var from []workloads.Block
		for _, wr := range w.Writers {
			if r.Of == "all" || (wr.Job != 0) == (r.Of == "jobs") {
				from = append(from, wr.Blocks...)
			}
		}
		if len(from) == 0 {
			return nil, fmt.Errorf("workload[%d]: readers of %s, but no item writes such blocks: add an item of kind writers, jobs or workload, or change the key \"of\"", i, blocksOf(r.Of))
		}
		drawn, err := workloads.Readers(workloads.ReaderSpec{Key: i, Hosts: r.Hosts, Count: r.Count, Blocks: r.Blocks, Start: r.Start, Spread: r.Spread}, f, seed, from)
		if err != nil {
			return nil, fmt.Errorf("workload[%d]: %w", i, err)
		}
		notes = append(notes, fmt.Sprintf("workload[%d]: %d readers of %d blocks each, of the %d %s, from %v to %v",
			i, len(drawn), r.Blocks, len(from), blocksOf(r.Of), drawn[0].Start, drawn[len(drawn)-1].Start))
		w.Readers = append(w.Readers, drawn...)
	}
	slices.SortStableFunc(w.Readers, func(a, b workloads.Reader) int { return cmp.Compare(a.Start, b.Start) })
	for i := range w.Readers {
		w.Readers[i].ID = workloads.ReaderID(i)
	}
	return notes, nil
}

// blocksOf describes the blocks that a value of ReadersItem.Of selects.
func blocksOf(of string) string {
	switch of {
	case "jobs":
		return "blocks of jobs"
	case "writers":
		return "blocks of writers without a job"
	}
	return "blocks"
}
