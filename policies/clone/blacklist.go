package clone

import "time"

// Blacklist skips hosts on which tasks straggle, for one window of time (Dolly, section 2.3, which shows how little that
// gains if stragglers are not bound to hosts).
type Blacklist struct {
	// Above is p_b, the predicted probability of a straggler above which a host is skipped; 0 is off. The paper has no value.
	Above float64
	// Window is the length of a window. The paper has 5 minutes and 1 hour.
	Window time.Duration
}

// DefaultBlacklist returns the paper's shorter window, and our value for p_b.
func DefaultBlacklist() Blacklist { return Blacklist{Above: 0.3, Window: 5 * time.Minute} }

// Predict returns the probability that an attempt on a host straggles in the next window, by the share of stragglers in
// the last window and in all windows.
func Predict(last, all float64) float64 { return last/2 + all/2 }

// Skips reports whether a host is skipped in the next window, by the attempts that were judged on it in the last window and in
// all windows, and those of them that straggled. A host without judged attempts in the last window, such as one that was
// skipped, is not.
func (b Blacklist) Skips(lastStraggled, lastJudged, straggled, judged int) bool {
	return b.Above > 0 && lastJudged > 0 && judged > 0 &&
		Predict(float64(lastStraggled)/float64(lastJudged), float64(straggled)/float64(judged)) > b.Above
}
