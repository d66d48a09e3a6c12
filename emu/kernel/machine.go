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

// What is enough of each thing that a machine has more or less of.
const (
	enoughFiles      = 16384     // open files: some for each host and flow
	enoughNamespaces = 2048      // hosts and switches
	enoughThreads    = 4096      // of the machine
	enoughSpace      = units.GiB // on the disk with captures and emulated disks
	enoughBuffer     = units.MB  // of a TCP socket: 1 Gbps for 8 ms
	enoughBacklog    = 1000      // packets between two ends of a veth: the kernel's default
	busyLoad         = 0.5       // processes that want a processor, for each processor
)

// missing is the detail of a fact: what was found, or why nothing was.
func missing(err error, found string) string {
	if err != nil {
		return err.Error()
	}
	return found
}

// mounted is where a file system of the given kind, and with the given option
// if there is one, is mounted; empty where it is not.
func mounted(kind, option string) (string, error) {
	info, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return "", err
	}
	return mountPoint(string(info), kind, option), nil
}

// mountPoint reads the lines that proc_pid_mountinfo(5) describes.
func mountPoint(info, kind, option string) string {
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
	f := Fact{Name: "idle", Cost: "what else runs takes time from links and captures: stop it, or expect degraded verdicts"}
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
	f.Detail = fmt.Sprintf("%.2f processes ran or wanted to in the last minute", one)
	return f
}

func captureFact() Fact {
	return Fact{Name: "AF_PACKET ring (TPACKET_V3)", Needed: true, Cost: "no captures, so no figures", Detail: untried, Unknown: true}
}

func tryCapture(f *Fact) {
	ring, err := afpacket.NewTPacket(afpacket.TPacketVersion3, afpacket.OptBlockSize(ringBlock), afpacket.OptFrameSize(2048), afpacket.OptNumBlocks(4))
	f.Unknown, f.Have, f.Detail = false, err == nil, missing(err, "opened one, stamped by the kernel's clock; veth has no hardware stamps")
	if err == nil {
		ring.Close()
	}
}

// bpfFact makes a map of one number, which is gone at once.
func bpfFact() Fact {
	f := Fact{Name: "eBPF", Cost: "nothing: a testbed measures by captures", Detail: "made a map"}
	attr := struct{ kind, key, value, entries uint32 }{unix.BPF_MAP_TYPE_ARRAY, 4, 4, 1}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_MAP_CREATE, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	switch {
	case errno == unix.EPERM:
		f.Unknown, f.Detail = true, errno.Error()+": needs root"
	case errno != 0:
		f.Detail = errno.Error()
	default:
		f.Have = true
		_ = unix.Close(int(fd)) // holds nothing
	}
	return f
}

func typeInformation() Fact {
	_, err := os.Stat("/sys/kernel/btf/vmlinux")
	return Fact{Name: "eBPF type information", Have: err == nil, Detail: missing(err, "/sys/kernel/btf/vmlinux"), Cost: "nothing: a testbed measures by captures"}
}

func blkio() Fact {
	f := Fact{Name: "cgroup v1 blkio", Cost: "foreign programs' disks are throttled with cgroup v2, or not; a testbed's own hosts do not need it"}
	on, err := mounted("cgroup", "blkio")
	if err != nil || on == "" {
		f.Detail = missing(err, "not mounted")
		return f
	}
	_, err = os.Stat(filepath.Join(on, "blkio.throttle.write_bps_device"))
	f.Have, f.Detail = err == nil, missing(err, on+" throttles bytes a second")
	return f
}

func loopDevices() Fact {
	f := Fact{Name: "loop devices", Cost: "foreign programs cannot be given a disk for each host; a testbed's own hosts do not need it", Detail: "/dev/loop-control opens"}
	file, err := os.OpenFile("/dev/loop-control", os.O_RDWR, 0)
	if err == nil {
		err = file.Close()
		f.Have = err == nil
	}
	f.Unknown = errors.Is(err, fs.ErrPermission)
	f.Detail = missing(err, f.Detail)
	return f
}

// directory tells how dir, or the nearest one above it that exists, serves as a
// place for files.
func directory(dir string) []Fact {
	direct := Fact{Name: "direct I/O in " + dir, Cost: "emulated disks there write with O_DSYNC: slower on disks that do not lie about it"}
	space := Fact{Name: "space in " + dir, Cost: "captures and emulated disks fill it up, and the run fails: keep runs elsewhere"}
	at, err := filepath.Abs(dir)
	for err == nil {
		if _, err2 := os.Stat(at); err2 == nil || at == "/" || !errors.Is(err2, fs.ErrNotExist) {
			break
		}
		at = filepath.Dir(at)
	}
	var st unix.Statfs_t
	if err == nil {
		err = unix.Statfs(at, &st)
	}
	if err != nil {
		direct.Unknown, space.Unknown, direct.Detail, space.Detail = true, true, err.Error(), err.Error()
		return []Fact{direct, space}
	}
	free := units.Bytes(min(st.Bavail, 1<<40) * uint64(st.Bsize))
	space.Have, space.Detail = free >= enoughSpace, fmt.Sprintf("%.1f GB free, want %.1f", float64(free)/1e9, float64(enoughSpace)/1e9)
	err = writeDirect(at)
	direct.Have = err == nil
	direct.Unknown = errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS)
	direct.Detail = missing(err, "wrote 4096 bytes past the page cache")
	return []Fact{direct, space}
}

