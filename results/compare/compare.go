// Package compare tells whether arms differ: item by item between two arms of a
// run, or between the same arms of several runs, with intervals that say how far
// chance may go.
//
// Each ratio is the baseline's time over the arm's for the same coflow, flow or
// block of the same repeat, so more than 1 is faster. Intervals are those of
// metrics.Pair, 95 %, over whole clusters: an item with all its repeats is drawn as
// one, and so are the flows of a coflow and the blocks of a writer. The same input gives the same figures, which are also those that
// results/report states for the arms of one run.
//
// Where one arm moves clearly more bytes between racks than the other, that is said
// beside the figures: its times are not of choosing better places alone.
//
// A void arm is not compared: its reason stands in place of figures. Whether two
// runs had the same workload is for the caller to find out; that items of one
// number are the same item is checked here, by their size.
//
// It reads no files (results/archive) and judges no run (results/verdict).
package compare

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"testbed/results/metrics"
	"testbed/results/verdict"
	"testbed/topo/units"
)

// Metric is what is compared.
type Metric string

// The metrics, by the keys that a summary has.
const (
	CCT       Metric = "cct"
	FCT       Metric = "fct"
	WriteTime Metric = "write_time"

	RequestTime Metric = "request_time" // of all blocks of one writer
	JobTime     Metric = "job_time"
)

// Metrics are all but those by bin, in order.
func Metrics() []Metric { return []Metric{CCT, FCT, WriteTime, RequestTime, JobTime} }

// jobBin is what the metrics of jobs by bin begin with.
const jobBin = "job_time_by_bin."

// JobTimeIn is the job time of the jobs of one bin.
func JobTimeIn(bin int) Metric { return Metric(jobBin + strconv.Itoa(bin)) }

// bin is that of JobTimeIn.
func (m Metric) bin() (int, bool) {
	number, ok := strings.CutPrefix(string(m), jobBin)
	n, err := strconv.Atoi(number)
	return n, ok && err == nil
}

// metricsOf are Metrics and those by bin of which some arm has items, in order.
func metricsOf(pairs []Pairing) []Metric {
	var bins []int
	for _, p := range pairs {
		for _, a := range []Arm{p.Base, p.Arm} {
			for m := range a.Items {
				if b, ok := m.bin(); ok && !slices.Contains(bins, b) {
					bins = append(bins, b)
				}
			}
		}
	}
	slices.Sort(bins)
	out := Metrics()
	for _, b := range bins {
		out = append(out, JobTimeIn(b))
	}
	return out
}

// Title is the metric as in headings.
func (m Metric) Title() string {
	if b, ok := m.bin(); ok {
		return fmt.Sprintf("Job time, bin %d", b)
	}
	return map[Metric]string{CCT: "Coflow completion time (CCT)", FCT: "Flow completion time (FCT)", WriteTime: "Block write time", RequestTime: "Write request time", JobTime: "Job time"}[m]
}

// short is the metric as in sentences.
func (m Metric) short() string {
	if b, ok := m.bin(); ok {
		return fmt.Sprintf("job time of bin %d", b)
	}
	return map[Metric]string{CCT: "CCT", FCT: "FCT", WriteTime: "write time", RequestTime: "request time", JobTime: "job time"}[m]
}

// noun is what an item of the metric is.
func (m Metric) noun() string {
	if _, ok := m.bin(); ok {
		m = JobTime
	}
	return map[Metric]string{CCT: "coflow", FCT: "flow", WriteTime: "block", RequestTime: "request", JobTime: "job"}[m]
}

// Item is the completion time of one coflow, flow or block.
type Item struct {
	metrics.Item
	Size units.Bytes // payload
}

// Arm is one arm of one run.
type Arm struct {
	Run   string // by which the run is called, "" where there is one run
	Name  string
	Level verdict.Level // 0 for the fluid model, which has none
	// Why are the checks that did not pass, a line each.
	Why   []string
	Items map[Metric][]Item
	// CrossRack is what it moved between racks, on average of its repeats, nil where it
	// is not known or nothing was placed; Frames tells that it is of frames, and not of
	// payload.
	CrossRack *metrics.CrossRack
	Frames    bool
}

