package page

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"math"
	"slices"
	"time"

	"testbed/hosts/wire"
	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/timing"
	"testbed/topo"
	"testbed/workloads"
)

// charts is what the script draws, as the page carries it. Times are microseconds;
// arms are indices into Arms, and a void arm has nothing but its name.
type charts struct {
	Arms     []armName  `json:"arms"`
	CDFs     []cdf      `json:"cdfs"`
	Speedups []speedups `json:"speedups"`
	Timeline []timeline `json:"timeline"`
	Links    *linkLoads `json:"links"`
	Balance  []balance  `json:"balance"`
	Causes   []string   `json:"causes"`
}

type armName struct {
	Name string `json:"name"`
	Void bool   `json:"void"`
	Mark string `json:"mark,omitempty"` // a verdict other than pass
}

// cdf is the distribution of one completion time.
type cdf struct {
	ID     string  `json:"id"`
	Title  string  `json:"title"`
	Curves []curve `json:"curves"`
}

// curve is the times of an arm in ascending order, thinned to quantiles where N is
// more than there are times.
type curve struct {
	Arm   int       `json:"arm"`
	N     int       `json:"n"`
	Times []float64 `json:"t"`
}

// speedups are of an arm over the baseline, coflow by coflow, slowest first.
type speedups struct {
	Arm  int    `json:"arm"`
	N    int    `json:"n"`
	Pair []pair `json:"pairs"`
}

// pair is [speed-up, bytes of the coflow, coflow, repeat].
type pair [4]float64

// timeline is the coflows of one repeat of an arm, in order of arrival.
type timeline struct {
	Arm    int   `json:"arm"`
	Repeat int   `json:"repeat"`
	N      int   `json:"n"` // in all
	Bars   []bar `json:"bars"`
	// Cut is how many of Bars, the fastest, have no Flows, for the page's size.
	Cut int `json:"cut,omitempty"`
}

type bar struct {
	Coflow  int          `json:"id"`
	Arrival float64      `json:"at"`
	End     float64      `json:"end"`
	Width   int          `json:"width"`
	Size    int64        `json:"size"`
	Sending [][2]float64 `json:"sending"` // from and to, in order and apart
	Shares  []share      `json:"shares,omitempty"`
	// Flows are how far its longest flows were over time, longest first; none where that
	// is not known, or left out.
	Flows []progress `json:"flows,omitempty"`
}

// progress is how far a flow was over time. Path are pairs of a time and a share of
// the flow's bytes, in 1/progressTimes of the coflow's time from its arrival and in
// 1/progressShares, in order.
type progress struct {
	Flow int    `json:"id"`
	Src  string `json:"src"`
	Dst  string `json:"dst"`
	Size int64  `json:"size"`
	Path []int  `json:"path"`
}

const (
	progressTimes  = 10_000
	progressShares = 1000
)

type share struct {
	Cause int     `json:"cause"` // index into Causes
	Link  string  `json:"link,omitempty"`
	Time  float64 `json:"us"`
}

// linkLoads are the heat maps.
type linkLoads struct {
	BinUS float64    `json:"bin_us"`
	Names []string   `json:"names"` // of links, as rows of each heat map
	Lines []int      `json:"lines"` // their lines in the picture of the fabric
	Runs  []linkLoad `json:"runs"`
}

// linkLoad is the heat map of one repeat of an arm. Loads are a byte per bin and
// link, in steps of full/loadSteps, as base64.
type linkLoad struct {
	Arm    int       `json:"arm"`
	Repeat int       `json:"repeat"`
	Bins   int       `json:"bins"`
	Mean   []float64 `json:"mean"`
	Peak   []float64 `json:"peak"`
	Loads  []string  `json:"loads"`
}

// loadSteps is the byte that stands for a link at its rate. 255 stands for all
// that is at least 255/loadSteps.
const loadSteps = 200

// balance is the coefficient of variation of the loads of links over time.
type balance struct {
	ID     string     `json:"id"`
	Title  string     `json:"title"`
	BinUS  float64    `json:"bin_us"`
	Curves []cvSeries `json:"curves"`
}

type cvSeries struct {
	Arm    int        `json:"arm"`
	N      int        `json:"n"`  // links
	Values []*float64 `json:"cv"` // nil for a bin without traffic
}

