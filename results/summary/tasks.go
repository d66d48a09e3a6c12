package summary

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/topo/units"
	"testbed/workloads/jobs"
)

// Tables of jobs of tasks.
const (
	work      = "Tasks"
	parts     = "Job time by part"
	locality  = "Locality of maps"
	moved     = "Bytes of tasks"
	shuffle   = "Shuffle of jobs"
	backups   = "Clones and backups of tasks"
	extraSize = "Extra slot time by size of the job"
	extra     = "Extra bytes of clones and backups"
	copies    = "Fetches of cloned tasks"
)

// text returns definitions that do not depend on the source.
func text(s string) func(bool) string { return func(bool) string { return s } }

// tasks are the figures of jobs of tasks. Counts are sums over the repeats; times and bytes are averages of a repeat.
var tasks = Section{
	Key: "tasks",
	Doc: "figures of jobs of tasks: counts are sums over the repeats, times and bytes averages of a repeat",
	has: func(d *Data) bool { return d.Tasks != nil },
	Tables: []Table{
		{Title: work, Define: text("jobs, attempts, killed, failed: sums over the repeats; times and bytes: averages of a " +
			"repeat.")},
		{Title: parts, Define: text("averages over jobs; each moment of a job counts to the first part that applies, so " +
			"the parts add up to its time.")},
		{Title: locality, Define: text("shares of the committed attempts that read a block: its replica was on the same " +
			"host (node), on another host of the rack, or in another rack. Jobs are divided by their number of maps, at most " +
			mapClasses() + " or more.")},
		{Title: moved, Define: text("payload of completed flows, each once: input blocks that were read, and outputs of " +
			"tasks that were fetched, over the network and across racks. Reads and fetches from the same host do not use the " +
			"network.")},
		{Title: shuffle, Define: text("where jobs have their maps, their reduces and the data between them. Maps are " +
			"committed attempts that read a block, reduces committed attempts that fetched at least one byte.")},
		{Title: backups, If: "backups",
			Define: text("attempts that started while another attempt of their task ran; sums over the repeats. tasks: that " +
				"had any. won: of them, committed. copied: ended after another attempt had committed; their output is a further " +
				"copy. The attempts of these tasks that did not commit are extra: their slot time is an average of a repeat.")},
		{Title: extraSize, If: "backups"},
		{Title: extra, If: "backups", Define: func(packets bool) string {
			stopped := "In the fluid model, transfers that were stopped do not count."
			if packets {
				stopped = "Transfers that were stopped count with the payload that left the sender."
			}
			return "payload that crossed the network for extra attempts, average of a repeat: input blocks, outputs of tasks, " +
				"and the part of these outputs from copies other than the first. written: bytes of block writes, over the hops " +
				"of their pipelines between hosts. The share of all bytes is that of read and fetched together in the payload of " +
				"all reads and fetches. " + stopped
		}},
		{Title: copies, If: "backups.copies",
			Define: text("complete fetches over the network by tasks of which two attempts or " +
				"more fetched.")},
	},
	Figures: slices.Concat(taskFigures, backupFigures, placeFigures),
}

func mapClasses() string {
	classes := make([]string, len(metrics.MapClasses))
	for i, n := range metrics.MapClasses {
		classes[i] = strconv.Itoa(n)
	}
	return strings.Join(classes, ", ")
}

