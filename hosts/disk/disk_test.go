package disk

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"testbed/emu/kernel/netnstest"
	"testbed/emu/longtest"
	"testbed/topo/units"
	"testbed/workloads"
)

func open(t *testing.T, o Options) *Disk {
	t.Helper()
	if o.Host == "" {
		o.Host = "h0-01"
	}
	if o.Rate == 0 {
		o.Rate = units.MaxRate
	}
	d, err := Open(filepath.Join(t.TempDir(), "disk"), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func create(t *testing.T, d *Disk, block workloads.BlockID, size units.Bytes) *Replica {
	t.Helper()
	r, err := d.Create(block, size)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// write writes a whole block in packets of the given size.
func write(ctx context.Context, r *Replica, content []byte, packet int) error {
	for len(content) > 0 {
		n := min(packet, len(content))
		if err := r.Write(ctx, content[:n]); err != nil {
			return err
		}
		content = content[n:]
	}
	return r.Commit()
}

func TestContentReachesTheFile(t *testing.T) {
	d := open(t, Options{})
	t.Log("written with", d.Mode())
	rng := rand.New(rand.NewPCG(1, 2))
	for i, tt := range []struct{ size, packet int }{
		{0, 1}, {1, 1}, {1, 16_000}, {4096, 4096}, {4097, 4096}, {100_000, 16_000}, {100_000, 16_384}, {16_384, 1000}, {33_333, 7777},
	} {
		want := make([]byte, tt.size)
		for i := range want {
			want[i] = byte(rng.Uint32())
		}
		block := workloads.BlockID(i)
		r := create(t, d, block, units.Bytes(tt.size))
		if err := write(t.Context(), r, want, tt.packet); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(d.Path(block))
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("block of %d in packets of %d: %d bytes read back, %v, equal %v", tt.size, tt.packet, len(got), err, bytes.Equal(got, want))
		}
		if err := r.Commit(); err != nil {
			t.Errorf("second Commit: %v", err)
		}
	}
}

// Each packet is in the file when Write returns, not only at the end.
func TestPacketIsWrittenWhenWriteReturns(t *testing.T) {
	d := open(t, Options{})
	r := create(t, d, 1, 10_000)
	var want []byte
	for i := range 10 {
		p := bytes.Repeat([]byte{byte('a' + i)}, 1000)
		if err := r.Write(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		want = append(want, p...)
		if got, err := os.ReadFile(d.Path(1)); err != nil || !bytes.HasPrefix(got, want) {
			t.Fatalf("after packet %d the file does not begin with what was written (%d bytes, %v)", i, len(got), err)
		}
	}
}

// With a fake clock a write call takes no time, so the rate must be exact.
func TestRate(t *testing.T) {
	for _, tt := range []struct {
		rate    string
		packet  int
		writers int
	}{
		{"6.9MB/s", 16_000, 1}, {"6.9MB/s", 16_000, 7}, {"1.38MB/s", 4000, 3}, {"55MB/s", 65_536, 4}, {"500MB/s", 16_000, 2},
	} {
		t.Run(tt.rate, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rate, err := units.ParseRate(tt.rate)
				if err != nil {
					t.Fatal(err)
				}
				d := open(t, Options{Rate: rate})
				each := tt.packet * 100
				start := time.Now()
				var wg sync.WaitGroup
				ends := make([]time.Duration, tt.writers)
				for i := range tt.writers {
					r := create(t, d, workloads.BlockID(i), units.Bytes(each))
					wg.Go(func() {
						if err := write(t.Context(), r, make([]byte, each), tt.packet); err != nil {
							t.Error(err)
						}
						ends[i] = time.Since(start)
					})
				}
				wg.Wait()
				total := units.Bytes(each * tt.writers)
				want := rate.TimeToSend(total)
				got := time.Since(start)
				if off := (want - got).Abs(); off > want/200+3*time.Millisecond {
					t.Errorf("%v took %v, want %v", total, got, want)
				}
				s := d.Stats()
				if s.Written != total || s.Writes != 100*tt.writers {
					t.Errorf("Stats = %+v, want %d bytes in %d writes", s, total, 100*tt.writers)
				}
				if a := s.Achieved(); a < rate*995/1000 || a > rate*1001/1000 {
					t.Errorf("achieved %v while busy, want %v", a, rate)
				}
				for i, end := range ends { // fair: all end together
					if end < want*95/100-2*time.Millisecond {
						t.Errorf("writer %d of %d ended at %v of %v", i, tt.writers, end, want)
					}
				}
			})
		})
	}
}