// causes are in the order in which they are drawn.
var causes = [...]struct {
	cause timing.Cause
	what  string
}{
	{timing.Held, "held back by the coflow policy"},
	{timing.Serialisation, "its own bytes on the wire of its bottleneck"},
	{timing.Queueing, "waiting behind the bytes of others"},
	{timing.Retransmission, "waiting for a lost segment"},
	{timing.Host, "waiting for a host"},
	{timing.Latency, "set-up, propagation and TCP's window"},
	{timing.Network, "bytes or acknowledgements under way on a hop"},
	{timing.Disk, "a host has a packet and has not stored it yet"},
}

func causeIndex(c timing.Cause) int {
	for i, x := range causes {
		if x.cause == c {
			return i
		}
	}
	return len(causes)
}

// us is d in microseconds: to a nanosecond below a millisecond, else to a
// microsecond, which is more than a chart shows.
func us(d time.Duration) float64 {
	if d.Abs() >= time.Millisecond {
		return math.Round(float64(d) / 1e3)
	}
	return float64(d) / 1e3
}

// digits keeps so many decimals: figures for the eye, and the same on every
// machine.
func digits(x float64, n int) float64 {
	p := math.Pow10(n)
	return math.Round(x*p) / p
}

// shown are the arms with figures.
func (d *Data) shown(f func(i int, a *Arm)) {
	for i := range d.Arms {
		if !d.Arms[i].Void {
			f(i, &d.Arms[i])
		}
	}
}

// drawn are the repeats that have their own picture.
func (a *Arm) drawn() []Repeat { return a.Repeats[:min(len(a.Repeats), maxRepeats)] }

func (a *Arm) items(of func(int, flows.Records) []metrics.Item) []metrics.Item {
	var all []metrics.Item
	for k, r := range a.Repeats {
		all = append(all, of(k, r.Records)...)
	}
	return all
}

func (d *Data) cdfs() []cdf {
	out := []cdf{}
	for _, m := range []struct {
		id, title string
		items     func(int, flows.Records) []metrics.Item
	}{
		{"cct", "Coflow completion time", metrics.CCTs},
		{"fct", "Flow completion time", metrics.FCTs},
		{"write_time", "Block write time", metrics.WriteTimes},
	} {
		c := cdf{ID: m.id, Title: m.title}
		d.shown(func(i int, a *Arm) {
			items := a.items(m.items)
			if len(items) == 0 {
				return
			}
			slices.SortFunc(items, func(a, b metrics.Item) int { return cmp.Compare(a.Time, b.Time) })
			x := curve{Arm: i, N: len(items)}
			n := min(len(items), maxCDFPoints)
			for k := range n {
				x.Times = append(x.Times, us(items[(k+1)*len(items)/n-1].Time))
			}
			c.Curves = append(c.Curves, x)
		})
		if len(c.Curves) > 0 {
			out = append(out, c)
		}
	}
	return out
}

func (d *Data) speedups() []speedups {
	out := []speedups{}
	if d.Arms[0].Void {
		return out
	}
	type key struct{ repeat, id int }
	base := map[key]time.Duration{}
	for _, item := range d.Arms[0].items(metrics.CCTs) {
		base[key{item.Repeat, item.ID}] = item.Time
	}
	d.shown(func(i int, a *Arm) {
		if i == 0 {
			return
		}
		var all []pair
		for k, r := range a.Repeats {
			size := map[int]float64{}
			for _, c := range r.Records.Coflows {
				size[int(c.Coflow)] = float64(c.Size)
			}
			for _, item := range metrics.CCTs(k, r.Records) {
				if b := base[key{k, item.ID}]; b > 0 && item.Time > 0 {
					all = append(all, pair{float64(b) / float64(item.Time), size[item.ID], float64(item.ID), float64(k)})
				}
			}
		}
		if len(all) == 0 {
			return
		}
		slices.SortFunc(all, func(a, b pair) int {
			return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[3], b[3]), cmp.Compare(a[2], b[2]))
		})
		s := speedups{Arm: i, N: len(all)}
		for k := range min(len(all), maxPairs) {
			p := all[spread(k, len(all), maxPairs)]
			p[0] = digits(p[0], 4)
			s.Pair = append(s.Pair, p)
		}
		out = append(out, s)
	})
	return out
}

// spread is the k-th of at most that many indices into n, both ends among them.
func spread(k, n, most int) int {
	if n <= most {
		return k
	}
	return k * (n - 1) / (most - 1)
}

