package summary

import (
	"fmt"
	"slices"
	"time"

	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/workloads/jobs"
)

// Tasks are the figures of jobs of tasks. Counts are sums over the repeats; times and bytes are averages of a repeat.
type Tasks struct {
	Jobs        int     `json:"jobs" head:"jobs"`
	Makespan    Average `json:"makespan_us" column:"makespan_us" head:"makespan"`
	JobsPerHour Average `json:"jobs_per_hour" unit:"1/h" column:"jobs_per_hour" head:"jobs/h" drop:"8"`
	Attempts    struct {
		Started   int `json:"started" column:"attempts" head:"attempts"`
		Committed int `json:"committed"`
		Copied    int `json:"copied" column:"copied"`
		Killed    int `json:"killed" column:"killed" head:"killed" drop:"5"`
		Failed    int `json:"failed" column:"failed" head:"failed" drop:"4"`
	} `json:"attempts"`
	WastedSlot  Average      `json:"wasted_slot_us" column:"wasted_slot_us" head:"wasted slot time" short:"wasted"`
	WastedInput Average      `json:"wasted_input_bytes" head:"wasted input" drop:"1"`
	Locality    *Locality    `json:"locality,omitempty" table:"-"`
	ByMaps      []LocalityOf `json:"locality_by_maps,omitempty" table:"-"`
	Places      []Places     `json:"-" table:"Locality of maps"` // all, then ByMaps
	Backups     *Backups     `json:"backups,omitempty" table:"Clones and backups of tasks"`
	Bytes       struct {
		Read             Average `json:"read" unit:"bytes" column:"read_bytes" head:"read"`
		ReadCrossRack    Average `json:"read_cross_rack" unit:"bytes" column:"read_cross_rack_bytes" head:"read across racks"`
		Fetched          Average `json:"fetched" unit:"bytes" column:"fetched_bytes" head:"fetched"`
		FetchedCrossRack Average `json:"fetched_cross_rack" unit:"bytes" column:"fetched_cross_rack_bytes" head:"fetched across racks"`
	} `json:"bytes" table:"Bytes of tasks"`
	SlotUse struct {
		Map    Average `json:"map,omitzero" unit:"share" head:"map slots in use" short:"map slots" drop:"7"`
		Reduce Average `json:"reduce,omitzero" unit:"share" head:"reduce slots in use" short:"reduce slots" drop:"6"`
	} `json:"slot_use,omitzero"`
	Stragglers *Stragglers `json:"stragglers,omitempty"`
	Straggling *Straggling `json:"straggling,omitempty"`
	JobParts   *JobParts   `json:"job_parts,omitempty" table:"Job time by part"`
	// The times of jobs relative to those of the jobs alone.
	MeanSlowdown   Average  `json:"mean_job_slowdown,omitzero" unit:"times" table:"Job time by part" head:"mean slowdown"`
	MedianSlowdown *float64 `json:"median_job_slowdown,omitempty" unit:"times" table:"Job time by part" head:"median slowdown"`
	Fairness       struct {
		Jain Average `json:"jain,omitzero" unit:"index" column:"jain" head:"Jain" drop:"9"`
		Over Average `json:"over_us,omitzero"`
	} `json:"fairness,omitzero"`
	Shuffle Shuffle `json:"shuffle,omitzero" table:"Shuffle of jobs"`
}

// Locality is where committed attempts read their blocks.
type Locality struct {
	N       int     `json:"n" head:"n" drop:"1"`
	Node    float64 `json:"node" unit:"share" column:"node" head:"node"`
	Rack    float64 `json:"rack" unit:"share" column:"rack" head:"rack"`
	OffRack float64 `json:"off_rack" unit:"share" column:"off_rack" head:"off-rack"`
}

// LocalityOf is that of jobs by their number of maps.
type LocalityOf struct {
	LeastMaps int `json:"least_maps"`
	MostMaps  int `json:"most_maps,omitempty"` // 0 for no bound
	Locality
}

// Places is a Locality with the name of its jobs.
type Places struct {
	Jobs     string `json:"-" head:"job size" left:"true"`
	Locality `json:"-"`
}

