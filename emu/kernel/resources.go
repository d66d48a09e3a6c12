package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"testbed/topo/units"
)

// Resources are amounts of limited resources of a machine.
type Resources struct {
	Files      int         `json:"files"`      // open file descriptors of this process
	Namespaces int         `json:"namespaces"` // network namespaces, each with a mount
	Threads    int         `json:"threads"`    // of this process
	Loops      int         `json:"loop_devices"`
	Memory     units.Bytes `json:"memory"` // of the kernel and of this process
}

// Plus returns the sum of two amounts.
func (r Resources) Plus(o Resources) Resources {
	return Resources{r.Files + o.Files, r.Namespaces + o.Namespaces, r.Threads + o.Threads, r.Loops + o.Loops, r.Memory + o.Memory}
}

// Most returns the larger of each resource.
func (r Resources) Most(o Resources) Resources {
	return Resources{max(r.Files, o.Files), max(r.Namespaces, o.Namespaces), max(r.Threads, o.Threads), max(r.Loops, o.Loops), max(r.Memory, o.Memory)}
}

// Resource use of a fabric, measured on Linux 6.18 with 2,200 namespaces: see
// TestResourcesOfFabric.
const (
	filesOfBuilder   = 2 // per namespace being built: itself and a netlink socket
	filesOfProbe     = 1 // per namespace, while links are probed: see Probe
	filesOfNamespace = 2 // per open namespace: itself and a netlink socket

	memoryOfNamespace = 280 * units.KiB
	memoryOfLink      = 90 * units.KiB // including both ends and their shapers

	// A process without a fabric: standard streams, the poller, state files; threads of the
	// runtime; the heap.
	filesOfProcess   = 32
	threadsOfProcess = 64
	memoryOfProcess  = 64 * units.MiB
)

// ResourcesOf returns the resources for building a number of namespaces with links between them.
func ResourcesOf(namespaces, links int) Resources {
	mounts := (namespaces + namespacesPerProcfs - 1) / namespacesPerProcfs
	return Resources{
		Files: filesOfProcess + (filesOfBuilder+filesOfProbe)*namespaces + mounts, Namespaces: namespaces, Threads: threadsOfProcess,
		Memory: memoryOfProcess + units.Bytes(namespaces)*memoryOfNamespace + units.Bytes(links)*memoryOfLink,
	}
}

// ResourcesOfOpen returns the resources for keeping a number of namespaces open, with captures of
// the given ring size in some of them.
func ResourcesOfOpen(namespaces, captures int, ring units.Bytes) Resources {
	const (
		filesOfCapture  = 2               // its ring and its file
		memoryOfCapture = 256 * units.KiB // without the ring
	)
	// At most one thread is in each namespace at any time.
	return Resources{Files: namespaces*filesOfNamespace + captures*filesOfCapture, Threads: namespaces, Memory: units.Bytes(captures) * (ringSize(ring) + memoryOfCapture)}
}

// ResourcesOfNotices returns the resources of Notices in a number of namespaces.
func ResourcesOfNotices(namespaces int) Resources {
	const (
		filesOfWatch       = 3             // epoll, eventfd, inotify
		socketsOfNamespace = 2             // rtnetlink, nftables
		memoryOfNotices    = 8 * units.KiB // of names and directories
	)
	return Resources{Files: filesOfWatch + namespaces*(socketsOfNamespace+len(noticeDirs)), Threads: 1, Memory: units.Bytes(namespaces) * memoryOfNotices}
}

// ResourcesOfConnections returns the resources of a number of TCP connections with both ends in
// this process.
func ResourcesOfConnections(n int) Resources {
	const memoryOfEnd = 40 * units.KiB // in the kernel and in the process, without packets in link queues
	return Resources{Files: 2 * n, Memory: units.Bytes(2*n) * memoryOfEnd}
}

// String lists the amounts.
func (r Resources) String() string {
	text := fmt.Sprintf("%d open files, %d network namespaces, %d threads, %.2f GB of memory", r.Files, r.Namespaces, r.Threads, float64(r.Memory)/1e9)
	if r.Loops > 0 {
		text += fmt.Sprintf(", %d loop devices", r.Loops)
	}
	return text
}

// ringSize returns the memory of a capture's ring: a whole number of blocks.
func ringSize(ring units.Bytes) units.Bytes {
	return (ring + ringBlock - 1) / ringBlock * ringBlock
}

// A Limit is the limit of a resource for this process.
type Limit struct {
	Name   string
	Free   int64  // still available
	Max    int64  // the limit itself
	Bytes  bool   // Free and Max are in bytes
	Raise  string // how to raise the limit
	Reason string // if the limit is unknown, the reason; Free and Max are then meaningless
}

func (l Limit) amount(n int64) string {
	if l.Bytes {
		return fmt.Sprintf("%.1f GB", float64(n)/1e9)
	}
	return strconv.FormatInt(n, 10)
}

// unlimited is the Max of a resource without a limit.
const unlimited = 1 << 50

