package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Priority is the scheduling priority of this process (sched(7)).
type Priority struct {
	// RealTime is the SCHED_RR priority, 1 to 99: a runnable thread immediately preempts any thread
	// without one. 0 means none: threads share the processors with all others, by Nice.
	RealTime int
	Nice     int // -20, the highest priority, to 19
}

// RealTimeForPackets and NiceForPackets are the arguments of Raise while packets are timed: the
// lowest real-time priority, or a nice value of higher priority than most programs.
const (
	RealTimeForPackets = 1
	NiceForPackets     = -10
)

// startTime is longer than the kernel takes from copying the priority of a thread that starts another to
// listing the new one, also on emulated processors.
const startTime = 10 * time.Millisecond

func (p Priority) String() string {
	if p.RealTime > 0 {
		return fmt.Sprintf("real-time priority %d", p.RealTime)
	}
	return fmt.Sprintf("nice %d", p.Nice)
}

// CurrentPriority returns the priority of the main thread.
func CurrentPriority() (Priority, error) {
	p, err := priorityOf(os.Getpid())
	if err != nil {
		return Priority{}, fmt.Errorf("priority of this process: %w", err)
	}
	return p, nil
}

// SetPriority changes the priority of all current and future threads. Raising it needs root or
// CAP_SYS_NICE. After an error, some threads may already have the new priority: the caller sets the
// previous one.
func SetPriority(p Priority) error {
	if p.Nice < -20 || p.Nice > 19 || p.RealTime < 0 || p.RealTime > 99 {
		return fmt.Errorf("set priority: nice %d, real-time %d: must be -20 to 19, and 1 to 99 or 0 for none", p.Nice, p.RealTime)
	}
	attr := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL, Nice: int32(p.Nice)}
	realTime.Store(p.RealTime > 0)
	if p.RealTime > 0 {
		attr = unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_RR, Priority: uint32(p.RealTime)}
		p.Nice = 0 // has no effect, and the kernel resets it
	}
	// A thread inherits the priority of the thread that starts it, and is listed a little later. Once two
	// passes, with startTime between them, find no thread with another priority, there will be none.
	for clean := 0; clean < 2; {
		if clean++; clean == 2 {
			time.Sleep(startTime)
		}
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("set priority: %w", err)
		}
		for _, t := range threads {
			id, err := strconv.Atoi(t.Name())
			if err != nil {
				return fmt.Errorf("set priority: thread %q: %w", t.Name(), err)
			}
			now, err := priorityOf(id)
			if err == nil && now != p {
				clean = 0
				err = unix.SchedSetAttr(id, &attr, 0)
			}
			if err != nil && !errors.Is(err, unix.ESRCH) { // it has ended
				return fmt.Errorf("set %v: %w%s", p, err, privilege(err))
			}
		}
	}
	return nil
}

// Raise gives the process a real-time priority or, if the kernel refuses that, as in a container or
// a user namespace, the nice value. It never lowers a priority. lower restores the previous
// priority, once; refused lists the errors of refused attempts.
func Raise(realTime, nice int) (lower func() error, refused []error, err error) {
	lower = func() error { return nil }
	was, err := CurrentPriority()
	if err != nil {
		return lower, nil, err
	}
	for _, p := range []Priority{{RealTime: realTime}, {Nice: nice}} {
		if p.RealTime < was.RealTime || p.RealTime == was.RealTime && p.Nice >= was.Nice {
			continue
		}
		err := SetPriority(p)
		if err == nil {
			return sync.OnceValue(func() error { return SetPriority(was) }), refused, nil
		}
		if !errors.Is(err, fs.ErrPermission) {
			return lower, refused, errors.Join(err, SetPriority(was))
		}
		refused = append(refused, err)
	}
	return lower, refused, nil
}

// realTime is whether SetPriority last gave a real-time priority.
var realTime atomic.Bool

// Yield lets the other threads of this process that wait for a processor run, if their priority is real-time. The
// kernel would else let a thread that finds work again and again keep its processor for 100 ms
// (sched_rr_timeslice_ms), and timers and the engine wait as long. Without real-time priority it does nothing: the
// kernel shares processors in slices of some milliseconds, and who yields loses one to other programs.
func Yield() {
	if realTime.Load() {
		_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0) // never fails
	}
}

func priorityOf(thread int) (Priority, error) {
	a, err := unix.SchedGetAttr(thread, 0)
	if err != nil {
		return Priority{}, err
	}
	if a.Policy == unix.SCHED_RR || a.Policy == unix.SCHED_FIFO {
		return Priority{RealTime: int(a.Priority)}, nil
	}
	return Priority{Nice: int(a.Nice)}, nil
}