// taskFigures are those of jobs and attempts, up to where maps read their blocks.
var taskFigures = []Figure{
	{
		Key: "jobs", Doc: "jobs that completed", Of: Total(func(d *Data) float64 { return float64(d.Tasks.Jobs) }),
		Table: work, Head: "jobs", Define: None,
	},
	{
		Key: "makespan_us", Unit: Micros,
		Doc:    "from the first submission to the end of the last job, of the jobs that completed",
		Of:     Mean(func(d *Data) float64 { return micros(d.Tasks.Makespan) }),
		Column: "makespan_us", Table: work, Head: "makespan",
	},
	{
		Key: "jobs_per_hour", Unit: PerHour, Doc: "these jobs over the makespan",
		Of: orZero(Ratio(func(d *Data) metrics.Average {
			return metrics.Average{Sum: float64(d.Tasks.Jobs), N: d.Tasks.Makespan.Hours()}
		})),
		Column: "jobs_per_hour", Table: work, Head: "jobs/h", Drop: 8,
	},
	{
		Key: "attempts.started", Doc: "attempts", Of: Total(func(d *Data) float64 { return float64(d.Tasks.Attempts()) }),
		Column: "attempts", Table: work, Head: "attempts", Define: None,
	},
	{
		Key: "attempts.committed", Doc: "those that committed",
		Of: Total(func(d *Data) float64 { return float64(d.Tasks.Committed) }),
	},
	{
		Key: "attempts.copied", Doc: "those that ended after another one had committed",
		Of:     Total(func(d *Data) float64 { return float64(d.Tasks.Copied) }),
		Column: "copied",
	},
	{
		Key: "attempts.killed", Doc: "killed attempts", Of: Total(func(d *Data) float64 { return float64(d.Tasks.Killed) }),
		Column: "killed", Table: work, Head: "killed", Drop: 5, Define: None,
	},
	{
		Key: "attempts.failed", Doc: "failed attempts", Of: Total(func(d *Data) float64 { return float64(d.Tasks.Failed) }),
		Column: "failed", Table: work, Head: "failed", Drop: 4, Define: None,
	},
	{
		Key: "wasted_slot_us", Unit: Micros, Doc: "slot time of attempts that did not commit",
		Of:     Mean(func(d *Data) float64 { return micros(d.Tasks.WastedTime) }),
		Column: "wasted_slot_us", Table: work, Head: "wasted slot time", Short: "wasted",
		Define: "wasted: slot time and input of attempts that did not commit.",
	},
	{
		Key: "wasted_input_bytes", Unit: Bytes, Doc: "inputs that they had read or fetched completely",
		Of:    Mean(func(d *Data) float64 { return float64(d.Tasks.WastedInput) }),
		Table: work, Head: "wasted input", Drop: 1, Define: None,
	},
	local("locality.n", Count, "committed attempts that read a block",
		func(l metrics.Locality) float64 { return float64(l.Total()) }),
	local("locality.node", Share, "share of them whose block was on their host", node),
	local("locality.rack", Share, "share whose block was on another host of their rack", rack),
	local("locality.off_rack", Share, "share whose block was in another rack", offRack),
	{
		Key: "locality_by_maps", Doc: "the same by the number of maps of the job, least_maps to most_maps (none: no bound)",
		Table: locality,
		List: &List{Rows: byMaps, Whole: "locality", Name: MapsName, Head: "job size", Figures: []Figure{
			{Key: "n", Doc: "attempts", Head: "n", Drop: 1},
			{Key: "node", Unit: Share, Doc: "share from their host", Head: "node"},
			{Key: "rack", Unit: Share, Doc: "share from their rack", Head: "rack"},
			{Key: "off_rack", Unit: Share, Doc: "share from another rack", Head: "off-rack"},
		}},
	},
}

// Places of the blocks that maps read, as numbers of attempts.
func node(l metrics.Locality) float64    { return float64(l.Node) }
func rack(l metrics.Locality) float64    { return float64(l.Rack) }
func offRack(l metrics.Locality) float64 { return float64(l.OffRack) }

// local returns a figure of the places of blocks: a number of attempts, or its share of all.
func local(key string, unit Unit, doc string, of func(metrics.Locality) float64) Figure {
	f := Figure{Key: key, Unit: unit, Doc: doc}
	if unit == Share {
		_, f.Column, _ = strings.Cut(key, ".")
	}
	f.Of = func(arm []*Data) (float64, bool) {
		var all metrics.Locality
		for _, d := range arm {
			all.Add(d.Tasks.Locality)
		}
		x := of(all)
		if unit == Share {
			x /= float64(max(1, all.Total()))
		}
		return x, all.Total() > 0
	}
	return f
}

// byMaps divides the attempts that read a block by the number of maps of the job.
func byMaps(arm []*Data) (out []Row) {
	least := 1
	for k := range len(metrics.MapClasses) + 1 {
		var l metrics.Locality
		for _, d := range arm {
			l.Add(d.Tasks.ByMaps[k])
		}
		row := Row{{Key: "least_maps", X: float64(least)}}
		if k < len(metrics.MapClasses) {
			most := metrics.MapClasses[k]
			row = append(row, Value{Key: "most_maps", X: float64(most)})
			least = most + 1
		}
		if n := float64(l.Total()); n > 0 {
			out = append(out, append(row, Value{Key: "n", X: n}, Value{Key: "node", X: node(l) / n},
				Value{Key: "rack", X: rack(l) / n}, Value{Key: "off_rack", X: offRack(l) / n}))
		}
	}
	return out
}

