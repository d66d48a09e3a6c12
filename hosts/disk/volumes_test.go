package disk

import (
	"bytes"
	"errors"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"testbed/topo/units"
	"testbed/workloads"
)

// Blocks are assigned in round-robin order, skipping full disks, until all disks are full; a block
// is on one disk only. A wiped disk accepts blocks again.
func TestVolumes(t *testing.T) {
	disks := []*Disk{open(t, Options{Capacity: 10_000}), open(t, Options{Capacity: 25_000}), open(t, Options{Capacity: 10_000})}
	v := NewVolumes(disks...)
	on := func(block int) (at []int) {
		for i, d := range disks {
			if d.hasReplica(workloads.BlockID(block)) {
				at = append(at, i)
			}
		}
		return at
	}
	for block, want := range []int{0, 1, 2, 1} { // at the last one, disk 0 is full
		r, err := v.Create(workloads.BlockID(block), 10_000)
		if err != nil {
			t.Fatal(err)
		}
		if at := on(block); len(at) != 1 || at[0] != want {
			t.Errorf("block %d is on the disks %v, want %d", block, at, want)
		}
		if err := write(t.Context(), r, make([]byte, 10_000), 1000); err != nil {
			t.Fatal(err)
		}
	}
	var full *FullError
	if _, err := v.Create(9, 10_000); !errors.As(err, &full) || full.Block != 9 {
		t.Errorf("Create on full disks = %v, want a FullError of block 9", err)
	}
	if v.Used() != 40_000 {
		t.Errorf("used %v, want 40KB", v.Used())
	}
	if _, err := v.Create(1, 1000); !errors.Is(err, os.ErrExist) {
		t.Errorf("Create of a block that another disk has = %v, want %v", err, os.ErrExist)
	}
	if err := v.Wipe(); err != nil {
		t.Fatal(err)
	}
	if _, err := v.Create(9, 10_000); err != nil || v.Used() != 10_000 {
		t.Errorf("Create on wiped disks = %v, used %v", err, v.Used())
	}
}

// Two disks write two blocks in the time of one, each at its own rate.
func TestVolumesWriteAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := open(t, Options{Rate: 8 * units.Mbps}), open(t, Options{Rate: 8 * units.Mbps})
		v := NewVolumes(a, b)
		start := time.Now()
		done := make(chan error, 2)
		for block := range 2 {
			r, err := v.Create(workloads.BlockID(block), 1_000_000)
			if err != nil {
				t.Fatal(err)
			}
			go func() { done <- write(t.Context(), r, make([]byte, 1_000_000), 10_000) }()
		}
		for range 2 {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if took := time.Since(start); (took - time.Second).Abs() > 20*time.Millisecond {
			t.Errorf("took %v, want 1s", took)
		}
		if a.Stats().Written != 1_000_000 || b.Stats().Written != 1_000_000 {
			t.Errorf("written %v and %v, want 1MB each", a.Stats().Written, b.Stats().Written)
		}
	})
}

