package metrics

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"testbed/hosts/wire"
	"testbed/results/flows"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// WorkloadMeta is the part of a repeat's workload and cluster that figures need and no record has: which
// coflows and blocks belong together. It has no times of events. It is stored in a file next to the
// captures, and captures alone have nearly all of it (WorkloadMetaOfCaptures).
type WorkloadMeta struct {
	Heartbeat time.Duration `json:"heartbeat_ns"`        // the interval of balance samples
	DiskRate  units.Rate    `json:"disk_rate,omitempty"` // write rate of each of a host's disks; 0: disks are never the bottleneck
	DiskSize  units.Bytes   `json:"disk_size,omitempty"` // total size of a host's disks; 0: disks are never full

	Writers    []AskedWriter        `json:"writers,omitempty"`
	Jobs       []AskedJob           `json:"jobs,omitempty"`
	TaskJobs   []AskedTaskJob       `json:"task_jobs,omitempty"`
	Background []workloads.CoflowID `json:"background,omitempty"` // coflows that averages exclude

	Slots *TaskSlots `json:"slots,omitempty"` // of attempts of tasks; nil if unknown
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

// AskedTaskJob is a job of tasks.
type AskedTaskJob struct {
	Job     jobs.JobID    `json:"job"`
	User    string        `json:"user,omitempty"`
	Profile string        `json:"profile,omitempty"`
	Maps    int           `json:"maps"`              // tasks on map slots
	Reduces int           `json:"reduces"`           // tasks on reduce slots
	Input   units.Bytes   `json:"input"`             // of the stages that read blocks
	Lone    time.Duration `json:"lone_ns,omitempty"` // time of the job alone; 0 if unknown
}

// WorkloadMetaOf returns what figures need from a workload and its jobs of tasks. The caller fills
// in the heartbeat and the disks.
func WorkloadMetaOf(w workloads.Workload, tasks []jobs.Job) WorkloadMeta {
	var a WorkloadMeta
	for i := range tasks {
		j := jobs.Describe(tasks[i:i+1], nil)
		a.TaskJobs = append(a.TaskJobs, AskedTaskJob{Job: tasks[i].ID, User: tasks[i].User, Profile: tasks[i].Profile, Maps: j.Maps, Reduces: j.Reduces, Input: units.Bytes(j.Input)})
	}
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

// NotesOf returns what the marks of a workload's coflows and blocks state, from which
// WorkloadMetaOfCaptures regains its writers, jobs and background coflows.
func NotesOf(w workloads.Workload) wire.Notes {
	n := wire.Notes{Coflows: map[uint32]wire.Note{}, Blocks: map[uint32]wire.Note{}}
	jobs := map[workloads.JobID]wire.Note{}
	for _, j := range w.Jobs {
		jobs[j.ID] = wire.Note{Job: uint32(j.ID), Bin: uint32(j.Bin)}
	}
	for _, wr := range w.Writers {
		if j, ok := jobs[wr.Job]; ok {
			j.Writers++
			jobs[wr.Job] = j
		}
	}
	for _, c := range w.Coflows {
		note := jobs[c.Job]
		note.Background = c.Background
		n.Coflows[uint32(c.ID)] = note
	}
	for _, wr := range w.Writers {
		note := jobs[wr.Job]
		note.Writer, note.Blocks = uint32(wr.ID), uint32(len(wr.Blocks))
		for i, b := range wr.Blocks {
			note.Place = uint32(i)
			n.Blocks[uint32(b.ID)] = note
		}
	}
	return n
}

// unmarked is in place of a block of a writer that the captures do not show: the writer did not request
// it. It never has a record.
const unmarked workloads.BlockID = -1

// WorkloadMetaOfCaptures returns what captures state about the workload and cluster: all but the time of
// jobs alone. It returns nil for captures of older versions.
func WorkloadMetaOfCaptures(res *flows.Result) *WorkloadMeta {
	c := res.Meta.Cluster
	if c == nil {
		return nil
	}
	a := &WorkloadMeta{Heartbeat: c.Heartbeat, DiskRate: c.DiskRate, DiskSize: c.DiskSize}
	if c.MapSlots+c.ReduceSlots > 0 && res.Meta.Fabric != nil {
		a.Slots = &TaskSlots{Hosts: res.Meta.Fabric.Leaves * res.Meta.Fabric.HostsPerLeaf, Map: c.MapSlots, Reduce: c.ReduceSlots}
	}
	jobs := map[uint32]*AskedJob{}
	missing := map[uint32]int{} // writers by job
	job := func(n wire.Note) *AskedJob {
		if jobs[n.Job] == nil {
			jobs[n.Job] = &AskedJob{Job: workloads.JobID(n.Job), Bin: int(n.Bin)}
			missing[n.Job] = int(n.Writers)
		}
		return jobs[n.Job]
	}
	for id, n := range res.Groups.Coflows {
		coflow := workloads.CoflowID(id)
		if n.Background {
			a.Background = append(a.Background, coflow)
		}
		if n.Job > 0 {
			job(n).Coflow = &coflow
		}
	}
	writers := map[uint32]*AskedWriter{}
	for id, n := range res.Groups.Blocks {
		if n.Place >= n.Blocks || n.Blocks > mostBlocks {
			continue // it belongs to no writer
		}
		w := writers[n.Writer]
		if w == nil {
			w = &AskedWriter{Writer: workloads.WriterID(n.Writer), Job: workloads.JobID(n.Job), Blocks: slices.Repeat([]workloads.BlockID{unmarked}, int(n.Blocks))}
			writers[n.Writer] = w
			if n.Job > 0 {
				job(n)
				missing[n.Job]--
			}
		}
		if int(n.Place) < len(w.Blocks) {
			w.Blocks[n.Place] = workloads.BlockID(id)
		}
	}
	for _, w := range writers {
		a.Writers = append(a.Writers, *w)
	}
	for id, j := range jobs {
		a.Jobs = append(a.Jobs, *j)
		if missing[id] > 0 {
			a.Writers = append(a.Writers, AskedWriter{Writer: -1, Job: j.Job, Blocks: []workloads.BlockID{unmarked}})
		}
	}
	slices.Sort(a.Background)
	slices.SortFunc(a.Writers, func(x, y AskedWriter) int { return cmp.Or(cmp.Compare(x.Writer, y.Writer), cmp.Compare(x.Job, y.Job)) })
	slices.SortFunc(a.Jobs, func(x, y AskedJob) int { return cmp.Compare(x.Job, y.Job) })
	return a
}

// mostBlocks is the maximum number of blocks of a writer in captures, which a damaged mark could exceed.
const mostBlocks = 1 << 20

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
	tasks := map[jobs.JobID]bool{}
	for _, j := range a.TaskJobs {
		if tasks[j.Job] || j.Job < 1 || j.Maps < 0 || j.Reduces < 0 || j.Maps+j.Reduces == 0 || j.Input < 0 || j.Lone < 0 {
			bad("job %d of %d maps and %d reduces with input %v: job numbers must be unique and at least 1, and jobs have tasks", j.Job, j.Maps, j.Reduces, j.Input)
		}
		tasks[j.Job] = true
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
	if s := a.Slots; s != nil && (s.Hosts < 1 || s.Map < 0 || s.Reduce < 0) {
		bad("slots %+v: hosts must be positive, and map and reduce 0 or more", *s)
	}
	return errors.Join(errs...)
}

// Join computes the records of write requests and of jobs with writers from those of blocks and coflows,
// and marks background coflows. A request or job with a missing or failed part has no
// record. Jobs of tasks keep their records, and get their properties. Join is idempotent.
func (a *WorkloadMeta) Join(r *flows.Records) {
	for i := range r.Coflows {
		_, r.Coflows[i].Background = slices.BinarySearch(a.Background, r.Coflows[i].Coflow)
	}
	for i := range r.Flows {
		_, r.Flows[i].Background = slices.BinarySearch(a.Background, r.Flows[i].Coflow)
	}
	lostCoflow := failedCoflows(*r)
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
	r.Writes, r.Jobs = nil, a.ofTasks(r.Jobs)
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
	slices.SortStableFunc(r.Jobs, func(x, y flows.JobRecord) int { return cmp.Compare(x.Job, y.Job) })
}

// ofTasks returns the records of jobs of tasks with their properties; nil if there are none.
func (a *WorkloadMeta) ofTasks(all []flows.JobRecord) (out []flows.JobRecord) {
	known := make(map[workloads.JobID]*AskedTaskJob, len(a.TaskJobs))
	for i := range a.TaskJobs {
		known[a.TaskJobs[i].Job] = &a.TaskJobs[i]
	}
	for _, j := range all {
		if j.Tasks == 0 {
			continue
		}
		if t := known[j.Job]; t != nil {
			j.User, j.Profile, j.Tasks, j.Input, j.Lone = t.User, t.Profile, t.Maps+t.Reduces, t.Input, t.Lone // older captures have no user
		}
		out = append(out, j)
	}
	return out
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

// JobItem returns the ID and the Cluster of a job's Item. Jobs of tasks are numbered apart from the
// others.
func JobItem(j workloads.JobID, ofTasks bool) int {
	if ofTasks {
		return -int(j)
	}
	return int(j)
}

// JobTimes returns the job completion times of one repeat, in order of job.
func JobTimes(repeat int, r flows.Records) []Item {
	return jobTimes(repeat, r, func(flows.JobRecord) bool { return true })
}

// JobTimesIn returns the function that selects the job times of one bin.
func JobTimesIn(bin int) func(repeat int, r flows.Records) []Item {
	return func(repeat int, r flows.Records) []Item {
		return jobTimes(repeat, r, func(j flows.JobRecord) bool { return j.Bin == bin })
	}
}

// JobTimesOfSize returns the function that selects the job times of jobs of tasks in a class of jobs.SizeClass.
func JobTimesOfSize(class int) func(repeat int, r flows.Records) []Item {
	return func(repeat int, r flows.Records) []Item {
		return jobTimes(repeat, r, func(j flows.JobRecord) bool { return j.Tasks > 0 && jobs.SizeClass(j.Tasks) == class })
	}
}

func jobTimes(repeat int, r flows.Records, counts func(flows.JobRecord) bool) []Item {
	items := make([]Item, 0, len(r.Jobs))
	for _, j := range r.Jobs {
		if counts(j) {
			id := JobItem(j.Job, j.Tasks > 0)
			items = append(items, Item{repeat, id, j.JobTime(), id})
		}
	}
	return items
}
