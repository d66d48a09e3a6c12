package tracker

import (
	"errors"
	"fmt"
	"time"
)

// Settings are the rules and limits of the tracker. DefaultSettings returns their defaults.
type Settings struct {
	// OutOfBand fills a host's slots as soon as a task on it ends, as in Facebook's Hadoop.
	// Otherwise they wait for the next heartbeat.
	OutOfBand bool
	// Slowstart is the share of the tasks of each earlier stage, in [0, 1], that must be done
	// before tasks that fetch from it start (mapred.reduce.slowstart.completed.maps).
	Slowstart float64
	// Barrier delays all fetches until the tasks of the earlier stages are done, as papers on
	// coflows assume. Otherwise outputs are fetched as they become available.
	Barrier bool
	// Fetches is the maximum number of fetches of an attempt at the same time, each from another
	// host (mapred.reduce.parallel.copies).
	Fetches int
	// Batch is the maximum number of outputs of one host in a fetch; 0 for no limit. Stock Hadoop
	// fetches 1, Facebook's up to 10.
	Batch int
	// An attempt does not fetch from a host for Penalty × Growth^n after n fetches in a row from
	// it have failed, but not longer than MaxPenalty. The rule is Hadoop's, the defaults are ours.
	Penalty, MaxPenalty time.Duration
	Growth              float64
	// FetchFailures is the number of failed fetches of an output, by all attempts, after which its
	// attempt counts as failed and its task runs again. The rule is Hadoop's, the default is ours.
	FetchFailures int
	// Attempts is the number of failures of a task at which its job fails
	// (mapred.map.max.attempts). Stopped and lost attempts do not count.
	Attempts int
	// Evict is the rule where outputs for later stages exceed Config.Space.
	Evict Evict
}

// DefaultSettings returns the default settings.
func DefaultSettings() Settings {
	return Settings{
		Slowstart: 0.05, Fetches: 5, Batch: 10, Penalty: 10 * time.Second, MaxPenalty: 10 * time.Minute, Growth: 1.3,
		FetchFailures: 3, Attempts: 4,
	}
}

// check returns all errors of the settings.
func (s Settings) check() error {
	var errs []error
	bad := func(is bool, format string, args ...any) {
		if is {
			errs = append(errs, fmt.Errorf("tracker: "+format, args...))
		}
	}
	bad(!(s.Slowstart >= 0 && s.Slowstart <= 1), "slowstart %v: must be in [0, 1]", s.Slowstart)
	bad(s.Fetches < 1, "%d parallel fetches: must be positive", s.Fetches)
	bad(s.Batch < 0, "batch of %d outputs: must be 0 or more", s.Batch)
	bad(s.Penalty <= 0 || s.MaxPenalty < s.Penalty, "penalty %v, at most %v: must be positive and not above its maximum", s.Penalty, s.MaxPenalty)
	bad(!(s.Growth >= 1), "growth %v of penalties: must be 1 or more", s.Growth)
	bad(s.FetchFailures < 1, "%d failures of a fetch: must be positive", s.FetchFailures)
	bad(s.Evict > EvictLeast, "eviction rule %d: unknown", s.Evict)
	bad(s.Attempts < 1, "%d attempts: must be positive", s.Attempts)
	return errors.Join(errs...)
}
