package kernel

import (
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"testbed/emu/kernel/netnstest"
)

// priorities returns the priorities of all threads of this process, from /proc.
func priorities(t *testing.T) map[string]string {
	t.Helper()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, thread := range threads {
		stat, err := os.ReadFile("/proc/self/task/" + thread.Name() + "/stat")
		if err != nil {
			continue // the thread has ended
		}
		// Counted from the name in parentheses: priority and nice are fields 16 and 17, real-time
		// priority and policy 38 and 39 (proc(5)).
		_, rest, _ := strings.Cut(string(stat), ") ")
		f := strings.Fields(rest)
		out[thread.Name()] = "nice " + f[16]
		if f[38] != "0" {
			out[thread.Name()] = "policy " + f[38] + " priority " + f[37]
		}
	}
	return out
}

// All threads get the priority, including later ones, and get their previous priority back.
func TestSetPriority(t *testing.T) {
	netnstest.Require(t) // the privilege to create namespaces includes raising priorities
	was, err := CurrentPriority()
	if err != nil {
		t.Fatal(err)
	}
	defer SetPriority(was)
	// A few threads that already exist.
	hold := make(chan struct{})
	start := func(n int) {
		ready := make(chan struct{})
		for range n {
			go func() {
				runtime.LockOSThread()
				ready <- struct{}{}
				<-hold
			}()
			<-ready
		}
	}
	defer close(hold)
	start(4)
	nice := "nice " + strconv.Itoa(was.Nice)
	for _, c := range []struct {
		p    Priority
		want string
	}{{Priority{Nice: -7}, "nice -7"}, {Priority{RealTime: 3}, "policy 2 priority 3"}, {Priority{RealTime: 1}, "policy 2 priority 1"}, {was, nice}} {
		if err := SetPriority(c.p); err != nil {
			t.Fatal(err)
		}
		start(4)
		threads := priorities(t)
		if len(threads) < 5 {
			t.Errorf("%d threads, want those that were started", len(threads))
		}
		for id, got := range threads {
			if got != c.want {
				t.Errorf("thread %s has %s, want %s", id, got, c.want)
			}
		}
		if got, err := CurrentPriority(); err != nil || got != c.p {
			t.Errorf("CurrentPriority() = %v, %v, want %v", got, err, c.p)
		}
	}
	for _, bad := range []Priority{{Nice: -21}, {Nice: 20}, {RealTime: -1}, {RealTime: 100}} {
		if err := SetPriority(bad); err == nil || !strings.Contains(err.Error(), "must be -20 to 19, and 1 to 99") {
			t.Errorf("SetPriority(%+v) = %v, expected the permitted values", bad, err)
		}
	}
}

// Raise only raises the priority, and lower restores the previous one.
func TestRaise(t *testing.T) {
	netnstest.Require(t)
	was, err := CurrentPriority()
	if err != nil {
		t.Fatal(err)
	}
	defer SetPriority(was)
	for _, c := range []struct {
		realTime, nice int
		want           Priority
	}{{2, -3, Priority{RealTime: 2}}, {0, was.Nice - 1, Priority{Nice: was.Nice - 1}}, {0, was.Nice + 1, was}} {
		lower, refused, err := Raise(c.realTime, c.nice)
		if err != nil || len(refused) > 0 {
			t.Fatal(refused, err)
		}
		if got, err := CurrentPriority(); err != nil || got != c.want {
			t.Errorf("Raise(%d, %d) gave %v, %v, want %v", c.realTime, c.nice, got, err, c.want)
		}
		if err := lower(); err != nil {
			t.Fatal(err)
		}
		if got, err := CurrentPriority(); err != nil || got != was {
			t.Errorf("then %v, %v, want %v as before", got, err, was)
		}
	}
}