// Label is the arm's name, with its run where there are several.
func (a Arm) Label() string {
	if a.Run == "" {
		return a.Name
	}
	return a.Run + " " + a.Name
}

// verdict is the arm's, as tables show it.
func (a Arm) verdict() string {
	if a.Level == 0 {
		return "fluid model"
	}
	return a.Level.String()
}

// Pairing is two arms to compare.
type Pairing struct{ Base, Arm Arm }

// Outcome is what an interval shows.
type Outcome string

// The outcomes. Faster and Slower are of the arm, over the baseline.
const (
	Faster  Outcome = "faster"
	Slower  Outcome = "slower"
	NoneYet Outcome = "no difference shown"
	TooFew  Outcome = "too few to tell"
)

// Estimate is a ratio with its 95 % interval, low and high, and what that shows.
type Estimate struct {
	Value   float64    `json:"value"`
	CI      [2]float64 `json:"ci"`
	Outcome Outcome    `json:"outcome"`
}

// String is the ratio and its interval.
func (e Estimate) String() string {
	return fmt.Sprintf("%.2f× [%.2f, %.2f]", e.Value, e.CI[0], e.CI[1])
}

// says is the estimate in words, with the ratio above 1.
func (e Estimate) says() string {
	switch e.Outcome {
	case Faster:
		return e.String() + " faster"
	case Slower:
		return fmt.Sprintf("%.2f× [%.2f, %.2f] slower", 1/e.Value, 1/e.CI[1], 1/e.CI[0])
	}
	return string(e.Outcome)
}

// Figure is the comparison of two arms in one metric.
type Figure struct {
	Metric   Metric `json:"metric"`
	Pairs    int    `json:"pairs"`
	Clusters int    `json:"clusters"` // of pairs, drawn as one
	Unpaired int    `json:"unpaired"` // items that only one of the arms has
	// MeanRatio is the ratio of the averages over the pairs, the others are of the
	// pairs' own ratios.
	MeanRatio   Estimate `json:"mean_ratio"`
	MedianRatio Estimate `json:"median"`
	GeoMean     Estimate `json:"geo_mean"`
}

// Side is an arm as a comparison names it.
type Side struct {
	Run     string   `json:"run,omitempty"`
	Arm     string   `json:"arm"`
	Verdict string   `json:"verdict"` // "fluid model" where there were no packets
	Why     []string `json:"why,omitempty"`
}

// Comparison is what came of a pairing.
type Comparison struct {
	Base Side `json:"base"`
	Arm  Side `json:"arm"`
	// Refused is why there are no figures: an arm is void.
	Refused string `json:"refused,omitempty"`
	// NotLikeForLike is why the arms' times do not compare like with like: one moves
	// clearly more bytes between racks.
	NotLikeForLike []string `json:"not_like_for_like,omitempty"`
	Figures        []Figure `json:"figures"` // of the metrics of which an arm has items
	pairing        Pairing
}

// Run is a run, as it is named in comparisons.
type Run struct {
	Label   string `json:"label,omitempty"`
	ID      string `json:"run_id"`
	Dir     string `json:"dir"`
	Backend string `json:"backend"` // "packets" or "fluid model"
	Tool    string `json:"tool,omitempty"`
	Kernel  string `json:"kernel,omitempty"`
}

// Input is what is to be compared.
type Input struct {
	Runs  []Run
	Notes []string // what else differs between the runs
	Pairs []Pairing
	Seed  uint64 // of the intervals
}

// Result is ready to be written in any form.
type Result struct {
	Runs        []Run        `json:"runs"`
	Notes       []string     `json:"notes"`
	Comparisons []Comparison `json:"comparisons"`
	metrics     []Metric
}

// MismatchError is an item that is not the same in both arms.
type MismatchError struct {
	Metric     Metric
	Repeat, ID int
	Base, Arm  string // labels
	BaseSize   units.Bytes
	ArmSize    units.Bytes
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%s %d of repeat %d has %v in %s and %v in %s: the workloads differ, so nothing is compared (run both on the same scenario, seed and traces)",
		e.Metric.noun(), e.ID, e.Repeat, e.BaseSize, e.Base, e.ArmSize, e.Arm)
}

