package metrics

import (
	"cmp"
	"encoding/json"
	"maps"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"time"

	"testbed/results/flows"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Average is an average that can be pooled with others: Sum divided by N.
type Average struct{ Sum, N float64 }

// Add adds the values of another average.
func (a *Average) Add(o Average) { a.Sum, a.N = a.Sum+o.Sum, a.N+o.N }

// Value returns the average; ok is false if there are no values.
func (a Average) Value() (value float64, ok bool) {
	if a.N <= 0 {
		return 0, false
	}
	return a.Sum / a.N, true
}

// IsZero reports whether there are no values.
func (a Average) IsZero() bool { return a.N <= 0 }

// MarshalJSON writes the average; 0 without values.
func (a Average) MarshalJSON() ([]byte, error) {
	x, _ := a.Value()
	return json.Marshal(Round6(x))
}

// UnmarshalJSON reads an average as one value.
func (a *Average) UnmarshalJSON(data []byte) error {
	a.N = 1
	return json.Unmarshal(data, &a.Sum)
}

// ShuffleFigures show where the jobs of one repeat have their tasks and intermediate data. A map is an
// attempt that read a block, and a reduce an attempt that fetched at least one byte. Only attempts
// that committed count, unless stated otherwise.
//
// What a reduce fetched from another host is the payload of its flows. The rest of its Input was on its
// own host, and is no flow. If transfers are summed up (flows.Records.Summed), flows do not state
// attempts and source racks. Then the intermediate data of a job is divided like its maps, and
// ShuffleCrossing includes reduces that did not commit.
type ShuffleFigures struct {
	// MapRacks is the effective number of racks of a job's maps, 1 / Σ share² over the shares of maps
	// in each rack: the average over jobs with two maps or more and a reduce.
	MapRacks Average
	// ReducesAtData is the share of reduces that are in racks in proportion to the intermediate data:
	// Σ min(placed, preferred) over all jobs and racks, divided by the number of reduces. Placed are the
	// reduces of the job in the rack. Preferred are all reduces of the job, divided by largest
	// remainders in proportion to the bytes that they fetched from hosts of each rack, their own
	// hosts included. The lower rack gets the reduce if remainders are equal.
	ReducesAtData Average
	// ShuffleCrossing is the share of the bytes that reduces fetched, from their own hosts included, that
	// crossed racks.
	ShuffleCrossing Average
	// ReduceWait is the time, in ns, from the commit of the job's first map to the start of a reduce, and
	// 0 if the reduce started before: the average over the reduces of the job's first stage with
	// reduces which are the first attempts of their tasks.
	ReduceWait Average
	// ReducesDelayed is the share of the reduces of ReduceWait that waited for longer than
	// DelayedMaps times the median time of the job's maps.
	ReducesDelayed Average
	// SpacePeak and SpaceMean are the largest and the average size, in bytes, of the stored outputs of maps of
	// unfinished jobs: the intermediate space of the FAIR report. The average is over the time from the first
	// submission to the last end, and both are averages of repeats. An output is stored from the commit of its
	// map to the end of its job; what the first stage with reduces fetched is divided among the maps by input.
	SpacePeak, SpaceMean Average
}

// DelayedMaps is the wait of a delayed reduce in median times of its job's maps. A reduce that
// waits for one such time or less may have waited for slots of the job's own maps to become free.
const DelayedMaps = 1

// all returns the averages of the figures.
func (s *ShuffleFigures) all() [7]*Average {
	return [...]*Average{
		&s.MapRacks, &s.ReducesAtData, &s.ShuffleCrossing, &s.ReduceWait, &s.ReducesDelayed, &s.SpacePeak, &s.SpaceMean,
	}
}

// Add adds the jobs of another repeat.
func (s *ShuffleFigures) Add(o *ShuffleFigures) {
	for i, a := range o.all() {
		s.all()[i].Add(*a)
	}
}

// rackOf returns the rack of a host, and -1 if its name has none.
func rackOf(host string) int {
	if rack, _, ok := topo.ParseHostName(host); ok {
		return int(rack)
	}
	return -1
}

// isMap reports whether an attempt is a map, and isReduce whether it is a reduce, of ShuffleFigures.
func isMap(a *flows.AttemptRecord) bool { return a.Outcome == flows.Committed && a.Locality != "" }

func isReduce(a *flows.AttemptRecord) bool {
	return a.Outcome == flows.Committed && a.Locality == "" && a.Input > 0
}

// fetches are the fetches over the network of one repeat.
type fetches struct {
	of map[[4]int]map[int]units.Bytes // by attempt and source rack
	// summed has the bytes of the jobs whose transfers are summed up, and those that crossed racks.
	summed map[workloads.JobID]struct{ all, crossed units.Bytes }
}

func fetchesOf(r *flows.Records) fetches {
	out := fetches{map[[4]int]map[int]units.Bytes{}, map[workloads.JobID]struct{ all, crossed units.Bytes }{}}
	for i := range r.Flows {
		f := &r.Flows[i]
		if t := f.Task; t != nil && t.Outputs > 0 && f.Src != f.Dst {
			id := [4]int{int(t.Job), t.Stage, t.Task, t.Attempt}
			if out.of[id] == nil {
				out.of[id] = map[int]units.Bytes{}
			}
			out.of[id][rackOf(f.Src)] += f.Size
		}
	}
	for i := range r.Summed {
		f := &r.Summed[i]
		if t := f.Task; t != nil && t.Outputs > 0 {
			s := out.summed[t.Job]
			s.all += f.Size
			if rackOf(f.Src) != rackOf(f.Dst) {
				s.crossed += f.Size
			}
			out.summed[t.Job] = s
		}
	}
	return out
}

// ShuffleOf returns the figures of shuffles of one repeat; nil if no task that committed has fetched.
func ShuffleOf(r *flows.Records) *ShuffleFigures {
	if !slices.ContainsFunc(r.Attempts, func(a flows.AttemptRecord) bool { return isReduce(&a) }) {
		return nil
	}
	s, fetched := &ShuffleFigures{}, fetchesOf(r)
	for _, of := range ByJob(r.Attempts) {
		s.job(of, fetched)
	}
	s.space(r)
	return s
}

// space adds the sizes of stored outputs of maps over time. Jobs that did not complete are left out.
func (s *ShuffleFigures) space(r *flows.Records) {
	type change struct {
		at time.Duration
		by float64
	}
	var changes []change
	ends := map[workloads.JobID]time.Duration{}
	for _, j := range r.Jobs {
		ends[j.Job] = j.End
	}
	for _, of := range ByJob(r.Attempts) {
		end, completed := ends[of[0].Job]
		if !completed {
			continue
		}
		stage := -1
		var read, fetched units.Bytes
		for i := range of {
			switch a := &of[i]; {
			case isMap(a):
				read += a.Input
			case isReduce(a) && (stage < 0 || a.Stage == stage):
				stage = a.Stage
				fetched += a.Input
			}
		}
		if read <= 0 || fetched <= 0 {
			continue
		}
		stored := 0.0
		for i := range of {
			if a := &of[i]; isMap(a) && a.End < end {
				size := float64(fetched) * (float64(a.Input) / float64(read))
				changes = append(changes, change{a.End, size})
				stored += size
			}
		}
		changes = append(changes, change{end, -stored})
	}
	slices.SortStableFunc(changes, func(a, b change) int { return cmp.Compare(a.at, b.at) })
	first, last := TaskSpan(r)
	if len(changes) == 0 || last <= first {
		return
	}
	size, peak, sum, now := 0.0, 0.0, 0.0, first
	for _, c := range changes {
		sum += size * float64(c.at-now)
		now = c.at
		size += c.by
		peak = max(peak, size)
	}
	s.SpacePeak.Add(Average{peak, 1})
	s.SpaceMean.Add(Average{sum / float64(last-first), 1})
}

// job adds the attempts of one job.
func (s *ShuffleFigures) job(of []flows.AttemptRecord, fetched fetches) {
	maps, placed, data := map[int]int{}, map[int]int{}, map[int]units.Bytes{}
	nMaps, nReduces := 0, 0
	var input, finished units.Bytes // fetched by reduces, and by all attempts with all their input
	var crossed Average
	for i := range of {
		a := &of[i]
		rack := rackOf(a.Host)
		if a.Locality == "" && a.InputEnd > 0 {
			finished += a.Input
		}
		switch {
		case isMap(a):
			maps[rack]++
			nMaps++
		case isReduce(a):
			placed[rack]++
			nReduces++
			own := a.Input
			for from, n := range fetched.of[[4]int{int(a.Job), a.Stage, a.Task, a.Attempt}] {
				data[from] += n
				own -= n
				if from != rack {
					crossed.Sum += float64(n)
				}
			}
			data[rack] += max(0, own)
			input += a.Input
		}
	}
	if nReduces == 0 {
		return
	}
	crossed.N = float64(input)
	if sum, ok := fetched.summed[of[0].Job]; ok {
		crossed = Average{float64(sum.crossed), float64(max(finished, sum.all))}
		if nMaps > 0 {
			clear(data)
			for rack, n := range maps {
				data[rack] = units.Bytes(n)
			}
		}
	}
	s.ShuffleCrossing.Add(crossed)
	if nMaps >= 2 {
		squares := 0
		for _, n := range maps {
			squares += n * n
		}
		s.MapRacks.Add(Average{float64(nMaps*nMaps) / float64(squares), 1})
	}
	at := 0
	for rack, n := range preferred(nReduces, data) {
		at += min(n, placed[rack])
	}
	s.ReducesAtData.Add(Average{float64(at), float64(nReduces)})
	s.waits(of)
}

// preferred divides a number of reduces among racks in proportion to their data, by largest remainders.
// It computes with integers of any size, so that sizes in invalid captures do not overflow.
func preferred(reduces int, data map[int]units.Bytes) map[int]int {
	type part struct {
		rack int
		rest *big.Int
	}
	total := new(big.Int)
	for _, n := range data {
		total.Add(total, big.NewInt(int64(max(0, n))))
	}
	out, parts, left := map[int]int{}, make([]part, 0, len(data)), reduces
	if total.Sign() == 0 {
		return out
	}
	for rack, n := range data {
		share := big.NewInt(int64(max(0, n)))
		whole, rest := share.DivMod(share.Mul(share, big.NewInt(int64(reduces))), total, new(big.Int))
		out[rack] = int(whole.Int64())
		left -= out[rack]
		parts = append(parts, part{rack, rest})
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Or(b.rest.Cmp(a.rest), cmp.Compare(a.rack, b.rack)) })
	for _, p := range parts[:left] {
		out[p.rack]++
	}
	return out
}

