package samples

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/topo/units"
)

func readAll(t *testing.T, path string) (Head, []Sample) {
	t.Helper()
	r, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var all []Sample
	for s, err := range r.All() {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	if int64(len(all)) != r.Rows() {
		t.Errorf("read %d rows of %d", len(all), r.Rows())
	}
	return r.Head, all
}

// What is read is what was added, in its order, over several row groups.
func TestFileHasWhatWasAdded(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	w := Create(path, 1<<40)
	var want []Sample
	objects := []string{"h0-00>leaf0", "leaf0>h0-00", Machine}
	for i := range 3*groupRows + 7 {
		s := Sample{time.Duration(i*1000) - time.Second, objects[i%3], Metrics()[i%len(Metrics())].Name, int64(i*i) - 5}
		want = append(want, s)
		w.Add(s)
	}
	head := Head{Zero: time.Unix(1, 2).UTC(), Sample: 200 * time.Millisecond, Interval: 8 * time.Millisecond, Thinned: 1, Frame: 1514,
		Links: []Link{{Name: "h0-00>leaf0", Rate: units.Gbps, Queue: 5, DropTail: true}}}
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("before Close: %v, want no file", err)
	}
	if err := w.Close(head); err != nil {
		t.Fatal(err)
	}
	w.Add(Sample{}) // after the end
	if err := errors.Join(w.Close(Head{}), w.Discard()); err != nil {
		t.Error(err)
	}
	got, all := readAll(t, path)
	if d := cmp.Diff(head, got); d != "" {
		t.Error(d)
	}
	if !slices.Equal(all, want) {
		t.Errorf("read %d samples that differ from the %d that were added", len(all), len(want))
	}
}

// A trial that does not end leaves no file.
func TestDiscardLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	w := Create(filepath.Join(dir, File), 100)
	for range 2 * batchRows {
		w.Add(Sample{Object: Machine, Metric: Lateness})
	}
	if err := w.Discard(); err != nil {
		t.Fatal(err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) > 0 {
		t.Errorf("%v, %v: want none", files, err)
	}
}

// A file that cannot be written is an error at the end, and blocks nothing before.
func TestUnwritableFile(t *testing.T) {
	w := Create(filepath.Join(t.TempDir(), "none", File), 100)
	for range 10 * batchRows {
		w.Add(Sample{Object: Machine, Metric: Lateness})
	}
	if err := w.Close(Head{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v, want that there is no such directory", err)
	}
}

func TestDamagedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), File)
	if err := os.WriteFile(path, []byte("PAR1 and nothing else PAR1"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v, want an error", err)
	}
}

// A trial of any length stays within its rows if its samples become as rare as Every says.
func TestRowsAreBounded(t *testing.T) {
	const most, look = 100_000, 100
	w := Create(filepath.Join(t.TempDir(), File), most)
	all := slices.Repeat([]Sample{{Object: Links, Metric: Look}}, look)
	var last int64
	for i := range int64(1_000_000) {
		every := w.Every()
		if every < last {
			t.Fatalf("%d after %d", every, last)
		}
		if last = every; i%every == 0 {
			w.Add(all...)
		}
	}
	if err := w.Close(Head{}); err != nil {
		t.Fatal(err)
	}
	if w.rows > most+look || w.rows < most*9/10 {
		t.Errorf("%d rows, want %d at most, and nearly as many", w.rows, most)
	}
}

func BenchmarkAdd(b *testing.B) {
	w := Create(filepath.Join(b.TempDir(), File), 1<<40)
	b.ReportAllocs()
	objects := []string{"h0-00>leaf0", "leaf0>h0-00", "leaf0>spine0", "spine0>leaf0"}
	i := int64(0)
	for b.Loop() {
		at := time.Duration(i) * 123 * time.Microsecond
		o := objects[i%4]
		w.Add(Sample{at, o, SentBytes, i * 1514}, Sample{at, o, QueuePackets, i % 30}, Sample{at, o, QueueBytes, 1514 * (i % 30)})
		i++
	}
	if err := w.Close(Head{}); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(3, "rows/op")
}