// New compares. The error is a *MismatchError, or that there is nothing to compare.
func New(in Input) (*Result, error) {
	if len(in.Pairs) == 0 {
		return nil, fmt.Errorf("nothing to compare: want two arms of a run, or an arm that two runs have")
	}
	r := &Result{Runs: in.Runs, Notes: append([]string{}, in.Notes...), metrics: metricsOf(in.Pairs)}
	for _, p := range in.Pairs {
		c := Comparison{Base: side(p.Base), Arm: side(p.Arm), Figures: []Figure{}, pairing: p}
		for _, a := range []Arm{p.Base, p.Arm} {
			if a.Level == verdict.Void && c.Refused == "" {
				c.Refused = fmt.Sprintf("%s is void, so its figures may not be believed", a.Label())
			}
		}
		if b, a := p.Base, p.Arm; c.Refused == "" && a.CrossRack != nil && b.CrossRack != nil && a.Frames == b.Frames {
			c.NotLikeForLike = a.CrossRack.Unlike(*b.CrossRack, metrics.DefaultAlike)
		}
		if c.Refused == "" {
			for k, m := range r.metrics {
				f, err := figure(m, p, in.Seed+uint64(k))
				if err != nil {
					return nil, err
				}
				if f != nil {
					c.Figures = append(c.Figures, *f)
				}
			}
		}
		r.Comparisons = append(r.Comparisons, c)
	}
	return r, nil
}

func side(a Arm) Side { return Side{Run: a.Run, Arm: a.Name, Verdict: a.verdict(), Why: a.Why} }

// Void tells whether an arm that was asked for is void.
func (r *Result) Void() bool {
	return slices.ContainsFunc(r.Comparisons, func(c Comparison) bool { return c.Refused != "" })
}

// figure is nil where neither arm has an item.
func figure(m Metric, p Pairing, seed uint64) (*Figure, error) {
	base, arm := p.Base.Items[m], p.Arm.Items[m]
	if len(base) == 0 && len(arm) == 0 {
		return nil, nil
	}
	type key struct{ repeat, id int }
	sizes := make(map[key]units.Bytes, len(base))
	for _, b := range base {
		sizes[key{b.Repeat, b.ID}] = b.Size
	}
	for _, a := range arm {
		if size, ok := sizes[key{a.Repeat, a.ID}]; ok && size != a.Size {
			return nil, &MismatchError{Metric: m, Repeat: a.Repeat, ID: a.ID, Base: p.Base.Label(), Arm: p.Arm.Label(), BaseSize: size, ArmSize: a.Size}
		}
	}
	x := metrics.Pair(bare(base), bare(arm), seed)
	f := &Figure{Metric: m, Pairs: x.N, Clusters: x.Clusters, Unpaired: x.Unpaired}
	if x.N == 0 {
		for _, e := range []*Estimate{&f.MeanRatio, &f.MedianRatio, &f.GeoMean} {
			e.Outcome = TooFew
		}
		return f, nil
	}
	f.MeanRatio = estimate(x.MeanRatio, x.MeanRatioCI, x.Clusters)
	f.MedianRatio = estimate(x.Median, x.MedianCI, x.Clusters)
	f.GeoMean = estimate(x.GeoMean, x.GeoMeanCI, x.Clusters)
	return f, nil
}

func bare(items []Item) []metrics.Item {
	out := make([]metrics.Item, len(items))
	for i, x := range items {
		out[i] = x.Item
	}
	return out
}

func estimate(value float64, ci metrics.Interval, clusters int) Estimate {
	e := Estimate{Value: round6(value), CI: [2]float64{round6(ci.Low), round6(ci.High)}}
	switch {
	case clusters < metrics.LeastPairs:
		e.Outcome = TooFew
	case ci.Holds(1) || e.CI[0] <= 1 && 1 <= e.CI[1]:
		e.Outcome = NoneYet
	case ci.Low > 1:
		e.Outcome = Faster
	default:
		e.Outcome = Slower
	}
	return e
}

// round6 keeps figures that come from exp and log the same on every machine.
func round6(x float64) float64 { return math.Round(x*1e6) / 1e6 }