// Backups are the figures of attempts that started while another attempt of their task ran.
type Backups struct {
	Tasks      int       `json:"tasks" head:"tasks" drop:"4"`
	Started    int       `json:"started" column:"backups" head:"started"`
	Won        int       `json:"won" column:"backups_won" head:"won"`
	Copied     int       `json:"copied" head:"copied"`
	Killed     int       `json:"killed" head:"killed" drop:"3"`
	Extra      Average   `json:"extra_us" column:"extra_us" head:"extra slot time" drop:"5"`
	ExtraShare Average   `json:"extra_share" unit:"share" head:"of all slot time"`
	ExtraOf    []ExtraOf `json:"extra_by_tasks,omitempty" table:"Extra slot time by size of the job"`
	Slots      struct {
		Mean Average `json:"mean,omitzero" unit:"share" head:"slots, mean" drop:"2"`
		Peak Average `json:"peak,omitzero" unit:"share" head:"slots, peak" drop:"1"`
	} `json:"slots,omitzero"`
	ExtraBytes struct {
		Read    Average `json:"read" unit:"bytes" column:"extra_read_bytes" head:"read"`
		Fetched Average `json:"fetched" unit:"bytes" column:"extra_fetched_bytes" head:"fetched"`
		Further Average `json:"fetched_further" unit:"bytes" head:"fetched from further copies"`
		Written Average `json:"written,omitzero" unit:"bytes" column:"extra_written_bytes" head:"written"`
		Share   Average `json:"share" unit:"share" head:"of all bytes"`
	} `json:"extra_bytes" table:"Extra bytes of clones and backups"`
	Copies *Copies `json:"copies,omitempty" table:"Fetches of cloned tasks"`
}

// ExtraOf is the extra slot time of jobs by their number of tasks.
type ExtraOf struct {
	SizeRange
	Jobs         string  `json:"-" head:"job size" left:"true"`
	Extra        Average `json:"extra_us" head:"extra slot time"`
	Share        Average `json:"share" unit:"share" head:"of their slot time"`
	ShareOfExtra Average `json:"share_of_extra" unit:"share" head:"of all extra slot time"`
}

// SizeRange is a class of jobs by the number of their tasks: jobs.SizeBounds. MostTasks is 0 for no bound.
type SizeRange struct {
	LeastTasks int `json:"least_tasks"`
	MostTasks  int `json:"most_tasks,omitempty"`
}

// SizeRangeOf returns that of a class.
func SizeRangeOf(class int) SizeRange {
	least, most := jobs.SizeBounds(class)
	return SizeRange{least, most}
}

// Copies are the figures of fetches of tasks with several attempts that fetched.
type Copies struct {
	Fetches     int     `json:"fetches" head:"fetches"`
	Shared      int     `json:"shared"`
	SharedShare float64 `json:"shared_share" unit:"share" column:"shared_fetches" head:"shared"`
	Alone       Average `json:"alone_bps,omitzero" head:"rate alone"`
	SharedRate  Average `json:"shared_bps,omitzero" head:"rate shared"`
	Wait        Average `json:"wait_us" column:"copy_wait_us" head:"wait for copies"`
}

// Stragglers are the slowest attempts of stages.
type Stragglers struct {
	Stages int     `json:"stages"`
	Median float64 `json:"median" unit:"times" head:"stragglers" drop:"3"`
	P95    float64 `json:"p95" unit:"times"`
	Max    float64 `json:"max" unit:"times"`
}

// Straggling counts attempts by progress rate.
type Straggling struct {
	Judged  int     `json:"judged"`
	Slow    int     `json:"slow"`
	Share   float64 `json:"share" unit:"share" column:"straggling" head:"straggling" drop:"10"`
	Unknown int     `json:"unknown"`
}

// JobParts are the parts of the average job time.
type JobParts struct {
	Jobs      int     `json:"jobs" head:"jobs" drop:"1"`
	Waiting   Average `json:"waiting_us" head:"waiting"`
	Mapping   Average `json:"mapping_us" head:"mapping"`
	Shuffling Average `json:"shuffling_us" head:"shuffling"`
	Computing Average `json:"computing_us" head:"computing"`
	Writing   Average `json:"writing_us" head:"writing"`
}

// Shuffle is where jobs have their tasks and the data between them.
type Shuffle struct {
	MapRacks       Average   `json:"map_racks,omitzero" unit:"number" column:"map_racks" head:"racks of maps"`
	ReducesAtData  Average   `json:"reduces_at_data,omitzero" unit:"share" column:"reduces_at_data" head:"reduces at data"`
	Crossing       Average   `json:"shuffle_crossing,omitzero" unit:"share" column:"shuffle_crossing" head:"shuffle across racks"`
	ReduceWait     Average   `json:"reduce_wait_us,omitzero" column:"reduce_wait_us" head:"reduce wait"`
	ReducesDelayed Average   `json:"reduces_delayed,omitzero" unit:"share" column:"reduces_delayed" head:"reduces delayed" drop:"4"`
	SpacePeak      Average   `json:"space_peak_bytes,omitzero" column:"space_peak_bytes" head:"outputs stored, peak" drop:"2" place:"2"`
	SpaceMean      Average   `json:"space_mean_bytes,omitzero" column:"space_mean_bytes" head:"outputs stored, average" drop:"1" place:"2"`
	Saturated      []Average `json:"saturated,omitempty" unit:"share" racks:"saturated"`
	SaturatedMean  Average   `json:"saturated_mean,omitzero" unit:"share" column:"saturated" head:"links saturated"`
	MostSaturated  string    `json:"-" head:"most saturated rack" drop:"3" place:"1"`
}