// MapsName returns the numbers of maps of a class in words.
func MapsName(row Values) string {
	least, _ := row.Get("least_maps")
	if most, ok := row.Get("most_maps"); ok {
		return fmt.Sprintf("%.0f–%.0f maps", least, most)
	}
	return fmt.Sprintf("%.0f maps or more", least)
}

// backupFigures are those of attempts that started while another attempt of their task ran.
var backupFigures = []Figure{
	backup(Figure{Key: "tasks", Doc: "tasks with an attempt that started while another one ran", Head: "tasks", Drop: 4,
		Define: None},
		func(c *metrics.Clones) float64 { return float64(c.Tasks) }),
	backup(Figure{Key: "started", Doc: "these attempts", Column: "backups", Head: "started", Define: None},
		func(c *metrics.Clones) float64 { return float64(c.Started) }),
	backup(Figure{Key: "won", Doc: "those of them that committed", Column: "backups_won", Head: "won", Define: None},
		func(c *metrics.Clones) float64 { return float64(c.Won) }),
	backup(Figure{Key: "copied", Doc: "those that ended after another attempt had committed", Head: "copied",
		Define: None},
		func(c *metrics.Clones) float64 { return float64(c.Backups.Copied) }),
	backup(Figure{Key: "killed", Doc: "those that were killed; the rest failed", Head: "killed", Drop: 3, Define: None},
		func(c *metrics.Clones) float64 { return float64(c.Killed) }),
	backup(Figure{Key: "extra_us", Unit: Micros, Doc: "slot time of the attempts of these tasks that did not commit",
		Column: "extra_us", Head: "extra slot time", Drop: 5, Define: None},
		func(c *metrics.Clones) float64 { return micros(c.Extra) }),
	{
		Key: "backups.extra_share", Unit: Share, Doc: "its share of the slot time of all attempts",
		Of: when(cloned, orZero(Ratio(func(d *Data) metrics.Average {
			out := metrics.Average{}
			if c := d.Tasks.Clones; c != nil {
				out.Sum = float64(c.Extra)
				for _, t := range c.Used {
					out.N += float64(t)
				}
			}
			return out
		}))),
		Table: backups, Head: "of all slot time", Define: None,
	},
	{
		Key:   "backups.extra_by_tasks",
		Doc:   "the same by the number of tasks of the job, least_tasks to most_tasks (none: no bound)",
		Table: extraSize,
		List: &List{Rows: extraByTasks, Name: TasksName, Head: "job size", Figures: []Figure{
			{Key: "extra_us", Unit: Micros, Doc: "extra slot time", Head: "extra slot time"},
			{Key: "share", Unit: Share, Doc: "its share of the slot time of these jobs", Head: "of their slot time"},
			{Key: "share_of_extra", Unit: Share, Doc: "its share of the extra slot time of all jobs",
				Head: "of all extra slot time"},
		}},
	},
	{
		Key: "backups.slots.mean", Unit: Share,
		Doc: "share of all slots that attempts beyond the first of a task use, over the makespan",
		Of: when(cloned, func(arm []*Data) (float64, bool) {
			var beyond, all float64
			for _, d := range arm {
				slots, ok := slotTime(d, metrics.TaskKinds()...)
				if !ok {
					return 0, false
				}
				all += slots
				if d.Tasks.Clones != nil {
					beyond += float64(d.Tasks.Clones.Beyond)
				}
			}
			return beyond / max(1, all), all > 0
		}),
		Table: backups, Head: "slots, mean", Drop: 2,
		Define: "slots: the share of all slots that attempts beyond the first of a task use, averaged over the makespan " +
			"and at its peak.",
	},
	{
		Key: "backups.slots.peak", Unit: Share, Doc: "the largest such share at any time",
		Of: when(cloned, func(arm []*Data) (float64, bool) {
			most, slots := 0, 0
			for _, d := range arm {
				if all, ok := slotTime(d, metrics.TaskKinds()...); !ok || all <= 0 {
					return 0, false
				}
				if c := d.Tasks.Clones; c != nil {
					most = max(most, c.PeakSlots)
				}
				slots = d.Slots.Of(flows.MapTask) + d.Slots.Of(flows.ReduceTask)
			}
			return float64(most) / float64(slots), true
		}),
		Table: backups, Head: "slots, peak", Drop: 1, Define: None,
	},
	extraBytes(Figure{Key: "read", Doc: "input blocks that extra attempts read over the network",
		Column: "extra_read_bytes", Head: "read"},
		func(b *metrics.ExtraBytes) units.Bytes { return b.Read }),
	extraBytes(Figure{Key: "fetched", Doc: "outputs of tasks that they fetched over the network",
		Column: "extra_fetched_bytes", Head: "fetched"},
		func(b *metrics.ExtraBytes) units.Bytes { return b.Fetched }),
	extraBytes(Figure{Key: "fetched_further", Doc: "the part of these from copies that were not the first",
		Head: "fetched from further copies"},
		func(b *metrics.ExtraBytes) units.Bytes { return b.Further }),
	extraWritten(),
	{
		Key: "backups.extra_bytes.share", Unit: Share,
		Doc: "share of read and fetched in the payload of all reads and fetches",
		Of: when(cloned, orZero(Ratio(func(d *Data) metrics.Average {
			if c := d.Tasks.Clones; c != nil {
				return metrics.Average{Sum: float64(c.Bytes.Read + c.Bytes.Fetched), N: float64(c.Bytes.All)}
			}
			return metrics.Average{}
		}))),
		Table: extra, Head: "of all bytes", Define: None,
	},
	copied(Figure{Key: "fetches", Doc: "complete fetches over the network by tasks of which two attempts or more fetched",
		Head: "fetches", Define: None},
		func(c metrics.Copies) metrics.Average {
			return metrics.Average{Sum: float64(c.Alone.N + c.Shared.N), N: 1}
		}),
	copied(Figure{Key: "shared", Doc: "those during which another attempt of the same task fetched from the same copy"},
		func(c metrics.Copies) metrics.Average { return metrics.Average{Sum: float64(c.Shared.N), N: 1} }),
	copied(Figure{Key: "shared_share", Unit: Share, Column: "shared_fetches", Head: "shared",
		Doc: "the share of them during which another attempt of the same task fetched from the same copy"},
		func(c metrics.Copies) metrics.Average {
			share, _ := c.SharedShare()
			return metrics.Average{Sum: share, N: 1}
		}),
	copied(Figure{Key: "alone_bps", Unit: BitRate, Doc: "payload rate of the others", Head: "rate alone", Define: None},
		func(c metrics.Copies) metrics.Average { return rate(c.Alone) }),
	copied(Figure{Key: "shared_bps", Unit: BitRate, Doc: "payload rate of the shared ones", Head: "rate shared",
		Define: "rates: payload over the time from the first to the last byte."},
		func(c metrics.Copies) metrics.Average { return rate(c.Shared) }),
	copied(Figure{Key: "wait_us", Unit: Micros, Column: "copy_wait_us", Head: "wait for copies",
		Doc: "the time in which an attempt ran, the first copy of an output was complete that it fetched later, and it " +
			"fetched nothing; averaged over its attempts"},
		func(c metrics.Copies) metrics.Average {
			return metrics.Average{Sum: micros(c.Waited), N: float64(c.Attempts)}
		}),
}

