// Package compare compares two arms of a run, or the same arm of several runs, by paired
// items, and computes ratios of their times with 95 % confidence intervals.
//
// Each ratio is the baseline's time divided by the arm's for the same coflow, flow or
// block of the same repeat: above 1 the arm is faster. Intervals are those of metrics.Pair.
// They resample clusters: an item with all its repeats, the flows of a coflow, the blocks
// of a writer. The same input gives the same figures, which equal those that
// results/report states for the arms of one run.
//
// If one arm transfers clearly more bytes between racks than the other, the comparison
// says so: placement alone does not explain the difference of their times.
//
// A void arm is not compared; the reason replaces its figures. The caller checks that two
// runs have the same workload. This package checks, by size, that items with the same
// number are the same item.
//
// It reads no files (results/rundir) and judges no run (results/verdict).
package compare

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"testbed/results/metrics"
	"testbed/results/verdict"
	"testbed/topo/units"
	"testbed/workloads/jobs"
)

// Metric is a kind of time that is compared.
type Metric string

// Metrics that are used by name. All have their key in a summary.
const (
	CCT         Metric = "cct"
	JobTime     Metric = "job_time"
	JobSlowdown Metric = "job_slowdown" // job time over the time of the job alone; as a time, 1 is a second
)

// Metrics lists all metrics except those by bin, those by size and JobSlowdown, in order.
func Metrics() (out []Metric) {
	for _, t := range metrics.Times() {
		out = append(out, Metric(t.Key))
	}
	return out
}

// time returns the kind of completion time of the metric.
func (m Metric) time() metrics.Time {
	if m == JobSlowdown {
		return metrics.Time{Title: "Job slowdown", Noun: "job"}
	}
	t, _ := metrics.TimeOf(string(m))
	return t
}

// jobBin is the prefix of the metrics of jobs by bin.
const jobBin = "job_time_by_bin."

// JobTimeIn returns the metric of the job times of one bin.
func JobTimeIn(bin int) Metric { return Metric(jobBin + strconv.Itoa(bin)) }

// bin returns the bin of a metric made by JobTimeIn.
func (m Metric) bin() (int, bool) { return m.number(jobBin) }

// jobSize is the prefix of the metrics of jobs of tasks by size.
const jobSize = "job_time_by_tasks."

// JobTimeOf returns the metric of the job times of the jobs of tasks in the class of a number of tasks (jobs.SizeClass).
func JobTimeOf(tasks int) Metric {
	least, _ := jobs.SizeBounds(jobs.SizeClass(tasks))
	return Metric(jobSize + strconv.Itoa(least))
}

// size returns the class of a metric made by JobTimeOf.
func (m Metric) size() (class int, ok bool) {
	n, ok := m.number(jobSize)
	return jobs.SizeClass(n), ok
}

func (m Metric) number(prefix string) (int, bool) {
	number, ok := strings.CutPrefix(string(m), prefix)
	n, err := strconv.Atoi(number)
	return n, ok && err == nil
}

// metricsOf returns Metrics, the metrics by bin for which an arm has items, those by size if an arm has items of two, and
// JobSlowdown, in order.
func metricsOf(pairs []Pairing) []Metric {
	var bins, sizes []int
	add := func(list *[]int, n int, ok bool) {
		if ok && !slices.Contains(*list, n) {
			*list = append(*list, n)
		}
	}
	for _, p := range pairs {
		for _, a := range []Arm{p.Base, p.Arm} {
			for m := range a.Items {
				b, ok := m.bin()
				add(&bins, b, ok)
				class, ok := m.size()
				add(&sizes, class, ok)
			}
		}
	}
	slices.Sort(bins)
	slices.Sort(sizes)
	out := Metrics()
	for _, b := range bins {
		out = append(out, JobTimeIn(b))
	}
	for _, class := range sizes {
		if least, _ := jobs.SizeBounds(class); len(sizes) > 1 {
			out = append(out, JobTimeOf(least))
		}
	}
	return append(out, JobSlowdown)
}

