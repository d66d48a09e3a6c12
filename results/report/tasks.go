package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"testbed/results/metrics"
	tables "testbed/results/table"
	"testbed/topo/units"
)

// TaskSummary has the figures of the jobs of tasks of an arm. Counts are sums over its repeats; times
// and bytes are averages of a repeat.
type TaskSummary struct {
	Jobs        int             `json:"jobs"`          // that completed
	MakespanUS  float64         `json:"makespan_us"`   // from the first submission to the last end of such a job
	JobsPerHour float64         `json:"jobs_per_hour"` // within the makespans
	Attempts    AttemptCount    `json:"attempts"`
	WastedUS    float64         `json:"wasted_slot_us"`     // slot time of attempts that did not commit
	WastedBytes float64         `json:"wasted_input_bytes"` // that they had read or fetched completely
	Locality    *LocalityShare  `json:"locality,omitempty"` // absent if no attempt that reads a block committed
	ByMaps      []LocalityShare `json:"locality_by_maps,omitempty"`
	Backups     *BackupSummary  `json:"backups,omitempty"` // absent if there are none
	Bytes       TaskTraffic     `json:"bytes"`
	// SlotUse is the share of the slots' time within the makespan that was in use, by kind; absent if
	// the slots are not known.
	SlotUse map[string]float64 `json:"slot_use,omitempty"`
	// Stragglers is the distribution of the slowest task over the median of its stage.
	Stragglers *StragglerSummary  `json:"stragglers,omitempty"`
	Straggling *StragglingSummary `json:"straggling,omitempty"` // absent if no attempt is judged
	// JobParts are the parts of the average job time, and add up to it.
	JobParts *JobPartsSummary `json:"job_parts,omitempty"`
	// MeanSlowdown and MedianSlowdown are statistics of job times over the time of the job alone;
	// absent if unknown.
	MeanSlowdown   *float64      `json:"mean_job_slowdown,omitempty"`
	MedianSlowdown *float64      `json:"median_job_slowdown,omitempty"`
	Fairness       *FairnessMean `json:"fairness,omitempty"`
	// Shuffle is absent if no task that committed has fetched.
	Shuffle *ShuffleSummary `json:"shuffle,omitempty"`
}

// AttemptCount counts attempts by outcome. All that started have one.
type AttemptCount struct {
	Started   int `json:"started"`
	Committed int `json:"committed"`
	Copied    int `json:"copied"`
	Killed    int `json:"killed"`
	Failed    int `json:"failed"`
}

// LocalityShare divides the attempts that committed after reading a block by where the replica was.
type LocalityShare struct {
	// LeastMaps and MostMaps bound the class of jobs; MostMaps is 0 for no bound.
	LeastMaps int     `json:"least_maps,omitempty"`
	MostMaps  int     `json:"most_maps,omitempty"`
	N         int     `json:"n"`
	Node      float64 `json:"node"`
	Rack      float64 `json:"rack"`
	OffRack   float64 `json:"off_rack"`
}

// Class returns the numbers of maps of the class in words.
func (l LocalityShare) Class() string {
	if l.MostMaps == 0 {
		return fmt.Sprintf("%d maps or more", l.LeastMaps)
	}
	return fmt.Sprintf("%d–%d maps", l.LeastMaps, l.MostMaps)
}

// TaskTraffic is the payload of the flows of tasks, each flow once: what crossed the network, and
// the part that crossed racks.
type TaskTraffic struct {
	Read             float64 `json:"read"`
	ReadCrossRack    float64 `json:"read_cross_rack"`
	Fetched          float64 `json:"fetched"`
	FetchedCrossRack float64 `json:"fetched_cross_rack"`
}

// StragglerSummary is a distribution over stages.
type StragglerSummary struct {
	Stages int     `json:"stages"` // with metrics.LeastStage tasks or more
	Median float64 `json:"median"`
	P95    float64 `json:"p95"`
	Max    float64 `json:"max"`
}

// JobPartsSummary divides the average time of a job: see metrics.JobPartsOf.
type JobPartsSummary struct {
	Jobs        int     `json:"jobs"`
	WaitingUS   float64 `json:"waiting_us"`
	MappingUS   float64 `json:"mapping_us"`
	ShufflingUS float64 `json:"shuffling_us"`
	ComputingUS float64 `json:"computing_us"`
	WritingUS   float64 `json:"writing_us"`
}

// FairnessMean is Jain's index of the slots of users, averaged over the time in which two users or
// more have jobs and any slot is in use.
type FairnessMean struct {
	Jain   float64 `json:"jain"`
	OverUS float64 `json:"over_us"`
}

