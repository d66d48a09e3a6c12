package summary

import (
	"fmt"

	"testbed/results/metrics"
)

// Decisions are the figures of the policies' coordinator: sums over the repeats of an arm.
type Decisions struct {
	Repeats       int           `json:"repeats"` // with a record
	Interval      float64       `json:"interval_us"`
	IntervalText  string        `json:"-" head:"interval"` // "" for none, as of the following
	IntervalsText string        `json:"-" head:"intervals"`
	Intervals     int           `json:"intervals"`
	Decisions     int           `json:"decisions" head:"decisions"`
	Flushes       int           `json:"flushes"`
	FlushesText   string        `json:"-" head:"flushes"`
	HostsTold     int           `json:"hosts_told" head:"hosts notified"`
	Updates       int           `json:"updates" head:"updates"`
	Missed        *int          `json:"missed,omitempty"` // on packets, as the following
	MissedText    string        `json:"-" head:"missed" only:"packets"`
	Took          *DecisionTime `json:"took,omitempty"`
}

// DecisionTime is the distribution of the time of decisions.
type DecisionTime struct {
	Mean float64 `json:"mean_us" head:"decision" only:"packets"`
	P99  float64 `json:"p99_us" head:"P99" only:"packets"`
	Max  float64 `json:"max_us" head:"max" only:"packets"`
}

// decisionsOf sums over an arm's repeats; nil if none has a record.
func decisionsOf(repeats []Repeat, packets bool) *Decisions {
	d := &Decisions{}
	var took []metrics.Item
	missed := 0
	for _, r := range repeats {
		c := r.Coordinator
		if c == nil {
			continue
		}
		d.Repeats++
		d.Interval = micros(c.Interval)
		d.Intervals += c.Intervals
		d.Decisions += c.Decisions
		d.Flushes += c.Flushes
		d.HostsTold += c.HostsTold
		d.Updates += c.Updates
		missed += c.Missed
		for _, t := range c.Took {
			took = append(took, metrics.Item{Time: t})
		}
	}
	if d.Repeats == 0 {
		return nil
	}
	part := func(n, of int) string {
		if of == 0 {
			return fmt.Sprint(n)
		}
		return fmt.Sprintf("%d (%.1f %%)", n, 100*float64(n)/float64(of))
	}
	d.FlushesText = part(d.Flushes, d.Decisions)
	if d.Interval > 0 {
		d.IntervalText, d.IntervalsText = Micros.Show(d.Interval), fmt.Sprint(d.Intervals)
	}
	if packets {
		d.Missed = &missed
		if d.Interval > 0 {
			d.MissedText = part(missed, d.Intervals)
		}
		if of := metrics.Summarize(took); of.N > 0 {
			d.Took = &DecisionTime{micros(of.Mean), micros(of.P99), micros(of.Max)}
		}
	}
	return d
}
