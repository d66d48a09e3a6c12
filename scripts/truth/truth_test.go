package main

import (
	"os"
	"strings"
	"testing"
	"time"

	"testbed/emu/scenario"
	"testbed/policies/catalog"
	"testbed/results/metrics"
)

// Drawn scenarios are valid, the same for a seed, and different for another.
func TestDrawnScenariosAreValid(t *testing.T) {
	texts := map[string]bool{}
	for seed := range uint64(10) {
		var both [2]string
		for i := range both {
			file, err := draw(t.TempDir(), seed, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := scenario.Load(file, scenario.Options{Catalog: catalog.All()}); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			both[i] = string(text)
		}
		if both[0] != both[1] || texts[both[0]] {
			t.Errorf("seed %d: drawn again, or that of another seed: %q", seed, both[1])
		}
		texts[both[0]] = true
	}
}

// The differences of two runs are those of their equal items, the averages those of arms.
func TestDifferences(t *testing.T) {
	var base, arm []metrics.Item
	for i := range 20 {
		took := time.Duration(i+1) * time.Second
		base = append(base, metrics.Item{ID: i, Cluster: i, Time: took})
		if i%2 == 0 {
			took += took / 2
		}
		arm = append(arm, metrics.Item{ID: i, Cluster: i, Time: took})
	}
	var d differences
	d.add(base, base)
	if got, want := d.cells(), "1 | 1.000–1.000 | 1.00, 1.000, 1.00 | 100 % | 0"; got != want {
		t.Errorf("equal runs: %s, want %s", got, want)
	}
	d.add(base, append(arm, metrics.Item{ID: 99, Cluster: 99, Time: time.Second}))
	// (210 + 100/2) / 210 in the second arm; 30 of 40 items are equal.
	if got, want := d.cells(), "2 | 1.000–1.238 | 1.00, 1.000, 1.50 | 75 % | 1"; got != want {
		t.Errorf("an arm with longer times: %s, want %s", got, want)
	}
	var out strings.Builder
	if err := write(&out, []row{{scenario: "x", metric: "CCT", virtual: d}}); err != nil ||
		!strings.Contains(out.String(), "| x | CCT | 2 | 1.000–1.238") || !strings.Contains(out.String(), "| 0 | – |") {
		t.Errorf("%v: %s", err, &out)
	}
}