// waits adds the waits of the reduces of one job.
func (s *ShuffleFigures) waits(of []flows.AttemptRecord) {
	var times []float64
	var first time.Duration
	stage := -1 // the first one with reduces
	for i := range of {
		switch a := &of[i]; {
		case isMap(a):
			if len(times) == 0 || a.End < first {
				first = a.End
			}
			times = append(times, float64(a.End-a.Start))
		case isReduce(a) && stage < 0:
			stage = a.Stage
		}
	}
	if len(times) == 0 {
		return
	}
	bound := DelayedMaps * Median(times)
	for i := range of {
		a := &of[i]
		if !isReduce(a) || a.Stage != stage || a.Attempt != 0 {
			continue
		}
		wait, delayed := float64(max(0, a.Start-first)), 0.0
		if wait > bound {
			delayed = 1
		}
		s.ReduceWait.Add(Average{wait, 1})
		s.ReducesDelayed.Add(Average{delayed, 1})
	}
}

// The rule for saturated links of a rack is that of the network saturation monitor of ShuffleWatcher
// (Ahmad and others, USENIX ATC 2014): a load above a share of the capacity in several intervals in
// a row.
const (
	SaturatedShare = 0.8 // of the capacity, as in the paper
	// SaturatedIntervals is the number of intervals in a row. The paper does not state its number.
	SaturatedIntervals = 3
	// SaturationInterval is the least interval. Bursts of single transfers last for less.
	SaturationInterval = time.Second
)

