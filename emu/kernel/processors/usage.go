package processors

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// usage is the processor time used so far by each process in /proc, including kernel
// threads. ksoftirqd is excluded, because it handles packets and timers, which Times counts as
// Softirq.
//
// Unless the kernel accounts for interrupts separately (CONFIG_IRQ_TIME_ACCOUNTING), a process is
// charged for the interrupts that arrive while it runs. In both cases the times equal those of
// getrusage, so they are comparable with Times.Own. The times in /proc/stat are not: they
// exclude softirq, and without that option they are samples taken once per tick.
type usage map[process]charged

// process identifies a process. The kernel reuses process IDs, so the start time is part of it.
type process struct {
	pid   int
	start uint64 // in ticks since boot
}

// charged is the time of all threads of a process, and of the children that it waited for.
type charged struct{ self, children time.Duration }

// maxScans is the maximum number of times that readUsage reads /proc.
const maxScans = 3

// readUsage reads /proc/*/stat. A process that is reaped during the scan may be counted twice,
// or neither there nor in its parent's account. readUsage then repeats the scan, up to three
// scans in total.
func readUsage() (usage, error) {
	for left := maxScans; ; left-- {
		p, err := scanProcesses()
		if err != nil {
			return nil, fmt.Errorf("processor times of processes: %w", err)
		}
		now, err := processIDs()
		if err != nil {
			return nil, fmt.Errorf("processor times of processes: %w", err)
		}
		alive := make(map[int]bool, len(now))
		for _, pid := range now {
			alive[pid] = true
		}
		ended := false
		for id := range p {
			ended = ended || !alive[id.pid]
		}
		if !ended || left == 1 {
			return p, nil
		}
	}
}

// processIDs lists the process IDs in /proc.
func processIDs() ([]int, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var out []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			out = append(out, pid)
		}
	}
	return out, nil
}

func scanProcesses() (usage, error) {
	pids, err := processIDs()
	if err != nil {
		return nil, err
	}
	p := make(usage, len(pids))
	for _, pid := range pids {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrPermission) {
			continue // it has ended, or is hidden from this user
		} else if err != nil {
			return nil, err
		}
		start, c, softirq, err := parseProcess(string(b))
		if err != nil {
			return nil, fmt.Errorf("/proc/%d/stat: %w", pid, err)
		}
		if !softirq {
			p[process{pid, start}] = c
		}
	}
	return p, nil
}

// kernelThread is the flag of kernel threads (PF_KTHREAD).
const kernelThread = 0x00200000

// parseProcess parses /proc/*/stat (proc_pid_stat(5)). softirq reports whether the process is a
// ksoftirqd.
func parseProcess(line string) (start uint64, c charged, softirq bool, err error) {
	from, to := strings.IndexByte(line, '('), strings.LastIndexByte(line, ')') // the name may contain parentheses
	if from < 0 || to < from {
		return 0, c, false, errors.New("no name in parentheses")
	}
	words := strings.Fields(line[to+1:])
	const flags, utime, starttime = 9 - 3, 14 - 3, 22 - 3 // field numbers of the manual; field 3 follows the name
	if len(words) <= starttime {
		return 0, c, false, fmt.Errorf("%d fields, expected %d or more", len(words)+2, starttime+3)
	}
	var n [starttime + 1]uint64
	for _, i := range []int{flags, utime, utime + 1, utime + 2, utime + 3, starttime} {
		if n[i], err = strconv.ParseUint(words[i], 10, 63); err != nil {
			return 0, c, false, err
		}
	}
	c = charged{time.Duration(n[utime]+n[utime+1]) * userTick, time.Duration(n[utime+2]+n[utime+3]) * userTick}
	return n[starttime], c, n[flags]&kernelThread != 0 && strings.HasPrefix(line[from+1:to], "ksoftirqd/"), nil
}

// othersSince returns the processor time that processes other than this one used since the reading
// was. It includes processes that started and ended in between: when a process is reaped, its
// parent is charged for its time and for the time of its children. The time that such a process had
// used before was is subtracted. The time of a process that no other process waits for (SIGCHLD
// ignored) is missing, so the result is a lower bound.
func (p usage) othersSince(was usage) time.Duration {
	var self, children time.Duration
	for id, is := range p {
		if id.pid != os.Getpid() {
			self += is.self - was[id].self
			children += is.children - was[id].children
		}
	}
	for id, w := range was {
		if _, ok := p[id]; !ok {
			children -= w.self + w.children
		}
	}
	return self + max(0, children)
}