// ShuffleSummary shows where the jobs of an arm have their tasks and intermediate data, over all
// repeats: see metrics.ShuffleFigures. A figure is absent if nothing counts for it.
type ShuffleSummary struct {
	MapRacks        *float64 `json:"map_racks,omitempty"`
	ReducesAtData   *float64 `json:"reduces_at_data,omitempty"`
	ShuffleCrossing *float64 `json:"shuffle_crossing,omitempty"`
	ReduceWaitUS    *float64 `json:"reduce_wait_us,omitempty"`
	ReducesDelayed  *float64 `json:"reduces_delayed,omitempty"`
	SpacePeak       *float64 `json:"space_peak_bytes,omitempty"`
	SpaceMean       *float64 `json:"space_mean_bytes,omitempty"`
	// Saturated is the share of the makespans in which the links of each rack were saturated
	// (metrics.RackLoad), and SaturatedMean the average over racks. Both are absent if the loads of
	// links are not known, as in the fluid model.
	Saturated     []float64 `json:"saturated,omitempty"`
	SaturatedMean *float64  `json:"saturated_mean,omitempty"`
}

// shuffle returns the summary of figures of all repeats of an arm.
func (a Arm) shuffle(f *metrics.ShuffleFigures) *ShuffleSummary {
	value := func(x metrics.Average, unit float64) *float64 {
		v, ok := x.Value()
		if !ok {
			return nil
		}
		v = metrics.Round6(v / unit)
		return &v
	}
	out := &ShuffleSummary{MapRacks: value(f.MapRacks, 1), ReducesAtData: value(f.ReducesAtData, 1), ShuffleCrossing: value(f.ShuffleCrossing, 1),
		ReduceWaitUS: value(f.ReduceWait, float64(time.Microsecond)), ReducesDelayed: value(f.ReducesDelayed, 1),
		SpacePeak: value(f.SpacePeak, 1), SpaceMean: value(f.SpaceMean, 1)}
	var racks []metrics.Average
	var mean metrics.Average
	for i := range a.Repeats {
		r := &a.Repeats[i]
		from, to := metrics.TaskSpan(&r.Records)
		if to <= from {
			continue
		}
		for k, load := range metrics.RackLoads(r.Links, metrics.SaturationInterval) {
			if k == len(racks) {
				racks = append(racks, metrics.Average{})
			}
			share := metrics.Average{Sum: float64(load.SaturatedTime(from, to)), N: float64(to - from)}
			racks[k].Add(share)
			mean.Add(share)
		}
	}
	if out.SaturatedMean = value(mean, 1); out.SaturatedMean != nil {
		for _, r := range racks {
			out.Saturated = append(out.Saturated, *value(r, 1))
		}
	}
	return out
}

