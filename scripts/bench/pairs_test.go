package main

import (
	"os"
	"strings"
	"testing"

	"testbed/emu/fidelity"
)

// The share of the processors is read from the verdict as the verdict states it.
func TestShareOfARun(t *testing.T) {
	for _, c := range fidelity.Judge(fidelity.Samples{Machine: fidelity.Machine{Known: true, Own: 0.5, Softirq: 0.125}}, fidelity.Default()).Checks {
		if c.Name != "machine" {
			continue
		}
		if m := machine.FindStringSubmatch(c.Value); m == nil || m[1] != "50.0" || m[2] != "12.5" {
			t.Errorf("found %q in %q, want 50.0 and 12.5", m, c.Value)
		}
		return
	}
	t.Error("no check of the machine")
}

// Busy time is a part of all time, and includes what this test computes.
func TestJiffies(t *testing.T) {
	before, err := jiffies()
	if err != nil {
		t.Fatal(err)
	}
	for after := before; after[0] == before[0]; {
		if after, err = jiffies(); err != nil {
			t.Fatal(err)
		}
		if busy, all := after[0]-before[0], after[1]-before[1]; busy < 0 || busy > all {
			t.Fatalf("busy for %v of %v", busy, all)
		}
	}
	if b, err := os.ReadFile("testdata/pairs.c"); err != nil || !strings.Contains(string(b), "alarm(") {
		t.Errorf("programs in C have no bound: %v", err)
	}
}