// cloned reports whether a repeat has backups.
func cloned(d *Data) bool { return d.Tasks.Clones != nil && d.Tasks.Clones.Started > 0 }

// orZero makes a figure 0 that is not known.
func orZero(of Of) Of {
	return func(arm []*Data) (float64, bool) {
		x, _ := of(arm)
		return x, true
	}
}

// backup completes a figure of backups: a sum, or an average of a repeat for times and bytes.
func backup(f Figure, of func(*metrics.Clones) float64) Figure {
	each := func(d *Data) float64 {
		if d.Tasks.Clones == nil {
			return 0
		}
		return of(d.Tasks.Clones)
	}
	f.Of = when(cloned, Total(each))
	if f.Unit != Count {
		f.Of = when(cloned, Mean(each))
	}
	f.Key = "backups." + f.Key
	if f.Table == "" {
		f.Table = backups
	}
	return f
}

// extraBytes completes a figure of payload that extra attempts carried.
func extraBytes(f Figure, of func(*metrics.ExtraBytes) units.Bytes) Figure {
	f.Key, f.Unit, f.Table, f.Define = "extra_bytes."+f.Key, Bytes, extra, None
	return backup(f, func(c *metrics.Clones) float64 { return float64(of(&c.Bytes)) })
}

// extraWritten is known from captures alone: the fluid model has no records of what was stopped.
func extraWritten() Figure {
	f := extraBytes(Figure{Key: "written",
		Doc:    "bytes of their block writes over the hops of pipelines between hosts, from captures alone",
		Column: "extra_written_bytes", Head: "written"}, func(b *metrics.ExtraBytes) units.Bytes { return b.Written })
	f.Of = when(func(d *Data) bool { return d.Packets }, f.Of)
	return f
}

