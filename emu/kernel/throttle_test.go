package kernel

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"testbed/emu/deploy"
	"testbed/emu/kernel/netnstest"
	"testbed/results/tooltest"
	"testbed/topo/units"
)

// throttles returns the throttles of this kernel. Without one the test is skipped.
func throttles(t *testing.T) []ThrottleFact {
	t.Helper()
	netnstest.Require(t)
	var have []ThrottleFact
	var missing []string
	for _, f := range Throttles() {
		if f.Missing == "" {
			have = append(have, f)
			continue
		}
		missing = append(missing, f.Missing)
		if f.Kind == IOMax && netnstest.Guest() {
			t.Fatal("no io.max, on a stock kernel")
		}
	}
	if len(have) == 0 {
		netnstest.Feature(t, errors.New(strings.Join(missing, "; ")))
	}
	return have
}

// loop attaches a loop device and closes it after the test.
func loop(t *testing.T, size units.Bytes) *Loop {
	t.Helper()
	file := filepath.Join(t.TempDir(), "disk")
	l, err := AttachLoop(file, size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if now := attached(t, file); now != "" {
			t.Errorf("%s is still attached", now)
		}
	})
	return l
}

// attached returns the loop device over a file, or "" if there is none.
func attached(t *testing.T, file string) string {
	t.Helper()
	all, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if data, err := os.ReadFile(path); err == nil && strings.Contains(string(data), file) {
			return path
		}
	}
	return ""
}