// tasks returns the summary of an arm's jobs of tasks; nil if there are none.
func (a Arm) tasks() *TaskSummary {
	var out TaskSummary
	var makespan, wasted, jainTime time.Duration
	var jain float64
	var all metrics.Locality
	var classes [len(metrics.MapClasses) + 1]metrics.Locality
	var moved metrics.TaskBytes
	var input units.Bytes
	var parts [metrics.JobParts]time.Duration
	var stragglers, slowdowns []float64
	busy, slots := map[string]time.Duration{}, map[string]float64{}
	var shuffle *metrics.ShuffleFigures
	var straggling metrics.Straggling
	var clones metrics.Clones
	most := 0 // slots of the cluster
	n, divided, known := 0, 0, true
	for i := range a.Repeats {
		t := metrics.TasksOf(&a.Repeats[i].Records, a.Repeats[i].Slots)
		if t == nil {
			continue
		}
		n++
		out.Jobs += t.Jobs
		out.Attempts.Started += t.Attempts()
		out.Attempts.Committed += t.Committed
		out.Attempts.Copied += t.Copied
		out.Attempts.Killed += t.Killed
		out.Attempts.Failed += t.Failed
		makespan, wasted, input = makespan+t.Makespan, wasted+t.WastedTime, input+t.WastedInput
		straggling.Add(t.Straggling)
		clones.Add(t.Clones)
		all.Add(t.Locality)
		for k := range classes {
			classes[k].Add(t.ByMaps[k])
		}
		moved.Add(t.Moved)
		stragglers, slowdowns = append(stragglers, t.Stragglers...), append(slowdowns, t.Slowdowns...)
		for k, p := range t.Parts {
			parts[k] += p
		}
		divided += t.Divided
		jain, jainTime = jain+t.Jain*float64(t.JainTime), jainTime+t.JainTime
		if shuffle == nil {
			shuffle = t.Shuffle
		} else if t.Shuffle != nil {
			shuffle.Add(t.Shuffle)
		}
		known = known && t.Slots != nil
		most = 0
		for _, kind := range metrics.TaskKinds() {
			busy[kind] += t.Busy[kind]
			if t.Slots != nil {
				slots[kind] += float64(t.Makespan) * float64(t.Slots.Of(kind))
				most += t.Slots.Of(kind)
			}
		}
	}
	if n == 0 {
		return nil
	}
	each := func(x float64) float64 { return metrics.Round6(x / float64(n)) }
	out.MakespanUS, out.WastedUS, out.WastedBytes = each(micros(makespan)), each(micros(wasted)), each(float64(input))
	if makespan > 0 {
		out.JobsPerHour = metrics.Round6(float64(out.Jobs) / makespan.Hours())
	}
	if clones.Started > 0 {
		total := 0.0
		if known {
			for _, time := range slots {
				total += time
			}
		}
		out.Backups = backups(&clones, n, total, most)
	}
	if straggling.Judged > 0 {
		out.Straggling = &StragglingSummary{straggling.Judged, straggling.Slow, metrics.Round6(straggling.Share()), straggling.Unknown}
	}
	if all.Total() > 0 {
		l := localityShare(all)
		out.Locality = &l
		least := 1
		for k, c := range classes {
			l := localityShare(c)
			l.LeastMaps = least
			if k < len(metrics.MapClasses) {
				l.MostMaps = metrics.MapClasses[k]
				least = l.MostMaps + 1
			}
			if l.N > 0 {
				out.ByMaps = append(out.ByMaps, l)
			}
		}
	}
	out.Bytes = TaskTraffic{each(float64(moved.Read)), each(float64(moved.ReadCrossRack)), each(float64(moved.Fetched)), each(float64(moved.FetchedCrossRack))}
	if known {
		out.SlotUse = map[string]float64{}
		for kind, time := range slots {
			if time > 0 {
				out.SlotUse[kind] = metrics.Round6(float64(busy[kind]) / time)
			}
		}
	}
	if len(stragglers) > 0 {
		slices.Sort(stragglers)
		at := func(p float64) float64 { return metrics.Round6(metrics.Quantile(p, stragglers)) }
		out.Stragglers = &StragglerSummary{len(stragglers), at(0.5), at(0.95), at(1)}
	}
	if divided > 0 {
		part := func(k int) float64 { return metrics.Round6(micros(parts[k]) / float64(divided)) }
		out.JobParts = &JobPartsSummary{divided, part(metrics.JobWaiting), part(metrics.JobMapping), part(metrics.JobShuffling),
			part(metrics.JobComputing), part(metrics.JobWriting)}
	}
	if len(slowdowns) > 0 {
		sum := 0.0
		for _, x := range slowdowns {
			sum += x
		}
		mean, median := metrics.Round6(sum/float64(len(slowdowns))), metrics.Round6(metrics.Median(slowdowns))
		out.MeanSlowdown, out.MedianSlowdown = &mean, &median
	}
	if jainTime > 0 {
		out.Fairness = &FairnessMean{metrics.Round6(jain / float64(jainTime)), each(micros(jainTime))}
	}
	if shuffle != nil {
		out.Shuffle = a.shuffle(shuffle)
	}
	return &out
}

func localityShare(l metrics.Locality) LocalityShare {
	n := float64(max(1, l.Total()))
	return LocalityShare{N: l.Total(), Node: metrics.Round6(float64(l.Node) / n), Rack: metrics.Round6(float64(l.Rack) / n), OffRack: metrics.Round6(float64(l.OffRack) / n)}
}

// all returns the parts in printing order.
func (p *JobPartsSummary) all() []float64 {
	return []float64{p.WaitingUS, p.MappingUS, p.ShufflingUS, p.ComputingUS, p.WritingUS}
}

func humanUS(us float64) string { return human(time.Duration(us * float64(time.Microsecond))) }

