package workloads

import (
	"maps"
	"slices"
	"time"

	"testbed/topo"
	"testbed/topo/units"
)

// WorkloadStats describe the transfers and writes of a workload, by rack. Bytes of blocks
// exclude replicas, whose hosts the policy chooses.
type WorkloadStats struct {
	Racks        int `json:"racks"`
	HostsPerRack int `json:"hosts_per_rack"`

	Jobs       JobsStat     `json:"jobs"`
	Coflows    CoflowsStat  `json:"coflows"`    // except background
	Background CoflowsStat  `json:"background"` // background load
	Writers    WritersStat  `json:"writers"`
	Readers    ReadersStat  `json:"readers,omitzero"`
	Bins       []JobBinStat `json:"bins"` // of jobs with a bin
	Racked     []RackStat   `json:"rack"` // by rack
}

// JobsStat describes all jobs.
type JobsStat struct {
	Count    int     `json:"count"`
	First    float64 `json:"first_s"`
	Last     float64 `json:"last_s"`
	MeanGap  float64 `json:"mean_gap_s"` // between arrivals; 0 of fewer than two
	Shuffled int64   `json:"shuffled_bytes"`
	Written  int64   `json:"written_bytes"`
}

// CoflowsStat describes a set of coflows.
type CoflowsStat struct {
	Count int     `json:"count"`
	Flows int     `json:"flows"`
	Size  int64   `json:"bytes"`
	Last  float64 `json:"last_s"` // arrival
}

// WritersStat describes all writers.
type WritersStat struct {
	Count    int   `json:"count"`
	Blocks   int   `json:"blocks"`
	Size     int64 `json:"bytes"`
	Stored   int64 `json:"stored_bytes"` // with replicas
	Smallest int64 `json:"smallest_block_bytes"`
	Largest  int64 `json:"largest_block_bytes"`
}

// ReadersStat describes all readers.
type ReadersStat struct {
	Count int   `json:"count"`
	Reads int   `json:"reads"`
	Size  int64 `json:"bytes"` // of the blocks, counted once per read
}

// JobBinStat describes one bin of jobs.
type JobBinStat struct {
	Bin          int     `json:"bin"`
	Jobs         int     `json:"jobs"`
	JobShare     float64 `json:"job_share"`
	Written      int64   `json:"written_bytes"`
	WrittenShare float64 `json:"written_share"`
	Shuffled     int64   `json:"shuffled_bytes"`
}

// RackStat describes the traffic into a rack from other racks, and the writes in it.
type RackStat struct {
	Rack       int     `json:"rack"`
	Coflows    int64   `json:"coflow_bytes"`
	Background int64   `json:"background_bytes"`
	Share      float64 `json:"background_share"`
	Writers    int     `json:"writers"`
	Written    int64   `json:"written_bytes"` // by them, without replicas
}

// Stats describes the workload.
func (w *WorkloadFile) Stats() WorkloadStats {
	s := WorkloadStats{Racks: w.Racks, HostsPerRack: w.Hosts, Bins: []JobBinStat{}, Racked: make([]RackStat, w.Racks)}
	for r := range s.Racked {
		s.Racked[r].Rack = r
	}
	rack := func(h topo.HostID) *RackStat { return &s.Racked[int(h)/w.Hosts] }
	bin := map[JobID]int{}
	for _, j := range w.Workload.Jobs {
		bin[j.ID] = j.Bin
	}
	bins := map[int]*JobBinStat{}
	of := func(id JobID) *JobBinStat {
		b := bin[id]
		if bins[b] == nil {
			bins[b] = &JobBinStat{Bin: b}
		}
		return bins[b]
	}
	binned := 0
	var first, last time.Duration
	for i, j := range w.Workload.Jobs {
		of(j.ID).Jobs++
		if j.Bin > 0 {
			binned++
		}
		if i == 0 {
			first, last = j.Arrival, j.Arrival
		}
		first, last = min(first, j.Arrival), max(last, j.Arrival)
	}
	s.Jobs.Count, s.Jobs.First, s.Jobs.Last = len(w.Workload.Jobs), first.Seconds(), last.Seconds()
	if n := len(w.Workload.Jobs); n > 1 {
		s.Jobs.MeanGap = (last - first).Seconds() / float64(n-1)
	}
	for _, r := range w.Workload.Readers {
		s.Readers.Count++
		s.Readers.Reads += len(r.Reads)
		for _, x := range r.Reads {
			s.Readers.Size += int64(x.Size)
		}
	}
	for _, c := range w.Workload.Coflows {
		stat := &s.Coflows
		if c.Background {
			stat = &s.Background
		}
		stat.Count++
		stat.Flows += len(c.Flows)
		stat.Size += int64(c.Size())
		stat.Last = max(stat.Last, c.Arrival.Seconds())
		if c.Job > 0 {
			of(c.Job).Shuffled += int64(c.Size())
			s.Jobs.Shuffled += int64(c.Size())
		}
		for _, fl := range c.Flows {
			switch into := rack(fl.Dst); {
			case into == rack(fl.Src):
			case c.Background:
				into.Background += int64(fl.Size)
			default:
				into.Coflows += int64(fl.Size)
			}
		}
	}
	for _, wr := range w.Workload.Writers {
		s.Writers.Count++
		into := rack(wr.Client)
		into.Writers++
		for _, b := range wr.Blocks {
			s.Writers.Blocks++
			s.Writers.Size += int64(b.Size)
			s.Writers.Stored = saturate(s.Writers.Stored, b)
			s.Writers.Largest = max(s.Writers.Largest, int64(b.Size))
			if s.Writers.Smallest == 0 || int64(b.Size) < s.Writers.Smallest {
				s.Writers.Smallest = int64(b.Size)
			}
			into.Written += int64(b.Size)
			if wr.Job > 0 {
				of(wr.Job).Written += int64(b.Size)
				s.Jobs.Written += int64(b.Size)
			}
		}
	}
	written, background := int64(0), int64(0)
	for b, stat := range bins {
		if b > 0 {
			written += stat.Written
		}
	}
	for _, r := range s.Racked {
		background += r.Background
	}
	for _, b := range slices.Sorted(maps.Keys(bins)) {
		if stat := bins[b]; b > 0 {
			stat.JobShare, stat.WrittenShare = share(int64(stat.Jobs), int64(binned)), share(stat.Written, written)
			s.Bins = append(s.Bins, *stat)
		}
	}
	for r := range s.Racked {
		s.Racked[r].Share = share(s.Racked[r].Background, background)
	}
	return s
}

func share(part, whole int64) float64 {
	if whole == 0 {
		return 0
	}
	return float64(part) / float64(whole)
}

// saturate adds the replicas of a block to an amount, without overflow.
func saturate(n int64, b Block) int64 {
	const most = 1<<63 - 1
	if int64(b.Size) > most/int64(b.Replicas) || n > most-int64(b.Size)*int64(b.Replicas) {
		return most
	}
	return n + int64(b.Size*units.Bytes(b.Replicas))
}
