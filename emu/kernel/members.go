package kernel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"testbed/emu/deploy"
)

// DefaultGrace is the default time between SIGTERM and SIGKILL for processes of a testbed.
const DefaultGrace = 5 * time.Second

const (
	// killWait bounds the wait for processes after SIGKILL. A process blocked in the kernel, for
	// example on a disk, ends later or never.
	killWait = 10 * time.Second
	// lockWait bounds the wait for a command of Exec that is about to start.
	lockWait = 5 * time.Second
	// scanPoll is the interval between scans for processes.
	scanPoll = 100 * time.Millisecond
)

// lockPins locks a directory of pins, which other users then cannot open. It waits at most the given
// time for other holders, and then returns ErrLeaving.
func lockPins(ctx context.Context, dir string, how int, wait time.Duration) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err = deploy.Private(f, 0o711); err == nil {
		err = deploy.Lock(ctx, f, how, wait)
	}
	if errors.Is(err, deploy.ErrLocked) {
		err = fmt.Errorf("%w: %w", ErrLeaving, err)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// nsID identifies a namespace while it exists.
type nsID struct{ device, inode uint64 }

func idOf(path string) (nsID, error) {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return nsID{}, &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return nsID{st.Dev, st.Ino}, nil
}

// members finds the processes of a testbed: those in its network namespaces, and those in its cgroup,
// which may have left them.
type members struct {
	names  map[nsID]string
	open   []*os.File // keeps the kernel from reusing their IDs
	cgroup string
}

// openMembers opens the namespaces of a testbed. Missing ones are skipped.
func openMembers(s deploy.Scope) (*members, error) {
	m := &members{names: map[nsID]string{}, cgroup: s.Cgroup}
	for _, name := range s.Names {
		path := filepath.Join(s.Pins, name)
		if !isNamespace(path) {
			continue // not pinned yet, or no longer
		}
		f, err := os.Open(path)
		if err == nil {
			m.open = append(m.open, f)
			var id nsID
			if id, err = idOf(fmt.Sprintf("/proc/self/fd/%d", f.Fd())); err == nil {
				m.names[id] = name
			}
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, errors.Join(fmt.Errorf("open namespace %q: %w", name, err), m.close())
		}
	}
	return m, nil
}

func (m *members) close() error {
	var errs []error
	for _, f := range m.open {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// host returns the name of the namespace that a process is in; ok is false if it is in none of
// them. A process is in a namespace only with all its threads: this program's threads enter
// namespaces without the process being in them.
func (m *members) host(pid int) (name string, ok bool) {
	dir := fmt.Sprintf("/proc/%d", pid)
	// This check suffices for most processes. It fails for a process whose first thread has ended
	// and for processes of other users.
	if id, err := idOf(dir + "/ns/net"); err == nil && m.names[id] == "" {
		return "", false
	}
	threads, err := os.ReadDir(dir + "/task")
	if err != nil {
		return "", false // it has ended
	}
	for _, t := range threads {
		id, err := idOf(dir + "/task/" + t.Name() + "/ns/net")
		if err != nil {
			continue // it has ended
		}
		if m.names[id] == "" {
			return "", false
		}
		name = m.names[id]
	}
	return name, name != ""
}

// list returns the processes of the testbed, ordered by process ID, and each initProcess of Exec, which
// ends by itself after the others.
func (m *members) list() (found, inits []deploy.Process, err error) {
	hosts, err := cgroupProcesses(m.cgroup)
	if err != nil || len(m.names)+len(hosts) == 0 {
		return nil, nil, err
	}
	maps.DeleteFunc(hosts, func(_ int, host string) bool { return host == "" }) // they wait for commands
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, nil, fmt.Errorf("list processes: %w", err)
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if host, ok := m.host(pid); ok {
				hosts[pid] = host
			}
		}
	}
	for _, pid := range slices.Sorted(maps.Keys(hosts)) {
		switch p := deploy.Describe(pid, hosts[pid]); {
		case p.Started.IsZero(): // it has ended
		case isInit(pid):
			inits = append(inits, p)
		default:
			found = append(found, p)
		}
	}
	return found, inits, nil
}

// isInit reports whether a process is an initProcess.
func isInit(pid int) bool {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil || !strings.HasPrefix(string(status), "Name:\t"+initName+"\n") {
		return false
	}
	_, after, _ := strings.Cut(string(status), "\nNSpid:")
	ids, _, _ := strings.Cut(after, "\n")
	return strings.HasSuffix(ids, "\t1")
}

// joinProcesses formats processes for an error.
func joinProcesses(found []deploy.Process) string {
	var each []string
	for _, p := range found {
		each = append(each, p.String())
	}
	return strings.Join(each, ", ")
}

// end ends the processes of the testbed and returns those that it signalled. Each gets SIGTERM,
// and also SIGHUP if it ignores SIGTERM, as interactive shells do. Processes that remain after
// grace get SIGKILL.
func (m *members) end(ctx context.Context, grace time.Duration) (ended []deploy.Process, err error) {
	signalled := map[int]int{} // pidfd by process id
	defer func() {
		for _, fd := range signalled {
			err = errors.Join(err, unix.Close(fd))
		}
	}()
	start := time.Now()
	for {
		found, inits, err := m.list()
		if err != nil || len(found)+len(inits) == 0 {
			return ended, err
		}
		since := time.Since(start)
		if i := slices.IndexFunc(found, func(p deploy.Process) bool { return p.PID == os.Getpid() }); i >= 0 {
			return ended, fmt.Errorf("this process is in the testbed's own namespace %q: leave it first, and run this outside", found[i].Host)
		}
		others := len(found) > 0
		if !others {
			found = inits // what they wait for is in no namespace of the testbed
		}
		if since > grace+killWait {
			return ended, fmt.Errorf("%w %v after SIGKILL: %v", errStillRunning, killWait, joinProcesses(found))
		}
		if ctx.Err() != nil {
			return ended, fmt.Errorf("%w before this was cancelled: %v: %w", errStillRunning, joinProcesses(found), context.Cause(ctx))
		}
		for _, p := range found {
			fd, known := signalled[p.PID]
			if known && unix.PidfdSendSignal(fd, 0, nil, 0) != nil { // the process ID now belongs to another process
				delete(signalled, p.PID)
				known = false
				_ = unix.Close(fd) // no data to lose
			}
			if !known {
				if fd, err = unix.PidfdOpen(p.PID, 0); errors.Is(err, unix.ESRCH) {
					continue
				} else if err != nil {
					return ended, fmt.Errorf("open process %d: %w", p.PID, err)
				}
				signalled[p.PID] = fd
				// The process ID may have been another's when the namespace was checked. A process
				// that is in it now has kept the ID since the pidfd was opened.
				if _, in := m.host(p.PID); !in && !inCgroup(p.PID, m.cgroup) {
					continue
				}
				if others {
					ended = append(ended, p)
				}
			}
			signals := []unix.Signal{unix.SIGKILL}
			if since < grace && others {
				if known {
					continue
				}
				signals = []unix.Signal{unix.SIGTERM, unix.SIGCONT} // a stopped process ends once it continues
				if deploy.Ignores(p.PID, unix.SIGTERM) {
					signals = append(signals, unix.SIGHUP)
				}
			}
			for _, s := range signals {
				if err := unix.PidfdSendSignal(fd, s, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
					return ended, fmt.Errorf("end %v: %w", p, err)
				}
			}
		}
		waitAny(signalled, min(scanPoll, max(time.Millisecond, grace-since)))
	}
}

var errStillRunning = errors.New("processes of the testbed have not ended")

// waitAny waits until one of the processes has ended, at most for the given time. It closes the
// pidfds of those that have ended.
func waitAny(fds map[int]int, wait time.Duration) {
	var polled []unix.PollFd
	for _, fd := range fds {
		polled = append(polled, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	if n, err := unix.Poll(polled, int(wait.Milliseconds())); n <= 0 || err != nil {
		return // timeout or signal: the caller lists the processes again
	}
	for _, p := range polled {
		if p.Revents == 0 {
			continue
		}
		for pid, fd := range fds {
			if fd == int(p.Fd) {
				delete(fds, pid)
				_ = unix.Close(fd) // no data to lose
			}
		}
	}
}

// Processes returns the processes of a testbed, ordered by process ID. A process counts if all its
// threads are in its namespaces, or if Exec started it or one of its ancestors. Processes that this
// process may not inspect are omitted; root may inspect all.
func Processes(s deploy.Scope) ([]deploy.Process, error) {
	m, err := openMembers(s)
	if err != nil {
		return nil, err
	}
	found, _, err := m.list()
	return found, errors.Join(err, m.close())
}
