package guest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Paths in a guest.
const (
	initPath   = "/init"
	signPath   = "/testbed-guest" // of an image, so that the first process of a container is none of a guest
	modulePath = "/modules"       // in the order of their names
	randomPath = "/dev/random"
	// BinaryPath is the PATH of a guest.
	BinaryPath = "/bin"
)

// insideEnv is set for the program that the first process of a guest starts.
const insideEnv = "TESTBED_GUEST"

// inside is taken from the environment, so that programs which this one starts are not taken for it.
var inside = func() bool {
	is := os.Getenv(insideEnv) == "1"
	return os.Unsetenv(insideEnv) == nil && is
}()

// Inside reports whether this process is the one that a guest started.
func Inside() bool { return inside }

// First does the work of the first process of a guest, and returns in all others: it starts the same program
// again, reaps orphaned processes, as programs expect of an init, and powers the guest off when the program ends.
func First() {
	if os.Getpid() != 1 {
		return
	}
	if _, err := os.Stat(signPath); err != nil {
		return
	}
	pid := 0
	if err := seedRandom(); err != nil {
		fmt.Fprintln(os.Stderr, "init:", err)
	}
	p, err := os.StartProcess(initPath, []string{initPath}, &os.ProcAttr{
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Env:   []string{insideEnv + "=1", "PATH=" + BinaryPath, "HOME=/tmp", "TMPDIR=/tmp", "USER=root", "TERM=dumb"},
	})
	if err == nil {
		pid = p.Pid
	} else {
		fmt.Fprintln(os.Stderr, "init:", err)
	}
	for pid != 0 {
		var status unix.WaitStatus
		ended, err := unix.Wait4(-1, &status, 0, nil)
		if ended == pid && status.Signaled() {
			fmt.Fprintln(os.Stderr, "init: the program was ended by signal:", status.Signal()) // as for lack of memory
		}
		if ended == pid || err != nil && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	unix.Sync()
	if err := unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Fprintln(os.Stderr, "init: power off:", err)
	}
	select {} // an init that ends is a kernel panic
}

// seedRandom starts the random numbers of the kernel from a constant. Without it the kernel measures jitter of
// timers, of which a guest in virtual time has none, for a second of busy waiting.
func seedRandom() error {
	f, err := os.OpenFile(randomPath, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	seed := struct { // rand_pool_info of random(4)
		bits, size int32
		bytes      [32]byte
	}{bits: 256, size: 32}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), unix.RNDADDENTROPY, uintptr(unsafe.Pointer(&seed)))
	if errno != 0 {
		err = fmt.Errorf("random numbers of the guest: %w", errno)
	}
	return errors.Join(err, f.Close())
}

// Setup makes the guest what a program expects of a machine: it mounts what a distribution mounts, loads the
// modules of the image, and sets the loopback interface up.
func Setup() error {
	for _, m := range []struct{ kind, on, data string }{
		{"proc", "/proc", ""},
		{"sysfs", "/sys", ""},
		{"devtmpfs", "/dev", ""},
		{"tmpfs", "/run", "mode=755"},
		{"cgroup2", "/sys/fs/cgroup", ""},
		{"tmpfs", "/dev/shm", ""},
		{"devpts", "/dev/pts", "mode=620,ptmxmode=666"},
	} {
		if err := os.MkdirAll(m.on, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.on, m.kind, 0, m.data); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.kind, m.on, err)
		}
	}
	if err := os.Symlink("/proc/self/fd", "/dev/fd"); err != nil {
		return err
	}
	// All cgroups have these controllers, as on a machine with systemd.
	if err := os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+cpu +io +memory"), 0); err != nil {
		return fmt.Errorf("controllers of cgroup 2: %w", err)
	}
	return errors.Join(loadModules(), loopbackUp())
}

func loadModules() error {
	files, err := filepath.Glob(modulePath + "/*") // in order
	if err != nil {
		return err
	}
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := unix.InitModule(data, ""); err != nil && !errors.Is(err, unix.EEXIST) {
			return fmt.Errorf("load module %s: %w", name, err)
		}
		if err := os.Remove(name); err != nil { // frees memory
			return err
		}
	}
	return nil
}

