package fidelity

import (
	"testing"

	"testbed/results/verdict"
)

func TestQueue(t *testing.T) {
	for _, tt := range []struct {
		name string
		q    Queue
		want verdict.Level
	}{
		{"full", Queue{Longest: 125000}, verdict.Pass},
		{"never used", Queue{}, verdict.Pass},
		{"drops when full", Queue{Longest: 125000, Drops: 3, AtMost: 126000}, verdict.Pass},
		{"twice as long", Queue{Longest: 250000}, verdict.Void},
		{"a fifth longer", Queue{Longest: 150000}, verdict.Degraded},
		{"half", Queue{Longest: 62000, Drops: 3, AtMost: 112000}, verdict.Degraded},
		{"a quarter", Queue{Longest: 31000, Drops: 3, AtMost: 61000}, verdict.Void},
		{"drops long before a sample", Queue{Longest: 31000, Drops: 1, AtMost: 1250000}, verdict.Pass},
	} {
		tt.q.Link, tt.q.Limit, tt.q.Frame = "leaf0>h0-01", 125000, 1514
		if got := queue(Samples{Sampled: Sampled{Queues: []Queue{tt.q}}}, Default()); got.Level != tt.want || got.Level > verdict.Pass && got.Reason == "" {
			t.Errorf("%s: %v (%s), want %v", tt.name, got.Level, got.Reason, tt.want)
		}
		if got := queue(Samples{Sampled: Sampled{Queues: []Queue{tt.q}}, Exempt: map[string]string{"leaf0": "fault"}}, Default()); got.Level != verdict.Pass {
			t.Errorf("%s, exempt: %v", tt.name, got.Level)
		}
	}
}
