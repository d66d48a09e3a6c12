package deploy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"testbed/results/safefile"
)

const (
	// lockWait bounds the wait for a lock that is held for moments only.
	lockWait = 10 * time.Second
	// dyingWait bounds the wait for a killed process, which has its locks until the kernel has
	// closed its files.
	dyingWait = 5 * time.Second
	// lockNotice is the wait after which OnWait is called.
	lockNotice = time.Second
	// dyingPoll is the interval between looks at a killed process.
	dyingPoll = 10 * time.Millisecond
)

// ErrLocked is wrapped by the error of Lock if another process has the lock.
var ErrLocked = errors.New("locked")

type waitKey struct{}

// OnWait returns a context whose waits for locks call notice with a line about each lock that
// another process holds for more than a second.
func OnWait(ctx context.Context, notice func(text string)) context.Context {
	return context.WithValue(ctx, waitKey{}, notice)
}

// Lock locks a file or directory with flock(2) until f is closed; how is syscall.LOCK_EX or
// LOCK_SH. It waits for other holders until the given time has passed or ctx ends. Those who wait get
// the lock in turn, as the kernel has their queue (a signal costs a place). After an error the caller
// must close f. Child processes do not inherit the lock.
func Lock(ctx context.Context, f *os.File, how int, wait time.Duration) error {
	failed := func(err error) error { return &fs.PathError{Op: "lock", Path: f.Name(), Err: err} }
	free, err := tryLock(f, how)
	if free {
		return nil
	}
	if err != nil {
		return failed(err)
	}
	// A lock that comes too late is released when the last descriptor of the open file is closed.
	fd, _, failure := syscall.Syscall(syscall.SYS_FCNTL, f.Fd(), syscall.F_DUPFD_CLOEXEC, 0)
	if failure != 0 {
		return failed(failure)
	}
	locked := make(chan error, 1)
	go func() {
		err := error(syscall.EINTR)
		for err == syscall.EINTR {
			err = syscall.Flock(int(fd), how)
		}
		locked <- errors.Join(err, syscall.Close(int(fd)))
	}()
	long, end := time.After(lockNotice), time.After(wait)
	for {
		select {
		case err := <-locked:
			if err != nil {
				return failed(err)
			}
			return nil
		case <-long:
			if notice, ok := ctx.Value(waitKey{}).(func(string)); ok {
				notice(fmt.Sprintf("waiting at most %v: %s is locked by %s", wait, f.Name(), holderOf(f)))
			}
		case <-end:
			return fmt.Errorf("%s: %w by %s", f.Name(), ErrLocked, holderOf(f))
		case <-ctx.Done():
			return fmt.Errorf("%s: %w by %s: %w", f.Name(), ErrLocked, holderOf(f), context.Cause(ctx))
		}
	}
}

// tryLock locks f until f is closed, if it is free. Child processes do not inherit the lock.
func tryLock(f *os.File, how int) (free bool, err error) {
	err = syscall.Flock(int(f.Fd()), how|syscall.LOCK_NB)
	if err == syscall.EWOULDBLOCK || err == syscall.EINTR {
		return false, nil
	}
	return err == nil, err
}

// sleep waits for some time. The error is the cause of the end of ctx.
func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// openLock opens the file of a lock, which only its owner can open: any user who can open a file
// can lock it.
func openLock(path string, flags int) (*os.File, error) {
	f, err := safefile.OpenPrivate(path, flags)
	if err != nil {
		return nil, err
	}
	if err := Private(f, 0o600); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Private removes all permissions of a file or directory that are not in perm.
func Private(f *os.File, perm fs.FileMode) error {
	info, err := f.Stat()
	if err == nil && info.Mode().Perm()&^perm != 0 {
		err = f.Chmod(info.Mode().Perm() & perm)
	}
	return err
}

// Holder is the process that has a lock. PID is 0 if it cannot be determined.
type Holder struct{ Process }

func (h Holder) String() string {
	if h.PID == 0 {
		return "a process that is not in this PID namespace"
	}
	return h.Process.String()
}

func holderOf(f *os.File) Holder {
	info, err := f.Stat()
	if err != nil {
		return Holder{}
	}
	h, _ := findHolder(info)
	return h
}

// findHolder returns the process that locked a file, by /proc/locks.
func findHolder(info fs.FileInfo) (h Holder, ok bool) {
	st, isStat := info.Sys().(*syscall.Stat_t)
	locks, err := safefile.Open("/proc/locks")
	if err != nil || !isStat {
		return Holder{}, false
	}
	defer locks.Close() // only read
	dev := uint64(st.Dev)
	major, minor := dev>>8&0xfff|dev>>32&^0xfff, dev&0xff|dev>>12&^0xff // makedev(3)
	file := fmt.Sprintf("%02x:%02x:%d", major, minor, st.Ino)
	for lines := bufio.NewScanner(locks); lines.Scan(); {
		f := strings.Fields(lines.Text()) // 1: FLOCK ADVISORY WRITE pid file start end
		if len(f) < 6 || f[1] != "FLOCK" || f[5] != file {
			continue
		}
		if pid, err := strconv.Atoi(f[4]); err == nil {
			return Holder{Describe(pid, "")}, true
		}
	}
	return Holder{}, false
}

// isDying reports whether a process has been killed, or has ended, and is not gone. A thread that
// ends by itself is no sign of it, so all threads count.
func isDying(pid int) bool {
	const looks, between = 10, 2 * time.Millisecond
	for range looks {
		ending, all := endingThreads(pid)
		if ending == all {
			return true
		}
		if ending == 0 {
			return false
		}
		time.Sleep(between)
	}
	return false
}

func endingThreads(pid int) (ending, all int) {
	const flagExiting = 0x4 // PF_EXITING of the kernel
	dir := fmt.Sprintf("/proc/%d/task/", pid)
	threads, err := os.ReadDir(dir)
	if err != nil {
		return 0, 0
	}
	for _, t := range threads {
		_, fields, err := procStat(dir + t.Name())
		if err != nil {
			continue // gone
		}
		flags, err := strconv.ParseUint(fields[statFlags], 10, 64)
		killed := SignalMask(dir+t.Name(), "SigPnd") | SignalMask(dir+t.Name(), "ShdPnd")
		all++
		switch {
		case fields[statState] == "Z", fields[statState] == "X",
			err == nil && flags&flagExiting != 0,
			killed>>(syscall.SIGKILL-1)&1 == 1:
			ending++
		}
	}
	return ending, all
}
