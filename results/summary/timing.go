package summary

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"testbed/results/breakdown"
	"testbed/results/figures"
	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/topo"
)

// Setup is the distribution of flow setup (flows.FlowRecord.Setup), which FCT includes.
type Setup struct {
	N     int     `json:"n"`
	Mean  float64 `json:"mean_us"`
	P50   float64 `json:"p50_us"`
	P95   float64 `json:"p95_us"`
	Max   float64 `json:"max_us"`
	Share float64 `json:"share_of_median_fct" unit:"share"`
}

// Time is the completion time by cause: microseconds over all repeats.
type Time struct {
	CoflowsUS map[breakdown.Cause]float64 `json:"coflows_us,omitempty"`
	// QueuedUS is the part of the queueing at each link.
	QueuedUS map[string]float64          `json:"queued_at_us,omitempty"`
	BlocksUS map[breakdown.Cause]float64 `json:"blocks_us,omitempty"`
	// Missing names the coflows and blocks with a record that these sums exclude, with the reason, each prefixed with its
	// repeat.
	Missing []string          `json:"missing,omitempty"`
	Coflows []breakdown.Share `json:"-" table:"-"`
	Blocks  []breakdown.Share `json:"-" table:"-"`
}

// Traffic is the traffic on the wire: averages of a repeat.
type Traffic struct {
	CrossRack struct {
		Control Average `json:"control" unit:"bytes" head:"cross-rack control" place:"3"`
		MapRead Average `json:"map-read" unit:"bytes" head:"cross-rack map-read" place:"2"`
		Shuffle Average `json:"shuffle" unit:"bytes" head:"cross-rack shuffle"`
		Write   Average `json:"write" unit:"bytes" head:"cross-rack write" place:"1"`
	} `json:"cross_rack_bytes"`
	DiskImbalance Average `json:"disk_imbalance" unit:"index" head:"disk imbalance" place:"4"`
	Makespan      float64 `json:"makespan_us" head:"makespan" place:"4"`
}

// Links is the utilisation of the bottleneck links (metrics.BottleneckLinks).
type Links struct {
	Interval float64 `json:"interval_us"`
	Links    int     `json:"links"`
	Mean     Average `json:"mean" unit:"share" column:"mean" head:"mean utilisation" place:"5"`
	Peak     float64 `json:"peak" unit:"share" column:"peak" head:"peak" place:"5"`
	MedianCv float64 `json:"median_cv" unit:"index" head:"median Cv" place:"5"`
	Busy     Average `json:"busy" unit:"share" column:"busy" head:"time above 90 %" place:"5"`
	Queue    Average `json:"busiest_uplink_queue_bytes,omitzero" column:"busiest_uplink_queue_bytes" head:"queue of busiest uplink" place:"5"`
}

// busyLoad is the utilisation above which a link is busy.
const busyLoad = 0.9

// Losses are the dropped and retransmitted packets in all repeats.
type Losses struct {
	Source  string      `json:"source"` // DropsKernel, or DropsCaptures if any repeat has an estimate
	Dropped int         `json:"dropped_packets"`
	Links   []LinkDrops `json:"links"`
	Resent  int         `json:"resent_packets"`
	ByRack  []float64   `json:"resent_bytes_by_rack,omitempty" unit:"bytes" racks:"resent_bytes"`
}

// LinkDrops is the number of packets that the queue ahead of one directed link dropped.
type LinkDrops struct {
	Link    string `json:"link"`
	Dropped int    `json:"dropped_packets"`
}

// Sources of counts of dropped packets.
const (
	DropsKernel   = "kernel"   // counted by the queues of links, for packets of all kinds
	DropsCaptures = "captures" // estimated, for packets with payload (flows.LinkSeries.Drops)
)

// setupOf returns the setup of an arm's flows; nil if no flow has an FCT.
func setupOf(repeats []Repeat) *Setup {
	var setups, fcts []metrics.Item
	for k, r := range repeats {
		setups = append(setups, metrics.Setups(k, r.Records)...)
		fcts = append(fcts, metrics.FCTs(k, r.Records)...)
	}
	median := metrics.Summarize(fcts).P50
	if median <= 0 {
		return nil
	}
	d := metrics.Summarize(setups)
	share := metrics.Round6(micros(d.P50) / micros(median))
	return &Setup{d.N, micros(d.Mean), micros(d.P50), micros(d.P95), micros(d.Max), share}
}