// taskTables returns the tables of jobs of tasks; none without such jobs.
func (r *Report) taskTables() []table {
	if !r.in.attempts() {
		return nil
	}
	share := func(x float64) string { return units.Percent(x, 1) }
	work := table{title: "Tasks", head: []string{"arm", "jobs", "makespan", "jobs/h", "attempts", "killed", "failed", "wasted slot time", "wasted input", "map slots in use", "reduce slots in use", "stragglers", "straggling", "Jain"},
		cols: []tables.Column{tables.Names(), {}, {}, {Drop: 8}, {}, {Drop: 5}, {Drop: 4}, {Short: "wasted"}, {Drop: 1}, {Drop: 7, Short: "map slots"}, {Drop: 6, Short: "reduce slots"}, {Drop: 3}, {Drop: 10}, {Drop: 9}}}
	parts := table{title: "Job time by part", head: []string{"arm", "jobs", "waiting", "mapping", "shuffling", "computing", "writing", "mean slowdown", "median slowdown"}, cols: []tables.Column{tables.Names(), {Drop: 1}}}
	moved := table{title: "Bytes of tasks", head: []string{"arm", "read", "read across racks", "fetched", "fetched across racks"}, cols: []tables.Column{tables.Names()}}
	local := table{title: "Locality of maps", head: []string{"arm", "job size", "n", "node", "rack", "off-rack"}, cols: []tables.Column{tables.Names(), {Left: true}, {Drop: 1}}}
	shuffle := table{title: "Shuffle of jobs", head: []string{"arm", "racks of maps", "reduces at data", "shuffle across racks", "reduce wait", "reduces delayed", "links saturated", "most saturated rack", "outputs stored, peak", "outputs stored, average"},
		cols: []tables.Column{tables.Names(), {}, {}, {}, {}, {Drop: 4}, {}, {Drop: 3}, {Drop: 2}, {Drop: 1}}}
	for i := range r.Summary.Arms {
		a := &r.Summary.Arms[i]
		t := a.Tasks
		shuffle.rows = append(shuffle.rows, a.cells(len(shuffle.head)-1, t != nil && t.Shuffle != nil, func() []string { return t.Shuffle.cells() }))
		work.rows = append(work.rows, a.cells(len(work.head)-1, t != nil, func() []string {
			row := []string{strconv.Itoa(t.Jobs), humanUS(t.MakespanUS), strconv.FormatFloat(t.JobsPerHour, 'f', 0, 64), strconv.Itoa(t.Attempts.Started),
				strconv.Itoa(t.Attempts.Killed), strconv.Itoa(t.Attempts.Failed), humanUS(t.WastedUS), units.Short(t.WastedBytes, "B"), none, none, none, none, none}
			for k, kind := range metrics.TaskKinds() {
				if use, ok := t.SlotUse[kind]; ok {
					row[8+k] = share(use)
				}
			}
			if s := t.Stragglers; s != nil {
				row[10] = fmt.Sprintf("%.2f×", s.Median)
			}
			if s := t.Straggling; s != nil {
				row[11] = share(s.Share)
			}
			if t.Fairness != nil {
				row[12] = fmt.Sprintf("%.3f", t.Fairness.Jain)
			}
			return row
		}))
		parts.rows = append(parts.rows, a.cells(len(parts.head)-1, t != nil && t.JobParts != nil, func() []string {
			row := []string{strconv.Itoa(t.JobParts.Jobs)}
			for _, us := range t.JobParts.all() {
				row = append(row, humanUS(us))
			}
			for _, x := range []*float64{t.MeanSlowdown, t.MedianSlowdown} {
				cell := none
				if x != nil {
					cell = fmt.Sprintf("%.2f×", *x)
				}
				row = append(row, cell)
			}
			return row
		}))
		moved.rows = append(moved.rows, a.cells(len(moved.head)-1, t != nil, func() []string {
			b := t.Bytes
			return []string{units.Short(b.Read, "B"), units.Short(b.ReadCrossRack, "B"), units.Short(b.Fetched, "B"), units.Short(b.FetchedCrossRack, "B")}
		}))
		if t == nil || t.Locality == nil {
			local.rows = append(local.rows, a.cells(len(local.head)-1, false, nil))
			continue
		}
		add := func(class string, l LocalityShare) {
			local.rows = append(local.rows, []string{a.Name, class, strconv.Itoa(l.N), share(l.Node), share(l.Rack), share(l.OffRack)})
		}
		add("all", *t.Locality)
		for _, l := range t.ByMaps {
			add(l.Class(), l)
		}
	}
	return append([]table{work, parts, local, moved, shuffle}, append(r.backupTables(), r.estimateTables()...)...)
}