// Limits are the limits of this process and of the machine on Resources.
type Limits struct {
	Files, Namespaces, Mounts, Threads, Loops, Memory Limit
}

// ReadLimits reads the limits. It changes nothing.
func ReadLimits() Limits {
	memory, where, err := AvailableMemory()
	l := Limits{
		Files:      filesLimit(),
		Namespaces: sysctlLimit("network namespaces of a user", "user/max_net_namespaces", "sysctl user.max_net_namespaces", pinnedNamespaces),
		Mounts:     sysctlLimit("mounts", "fs/mount-max", "sysctl fs.mount-max", mounts),
		Threads:    threadsLimit(),
		Loops:      Limit{Name: "loop devices", Free: 1<<20 - 1, Max: 1<<20 - 1, Raise: "use disk.throttle: bucket"}, // minor numbers
		Memory:     Limit{Name: "memory", Free: int64(memory), Max: int64(memory), Bytes: true, Raise: "add memory or raise the limit of the cgroup (" + where + ")"},
	}
	if err != nil {
		l.Memory.Reason = err.Error()
	}
	return l
}

// LackError reports that a machine lacks resources.
type LackError struct {
	What string   // the operation or scenario that needs them
	Lack []string // one line per resource
}

func (e *LackError) Error() string {
	return fmt.Sprintf("%s needs more than this machine has: %s; or use a smaller fabric", e.What, strings.Join(e.Lack, "; "))
}

// Refused marks the error as a refusal: nothing was started.
func (e *LackError) Refused() {}

// Check returns a LackError that names every resource of need that exceeds its limit. Unknown
// limits are ignored.
func (l Limits) Check(what string, need Resources) error {
	e := &LackError{What: what}
	for _, x := range []struct {
		limit Limit
		need  int64
	}{
		{l.Files, int64(need.Files)}, {l.Namespaces, int64(need.Namespaces)}, {l.Mounts, int64(need.Namespaces)}, {l.Threads, int64(need.Threads)},
		{l.Loops, int64(need.Loops)}, {l.Memory, int64(need.Memory)},
	} {
		if x.limit.Reason == "" && x.need > x.limit.Free {
			e.Lack = append(e.Lack, fmt.Sprintf("%s: about %s, of which %s are free (limit %s: %s)", x.limit.Name, x.limit.amount(x.need), x.limit.amount(x.limit.Free), x.limit.amount(x.limit.Max), x.limit.Raise))
		}
	}
	if len(e.Lack) > 0 {
		return e
	}
	return nil
}

// CheckResources raises this process's limit of open files as far as needed and permitted. It
// returns a LackError if need exceeds the machine's resources; what names the operation.
func CheckResources(what string, need Resources) error {
	if err := raiseFiles(uint64(need.Files + openFiles())); err != nil {
		return err
	}
	return ReadLimits().Check(what, need)
}

// raiseFiles raises the soft limit of open files to the hard limit. If n exceeds that and the
// process has the privilege, it raises the hard limit to n. Child processes inherit both.
func raiseFiles(n uint64) error {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return fmt.Errorf("read the limit of open files: %w", err)
	}
	if n > r.Max {
		limit := n
		if machine, err := parameter("fs/nr_open", 0); err == nil {
			limit = min(limit, uint64(machine))
		}
		if unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: limit}) == nil { // fails without the privilege
			return nil
		}
	}
	if r.Cur < r.Max {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: r.Max, Max: r.Max}); err != nil {
			return fmt.Errorf("raise the limit of open files from %d to %d: %w", r.Cur, r.Max, err)
		}
	}
	return nil
}

// openFiles returns the number of open file descriptors of this process.
func openFiles() int {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(entries)
}

func filesLimit() Limit {
	l := Limit{Name: "open files", Raise: "ulimit -n, or LimitNOFILE of the service"}
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		l.Reason = err.Error()
		return l
	}
	l.Max = int64(min(r.Max, unlimited))
	l.Free = l.Max - int64(openFiles())
	// The limit of the whole machine. file-nr has the fields allocated, unused and maximum.
	if used, err := parameter("fs/file-nr", 0); err == nil {
		if limit, err := parameter("fs/file-nr", 2); err == nil && limit-used < l.Free {
			l.Free, l.Max, l.Raise = limit-used, limit, "sysctl fs.file-max"
		}
	}
	return l
}

// threadsLimit returns the lowest of the limits of the machine, the user and the cgroup.
func threadsLimit() Limit {
	l := sysctlLimit("threads", "kernel/threads-max", "sysctl kernel.threads-max", allThreads)
	var r unix.Rlimit
	// This limit does not apply to root.
	if err := unix.Getrlimit(unix.RLIMIT_NPROC, &r); err == nil && os.Geteuid() != 0 && int64(min(r.Max, unlimited)) < l.Free {
		l.Free, l.Max, l.Raise = int64(r.Max), int64(r.Max), "ulimit -u"
	}
	for _, dir := range cgroupDirs("pids") {
		limit, err1 := number(filepath.Join(dir, "pids.max"))
		used, err2 := number(filepath.Join(dir, "pids.current"))
		if err := errors.Join(err1, err2); err == nil && limit-used < l.Free {
			l.Free, l.Max, l.Raise = limit-used, limit, "raise "+filepath.Join(dir, "pids.max")
		}
	}
	return l
}

