package kernel

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"testbed/emu/deploy"
)

// keptCapabilities are the capabilities of a command in a host: those that act on its network and on files. All
// others act on the machine, or would undo the separation.
var keptCapabilities = []int{
	unix.CAP_NET_ADMIN, unix.CAP_NET_RAW, unix.CAP_NET_BIND_SERVICE, unix.CAP_NET_BROADCAST,
	unix.CAP_CHOWN, unix.CAP_DAC_OVERRIDE, unix.CAP_DAC_READ_SEARCH, unix.CAP_FOWNER, unix.CAP_FSETID,
	unix.CAP_SETFCAP, unix.CAP_SYS_CHROOT, unix.CAP_LEASE,
	unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_SETPCAP, unix.CAP_KILL, unix.CAP_AUDIT_WRITE,
	unix.CAP_IPC_LOCK, unix.CAP_IPC_OWNER, unix.CAP_SYS_NICE, unix.CAP_SYS_RESOURCE,
}

// dropCapabilities removes all capabilities that are not kept from those that programs started by
// this thread can get, including programs with a setuid bit or file capabilities.
func dropCapabilities() error {
	var mask [2]uint32
	for c := range 64 {
		if slices.Contains(keptCapabilities, c) {
			mask[c/32] |= 1 << (c % 32)
			continue
		}
		err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0)
		if errors.Is(err, unix.EINVAL) {
			break // the kernel has no more
		} else if err != nil {
			return fmt.Errorf("drop capability %d: %w", c, err)
		}
	}
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&head, &data[0]); err != nil {
		return fmt.Errorf("read capabilities: %w", err)
	}
	for i := range data {
		data[i].Inheritable &= mask[i]
	}
	if err := unix.Capset(&head, &data[0]); err != nil {
		return fmt.Errorf("set capabilities: %w", err)
	}
	return nil
}

// initName is the name of the first process of a command's PID namespace.
const initName = "testbed-init"

// initProcess is the first process of a PID namespace. It adopts processes whose parent has ended,
// and ends when none is left after release, or with all processes of the namespace when this process
// ends before.
type initProcess struct{ pid, control int }

// Commands to an initProcess. The end of the pipe without one of them ends all.
const (
	initDrain   = 'd' // forget signals that arrived
	initRelease = 'r' // end once no other process is left
)

// startInit starts the first process of the PID namespace of this thread's children. The process
// mounts /proc. It is a copy of this one that makes system calls only: starting another Go program
// would take longer than all else that Exec does.
func startInit() (*initProcess, error) {
	var control, report [2]int
	if err := unix.Pipe2(control[:], unix.O_CLOEXEC); err != nil {
		return nil, err
	}
	defer unix.Close(control[0])
	if err := unix.Pipe2(report[:], unix.O_CLOEXEC); err != nil {
		return nil, errors.Join(err, unix.Close(control[1]))
	}
	defer unix.Close(report[0])
	pid, errno := forkInit(control[0], report[1])
	err := unix.Close(report[1])
	if errno != 0 {
		return nil, errors.Join(fmt.Errorf("start the first process: %w", errno), err, unix.Close(control[1]))
	}
	p := &initProcess{pid, control[1]}
	var result [1]byte
	n, readErr := retry(func() (int, error) { return unix.Read(report[0], result[:]) })
	switch {
	case err != nil || readErr != nil:
		err = errors.Join(err, readErr)
	case n == 0:
		err = errors.New("the first process of the PID namespace has ended")
	case result[0] != 0:
		err = fmt.Errorf("mount /proc for the PID namespace: %w", syscall.Errno(result[0]))
	default:
		return p, nil
	}
	return nil, errors.Join(err, unix.Close(p.control))
}

func retry(f func() (int, error)) (int, error) {
	for {
		if n, err := f(); err != unix.EINTR {
			return n, err
		}
	}
}

