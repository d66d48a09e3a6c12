package disk

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"testbed/topo/units"
	"testbed/workloads"
)

// readAll reads a replica to its end.
func readAll(ctx context.Context, r *Reading) (content []byte, err error) {
	buf := Buffer()
	for {
		n, err := r.Next(ctx, buf)
		if errors.Is(err, io.EOF) {
			return content, nil
		}
		if err != nil {
			return content, err
		}
		content = append(content, buf[:n]...)
	}
}

// Reads return the written data for blocks of any size, and only for complete replicas.
func TestReadsWhatWasWritten(t *testing.T) {
	d := open(t, Options{})
	for id, size := range []int{1, page - 1, page, int(ReadChunk), int(ReadChunk) + 1, 3*int(ReadChunk) + 777} {
		r, err := d.Create(workloads.BlockID(id), units.Bytes(size))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := d.Read(workloads.BlockID(id)); !errors.Is(err, ErrNoReplica) {
			t.Errorf("Read of a replica that is being written = %v, want %v", err, ErrNoReplica)
		}
		content := make([]byte, size)
		for i := range content {
			content[i] = byte(i * 7 / 3)
		}
		if err := write(t.Context(), r, content, 1000); err != nil {
			t.Fatal(err)
		}
		read, err := NewVolumes(d).Read(workloads.BlockID(id))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := readAll(t.Context(), read); err != nil || !bytes.Equal(got, content) || read.Size() != units.Bytes(size) {
			t.Errorf("of %d bytes %d are read, equal %v: %v", size, len(got), bytes.Equal(got, content), err)
		}
		if err := read.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := NewVolumes(d).Read(99); !errors.Is(err, ErrNoReplica) {
		t.Errorf("Read of a block that is not here = %v, want %v", err, ErrNoReplica)
	}
	// A truncated file is not accepted as the block.
	if err := os.Truncate(d.Path(5), page); err != nil {
		t.Fatal(err)
	}
	read, err := d.Read(5)
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	if _, err := readAll(t.Context(), read); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("of a file cut short: %v, want %v", err, io.ErrUnexpectedEOF)
	}
}

// Two readers share the rate of reads, which is independent of the rate of writes, and a wait ends
// with its context.
func TestReadRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, Options{ReadRate: 8 * units.Mbps})
		const size = 500_000
		r, err := d.Create(1, size)
		if err != nil {
			t.Fatal(err)
		}
		if err := write(t.Context(), r, make([]byte, size), 50_000); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		done := make(chan error, 2)
		for range 2 {
			go func() {
				read, err := d.Read(1)
				if err == nil {
					_, err = readAll(t.Context(), read)
					err = errors.Join(err, read.Close())
				}
				done <- err
			}()
		}
		if err := errors.Join(<-done, <-done); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took < 990*time.Millisecond || took > 1010*time.Millisecond {
			t.Errorf("twice 500 KB at 1 MB/s took %v, want 1s", took)
		}
		if s := d.ReadStats(); s.Written != 2*size || s.Achieved() < 7900*units.Kbps || s.Achieved() > 8100*units.Kbps {
			t.Errorf("reads: %+v, achieved %v", s, s.Achieved())
		}
		if s := d.Stats(); s.Written != size {
			t.Errorf("reads count as writes: %+v", s)
		}
		read, err := d.Read(1)
		if err != nil {
			t.Fatal(err)
		}
		defer read.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		defer cancel()
		if _, err := readAll(ctx, read); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("cut short: %v, want %v", err, context.DeadlineExceeded)
		}
	})
}

// Reads of a cached replica are not limited, not counted, and read all of it.
func TestCachedRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, Options{ReadRate: 8 * units.Mbps})
		const size = 10*units.MB + 1
		for block, cached := range []bool{false, true} {
			if err := d.Store(workloads.BlockID(block), size, cached); err != nil {
				t.Fatal(err)
			}
		}
		read, err := NewVolumes(d).Read(1)
		if err != nil {
			t.Fatal(err)
		}
		defer read.Close()
		began := time.Now()
		if b, err := readAll(t.Context(), read); err != nil || len(b) != int(size) || time.Since(began) > 0 {
			t.Errorf("%d bytes at 1 MB/s in %v, %v: want %v at once", len(b), time.Since(began), err, size)
		}
		if s := d.ReadStats(); s != (Stats{}) {
			t.Errorf("reads of memory count as reads of the disk: %+v", s)
		}
		if err := os.Truncate(d.Path(1), 1000); err != nil {
			t.Fatal(err)
		}
		short, err := d.Read(1)
		if err != nil {
			t.Fatal(err)
		}
		defer short.Close()
		if _, err := readAll(t.Context(), short); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("of a file cut short: %v, want %v", err, io.ErrUnexpectedEOF)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := readAll(ctx, short); !errors.Is(err, context.Canceled) {
			t.Errorf("canceled: %v, want %v", err, context.Canceled)
		}
	})
}

func TestReadRateRefused(t *testing.T) {
	if _, err := Open(t.TempDir(), Options{Rate: units.Mbps, ReadRate: -1}); err == nil {
		t.Error("a negative rate of reads is taken")
	}
}
