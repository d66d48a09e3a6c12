package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Simulators are compared only if they agree on every coflow.
func TestDifference(t *testing.T) {
	const table = "policy,coflow,cct_s\nfair,1,0.5\nfair,2,1.25\n"
	for _, tt := range []struct {
		name, table, lines string
		want               float64
		err                string
	}{
		{"equal", table, "2,1.250000000\n1,0.500000000\n", 0, ""},
		{"rounded", table, "1,0.500000000\n2,1.250000500\n", 5e-7, ""},
		{"other time", table, "1,0.500000000\n2,1.250002000\n", 0, "coflow 2: 1.25 s and 1.250002 s"},
		{"no number", table, "1,0.500000000\n2,nan\n", 0, "coflow 2"},
		{"missing", table, "1,0.500000000\n", 0, "1 coflows are missing"},
		{"nothing", table, "", 0, "2 coflows are missing"},
		{"unknown", table, "3,0.5\n", 0, `coflow "3"`},
		{"twice", table, "1,0.5\n1,0.5\n", 0, `coflow "1"`},
		{"other table", "policy,coflow\nfair,1\n", "1,0.5\n", 0, "no columns"},
		{"empty table", "", "1,0.5\n", 0, "no columns"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := difference(tt.table, tt.lines)
			if (err != nil) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Fatalf("difference() = %v, want error %q", err, tt.err)
			}
			if err == nil && (got < tt.want*0.999 || got > tt.want*1.001) {
				t.Errorf("difference() = %v, want %v", got, tt.want)
			}
		})
	}
}

// The flows of the comparison are those that the sizes of the trace state, in whole bytes.
func TestWriteTrace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.txt")
	flows, err := writeTrace(path)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	if len(lines) != 1+simCoflows {
		t.Fatalf("%d lines, want a header and %d coflows", len(lines), simCoflows)
	}
	counted := 0
	for _, line := range lines[1:] {
		fields := strings.Fields(line)
		receivers := strings.Count(line, ":")
		senders := len(fields) - receivers - 4 // number, arrival and two counts
		counted += senders * receivers
	}
	if flows != counted || flows < 5000 {
		t.Errorf("writeTrace() = %d flows, want the %d of the trace, 5,000 or more", flows, counted)
	}
}
