package kernel

import (
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ClockStep is a step of the wall clock.
type ClockStep struct {
	After time.Duration // time since the start of the watch, by the monotonic clock
	By    time.Duration // size of the step; 0 if the clock was set and at once set back
}

// WallClock detects steps of the wall clock (CLOCK_REALTIME), which stamps captured packets. The
// kernel reports each step, so steps that are reverted are detected too, unless they come between a step
// that Steps found and the kernel's report of that step. Slewing by NTP is not a step: the monotonic
// clock is slewed equally.
type WallClock struct {
	timer   *os.File
	started time.Time

	mu     sync.Mutex
	offset time.Duration // CLOCK_REALTIME minus CLOCK_MONOTONIC, at the last comparison
	steps  []ClockStep
	early  bool // Steps found a step before the kernel's report of it
}

// clockNoise is the maximum difference between two readings of the offset of an undisturbed clock:
// readings are sometimes interrupted.
const clockNoise = 20 * time.Microsecond

// WatchWallClock starts a watch. The caller must call Run and Close.
func WatchWallClock() (*WallClock, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_REALTIME, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("watch the wall clock: %w", err)
	}
	w := &WallClock{timer: os.NewFile(uintptr(fd), "wall clock"), started: time.Now()}
	if err := w.arm(fd); err != nil {
		return nil, errors.Join(err, w.timer.Close())
	}
	if w.offset, err = clockOffset(); err != nil {
		return nil, errors.Join(err, w.timer.Close())
	}
	return w, nil
}

// arm sets the timer so that it never expires and is cancelled when the clock is set.
func (w *WallClock) arm(fd int) error {
	never := unix.ItimerSpec{Value: unix.Timespec{Sec: math.MaxInt32 * 256}}
	if err := unix.TimerfdSettime(fd, unix.TFD_TIMER_ABSTIME|unix.TFD_TIMER_CANCEL_ON_SET, &never, nil); err != nil && !errors.Is(err, unix.ECANCELED) {
		return fmt.Errorf("watch the wall clock: %w", err)
	}
	return nil
}

// Run records steps until Close.
func (w *WallClock) Run() error {
	raw, err := w.timer.SyscallConn()
	if err != nil {
		return fmt.Errorf("watch the wall clock: %w", err)
	}
	var expirations [8]byte
	for {
		_, err := w.timer.Read(expirations[:])
		switch {
		case errors.Is(err, os.ErrClosed):
			return nil
		case err != nil && !errors.Is(err, unix.ECANCELED):
			return fmt.Errorf("watch the wall clock: %w", err)
		}
		// Arm before comparing: a step after the comparison cancels the timer again.
		var armed error
		if err := raw.Control(func(fd uintptr) { armed = w.arm(int(fd)) }); err != nil || armed != nil {
			if errors.Is(err, os.ErrClosed) {
				return nil
			}
			return errors.Join(err, armed)
		}
		if err := w.compare(true); err != nil {
			return err
		}
	}
}

// compare records a step if the offset of the clocks has changed. set reports whether the kernel
// has reported a step.
func (w *WallClock) compare(set bool) error {
	now, err := clockOffset()
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	by := now - w.offset
	changed := by.Abs() > clockNoise
	if !changed && (!set || w.early) {
		w.early = w.early && !set
		return nil
	}
	w.early = !set
	w.offset = now
	w.steps = append(w.steps, ClockStep{After: time.Since(w.started), By: by})
	return nil
}

// Steps returns the steps so far, in order.
func (w *WallClock) Steps() ([]ClockStep, error) {
	if err := w.compare(false); err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]ClockStep(nil), w.steps...), nil
}

// Close ends Run.
func (w *WallClock) Close() error { return w.timer.Close() }

// clockOffset returns CLOCK_REALTIME minus CLOCK_MONOTONIC: the shortest of several readings.
func clockOffset() (best time.Duration, err error) {
	shortest := time.Duration(math.MaxInt64)
	for range 8 {
		var before, wall, after unix.Timespec
		if err := errors.Join(unix.ClockGettime(unix.CLOCK_MONOTONIC, &before), unix.ClockGettime(unix.CLOCK_REALTIME, &wall),
			unix.ClockGettime(unix.CLOCK_MONOTONIC, &after)); err != nil {
			return 0, fmt.Errorf("read the clocks: %w", err)
		}
		if took := time.Duration(after.Nano() - before.Nano()); took < shortest {
			shortest, best = took, time.Duration(wall.Nano()-before.Nano())-took/2
		}
	}
	return best, nil
}