// A disk that idles between writes is not busy while idle, and saves at most its burst.
func TestIdleDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const rate = 80 * units.Mbps // 10 MB/s
		d := open(t, Options{Rate: rate, Burst: 16_000})
		r := create(t, d, 1, 1_000_000)
		for range 10 {
			if err := r.Write(t.Context(), make([]byte, 16_000)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}
		if s := d.Stats(); s.Achieved() != rate || s.Busy != rate.TimeToSend(160_000) {
			t.Errorf("Stats = %+v, want busy for %v", s, rate.TimeToSend(160_000))
		}
		start := time.Now()
		for range 10 {
			if err := r.Write(t.Context(), make([]byte, 16_000)); err != nil {
				t.Fatal(err)
			}
		}
		if got, least := time.Since(start), rate.TimeToSend(9*16_000)-2*time.Millisecond; got < least {
			t.Errorf("10 packets after a pause took %v, want at least %v", got, least)
		}
	})
}

// slowFile is a file on a device with its own rate.
type slowFile struct {
	file
	each time.Duration
}

func (f slowFile) WriteAt(p []byte, off int64) (int, error) {
	time.Sleep(f.each)
	return f.file.WriteAt(p, off)
}

func slow(d *Disk, each time.Duration) {
	create := d.create
	d.create = func(path string) (file, error) {
		f, err := create(path)
		return slowFile{f, each}, err
	}
}

func TestSlowDeviceShows(t *testing.T) {
	for _, tt := range []struct {
		name string
		each time.Duration // a packet is due every 2 ms
		want float64       // achieved / configured
	}{
		{"keeps up", time.Millisecond, 1},
		{"barely", 2 * time.Millisecond, 1},
		{"half", 4 * time.Millisecond, 0.5},
		{"fifth", 10 * time.Millisecond, 0.2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := open(t, Options{Rate: 64 * units.Mbps})
				slow(d, tt.each)
				r := create(t, d, 1, 16_000*500)
				if err := write(t.Context(), r, make([]byte, 16_000*500), 16_000); err != nil {
					t.Fatal(err)
				}
				s := d.Stats()
				if got := float64(s.Achieved()) / float64(64*units.Mbps); got < tt.want-0.01 || got > tt.want+0.01 {
					t.Errorf("achieved / configured = %.3f, want %.2f (%+v)", got, tt.want, s)
				}
				if s.Device != 500*tt.each {
					t.Errorf("time in writes %v, want %v", s.Device, 500*tt.each)
				}
			})
		})
	}
}

// The disk makes up for one stall within CatchUp; a longer stall lowers the achieved rate.
func TestThrottleCatchesUp(t *testing.T) {
	const rate, n = 64 * units.Mbps, units.Bytes(16_000) // 2 ms per packet
	for _, tt := range []struct {
		stall time.Duration
		want  time.Duration // busy for 101 packets
	}{
		{0, 202 * time.Millisecond},
		{8 * time.Millisecond, 202 * time.Millisecond},
		{50 * time.Millisecond, 240 * time.Millisecond},
	} {
		th := throttle{rate: rate, burst: 2 * time.Millisecond, catchUp: 10 * time.Millisecond}
		now := time.Second
		for i := range 101 {
			th.admit(now, n)
			now = max(now, th.due)
			if i == 50 {
				now += tt.stall
			}
			th.finish(now, n, 0)
		}
		if got := th.stats.Busy; (got - tt.want).Abs() > 3*time.Millisecond {
			t.Errorf("stall of %v: busy %v, want %v", tt.stall, got, tt.want)
		}
	}
}

func TestFirstComeFirstServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, Options{Rate: 8 * units.Kbps})
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range 20 {
			r := create(t, d, workloads.BlockID(i), 1000)
			wg.Go(func() {
				if err := r.Write(t.Context(), make([]byte, 1000)); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
			})
			synctest.Wait()
		}
		wg.Wait()
		for i, n := range order {
			if i != n {
				t.Fatalf("served in order %v", order)
			}
		}
	})
}

