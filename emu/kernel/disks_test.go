package kernel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"testbed/emu/kernel/netnstest"
	"testbed/topo/units"
)

// diskSpecs are those of n disks under dir.
func diskSpecs(t *testing.T, dir string, n int, rate units.Rate) (specs []DiskSpec) {
	t.Helper()
	for i := range n {
		specs = append(specs, DiskSpec{File: filepath.Join(dir, fmt.Sprintf("disk%d.img", i)), Dir: filepath.Join(dir, fmt.Sprintf("disk%d", i)), Size: 20 * units.MB, Rate: rate})
	}
	return specs
}

// Files on the disks take the rate that each has, two of them at once, also after it
// has changed; they hold what they are said to; and nothing is left of them.
func TestDisks(t *testing.T) {
	netnstest.Require(t)
	f, err := DiskThrottle()
	if err != nil {
		t.Fatal(err)
	}
	netnstest.Timing(t, func(t *testing.T) (ok bool) {
		dir, err := filepath.EvalSymlinks(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprintf("testbed-test-disks-%d", os.Getpid())
		d, err := f.MakeDisks(t.Context(), name, diskSpecs(t, dir, 2, 32*units.Mbps))
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			for range 2 {
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			}
			if left := mountsUnder(t, dir); len(left) > 0 || attached(t, dir) != "" {
				t.Errorf("mounts %q and device %s are left", left, attached(t, dir))
			}
			if path, err := f.CgroupPath(name); err != nil {
				t.Error(err)
			} else if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("the cgroup is left: %v", err)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
				t.Errorf("files are left: %v, %v", entries, err)
			}
		}()
		const size = 4 * units.MiB // a second and a little
		write := func(i int, block string) (time.Duration, error) {
			file, err := os.OpenFile(filepath.Join(d.Dir(i), block), os.O_CREATE|os.O_WRONLY|unix.O_DIRECT, 0o644)
			if err != nil {
				return 0, err
			}
			buf, err := unix.Mmap(-1, 0, 64<<10, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // aligned
			if err != nil {
				return 0, err
			}
			defer unix.Munmap(buf)
			start := time.Now()
			for at := int64(0); at < int64(size) && err == nil; at += int64(len(buf)) {
				_, err = file.WriteAt(buf, at)
			}
			return time.Since(start), errors.Join(err, file.Close())
		}
		if err := d.SetRate(1, 64*units.Mbps); err != nil {
			t.Fatal(err)
		}
		took := make([]time.Duration, 2)
		errs := make(chan error, 2)
		for i := range took {
			go func() {
				var err error
				took[i], err = write(i, "a")
				errs <- err
			}()
		}
		if err := errors.Join(<-errs, <-errs); err != nil {
			t.Fatal(err)
		}
		ok = true
		for i, rate := range []units.Rate{32 * units.Mbps, 64 * units.Mbps} {
			want := rate.TimeToSend(size)
			t.Logf("disk %d at %v: %v in %v, want %v less at most %v", i, rate, size, took[i], want, ThrottleAhead)
			ok = ok && took[i] > want-ThrottleAhead && took[i] < want+want/10
		}
		if err := d.SetRate(0, units.Gbps); err != nil {
			t.Fatal(err)
		}
		for i := range 3 { // with the first 16.8 MB of 20
			if _, err := write(0, fmt.Sprint(i)); err != nil {
				t.Fatalf("file %d: %v", i, err)
			}
		}
		return ok
	})
}

// What cannot be made is not half there.
func TestDisksThatCannotBeMade(t *testing.T) {
	netnstest.Require(t)
	f, err := DiskThrottle()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	name := fmt.Sprintf("testbed-test-bad-%d", os.Getpid())
	there := filepath.Join(dir, "disk1")
	if err := os.Mkdir(there, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := f.MakeDisks(t.Context(), name, diskSpecs(t, dir, 2, units.Mbps)); err == nil || !strings.Contains(err.Error(), there) {
		t.Errorf("MakeDisks where a directory is there already = %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.MakeDisks(ctx, name, diskSpecs(t, dir, 1, units.Mbps)); !errors.Is(err, context.Canceled) {
		t.Errorf("MakeDisks when cancelled = %v", err)
	}
	if left := mountsUnder(t, dir); len(left) > 0 || attached(t, dir) != "" {
		t.Errorf("mounts %q and device %q are left", left, attached(t, dir))
	}
	t.Run("nothing to make them with", func(t *testing.T) {
		t.Setenv("PATH", t.TempDir())
		if _, err := DiskThrottle(); err == nil || !strings.Contains(err.Error(), mkfs) || !strings.Contains(err.Error(), "disk.throttle: bucket") {
			t.Errorf("DiskThrottle without %s = %v, want that it is missing and what to do", mkfs, err)
		}
	})
	// What is mounted there and is no disk of ours is left alone.
	if err := unix.Mount("tmpfs", there, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	if err := (Reaper{}).Release(t.Context(), []string{there}, nil, nil); err == nil || !strings.Contains(err.Error(), "not on a loop device") {
		t.Errorf("Release of another's mount = %v", err)
	}
	if err := unix.Unmount(there, 0); err != nil {
		t.Error(err)
	}
}
