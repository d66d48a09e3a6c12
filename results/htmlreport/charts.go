package htmlreport

import (
	"cmp"
	"encoding/base64"
	"iter"
	"math"
	"slices"
	"time"

	"testbed/hosts/wire"
	"testbed/results/breakdown"
	"testbed/results/figures"
	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// charts is the data that the script draws, embedded in the page. Times are microseconds;
// arms are indices into Arms. A void arm has nothing but its name.
type charts struct {
	Arms     []armName  `json:"arms"`
	CDFs     []cdf      `json:"cdfs"`
	Speedups []speedups `json:"speedups"`
	Timeline []timeline `json:"timeline"`
	Links    *linkLoads `json:"links"`
	Balance  []balance  `json:"balance"`
	Series   *series    `json:"series"`
	Span     [2]float64 `json:"span"` // of the axis of all charts over time
	Causes   []string   `json:"causes"`
	Classes  []string   `json:"classes"` // of Causes, in CSS

	Gantt  []gantt      `json:"gantt"`
	Shares []userShares `json:"shares"`
	Phases []string     `json:"phases"`
	Fills  []string     `json:"fills"` // of Phases: CSS variables
}

type armName struct {
	Name string `json:"name"`
	Void bool   `json:"void"`
	Mark string `json:"mark,omitempty"` // a verdict other than pass
}

// cdf is the distribution of one kind of completion time.
type cdf struct {
	ID     string  `json:"id"`
	Title  string  `json:"title"`
	Curves []curve `json:"curves"`
}

// curve is the times of an arm in ascending order, thinned to quantiles if N is larger
// than the number of times.
type curve struct {
	Arm   int       `json:"arm"`
	N     int       `json:"n"`
	Times []float64 `json:"t"`
}

// speedups are those of an arm relative to the baseline, coflow by coflow, lowest first.
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
	N      int   `json:"n"` // total, including those not drawn
	Bars   []bar `json:"bars"`
	// Cut is the number of Bars, the fastest, without Flows, to limit the page's size.
	Cut int `json:"cut,omitempty"`
}

type bar struct {
	Coflow  int          `json:"id"`
	Arrival float64      `json:"at"`
	End     float64      `json:"end"`
	Width   int          `json:"width"`
	Size    int64        `json:"size"`
	Sending [][2]float64 `json:"sending"` // from and to, in order and disjoint
	Shares  []share      `json:"shares,omitempty"`
	// Flows is the progress of the coflow's longest flows, longest first; empty if it is
	// unknown or left out.
	Flows []progress `json:"flows,omitempty"`
}

// progress is the received bytes of a flow over time. Path has pairs of a time and a share
// of the flow's bytes, in order: the time since the coflow's arrival in 1/progressTimes of
// its CCT, and the share in 1/progressShares.
type progress struct {
	Flow int    `json:"id"`
	Src  string `json:"src"`
	Dst  string `json:"dst"`
	Size int64  `json:"size"`
	Path path   `json:"path"`
}

const (
	progressTimes  = 10_000
	progressShares = 1000
)

// path is pairs of a time and a share, each pair four characters in the page.
type path []int

// MarshalText writes the digits.
func (p path) MarshalText() ([]byte, error) {
	var out packed
	for i := 0; i+1 < len(p); i += 2 {
		pair := p[i]*(progressShares+1) + p[i+1]
		out = append(out, pair/(mostPacked+1), pair%(mostPacked+1))
	}
	return out.MarshalText()
}

type share struct {
	Cause int     `json:"cause"` // index into Causes
	Link  string  `json:"link,omitempty"`
	Time  float64 `json:"us"`
}

// linkLoads are the heat maps.
type linkLoads struct {
	BinUS float64    `json:"bin_us"`
	Names []string   `json:"names"` // link names, the rows of each heat map
	Lines []int      `json:"lines"` // the links' lines in the picture of the fabric
	Runs  []linkLoad `json:"runs"`
}

// linkLoad is the heat map of one repeat of an arm. Loads has one byte per bin and link,
// in steps of full/loadSteps, as base64.
type linkLoad struct {
	Arm    int       `json:"arm"`
	Repeat int       `json:"repeat"`
	Bins   int       `json:"bins"`
	Mean   []float64 `json:"mean"`
	Peak   []float64 `json:"peak"`
	Loads  []string  `json:"loads"`
}

// loadSteps is the byte for a link that is used at its full rate. 255 stands for all loads
// of at least 255/loadSteps.
const loadSteps = 200

// balance is the coefficient of variation of link loads over time.
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

// causes are in drawing order.
var causes = []breakdown.Cause{breakdown.Held, breakdown.Setup, breakdown.Serialisation, breakdown.Queueing, breakdown.Retransmission,
	breakdown.Host, breakdown.Latency, breakdown.Network, breakdown.Disk}

// us returns d in microseconds, rounded to a nanosecond below a millisecond and to a
// microsecond above, which is finer than a chart shows.
func us(d time.Duration) float64 {
	if d.Abs() >= time.Millisecond {
		return math.Round(float64(d) / 1e3)
	}
	return float64(d) / 1e3
}