// Title returns the metric for headings.
func (m Metric) Title() string {
	if b, ok := m.bin(); ok {
		return fmt.Sprintf("Job time, bin %d", b)
	}
	if class, ok := m.size(); ok {
		return "Job time, " + jobs.SizeName(class)
	}
	return m.time().Heading()
}

// short returns the metric for sentences.
func (m Metric) short() string {
	if b, ok := m.bin(); ok {
		return fmt.Sprintf("job time of bin %d", b)
	}
	if class, ok := m.size(); ok {
		return "job time of " + jobs.SizeName(class)
	}
	return m.time().Short()
}

// noun returns the noun for an item of the metric.
func (m Metric) noun() string {
	if strings.HasPrefix(string(m), string(JobTime)) {
		m = JobTime
	}
	return m.time().Noun
}

// Item is the completion time of one coflow, flow or block.
type Item struct {
	metrics.Item
	Size          units.Bytes // payload
	workload, run int         // in a pool of runs
}

// Arm is one arm of one run.
type Arm struct {
	Run   string // label of the run, "" if there is one run
	Name  string
	Level verdict.Level // 0 for the fluid model, which has no verdict
	// Why lists the checks that did not pass, one per line.
	Why   []string
	Items map[Metric][]Item
	// CrossRack is the average traffic between racks per repeat; nil if it is unknown or
	// nothing was placed. Frames reports whether it counts frames instead of payload.
	CrossRack *metrics.CrossRack
	Frames    bool
	// Unmodelled are the keys in which alone the arm differs from the baseline of its run, if the fluid model knows
	// none.
	Unmodelled []string
}

// Label returns the arm's name, with its run if there are several.
func (a Arm) Label() string {
	if a.Run == "" {
		return a.Name
	}
	return a.Run + " " + a.Name
}

// verdict returns the arm's verdict as tables show it.
func (a Arm) verdict() string {
	if a.Level == 0 {
		return "fluid model"
	}
	return a.Level.String()
}

// Pairing is a pair of arms to compare.
type Pairing struct{ Base, Arm Arm }

// Outcome is the conclusion from an interval.
type Outcome string

// The outcomes. Faster and Slower describe the arm relative to the baseline; NoneYet is an
// interval that includes 1.
const (
	Faster  Outcome = "faster"
	Slower  Outcome = "slower"
	NoneYet Outcome = "not significant"
)

// TooFew is the outcome without an interval.
var TooFew = Outcome(metrics.FewPairs)

// Estimate is a ratio with its 95 % interval and the outcome.
type Estimate struct {
	metrics.Estimate
	Outcome Outcome `json:"outcome"`
}

// says returns the estimate in words, with the ratio above 1.
func (e Estimate) says() string {
	if e.Outcome == Faster || e.Outcome == Slower {
		return e.Estimate.Says()
	}
	return string(e.Outcome)
}

// Figure is the comparison of two arms in one metric.
type Figure struct {
	Metric   Metric `json:"metric"`
	Pairs    int    `json:"pairs"`
	Clusters int    `json:"clusters"` // of pairs, resampled together
	Unpaired int    `json:"unpaired"` // items that only one of the arms has
	Repeats  int    `json:"repeats"`  // of the pairs
	// MeanRatio is the ratio of the averages over the pairs; the others are statistics of
	// the ratios of the pairs.
	MeanRatio   Estimate `json:"mean_ratio"`
	MedianRatio Estimate `json:"median"`
	GeoMean     Estimate `json:"geo_mean"`
	// Variances are those of GeoMean.
	Variances metrics.Variances `json:"-"`
	missing   int               // unpaired items of repeats that both arms have; without those that depend on the arm
}

// Side identifies an arm in a comparison.
type Side struct {
	Run     string   `json:"run,omitempty"`
	Arm     string   `json:"arm"`
	Verdict string   `json:"verdict"` // "fluid model" without packets
	Why     []string `json:"why,omitempty"`
}

