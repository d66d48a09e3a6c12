package htmlreport

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"testbed/results/figures"
	"testbed/results/metrics"
	"testbed/results/samples"
	"testbed/workloads"
)

// series is the values of links, flows and tasks over time: a group of charts for each kind of object.
type series struct {
	BinUS  float64       `json:"bin_us"`
	Bins   int           `json:"bins"`
	Groups []seriesGroup `json:"groups"`
	Marks  []seriesMark  `json:"marks"`

	Faults  []string `json:"-"` // those of the marks, numbered
	Bin     string   `json:"-"` // BinUS as in tables
	Repeats []int    `json:"-"` // that any run has
}

// seriesMark is the time at which a fault of a repeat begins, and its number in Faults, from 1.
type seriesMark struct {
	Repeat int     `json:"repeat"`
	At     float64 `json:"at"`
	Fault  int     `json:"fault"`
}

// seriesGroup is the charts of one kind of object, of which one at a time is shown.
type seriesGroup struct {
	ID      string         `json:"id"`
	Label   string         `json:"label"`   // of the selection of an object
	Objects []string       `json:"objects"` // the first is shown first
	Limits  []int          `json:"limits"`  // the most that the values of each object can be; none if unknown
	Metrics []seriesMetric `json:"metrics"`
	Runs    []seriesRun    `json:"runs"`
}

// seriesMetric is a chart. Unit is a key of the script; values are in Scale of it.
type seriesMetric struct {
	ID    string  `json:"id"`
	Title string  `json:"title"`
	Unit  string  `json:"unit"`
	Scale float64 `json:"scale"`
	Most  float64 `json:"most,omitempty"` // upper end of the axis; 0 for the largest value
}

// seriesRun is the values of one repeat of an arm, by object and metric; nil for an object without any.
type seriesRun struct {
	Arm    int       `json:"arm"`
	Repeat int       `json:"repeat"`
	Values [][]lohis `json:"values"`
}

// lohis is the least and the largest value in each bin from a first one on. Low is nil if it equals High.
type lohis struct {
	From      int
	Low, High []int64
}

// MarshalJSON encodes values as multiples of a step, which is 1 if they are packed without an error.
func (l lohis) MarshalJSON() ([]byte, error) {
	step := int64(1)
	for _, x := range l.High {
		step = max(step, (x+int64(mostPacked)-1)/int64(mostPacked))
	}
	encode := func(all []int64) (out packed) {
		for _, x := range all {
			out = append(out, int((max(x, 0)+step/2)/step))
		}
		return out
	}
	return json.Marshal(struct {
		From int    `json:"from"`
		Step int64  `json:"step"`
		Low  packed `json:"lo,omitempty"`
		High packed `json:"hi"`
	}{l.From, step, encode(l.Low), encode(l.High)})
}

// packed is numbers from 0 to mostPacked, of which each is two characters in the page.
type packed []int

const (
	packedDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
	mostPacked   = len(packedDigits)*len(packedDigits) - 1
)

// MarshalText writes the digits.
func (p packed) MarshalText() ([]byte, error) {
	out := make([]byte, 0, 2*len(p))
	for _, x := range p {
		out = append(out, packedDigits[x/len(packedDigits)], packedDigits[x%len(packedDigits)])
	}
	return out, nil
}

var linkMetrics = []seriesMetric{
	{"queue", "Length of the queue ahead of the link", "B", 1, 0},
	{"throughput", "Throughput of the link", "bps", 1e3, 0},
	{"drops", "Packets dropped by the queue, per bin", "", 1, 0},
}

var flowMetrics = []seriesMetric{
	{"rtt", "Smoothed round-trip time of the flow", "us", 1, 0},
	{"cwnd", "Congestion window of the flow (packets)", "", 1, 0},
	{"delivery", "Delivery rate of the flow", "bps", 1e3, 0},
	{"retransmissions", "Packets that the flow sent again, per bin", "", 1, 0},
}