// sysctlLimit returns the limit in a parameter under /proc/sys. inUse returns the current usage.
func sysctlLimit(name, path, raise string, inUse func() (int64, error)) Limit {
	l := Limit{Name: name, Raise: raise}
	limit, err := parameter(path, 0)
	used, err2 := inUse()
	if err := errors.Join(err, err2); err != nil {
		l.Reason = err.Error()
		return l
	}
	l.Max, l.Free = limit, limit-used
	return l
}

// allThreads counts the threads of the machine.
func allThreads() (int64, error) {
	text, err := os.ReadFile("/proc/loadavg") // the fourth field is running/all
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 4 {
		return 0, fmt.Errorf("/proc/loadavg: %q", text)
	}
	_, all, _ := strings.Cut(fields[3], "/")
	return strconv.ParseInt(all, 10, 64)
}

func mounts() (int64, error) {
	info, err := os.ReadFile("/proc/thread-self/mountinfo")
	return int64(strings.Count(string(info), "\n")), err
}

// pinnedNamespaces counts the network namespaces that are visible to this process: the pinned ones
// and its own.
func pinnedNamespaces() (int64, error) {
	info, err := os.ReadFile("/proc/thread-self/mountinfo")
	return int64(strings.Count(string(info), " - nsfs ")) + 1, err
}

// parameter returns field index of a parameter under /proc/sys.
func parameter(path string, index int) (int64, error) {
	text, err := os.ReadFile("/proc/sys/" + path)
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	if index >= len(fields) {
		return 0, fmt.Errorf("/proc/sys/%s: %q", path, text)
	}
	return strconv.ParseInt(fields[index], 10, 64)
}

// AvailableMemory returns the memory that this process can still allocate: the machine's available
// memory (MemAvailable), or the remainder of a cgroup's limit if that is lower. where names the
// source of the lower value.
func AvailableMemory() (free units.Bytes, where string, err error) {
	return availableMemory("/proc/meminfo", cgroupDirs("memory"))
}

func availableMemory(meminfo string, cgroups []string) (free units.Bytes, where string, err error) {
	text, err := os.ReadFile(meminfo)
	if err != nil {
		return 0, meminfo, err
	}
	found := false
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "MemAvailable:"); ok {
			n, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err != nil {
				return 0, meminfo, fmt.Errorf("%s: %q", meminfo, line)
			}
			free, where, found = units.Bytes(n)*units.KiB, "MemAvailable", true
		}
	}
	if !found {
		return 0, meminfo, fmt.Errorf("%s has no MemAvailable", meminfo)
	}
	for _, dir := range cgroups {
		for _, names := range [][2]string{{"memory.max", "memory.current"}, {"memory.limit_in_bytes", "memory.usage_in_bytes"}} {
			limit, err1 := number(filepath.Join(dir, names[0]))
			used, err2 := number(filepath.Join(dir, names[1]))
			if errors.Join(err1, err2) != nil || limit >= unlimited {
				continue
			}
			// Inactive pages of the page cache can be reclaimed.
			left := max(limit-used+largestStat(filepath.Join(dir, "memory.stat"), "inactive_file", "total_inactive_file"), 0)
			if units.Bytes(left) < free {
				free, where = units.Bytes(left), filepath.Join(dir, names[0])
			}
		}
	}
	return free, where, nil
}

// largestStat returns the largest value of the named lines in a file of names and numbers, or 0 if
// it has none of them.
func largestStat(path string, names ...string) (largest int64) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 2 && slices.Contains(names, fields[0]) {
			if n, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
				largest = max(largest, n)
			}
		}
	}
	return largest
}

// number reads a file that contains one number or "max", for which it returns unlimited.
func number(path string) (int64, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	text := strings.TrimSpace(string(b))
	if text == "max" {
		return unlimited, nil
	}
	return strconv.ParseInt(text, 10, 64)
}

// cgroupDirs returns the directories of this process's cgroup with a controller (version 1 or 2)
// and of its ancestors.
func cgroupDirs(controller string) []string {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil
	}
	var dirs []string
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		kind, option := "cgroup", controller
		switch {
		case parts[1] == "":
			kind, option = "cgroup2", ""
		case !slices.Contains(strings.Split(parts[1], ","), controller):
			continue
		}
		root, err := findMount(kind, option)
		if err != nil || root == "" {
			continue
		}
		for at := filepath.Clean("/" + parts[2]); ; at = filepath.Dir(at) {
			dirs = append(dirs, filepath.Join(root, at))
			if at == "/" {
				break
			}
		}
	}
	return dirs
}