// Comparison is the result of a pairing.
type Comparison struct {
	Base Side `json:"base"`
	Arm  Side `json:"arm"`
	// Refused is the reason why there are no figures: an arm is void, or differs in what the fluid model does not know.
	Refused string `json:"refused,omitempty"`
	// NotLikeForLike lists reasons why the arms are not comparable like for like: one
	// transfers clearly more bytes between racks.
	NotLikeForLike []string `json:"not_like_for_like,omitempty"`
	Figures        []Figure `json:"figures"` // of the metrics for which an arm has items
	pairing        Pairing
}

// Run identifies a run in comparisons.
type Run struct {
	Label   string `json:"label,omitempty"`
	ID      string `json:"run_id"`
	Dir     string `json:"dir"`
	Backend string `json:"backend"` // "packets" or "fluid model"
	Tool    string `json:"tool,omitempty"`
	Kernel  string `json:"kernel,omitempty"`
}

// Input is the input of New.
type Input struct {
	Runs  []Run
	Notes []string // other differences between the runs
	Pairs []Pairing
	Seed  uint64 // of the intervals
	// Noise is the run-to-run noise of the machine, nil if it is unknown. It applies to
	// packets: two arms of the fluid model have none.
	Noise *metrics.Noise
	// Looks are those of the run that may make most looks; nil if the number of repeats of all runs was fixed.
	Looks *metrics.Looks
	// Varied are the keys in which the runs differ, and Gates the bounds that each comparison must keep.
	Varied []Varied
	Gates  []Gate
}

// noise returns the noise that applies to a pairing.
func (in Input) noise(p Pairing) *metrics.Noise {
	if p.Base.Level == 0 && p.Arm.Level == 0 {
		return nil
	}
	return in.Noise
}

// Result is a comparison that can be written in several formats.
type Result struct {
	Runs        []Run        `json:"runs"`
	Varied      []Varied     `json:"varied,omitempty"`
	Notes       []string     `json:"notes"`
	Comparisons []Comparison `json:"comparisons"`
	Gates       []GateResult `json:"gates,omitempty"`
	// Noise is the run-to-run noise by which intervals are widened, if it is known.
	Noise   *metrics.Noise `json:"noise,omitempty"`
	metrics []Metric
}

// MismatchError is the error of an item that differs between the arms.
type MismatchError struct {
	Metric     Metric
	Repeat, ID int
	Base, Arm  string // labels
	BaseSize   units.Bytes
	ArmSize    units.Bytes
}

func (e *MismatchError) Error() string {
	return fmt.Sprintf("%s %d of repeat %d has %v in %s and %v in %s: the workloads differ, comparison refused (run both with the same scenario, seed and traces)",
		e.Metric.noun(), e.ID, e.Repeat, e.BaseSize, e.Base, e.ArmSize, e.Arm)
}

// New compares pairs of arms. Its error is a *MismatchError, or an input without pairs.
func New(in Input) (*Result, error) {
	if len(in.Pairs) == 0 {
		return nil, fmt.Errorf("nothing to compare: expected two arms of a run, or an arm that two runs share")
	}
	r := &Result{Runs: in.Runs, Varied: in.Varied, Notes: append([]string{}, in.Notes...), Noise: in.Noise, metrics: metricsOf(in.Pairs)}
	for _, p := range in.Pairs {
		c := Comparison{Base: side(p.Base), Arm: side(p.Arm), Figures: []Figure{}, pairing: p}
		for _, a := range []Arm{p.Base, p.Arm} {
			if a.Level == verdict.Void && c.Refused == "" {
				c.Refused = fmt.Sprintf("%s is void: fidelity checks failed", a.Label())
			}
		}
		if keys := p.Arm.Unmodelled; len(keys) > 0 && c.Refused == "" && p.Arm.Run == p.Base.Run {
			c.Refused = fmt.Sprintf("the fluid model does not model %s: run both on packets", strings.Join(keys, " and "))
		}
		if b, a := p.Base, p.Arm; c.Refused == "" && a.CrossRack != nil && b.CrossRack != nil && a.Frames == b.Frames {
			c.NotLikeForLike = a.CrossRack.Unlike(*b.CrossRack, metrics.DefaultAlike)
		}
		if c.Refused == "" {
			for k, m := range r.metrics {
				f, err := figure(m, p, in.Seed+uint64(k), in.noise(p).Of(string(m)), in.Looks)
				if err != nil {
					return nil, err
				}
				if f != nil {
					c.Figures = append(c.Figures, *f)
				}
			}
		}
		r.Comparisons = append(r.Comparisons, c)
		for _, g := range in.Gates {
			r.Gates = append(r.Gates, g.on(&c))
		}
	}
	return r, nil
}

