package kernel

import (
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"testbed/emu/kernel/netnstest"
)

// niceness is that of all threads of this process.
func niceness(t *testing.T) map[string]string {
	t.Helper()
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, thread := range threads {
		stat, err := os.ReadFile("/proc/self/task/" + thread.Name() + "/stat")
		if err != nil {
			continue // it has ended
		}
		// After the name, in parentheses, nice is the seventeenth (proc(5)).
		_, rest, _ := strings.Cut(string(stat), ") ")
		out[thread.Name()] = strings.Fields(rest)[16]
	}
	return out
}

// All threads get the priority, also those that begin later, and get back what
// they had.
func TestSetNice(t *testing.T) {
	netnstest.Require(t) // who may make namespaces may raise priorities
	was, err := Nice()
	if err != nil {
		t.Fatal(err)
	}
	// A few threads that are there already.
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
	for _, nice := range []int{-7, was} {
		if err := SetNice(nice); err != nil {
			t.Fatal(err)
		}
		start(4)
		threads := niceness(t)
		if len(threads) < 5 {
			t.Errorf("%d threads, want those that were started", len(threads))
		}
		for id, got := range threads {
			if got != strconv.Itoa(nice) {
				t.Errorf("thread %s has nice %s, want %d", id, got, nice)
			}
		}
		if got, err := Nice(); err != nil || got != nice {
			t.Errorf("Nice() = %d, %v, want %d", got, err, nice)
		}
	}
	for _, bad := range []int{-21, 20} {
		if err := SetNice(bad); err == nil || !strings.Contains(err.Error(), "want -20 to 19") {
			t.Errorf("SetNice(%d) = %v, want what may be said", bad, err)
		}
	}
}