// digits rounds to n decimals, which is enough for a chart and equal on all machines.
func digits(x float64, n int) float64 {
	p := math.Pow10(n)
	return math.Round(x*p) / p
}

// shown calls f for the arms with figures.
func (d *Data) shown(f func(i int, a *Arm)) {
	for i := range d.Arms {
		if !d.Arms[i].Void {
			f(i, &d.Arms[i])
		}
	}
}

// numbered yields the first repeats, at most a number of them, with their numbers.
func (a *Arm) numbered(most int) iter.Seq2[int, Repeat] {
	return func(yield func(int, Repeat) bool) {
		for i, r := range a.Repeats[:min(len(a.Repeats), most)] {
			if !yield(a.Numbers.Of(i), r) {
				return
			}
		}
	}
}

// drawn yields the repeats that have a chart of their own.
func (a *Arm) drawn() iter.Seq2[int, Repeat] { return a.numbered(maxRepeats) }

func (a *Arm) items(of func(int, flows.Records) []metrics.Item) []metrics.Item {
	var all []metrics.Item
	for k, r := range a.numbered(len(a.Repeats)) {
		all = append(all, of(k, r.Records)...)
	}
	return all
}

func (d *Data) cdfs() []cdf {
	out := []cdf{}
	for _, kind := range metrics.Times() {
		c := cdf{ID: kind.Key, Title: kind.Title}
		d.shown(func(i int, a *Arm) {
			times := figures.Times(a.items(kind.Items))
			if len(times) == 0 {
				return
			}
			x := curve{Arm: i, N: len(times)}
			for _, s := range figures.Steps(times, 0, maxCDFPoints) {
				x.Times = append(x.Times, us(s.Value))
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
	base := d.Arms[0].items(metrics.CCTs)
	d.shown(func(i int, a *Arm) {
		if i == 0 {
			return
		}
		sizes := map[figures.Place]units.Bytes{}
		for k, r := range a.numbered(len(a.Repeats)) {
			for _, c := range r.Records.Coflows {
				sizes[figures.Place{Repeat: k, ID: int(c.Coflow)}] = c.Size
			}
		}
		all := figures.Speedups(base, a.items(metrics.CCTs), sizes)
		if len(all) == 0 {
			return
		}
		slices.SortFunc(all, func(a, b figures.Speedup) int {
			return cmp.Or(cmp.Compare(a.Ratio, b.Ratio), cmp.Compare(a.Repeat, b.Repeat), cmp.Compare(a.Coflow, b.Coflow))
		})
		s := speedups{Arm: i, N: len(all)}
		for k := range min(len(all), maxPairs) {
			x := all[spread(k, len(all), maxPairs)]
			s.Pair = append(s.Pair, pair{digits(x.Ratio, 4), float64(x.Size), float64(x.Coflow), float64(x.Repeat)})
		}
		out = append(out, s)
	})
	return out
}

// spread returns the k-th of at most most indices into n, evenly spread from first to last.
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
		for k, r := range a.drawn() {
			if len(r.Records.Coflows) > 0 {
				out = append(out, newTimeline(i, k, r, maxBars/min(len(a.Repeats), maxRepeats)))
				repeats = append(repeats, r)
			}
		}
	})
	d.addProgress(out, repeats)
	return out
}

// addProgress adds the progress of flows to the timelines of repeats.
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
			longest := figures.LongestFirst(of[b.Coflow])
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
		at := 0.0
		if b.End > b.Arrival {
			at = (float64(m.At)/1e3 - b.Arrival) / (b.End - b.Arrival)
		}
		out.Path = append(out.Path, int(math.Round(progressTimes*min(1, max(0, at)))), int(math.Round(progressShares*figures.Received(m, p.Size))))
	}
	return out
}

func newTimeline(arm, repeat int, r Repeat, most int) timeline {
	coflows := slices.Clone(r.Records.Coflows)
	t := timeline{Arm: arm, Repeat: repeat, N: len(coflows)}
	slices.SortStableFunc(coflows, func(a, b flows.CoflowRecord) int { return cmp.Compare(b.CCT(), a.CCT()) })
	coflows = coflows[:min(len(coflows), most)]
	figures.ByArrival(coflows)
	sending := map[workloads.CoflowID][]flows.Span{}
	for _, f := range r.Records.Flows {
		sending[f.Coflow] = append(sending[f.Coflow], flows.Span{From: f.Start, To: f.End})
	}
	shares := map[workloads.CoflowID][]breakdown.Share{}
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
		slices.SortStableFunc(longest, func(a, b breakdown.Share) int { return cmp.Compare(b.Time, a.Time) })
		for _, s := range longest[:min(len(longest), maxShares)] {
			if k := slices.Index(causes, s.Cause); k >= 0 && s.Time > 0 {
				b.Shares = append(b.Shares, share{k, s.Link, us(s.Time)})
			}
		}
		t.Bars = append(t.Bars, b)
	}
	return t
}

// union merges overlapping spans into at most most spans; it fills the shortest gaps if
// there are more.
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

// binning groups intervals into bins of the heat map.
type binning struct{ interval, bin time.Duration }

