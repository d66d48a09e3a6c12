package report

import (
	"slices"
	"strconv"
	"time"

	"testbed/results/metrics"
	tables "testbed/results/table"
	"testbed/topo/units"
	"testbed/workloads/jobs"
)

// BackupSummary has the figures of the attempts that started while another attempt of their task ran: clones and backups.
type BackupSummary struct {
	Tasks int `json:"tasks"` // that had any
	// Started of them, and how they ended; the others failed.
	Started int `json:"started"`
	Won     int `json:"won"`
	Copied  int `json:"copied"`
	Killed  int `json:"killed"`
	// ExtraUS is the slot time of the attempts of these tasks that did not commit, and ExtraShare its share of the slot
	// time of all attempts.
	ExtraUS    float64      `json:"extra_us"`
	ExtraShare float64      `json:"extra_share"`
	ByTasks    []ExtraShare `json:"extra_by_tasks"`
	// Slots are the slots that attempts beyond the first of a task use; absent if the slots of the cluster are not known.
	Slots *ExtraSlots `json:"slots,omitempty"`
	Bytes ExtraBytes  `json:"extra_bytes"`
	// Copies is absent if no task with several attempts that fetched has fetched over the network.
	Copies *CopySummary `json:"copies,omitempty"`
}

// ExtraShare divides the extra slot time by the size of the job.
type ExtraShare struct {
	SizeRange
	ExtraUS float64 `json:"extra_us"`
	Share   float64 `json:"share"`          // of the slot time of the attempts of these jobs
	OfExtra float64 `json:"share_of_extra"` // of the extra slot time of all jobs
}

// SizeRange is a class of jobs by the number of their tasks: jobs.SizeBounds. MostTasks is 0 for no bound.
type SizeRange struct {
	LeastTasks int `json:"least_tasks"`
	MostTasks  int `json:"most_tasks,omitempty"`
}

func sizeRange(class int) SizeRange {
	least, most := jobs.SizeBounds(class)
	return SizeRange{least, most}
}

// ExtraSlots is the share of all slots that attempts beyond the first of a task use.
type ExtraSlots struct {
	Mean float64 `json:"mean"` // over the makespan
	Peak float64 `json:"peak"` // at any time of any repeat
}

// ExtraBytes is the payload that transfers of extra attempts carried, average of a repeat: metrics.ExtraBytes.
type ExtraBytes struct {
	Read    float64  `json:"read"`
	Fetched float64  `json:"fetched"`
	Further float64  `json:"fetched_further"`
	Written *float64 `json:"written,omitempty"` // captures alone show all of it
	Share   float64  `json:"share"`             // of read and fetched together, of the payload of all reads and fetches
}

// CopySummary has the figures of metrics.Copies, over all repeats.
type CopySummary struct {
	Fetches int     `json:"fetches"`
	Shared  int     `json:"shared"`
	Share   float64 `json:"shared_share"`
	// AloneBPS and SharedBPS are the mean rates of these fetches; absent without any.
	AloneBPS  *float64 `json:"alone_bps,omitempty"`
	SharedBPS *float64 `json:"shared_bps,omitempty"`
	WaitUS    float64  `json:"wait_us"` // average of an attempt that fetched
}

// StragglingSummary counts attempts by progress rate, over all repeats: metrics.Straggling.
type StragglingSummary struct {
	Judged  int     `json:"judged"`
	Slow    int     `json:"slow"`
	Share   float64 `json:"share"`
	Unknown int     `json:"unknown"`
}