// writeDirect writes a block past the page cache to a file without a name, or,
// where the file system has no such thing, to one that is removed.
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
	f := Fact{Name: "clock source", Cost: "each look at the clock costs a microsecond or more: time stamps take the processors' time"}
	const dir = "/sys/devices/system/clocksource/clocksource0/"
	current, err := os.ReadFile(dir + "current_clocksource")
	available, err2 := os.ReadFile(dir + "available_clocksource")
	if err = errors.Join(err, err2); err != nil {
		f.Unknown, f.Detail = true, err.Error()
		return f
	}
	const looks = 1000
	start := time.Now()
	for range looks {
		_ = time.Now()
	}
	each := time.Since(start) / looks
	f.Have = each < time.Microsecond
	f.Detail = fmt.Sprintf("%s, of %s: %v a look", strings.TrimSpace(string(current)), strings.TrimSpace(string(available)), each)
	return f
}

func resolution() Fact {
	f := Fact{Name: "high-resolution timers", Needed: true, Cost: "shapers send once a tick of milliseconds: nothing that is measured means anything"}
	var r unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC, &r); err != nil {
		f.Unknown, f.Needed, f.Detail = true, false, err.Error()
		return f
	}
	f.Have, f.Detail = r.Nano() <= 1000, fmt.Sprintf("timers are set to %v", time.Duration(r.Nano()))
	return f
}

// ticks reads the kernel's HZ where its configuration can be read.
func ticks() Fact {
	f := Fact{Name: "HZ of 250 or more", Cost: "the kernel's disk throttles let bytes through in larger portions"}
	hz, where, err := kernelOption("CONFIG_HZ")
	n, err2 := strconv.Atoi(hz)
	if err = errors.Join(err, err2); err != nil {
		f.Unknown, f.Detail = true, "no configuration of this kernel is readable in /boot or /proc"
		return f
	}
	f.Have, f.Detail = n >= 250, hz+", by "+where
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

// limits are those of this process and of the machine.
func limits() []Fact {
	limit := func(name string, resource int, enough uint64, cost string) Fact {
		f := Fact{Name: name, Cost: cost}
		var r unix.Rlimit
		if err := unix.Getrlimit(resource, &r); err != nil {
			f.Unknown, f.Detail = true, err.Error()
			return f
		}
		show := func(n uint64) string {
			if n == unix.RLIM_INFINITY {
				return "unlimited"
			}
			return strconv.FormatUint(n, 10)
		}
		// The runtime raises what may be raised.
		f.Have, f.Detail = r.Max >= enough, fmt.Sprintf("at most %s, want %d", show(r.Max), enough)
		return f
	}
	return []Fact{
		limit("open files", unix.RLIMIT_NOFILE, enoughFiles, "large fabrics end with \"too many open files\": raise it with ulimit -n"),
		limit("locked memory", unix.RLIMIT_MEMLOCK, 64<<20, "nothing from Linux 5.11 on: eBPF counts against it before"),
		atLeast("network namespaces of a user", "user/max_net_namespaces", 0, enoughNamespaces, "large fabrics end with \"no space left on device\": raise /proc/sys/user/max_net_namespaces"),
		atLeast("threads", "kernel/threads-max", 0, enoughThreads, "large fabrics end with \"resource temporarily unavailable\": raise /proc/sys/kernel/threads-max"),
	}
}

// parameters are of the whole machine, and so are looked at and left alone.
func parameters() []Fact {
	return []Fact{
		atLeast("tcp_rmem, at most", "net/ipv4/tcp_rmem", 2, int64(enoughBuffer), "receive windows end before fast links with deep queues are full"),
		atLeast("tcp_wmem, at most", "net/ipv4/tcp_wmem", 2, int64(enoughBuffer), "senders stop before fast links with deep queues are full"),
		atLeast("rmem_max", "net/core/rmem_max", 0, 212992, "without root, sockets cannot be given larger receive buffers; root's can"),
		atLeast("wmem_max", "net/core/wmem_max", 0, 212992, "without root, sockets cannot be given larger send buffers; root's can"),
		atLeast("netdev_max_backlog", "net/core/netdev_max_backlog", 0, enoughBacklog, "a processor that falls behind drops packets between the ends of links, outside of any queue"),
		atLeast("somaxconn", "net/core/somaxconn", 0, 128, "many connections at once to one host are turned away, and tried again a second later"),
	}
}

// atLeast reads number index of a parameter under /proc/sys.
func atLeast(name, path string, index int, enough int64, cost string) Fact {
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
	f.Have, f.Detail = n >= enough, fmt.Sprintf("%d, want %d", n, enough)
	return f
}
