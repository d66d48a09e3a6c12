package kernel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ProcessCgroup returns the directory of the cgroup for the processes of a new testbed, which Exec
// creates: in the hierarchy of version 2 or, if that cannot be written, in one of version 1. It is
// "" if there is none: down then does not find processes in namespaces made inside a host.
func ProcessCgroup(id string) string {
	for _, h := range []struct{ kind, option string }{{"cgroup2", ""}, {"cgroup", "freezer"}, {"cgroup", "pids"}} {
		root, err := findMount(h.kind, h.option)
		if err == nil && root != "" && checkCgroup(root) == nil && unix.Access(root, unix.W_OK) == nil {
			return filepath.Join(root, fmt.Sprintf("testbed-%s-%d-%x", id, os.Getpid(), time.Now().UnixNano()))
		}
	}
	return ""
}

// doors lead into a testbed's cgroup. They are opened before it is read-only. The zero value leads
// nowhere.
type doors struct {
	host    *os.File // cgroup.procs of the part of a host
	waiting *os.File // and of the processes that wait for commands
	// dir is the directory of the host's part in version 2, in which a process can be started. To
	// move one takes some milliseconds.
	dir *os.File
}

// openDoors makes the parts of a testbed's cgroup, unless that is "".
func openDoors(cgroup, host string) (d doors, err error) {
	if cgroup == "" {
		return d, nil
	}
	path := filepath.Join(cgroup, host)
	var st unix.Statfs_t
	if err = checkCgroup(filepath.Dir(cgroup)); err == nil {
		err = errors.Join(os.MkdirAll(path, 0o755), unix.Statfs(filepath.Dir(cgroup), &st))
	}
	if err != nil {
		return d, fmt.Errorf("create cgroup %s: %w (is this another mount namespace than that of \"testbed up\"?)", path, err)
	}
	open := func(path string, flags int) *os.File {
		f, openErr := os.OpenFile(path, flags, 0)
		err = errors.Join(err, openErr)
		return f
	}
	d.host = open(filepath.Join(path, "cgroup.procs"), os.O_WRONLY)
	d.waiting = open(filepath.Join(cgroup, "cgroup.procs"), os.O_WRONLY)
	if st.Type == unix.CGROUP2_SUPER_MAGIC {
		d.dir = open(path, unix.O_PATH|unix.O_DIRECTORY)
	}
	return d, err
}

func (d doors) close() {
	for _, f := range []*os.File{d.host, d.waiting, d.dir} {
		_ = f.Close() // nil for a door that is not open; there is nothing to flush
	}
}

// join moves this process through a door, unless that is nil.
func join(door *os.File) error {
	if door == nil {
		return nil
	}
	if _, err := door.WriteString("0"); err != nil {
		return fmt.Errorf("enter the testbed's cgroup: %w", err)
	}
	return nil
}

// cgroupProcesses returns the processes in a testbed's cgroup with their hosts, "" for those that
// wait for commands.
func cgroupProcesses(cgroup string) (map[int]string, error) {
	found := map[int]string{}
	if cgroup == "" {
		return found, nil
	}
	err := filepath.WalkDir(cgroup, func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // never made, or removed
		}
		if err != nil || !e.IsDir() {
			return err
		}
		procs, err := os.ReadFile(filepath.Join(path, "cgroup.procs"))
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
			return nil
		}
		host, _ := filepath.Rel(cgroup, path) // path is below cgroup
		host, _, _ = strings.Cut(host, "/")   // a cgroup that a command made is its host's
		for _, id := range strings.Fields(string(procs)) {
			if pid, err := strconv.Atoi(id); err == nil && pid > 0 { // 0 is outside this PID namespace
				found[pid] = strings.TrimPrefix(host, ".")
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the processes of cgroup %s: %w", cgroup, err)
	}
	return found, nil
}

// cgroupSettle is the time in which processes that wait for commands end after the commands.
const cgroupSettle = time.Second

// endCgroup kills what is left in a testbed's cgroup and removes it.
func endCgroup(ctx context.Context, cgroup string) error {
	if cgroup == "" {
		return nil
	}
	for start := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		left, err := cgroupProcesses(cgroup)
		if err != nil {
			return err
		}
		if len(left) == 0 {
			return removeCgroups(ctx, cgroup)
		}
		since := time.Since(start)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("%w before this was cancelled: %d in cgroup %s: %w", errStillRunning, len(left), cgroup, context.Cause(ctx))
		case since > cgroupSettle+killWait:
			return fmt.Errorf("%w %v after SIGKILL: %d in cgroup %s", errStillRunning, killWait, len(left), cgroup)
		case since > cgroupSettle:
			if err := killCgroup(cgroup, left); err != nil {
				return err
			}
		}
	}
}

// killCgroup sends SIGKILL to all processes in a cgroup. Where the kernel has no cgroup.kill (before
// Linux 5.14, and cgroup version 1), it is called until none is left.
func killCgroup(cgroup string, left map[int]string) error {
	err := writeControl(filepath.Join(cgroup, "cgroup.kill"), "1")
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for pid := range left {
		fd, err := unix.PidfdOpen(pid, 0)
		if errors.Is(err, unix.ESRCH) {
			continue
		} else if err != nil {
			return fmt.Errorf("open process %d: %w", pid, err)
		}
		if inCgroup(pid, cgroup) { // the process ID may have been another's before
			err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		}
		_ = unix.Close(fd) // no data to lose
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("end process %d: %w", pid, err)
		}
	}
	return nil
}

func inCgroup(pid int, cgroup string) bool {
	of, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil || cgroup == "" {
		return false
	}
	for line := range strings.Lines(string(of)) { // id:controllers:path; the name is unique
		if strings.Contains(strings.TrimSpace(line)+"/", "/"+filepath.Base(cgroup)+"/") {
			return true
		}
	}
	return false
}

// removeCgroups removes an empty cgroup with those below it.
func removeCgroups(ctx context.Context, cgroup string) error {
	entries, err := os.ReadDir(cgroup)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := removeCgroups(ctx, filepath.Join(cgroup, e.Name())); err != nil {
				return err
			}
		}
	}
	return removeCgroup(ctx, cgroup)
}