func (d *Data) timelines() []timeline {
	out := []timeline{}
	var repeats []Repeat
	d.shown(func(i int, a *Arm) {
		drawn := a.drawn()
		for k, r := range drawn {
			if len(r.Records.Coflows) > 0 {
				out = append(out, newTimeline(i, k, r, maxBars/len(drawn)))
				repeats = append(repeats, r)
			}
		}
	})
	d.addProgress(out, repeats)
	return out
}

// addProgress adds how far flows were to the timelines of repeats.
func (d *Data) addProgress(lines []timeline, repeats []Repeat) {
	flows := 0
	for _, t := range lines {
		for _, b := range t.Bars {
			flows += min(b.Width, maxFlows)
		}
	}
	if flows == 0 {
		return
	}
	moments := min(maxMoments, max(leastMoments, maxProgress/flows))
	for i := range lines {
		t := &lines[i]
		of := map[int][]*metrics.Progress{}
		for k := range repeats[i].Progress {
			if p := &repeats[i].Progress[k]; p.Kind == wire.KindFlow {
				of[int(p.Group)] = append(of[int(p.Group)], p)
			}
		}
		slowest := make([]*bar, len(t.Bars))
		for k := range t.Bars {
			slowest[k] = &t.Bars[k]
		}
		slices.SortStableFunc(slowest, func(a, b *bar) int { return cmp.Compare(b.End-b.Arrival, a.End-a.Arrival) })
		left := maxProgress / len(lines)
		for k, b := range slowest {
			longest := of[b.Coflow]
			slices.SortStableFunc(longest, func(x, y *metrics.Progress) int { return cmp.Compare(y.Size, x.Size) })
			longest = longest[:min(len(longest), maxFlows)]
			if left -= moments * len(longest); left < 0 && k > 0 {
				t.Cut = len(slowest) - k
				break
			}
			for _, p := range longest {
				b.Flows = append(b.Flows, newProgress(p, b, moments))
			}
		}
	}
}

func newProgress(p *metrics.Progress, b *bar, most int) progress {
	out := progress{Flow: int(p.Member), Src: p.Src, Dst: p.Dst, Size: int64(p.Size)}
	n := len(p.Moments)
	for k := range min(n, most) {
		m := p.Moments[spread(k, n, most)]
		at, share := 0.0, 1.0
		if b.End > b.Arrival {
			at = (float64(m.At)/1e3 - b.Arrival) / (b.End - b.Arrival)
		}
		if p.Size > 0 {
			share = float64(m.Bytes) / float64(p.Size)
		}
		out.Path = append(out.Path, int(math.Round(progressTimes*min(1, max(0, at)))), int(math.Round(progressShares*share)))
	}
	return out
}

func newTimeline(arm, repeat int, r Repeat, most int) timeline {
	coflows := slices.Clone(r.Records.Coflows)
	t := timeline{Arm: arm, Repeat: repeat, N: len(coflows)}
	slices.SortStableFunc(coflows, func(a, b flows.CoflowRecord) int { return cmp.Compare(b.CCT(), a.CCT()) })
	coflows = coflows[:min(len(coflows), most)]
	slices.SortFunc(coflows, func(a, b flows.CoflowRecord) int {
		return cmp.Or(cmp.Compare(a.Arrival, b.Arrival), cmp.Compare(a.Coflow, b.Coflow))
	})
	sending := map[workloads.CoflowID][]flows.Span{}
	for _, f := range r.Records.Flows {
		sending[f.Coflow] = append(sending[f.Coflow], flows.Span{From: f.Start, To: f.End})
	}
	shares := map[workloads.CoflowID][]timing.Share{}
	if r.Timing != nil {
		for _, c := range r.Timing.Coflows {
			shares[c.Coflow] = c.Shares
		}
	}
	for _, c := range coflows {
		b := bar{Coflow: int(c.Coflow), Arrival: us(c.Arrival), End: us(c.End), Width: c.Width, Size: int64(c.Size), Sending: [][2]float64{}}
		for _, s := range union(sending[c.Coflow], maxStretches) {
			b.Sending = append(b.Sending, [2]float64{us(s.From), us(s.To)})
		}
		longest := slices.Clone(shares[c.Coflow])
		slices.SortStableFunc(longest, func(a, b timing.Share) int { return cmp.Compare(b.Time, a.Time) })
		for _, s := range longest[:min(len(longest), maxShares)] {
			if k := causeIndex(s.Cause); k < len(causes) && s.Time > 0 {
				b.Shares = append(b.Shares, share{k, s.Link, us(s.Time)})
			}
		}
		t.Bars = append(t.Bars, b)
	}
	return t
}

