package metrics

import (
	"cmp"
	"container/heap"
	"math"
	"slices"
	"time"

	"testbed/results/flows"
	"testbed/topo"
	"testbed/topo/units"
)

// Bounds are lower bounds of the average block write time over all placements, for the
// blocks of one repeat and the moments at which they were placed. A bound of 0 is unknown.
type Bounds struct {
	Blocks int // blocks that both bounds cover
	// Lone is the average with each block alone on the network: its size over the slower of
	// a disk and the fastest path to another rack.
	Lone time.Duration
	// Fluid is the average with all blocks as one fluid into the receiving links. The
	// capacity that background flows leave serves one copy of each block from its request
	// on, shortest remaining first, and no block is faster than a disk.
	Fluid time.Duration
}

// BoundsOf returns the bounds for the blocks of a repeat. Background flows are all flows of
// coflows. Their use of the receiving links is averaged from the first arrival to the last
// completion, so blocks written at quieter times may be faster than Fluid: it is a loose
// bound.
func BoundsOf(f *topo.Fabric, r flows.Records, disk units.Rate) Bounds {
	lost := failedOf(r, flows.FailedBlock, func(f flows.Failure) int { return int(f.Block) })
	ways := map[topo.HostID]float64{}
	var jobs []fluidJob
	var lone float64
	for _, b := range r.Blocks {
		client, err := f.FindHost(b.Client)
		if err != nil || lost[int(b.Block)] {
			continue
		}
		rate := float64(disk)
		way, known := ways[client]
		if !known {
			way = float64(widest(f, client))
			ways[client] = way
		}
		if len(b.Hosts)+len(b.Lost) > 1 && (rate == 0 || way < rate) {
			rate = way
		}
		if rate == 0 {
			continue // one replica and no disk
		}
		lone += seconds(b.Size, rate)
		jobs = append(jobs, fluidJob{at: b.Requested.Seconds(), size: b.Size})
	}
	out := Bounds{Blocks: len(jobs)}
	if out.Blocks == 0 {
		return out
	}
	out.Lone = inSeconds(lone / float64(out.Blocks))
	if left := residual(f, r); left > 0 {
		out.Fluid = max(out.Lone, inSeconds(fluidMean(jobs, float64(disk), left)))
	}
	return out
}

func seconds(size units.Bytes, rate float64) float64 { return 8 * float64(size) / rate }

func inSeconds(s float64) time.Duration { return duration(s * float64(time.Second)) }

// widest returns the rate of the fastest path of one flow from a host into another rack, or
// to another host if there is one rack. A single spine carries the flow.
func widest(f *topo.Fabric, from topo.HostID) units.Rate {
	home := f.RackOf(from)
	var up, down, host units.Rate
	for _, l := range f.Links() {
		switch {
		case l.Kind == topo.LeafUp && l.Rack == home:
			up = max(up, l.Rate)
		case l.Kind == topo.LeafDown && l.Rack != home:
			down = max(down, l.Rate)
		}
	}
	for h := range topo.HostID(f.Hosts()) {
		if h != from && (f.Racks() == 1 || f.RackOf(h) != home) {
			host = max(host, f.Link(f.HostDown(h)).Rate)
		}
	}
	out := min(f.Link(f.HostUp(from)).Rate, host)
	if f.Racks() > 1 {
		out = min(out, up, down)
	}
	return out
}

// residual returns the capacity that the flows of coflows leave on the receiving links, in bit/s.
func residual(f *topo.Fabric, r flows.Records) float64 {
	racks := racksDecide(f)
	var left, bits float64
	for _, group := range ReceivingLinks(f) {
		for _, l := range group {
			left += float64(f.Link(l).Rate)
		}
	}
	first, last := time.Duration(math.MaxInt64), time.Duration(0)
	for x := range r.Transfers() {
		first, last = min(first, x.Arrival), max(last, x.End)
		src, err1 := f.FindHost(x.Src)
		dst, err2 := f.FindHost(x.Dst)
		if err1 == nil && err2 == nil && src != dst && (!racks || f.RackOf(src) != f.RackOf(dst)) {
			bits += 8 * float64(x.Size)
		}
	}
	for _, b := range r.Blocks {
		first, last = min(first, b.Requested), max(last, b.End)
	}
	if last <= first {
		return 0
	}
	return left - bits/(last-first).Seconds()
}

// fluidJob is a block that waits for service.
type fluidJob struct {
	at   float64 // seconds
	size units.Bytes
	left float64 // bits
}

// shortest orders jobs by their remaining bits.
type shortest []*fluidJob

func (s shortest) Len() int           { return len(s) }
func (s shortest) Less(i, j int) bool { return s[i].left < s[j].left }
func (s shortest) Swap(i, j int)      { s[i], s[j] = s[j], s[i] }
func (s *shortest) Push(x any)        { *s = append(*s, x.(*fluidJob)) }
func (s *shortest) Pop() any {
	last := len(*s) - 1
	x := (*s)[last]
	*s = (*s)[:last]
	return x
}

// fluidMean returns a lower bound of the average time, in seconds, of jobs that one server
// of the given rate serves, none of them faster than a disk (0: no limit). Jobs of one size
// do not overtake each other, and the disk bounds each one: k jobs that arrive together take
// (1/k) Σ max(size/disk, i·size/rate). With several sizes the server serves the shortest
// remaining job first, which minimises the average, and the disk bounds only the average.
func fluidMean(jobs []fluidJob, disk, rate float64) float64 {
	slices.SortStableFunc(jobs, func(a, b fluidJob) int { return cmp.Compare(a.at, b.at) })
	var sum, stored, end float64
	equal := true
	for i, j := range jobs {
		jobs[i].left = 8 * float64(j.size)
		equal = equal && j.size == jobs[0].size
		alone := 0.0
		if disk > 0 {
			alone = seconds(j.size, disk)
		}
		end = max(end, j.at) + seconds(j.size, rate)
		sum += max(end-j.at, alone)
		stored += alone
	}
	if !equal {
		sum = max(stored, shortestFirst(jobs, rate))
	}
	return sum / float64(len(jobs))
}

// shortestFirst returns the sum of the times of jobs, given in order of arrival.
func shortestFirst(jobs []fluidJob, rate float64) float64 {
	var waiting shortest
	var now, sum float64
	for next := 0; next < len(jobs) || len(waiting) > 0; {
		if len(waiting) == 0 {
			now = max(now, jobs[next].at)
		}
		for next < len(jobs) && jobs[next].at <= now {
			heap.Push(&waiting, &jobs[next])
			next++
		}
		j := waiting[0]
		end := now + j.left/rate
		if next < len(jobs) && jobs[next].at < end {
			j.left -= (jobs[next].at - now) * rate // it still has the fewest bits left
			now = jobs[next].at
			continue
		}
		heap.Pop(&waiting)
		now = end
		sum += end - j.at
	}
	return sum
}
