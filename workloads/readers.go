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
	// Hosts are the names of the clients, one reader each. If empty, Count readers are
	// placed on different random hosts.
	Hosts  []string
	Count  int
	Blocks int // each
	// Start is the start of readers. Each has a random delay from [0, Spread).
	Start, Spread time.Duration
}

// Readers draws the readers of a spec from a seed. Each read fetches a random
// block of those given, with replacement. ReaderIDs count from 0 in order of start.
func Readers(s ReaderSpec, f *topo.Fabric, seed uint64, from []Block) ([]Reader, error) {
	n := s.Count
	if len(s.Hosts) > 0 {
		n = len(s.Hosts)
	}
	switch {
	case n < 1 || n > f.Hosts() || len(s.Hosts) > 0 && s.Count != 0:
		return nil, fmt.Errorf("readers: %d on %d hosts: expected one or more, at most one per host, by count or by name", n, f.Hosts())
	case s.Blocks < 1:
		return nil, fmt.Errorf("readers: %d blocks each: must be one or more", s.Blocks)
	case s.Start < 0 || s.Spread < 0 || s.Start+s.Spread < 0:
		return nil, fmt.Errorf("readers: start %v, spread %v: must not be negative", s.Start, s.Spread)
	case len(from) == 0:
		return nil, fmt.Errorf("readers: the workload writes no blocks: add writers or jobs")
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
		random := Stream(seed, "reader-blocks", s.Key, i)
		for range s.Blocks {
			b := from[random.IntN(len(from))]
			r.Reads = append(r.Reads, Read{Block: b.ID, Size: b.Size})
		}
	}
	sort.SliceStable(readers, func(i, j int) bool { return readers[i].Start < readers[j].Start })
	for i := range readers {
		readers[i].ID = ReaderID(i)
	}
	return readers, nil
}
