package kernel

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"github.com/gopacket/gopacket/afpacket"
	"golang.org/x/sys/unix"

	"testbed/topo/units"
)

// Recommended amounts of each resource.
const (
	recommendedFiles      = 16384     // open files: several per host and flow
	recommendedNamespaces = 2048      // hosts and switches
	recommendedThreads    = 4096      // on the whole machine
	recommendedMemory     = units.GB  // 1,000 hosts without captures
	recommendedSpace      = units.GiB // free disk space for captures and emulated disks
	recommendedBuffer     = units.MB  // of a TCP socket: 1 Gbps for 8 ms
	recommendedBacklog    = 1000      // packets between the two ends of a veth: the kernel's default
	busyLoad              = 0.5       // runnable processes per processor
)

// errorOr returns the detail of a fact: the error if there is one, otherwise the value found.
func errorOr(err error, found string) string {
	if err != nil {
		return err.Error()
	}
	return found
}

// findMount returns the mount point of a file system of the given kind and, unless option is empty,
// with that mount option. It returns "" if there is none.
func findMount(kind, option string) (string, error) {
	info, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return "", err
	}
	return parseMountInfo(string(info), kind, option), nil
}

// parseMountInfo finds the mount point in the text of /proc/thread-self/mountinfo (proc_pid_mountinfo(5)).
func parseMountInfo(info, kind, option string) string {
	for line := range strings.Lines(info) {
		before, after, ok := strings.Cut(line, " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if ok && len(left) > 4 && len(right) > 2 && right[0] == kind && (option == "" || slices.Contains(strings.Split(right[2], ","), option)) {
			return left[4]
		}
	}
	return ""
}

func load() Fact {
	f := Fact{Name: "idle", Cost: "other programs take processor time from links and captures: stop them, or expect degraded verdicts"}
	text, err := os.ReadFile("/proc/loadavg")
	var one float64
	if err == nil {
		_, err = fmt.Sscan(string(text), &one)
	}
	if err != nil {
		f.Unknown, f.Detail = true, err.Error()
		return f
	}
	f.Have = one <= busyLoad*float64(runtime.NumCPU())
	f.Detail = fmt.Sprintf("%.2f processes were running or runnable in the last minute", one)
	return f
}

func captureFact() Fact {
	return Fact{Name: "AF_PACKET ring (TPACKET_V3)", Needed: true, Cost: "no captures, so no figures", Detail: untested, Unknown: true}
}

func testCapture(f *Fact) {
	ring, err := afpacket.NewTPacket(afpacket.TPacketVersion3, afpacket.OptBlockSize(ringBlock), afpacket.OptFrameSize(2048), afpacket.OptNumBlocks(4))
	f.Unknown, f.Have, f.Detail = false, err == nil, errorOr(err, "opened one with kernel time stamps; veth has no hardware time stamps")
	if err == nil {
		ring.Close()
	}
}

// bpfFact creates a map with one entry and closes it at once.
func bpfFact() Fact {
	f := Fact{Name: "eBPF", Cost: "nothing: a testbed measures by captures", Detail: "created a map"}
	attr := struct{ kind, key, value, entries uint32 }{unix.BPF_MAP_TYPE_ARRAY, 4, 4, 1}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_MAP_CREATE, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	switch {
	case errno == unix.EPERM:
		f.Unknown, f.Detail = true, errno.Error()+": needs root"
	case errno != 0:
		f.Detail = errno.Error()
	default:
		f.Have = true
		_ = unix.Close(int(fd)) // no data to lose
	}
	return f
}

func typeInformation() Fact {
	_, err := os.Stat("/sys/kernel/btf/vmlinux")
	return Fact{Name: "eBPF type information", Have: err == nil, Detail: errorOr(err, "/sys/kernel/btf/vmlinux"), Cost: "nothing: a testbed measures by captures"}
}

func loopDevices() Fact {
	f := Fact{Name: "loop devices", Cost: "foreign programs cannot have a disk per host; a testbed's own hosts do not need it", Detail: "/dev/loop-control opens"}
	file, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err == nil {
		err = file.Close()
		f.Have = err == nil
	}
	f.Unknown = errors.Is(err, fs.ErrPermission)
	f.Detail = errorOr(err, f.Detail)
	return f
}