// copied completes a figure of the fetches of tasks with several attempts that fetched.
func copied(f Figure, of func(metrics.Copies) metrics.Average) Figure {
	f.Key = "backups.copies." + f.Key
	if f.Head != "" {
		f.Table = copies
	}
	f.Of = func(arm []*Data) (float64, bool) {
		var all metrics.Copies
		for _, d := range arm {
			if d.Tasks.Clones != nil {
				all.Add(d.Tasks.Clones.AllCopies())
			}
		}
		if all.Attempts == 0 {
			return 0, false
		}
		return of(all).Value()
	}
	return f
}

func rate(f metrics.Fetches) metrics.Average {
	return metrics.Average{Sum: float64(8 * f.Size), N: f.Busy.Seconds()}
}

// extraByTasks divides the extra slot time by the number of tasks of the job.
func extraByTasks(arm []*Data) (out []Row) {
	var all metrics.Clones
	for _, d := range arm {
		all.Add(d.Tasks.Clones)
	}
	if all.Started == 0 {
		return nil
	}
	for k, t := range all.ExtraOf {
		if all.Used[k] == 0 {
			continue
		}
		ofExtra := 0.0
		if all.Extra > 0 {
			ofExtra = float64(t) / float64(all.Extra)
		}
		out = append(out, append(SizeRange(k), Value{Key: "extra_us", X: micros(t) / float64(len(arm))},
			Value{Key: "share", X: float64(t) / float64(all.Used[k])}, Value{Key: "share_of_extra", X: ofExtra}))
	}
	return out
}

// SizeRange returns the bounds of a class of jobs by the number of their tasks: jobs.SizeBounds.
func SizeRange(class int) Row {
	least, most := jobs.SizeBounds(class)
	row := Row{{Key: "least_tasks", X: float64(least)}}
	if most > 0 {
		row = append(row, Value{Key: "most_tasks", X: float64(most)})
	}
	return row
}

// TasksName returns the numbers of tasks of a class in words.
func TasksName(row Values) string {
	least, _ := row.Get("least_tasks")
	return jobs.SizeName(jobs.SizeClass(int(least)))
}

// slotTime returns the time of all slots of kinds within the makespan; false if the slots are not known.
func slotTime(d *Data, kinds ...string) (sum float64, ok bool) {
	if d.Slots == nil {
		return 0, false
	}
	for _, kind := range kinds {
		sum += float64(d.Tasks.Makespan) * float64(d.Slots.Of(kind))
	}
	return sum, true
}

// slotUse returns the slot time in use within the makespan over the time of all slots of a kind.
func slotUse(kind string) Of {
	return func(arm []*Data) (float64, bool) {
		var all metrics.Average
		for _, d := range arm {
			slots, ok := slotTime(d, kind)
			if !ok {
				return 0, false
			}
			all.Add(metrics.Average{Sum: float64(d.Tasks.Busy[kind]), N: slots})
		}
		return all.Value()
	}
}

// bytesOf completes a figure of the payload of flows of tasks.
func bytesOf(key, doc, head string, of func(*metrics.TaskBytes) units.Bytes) Figure {
	return Figure{Key: "bytes." + key, Unit: Bytes, Doc: doc,
		Of:     Mean(func(d *Data) float64 { return float64(of(&d.Tasks.Moved)) }),
		Column: key + "_bytes", Table: moved, Head: head, Define: None}
}

