package runner

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"testbed/emu/scenario"
	"testbed/policies/catalog"
	"testbed/results/rundir"
)

var large = flag.String("large", filepath.FromSlash("../../scripts/sinbad/large.yaml"), "scenario that BenchmarkLarge simulates")

// BenchmarkLarge simulates each arm of the cluster of Sinbad's evaluation, 3,000 hosts
// for an hour, and logs it. peak-MB is the most memory that the process has held.
func BenchmarkLarge(b *testing.B) {
	s, err := scenario.Load(*large, scenario.Options{Catalog: catalog.All()})
	if err != nil {
		b.Fatal(err)
	}
	r, err := newRun(s, Options{}, rundir.Fluid)
	if err != nil {
		b.Fatal(err)
	}
	w, err := r.drawn(0)
	if err != nil {
		b.Fatal(err)
	}
	for _, a := range r.arms {
		b.Run("arm="+a.Name, func(b *testing.B) {
			log := filepath.Join(b.TempDir(), "events.jsonl")
			b.ReportAllocs()
			for b.Loop() {
				rec, err := a.trial(0, *w).simulate(b.Context(), log, nil, nil, nil)
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(len(rec.Blocks)), "blocks")
				b.ReportMetric(float64(len(rec.Flows)), "flows")
				b.ReportMetric(lastEnd(rec).Hours(), "simulated-h")
			}
			info, err := os.Stat(log)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(info.Size())/1e6, "log-MB")
			b.ReportMetric(peakMemory(b), "peak-MB")
		})
	}
}

// peakMemory is the most memory that this process has held, in MB.
func peakMemory(b *testing.B) float64 {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		var kB float64
		if n, _ := fmt.Sscanf(line, "VmHWM: %f kB", &kB); n == 1 {
			return kB * 1024 / 1e6
		}
	}
	b.Fatal("/proc/self/status has no VmHWM")
	return 0
}