// union is what spans cover, as at most so many spans: the shortest gaps between
// more are covered too.
func union(spans []flows.Span, most int) []flows.Span {
	spans = slices.Clone(spans)
	slices.SortFunc(spans, func(a, b flows.Span) int { return cmp.Compare(a.From, b.From) })
	var out []flows.Span
	for _, s := range spans {
		if n := len(out); n > 0 && s.From <= out[n-1].To {
			out[n-1].To = max(out[n-1].To, s.To)
		} else {
			out = append(out, s)
		}
	}
	if len(out) <= most {
		return out
	}
	gaps := make([]time.Duration, len(out)-1)
	for i := range gaps {
		gaps[i] = out[i+1].From - out[i].To
	}
	least := slices.Clone(gaps)
	slices.SortFunc(least, func(a, b time.Duration) int { return cmp.Compare(b, a) })
	bound, kept := least[most-1], out[:1:1]
	for i, g := range gaps {
		if g > bound {
			kept = append(kept, out[i+1])
		} else {
			kept[len(kept)-1].To = out[i+1].To
		}
	}
	return kept
}

// loadOf is how busy a link was in n intervals from i: the share of its rate.
func loadOf(l flows.LinkSeries, i, n int) float64 {
	var bytes float64
	for _, b := range l.Bytes[min(i, len(l.Bytes)):min(i+n, len(l.Bytes))] {
		bytes += float64(b)
	}
	if l.Rate <= 0 || l.Interval <= 0 || n <= 0 {
		return 0
	}
	return bytes * 8 / (float64(l.Rate) * l.Interval.Seconds() * float64(n))
}

// peakOf is the load of a link's busiest interval.
func peakOf(l flows.LinkSeries) float64 {
	peak := 0.0
	for i := range l.Bytes {
		peak = max(peak, loadOf(l, i, 1))
	}
	return peak
}

// binning is how intervals are gathered to bins of the heat map.
type binning struct {
	interval time.Duration
	per      int // intervals of a bin
}

func (b binning) bins(intervals int) int { return (intervals + b.per - 1) / b.per }

func (b binning) us() float64 { return us(b.interval * time.Duration(b.per)) }

// longest is the number of intervals of the longest series.
func longest(links []flows.LinkSeries) int {
	n := 0
	for _, l := range links {
		n = max(n, len(l.Bytes))
	}
	return n
}

// gather decides the bins, the same for all arms: their pictures can then be
// compared. It is false where no arm has loads. Series of another interval than
// the first's cannot be put on one axis of time and are left out.
func (d *Data) gather() (b binning, ok bool) {
	intervals, rows := 0, 0
	d.shown(func(_ int, a *Arm) {
		for _, r := range a.drawn() {
			if len(r.Links) == 0 || longest(r.Links) == 0 || b.interval != 0 && r.Links[0].Interval != b.interval {
				continue
			}
			b.interval = r.Links[0].Interval
			intervals = max(intervals, longest(r.Links))
			rows += min(len(r.Links), maxLinks)
		}
	})
	if intervals == 0 || b.interval <= 0 {
		return b, false
	}
	most := min(maxBins, max(leastBins, maxCells/rows))
	b.per = (intervals + most - 1) / most
	return b, true
}

// loads are the heat maps, nil where there are none.
func (d *Data) loads(b binning) *linkLoads {
	out := &linkLoads{BinUS: b.us()}
	row := map[topo.LinkID]int{}
	for _, l := range d.linksShown() {
		row[l.Link] = len(out.Names)
		out.Names, out.Lines = append(out.Names, l.Name), append(out.Lines, int(l.Link))
	}
	d.shown(func(i int, a *Arm) {
		for k, r := range a.drawn() {
			if len(r.Links) == 0 || r.Links[0].Interval != b.interval {
				continue
			}
			n := longest(r.Links)
			run := linkLoad{Arm: i, Repeat: k, Bins: b.bins(n), Mean: make([]float64, len(row)), Peak: make([]float64, len(row)), Loads: make([]string, len(row))}
			for _, l := range r.Links {
				at, ok := row[l.Link]
				if !ok || l.Interval != b.interval {
					continue
				}
				run.Mean[at], run.Peak[at] = digits(loadOf(l, 0, n), 4), digits(peakOf(l), 4)
				cells := make([]byte, run.Bins)
				for j := range cells {
					from := j * b.per
					cells[j] = byte(min(255, math.Round(loadSteps*loadOf(l, from, min(b.per, n-from)))))
				}
				run.Loads[at] = base64.StdEncoding.EncodeToString(cells)
			}
			out.Runs = append(out.Runs, run)
		}
	})
	return out
}