// straggling completes a figure of attempts by progress rate.
func straggling(f Figure, of func(metrics.Straggling) float64) Figure {
	f.Key = "straggling." + f.Key
	f.Of = func(arm []*Data) (float64, bool) {
		var all metrics.Straggling
		for _, d := range arm {
			all.Add(d.Tasks.Straggling)
		}
		return of(all), all.Judged > 0
	}
	return f
}

// part returns a figure of a part of the average job time.
func part(key, head, doc string, k int) Figure {
	return Figure{Key: "job_parts." + key + "_us", Unit: Micros, Doc: doc, Table: parts, Head: head,
		Of: Ratio(func(d *Data) metrics.Average {
			return metrics.Average{Sum: micros(d.Tasks.Parts[k]), N: float64(d.Tasks.Divided)}
		})}
}

// shuffled returns a figure of shuffles, in a unit of the average.
func shuffled(unit float64, of func(*metrics.ShuffleFigures) metrics.Average) Of {
	all := Ratio(func(d *Data) metrics.Average {
		if d.Tasks.Shuffle == nil {
			return metrics.Average{}
		}
		return of(d.Tasks.Shuffle)
	})
	return func(arm []*Data) (float64, bool) {
		x, ok := all(arm)
		return x / unit, ok
	}
}

// saturated returns the share of the makespans in which the links of each rack were saturated, and that of all racks.
// They are nil and 0 if the loads of links are not known, as in the fluid model.
func saturated(arm []*Data) (racks []metrics.Average, mean metrics.Average) {
	if !slices.ContainsFunc(arm, func(d *Data) bool { return d.Tasks.Shuffle != nil }) {
		return nil, mean
	}
	for _, d := range arm {
		from, to := metrics.TaskSpan(&d.Records)
		if to <= from {
			continue
		}
		for k, load := range metrics.RackLoads(d.Links, metrics.SaturationInterval) {
			if k == len(racks) {
				racks = append(racks, metrics.Average{})
			}
			share := metrics.Average{Sum: float64(load.SaturatedTime(from, to)), N: float64(to - from)}
			racks[k].Add(share)
			mean.Add(share)
		}
	}
	return racks, mean
}

// mostSaturated names the rack whose links are saturated longest.
func mostSaturated(v, _ Values) string {
	rack, most := 0, 0.0
	for k, row := range v.Below("shuffle.saturated") {
		if row.X > most {
			rack, most = k, row.X
		}
	}
	if most == 0 {
		return ""
	}
	return fmt.Sprintf("%d: %s", rack, Share.Show(most))
}