// forkInit forks this thread. The new process has one thread and no working runtime: it calls
// nothing but raw system calls, allocates nothing and receives no signal that it could handle.
//
//go:norace
//go:noinline
func forkInit(control, report int) (pid int, _ syscall.Errno) {
	var (
		proc, at    = [...]byte{'p', 'r', 'o', 'c', 0}, [...]byte{'/', 'p', 'r', 'o', 'c', 0}
		name        [len(initName) + 1]byte
		all, before = ^uint64(0), uint64(0)
		ignore      [8]uint64 // struct sigaction, which begins with the handler
		now         [2]uint64 // struct timespec
		b           [1]byte
	)
	copy(name[:], initName)
	ignore[0] = 1 // SIG_IGN
	const size = unsafe.Sizeof(all)
	unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&all)), uintptr(unsafe.Pointer(&before)), size, 0, 0)
	id, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(unix.SIGCHLD), 0, 0, 0, 0, 0)
	if errno != 0 || id != 0 {
		unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(&before)), 0, size, 0, 0)
		return int(id), errno
	}
	_, _, errno = unix.RawSyscall6(unix.SYS_MOUNT, uintptr(unsafe.Pointer(&proc)), uintptr(unsafe.Pointer(&at)), uintptr(unsafe.Pointer(&proc)),
		unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, 0, 0)
	unix.RawSyscall6(unix.SYS_PRCTL, unix.PR_SET_NAME, uintptr(unsafe.Pointer(&name)), 0, 0, 0, 0)
	// The kernel reaps children for a process that ignores their ends.
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(unix.SIGCHLD), uintptr(unsafe.Pointer(&ignore)), 0, size, 0, 0)
	b[0] = byte(errno)
	unix.RawSyscall6(unix.SYS_WRITE, uintptr(report), uintptr(unsafe.Pointer(&b)), 1, 0, 0, 0)
	unix.RawSyscall6(unix.SYS_DUP3, uintptr(control), 0, 0, 0, 0, 0)
	unix.RawSyscall6(unix.SYS_CLOSE_RANGE, 1, ^uintptr(0)>>32, 0, 0, 0, 0) // also the other ends of the pipes
	for b[0] != initRelease {
		n, _, _ := unix.RawSyscall6(unix.SYS_READ, 0, uintptr(unsafe.Pointer(&b)), 1, 0, 0, 0)
		if n != 1 {
			unix.RawSyscall6(unix.SYS_EXIT_GROUP, 1, 0, 0, 0, 0, 0) // with all processes of the namespace
		}
		for b[0] == initDrain {
			n, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGTIMEDWAIT, uintptr(unsafe.Pointer(&all)), 0, uintptr(unsafe.Pointer(&now)), size, 0, 0)
			if errno != 0 || n == 0 {
				b[0] = 0
			}
		}
	}
	for errno = 0; errno != unix.ECHILD; {
		_, _, errno = unix.RawSyscall6(unix.SYS_WAIT4, ^uintptr(0), 0, 0, 0, 0, 0)
	}
	for {
		unix.RawSyscall6(unix.SYS_EXIT_GROUP, 0, 0, 0, 0, 0, 0)
	}
}

// send sends a command.
func (p *initProcess) send(what byte) error {
	_, err := retry(func() (int, error) { return unix.Write(p.control, []byte{what}) })
	return err
}

// drainLooks is how often the process is looked at until it has forgotten a signal: for a second or more.
const drainLooks = 500

// received reports whether the process received a signal too, and forgets it. A signal from the
// terminal, or to the process group, reaches it, this process and the command alike.
func (p *initProcess) received(s syscall.Signal) bool {
	const delivery = 2 * time.Millisecond // to all processes of a group
	pending := func() bool {
		time.Sleep(delivery)
		return deploy.SignalMask(fmt.Sprintf("/proc/%d", p.pid), "ShdPnd")>>(s-1)&1 == 1
	}
	if !pending() {
		return false
	}
	_ = p.send(initDrain)  // if it has ended, so has the command
	for range drainLooks { // or the next signal would be taken for this one
		if !pending() {
			break
		}
	}
	return true
}

// Ended is the end of a command: its exit code, or the signal that ended it.
type Ended struct {
	Code   int
	Signal syscall.Signal
}

// EndBy ends this process by a signal, without a core file. It returns only if that fails.
func EndBy(s syscall.Signal) error {
	none := unix.Rlimit{}
	var action [8]uint64 // struct sigaction: SIG_DFL
	var signals uint64
	runtime.LockOSThread()
	err := unix.Setrlimit(unix.RLIMIT_CORE, &none)
	unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s), uintptr(unsafe.Pointer(&action)), 0, unsafe.Sizeof(signals), 0, 0)
	err = errors.Join(err, unix.Kill(unix.Getpid(), s))
	time.Sleep(time.Second) // another thread may take it
	return err
}

// supervised is a command that this process waits for.
type supervised struct {
	pid, fd int // the process and its pidfd
	init    *initProcess
	tty     int         // of the process, -1 for none
	group   int         // of this process
	own     bool        // the command has its own process group, which has the terminal
	behind  atomic.Bool // this process was continued in the background
}

