package fidelity

import (
	"testing"
	"time"

	"testbed/results/verdict"
)

func TestRoundTrip(t *testing.T) {
	const us, ms = time.Microsecond, time.Millisecond
	for _, tt := range []struct {
		name                   string
		planned, before, after time.Duration
		want                   verdict.Level
	}{
		{"as planned", 0, 40 * us, 60 * us, verdict.Pass},
		{"with delays of the plan", 8 * ms, 8100 * us, 8050 * us, verdict.Pass},
		{"a hidden delay of 1 ms from the beginning", 0, 1050 * us, 1060 * us, verdict.Degraded},
		{"a hidden delay of 1 ms that came later", 8 * ms, 8050 * us, 9050 * us, verdict.Degraded},
		{"a hidden delay of 10 ms", 0, 40 * us, 10050 * us, verdict.Void},
		{"no answer", 0, 40 * us, 0, verdict.Degraded},
	} {
		links := []string{"h0-02>leaf0", "leaf0>h0-00"} // of a path without a hidden delay
		like := RoundTrip{From: "h0-02", To: "h0-00", Links: links, Planned: tt.planned, Before: tt.planned + 30*us, After: tt.planned + 40*us}
		r := RoundTrip{From: "h0-00", To: "h0-01", Links: []string{"h0-00>leaf0", "leaf0>h0-01"}, Planned: tt.planned, Before: tt.before, After: tt.after}
		if got := roundTrip(Samples{RoundTrips: []RoundTrip{like, r}}, Default()); got.Level != tt.want || got.Level > verdict.Pass && got.Reason == "" {
			t.Errorf("%s: %v (%s), want %v", tt.name, got.Level, got.Reason, tt.want)
		}
		if got := roundTrip(Samples{RoundTrips: []RoundTrip{r}}, Default()); (got.Level > verdict.Pass) != (tt.want > verdict.Pass) {
			t.Errorf("%s, on all paths: %v (%s), want %v", tt.name, got.Level, got.Reason, tt.want)
		}
		if got := roundTrip(Samples{RoundTrips: []RoundTrip{r}, Exempt: map[string]string{"leaf0": "fault"}}, Default()); got.Level != verdict.Pass {
			t.Errorf("%s, exempt: %v", tt.name, got.Level)
		}
	}
}