// RackLoad is the load of the links between one rack and the spines, all together.
type RackLoad struct {
	Rack     topo.RackID
	Interval time.Duration // of Up and Down, which start at the zero of the records
	// Up and Down are the shares of the capacity that the links from and to the rack carried in each
	// interval. A token bucket can exceed 1 in a short interval.
	Up, Down []float64
}

// rackLink matches the name of a link between a leaf and a spine (topo.Fabric.LinkName).
var rackLink = regexp.MustCompile(`^(?:leaf(\d+)>spine\d+|spine\d+>leaf(\d+))$`)

// RackOfLink returns the rack of a link between a leaf and a spine, and whether it leads up, to the spine.
// ok is false for names of other links.
func RackOfLink(name string) (rack topo.RackID, up, ok bool) {
	m := rackLink.FindStringSubmatch(name)
	if m == nil {
		return 0, false, false
	}
	n, err := strconv.Atoi(m[1] + m[2])
	return topo.RackID(n), m[1] != "", err == nil
}

// RackLoads returns the loads of the racks with links to spines, in order of rack, in the shortest
// multiple of the measured interval that is at least the given one. The last interval may extend past
// the end of the measurement, and counts with its whole length. It returns nil if the measured
// intervals of these links differ.
func RackLoads(links []flows.LinkSeries, interval time.Duration) (out []RackLoad) {
	type sum struct {
		bytes []units.Bytes
		rate  units.Rate
	}
	var measured time.Duration
	n := 0
	racks := map[topo.RackID]*[2]sum{} // up and down
	for _, l := range links {
		rack, up, ok := RackOfLink(l.Name)
		if !ok {
			continue
		}
		if l.Interval <= 0 || measured > 0 && l.Interval != measured {
			return nil
		}
		measured = l.Interval
		if racks[rack] == nil {
			racks[rack] = &[2]sum{}
		}
		x := &racks[rack][1]
		if up {
			x = &racks[rack][0]
		}
		l = Rebin(l, interval)
		interval, n = l.Interval, max(n, len(l.Bytes))
		x.rate += l.Rate
		x.bytes = append(x.bytes, make([]units.Bytes, max(0, len(l.Bytes)-len(x.bytes)))...)
		for k, b := range l.Bytes {
			x.bytes[k] += b
		}
	}
	for _, rack := range slices.Sorted(maps.Keys(racks)) {
		use := func(s sum) []float64 {
			s.bytes = append(s.bytes, make([]units.Bytes, n-len(s.bytes))...)
			return Utilisation(flows.LinkSeries{Rate: s.rate, Interval: interval, Bytes: s.bytes})
		}
		out = append(out, RackLoad{rack, interval, use(racks[rack][0]), use(racks[rack][1])})
	}
	return out
}

// Max returns the larger load of both directions in an interval.
func (l RackLoad) Max(interval int) float64 { return max(l.Up[interval], l.Down[interval]) }

// Saturated returns the intervals in which the rack's links are saturated, as pairs [from, to) of
// indices: the larger load of Up and Down is above SaturatedShare in SaturatedIntervals or more
// intervals in a row. A monitor notices this only at the end of the last of these.
func (l RackLoad) Saturated() (out [][2]int) {
	for from := 0; from < len(l.Up); {
		to := from
		for to < len(l.Up) && l.Max(to) > SaturatedShare {
			to++
		}
		if to-from >= SaturatedIntervals {
			out = append(out, [2]int{from, to})
		}
		from = to + 1
	}
	return out
}

// SaturatedTime returns the part of the time between two moments in which the rack's links are saturated.
func (l RackLoad) SaturatedTime(from, to time.Duration) (sum time.Duration) {
	for _, x := range l.Saturated() {
		sum += max(0, min(to, time.Duration(x[1])*l.Interval)-max(from, time.Duration(x[0])*l.Interval))
	}
	return sum
}