// relayed returns the signals that are passed on to the command: all that programs send to each
// other. Those that this process ignores, as under nohup, the command ignores too. It reads /proc of
// this process.
func relayed() (all []os.Signal) {
	others := []syscall.Signal{
		unix.SIGKILL, unix.SIGSTOP, unix.SIGCHLD, unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU, // job control
		unix.SIGSEGV, unix.SIGBUS, unix.SIGFPE, unix.SIGILL, unix.SIGTRAP, unix.SIGSYS, // errors of this program
		unix.SIGURG, unix.SIGPROF, unix.SIGPIPE, 32, 33, // used by the runtime
	}
	for s := syscall.Signal(1); s <= 64; s++ {
		if !slices.Contains(others, s) && !deploy.Ignores(os.Getpid(), s) {
			all = append(all, s)
		}
	}
	return all
}

// start starts a command as a child of this thread, in a cgroup of version 2 unless that is nil.
func start(c Command, init *initProcess, relay []os.Signal, cgroup *os.File) (*supervised, chan os.Signal, error) {
	s := &supervised{init: init, tty: -1, group: unix.Getpgrp()}
	for fd := range 3 {
		if at, err := unix.IoctlGetInt(fd, unix.TIOCGPGRP); err == nil && at == s.group {
			s.tty = fd
			break
		}
	}
	// A process group outside the PID namespace has no number in it, which confuses shells with job
	// control. The only program of a job gets its own group; in a pipeline, or in a script, Ctrl-C and
	// Ctrl-Z are for all of the group.
	_, noOutput := unix.IoctlGetInt(1, unix.TIOCGPGRP)
	s.own = s.tty == 0 && noOutput == nil && s.group == unix.Getpid()
	attr := &syscall.ProcAttr{Env: c.Env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: s.own, Foreground: s.own, Ctty: 0}}
	if cgroup != nil {
		attr.Sys.UseCgroupFD, attr.Sys.CgroupFD = true, int(cgroup.Fd())
	}
	signals := make(chan os.Signal, 64)
	signal.Notify(signals, relay...)
	var err error
	if s.pid, err = syscall.ForkExec(c.Path, c.Args, attr); err != nil {
		return nil, nil, errors.Join(&fs.PathError{Op: "run", Path: c.Path, Err: err}, s.restore())
	}
	if s.fd, err = unix.PidfdOpen(s.pid, 0); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open process %d: %w", s.pid, err), s.restore())
	}
	// This process does not use the terminal, and stops only after the command.
	signal.Ignore(unix.SIGTSTP, unix.SIGTTIN, unix.SIGTTOU)
	return s, signals, nil
}

// wait waits for the command, passes signals on to it, and stops when it is stopped.
func (s *supervised) wait(signals chan os.Signal) (Ended, error) {
	go func() {
		for received := range signals {
			n := received.(syscall.Signal)
			if n == unix.SIGCONT {
				s.resume()
			}
			if !s.init.received(n) {
				_ = unix.PidfdSendSignal(s.fd, n, nil, 0) // it may have ended
			}
		}
	}()
	for {
		var status unix.WaitStatus
		if _, err := retry(func() (int, error) { return unix.Wait4(s.pid, &status, unix.WUNTRACED, nil) }); err != nil {
			return Ended{}, fmt.Errorf("wait for process %d: %w", s.pid, err)
		}
		switch {
		case status.Stopped() && status.StopSignal() != unix.SIGSTOP:
			// This process stops too, as its shell expects, until the shell continues it: see resume.
			if err := errors.Join(s.restore(), unix.Kill(unix.Getpid(), unix.SIGSTOP)); err != nil {
				return Ended{}, err
			}
		case status.Exited():
			return Ended{Code: status.ExitStatus()}, s.restore()
		case status.Signaled():
			return Ended{Signal: status.Signal()}, s.restore()
		}
	}
}

// resume continues a command that has its own process group, with the terminal if this process has
// been given it.
func (s *supervised) resume() {
	at, err := unix.IoctlGetInt(s.tty, unix.TIOCGPGRP)
	s.behind.Store(err != nil || at != s.group)
	if !s.own {
		return
	}
	if !s.behind.Load() {
		_ = unix.IoctlSetPointerInt(s.tty, unix.TIOCSPGRP, s.pid) // without it, the command stops again
	}
	_ = unix.Kill(-s.pid, unix.SIGCONT) // it may have ended
}

// restore returns the terminal to this process's group, if it had it.
func (s *supervised) restore() error {
	if s.tty < 0 || s.behind.Load() {
		return nil
	}
	signal.Ignore(unix.SIGTTOU)
	if at, err := unix.IoctlGetInt(s.tty, unix.TIOCGPGRP); err != nil || at == s.group {
		return nil // the terminal is gone, or was not given away
	}
	err := unix.IoctlSetPointerInt(s.tty, unix.TIOCSPGRP, s.group)
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.ENOTTY) || errors.Is(err, unix.EIO) {
		return nil // it is another session's by now
	}
	return err
}