// cells returns the cells of the table of shuffles after the arm.
func (s *ShuffleSummary) cells() []string {
	cell := func(x *float64, format func(float64) string) string {
		if x == nil {
			return none
		}
		return format(*x)
	}
	share := func(x float64) string { return units.Percent(x, 1) }
	size := func(x float64) string { return units.Short(x, "B") }
	most := none
	for rack, x := range s.Saturated {
		if x > 0 && x == slices.Max(s.Saturated) {
			most = fmt.Sprintf("%d: %s", rack, share(x))
			break
		}
	}
	return []string{cell(s.MapRacks, func(x float64) string { return fmt.Sprintf("%.2f", x) }), cell(s.ReducesAtData, share), cell(s.ShuffleCrossing, share),
		cell(s.ReduceWaitUS, humanUS), cell(s.ReducesDelayed, share), cell(s.SaturatedMean, share), most, cell(s.SpacePeak, size), cell(s.SpaceMean, size)}
}

// taskDefinitions returns the definitions of the figures of jobs of tasks.
func (r *Report) taskDefinitions() []string {
	if !r.in.attempts() {
		return nil
	}
	classes := make([]string, len(metrics.MapClasses))
	for i, n := range metrics.MapClasses {
		classes[i] = strconv.Itoa(n)
	}
	out := []string{
		"Jobs of tasks: job time: from the submission of the job to its mark done, which follows the commit of its last task. Its shuffles are coflows, from the first fetch of a stage over the network to the end of its last; its fetches and reads of input blocks are in no table of FCT, because arms cannot pair them.",
		"Tasks: jobs, attempts, killed, failed: sums over the repeats; times and bytes: averages of a repeat. makespan: from the first submission to the end of the last job, of the jobs that completed. jobs/h: these jobs over the makespan. wasted: slot time and input of attempts that did not commit. slots in use: slot time of attempts within the makespan over the time of all slots of the kind.",
		fmt.Sprintf("stragglers: the slowest committed attempt over the median of its stage; the median over all stages with %d tasks or more. straggling: the share of the attempts whose progress rate, input over the time from start to end, is below half the median of the attempts of their stage that committed or copied; of attempts that were killed or failed, only those count that would be below it with their whole input processed. Jain: Jain's index of the slots that users have, (Σx)² / (n Σx²) over the n users with a job that is submitted and has not ended, averaged over the time in which there are two or more and any slot is in use. A user whose jobs have fewer tasks than its share lowers it.", metrics.LeastStage),
		"Job time by part: averages over jobs; each moment of a job counts to the first part that applies, so the parts add up to its time. mapping: an attempt that reads a block has not processed it yet. shuffling: an attempt fetches, or has fetched everything and waits to compute. computing: an attempt that has fetched computes. writing: all running attempts have computed, and spill, write blocks or commit. waiting: no attempt of the job runs. Attempts that are killed or fail count as well. slowdown: job time over the time of the job alone on the idle cluster, on the fluid model under the first arm; – if that time is not known, as from captures alone.",
		"Locality of maps: shares of the committed attempts that read a block: its replica was on the same host (node), on another host of the rack, or in another rack. Jobs are divided by their number of maps, at most " + strings.Join(classes, ", ") + " or more.",
		"Bytes of tasks: payload of completed flows, each once: input blocks that were read, and outputs of tasks that were fetched, over the network and across racks. Reads and fetches from the same host do not use the network.",
		"Shuffle of jobs: where jobs have their maps, their reduces and the data between them. Maps are committed attempts that read a block, reduces committed attempts that fetched at least one byte. racks of maps: the effective number of racks of a job's maps, 1 / Σ share² over their shares in each rack, averaged over jobs with two maps or more and a reduce. reduces at data: reduces in racks in proportion to the data, Σ min(placed, preferred) over their number; preferred are the reduces of the job divided by largest remainders in proportion to the bytes that they fetched from each rack. shuffle across racks: the share of the bytes that reduces fetched that crossed racks; for both, fetches from the reduce's own host count. If the run keeps only sums of transfers, as in large simulations, the data is divided like the maps instead, and fetches of attempts that did not commit count.",
		fmt.Sprintf("reduce wait: from the commit of the job's first map to the start of a reduce, 0 if it started before; averaged over first attempts in the job's first stage with reduces. reduces delayed: those of them that waited longer than the median time of the job's maps. links saturated: the share of the makespan, averaged over racks, in stretches of %d intervals or more in which the links of the rack to or from the spines together carried more than %s of their capacity; an interval is %v, rounded up to a multiple of the measured one.",
			metrics.SaturatedIntervals, units.Percent(metrics.SaturatedShare, 0), metrics.SaturationInterval),
		"outputs stored: the outputs of maps, each from its commit to the end of its job: the largest size and the average over the makespan, averages of a repeat. What the first stage with reduces fetched is divided among the maps by their input. Jobs that did not complete are left out.",
	}
	return append(out, append(r.backupDefinitions(), r.estimateDefinitions()...)...)
}