// flowMetrics returns the metrics of flows. The kernel's first estimates of a delivery rate are of bursts, many times the
// rate of the host's link, at twice which the axis ends.
func (d *Data) flowMetrics() []seriesMetric {
	out := slices.Clone(flowMetrics)
	if d.Fabric != nil {
		out[2].Most = 2 * float64(d.Fabric.Link(d.Fabric.HostUp(0)).Rate)
		out[2].Title += ", up to twice the rate of a host"
	}
	return out
}

var taskMetrics = []seriesMetric{{"running", "Tasks in progress", "", 0.1, 0}}

// binned collects the values of an object and metric in bins.
type binned struct {
	bin       time.Duration
	bins      int
	first     int
	low, high []int64
	now       int64 // the newest value
}

// add adds a value that held in a period. Bins between the previous value and this one keep the previous one.
func (b *binned) add(from, to time.Duration, v float64) {
	x, k, last := int64(math.Round(v)), int(max(from, 0)/b.bin), min(int(to/b.bin), b.bins-1)
	if to < 0 || k > last {
		return
	}
	if len(b.high) == 0 {
		b.first = k
	}
	for b.first+len(b.high) < k {
		b.low, b.high = append(b.low, b.now), append(b.high, b.now)
	}
	b.now = x
	for ; k <= last; k++ {
		if at := k - b.first; at < len(b.high) {
			if at >= 0 {
				b.low[at], b.high[at] = min(b.low[at], x), max(b.high[at], x)
			}
		} else {
			b.low, b.high = append(b.low, x), append(b.high, x)
		}
	}
}

// count adds an increase of a counter at a moment.
func (b *binned) count(at time.Duration, by int) {
	k := int(at / b.bin)
	if at < 0 || k >= b.bins {
		return
	}
	if len(b.high) == 0 {
		b.first = k
	}
	for b.first+len(b.high) <= k {
		b.high = append(b.high, 0)
	}
	if k >= b.first {
		b.high[k-b.first] += int64(by)
	}
}

func (b *binned) values() lohis {
	if slices.Equal(b.low, b.high) {
		return lohis{From: b.first, High: b.high}
	}
	return lohis{b.first, b.low, b.high}
}

// sampled calls link and flow with the readings of links and flows of the repeats that have charts of series. Times are
// those of the records.
func (d *Data) sampled(link func(runOf, samples.LinkPoint), flow func(runOf, samples.FlowPoint)) error {
	for run, r := range d.withSamples() {
		in, err := samples.Open(r.Samples)
		if err != nil {
			return err
		}
		in.CountFrom(r.Zero)
		err = in.Points(func(p samples.LinkPoint) { link(run, p) }, func(p samples.FlowPoint) { flow(run, p) })
		if err := errors.Join(err, in.Close()); err != nil {
			return err
		}
	}
	return nil
}

// mark adds the marks of the faults. A fault that several arms have is marked once in a repeat.
func (s *series) mark(d *Data) error {
	for run, r := range d.withSamples() {
		in, err := samples.Open(r.Samples)
		if err != nil {
			return err
		}
		shift := time.Duration(0) // from the run's clock to that of the records
		if !r.Zero.IsZero() {
			shift = in.Zero.Sub(r.Zero)
		}
		if err := in.Close(); err != nil {
			return err
		}
		for _, m := range d.Arms[run.arm].Faults {
			k := slices.Index(s.Faults, m.Text) + 1
			if k == 0 {
				s.Faults = append(s.Faults, m.Text)
				k = len(s.Faults)
			}
			if !slices.ContainsFunc(s.Marks, func(x seriesMark) bool { return x.Repeat == run.repeat && x.Fault == k }) {
				s.Marks = append(s.Marks, seriesMark{run.repeat, us(m.At + shift), k})
			}
		}
	}
	return nil
}

