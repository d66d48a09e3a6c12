package kernel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"testbed/emu/kernel/netnstest"
	"testbed/hosts/disk"
	"testbed/results/tooltest"
	"testbed/topo/units"
)

// diskSpecs returns the specs of n disks under dir.
func diskSpecs(t *testing.T, dir string, n int, rate units.Rate) (specs []DiskSpec) {
	t.Helper()
	for i := range n {
		specs = append(specs, DiskSpec{File: filepath.Join(dir, fmt.Sprintf("disk%d.img", i)), Dir: filepath.Join(dir, fmt.Sprintf("disk%d", i)), Size: 20 * units.MB, Rate: rate})
	}
	return specs
}

// Writes to the disks proceed at the rate of each disk, two at the same time, also after a change
// of rate; the files have the right contents; and nothing is left behind.
func TestDisks(t *testing.T) {
	netnstest.Require(t)
	tooltest.Need(t, mkfs)
	f, err := DiskThrottle()
	netnstest.Feature(t, err)
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
		const size = 4 * units.MiB // slightly more than a second
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
		for i := range 3 { // 20 MB with the first 16.8
			if _, err := write(0, fmt.Sprint(i)); err != nil {
				t.Fatalf("file %d: %v", i, err)
			}
		}
		return ok
	})
}

// A goroutine whose write waits for the kernel's throttle is parked, so it keeps no other from running.
func TestThrottledWriteHoldsNoThread(t *testing.T) {
	netnstest.Require(t)
	tooltest.Need(t, mkfs)
	f, err := DiskThrottle()
	netnstest.Feature(t, err)
	const size, rate = 64 * units.KiB, 1280 * units.Kbps // 0.4 s
	disks, err := f.MakeDisks(t.Context(), fmt.Sprintf("testbed-test-thread-%d", os.Getpid()), diskSpecs(t, realTemp(t), 1, rate))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := disks.Close(); err != nil {
			t.Error(err)
		}
	}()
	throttle := func(r units.Rate) error { return disks.SetRate(0, r) }
	d, err := disk.Open(disks.Dir(0), disk.Options{Rate: rate, Throttle: throttle})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	r, err := d.Create(1, size)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- r.Write(t.Context(), make([]byte, size)) }()
	states := map[string]int{}
	for stacks := make([]byte, 1<<20); ; {
		select {
		case err := <-ended:
			if err != nil || states["IO wait"] == 0 {
				t.Errorf("the write ended with %v, seen in states %v, want IO wait", err, states)
			}
			return
		case <-time.After(time.Millisecond):
		}
		for g := range strings.SplitSeq(string(stacks[:runtime.Stack(stacks, true)]), "\n\n") {
			if _, state, ok := strings.Cut(g, "["); ok && strings.Contains(g, "disk.(*Replica).Write(") {
				state, _, _ = strings.Cut(state, "]")
				states[state]++
			}
		}
	}
}

// A failed creation leaves nothing behind.
func TestDisksThatCannotBeMade(t *testing.T) {
	netnstest.Require(t)
	tooltest.Need(t, mkfs)
	f, err := DiskThrottle()
	netnstest.Feature(t, err)
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
	// A mount of another kind is left alone.
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

// A disk whose image no longer fits in the file system around it is full: the writer gets an error
// that names that file system. The kernel reports an input/output error or ENOSPC, which could mean
// either file system.
func TestFullFileSystemUnderADisk(t *testing.T) {
	netnstest.Require(t)
	tooltest.Need(t, mkfs)
	f, err := DiskThrottle()
	netnstest.Feature(t, err)
	t.Run("tmpfs", func(t *testing.T) {
		dir := realTemp(t)
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=16m"); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := unix.Unmount(dir, 0); err != nil {
				t.Error(err)
			}
		}()
		fillDisk(t, f, dir)
		fill := make([]byte, 17<<20)
		if err := os.WriteFile(filepath.Join(dir, "fill"), fill, 0o644); !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("the file system has room: %v", err)
		}
		_, err := f.MakeDisks(t.Context(), fmt.Sprintf("testbed-test-full-%d", os.Getpid()), diskSpecs(t, dir, 1, units.Gbps))
		if err == nil || !strings.Contains(err.Error(), "the file system of "+dir+" is full") {
			t.Errorf("a disk that has no room for its file system: %v", err)
		}
	})
	t.Run("ext4", func(t *testing.T) {
		dir := realTemp(t)
		image, mount := filepath.Join(dir, "image"), filepath.Join(dir, "mount")
		loop, err := AttachLoop(image, 16*units.MiB)
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := loop.Close(); err != nil {
				t.Error(err)
			}
		}()
		if out, err := exec.Command(mkfs, "-q", "-F", "-m", "0", loop.Path()).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		if err := errors.Join(os.Mkdir(mount, 0o755), unix.Mount(loop.Path(), mount, "ext4", 0, "")); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := unix.Unmount(mount, 0); err != nil {
				t.Error(err)
			}
		}()
		fillDisk(t, f, mount)
	})
}

func realTemp(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// fillDisk creates a disk with an image in dir, larger than the file system there, and writes to it
// until a write fails.
func fillDisk(t *testing.T, f ThrottleFact, dir string) {
	t.Helper()
	specs := diskSpecs(t, dir, 1, 8*units.Gbps)
	specs[0].Size = 64 * units.MB // in a sparse file
	disks, err := f.MakeDisks(t.Context(), fmt.Sprintf("testbed-test-full-%d", os.Getpid()), specs)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := disks.Close(); err != nil {
			t.Error(err)
		}
	}()
	throttle := func(r units.Rate) error { return disks.SetRate(0, r) }
	d, err := disk.Open(disks.Dir(0), disk.Options{Host: "h0-01", Rate: 8 * units.Gbps, Throttle: throttle})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	const size = 32 * units.MB
	r, err := d.Create(7, size)
	if err != nil {
		t.Fatal(err)
	}
	wrote := units.Bytes(0)
	for packet := make([]byte, 64_000); err == nil && wrote < size; wrote += units.Bytes(len(packet)) {
		err = r.Write(t.Context(), packet)
	}
	var full *disk.FullError
	if !errors.As(err, &full) || !errors.Is(err, unix.ENOSPC) || full.Backing != dir || !strings.Contains(err.Error(), "its image is in "+dir) {
		t.Errorf("after %v of %v: %v, want a FullError that names %s", wrote, size, err, dir)
	}
	t.Logf("after %v: %v", wrote, err)
	if err := r.Abort(); err != nil {
		t.Log(err) // the file system on the device may be read-only
	}
}