// FreeSpace returns the free space in the file system of a directory. The directory need not exist
// yet.
func FreeSpace(dir string) (units.Bytes, error) {
	_, free, err := freeSpace(dir)
	return free, err
}

// Existing returns the absolute path of dir, or of its nearest existing parent.
func Existing(dir string) (string, error) {
	at, err := filepath.Abs(dir)
	for err == nil {
		if _, err2 := os.Stat(at); err2 == nil || at == "/" || !errors.Is(err2, fs.ErrNotExist) {
			break
		}
		at = filepath.Dir(at)
	}
	return at, err
}

// freeSpace returns the free space and the directory Existing(dir).
func freeSpace(dir string) (at string, free units.Bytes, err error) {
	at, err = Existing(dir)
	var st unix.Statfs_t
	if err == nil {
		err = unix.Statfs(at, &st)
	}
	return at, units.Bytes(min(st.Bavail, 1<<40) * uint64(st.Bsize)), err
}

// directory returns facts about dir, or about its nearest existing parent, as a place for files.
func directory(dir string) []Fact {
	direct := Fact{Name: "direct I/O in " + dir, Cost: "emulated disks there write with O_DSYNC: slower on disks that honour it"}
	space := Fact{Name: "space in " + dir, Cost: "captures and emulated disks may fill it, and the run fails: keep runs elsewhere"}
	at, free, err := freeSpace(dir)
	if err != nil {
		direct.Unknown, space.Unknown, direct.Detail, space.Detail = true, true, err.Error(), err.Error()
		return []Fact{direct, space}
	}
	space.Have, space.Detail = free >= recommendedSpace, fmt.Sprintf("%.1f GB free, at least %.1f recommended", float64(free)/1e9, float64(recommendedSpace)/1e9)
	err = writeDirect(at)
	direct.Have = err == nil
	direct.Unknown = errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS)
	direct.Detail = errorOr(err, "wrote 4096 bytes, bypassing the page cache")
	return []Fact{direct, space}
}

// writeDirect writes a block with direct I/O to an unnamed file (O_TMPFILE) or, if the file system
// does not support that, to a temporary file that it removes.
func writeDirect(dir string) (err error) {
	const block = 4096
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0o600)
	if errors.Is(err, unix.EOPNOTSUPP) {
		var f *os.File
		if f, err = os.CreateTemp(dir, ".doctor-"); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
		fd, err = unix.Open(f.Name(), unix.O_RDWR|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	}
	if err != nil {
		return fmt.Errorf("open a file in %s for direct I/O: %w", dir, err)
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	memory, err := unix.Mmap(-1, 0, block, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // aligned
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Munmap(memory)) }()
	if _, err := unix.Pwrite(fd, memory, 0); err != nil {
		return fmt.Errorf("direct write in %s: %w", dir, err)
	}
	return nil
}

func clockSource() Fact {
	f := Fact{Name: "clock source", Cost: "each reading of the clock takes 1 µs or more: time stamps cost processor time"}
	const dir = "/sys/devices/system/clocksource/clocksource0/"
	current, err := os.ReadFile(dir + "current_clocksource")
	available, err2 := os.ReadFile(dir + "available_clocksource")
	if err = errors.Join(err, err2); err != nil {
		f.Unknown, f.Detail = true, err.Error()
		return f
	}
	const readings = 1000
	start := time.Now()
	for range readings {
		_ = time.Now()
	}
	each := time.Since(start) / readings
	f.Have = each < time.Microsecond
	f.Detail = fmt.Sprintf("%s (available: %s): %v per reading", strings.TrimSpace(string(current)), strings.TrimSpace(string(available)), each)
	return f
}

func resolution() Fact {
	f := Fact{Name: "high-resolution timers", Needed: true, Cost: "shapers send only once per tick of several milliseconds: measurements are meaningless"}
	var r unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC, &r); err != nil {
		f.Unknown, f.Needed, f.Detail = true, false, err.Error()
		return f
	}
	f.Have, f.Detail = r.Nano() <= 1000, fmt.Sprintf("timer resolution is %v", time.Duration(r.Nano()))
	return f
}

// ticks returns a fact about the kernel's HZ, if its configuration is readable.
func ticks() Fact {
	f := Fact{Name: "HZ of 250 or more", Cost: "the kernel's disk throttles let bytes through in larger portions"}
	hz, where, err := kernelOption("CONFIG_HZ")
	n, err2 := strconv.Atoi(hz)
	if err = errors.Join(err, err2); err != nil {
		f.Unknown, f.Detail = true, "no configuration of this kernel is readable in /boot or /proc"
		return f
	}
	f.Have, f.Detail = n >= 250, hz+", from "+where
	return f
}