// backups returns the summary of clones of n repeats. slots is the time of all slots within the makespans, 0 if it is
// unknown, and most their number.
func backups(c *metrics.Clones, n int, slots float64, most int) *BackupSummary {
	each := func(x float64) float64 { return metrics.Round6(x / float64(n)) }
	part := func(x, of float64) float64 {
		if of <= 0 {
			return 0
		}
		return metrics.Round6(x / of)
	}
	var used time.Duration
	for _, t := range c.Used {
		used += t
	}
	written := each(float64(c.Bytes.Written))
	out := &BackupSummary{Tasks: c.Tasks, Started: c.Started, Won: c.Won, Copied: c.Backups.Copied, Killed: c.Killed,
		ExtraUS: each(micros(c.Extra)), ExtraShare: part(float64(c.Extra), float64(used)),
		Bytes: ExtraBytes{each(float64(c.Bytes.Read)), each(float64(c.Bytes.Fetched)), each(float64(c.Bytes.Further)), &written, part(float64(c.Bytes.Read+c.Bytes.Fetched), float64(c.Bytes.All))}}
	for k, t := range c.ExtraOf {
		if c.Used[k] > 0 {
			out.ByTasks = append(out.ByTasks, ExtraShare{sizeRange(k), each(micros(t)), part(float64(t), float64(c.Used[k])), part(float64(t), float64(c.Extra))})
		}
	}
	if slots > 0 {
		out.Slots = &ExtraSlots{part(float64(c.Beyond), slots), part(float64(c.PeakSlots), float64(most))}
	}
	if x := c.AllCopies(); x.Attempts > 0 {
		share, _ := x.SharedShare()
		rate := func(f metrics.Fetches) *float64 {
			if f.Busy <= 0 {
				return nil
			}
			bps := metrics.Round6(float64(8*f.Size) / f.Busy.Seconds())
			return &bps
		}
		out.Copies = &CopySummary{Fetches: x.Alone.N + x.Shared.N, Shared: x.Shared.N, Share: metrics.Round6(share), AloneBPS: rate(x.Alone), SharedBPS: rate(x.Shared),
			WaitUS: metrics.Round6(micros(x.Waited) / float64(x.Attempts))}
	}
	return out
}

// backupTables returns the tables of clones and backups; none without any.
func (r *Report) backupTables() []table {
	share := func(x float64) string { return units.Percent(x, 1) }
	all := table{title: "Clones and backups of tasks", head: []string{"arm", "tasks", "started", "won", "copied", "killed", "extra slot time", "of all slot time", "slots, mean", "slots, peak"},
		cols: []tables.Column{tables.Names(), {Drop: 4}, {}, {}, {}, {Drop: 3}, {Drop: 5}, {}, {Drop: 2}, {Drop: 1}}}
	bytes := table{title: "Extra bytes of clones and backups", head: []string{"arm", "read", "fetched", "fetched from further copies", "written", "of all bytes"}, cols: []tables.Column{tables.Names()}}
	sizes := table{title: "Extra slot time by size of the job", head: []string{"arm", "job size", "extra slot time", "of their slot time", "of all extra slot time"}, cols: []tables.Column{tables.Names(), {Left: true}}}
	copies := table{title: "Fetches of cloned tasks", head: []string{"arm", "fetches", "shared", "rate alone", "rate shared", "wait for copies"}, cols: []tables.Column{tables.Names()}}
	any, fetched := false, false
	for i := range r.Summary.Arms {
		a := &r.Summary.Arms[i]
		var b *BackupSummary
		if a.Tasks != nil {
			b = a.Tasks.Backups
		}
		any, fetched = any || b != nil, fetched || b != nil && b.Copies != nil
		all.rows = append(all.rows, a.cells(len(all.head)-1, b != nil, func() []string {
			row := []string{strconv.Itoa(b.Tasks), strconv.Itoa(b.Started), strconv.Itoa(b.Won), strconv.Itoa(b.Copied), strconv.Itoa(b.Killed), humanUS(b.ExtraUS), share(b.ExtraShare), none, none}
			if b.Slots != nil {
				row[7], row[8] = share(b.Slots.Mean), share(b.Slots.Peak)
			}
			return row
		}))
		bytes.rows = append(bytes.rows, a.cells(len(bytes.head)-1, b != nil, func() []string {
			row := []string{units.Short(b.Bytes.Read, "B"), units.Short(b.Bytes.Fetched, "B"), units.Short(b.Bytes.Further, "B"), none, share(b.Bytes.Share)}
			if b.Bytes.Written != nil {
				row[3] = units.Short(*b.Bytes.Written, "B")
			}
			return row
		}))
		copies.rows = append(copies.rows, a.cells(len(copies.head)-1, b != nil && b.Copies != nil, func() []string {
			row := []string{strconv.Itoa(b.Copies.Fetches), share(b.Copies.Share), none, none, humanUS(b.Copies.WaitUS)}
			for k, bps := range []*float64{b.Copies.AloneBPS, b.Copies.SharedBPS} {
				if bps != nil {
					row[2+k] = units.Short(*bps, "bps")
				}
			}
			return row
		}))
		if b == nil {
			sizes.rows = append(sizes.rows, a.cells(len(sizes.head)-1, false, nil))
			continue
		}
		for _, x := range b.ByTasks {
			sizes.rows = append(sizes.rows, []string{a.Name, jobs.SizeName(jobs.SizeClass(x.LeastTasks)), humanUS(x.ExtraUS), share(x.Share), share(x.OfExtra)})
		}
	}
	switch {
	case !any:
		return nil
	case !fetched:
		return []table{all, sizes, bytes}
	}
	return []table{all, sizes, bytes, copies}
}

