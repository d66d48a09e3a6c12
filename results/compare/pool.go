package compare

import (
	"fmt"
	"strings"

	"testbed/results/metrics"
)

// Varied is a key in which the runs differ.
type Varied struct {
	Key    string        `json:"key"`
	Values []VariedValue `json:"values"` // in the order of runs
}

// VariedValue is a value of a key in one run.
type VariedValue struct {
	Run   string `json:"run"` // its label
	Value string `json:"value"`
}

// String returns the values, each with the runs that have it: "seed: 1 in A and B, 2 in C".
func (v Varied) String() string {
	var values []string
	runs := map[string][]string{}
	for _, x := range v.Values {
		if runs[x.Value] == nil {
			values = append(values, x.Value)
		}
		runs[x.Value] = append(runs[x.Value], x.Run)
	}
	for i, x := range values {
		values[i] = fmt.Sprintf("%s in %s", x, strings.Join(runs[x], " "))
	}
	return v.Key + ": " + strings.Join(values, ", ")
}

// poolSign separates the labels of runs that are pooled.
const poolSign = "+"

// Pooled is an arm of one of the runs that Pool joins.
type Pooled struct {
	Arm
	Workload int // number of the run's workload: runs of equal workloads have the same items
}

// Pool joins an arm of several runs.
func Pool(arms []Pooled) Arm {
	out := Arm{Name: arms[0].Name, Items: map[Metric][]Item{}, CrossRack: &metrics.CrossRack{}, Frames: arms[0].Frames}
	n := float64(len(arms))
	labels := make([]string, len(arms))
	for i, a := range arms {
		labels[i] = a.Run
		out.Level = max(out.Level, a.Level)
		for _, why := range a.Why {
			out.Why = append(out.Why, strings.TrimSpace(a.Run+" "+why))
		}
		for m, items := range a.Items {
			for _, x := range items {
				x.workload, x.run = a.Workload, i
				out.Items[m] = append(out.Items[m], x)
			}
		}
		if out.CrossRack != nil && a.CrossRack != nil {
			out.CrossRack.All += a.CrossRack.All / n
			out.CrossRack.Writes += a.CrossRack.Writes / n
		} else {
			out.CrossRack = nil
		}
	}
	out.Run = strings.Join(labels, poolSign)
	return out
}

// blocks returns the items of two arms by workload. Repeats of different runs get different numbers.
func blocks(base, arm []Item) []metrics.Block {
	repeats := 0
	for _, items := range [][]Item{base, arm} {
		for _, x := range items {
			repeats = max(repeats, x.Repeat+1)
		}
	}
	var out []metrics.Block
	add := func(items []Item, side func(*metrics.Block) *[]metrics.Item) {
		for _, x := range items {
			for len(out) <= x.workload {
				out = append(out, metrics.Block{})
			}
			x.Repeat += x.run * repeats
			to := side(&out[x.workload])
			*to = append(*to, x.Item)
		}
	}
	add(base, func(b *metrics.Block) *[]metrics.Item { return &b.Base })
	add(arm, func(b *metrics.Block) *[]metrics.Item { return &b.Arm })
	return out
}