// withSamples yields the repeats that have samples and charts of series.
func (d *Data) withSamples() iter.Seq2[runOf, Repeat] {
	return func(yield func(runOf, Repeat) bool) {
		for i := range d.Arms {
			if d.Arms[i].Void {
				continue
			}
			for k, r := range d.Arms[i].numbered(maxSeriesRepeats) {
				if r.Samples != "" && !yield(runOf{i, k}, r) {
					return
				}
			}
		}
	}
}

// standing is what decides whether a link or a flow is shown: the greatest first.
type standing [3]float64

// standings returns the standing of all links and flows.
func (d *Data) standings() (links map[string]standing, flows map[workloads.FlowID]standing, err error) {
	links, flows = map[string]standing{}, map[workloads.FlowID]standing{}
	err = d.sampled(func(_ runOf, p samples.LinkPoint) {
		s := links[p.Link]
		if p.Dropped != nil {
			s[0] = max(s[0], float64(*p.Dropped))
		}
		if p.Queue != nil {
			s[1] = max(s[1], float64(*p.Queue))
		}
		if p.Rate != nil {
			s[2] = max(s[2], float64(*p.Rate))
		}
		links[p.Link] = s
	}, func(_ runOf, p samples.FlowPoint) {
		s := flows[p.Flow]
		s[0]++
		flows[p.Flow] = s
	})
	return links, flows, err
}

// chosen returns the names with the highest standing, at most a number of them, that first.
func chosen[K cmp.Ordered](all map[K]standing, most int) []K {
	names := slices.SortedFunc(maps.Keys(all), func(a, b K) int {
		x, y := all[a], all[b]
		return cmp.Or(slices.Compare(y[:], x[:]), cmp.Compare(a, b))
	})
	return names[:min(len(names), most)]
}

// runOf identifies a repeat of an arm.
type runOf struct{ arm, repeat int }

// collected is the values of the objects of a group.
type collected[K cmp.Ordered] struct {
	bin     time.Duration
	bins    int
	of      int // metrics
	objects []K
	runs    map[runOf]map[K]*track
}

// track is the values of an object in a repeat, by metric.
type track struct {
	values []binned
	at     time.Duration // of the newest reading
	count  int           // newest value of its counter
}

func newCollected[K cmp.Ordered](bin time.Duration, bins int, of []seriesMetric, objects []K) *collected[K] {
	return &collected[K]{bin: bin, bins: bins, of: len(of), objects: objects, runs: map[runOf]map[K]*track{}}
}

// at returns the track of an object in a repeat, nil for an object that is not shown.
func (c *collected[K]) at(run runOf, object K) *track {
	if !slices.Contains(c.objects, object) {
		return nil
	}
	if c.runs[run] == nil {
		c.runs[run] = map[K]*track{}
	}
	t := c.runs[run][object]
	if t == nil {
		t = &track{values: make([]binned, c.of)}
		for m := range t.values {
			t.values[m] = binned{bin: c.bin, bins: c.bins}
		}
		c.runs[run][object] = t
	}
	return t
}

// group adds the values to a group.
func (c *collected[K]) group(g seriesGroup) seriesGroup {
	runs := slices.SortedFunc(maps.Keys(c.runs), func(a, b runOf) int {
		return cmp.Or(cmp.Compare(a.arm, b.arm), cmp.Compare(a.repeat, b.repeat))
	})
	has := make([]bool, len(g.Metrics))
	for _, r := range runs {
		of, any := seriesRun{Arm: r.arm, Repeat: r.repeat}, false
		for _, object := range c.objects {
			var values []lohis
			if t := c.runs[r][object]; t != nil {
				any = true
				for m := range t.values {
					values = append(values, t.values[m].values())
					has[m] = has[m] || len(t.values[m].high) > 0
				}
			}
			of.Values = append(of.Values, values)
		}
		if any {
			g.Runs = append(g.Runs, of)
		}
	}
	for m := len(has) - 1; m >= 0; m-- { // the fluid model has no queues
		if has[m] {
			continue
		}
		g.Metrics = slices.Delete(slices.Clone(g.Metrics), m, m+1)
		for _, r := range g.Runs {
			for i := range r.Values {
				if r.Values[i] != nil {
					r.Values[i] = slices.Delete(r.Values[i], m, m+1)
				}
			}
		}
	}
	return g
}

