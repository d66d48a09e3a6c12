package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// Paths in the guest.
const (
	jobPath     = "/job.json"
	sourcePath  = "/src"       // the module's files except Go code
	binaryPath  = "/bin"       // test binaries, and tools
	modulePath  = "/modules"   // in the order of their names
	reportPath  = "/dev/ttyS1" // read by the host; the kernel's console is ttyS0
	diskPath    = "/dev/vda"   // formatted by the host
	markerStart = "##testvm "  // no other output begins with it
)

// job is the host's request to init.
type job struct {
	Modules []string `json:"modules"` // file names, in the order to load them
	Runs    []run    `json:"runs"`
}

// run is one test binary.
type run struct {
	Package string        `json:"package"` // path relative to the module's root
	Binary  string        `json:"binary"`  // file name
	Args    []string      `json:"args"`
	Limit   time.Duration `json:"limit"` // timeout, after which it is killed
}

// mark is a line of the report that begins with markerStart.
type mark struct {
	What    string        `json:"what"` // boot, begin, end, done, broken
	Package string        `json:"package,omitempty"`
	Exit    int           `json:"exit,omitempty"`
	Took    time.Duration `json:"took,omitempty"`
	Text    string        `json:"text,omitempty"`
}

// guestArg is the argument with which this program runs the tests in the guest.
const guestArg = "in-the-guest"

// initMain is the first process of the guest. It starts the process that runs the tests, and
// reaps orphaned processes, as tests expect of an init. It never returns: at the end it
// powers the guest off.
func initMain() {
	pid := 0
	p, err := os.StartProcess("/init", []string{"/init", guestArg}, &os.ProcAttr{Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err == nil {
		pid = p.Pid
	} else {
		fmt.Fprintln(os.Stderr, "init:", err)
	}
	for pid != 0 {
		ended, err := syscall.Wait4(-1, nil, 0, nil)
		if ended == pid || err != nil && !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err := syscall.Reboot(syscall.LINUX_REBOOT_CMD_POWER_OFF); err != nil {
		fmt.Fprintln(os.Stderr, "init: power off:", err)
	}
	select {} // an init that ends is a kernel panic
}

// guestMain runs the host's job in the guest, and reports the results.
func guestMain() {
	console := os.Stderr
	report := io.Writer(console)
	err := mountAll()
	if tty, err2 := os.OpenFile(reportPath, os.O_WRONLY|syscall.O_NOCTTY, 0); err2 == nil {
		report = tty
	} else {
		err = errors.Join(err, err2)
	}
	say := func(m mark) {
		b, _ := json.Marshal(m) // strings and numbers only
		fmt.Fprintf(report, "%s%s\n", markerStart, b)
	}
	if err == nil {
		err = perform(report, say)
	}
	if err != nil {
		fmt.Fprintln(console, "init:", err)
		say(mark{What: "broken", Text: err.Error()})
	} else {
		say(mark{What: "done"})
	}
	syscall.Sync()
	if f, ok := report.(*os.File); ok {
		drain(f)
	}
}

// drain waits until a serial line has sent all output.
func drain(f *os.File) {
	const tcsbrk = 0x5409 // with an argument other than 0: tcdrain(3)
	_, _, _ = syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), tcsbrk, 1)
}

func mountAll() error {
	for _, m := range []struct{ kind, on, data string }{
		{"proc", "/proc", ""},
		{"sysfs", "/sys", ""},
		{"devtmpfs", "/dev", ""},
		{"tmpfs", "/run", "mode=755"},
		{"cgroup2", "/sys/fs/cgroup", ""},
	} {
		if err := syscall.Mount(m.kind, m.on, m.kind, 0, m.data); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.kind, m.on, err)
		}
	}
	if err := os.Symlink("/proc/self/fd", "/dev/fd"); err != nil {
		return err
	}
	if err := os.Mkdir("/dev/shm", 0o777); err != nil {
		return err
	}
	if err := syscall.Mount("tmpfs", "/dev/shm", "tmpfs", 0, ""); err != nil {
		return fmt.Errorf("mount /dev/shm: %w", err)
	}
	if err := os.Mkdir("/dev/pts", 0o755); err != nil {
		return err
	}
	if err := syscall.Mount("devpts", "/dev/pts", "devpts", 0, "mode=620,ptmxmode=666"); err != nil {
		return fmt.Errorf("mount /dev/pts: %w", err)
	}
	// All cgroups have these controllers, as on a machine with systemd.
	if err := os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+cpu +io +memory"), 0); err != nil {
		return fmt.Errorf("controllers of cgroup 2: %w", err)
	}
	return nil
}