// On a file system without O_DIRECT, such as ramfs, and tmpfs before Linux 6.6, disks write with
// O_DSYNC.
func TestFileSystemWithoutDirectWrites(t *testing.T) {
	netnstest.Require(t)
	dir := t.TempDir()
	if err := syscall.Mount("ramfs", dir, "ramfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	if _, err := os.OpenFile(filepath.Join(dir, "x"), os.O_CREATE|os.O_WRONLY|syscall.O_DIRECT, 0o600); !errors.Is(err, syscall.EINVAL) {
		t.Fatalf("O_DIRECT on ramfs: %v: the test tests nothing", err)
	}
	d, err := Open(filepath.Join(dir, "disk"), Options{Host: "h0-00", Rate: 800 * units.Mbps})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	if d.Mode() != "O_DSYNC" {
		t.Errorf("mode %s, want O_DSYNC", d.Mode())
	}
	data := bytes.Repeat([]byte("block "), 2000)
	if err := write(t.Context(), create(t, d, 1, units.Bytes(len(data))), data, 5000); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(d.Path(1)); err != nil || !bytes.Equal(got, data) {
		t.Errorf("read back %d bytes, %v, want the %d written", len(got), err, len(data))
	}
	files, err := filepath.Glob(filepath.Join(dir, "disk", "*"))
	if err != nil || len(files) != 1 {
		t.Errorf("files %q, %v, want one block", files, err)
	}
}

func TestCapacity(t *testing.T) {
	d := open(t, Options{Host: "h3-07", Capacity: 10_000})
	r := create(t, d, 1, 6000)
	_, err := d.Create(2, 4001)
	var full *FullError
	if !errors.As(err, &full) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("Create beyond capacity = %v, want a FullError", err)
	}
	for _, word := range []string{"h3-07", "10KB", "block 2", "6KB"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("error %q does not name %q", err, word)
		}
	}
	if err := r.Abort(); err != nil {
		t.Fatal(err)
	}
	r = create(t, d, 2, 4001)
	if err := write(t.Context(), r, make([]byte, 4001), 1000); err != nil {
		t.Fatal(err)
	}
	if got := d.Used(); got != 4001 {
		t.Errorf("used %d, want 4001", got)
	}
	if err := d.Remove(2); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(d.Path(2)); !os.IsNotExist(err) || d.Used() != 0 {
		t.Errorf("after Remove: %v, used %d", err, d.Used())
	}
	if err := d.Remove(2); err != nil {
		t.Errorf("second Remove: %v", err)
	}
	create(t, d, 2, 10_000)
	if err := d.Remove(2); err == nil {
		t.Error("a block was removed while it was being written")
	}
}

// /dev/full refuses every write with the kernel's own ENOSPC.
func TestFileSystemFull(t *testing.T) {
	d := open(t, Options{Host: "h3-07"})
	d.create = func(string) (file, error) { return os.OpenFile("/dev/full", os.O_WRONLY, 0) }
	r := create(t, d, 1, 6000)
	err := r.Write(t.Context(), make([]byte, 1000))
	var full *FullError
	if !errors.As(err, &full) || full.Capacity != 0 || !strings.Contains(err.Error(), "h3-07") || !strings.Contains(err.Error(), d.dir) {
		t.Errorf("Write to a full file system = %v, want a FullError that names the host and directory", err)
	}
	if err := r.Abort(); err != nil || d.Used() != 0 {
		t.Errorf("Abort = %v, used %d", err, d.Used())
	}
}

type brokenFile struct{ file }

func (brokenFile) WriteAt([]byte, int64) (int, error) { return 0, syscall.EIO }