// gather chooses the bins, the same for all arms so that their heat maps are comparable.
// It returns false if no arm has loads. Series whose interval differs from the first one's
// are left out, because they do not fit on the same time axis.
func (d *Data) gather() (b binning, ok bool) {
	intervals, rows := 0, 0
	d.shown(func(_ int, a *Arm) {
		for _, r := range a.drawn() {
			if len(r.Links) == 0 || figures.Intervals(r.Links) == 0 || b.interval != 0 && r.Links[0].Interval != b.interval {
				continue
			}
			b.interval = r.Links[0].Interval
			intervals = max(intervals, figures.Intervals(r.Links))
			rows += min(len(r.Links), maxLinks)
		}
	})
	if intervals == 0 || b.interval <= 0 {
		return b, false
	}
	b.bin = figures.BinOf(time.Duration(intervals)*b.interval, b.interval, min(maxBins, max(leastBins, maxCells/rows)))
	return b, true
}

// loads returns the heat maps; nil without loads.
func (d *Data) loads(b binning) *linkLoads {
	out := &linkLoads{BinUS: us(b.bin)}
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
			uses := figures.LinkUses(r.Links, d.LinkInterval)
			loads := figures.LoadsOf(r.Links, b.bin)
			run := linkLoad{Arm: i, Repeat: k, Bins: loads.Bins, Mean: make([]float64, len(row)), Peak: make([]float64, len(row)), Loads: make([]string, len(row))}
			for x, l := range r.Links {
				at, ok := row[l.Link]
				if !ok || l.Interval != b.interval {
					continue
				}
				run.Mean[at], run.Peak[at] = digits(uses[x].Mean, 4), digits(uses[x].Peak, 4)
				cells := make([]byte, run.Bins)
				for j := range cells {
					cells[j] = byte(min(255, math.Round(loadSteps*loads.Of(x, j))))
				}
				run.Loads[at] = base64.StdEncoding.EncodeToString(cells)
			}
			out.Runs = append(out.Runs, run)
		}
	})
	return out
}

// linksShown returns the links of the heat map in the fabric's order, links between leaves
// and spines first; of too many, the busiest over all arms.
func (d *Data) linksShown() []flows.LinkSeries {
	mean := map[topo.LinkID]float64{}
	first := map[topo.LinkID]flows.LinkSeries{}
	hostLinks := map[topo.LinkID]bool{}
	d.shown(func(_ int, a *Arm) {
		for _, r := range a.Repeats {
			uses := figures.LinkUses(r.Links, d.LinkInterval)
			for k, l := range r.Links {
				mean[l.Link] += uses[k].Mean
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

// balances returns the Cv of the loads of the links between leaves and spines, averaged over
// the repeats of an arm that had traffic in a bin. Loads and bins are those of the figure
// cv-time (results/plot).
func (d *Data) balances() []balance {
	var end, interval time.Duration
	between := func(r Repeat, kinds ...topo.LinkKind) []flows.LinkSeries {
		if r.Fabric == nil {
			return nil
		}
		links, _ := figures.InIntervals(r.Links, d.LinkInterval)
		return slices.DeleteFunc(links, func(l flows.LinkSeries) bool {
			return int(l.Link) >= len(r.Fabric.Links()) || !slices.Contains(kinds, r.Fabric.Link(l.Link).Kind) || interval > 0 && l.Interval != interval
		})
	}
	d.shown(func(_ int, a *Arm) {
		for _, r := range a.Repeats {
			if links := between(r, topo.LeafUp, topo.LeafDown); len(links) > 0 {
				interval = links[0].Interval
				end = max(end, time.Duration(figures.Intervals(links))*links[0].Interval)
			}
		}
	})
	out := []balance{}
	if interval <= 0 {
		return out
	}
	bin := figures.BinOf(end, interval, figures.MostMoments)
	for _, side := range []struct {
		id, title string
		kinds     []topo.LinkKind
	}{
		{"all", "Links between leaves and spines", []topo.LinkKind{topo.LeafUp, topo.LeafDown}},
		{"up", "Links from leaves to spines", []topo.LinkKind{topo.LeafUp}},
		{"down", "Links from spines to leaves", []topo.LinkKind{topo.LeafDown}},
	} {
		x := balance{ID: side.id, Title: side.title, BinUS: us(bin)}
		d.shown(func(i int, a *Arm) {
			var runs [][]*float64
			n := 0
			for _, r := range a.Repeats {
				if links := between(r, side.kinds...); len(links) >= 2 {
					n = len(links)
					runs = append(runs, cvOf(links, bin))
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

// cvOf returns the Cv of the loads of links in each bin: nil in a bin without traffic.
func cvOf(links []flows.LinkSeries, bin time.Duration) []*float64 {
	loads := figures.LoadsOf(links, bin)
	out := make([]*float64, loads.Bins)
	for j, cv := range loads.Imbalance() {
		if !math.IsNaN(cv) {
			v := digits(cv, 4)
			out[j] = &v
		}
	}
	return out
}

// average returns the mean of the runs that have a value, bin by bin.
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