// packetThread is the kernel's thread that serves packets and timers of the first processor which it has put off.
const packetThread = "ksoftirqd/0"

// ServePacketsFirst lets packets and timers run before any program, as on a machine with processors to spare. Before
// Linux 6.5, once one of them is put off, all wait for a thread that has its turn among programs.
func ServePacketsFirst() error {
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return err
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil || strings.TrimSpace(string(b)) != packetThread {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		if err != nil {
			return err
		}
		attr := &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_FIFO, Priority: 1}
		if err := unix.SchedSetAttr(pid, attr, 0); err != nil {
			return fmt.Errorf("%s before programs: %w", packetThread, err)
		}
		return nil
	}
	return fmt.Errorf("the guest has no thread %s", packetThread)
}

// CheckClock sleeps several times. Bounds are of the median of how late a sleep ends, of which 50 µs are the slack of
// timers, and of the interrupts of the timer for a sleep: 2 to 5, where one that fires at half its time causes 12 more.
const (
	clockSleeps     = 11
	clockSleep      = 5 * time.Millisecond
	clockLate       = 200 * time.Microsecond
	clockInterrupts = 10
)

// CheckClock returns an error if the kernel of a guest does not keep time at a speed, or if its timers do not agree
// with its clock: those that fire early are set again and again. Speed 0 is that of user-mode Linux.
func CheckClock(speed int) error {
	if speed == 0 {
		return checkInfinitelyFast()
	}
	clock, err := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource")
	if err != nil {
		return err
	}
	mhz, err := firstField("/proc/cpuinfo", "cpu MHz")
	if err != nil {
		return err
	}
	before, err := firstField("/proc/interrupts", "LOC")
	if err != nil {
		return err
	}
	median := sleepLate()
	after, err := firstField("/proc/interrupts", "LOC")
	if err != nil {
		return err
	}
	interrupts := (after - before) / clockSleeps
	if !strings.HasPrefix(string(clock), "tsc") || mhz != float64(1000*speed) || median > clockLate ||
		interrupts > clockInterrupts {
		return fmt.Errorf("the kernel of the guest keeps no time at %d instructions in a nanosecond: its clock %s has "+
			"%v MHz, and a sleep of %v ends %v late, after %.0f interrupts: use %s, or speed 1", speed,
			strings.TrimSpace(string(clock)), mhz, clockSleep, median, interrupts, MetaPackage)
	}
	return nil
}

// firstField returns the first number after a key in a file of proc(5).
func firstField(file, key string) (float64, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		name, rest, _ := strings.Cut(line, ":")
		if fields := strings.Fields(rest); strings.TrimSpace(name) == key && len(fields) > 0 {
			return strconv.ParseFloat(fields[0], 64)
		}
	}
	return 0, fmt.Errorf("%s has no %s", file, key)
}

// AwaitFile waits until the kernel has found a device.
func AwaitFile(name string, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for {
		_, err := os.Stat(name)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// portWait bounds the wait for a port in a guest.
const portWait = 10 * time.Second

// Port opens the port of a guest that writes to the file of Machine.Ports at a place.
func Port(place int) (*os.File, error) {
	if f, found, err := userModePort(place); found || err != nil {
		return f, err
	}
	device := fmt.Sprintf("vport0p%d", place+1)
	if err := AwaitFile("/sys/class/virtio-ports/"+device, portWait); err != nil {
		return nil, fmt.Errorf("port %d of the guest: %w", place, err)
	}
	return os.OpenFile("/dev/"+device, os.O_WRONLY, 0)
}

// Release returns the release of the guest's kernel.
func Release() (string, error) {
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	return strings.TrimSpace(string(b)), err
}

// loopbackUp sets lo up, as every distribution does at boot.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, request); err != nil {
		return fmt.Errorf("lo up: %w", err)
	}
	return nil
}
