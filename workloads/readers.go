package workloads

import (
	"fmt"
	"sort"
	"time"

	"testbed/topo"
)

// ReaderSpec describes clients that each fetch blocks.
type ReaderSpec struct {
	Key int // as WriterSpec.Key
	// Hosts are the names of the clients, one reader each. Without them Count
	// readers are put on different hosts drawn by the seed.
	Hosts  []string
	Count  int
	Blocks int // each
	// Start is when readers start, each as much later as is drawn uniformly from
	// [0, Spread).
	Start, Spread time.Duration
}

// Readers draws the readers of a spec from a seed. Which blocks a reader fetches is
// drawn from those given, each anew. ReaderIDs count from 0 in order of start; reads
// have no ids yet: see NumberReads.
func Readers(s ReaderSpec, f *topo.Fabric, seed uint64, from []Block) ([]Reader, error) {
	n := s.Count
	if len(s.Hosts) > 0 {
		n = len(s.Hosts)
	}
	switch {
	case n < 1 || n > f.Hosts() || len(s.Hosts) > 0 && s.Count != 0:
		return nil, fmt.Errorf("readers: %d on %d hosts: want one or more, at most one a host, by count or by name", n, f.Hosts())
	case s.Blocks < 1:
		return nil, fmt.Errorf("readers: %d blocks each: want one or more", s.Blocks)
	case s.Start < 0 || s.Spread < 0 || s.Start+s.Spread < 0:
		return nil, fmt.Errorf("readers: start %v, spread %v: want neither negative", s.Start, s.Spread)
	case len(from) == 0:
		return nil, fmt.Errorf("readers: no blocks are written that they could read: want writers, or jobs")
	}
	readers := make([]Reader, n)
	order := Stream(seed, "reader-hosts", s.Key).Perm(f.Hosts())
	for i := range readers {
		r := &readers[i]
		r.Client, r.Start = topo.HostID(order[i]), s.Start
		if len(s.Hosts) > 0 {
			h, err := f.FindHost(s.Hosts[i])
			if err != nil {
				return nil, fmt.Errorf("readers: %w", err)
			}
			r.Client = h
		}
		if s.Spread > 0 {
			r.Start += time.Duration(Stream(seed, "reader-start", s.Key, i).Int64N(int64(s.Spread)))
		}
		luck := Stream(seed, "reader-blocks", s.Key, i)
		for range s.Blocks {
			b := from[luck.IntN(len(from))]
			r.Reads = append(r.Reads, readOf(b))
		}
	}
	sort.SliceStable(readers, func(i, j int) bool { return readers[i].Start < readers[j].Start })
	for i := range readers {
		readers[i].ID = ReaderID(i)
	}
	return readers, nil
}

// readOf is a read of a block, without ids.
func readOf(b Block) Read { return Read{Block: b.ID, Size: b.Size, Tries: b.Replicas + 1} }

// NumberReads gives the tries of all reads ids above those of the workload's coflows
// and flows, in order.
func NumberReads(w *Workload) {
	coflow, flow := CoflowID(0), FlowID(0)
	for _, c := range w.Coflows {
		coflow = max(coflow, c.ID+1)
		for _, f := range c.Flows {
			flow = max(flow, f.ID+1)
		}
	}
	for i := range w.Readers {
		for j := range w.Readers[i].Reads {
			r := &w.Readers[i].Reads[j]
			r.Coflow, r.Flow = coflow, flow
			coflow, flow = coflow+CoflowID(r.Tries), flow+FlowID(r.Tries)
		}
	}
}