// linksShown are the links of the heat map: the fabric's own order, leaves and
// spines first; of too many, the busiest over all arms.
func (d *Data) linksShown() []flows.LinkSeries {
	mean := map[topo.LinkID]float64{}
	first := map[topo.LinkID]flows.LinkSeries{}
	hostLinks := map[topo.LinkID]bool{}
	d.shown(func(_ int, a *Arm) {
		for _, r := range a.Repeats {
			n := longest(r.Links)
			for _, l := range r.Links {
				mean[l.Link] += loadOf(l, 0, n)
				if _, ok := first[l.Link]; !ok {
					first[l.Link] = l
				}
				if r.Fabric != nil && int(l.Link) < 2*r.Fabric.Hosts() {
					hostLinks[l.Link] = true
				}
			}
		}
	})
	all := make([]flows.LinkSeries, 0, len(first))
	for _, l := range first {
		all = append(all, l)
	}
	tier := func(l flows.LinkSeries) int {
		if hostLinks[l.Link] {
			return 1
		}
		return 0
	}
	slices.SortFunc(all, func(a, b flows.LinkSeries) int {
		return cmp.Or(cmp.Compare(tier(a), tier(b)), cmp.Compare(mean[b.Link], mean[a.Link]), cmp.Compare(a.Link, b.Link))
	})
	all = all[:min(len(all), maxLinks)]
	slices.SortFunc(all, func(a, b flows.LinkSeries) int {
		return cmp.Or(cmp.Compare(tier(a), tier(b)), cmp.Compare(a.Link, b.Link))
	})
	return all
}

// balances are Cv of the loads of the links to the spines and from them, averaged
// over the repeats of an arm that had traffic in a bin.
func (d *Data) balances(b binning) []balance {
	out := []balance{}
	for _, side := range []struct {
		id, title string
		kind      topo.LinkKind
	}{{"up", "Links to the spines", topo.LeafUp}, {"down", "Links from the spines", topo.LeafDown}} {
		x := balance{ID: side.id, Title: side.title, BinUS: b.us()}
		d.shown(func(i int, a *Arm) {
			var runs [][]*float64
			n := 0
			for _, r := range a.Repeats {
				if v := cvOf(r, b, side.kind); v != nil {
					runs = append(runs, v)
					n = 0
					for _, l := range r.Fabric.Links() {
						if l.Kind == side.kind {
							n++
						}
					}
				}
			}
			if len(runs) > 0 {
				x.Curves = append(x.Curves, cvSeries{i, n, average(runs)})
			}
		})
		if len(x.Curves) > 0 {
			out = append(out, x)
		}
	}
	return out
}

// cvOf is the Cv of the loads of a repeat's links of one kind in each bin: nil in
// a bin without traffic, and nil altogether where there are fewer than two such
// links.
func cvOf(r Repeat, b binning, kind topo.LinkKind) []*float64 {
	if r.Fabric == nil {
		return nil
	}
	var links []flows.LinkSeries
	for _, l := range r.Links {
		if int(l.Link) < len(r.Fabric.Links()) && r.Fabric.Link(l.Link).Kind == kind && l.Interval == b.interval {
			links = append(links, l)
		}
	}
	if len(links) < 2 {
		return nil
	}
	n := longest(links)
	out := make([]*float64, b.bins(n))
	for j := range out {
		loads := make([]float64, len(links))
		busy := false
		for k, l := range links {
			from := j * b.per
			loads[k] = loadOf(l, from, min(b.per, n-from))
			busy = busy || loads[k] > 0
		}
		if busy {
			v := digits(metrics.Cv(loads), 4)
			out[j] = &v
		}
	}
	return out
}

// average is that of the runs that have a value, bin by bin.
func average(runs [][]*float64) []*float64 {
	var out []*float64
	for j := 0; ; j++ {
		sum, n, longer := 0.0, 0, false
		for _, r := range runs {
			if j >= len(r) {
				continue
			}
			longer = true
			if r[j] != nil {
				sum, n = sum+*r[j], n+1
			}
		}
		if !longer {
			return out
		}
		if n == 0 {
			out = append(out, nil)
			continue
		}
		v := digits(sum/float64(n), 4)
		out = append(out, &v)
	}
}

// percent prints a share.
func percent(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }
