package flows

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"testbed/results/pcap"
)

// A capture that a goroutine reads ahead has the same result, to its end or up to where it is cut off, plain and
// compressed.
func TestReadingAheadChangesNothing(t *testing.T) {
	const flows, packets = 50, 20_000 // of many buffers of the reader
	dir := t.TempDir()
	path := filepath.Join(dir, generatedHost+Suffix)
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	n := generated{flows: flows, packets: packets, snap: 96, t: t}.write(f)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	compare := func(name string, whole bool) {
		t.Helper()
		var results []Result
		for _, readers := range []int{1, 2} {
			var read []int64
			res, err := Reduce(t.Context(), dir, Options{Parallel: readers, Read: func(n int64) { read = append(read, n) }})
			if err != nil {
				t.Fatal(err)
			}
			if c := res.Captures[0]; c.Whole != whole || whole && c.Captured != n || c.Captured < n/2 {
				t.Errorf("%s, %d readers: %d of %d packets, whole %t", name, readers, c.Captured, n, c.Whole)
			}
			if len(read) == 0 || slices.Contains(read, 0) {
				t.Errorf("%s, %d readers: progress %v", name, readers, read)
			}
			results = append(results, res)
		}
		if !reflect.DeepEqual(results[0], results[1]) {
			t.Errorf("%s: reading ahead has another result", name)
		}
	}
	compare("plain", true)
	if _, err := pcap.CompressFile(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	compare("compressed", true)
	if err := os.Remove(filepath.Join(dir, generatedHost+pcap.CompressedSuffix)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b[:len(b)*3/4], 0o600); err != nil {
		t.Fatal(err)
	}
	compare("cut off", false)
}
