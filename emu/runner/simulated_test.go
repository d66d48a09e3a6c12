package runner

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"testbed/results/rundir"
	"testbed/results/samples"
)

const severalArms = `name: several
fabric: {leaves: 3, spines: 2, hosts_per_leaf: 6, host_link: 20Mbps, oversubscription: "3:1", queue: 20ms}
disk: {write: 2MB/s, size: 64MB}
workload:
  - {kind: jobs, count: 20, load: 0.3, block: 1MB, packet: 32KB, window: 3}
arms: {coflow: [fair, sebf, aalo], placement: [hdfs]}
repeat: 2
`

// Arms that are simulated in parallel have the same results as in sequence, and
// progress is reported from the first to the last.
func TestArmsAtOnce(t *testing.T) {
	s := loadText(t, severalArms)
	run := func(processors int) string {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
		var order []int
		out, err := Simulate(t.Context(), s, Options{Out: t.TempDir(), Version: "v1", Progress: func(p Progress) { order = append(order, 3*p.Repeat+p.Arm) }})
		if err != nil {
			t.Fatal(err)
		}
		if !slices.IsSorted(order) || len(slices.Compact(order)) != 6 {
			t.Errorf("progress of repeats and arms in the order %v, want each of two and three", slices.Compact(order))
		}
		return out.Dir
	}
	one, more := run(1), run(4)
	for _, name := range []string{"coflows.csv", "flows.csv", "blocks.csv", "balance.csv"} {
		a, err := os.ReadFile(filepath.Join(one, name))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(filepath.Join(more, name)); err != nil || !bytes.Equal(a, b) {
			t.Errorf("%s is another where arms are simulated at once (%v)", name, err)
		}
	}
}

// An interrupt leaves complete results: arms that ended before, and nothing of those that
// were simulated in parallel with the interrupted one.
func TestArmsAtOnceAreCut(t *testing.T) {
	s := loadText(t, strings.Replace(severalArms, "repeat: 2", "repeat: 20", 1))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	out := t.TempDir()
	_, err := Simulate(ctx, s, Options{Out: out, Version: "v1", Progress: func(p Progress) {
		if p.Repeat == 2 && p.Coflows.Done > 0 {
			cancel(why)
		}
	}})
	if !errors.Is(err, why) {
		t.Fatalf("error %v, want %v", err, why)
	}
	dirs, err := filepath.Glob(filepath.Join(out, "*-*"))
	if err != nil || len(dirs) != 1 {
		t.Fatalf("run directories %v, %v", dirs, err)
	}
	r, err := rundir.Open(dirs[0])
	if err != nil {
		t.Fatal(err)
	}
	p := r.Summary.Partial
	if p == nil || len(p.Ended)+len(p.Cut)+len(p.NotBegun) != 60 || len(p.Cut) != 1 || len(p.NotBegun) < 40 || len(p.Ended) < 3 {
		t.Fatalf("partial %+v, want the first repeat of three arms and one of the second cut", p)
	}
	for _, name := range p.NotBegun {
		if _, err := os.Stat(filepath.Join(dirs[0], name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s, which counts as not begun, is there (%v)", name, err)
		}
	}
}

// limits.samples bounds the samples of a trial on both backends.
func TestLimitOfSamples(t *testing.T) {
	slow := []string{"20Mbps", "200Kbps", "queue: 20ms", "queue: 64KB"} // for minutes
	rows := func(limits string) int64 {
		t.Helper()
		dir := simulate(t, comparable12+limits, "v1", slow...)
		in, err := samples.Open(filepath.Join(dir, "fair+hdfs", "0", samples.File))
		if err != nil {
			t.Fatal(err)
		}
		defer in.Close()
		return in.Rows()
	}
	if all, some := rows(""), rows("limits: {samples: 1000}\n"); all < 1500 || some < 250 || some > 1100 {
		t.Errorf("%d rows, and %d of at most about 1000", all, some)
	}
	for limits, want := range map[string]int64{"": 8 << 20, "limits: {samples: 1000}\n": 1000} {
		r, err := newRun(loadText(t, severalArms+limits), Options{}, rundir.Packets)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.arms[0].settings().SampleRows; got != want {
			t.Errorf("%d rows on packets, want %d", got, want)
		}
	}
}
