package workloads

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// facebookTrace reads the public Facebook trace of coflow/coflow-benchmark from the directory
// next to the project. It skips the test if the file does not exist.
func facebookTrace(t *testing.T) (*Trace, []byte) {
	t.Helper()
	path := filepath.Join("..", "..", "shared", "traces", "FB2010-1Hr-150-0.txt")
	data, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		t.Skipf("no %s: the trace is not part of the project; get it from github.com/coflow/coflow-benchmark", path)
	}
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	if got, want := hex.EncodeToString(sum[:]), "cdd0d94d26c6ab10ce3634cf6a0f836859578e914de6b6faa980a245237dbc6e"; got != want {
		t.Fatalf("%s: SHA-256 %s, want %s", path, got, want)
	}
	trace, err := ParseTrace(filepath.Base(path), bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return trace, data
}

// The counts and bins are those published for the trace (Varys, SIGCOMM 2014; Aalo, SIGCOMM
// 2015). The lower bounds are for 8 ms per MB, as on a port of CoflowSim.
func TestFacebookTrace(t *testing.T) {
	trace, data := facebookTrace(t)
	if trace.Ports != 150 || len(trace.Coflows) != 526 {
		t.Errorf("%d ports, %d coflows, want 150, 526", trace.Ports, len(trace.Coflows))
	}
	flows, size := 0, Megabytes(0)
	bins := map[Bin]int{}
	var bounds []time.Duration
	var sum time.Duration
	for _, c := range trace.Coflows {
		flows += c.Width()
		size += c.Size()
		bins[c.Bin()]++
		b := c.LowerBound(8 * time.Millisecond)
		bounds = append(bounds, b)
		sum += b
	}
	if flows != 706_397 || size != 35_533_534*megabyte {
		t.Errorf("%d flows, %v MB, want 706397, 35533534.0", flows, size)
	}
	for b, want := range map[Bin]int{ShortNarrow: 315, LongNarrow: 84, ShortWide: 63, LongWide: 64} {
		if bins[b] != want {
			t.Errorf("bin %v has %d coflows, want %d", b, bins[b], want)
		}
	}
	if mean, want := sum/526, 14_721_300*time.Microsecond; mean.Round(100*time.Microsecond) != want {
		t.Errorf("mean lower bound %v, want %v", mean, want)
	}
	slices.Sort(bounds)
	// Interpolated between the two nearest ranks, as in spreadsheets: 498.75, from 0.
	if p95, want := bounds[498]+(bounds[499]-bounds[498])*3/4, 35_524*time.Millisecond; p95 != want {
		t.Errorf("P95 lower bound %v, want %v", p95, want)
	}
	var out bytes.Buffer
	if err := WriteTrace(&out, trace); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(out.Bytes(), data) {
		t.Error("the trace, written again, is not the file it was read from")
	}
}