// seriesBins returns the number of bins of the charts of series.
func (d *Data) seriesBins() int {
	runs, links, flows := 0, maxSeriesObjects, 0
	for _, r := range d.withSamples() {
		if runs++; !d.Simulated { // the fluid model samples no flows
			flows = max(flows, len(r.Records.Flows))
		}
	}
	if d.Fabric != nil {
		links = min(links, len(d.Fabric.Links()))
	}
	flows = min(flows, maxSeriesObjects)
	if n := 2 * runs * (links*len(linkMetrics) + flows*len(flowMetrics)); n > 0 {
		return min(maxSeriesBins, max(leastSeriesBins, maxSeriesValues/n))
	}
	return maxSeriesBins
}

// series returns the charts of series, nil if there is nothing over time.
func (d *Data) series(left func(format string, args ...any)) (*series, error) {
	_, end := d.span()
	if end <= 0 {
		return nil, nil
	}
	out := &series{Marks: []seriesMark{}}
	bin := figures.BinOf(end, 10*time.Microsecond, d.seriesBins())
	out.BinUS, out.Bins = us(bin), int(end/bin)+1

	// The first reading decides which objects are shown, so that the second keeps the values of these alone.
	allLinks, allFlows, err := d.standings()
	if err != nil {
		return nil, err
	}
	links := newCollected(bin, out.Bins, linkMetrics, chosen(allLinks, maxSeriesObjects))
	flows := newCollected(bin, out.Bins, flowMetrics, chosen(allFlows, maxSeriesObjects))
	if err := d.sampled(func(run runOf, p samples.LinkPoint) {
		t := links.at(run, p.Link)
		if t == nil {
			return
		}
		if p.Dropped != nil {
			t.values[2].count(p.At, *p.Dropped-t.count)
			t.count = *p.Dropped
		}
		if p.Queue != nil {
			t.values[0].add(p.At, p.At, float64(*p.Queue))
		}
		if p.Rate != nil {
			t.values[1].add(t.at, p.At, float64(*p.Rate)/linkMetrics[1].Scale)
		}
		t.at = p.At
	}, func(run runOf, p samples.FlowPoint) {
		t := flows.at(run, p.Flow)
		if t == nil {
			return
		}
		t.values[0].add(p.At, p.At, float64(p.RTT.Microseconds()))
		t.values[1].add(p.At, p.At, float64(p.Window))
		t.values[2].add(p.At, p.At, float64(p.Delivery)/flowMetrics[2].Scale)
		t.values[3].count(p.At, p.Retransmitted-t.count)
		t.count = p.Retransmitted
	}); err != nil {
		return nil, err
	}
	if len(links.objects) > 0 {
		out.Groups = append(out.Groups, links.group(seriesGroup{ID: "link", Label: "Link", Objects: links.objects, Metrics: linkMetrics}))
	}
	if len(flows.objects) > 0 {
		out.Groups = append(out.Groups, flows.group(seriesGroup{ID: "flow", Label: "Flow", Objects: d.flowNames(flows.objects), Metrics: d.flowMetrics()}))
	}
	if g := d.taskSeries(bin, out.Bins); g != nil {
		out.Groups = append(out.Groups, *g)
	}
	if len(out.Groups) == 0 {
		return nil, nil
	}
	out.Bin = d.Human(bin)
	for _, g := range out.Groups {
		for _, r := range g.Runs {
			if !slices.Contains(out.Repeats, r.Repeat) {
				out.Repeats = append(out.Repeats, r.Repeat)
			}
		}
	}
	slices.Sort(out.Repeats)
	out.left(left, len(allLinks), len(allFlows))
	d.shown(func(_ int, a *Arm) {
		if n := len(a.Repeats); n > maxSeriesRepeats {
			left("%s: the first %d of %d repeats are shown.", a.Name, maxSeriesRepeats, n)
		}
	})
	return out, out.mark(d)
}