// tasksOf returns the figures of an arm; nil if no repeat has jobs of tasks.
func tasksOf(repeats []Repeat, packets bool) *Tasks {
	var of []*Repeat
	var all metrics.Tasks
	var mapSlots, reduceSlots float64 // time of all slots
	for i := range repeats {
		r := &repeats[i]
		x := metrics.TasksOf(&r.Records, r.Slots)
		if x == nil {
			continue
		}
		of = append(of, r)
		all.Add(x)
		if r.Slots != nil {
			mapSlots += float64(x.Makespan) * float64(r.Slots.Of(flows.MapTask))
			reduceSlots += float64(x.Makespan) * float64(r.Slots.Of(flows.ReduceTask))
		}
	}
	if of == nil {
		return nil
	}
	if all.Slots == nil {
		mapSlots, reduceSlots = 0, 0
	}
	mean := func(x float64) Average { return Average{Sum: x, N: float64(len(of))} }
	t := &Tasks{
		Jobs:        all.Jobs,
		Makespan:    mean(micros(all.Makespan)),
		JobsPerHour: Average{Sum: float64(all.Jobs), N: all.Makespan.Hours()},
		WastedSlot:  mean(micros(all.WastedTime)),
		WastedInput: mean(float64(all.WastedInput)),
		Stragglers:  stragglersOf(all.Stragglers),
		JobParts:    jobPartsOf(&all),
		Shuffle:     shuffleOf(all.Shuffle, of),
	}
	a := &t.Attempts
	a.Started, a.Committed, a.Copied = all.Attempts(), all.Committed, all.Copied
	a.Killed, a.Failed = all.Killed, all.Failed
	b := &t.Bytes
	b.Read, b.ReadCrossRack = mean(float64(all.Moved.Read)), mean(float64(all.Moved.ReadCrossRack))
	b.Fetched, b.FetchedCrossRack = mean(float64(all.Moved.Fetched)), mean(float64(all.Moved.FetchedCrossRack))
	t.SlotUse.Map = Average{Sum: float64(all.Busy[flows.MapTask]), N: mapSlots}
	t.SlotUse.Reduce = Average{Sum: float64(all.Busy[flows.ReduceTask]), N: reduceSlots}
	t.locality(&all)
	if s := all.Straggling; s.Judged > 0 {
		t.Straggling = &Straggling{s.Judged, s.Slow, metrics.Round6(s.Share()), s.Unknown}
	}
	if len(all.Slowdowns) > 0 {
		slices.Sort(all.Slowdowns)
		for _, x := range all.Slowdowns {
			t.MeanSlowdown.Add(one(x))
		}
		median := metrics.Round6(metrics.Median(all.Slowdowns))
		t.MedianSlowdown = &median
	}
	if all.JainTime > 0 {
		t.Fairness.Jain, t.Fairness.Over = one(all.Jain), mean(micros(all.JainTime))
	}
	if c := all.Clones; c != nil && c.Started > 0 {
		t.Backups = backupsOf(c, mean)
		t.Backups.Slots.Mean = Average{Sum: float64(c.Beyond), N: mapSlots + reduceSlots}
		if mapSlots+reduceSlots > 0 {
			slots := all.Slots.Of(flows.MapTask) + all.Slots.Of(flows.ReduceTask)
			t.Backups.Slots.Peak = Average{Sum: float64(c.PeakSlots), N: float64(slots)}
		}
		if packets { // the fluid model has no records of what was stopped
			t.Backups.ExtraBytes.Written = mean(float64(c.Bytes.Written))
		}
	}
	return t
}

// locality fills in where maps read their blocks.
func (t *Tasks) locality(all *metrics.Tasks) {
	of := func(l metrics.Locality) Locality {
		n := float64(l.Total())
		share := func(of int) float64 { return metrics.Round6(float64(of) / n) }
		return Locality{l.Total(), share(l.Node), share(l.Rack), share(l.OffRack)}
	}
	if all.Locality.Total() == 0 {
		return
	}
	whole := of(all.Locality)
	t.Locality, t.Places = &whole, []Places{{"all", whole}}
	least := 1
	for k, l := range all.ByMaps {
		x := LocalityOf{LeastMaps: least}
		if k < len(metrics.MapClasses) {
			x.MostMaps = metrics.MapClasses[k]
			least = x.MostMaps + 1
		}
		if l.Total() > 0 {
			x.Locality = of(l)
			t.ByMaps, t.Places = append(t.ByMaps, x), append(t.Places, Places{x.Name(), x.Locality})
		}
	}
}

