package kernel

import (
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Nice is how this process stands beside others for a processor: -20, before all,
// to 19. It is that of the main thread.
func Nice() (int, error) {
	n, err := niceOf(os.Getpid())
	if err != nil {
		return 0, fmt.Errorf("priority of this process: %w", err)
	}
	return n, nil
}

// SetNice changes it for all threads, those that are to come included. What is
// below what it was needs root, or CAP_SYS_NICE.
func SetNice(nice int) error {
	if nice < -20 || nice > 19 {
		return fmt.Errorf("set priority: nice %d: want -20 to 19", nice)
	}
	// A thread has the priority of the one that began it: after a look that found
	// none with another there will be none.
	for found := true; found; {
		found = false
		threads, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return fmt.Errorf("set priority: %w", err)
		}
		for _, t := range threads {
			id, err := strconv.Atoi(t.Name())
			if err != nil {
				return fmt.Errorf("set priority: thread %q: %w", t.Name(), err)
			}
			now, err := niceOf(id)
			if err == nil && now != nice {
				found = true
				err = unix.Setpriority(unix.PRIO_PROCESS, id, nice)
			}
			if err != nil && !errors.Is(err, unix.ESRCH) { // it has ended
				return fmt.Errorf("set priority to nice %d: %w%s", nice, err, privilege(err))
			}
		}
	}
	return nil
}

func niceOf(thread int) (int, error) {
	n, err := unix.Getpriority(unix.PRIO_PROCESS, thread)
	return 20 - n, err // the kernel's answer is never negative
}