// placeFigures are those of bytes, slots, shares of users and shuffles.
var placeFigures = []Figure{
	bytesOf("read", "input blocks that were read over the network", "read",
		func(b *metrics.TaskBytes) units.Bytes { return b.Read }),
	bytesOf("read_cross_rack", "the part that crossed racks", "read across racks",
		func(b *metrics.TaskBytes) units.Bytes { return b.ReadCrossRack }),
	bytesOf("fetched", "outputs of tasks that were fetched over the network", "fetched",
		func(b *metrics.TaskBytes) units.Bytes { return b.Fetched }),
	bytesOf("fetched_cross_rack", "the part that crossed racks", "fetched across racks",
		func(b *metrics.TaskBytes) units.Bytes { return b.FetchedCrossRack }),
	{
		Key: "slot_use.map", Unit: Share,
		Doc:   "slot time of attempts within the makespan over the time of all slots of the kind",
		Of:    slotUse(flows.MapTask),
		Table: work, Head: "map slots in use", Short: "map slots", Drop: 7, Define: "slots in use: {}.",
	},
	{
		Key: "slot_use.reduce", Unit: Share, Doc: "the same of slots for reduces", Of: slotUse(flows.ReduceTask),
		Table: work, Head: "reduce slots in use", Short: "reduce slots", Drop: 6, Define: None,
	},
	{
		Key: "stragglers.stages", Doc: fmt.Sprintf("stages with %d tasks or more that committed", metrics.LeastStage),
		Of: func(arm []*Data) (n float64, ok bool) {
			for _, d := range arm {
				n += float64(len(d.Tasks.Stragglers))
			}
			return n, n > 0
		},
	},
	{
		Key: "stragglers.median", Unit: Times,
		Doc: "the slowest committed attempt over the median of its stage; the median over all stages with " +
			strconv.Itoa(metrics.LeastStage) + " tasks or more",
		Of:    Quantile(0.5, stragglers),
		Table: work, Head: "stragglers", Drop: 3, Define: "\nstragglers: {}.",
	},
	{Key: "stragglers.p95", Unit: Times, Doc: "the 95th percentile over these stages", Of: Quantile(0.95, stragglers)},
	{Key: "stragglers.max", Unit: Times, Doc: "the largest of these ratios", Of: Quantile(1, stragglers)},
	straggling(Figure{Key: "judged", Doc: "attempts with a known progress rate"},
		func(s metrics.Straggling) float64 { return float64(s.Judged) }),
	straggling(Figure{Key: "slow", Doc: "those of them that straggle"},
		func(s metrics.Straggling) float64 { return float64(s.Slow) }),
	straggling(Figure{Key: "share", Unit: Share, Column: "straggling", Table: work, Head: "straggling", Drop: 10,
		Doc: "the share of the attempts whose progress rate, input over the time from start to end, is below half the " +
			"median of the attempts of their stage that committed or copied; of attempts that were killed or failed, only " +
			"those count that would be below it with their whole input processed"},
		metrics.Straggling.Share),
	straggling(Figure{Key: "unknown", Doc: "attempts that are not judged"},
		func(s metrics.Straggling) float64 { return float64(s.Unknown) }),
	{
		Key: "job_parts.jobs", Doc: "jobs with attempts, whose average time has these parts",
		Of: func(arm []*Data) (n float64, ok bool) {
			for _, d := range arm {
				n += float64(d.Tasks.Divided)
			}
			return n, n > 0
		},
		Table: parts, Head: "jobs", Drop: 1, Define: None,
	},
	silent(part("waiting", "waiting", "no attempt of the job runs", metrics.JobWaiting)),
	part("mapping", "mapping", "an attempt that reads a block has not processed it yet", metrics.JobMapping),
	part("shuffling", "shuffling", "an attempt fetches, or has fetched everything and waits to compute",
		metrics.JobShuffling),
	part("computing", "computing", "an attempt that has fetched computes", metrics.JobComputing),
	part("writing", "writing", "all running attempts have computed, and spill, write blocks or commit",
		metrics.JobWriting),
	{
		Key: "mean_job_slowdown", Unit: Times, Table: parts, Head: "mean slowdown", Of: overAll(slowdowns, mean),
		Doc: "job time over the time of the job alone on the idle cluster, on the fluid model under the first arm; – if " +
			"that time is not known, as from captures alone",
		Define: "waiting: no attempt of the job runs. Attempts that are killed or fail count as well. slowdown: {}.",
	},
	{
		Key: "median_job_slowdown", Unit: Times, Doc: "the median of this slowdown", Of: overAll(slowdowns, metrics.Median),
		Table: parts, Head: "median slowdown", Define: None,
	},
	{
		Key: "fairness.jain", Unit: Index,
		Doc: "Jain's index of the slots that users have, (Σx)² / (n Σx²) over the n users with a job that is submitted and " +
			"has not ended, averaged over the time in which there are two or more and any slot is in use. A user whose jobs " +
			"have fewer tasks than its share lowers it",
		Of: Ratio(func(d *Data) metrics.Average {
			return metrics.Average{Sum: d.Tasks.Jain * float64(d.Tasks.JainTime), N: float64(d.Tasks.JainTime)}
		}),
		Column: "jain", Table: work, Head: "Jain", Drop: 9,
	},
	{
		Key: "fairness.over_us", Unit: Micros, Doc: "that time",
		Of: when(func(d *Data) bool { return d.Tasks.JainTime > 0 },
			Mean(func(d *Data) float64 { return micros(d.Tasks.JainTime) })),
	},
	{
		Key: "shuffle.map_racks", Unit: Number,
		Doc: "the effective number of racks of a job's maps, 1 / Σ share² over their shares in each rack, averaged over " +
			"jobs with two maps or more and a reduce",
		Of:     shuffled(1, func(s *metrics.ShuffleFigures) metrics.Average { return s.MapRacks }),
		Column: "map_racks", Table: shuffle, Head: "racks of maps",
	},
	{
		Key: "shuffle.reduces_at_data", Unit: Share,
		Doc: "reduces in racks in proportion to the data, Σ min(placed, preferred) over their number; preferred are the " +
			"reduces of the job divided by largest remainders in proportion to the bytes that they fetched from each rack",
		Of:     shuffled(1, func(s *metrics.ShuffleFigures) metrics.Average { return s.ReducesAtData }),
		Column: "reduces_at_data", Table: shuffle, Head: "reduces at data",
	},
	{
		Key: "shuffle.shuffle_crossing", Unit: Share, Doc: "the share of the bytes that reduces fetched that crossed racks",
		Of:     shuffled(1, func(s *metrics.ShuffleFigures) metrics.Average { return s.ShuffleCrossing }),
		Column: "shuffle_crossing", Table: shuffle, Head: "shuffle across racks",
		Define: "shuffle across racks: {}; for both, fetches from the reduce's own host count. If the run keeps only sums " +
			"of transfers, as in large simulations, the data is divided like the maps instead, and fetches of attempts that " +
			"did not commit count.",
	},
	{
		Key: "shuffle.reduce_wait_us", Unit: Micros,
		Doc: "from the commit of the job's first map to the start of a reduce, 0 if it started before; averaged over first " +
			"attempts in the job's first stage with reduces",
		Of:     shuffled(float64(time.Microsecond), func(s *metrics.ShuffleFigures) metrics.Average { return s.ReduceWait }),
		Column: "reduce_wait_us", Table: shuffle, Head: "reduce wait", Define: "\nreduce wait: {}.",
	},
	{
		Key: "shuffle.reduces_delayed", Unit: Share,
		Doc:    "those of them that waited longer than the median time of the job's maps",
		Of:     shuffled(1, func(s *metrics.ShuffleFigures) metrics.Average { return s.ReducesDelayed }),
		Column: "reduces_delayed", Table: shuffle, Head: "reduces delayed", Drop: 4,
	},
	{
		Key: "shuffle.space_peak_bytes", Unit: Bytes, Doc: "the largest size of the stored outputs of maps",
		Of:     shuffled(1, func(s *metrics.ShuffleFigures) metrics.Average { return s.SpacePeak }),
		Column: "space_peak_bytes", Table: shuffle, Head: "outputs stored, peak", Drop: 2, Place: 2,
		Define: "\noutputs stored: the outputs of maps, each from its commit to the end of its job: the largest size and " +
			"the average over the makespan, averages of a repeat. What the first stage with reduces fetched is divided among " +
			"the maps by their input. Jobs that did not complete are left out.",
	},
	{
		Key: "shuffle.space_mean_bytes", Unit: Bytes, Doc: "their average size over the makespan",
		Of:     shuffled(1, func(s *metrics.ShuffleFigures) metrics.Average { return s.SpaceMean }),
		Column: "space_mean_bytes", Table: shuffle, Head: "outputs stored, average", Drop: 1, Place: 2, Define: None,
	},
	{
		Key: "shuffle.saturated", Doc: "that share of each rack, from rack 0", Table: shuffle, Head: "most saturated rack",
		Drop: 3, Place: 1,
		Cell: mostSaturated,
		List: &List{Rows: func(arm []*Data) (out []Row) {
			racks, _ := saturated(arm)
			for _, r := range racks {
				x, _ := r.Value()
				out = append(out, Row{{X: x}})
			}
			return out
		}},
	},
	{
		Key: "shuffle.saturated_mean", Unit: Share,
		Doc: fmt.Sprintf("the share of the makespan, averaged over racks, in stretches of %d intervals or more in which "+
			"the links of "+
			"the rack to or from the spines together carried more than %s of their capacity; an interval is %v, rounded up "+
			"to a "+
			"multiple of the measured one", metrics.SaturatedIntervals, units.Percent(metrics.SaturatedShare, 0),
			metrics.SaturationInterval),
		Of: func(arm []*Data) (float64, bool) {
			_, mean := saturated(arm)
			return mean.Value()
		},
		Column: "saturated", Table: shuffle, Head: "links saturated",
	},
}

func stragglers(d *Data) []float64 { return d.Tasks.Stragglers }
func slowdowns(d *Data) []float64  { return d.Tasks.Slowdowns }

func mean(all []float64) float64 {
	sum := 0.0
	for _, x := range all {
		sum += x
	}
	return sum / float64(len(all))
}

// silent returns a figure without a definition of its own.
func silent(f Figure) Figure {
	f.Define = None
	return f
}