// A thread with a real-time priority preempts others on its processor at once. Without one, it
// waits its turn whenever it exceeds its share. It shares a processor with three busy processes.
func TestRealTimeComesFirst(t *testing.T) {
	netnstest.Require(t)
	was, err := CurrentPriority()
	if err != nil {
		t.Fatal(err)
	}
	defer SetPriority(was)
	var one unix.CPUSet
	one.Set(0)
	for range 3 {
		busy := exec.Command("sh", "-c", "while :; do :; done")
		if err := busy.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			busy.Process.Kill()
			busy.Wait()
		}()
		if err := unix.SchedSetaffinity(busy.Process.Pid, &one); err != nil {
			t.Fatal(err)
		}
	}
	netnstest.Timing(t, func(t *testing.T) bool {
		rt, fair := lateBy(t, &one, Priority{RealTime: 1}), lateBy(t, &one, Priority{Nice: was.Nice})
		t.Logf("three quarters of the sleeps ended up to %v late with a real-time priority, %v without", rt, fair)
		return rt*4 <= fair
	})
}

// lateBy returns the 75th percentile of the lateness of sleeps on a thread bound to these
// processors, which works for as long as it sleeps.
func lateBy(t *testing.T, on *unix.CPUSet, p Priority) time.Duration {
	if err := SetPriority(p); err != nil {
		t.Fatal(err)
	}
	late := make([]time.Duration, 200)
	failed := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread and its affinity end
		failed <- func() error {
			if err := unix.SchedSetaffinity(0, on); err != nil {
				return err
			}
			for i := range late {
				begin := time.Now()
				pause := unix.NsecToTimespec(int64(time.Millisecond))
				if err := unix.Nanosleep(&pause, nil); err != nil && err != unix.EINTR {
					return err
				}
				late[i] = time.Since(begin) - time.Millisecond
				for time.Since(begin) < 2*time.Millisecond { // work
				}
			}
			return nil
		}()
	}()
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	slices.Sort(late)
	return late[len(late)*3/4]
}

// A thread that sleeps gets a processor while more threads than processors find work without end: soon if they yield
// after each piece of work, and a few times a second else, which shows the power of the test.
func TestYield(t *testing.T) {
	netnstest.Require(t)
	netnstest.OnlyTiming(t)
	slice, err := os.ReadFile("/proc/sys/kernel/sched_rr_timeslice_ms")
	if err != nil {
		t.Fatal(err)
	}
	if ms, err := strconv.Atoi(strings.TrimSpace(string(slice))); err != nil || ms < 50 {
		t.Skipf("sched_rr_timeslice_ms is %q: the kernel takes turns by itself", slice)
	}
	hogs := 4 * runtime.NumCPU()
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(hogs + 4))
	lower, _, err := Raise(RealTimeForPackets, NiceForPackets)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := lower(); err != nil {
			t.Error(err)
		}
	}()
	if !realTime.Load() {
		t.Skip("no real-time priority here")
	}
	const during = 500 * time.Millisecond
	wakes := func(yield func()) (n int) {
		var all sync.WaitGroup
		until := time.Now().Add(during)
		for range hogs {
			all.Go(func() {
				runtime.LockOSThread() // and never unlock: the thread ends with the goroutine
				for time.Now().Before(until) {
					for piece := time.Now().Add(50 * time.Microsecond); time.Now().Before(piece); {
					}
					yield()
				}
			})
		}
		all.Go(func() {
			runtime.LockOSThread()
			for ; time.Now().Before(until); n++ {
				_ = unix.Nanosleep(&unix.Timespec{Nsec: int64(time.Millisecond)}, nil) // a signal only shortens it
			}
		})
		all.Wait()
		return n
	}
	with, without := wakes(Yield), wakes(func() {})
	t.Logf("a thread that sleeps 1 ms at a time wakes %d times in %v with yields, %d times without", with, during, without)
	if with < 150 {
		t.Errorf("%d wake-ups in %v beside %d threads that yield, want 150 or more", with, during, hogs)
	}
	if without > with/3 {
		t.Errorf("%d wake-ups beside threads that do not yield, %d beside those that do: the test shows nothing", without, with)
	}
}
