package metrics

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"testbed/results/flows"
	"testbed/topo/units"
	"testbed/workloads"
)

// WorkloadMeta is the part of a repeat's workload and cluster that figures need and packets do not
// show: which coflows and blocks belong together. It has no times of events. It is stored
// in a file next to the captures.
type WorkloadMeta struct {
	Heartbeat time.Duration `json:"heartbeat_ns"`        // the interval of balance samples
	DiskRate  units.Rate    `json:"disk_rate,omitempty"` // write rate of each of a host's disks; 0: disks are never the bottleneck
	DiskSize  units.Bytes   `json:"disk_size,omitempty"` // total size of a host's disks; 0: disks are never full

	Writers    []AskedWriter        `json:"writers,omitempty"`
	Jobs       []AskedJob           `json:"jobs,omitempty"`
	Background []workloads.CoflowID `json:"background,omitempty"` // coflows that averages exclude
}

// AskedWriter is a writer and its blocks.
type AskedWriter struct {
	Writer workloads.WriterID  `json:"writer"`
	Job    workloads.JobID     `json:"job,omitempty"` // 0 for none
	Blocks []workloads.BlockID `json:"blocks"`
}

// AskedJob is a job. Its writers refer to it.
type AskedJob struct {
	Job    workloads.JobID     `json:"job"`
	Bin    int                 `json:"bin,omitempty"`    // from 1; 0 for none
	Coflow *workloads.CoflowID `json:"coflow,omitempty"` // nil for none
}

// WorkloadMetaOf returns what figures need from a workload. The caller fills in the heartbeat and
// the disks.
func WorkloadMetaOf(w workloads.Workload) WorkloadMeta {
	var a WorkloadMeta
	shuffle := map[workloads.JobID]workloads.CoflowID{}
	for _, c := range w.Coflows {
		if c.Background {
			a.Background = append(a.Background, c.ID)
		}
		if c.Job != 0 {
			shuffle[c.Job] = c.ID
		}
	}
	slices.Sort(a.Background)
	for _, wr := range w.Writers {
		one := AskedWriter{Writer: wr.ID, Job: wr.Job}
		for _, b := range wr.Blocks {
			one.Blocks = append(one.Blocks, b.ID)
		}
		a.Writers = append(a.Writers, one)
	}
	slices.SortFunc(a.Writers, func(x, y AskedWriter) int { return cmp.Compare(x.Writer, y.Writer) })
	for _, j := range w.Jobs {
		one := AskedJob{Job: j.ID, Bin: j.Bin}
		if c, ok := shuffle[j.ID]; ok {
			one.Coflow = &c
		}
		a.Jobs = append(a.Jobs, one)
	}
	return a
}

// Check reports inconsistencies: an item that belongs to two others, a reference to an
// unknown job, or a job without work.
func (a *WorkloadMeta) Check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if a.Heartbeat <= 0 {
		bad("heartbeat_ns %d: must be positive", int64(a.Heartbeat))
	}
	if a.DiskRate < 0 || a.DiskSize < 0 {
		bad("disk_rate %v, disk_size %v: must be 0 or more", a.DiskRate, a.DiskSize)
	}
	work := map[workloads.JobID]bool{} // whether it has any work
	coflows := map[workloads.CoflowID]workloads.JobID{}
	for _, j := range a.Jobs {
		if _, twice := work[j.Job]; twice || j.Job < 1 || j.Bin < 0 {
			bad("job %d in bin %d: job numbers must be unique and at least 1, and bins 0 or more", j.Job, j.Bin)
		}
		work[j.Job] = work[j.Job] || j.Coflow != nil
		if j.Coflow == nil {
			continue
		}
		if other, twice := coflows[*j.Coflow]; twice {
			bad("coflow %d belongs to job %d and job %d: must belong to one", *j.Coflow, other, j.Job)
		}
		coflows[*j.Coflow] = j.Job
	}
	writers, blocks := map[workloads.WriterID]bool{}, map[workloads.BlockID]workloads.WriterID{}
	for _, w := range a.Writers {
		if writers[w.Writer] || len(w.Blocks) == 0 {
			bad("writer %d with %d blocks: writers must be unique and have blocks", w.Writer, len(w.Blocks))
		}
		writers[w.Writer] = true
		for _, b := range w.Blocks {
			if other, twice := blocks[b]; twice {
				bad("block %d belongs to writer %d and writer %d: must belong to one", b, other, w.Writer)
			}
			blocks[b] = w.Writer
		}
		if _, known := work[w.Job]; w.Job != 0 && !known {
			bad("writer %d belongs to job %d, which does not exist", w.Writer, w.Job)
		} else if w.Job != 0 {
			work[w.Job] = true
		}
	}
	for _, j := range a.Jobs {
		if !work[j.Job] {
			bad("job %d has neither a coflow nor a writer", j.Job)
		}
	}
	return errors.Join(errs...)
}