func kernelOption(name string) (value, where string, err error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", "", err
	}
	for _, path := range []string{"/proc/config.gz", "/boot/config-" + unix.ByteSliceToString(u.Release[:])} {
		b, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		var r io.Reader = bytes.NewReader(b)
		if strings.HasSuffix(path, ".gz") {
			if r, err = gzip.NewReader(r); err != nil {
				return "", path, err
			}
		}
		lines := bufio.NewScanner(r)
		for lines.Scan() {
			if value, ok := strings.CutPrefix(lines.Text(), name+"="); ok {
				return value, path, nil
			}
		}
		return "", path, errors.Join(lines.Err(), fmt.Errorf("%s has no %s", path, name))
	}
	return "", "", fs.ErrNotExist
}

// limits returns facts about the limits of this process and of the machine.
func limits() []Fact {
	limit := func(l Limit, recommended int64, cost string) Fact {
		f := Fact{Name: l.Name, Cost: cost + ": " + l.Raise, Have: l.Free >= recommended}
		f.Detail = fmt.Sprintf("%s of %s free, at least %s recommended", l.amount(l.Free), l.amount(l.Max), l.amount(recommended))
		if l.Reason != "" {
			f.Have, f.Unknown, f.Detail = false, true, l.Reason
		}
		return f
	}
	const refused = "large fabrics are refused"
	l := ReadLimits()
	return []Fact{
		limit(l.Files, recommendedFiles, refused),
		limit(l.Memory, int64(recommendedMemory), refused+", and so are large traces"),
		limit(l.Namespaces, recommendedNamespaces, refused),
		limit(l.Mounts, recommendedNamespaces, refused),
		limit(l.Threads, recommendedThreads, refused),
		lockedMemory(),
	}
}

func lockedMemory() Fact {
	f := Fact{Name: "locked memory", Cost: "nothing since Linux 5.11; earlier kernels charge eBPF maps to it"}
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err != nil {
		f.Unknown, f.Detail = true, err.Error()
		return f
	}
	f.Have, f.Detail = r.Max >= 64<<20, fmt.Sprintf("at most %d bytes", r.Max)
	if r.Max == unix.RLIM_INFINITY {
		f.Detail = "unlimited"
	}
	return f
}

// parameters returns facts about sysctls of the whole machine. It only reads them.
func parameters() []Fact {
	return []Fact{
		atLeast("tcp_rmem, at most", "net/ipv4/tcp_rmem", 2, int64(recommendedBuffer), "receive windows are too small to fill fast links with deep queues"),
		atLeast("tcp_wmem, at most", "net/ipv4/tcp_wmem", 2, int64(recommendedBuffer), "send buffers are too small to fill fast links with deep queues"),
		atLeast("rmem_max", "net/core/rmem_max", 0, 212992, "without root, receive buffers of sockets cannot be larger; root may exceed it"),
		atLeast("wmem_max", "net/core/wmem_max", 0, 212992, "without root, send buffers of sockets cannot be larger; root may exceed it"),
		atLeast("netdev_max_backlog", "net/core/netdev_max_backlog", 0, recommendedBacklog, "an overloaded processor drops packets between the ends of a link, outside its queue"),
		atLeast("somaxconn", "net/core/somaxconn", 0, 128, "many simultaneous connections to one host are refused and retried a second later"),
	}
}

// atLeast returns a fact about field index of a parameter under /proc/sys.
func atLeast(name, path string, index int, recommended int64, cost string) Fact {
	f := Fact{Name: name, Cost: cost}
	text, err := os.ReadFile("/proc/sys/" + path)
	fields := strings.Fields(string(text))
	var n int64
	if err == nil && index >= len(fields) {
		err = fmt.Errorf("/proc/sys/%s: %q", path, text)
	}
	if err == nil {
		n, err = strconv.ParseInt(fields[index], 10, 64)
	}
	if err != nil {
		f.Unknown, f.Detail = true, err.Error()
		return f
	}
	f.Have, f.Detail = n >= recommended, fmt.Sprintf("%d, at least %d recommended", n, recommended)
	return f
}