// write writes n bytes to a device in chunks of 64 KiB and returns the time taken.
func write(t *testing.T, device string, flags int, n units.Bytes) time.Duration {
	t.Helper()
	f, err := os.OpenFile(device, os.O_WRONLY|flags, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	const chunk = 64 << 10
	buf, err := unix.Mmap(-1, 0, chunk, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // aligned
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(buf)
	start := time.Now()
	for at := int64(0); at < int64(n); at += chunk {
		if _, err := f.WriteAt(buf, at); err != nil {
			t.Fatal(err)
		}
	}
	return time.Since(start)
}

// Direct writes of a process in the cgroup proceed at the limit; those of a process outside it, and
// after Leave, at the device's own rate. Two devices have a limit each. On version 1, writes
// through the page cache bypass the limit.
func TestThrottleLimitsWrites(t *testing.T) {
	for _, f := range throttles(t) {
		t.Run(string(f.Kind), func(t *testing.T) {
			netnstest.Timing(t, func(t *testing.T) bool { return limitsWrites(t, f) })
		})
	}
}

// limitsWrites writes with and without limits. A write that is faster than its limit allows is an
// error; a slow one depends on the machine.
func limitsWrites(t *testing.T, f ThrottleFact) (inTime bool) {
	c, err := f.NewCgroup(fmt.Sprintf("testbed-test-%d", os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for range 2 {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
		if _, err := os.Stat(c.path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the cgroup is still there: %v", err)
		}
	})
	slow, fast := loop(t, 32*units.MiB), loop(t, 32*units.MiB)
	limits := map[*Loop]units.Rate{slow: 40 * units.Mbps, fast: 80 * units.Mbps}
	for l, rate := range limits {
		if err := c.Limit(l, rate); err != nil {
			t.Fatal(err)
		}
	}
	const size = 8 * units.MiB
	inTime = true
	within := func(what string, took, most time.Duration) {
		t.Logf("%v %s took %v, want at most %v", size, what, took, most)
		inTime = inTime && took <= most
	}
	t.Logf("%v unthrottled took %v", size, write(t, slow.Path(), unix.O_DIRECT, size))
	if err := c.Enter(); err != nil {
		t.Fatal(err)
	}
	for l, rate := range limits {
		took, want := write(t, l.Path(), unix.O_DIRECT, size), rate.TimeToSend(size)
		// The kernel counts in slices of 100 ms and admits the first at once.
		if took < want-150*time.Millisecond {
			t.Errorf("%v at %v took %v, want %v", size, rate, took, want)
		}
		within("at "+rate.String(), took, want+want/5)
	}
	unlimited := (40 * units.Mbps).TimeToSend(size) / 2
	if f.Kind == Blkio {
		within("through the page cache, which escapes this throttle,", write(t, slow.Path(), 0, size), unlimited)
	}
	if err := c.Leave(); err != nil {
		t.Fatal(err)
	}
	within("after Leave", write(t, slow.Path(), unix.O_DIRECT, size), unlimited)
	return inTime
}

func TestThrottleErrors(t *testing.T) {
	missing := ThrottleFact{Kind: IOMax, Missing: "not here"}
	if _, err := missing.NewCgroup("x"); err == nil || !strings.Contains(err.Error(), "not here") {
		t.Errorf("NewCgroup of what is missing = %v", err)
	}
	for _, name := range []string{"", ".", "..", "a/b", "../a", "/"} {
		if _, err := (ThrottleFact{Kind: Blkio, root: t.TempDir()}).NewCgroup(name); err == nil {
			t.Errorf("NewCgroup(%q) = nil", name)
		}
	}
	file := filepath.Join(t.TempDir(), "there")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := AttachLoop(file, units.MB); !errors.Is(err, fs.ErrExist) {
		t.Errorf("AttachLoop over a file that is there = %v", err)
	}
	// A directory that is not a cgroup is not removed, even if a record lists it.
	dir := t.TempDir()
	if err := (Reaper{}).Release(t.Context(), nil, nil, []string{dir}); err == nil {
		t.Error("Release of a directory that is no cgroup = nil")
	}
	if _, err := os.Stat(dir); err != nil {
		t.Error(err)
	}
	if err := (Reaper{}).Release(t.Context(), []string{dir, filepath.Join(dir, "gone")}, []string{file}, []string{filepath.Join(dir, "gone")}); err != nil {
		t.Errorf("Release of what is not there = %v", err)
	}
}

const throttleVictimEnv = "TESTBED_TEST_THROTTLE_VICTIM"

// TestThrottleVictim is the process that TestThrottleOfKilledProcess kills.
func TestThrottleVictim(t *testing.T) {
	args := strings.Split(os.Getenv(throttleVictimEnv), ":")
	if len(args) != 3 {
		return
	}
	root, kind, how := args[0], args[1], args[2]
	fail := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	o, err := deploy.Create(context.Background(), root, deploy.State{ID: "victim", Kind: deploy.KindRun, Shape: shape(1, 1, 0, units.Mbps, 1500)})
	fail(err)
	dir := filepath.Join(filepath.Dir(root), "disks")
	fail(o.AddDirectory(dir))
	for _, f := range Throttles() {
		if string(f.Kind) != kind {
			continue
		}
		path, err := f.CgroupPath("testbed-victim-" + filepath.Base(filepath.Dir(root)))
		fail(err)
		fail(o.AddCgroup(path))
		if how == "disks" {
			specs := diskSpecs(t, dir, 2, units.Mbps)
			fail(o.AddDisks([]string{specs[0].File, specs[1].File}, []string{specs[0].Dir, specs[1].Dir}))
			_, err := f.MakeDisks(t.Context(), filepath.Base(path), specs)
			fail(err)
			fmt.Printf("\nready %s\n", path)
			time.Sleep(time.Minute)
		}
		fail(o.AddLoop(filepath.Join(dir, "disk")))
		c, err := f.NewCgroup(filepath.Base(path))
		fail(err)
		l, err := AttachLoop(filepath.Join(dir, "disk"), units.MiB)
		fail(err)
		fail(c.Limit(l, units.Mbps))
		fail(c.Enter())
		fmt.Printf("\nready %s\n", path)
		time.Sleep(time.Minute)
	}
}

// After the record of a killed process is collected, no loop device, cgroup or file is left.
func TestThrottleOfKilledProcess(t *testing.T) {
	for _, f := range throttles(t) {
		for _, how := range []string{"device", "disks"} {
			throttleOfKilledProcess(t, f, how)
		}
	}
}

func throttleOfKilledProcess(t *testing.T, f ThrottleFact, how string) {
	{
		t.Run(string(f.Kind)+" "+how, func(t *testing.T) {
			if how == "disks" {
				tooltest.Need(t, mkfs)
			}
			dir, err := os.MkdirTemp(t.TempDir(), "")
			if err != nil {
				t.Fatal(err)
			}
			root := filepath.Join(dir, "root")
			child := exec.Command(os.Args[0], "-test.run=^TestThrottleVictim$")
			child.Env = append(os.Environ(), throttleVictimEnv+"="+root+":"+string(f.Kind)+":"+how)
			out, err := child.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			var cgroup string
			lines := bufio.NewScanner(out)
			for lines.Scan() && cgroup == "" {
				if path, ok := strings.CutPrefix(lines.Text(), "ready "); ok {
					cgroup = path
					if err := child.Process.Kill(); err != nil {
						t.Fatal(err)
					}
				} else {
					t.Log(lines.Text())
				}
			}
			if _, err := io.Copy(io.Discard, out); err != nil {
				t.Fatal(err)
			}
			if err := child.Wait(); cgroup == "" {
				t.Fatalf("the victim ended too early: %v", err)
			}
			if _, err := os.Stat(cgroup); err != nil {
				t.Errorf("the victim left no cgroup: %v", err)
			}
			if n := len(mountsUnder(t, dir)); how == "disks" && n != 2 {
				t.Errorf("the victim left %d mounts, want those of its 2 disks", n)
			}
			removed, err := deploy.Collect(t.Context(), root, Reaper{}, false)
			if err != nil || len(removed) != 1 {
				t.Errorf("Collect() = %v, %v", removed, err)
			}
			if _, err := os.Stat(cgroup); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("cgroup %s: %v", cgroup, err)
			}
			if now := attached(t, dir); now != "" {
				t.Errorf("%s is still attached", now)
			}
			if left := mountsUnder(t, dir); len(left) > 0 {
				t.Errorf("mounts are left: %q", left)
			}
			if _, err := os.Stat(filepath.Join(dir, "disks")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("disks: %v", err)
			}
		})
	}
}