// Join computes the records of write requests and jobs from those of blocks and coflows,
// and marks background coflows. A request or job with a missing or failed part has no
// record. Join is idempotent.
func (a *WorkloadMeta) Join(r *flows.Records) {
	for i := range r.Coflows {
		_, r.Coflows[i].Background = slices.BinarySearch(a.Background, r.Coflows[i].Coflow)
	}
	for i := range r.Flows {
		_, r.Flows[i].Background = slices.BinarySearch(a.Background, r.Flows[i].Coflow)
	}
	lostCoflow := failedOf(*r, flows.FailedFlow, func(f flows.Failure) int { return int(f.Coflow) })
	lostBlock := failedOf(*r, flows.FailedBlock, func(f flows.Failure) int { return int(f.Block) })
	coflows, blocks := map[workloads.CoflowID]*flows.CoflowRecord{}, map[workloads.BlockID]*flows.BlockRecord{}
	for i := range r.Coflows {
		if c := &r.Coflows[i]; !lostCoflow[int(c.Coflow)] {
			coflows[c.Coflow] = c
		}
	}
	for i := range r.Blocks {
		if b := &r.Blocks[i]; !lostBlock[int(b.Block)] {
			blocks[b.Block] = b
		}
	}
	r.Writes, r.Jobs = nil, nil
	all := map[workloads.JobID]int{} // writers per job
	whole := map[workloads.JobID][]flows.WriteRecord{}
	for _, w := range a.Writers {
		all[w.Job]++
		out := flows.WriteRecord{Writer: w.Writer, Job: w.Job, Blocks: len(w.Blocks)}
		for i, id := range w.Blocks {
			b := blocks[id]
			if b == nil {
				out.Blocks = 0
				break
			}
			if i == 0 {
				out.Client, out.Requested, out.End = b.Client, b.Asked(), b.End
			}
			out.Size += b.Size
			out.Requested, out.End = min(out.Requested, b.Asked()), max(out.End, b.End)
		}
		if out.Blocks > 0 {
			r.Writes = append(r.Writes, out)
			whole[w.Job] = append(whole[w.Job], out)
		}
	}
	slices.SortFunc(r.Writes, func(x, y flows.WriteRecord) int { return cmp.Compare(x.Writer, y.Writer) })
	for _, j := range a.Jobs {
		out := flows.JobRecord{Job: j.Job, Bin: j.Bin, Coflow: j.Coflow}
		writes := whole[j.Job]
		if len(writes) < all[j.Job] {
			continue
		}
		if j.Coflow != nil {
			c := coflows[*j.Coflow]
			if c == nil {
				continue
			}
			out.Arrival, out.End = c.Arrival, c.End
		}
		for i, w := range writes {
			if i == 0 && j.Coflow == nil {
				out.Arrival, out.End = w.Requested, w.End
			}
			if j.Coflow == nil {
				out.Arrival = min(out.Arrival, w.Requested)
			}
			out.End = max(out.End, w.End)
			out.Blocks += w.Blocks
			out.Size += w.Size
		}
		r.Jobs = append(r.Jobs, out)
	}
	slices.SortFunc(r.Jobs, func(x, y flows.JobRecord) int { return cmp.Compare(x.Job, y.Job) })
}

// RequestTimes returns the times of the write requests of one repeat, in order of writer.
// Writers of one job are one cluster.
func RequestTimes(repeat int, r flows.Records) []Item {
	items := make([]Item, 0, len(r.Writes))
	for _, w := range r.Writes {
		items = append(items, Item{repeat, int(w.Writer), w.RequestTime(), RequestCluster(w)})
	}
	return items
}

// RequestCluster returns the Cluster of a write request: its job or, without one, itself.
func RequestCluster(w flows.WriteRecord) int {
	if w.Job != 0 {
		return -int(w.Job)
	}
	return int(w.Writer)
}

// JobTimes returns the job completion times of one repeat, in order of job.
func JobTimes(repeat int, r flows.Records) []Item { return jobTimes(repeat, r, nil) }

// JobTimesIn returns the function that selects the job times of one bin.
func JobTimesIn(bin int) func(repeat int, r flows.Records) []Item {
	return func(repeat int, r flows.Records) []Item { return jobTimes(repeat, r, &bin) }
}

func jobTimes(repeat int, r flows.Records, bin *int) []Item {
	items := make([]Item, 0, len(r.Jobs))
	for _, j := range r.Jobs {
		if bin == nil || j.Bin == *bin {
			items = append(items, Item{repeat, int(j.Job), j.JobTime(), int(j.Job)})
		}
	}
	return items
}
