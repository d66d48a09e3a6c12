package netnstest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"testbed/emu/kernel/processors"

	"golang.org/x/sys/unix"
)

// A canary is a process of real-time priority that does nothing but sleep, on every processor. It
// wakes late if the machine stops, such as a virtual machine whose processors the hypervisor takes
// away, but not if other processes are busy. Being a process of its own, it does not wait for the Go
// scheduler of the test. It also reads what the hypervisor steals, in short windows: steals come in
// bursts, which an average over an attempt hides.
type canary struct {
	mu   sync.Mutex
	seen []song
	err  error
	pid  int
}

// song is a line of the canary: how late it woke, or the share that was stolen in a window.
type song struct {
	end    time.Time
	late   time.Duration
	stolen float64
}

const (
	canaryEnv    = "TESTBED_CANARY" // set in the environment of the canary alone
	canarySleep  = 5 * time.Millisecond
	canaryLate   = 5 * time.Millisecond // what is less late is not reported
	canaryWindow = 250 * time.Millisecond
	realTimeRank = 50 // of 1 to 99
)

func init() {
	if os.Getenv(canaryEnv) != "" {
		sing()
	}
}

// sing is the program of the canary: it writes a line for each late awakening, until its standard
// input ends, which its parent holds open.
func sing() {
	var mu sync.Mutex
	say := func(now time.Time, late time.Duration, stolen float64) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Printf("%d %d %g\n", now.UnixNano(), late, stolen)
	}
	go func() {
		was, err := processors.ReadTimes()
		for ; err == nil; time.Sleep(canaryWindow) {
			var is processors.Times
			if is, err = processors.ReadTimes(); err != nil {
				break
			}
			if stolen := is.StolenSince(was); stolen > 0 {
				say(is.At, 0, stolen)
			}
			was = is
		}
		fmt.Printf("error %v\n", err)
	}()
	for cpu := range runtime.NumCPU() {
		go func() {
			runtime.LockOSThread()
			var set unix.CPUSet
			set.Set(cpu)
			err := unix.SchedSetaffinity(0, &set)
			if err == nil {
				err = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: realTimeRank}, 0)
			}
			if err != nil {
				fmt.Printf("error %v\n", err)
				return
			}
			for {
				began := time.Now()
				ts := unix.NsecToTimespec(int64(canarySleep))
				_ = unix.Nanosleep(&ts, nil) // a signal ends it early, which is not late
				now := time.Now()
				if late := now.Sub(began) - canarySleep; late >= canaryLate {
					say(now, late, 0)
				}
			}
		}()
	}
	_, _ = os.Stdin.Read(make([]byte, 1)) // returns when the parent has ended
	os.Exit(0)
}

// theCanary starts the canary of this process, once.
var theCanary = sync.OnceValue(func() *canary {
	c := &canary{}
	exe, err := os.Executable()
	if err != nil {
		c.err = err
		return c
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), canaryEnv+"=1", "GOMAXPROCS="+fmt.Sprint(runtime.NumCPU()+1))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // Ctrl-C is for the test
	out, err := cmd.StdoutPipe()
	if err == nil {
		_, err = cmd.StdinPipe() // open as long as this process
	}
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		c.err = err
		return c
	}
	c.pid = cmd.Process.Pid
	go func() {
		for lines := bufio.NewScanner(out); lines.Scan(); {
			c.hear(lines.Text())
		}
		c.mu.Lock()
		if c.err == nil {
			c.err = fmt.Errorf("the canary ended: %w", cmd.Wait())
		}
		c.mu.Unlock()
	}()
	return c
})

func (c *canary) hear(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if what, ok := strings.CutPrefix(line, "error "); ok {
		c.err = fmt.Errorf("the canary: %s", what)
		return
	}
	var end, late int64
	var stolen float64
	if _, err := fmt.Sscanf(line, "%d %d %g", &end, &late, &stolen); err == nil {
		c.seen = append(c.seen, song{time.Unix(0, end), time.Duration(late), stolen})
	}
}

// worst returns the longest stop of a processor and the largest share stolen in a window that ended
// after a moment, and forgets earlier ones.
func (c *canary) worst(after time.Time) (stopped time.Duration, stolen float64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = slices.DeleteFunc(c.seen, func(s song) bool { return s.end.Before(after) })
	for _, s := range c.seen {
		stopped, stolen = max(stopped, s.late), max(stolen, s.stolen)
	}
	return stopped, stolen, c.err
}
