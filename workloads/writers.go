package workloads

import (
	"fmt"
	"sort"
	"time"

	"testbed/topo"
	"testbed/topo/units"
)

// WriterSpec describes clients that each write a file of blocks.
type WriterSpec struct {
	// Key identifies the spec within a workload: specs with different keys have
	// independent random draws.
	Key int
	// Hosts are the names of the clients, one writer each. If empty, Count writers are
	// placed on different random hosts.
	Hosts    []string
	Count    int
	Blocks   int // each
	Block    units.Bytes
	Replicas int
	Packet   units.Bytes
	Window   int // packets
	// Start is the start of writers. Each has a random delay from [0, Spread).
	Start, Spread time.Duration
}

// Writers draws the writers of a spec from a seed. WriterIDs and BlockIDs count
// from 0 in order of start, each writer's blocks together.
func Writers(s WriterSpec, f *topo.Fabric, seed uint64) ([]Writer, error) {
	if err := s.check(f); err != nil {
		return nil, err
	}
	var clients []topo.HostID
	for _, name := range s.Hosts {
		h, err := f.FindHost(name)
		if err != nil {
			return nil, fmt.Errorf("writers: %w", err)
		}
		clients = append(clients, h)
	}
	if len(s.Hosts) == 0 {
		for _, h := range Stream(seed, "writer-hosts", s.Key).Perm(f.Hosts())[:s.Count] {
			clients = append(clients, topo.HostID(h))
		}
	}
	writers := make([]Writer, len(clients))
	for i, client := range clients {
		writers[i] = Writer{Client: client, Start: s.Start}
		if s.Spread > 0 {
			writers[i].Start += time.Duration(Stream(seed, "writer-start", s.Key, i).Int64N(int64(s.Spread)))
		}
	}
	sort.SliceStable(writers, func(i, j int) bool { return writers[i].Start < writers[j].Start })
	next := BlockID(0)
	for i := range writers {
		w := &writers[i]
		w.ID = WriterID(i)
		for range s.Blocks {
			w.Blocks = append(w.Blocks, Block{
				ID: next, Writer: w.ID, Client: w.Client,
				Size: s.Block, Replicas: s.Replicas, Packet: s.Packet, Window: s.Window,
			})
			next++
		}
	}
	return writers, nil
}

func (s WriterSpec) check(f *topo.Fabric) error {
	n := s.Count
	if len(s.Hosts) > 0 {
		n = len(s.Hosts)
	}
	switch {
	case n < 1 || n > f.Hosts() || len(s.Hosts) > 0 && s.Count != 0:
		return fmt.Errorf("writers: %d on %d hosts: expected one or more, at most one per host, by count or by name", n, f.Hosts())
	case s.Blocks < 1 || s.Block < 1 || s.Packet < 1 || s.Window < 1:
		return fmt.Errorf("writers: %d blocks of %v in windows of %d packets of %v: must all be positive", s.Blocks, s.Block, s.Window, s.Packet)
	case s.Replicas < 1 || s.Replicas > f.Hosts():
		return fmt.Errorf("writers: %d replicas on %d hosts: expected one or more, at most one per host", s.Replicas, f.Hosts())
	case s.Start < 0 || s.Spread < 0 || s.Start+s.Spread < 0:
		return fmt.Errorf("writers: start %v, spread %v: must not be negative", s.Start, s.Spread)
	}
	return nil
}