func TestWriteFails(t *testing.T) {
	d := open(t, Options{Host: "h3-07"})
	create0 := d.create
	d.create = func(path string) (file, error) {
		f, err := create0(path)
		return brokenFile{f}, err
	}
	r := create(t, d, 1, 6000)
	if err := r.Write(t.Context(), make([]byte, 1000)); !errors.Is(err, syscall.EIO) || !strings.Contains(err.Error(), "h3-07") {
		t.Errorf("Write = %v, want an input/output error that names the host", err)
	}
	if err := r.Commit(); err == nil {
		t.Error("a replica without its bytes was committed")
	}
	if err := r.Abort(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(d.Path(1)); !os.IsNotExist(err) {
		t.Errorf("after Abort: %v", err)
	}
}

func TestMisuse(t *testing.T) {
	d := open(t, Options{})
	r := create(t, d, 1, 10)
	if _, err := d.Create(1, 10); !errors.Is(err, os.ErrExist) {
		t.Errorf("second Create = %v", err)
	}
	if err := r.Write(t.Context(), make([]byte, 11)); err == nil {
		t.Error("a write beyond the size was taken")
	}
	if err := write(t.Context(), r, make([]byte, 10), 10); err != nil {
		t.Fatal(err)
	}
	if err := r.Abort(); err != nil || d.Used() != 10 {
		t.Errorf("Abort after Commit = %v, used %d, want nothing done", err, d.Used())
	}
	if err := r.Write(t.Context(), nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Write after Commit = %v", err)
	}
	if _, err := Open(d.dir, Options{Host: "h", Rate: 1}); err == nil || !strings.Contains(err.Error(), "blk_1") {
		t.Errorf("Open of a directory in use = %v", err)
	}
	if _, err := Open(t.TempDir(), Options{Host: "h"}); err == nil {
		t.Error("Open without a rate and no error")
	}
	if _, err := Open("/dev/null/x", Options{Host: "h", Rate: 1}); err == nil {
		t.Error("Open of no directory and no error")
	}
}

func TestCloseAndCancelEndWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, Options{Rate: 8}) // one byte per second
		ctx, cancel := context.WithCancel(t.Context())
		errs := make([]error, 4)
		var wg sync.WaitGroup
		for i := range errs {
			r := create(t, d, workloads.BlockID(i), 5000)
			c := t.Context()
			if i%2 == 0 {
				c = ctx
			}
			wg.Go(func() {
				for errs[i] == nil {
					errs[i] = r.Write(c, make([]byte, 1000))
				}
			})
			synctest.Wait()
		}
		cancel()
		synctest.Wait()
		if err := d.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
		for i, err := range errs {
			want := ErrClosed
			if i%2 == 0 {
				want = context.Canceled
			}
			if !errors.Is(err, want) {
				t.Errorf("writer %d ended with %v, want %v", i, err, want)
			}
		}
		if err := d.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
		if _, err := d.Create(9, 1); !errors.Is(err, ErrClosed) {
			t.Errorf("Create after Close = %v", err)
		}
	})
}

// Real writes and real timers. The bounds are wide because other processes use the machine too.
func TestRateInRealTime(t *testing.T) {
	rate, _ := units.ParseRate("6.9MB/s")
	d := open(t, Options{Rate: rate})
	const total = 3_450_000
	start := time.Now()
	if err := write(t.Context(), create(t, d, 1, total), make([]byte, total), 16_000); err != nil {
		t.Fatal(err)
	}
	took := time.Since(start)
	s := d.Stats()
	t.Logf("%s: %v in %v (want %v), achieved %v while busy, %v in writes, at most %v late",
		d.Mode(), units.Bytes(total), took, rate.TimeToSend(total), s.Achieved(), s.Device, s.Late)
	if took < rate.TimeToSend(total)-10*time.Millisecond {
		t.Errorf("%d bytes took %v: faster than %v", total, took, rate)
	}
}

// A disk that is idle after every packet cannot make up for late timers. It must still reach its
// configured rate, as the verdict requires.
func TestRateOfShortSpells(t *testing.T) {
	longtest.Skip(t, "judges late timers, 2 s")
	const rate, packet = 40 * units.Mbps, 32_000
	netnstest.Timing(t, func(t *testing.T) bool {
		d := open(t, Options{Rate: rate})
		r := create(t, d, 1, packet*80)
		for range 80 {
			if err := r.Write(t.Context(), make([]byte, packet)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Millisecond)
		}
		s := d.Stats()
		got := float64(s.Achieved()) / float64(s.Configured())
		t.Logf("achieved %.3f of the rate, %v in a write, at most %v late", got, s.Device/80, s.Late)
		return got >= 0.97 && got <= 1
	})
}

func BenchmarkWrite(b *testing.B) {
	d, err := Open(b.TempDir(), Options{Host: "h", Rate: units.MaxRate})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	r, err := d.Create(1, 1<<40)
	if err != nil {
		b.Fatal(err)
	}
	p := make([]byte, 16_384)
	b.SetBytes(int64(len(p)))
	b.ReportAllocs()
	for b.Loop() {
		if r.written >= 64<<20 {
			r.written = 0 // rewrite the same 64 MB
		}
		if err := r.Write(b.Context(), p); err != nil {
			b.Fatal(err)
		}
	}
	r.Abort()
}
