package metrics

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"sort"
	"strings"

	"gonum.org/v1/gonum/stat/distuv"

	"testbed/topo/words"
)

// Looks are the moments at which a run looks at its intervals, and the outcome. The repeats stop at the first look at
// which all intervals are narrow enough. A nil *Looks stands for a fixed number of repeats.
//
// Each interval then leaves out 5 %/n instead of 5 %, with n the number of looks that the run may make. All of them
// together include the true ratios with 95 % or more, with any distances and any dependence of the looks (repeated
// confidence intervals: Jennison and Turnbull, Journal of the Royal Statistical Society B 51, 1989; by Bonferroni's
// inequality: Dunn, Journal of the American Statistical Association 56, 1961).
type Looks struct {
	At      []int `json:"at"`      // numbers of repeats, ascending
	Repeats int   `json:"repeats"` // before the next look, or made if there is none
	// Until is the largest half-width of the intervals, in percent of the ratio, by the key of a completion time.
	Until map[string]float64 `json:"until_percent"`
	Made  int                `json:"made"`
	// Confidence of each interval, in percent.
	Confidence float64 `json:"confidence_percent"`
	Why        string  `json:"why,omitempty"` // the reason why the repeats stopped; "" if they did not
}

// NewLooks returns looks of which none is made.
func NewLooks(at []int, until map[string]float64) *Looks {
	l := &Looks{At: at, Until: until, Repeats: at[0]}
	l.Confidence = Round6(100 * (1 - 2*l.tail()))
	return l
}

func (l *Looks) tail() float64 {
	if l == nil {
		return tail
	}
	return tail / float64(max(1, len(l.At)))
}

// Widest returns the looks of which intervals are wider.
func (l *Looks) Widest(m *Looks) *Looks {
	if m.tail() < l.tail() {
		return m
	}
	return l
}

// Resume forgets the look at a number of repeats and later ones.
func (l *Looks) Resume(repeats int) {
	l.Made, l.Why = 0, ""
	for l.Made < len(l.At)-1 && l.At[l.Made] < repeats {
		l.Made++
	}
	l.Repeats = l.At[l.Made]
}

// Seen is the comparison of an arm with the baseline at a look.
type Seen struct {
	Arm, Key string
	Paired
}

// halfWidth returns half of the width of the wider interval of the ratio of averages and the geometric mean, in
// percent of the ratio; +Inf without an interval.
func (p Paired) halfWidth() float64 {
	if !p.MeanRatioCI.Known() {
		return math.Inf(1)
	}
	half := func(x float64, i Interval) float64 { return 100 * (i.High - i.Low) / 2 / x }
	return max(half(p.MeanRatio, p.MeanRatioCI), half(p.GeoMean, p.GeoMeanCI))
}

// Look makes a look at comparisons after l.Repeats repeats, and reports whether more repeats are needed. Void arms
// and times that no arm has are without a comparison, and do not keep the repeats going.
func (l *Looks) Look(all []Seen) bool {
	l.Made++
	var widest Seen
	excess := -1.0
	for _, x := range all {
		if e := x.halfWidth() / l.Until[x.Key]; e > excess {
			widest, excess = x, e
		}
	}
	width := fmt.Sprintf("±%.1f %%", widest.halfWidth())
	if !widest.MeanRatioCI.Known() {
		width = FewPairs
	}
	of := fmt.Sprintf("the widest interval is that of %s of %s: %s, for a bound of ±%g %%", widest.Key, widest.Arm,
		width, l.Until[widest.Key])
	switch {
	case len(all) == 0:
		l.Why = "no arm can be compared with the baseline"
	case excess <= 1:
		l.Why = "all intervals are narrow enough; " + of
	case l.Made == len(l.At):
		l.Why = "it was the last look; " + of
	}
	if l.Why != "" {
		for _, key := range slices.Sorted(maps.Keys(l.Until)) {
			if !slices.ContainsFunc(all, func(x Seen) bool { return x.Key == key }) {
				l.Why += "; no interval of " + key
			}
		}
		return false
	}
	l.Repeats = l.At[l.Made]
	return true
}

// String states the outcome of the looks.
func (l *Looks) String() string {
	var at []string
	for _, n := range l.At {
		at = append(at, fmt.Sprint(n))
	}
	text := fmt.Sprintf("Repeats: looks at %s repeats, %d made", strings.Join(at, ", "), l.Made)
	if l.Why != "" {
		text = fmt.Sprintf("Repeats: they stopped after %d, at look %d of %d (at %s): %s", l.Repeats, l.Made, len(l.At),
			strings.Join(at, ", "), l.Why)
	}
	return text + fmt.Sprintf(". Each interval has a confidence of %.2f %%, so that those of all %s have 95 %% together.",
		l.Confidence, words.Plural(len(l.At), "look", "looks"))
}

// Variances are the parts of the variance of the logarithm of a geometric mean.
type Variances struct {
	Clusters int
	// Items is the part of the clusters' own ratios, which repeats do not reduce.
	Items float64
	// Within is the part that clusters have in one repeat, and Runs the difference between repeats, for one repeat.
	// It includes Within and has Freedom degrees of freedom. With Freedom 0 both are unknown.
	Within, Runs float64
	Freedom      int
}

// parts returns the variances of a statistic with a standard error over clusters.
func (s *sample) parts(x statistic, deviation float64) Variances {
	runs, within := s.variances(x)
	items := max(0, float64(deviation*deviation)-within/float64(s.repeats))
	return Variances{len(s.clusters), items, within, runs, s.repeats - 1}
}

// power is the probability with which an effect is shown at a planned number of repeats.
const power = 0.8

// RepeatsFor is Variances.RepeatsFor of the geometric mean for items like those of the calibration, which are of
// identical runs; 0 if the time with the key was not calibrated.
func (n *Noise) RepeatsFor(key string, effect float64, looks *Looks, most int) int {
	between := n.Of(key)
	if between == nil {
		return 0
	}
	runs := n.Total[key].GeoMean * n.Total[key].GeoMean
	v := Variances{
		Clusters: LeastPairs,
		Within:   max(0, runs-between.GeoMean*between.GeoMean),
		Runs:     runs,
		Freedom:  n.Pairs,
	}
	return v.RepeatsFor(effect, between, looks, most)
}

// RepeatsFor returns the least number of repeats, up to most, at which the interval excludes 1 with a probability of
// 80 % if the true ratio is effect or its inverse; 0 if there is none, or with fewer than two repeats. The difference
// between repeats is taken at its upper 80 % limit, as it may have been measured in few repeats (Browne, Statistics
// in Medicine 14, 1995). Noise is as in Pair.
func (v Variances) RepeatsFor(effect float64, noise *Deviations, looks *Looks, most int) int {
	var between *float64
	if noise != nil {
		between = &noise.GeoMean
	}
	if v.Freedom < 1 {
		return 0
	}
	freedom := float64(v.Freedom)
	runs := max(v.Within, v.Runs*freedom/distuv.ChiSquared{K: freedom}.Quantile(1-power))
	shows := func(n int) bool {
		of := float64(n)
		half := student(float64(v.Clusters-1), looks.tail()) * math.Sqrt(v.Items+v.Within/of)
		half = Interval{-half, half}.widen(0, runs-v.Within, n, between, looks.tail()).High
		return math.Log(effect) >= half+student(of-1, 1-power)*math.Sqrt(v.Items+runs/of)
	}
	const least = 2
	n := least + sort.Search(most-least+1, func(i int) bool { return shows(least + i) })
	if n > most {
		return 0
	}
	return n
}