// backupDefinitions returns the definitions of backupTables.
func (r *Report) backupDefinitions() []string {
	if !slices.ContainsFunc(r.Summary.Arms, func(a ArmSummary) bool { return a.Tasks != nil && a.Tasks.Backups != nil }) {
		return nil
	}
	bytes := "In the fluid model, transfers that were stopped do not count."
	if !r.in.FluidModel {
		bytes = "Transfers that were stopped count with the payload that left the sender."
	}
	return []string{
		"Clones and backups of tasks: attempts that started while another attempt of their task ran; sums over the repeats. tasks: that had any. won: of them, committed. copied: ended after another attempt had committed; their output is a further copy. The attempts of these tasks that did not commit are extra: their slot time is an average of a repeat. slots: the share of all slots that attempts beyond the first of a task use, averaged over the makespan and at its peak.",
		"Extra bytes of clones and backups: payload that crossed the network for extra attempts, average of a repeat: input blocks, outputs of tasks, and the part of these outputs from copies other than the first. written: bytes of block writes, over the hops of their pipelines between hosts. The share of all bytes is that of read and fetched together in the payload of all reads and fetches. " + bytes,
		"Fetches of cloned tasks: complete fetches over the network by tasks of which two attempts or more fetched. shared: the share of them during which another attempt of the same task fetched from the same copy. rates: payload over the time from the first to the last byte. wait for copies: the time in which an attempt ran, the first copy of an output was complete that it fetched later, and it fetched nothing; averaged over its attempts.",
	}
}

// sizeKey is the key of the job times by the number of tasks in summary.json.
const sizeKey = "job_time_by_tasks"

// sizeMetrics returns the metrics of job times by the number of tasks; none unless jobs of tasks are of two classes or more.
func (in Input) sizeMetrics() (out []metric) {
	var seen [jobs.SizeClasses]bool
	for _, a := range in.Arms {
		for _, r := range a.Repeats {
			for _, j := range r.Records.Jobs {
				if j.Tasks > 0 {
					seen[jobs.SizeClass(j.Tasks)] = true
				}
			}
		}
	}
	for class, any := range seen {
		if !any {
			continue
		}
		key := strconv.Itoa(sizeRange(class).LeastTasks)
		out = append(out, metric{name: "Job time, " + jobs.SizeName(class), key: sizeKey + "." + key, items: metrics.JobTimesOfSize(class),
			get: func(a *ArmSummary) *Metric { return a.JobSizes[key] },
			set: func(a *ArmSummary, m *Metric) { put(&a.JobSizes, key, m) }})
	}
	if len(out) < 2 {
		return nil
	}
	return out
}

// put stores a metric unless it is nil.
func put(all *map[string]*Metric, key string, m *Metric) {
	if m == nil {
		return
	}
	if *all == nil {
		*all = map[string]*Metric{}
	}
	(*all)[key] = m
}