func side(a Arm) Side { return Side{Run: a.Run, Arm: a.Name, Verdict: a.verdict(), Why: a.Why} }

// Void reports whether an arm of the comparison is void.
func (r *Result) Void() bool {
	return slices.ContainsFunc(r.Comparisons, func(c Comparison) bool {
		return c.pairing.Base.Level == verdict.Void || c.pairing.Arm.Level == verdict.Void
	})
}

// figure returns the comparison of one metric, nil if neither arm has an item.
func figure(m Metric, p Pairing, seed uint64, noise *metrics.Deviations, looks *metrics.Looks) (*Figure, error) {
	base, arm := p.Base.Items[m], p.Arm.Items[m]
	if len(base) == 0 && len(arm) == 0 {
		return nil, nil
	}
	type key struct{ run, repeat, id int }
	sizes := make(map[key]units.Bytes, len(base))
	for _, b := range base {
		sizes[key{b.run, b.Repeat, b.ID}] = b.Size
	}
	for _, a := range arm {
		if size, ok := sizes[key{a.run, a.Repeat, a.ID}]; ok && size != a.Size {
			return nil, &MismatchError{Metric: m, Repeat: a.Repeat, ID: a.ID, Base: p.Base.Label(), Arm: p.Arm.Label(), BaseSize: size, ArmSize: a.Size}
		}
	}
	x := metrics.PairBlocks(blocks(base, arm), seed, noise, looks)
	f := &Figure{Metric: m, Pairs: x.N, Clusters: x.Clusters, Unpaired: x.Unpaired, Repeats: x.Repeats, Variances: x.Variances, missing: missing(base, arm)}
	if x.N == 0 {
		for _, e := range []*Estimate{&f.MeanRatio, &f.MedianRatio, &f.GeoMean} {
			e.Outcome = TooFew
		}
		return f, nil
	}
	f.MeanRatio = estimate(x.MeanRatio, x.MeanRatioCI)
	f.MedianRatio = estimate(x.Median, x.MedianCI)
	f.GeoMean = estimate(x.GeoMean, x.GeoMeanCI)
	return f, nil
}

// missing returns the number of items that only one arm has in a repeat of which both arms have items. Items
// without a size are not counted: which of them exist depends on the arm.
func missing(base, arm []Item) (n int) {
	type repeat struct{ run, repeat int }
	type item struct {
		repeat
		id int
	}
	has := [2]map[item]bool{{}, {}}
	both := [2]map[repeat]bool{{}, {}}
	for k, items := range [][]Item{base, arm} {
		for _, x := range items {
			of := repeat{x.run, x.Repeat}
			both[k][of] = true
			if x.Size > 0 {
				has[k][item{of, x.ID}] = true
			}
		}
	}
	for k := range has {
		for x := range has[k] {
			if !has[1-k][x] && both[1-k][x.repeat] {
				n++
			}
		}
	}
	return n
}

func estimate(value float64, ci metrics.Interval) Estimate {
	e := Estimate{Estimate: metrics.Estimate{Value: metrics.Round6(value), CI: ci.Round6()}}
	switch {
	case !ci.Known():
		e.Outcome = TooFew
	case ci.Holds(1) || e.CI.Holds(1):
		e.Outcome = NoneYet
	case ci.Low > 1:
		e.Outcome = Faster
	default:
		e.Outcome = Slower
	}
	return e
}
