package main

import (
	"os"
	"strings"
	"testing"
)

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