// timing fills in the breakdown, traffic and load of links of an arm on packets.
func (a *Declared) timing(repeats []Repeat, numbers metrics.Numbers, interval time.Duration) {
	var slowdowns []float64
	var makespan time.Duration
	n := 0
	for k, r := range repeats {
		if r.Timing == nil {
			continue
		}
		if a.Time == nil {
			a.Time, a.Traffic = &Time{}, &Traffic{}
		}
		a.Time.Coflows = append(a.Time.Coflows, r.Timing.CoflowTotal...)
		a.Time.Blocks = append(a.Time.Blocks, r.Timing.BlockTotal...)
		for _, m := range r.Timing.Missing {
			a.Time.Missing = append(a.Time.Missing, fmt.Sprintf("repeat %d: %s", numbers.Of(k), m))
		}
		for c := range r.Timing.Counted() {
			if c.Slowdown > 0 {
				slowdowns = append(slowdowns, c.Slowdown)
			}
		}
		n++
		of, crossed := &r.Timing.Traffic, &a.Traffic.CrossRack
		crossed.Control.Add(one(float64(of.CrossRack[breakdown.Control])))
		crossed.MapRead.Add(one(float64(of.CrossRack[breakdown.MapRead])))
		crossed.Shuffle.Add(one(float64(of.CrossRack[breakdown.Shuffle])))
		crossed.Write.Add(one(float64(of.CrossRack[breakdown.Write])))
		a.Traffic.DiskImbalance.Add(one(of.DiskImbalance))
		makespan += of.Makespan
	}
	if a.Time == nil {
		return
	}
	a.Time.CoflowsUS = byCause(a.Time.Coflows, breakdown.CoflowCauses())
	a.Time.BlocksUS = byCause(a.Time.Blocks, breakdown.BlockCauses())
	queued := map[string]time.Duration{}
	for _, x := range a.Time.Coflows {
		if x.Cause == breakdown.Queueing {
			queued[x.Link] += x.Time
		}
	}
	a.Time.QueuedUS = map[string]float64{}
	for link, d := range queued {
		a.Time.QueuedUS[link] = micros(d)
	}
	a.Traffic.Makespan = micros(makespan / time.Duration(n))
	if len(slowdowns) > 0 {
		m := metrics.Round6(metrics.Median(slowdowns))
		a.MedianSlowdown = &m
	}
	a.Links = linksOf(repeats, interval)
}

// byCause returns microseconds by cause; nil without shares.
func byCause(shares []breakdown.Share, causes []breakdown.Cause) map[breakdown.Cause]float64 {
	if len(shares) == 0 {
		return nil
	}
	out := map[breakdown.Cause]float64{}
	for _, c := range causes {
		out[c] = micros(breakdown.Total(shares, c))
	}
	return out
}

// linksOf returns the load of links in intervals; nil if no repeat states it.
func linksOf(repeats []Repeat, interval time.Duration) *Links {
	out := &Links{}
	var cvs []float64
	for _, r := range repeats {
		if r.Fabric == nil || len(r.Links) != len(r.Fabric.Links()) {
			continue
		}
		links, over := figures.InIntervals(r.Links, interval)
		uses := figures.LinkUses(r.Links, interval)
		which := metrics.BottleneckLinks(r.Fabric)
		out.Links = len(which)
		for _, l := range which {
			out.Interval = micros(links[l].Interval)
			out.Mean.Add(one(uses[l].Mean))
			out.Peak = max(out.Peak, uses[l].Peak)
			var busy time.Duration
			for _, use := range metrics.Utilisation(links[l]) {
				if use > busyLoad {
					busy += links[l].Interval
				}
			}
			out.Busy.Add(Average{Sum: float64(min(busy, over)), N: float64(over)})
		}
		out.Queue.Add(busiestQueue(r.Fabric, links, uses))
		cvs = append(cvs, metrics.LinkCvs(links, which)...)
	}
	if out.Mean.IsZero() {
		return nil
	}
	out.Peak, out.MedianCv = metrics.Round6(out.Peak), metrics.Round6(metrics.Median(cvs))
	return out
}

// busiestQueue returns the median over intervals of the largest queue ahead of the link to a spine that carried most;
// unknown if there are no such links.
func busiestQueue(f *topo.Fabric, links []flows.LinkSeries, uses []metrics.LinkUse) (median Average) {
	most := -1.
	for i, l := range links {
		if f.Link(l.Link).Kind != topo.LeafUp || uses[i].Mean <= most {
			continue
		}
		most = uses[i].Mean
		queue := make([]float64, len(l.Bytes))
		for k := range min(len(queue), len(l.Queue)) {
			queue[k] = float64(l.Queue[k])
		}
		median = one(metrics.Median(queue))
	}
	return median
}

// lossesOf returns the losses of an arm; nil if the load of links is unknown.
func lossesOf(repeats []Repeat) *Losses {
	out := &Losses{Source: DropsKernel, Links: []LinkDrops{}}
	at := map[string]int{}
	known := false
	for _, r := range repeats {
		out.Resent += r.Resent
		if r.Fabric != nil && out.ByRack == nil {
			out.ByRack = make([]float64, r.Fabric.Racks())
		}
		for _, f := range r.Records.Flows {
			if rack, _, ok := topo.ParseHostName(f.Src); ok && int(rack) < len(out.ByRack) {
				out.ByRack[rack] += float64(f.ResentBytes)
			}
		}
		for _, l := range r.Links {
			known = true
			if !l.Counted {
				out.Source = DropsCaptures
			}
			out.Dropped += l.Drops
			at[l.Name] += l.Drops
		}
	}
	if !known {
		return nil
	}
	for name, n := range at {
		if n > 0 {
			out.Links = append(out.Links, LinkDrops{name, n})
		}
	}
	slices.SortFunc(out.Links, func(x, y LinkDrops) int {
		return cmp.Or(cmp.Compare(y.Dropped, x.Dropped), cmp.Compare(x.Link, y.Link))
	})
	return out
}