// Name returns the numbers of maps in words.
func (l LocalityOf) Name() string {
	if l.MostMaps > 0 {
		return fmt.Sprintf("%d–%d maps", l.LeastMaps, l.MostMaps)
	}
	return fmt.Sprintf("%d maps or more", l.LeastMaps)
}

func stragglersOf(all []float64) *Stragglers {
	if len(all) == 0 {
		return nil
	}
	slices.Sort(all)
	at := func(p float64) float64 { return metrics.Round6(metrics.Quantile(p, all)) }
	return &Stragglers{len(all), at(0.5), at(0.95), at(1)}
}

func jobPartsOf(all *metrics.Tasks) *JobParts {
	if all.Divided == 0 {
		return nil
	}
	part := func(k int) Average {
		return Average{Sum: micros(all.Parts[k]), N: float64(all.Divided)}
	}
	return &JobParts{
		Jobs:      all.Divided,
		Waiting:   part(metrics.JobWaiting),
		Mapping:   part(metrics.JobMapping),
		Shuffling: part(metrics.JobShuffling),
		Computing: part(metrics.JobComputing),
		Writing:   part(metrics.JobWriting),
	}
}

func backupsOf(c *metrics.Clones, mean func(float64) Average) *Backups {
	b := &Backups{
		Tasks:   c.Tasks,
		Started: c.Started,
		Won:     c.Won,
		Copied:  c.Backups.Copied,
		Killed:  c.Killed,
		Extra:   mean(micros(c.Extra)),
	}
	b.ExtraShare.Sum = float64(c.Extra)
	for k, used := range c.Used {
		b.ExtraShare.N += float64(used)
		if used == 0 {
			continue
		}
		extra := c.ExtraOf[k]
		b.ExtraOf = append(b.ExtraOf, ExtraOf{
			SizeRange:    SizeRangeOf(k),
			Jobs:         jobs.SizeName(k),
			Extra:        mean(micros(extra)),
			Share:        Average{Sum: float64(extra), N: float64(used)},
			ShareOfExtra: Average{Sum: float64(extra), N: float64(c.Extra)},
		})
	}
	x := &b.ExtraBytes
	x.Read, x.Fetched = mean(float64(c.Bytes.Read)), mean(float64(c.Bytes.Fetched))
	x.Further = mean(float64(c.Bytes.Further))
	x.Share = Average{Sum: float64(c.Bytes.Read + c.Bytes.Fetched), N: float64(c.Bytes.All)}
	if all := c.AllCopies(); all.Attempts > 0 {
		share, _ := all.SharedShare()
		b.Copies = &Copies{
			Fetches:     all.Alone.N + all.Shared.N,
			Shared:      all.Shared.N,
			SharedShare: metrics.Round6(share),
			Alone:       rate(all.Alone),
			SharedRate:  rate(all.Shared),
			Wait:        Average{Sum: micros(all.Waited), N: float64(all.Attempts)},
		}
	}
	return b
}

// rate returns the payload rate of fetches.
func rate(f metrics.Fetches) Average {
	return Average{Sum: float64(8 * f.Size), N: f.Busy.Seconds()}
}

// shuffleOf returns the figures of shuffles, of which all are the sum. Links are not known in the fluid model.
func shuffleOf(all *metrics.ShuffleFigures, of []*Repeat) (s Shuffle) {
	if all == nil {
		return s
	}
	s = Shuffle{
		MapRacks:       all.MapRacks,
		ReducesAtData:  all.ReducesAtData,
		Crossing:       all.ShuffleCrossing,
		ReducesDelayed: all.ReducesDelayed,
		SpacePeak:      all.SpacePeak,
		SpaceMean:      all.SpaceMean,
	}
	if wait, ok := all.ReduceWait.Value(); ok {
		s.ReduceWait = one(wait / float64(time.Microsecond))
	}
	for _, r := range of {
		from, to := metrics.TaskSpan(&r.Records)
		if to <= from {
			continue
		}
		for k, load := range metrics.RackLoads(r.Links, metrics.SaturationInterval) {
			if k == len(s.Saturated) {
				s.Saturated = append(s.Saturated, Average{})
			}
			share := Average{Sum: float64(load.SaturatedTime(from, to)), N: float64(to - from)}
			s.Saturated[k].Add(share)
			s.SaturatedMean.Add(share)
		}
	}
	most := 0.0
	for k, rack := range s.Saturated {
		if x := metrics.Round6(value(rack)); x > most {
			most = x
			s.MostSaturated = fmt.Sprintf("%d: %s", k, Share.Show(most))
		}
	}
	return s
}