// left states what the charts leave out.
func (s *series) left(say func(format string, args ...any), links, flows int) {
	for _, g := range s.Groups {
		switch {
		case g.ID == "link" && len(g.Objects) < links:
			say("%d of %d links are on this page: those with the most drops, then the longest queue, then the highest "+
				"throughput. testbed export has all.", len(g.Objects), links)
		case g.ID == "flow" && len(g.Objects) < flows:
			say("%d of %d flows are on this page: those with the most samples. testbed export has all.", len(g.Objects), flows)
		}
	}
}

// flowNames returns names of flows that state what they connect, as far as it is known.
func (d *Data) flowNames(ids []workloads.FlowID) []string {
	names := map[workloads.FlowID]string{}
	d.shown(func(_ int, a *Arm) {
		for _, r := range a.Repeats {
			for i := range r.Records.Flows {
				f := &r.Records.Flows[i]
				if _, ok := names[f.Flow]; !ok {
					names[f.Flow] = fmt.Sprintf("%d: %s → %s, coflow %d", f.Flow, f.Src, f.Dst, f.Coflow)
				}
			}
		}
	})
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = cmp.Or(names[id], fmt.Sprint(id))
	}
	return out
}

// taskSeries returns the number of attempts of tasks in progress by kind, averaged over each bin; nil without any.
func (d *Data) taskSeries(bin time.Duration, bins int) *seriesGroup {
	kinds := metrics.TaskKinds()
	g := &seriesGroup{ID: "task", Label: "Tasks", Limits: make([]int, len(kinds)), Metrics: taskMetrics}
	for _, kind := range kinds {
		g.Objects = append(g.Objects, kind+" tasks")
	}
	d.shown(func(i int, a *Arm) {
		for k, r := range a.numbered(maxSeriesRepeats) {
			if len(r.Records.Attempts) == 0 {
				continue
			}
			run := seriesRun{Arm: i, Repeat: k}
			for n, kind := range kinds {
				busy := make([]time.Duration, bins)
				for x := range r.Records.Attempts {
					t := &r.Records.Attempts[x]
					if t.Kind != kind {
						continue
					}
					for b := max(t.Start, 0) / bin; b < time.Duration(bins) && t.End > b*bin; b++ {
						busy[b] += min(t.End, (b+1)*bin) - max(t.Start, b*bin)
					}
				}
				of := lohis{}
				for _, x := range busy {
					of.High = append(of.High, int64(math.Round(float64(x)/float64(bin)/taskMetrics[0].Scale)))
				}
				run.Values = append(run.Values, []lohis{of})
				if r.Slots != nil {
					g.Limits[n] = r.Slots.Of(kind)
				}
			}
			g.Runs = append(g.Runs, run)
		}
	})
	if len(g.Runs) == 0 {
		return nil
	}
	return g
}

// span returns the times at which the first arrival and the last end of all arms are, for the time axis of all charts.
func (d *Data) span() (from, to time.Duration) {
	d.shown(func(_ int, a *Arm) {
		for _, r := range a.Repeats {
			for _, c := range r.Records.Coflows {
				from, to = min(from, c.Arrival), max(to, c.End)
			}
			for i := range r.Records.Flows {
				to = max(to, r.Records.Flows[i].End)
			}
			for _, b := range r.Records.Blocks {
				to = max(to, b.End)
			}
			for i := range r.Records.Attempts {
				to = max(to, r.Records.Attempts[i].End)
			}
			if len(r.Links) > 0 {
				to = max(to, time.Duration(figures.Intervals(r.Links))*r.Links[0].Interval)
			}
		}
	})
	return from, to
}