func perform(report io.Writer, say func(mark)) error {
	b, err := os.ReadFile(jobPath)
	if err != nil {
		return err
	}
	var j job
	if err := json.Unmarshal(b, &j); err != nil {
		return fmt.Errorf("%s: %w", jobPath, err)
	}
	for _, name := range j.Modules {
		data, err := os.ReadFile(modulePath + "/" + name)
		if err != nil {
			return err
		}
		none := [1]byte{}
		_, _, errno := syscall.Syscall(syscall.SYS_INIT_MODULE, uintptr(unsafe.Pointer(&data[0])), uintptr(len(data)), uintptr(unsafe.Pointer(&none[0])))
		if errno != 0 && errno != syscall.EEXIST {
			return fmt.Errorf("load module %s: %w", name, errno)
		}
		if err := os.Remove(modulePath + "/" + name); err != nil { // frees memory for the tests
			return err
		}
	}
	if err := awaitFile(diskPath, 10*time.Second); err != nil {
		return err
	}
	if err := syscall.Mount(diskPath, "/tmp", "ext4", 0, ""); err != nil {
		return fmt.Errorf("mount the disk: %w", err)
	}
	if err := os.Chmod("/tmp", 0o1777); err != nil {
		return err
	}
	if err := loopbackUp(); err != nil {
		return err
	}
	release, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return err
	}
	say(mark{What: "boot", Text: strings.TrimSpace(string(release))})
	for _, r := range j.Runs {
		say(mark{What: "begin", Package: r.Package})
		start := time.Now()
		exit, err := test(r, report)
		m := mark{What: "end", Package: r.Package, Exit: exit, Took: time.Since(start)}
		if err != nil {
			m.Text = err.Error()
		}
		say(m)
	}
	return nil
}

// awaitFile waits until the kernel has found a device.
func awaitFile(name string, limit time.Duration) error {
	deadline := time.Now().Add(limit)
	for {
		_, err := os.Stat(name)
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// test runs one binary in its package's directory and returns its exit code, or -1 and the
// reason why it has none.
func test(r run, report io.Writer) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), r.Limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, binaryPath+"/"+r.Binary, r.Args...)
	cmd.Dir = sourcePath + "/" + r.Package
	cmd.Env = []string{
		"PATH=" + binaryPath, "HOME=/tmp", "TMPDIR=/tmp", "USER=root", "TERM=dumb",
		"TESTBED_PRIVILEGED=1", "TESTBED_VM=1",
	}
	// Not the serial line itself: programs behave differently on a terminal.
	out := struct{ io.Writer }{report}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = 5 * time.Second // for processes that a test left running
	err := cmd.Run()
	// The output of a crash may end within a line.
	fmt.Fprintln(report)
	switch {
	case ctx.Err() != nil:
		return -1, fmt.Errorf("killed after %v", r.Limit)
	case cmd.ProcessState == nil:
		return -1, err
	case !cmd.ProcessState.Exited():
		return -1, errors.New(cmd.ProcessState.String())
	case errors.Is(err, exec.ErrWaitDelay):
		return -1, errors.New("exited, but left processes running")
	}
	return cmd.ProcessState.ExitCode(), nil
}

// loopbackUp sets lo up, as every distribution does at boot.
func loopbackUp() error {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = syscall.Close(fd) }()
	var request [40]byte // struct ifreq: name, then flags
	copy(request[:], "lo")
	request[16] = syscall.IFF_UP
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), syscall.SIOCSIFFLAGS, uintptr(unsafe.Pointer(&request[0]))); errno != 0 {
		return fmt.Errorf("lo up: %w", errno)
	}
	return nil
}