// A disk with an external throttle does not wait itself, and its statistics show the accuracy of
// that throttle.
func TestLedDisk(t *testing.T) {
	for _, tt := range []struct {
		name  string
		each  time.Duration // for 10 kB; 10 ms at the configured rate
		first int           // number of packets that take no time
		want  float64       // achieved / configured
	}{
		{"keeps to the rate", 10 * time.Millisecond, 0, 1},
		{"a slice ahead", 10 * time.Millisecond, 10, 1},
		{"two slices ahead", 10 * time.Millisecond, 20, 1000. / 900},
		{"half as fast", 20 * time.Millisecond, 0, 0.5},
		{"a fifth too fast", 8 * time.Millisecond, 0, 1000. / 900},
		{"not throttled", 0, 0, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := open(t, Options{Rate: 8 * units.Mbps, Throttle: func(units.Rate) error { return nil }, Ahead: 100 * time.Millisecond})
				n := 0
				d.create = func(path string) (file, error) {
					f, err := os.Create(path)
					return timedFile{f, func() time.Duration {
						if n++; n <= tt.first {
							return 0
						}
						return tt.each
					}}, err
				}
				r := create(t, d, 1, 1_000_000)
				start := time.Now()
				if err := write(t.Context(), r, make([]byte, 1_000_000), 10_000); err != nil {
					t.Fatal(err)
				}
				if took, want := time.Since(start), time.Duration(100-tt.first)*tt.each; took != want {
					t.Errorf("took %v, want %v", took, want)
				}
				s := d.Stats()
				if got := float64(s.Achieved()) / float64(8*units.Mbps); got < 0.999*tt.want || got > 1.001*tt.want {
					t.Errorf("achieved %.3f of the rate, want %.3f: %+v", got, tt.want, s)
				}
			})
		})
	}
	// Only the padding of the last page is written beyond the block, for packets of any size, and
	// the file then equals the block.
	for _, packet := range []int{1, 1000, 4096, 10_000, 32_000} {
		d := open(t, Options{Throttle: func(units.Rate) error { return nil }})
		var wrote int
		make := d.create
		d.create = func(path string) (file, error) {
			f, err := make(path)
			return countedFile{f, &wrote}, err
		}
		content := bytes.Repeat([]byte("0123456789abcdef."), 3000) // 51 kB
		if err := write(t.Context(), create(t, d, 1, units.Bytes(len(content))), content, packet); err != nil {
			t.Fatal(err)
		}
		if want := (len(content) + page - 1) / page * page; wrote != want {
			t.Errorf("in packets of %d: %d bytes were written for %d, want %d", packet, wrote, len(content), want)
		}
		if got, err := os.ReadFile(d.Path(1)); err != nil || !bytes.Equal(got, content) {
			t.Errorf("in packets of %d: the file has other bytes than were written, %v", packet, err)
		}
	}
	refused := errors.New("refused")
	var rates []units.Rate
	throttle := func(rate units.Rate) error {
		if rates = append(rates, rate); rate > units.Mbps {
			return refused
		}
		return nil
	}
	d := open(t, Options{Rate: units.Mbps, Throttle: throttle})
	if !slices.Equal(rates, []units.Rate{units.Mbps}) {
		t.Errorf("Open set the rates %v, want 1Mbps", rates)
	}
	if _, err := Open(t.TempDir(), Options{Rate: 2 * units.Mbps, Throttle: throttle}); !errors.Is(err, refused) {
		t.Errorf("Open = %v, want %v", err, refused)
	}
	if err := d.SetRate(2 * units.Mbps); !errors.Is(err, refused) || d.throttle.rate != units.Mbps {
		t.Errorf("SetRate = %v, rate %v; want %v and no change", err, d.throttle.rate, refused)
	}
}

// countedFile counts the bytes written.
type countedFile struct {
	file
	wrote *int
}

func (f countedFile) WriteAt(p []byte, off int64) (int, error) {
	*f.wrote += len(p)
	return f.file.WriteAt(p, off)
}

// timedFile is a file whose writes take time.
type timedFile struct {
	*os.File
	takes func() time.Duration
}

func (f timedFile) WriteAt(p []byte, off int64) (int, error) {
	time.Sleep(f.takes())
	return f.File.WriteAt(p, off)
}

// Asynchronous writes return the errors of the file.
func TestAsyncErrors(t *testing.T) {
	d := open(t, Options{Throttle: func(units.Rate) error { return nil }})
	fd, err := unix.MemfdCreate("sealed", unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := asyncFile{os.NewFile(uintptr(fd), "sealed"), d.async}
	if n, err := f.WriteAt(make([]byte, page), 0); n != page || err != nil {
		t.Errorf("WriteAt = %d, %v", n, err)
	}
	if _, err := unix.FcntlInt(f.Fd(), unix.F_ADD_SEALS, unix.F_SEAL_WRITE); err != nil {
		t.Fatal(err)
	}
	if n, err := f.WriteAt(make([]byte, page), 0); n != 0 || !errors.Is(err, unix.EPERM) {
		t.Errorf("WriteAt of a sealed file = %d, %v", n, err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if n, err := f.WriteAt(make([]byte, page), 0); n != 0 || !errors.Is(err, unix.EBADF) {
		t.Errorf("WriteAt of a closed file = %d, %v", n, err)
	}
}
