package kernel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"testbed/emu/deploy"
)

// ErrLeaving is wrapped by the error of Exec while the namespace is being removed.
var ErrLeaving = errors.New("the testbed is being removed")

// Command is a command for Exec.
type Command struct {
	// Path is the program's file. Args are its arguments, starting with its own name. Env is its
	// environment in the form of os.Environ.
	Path      string
	Args, Env []string
	// Files are the contents that the command sees instead of existing files of the machine, by
	// absolute path.
	Files map[string]string
	// Privileged leaves the command all capabilities of this process, and the machine's processes.
	Privileged bool
}

// Exec runs a command in a namespace of a testbed and returns its end. The error of execve(2) is
// wrapped as an fs.PathError. The command has this process's open files, terminal and current
// directory. Signals to this process are passed on to it, and this process stops with it. It is
// killed when this process is.
//
// The command has its own PID namespace with its own /proc, its own mount namespace, and the
// capabilities keptCapabilities. /sys shows the devices of the network namespace. /sys and everything in /proc
// except the directories of processes are read-only; the devices and kernel parameters of the
// network namespace (networkParameters) stay writable. The host name is the name of the pin.
//
// With Privileged the command replaces this process, and Exec returns only if that fails.
//
// Reaper.Reap and Exec exclude each other: no command enters a namespace that is being removed.
func Exec(ctx context.Context, s deploy.Scope, host string, c Command) (ended Ended, err error) {
	entry, err := lockPins(ctx, s.Pins, unix.LOCK_SH, 0)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: is the testbed up?", err)
	}
	if err != nil {
		return ended, fmt.Errorf("run %q in %q: %w", c.Path, host, err)
	}
	defer entry.Close() // execve closes it too, with the process in the namespace
	n, err := OpenNamespace(filepath.Join(s.Pins, host))
	if err != nil {
		return ended, err
	}
	relay := relayed()
	onThread(func() {
		var run *supervised
		var signals chan os.Signal
		run, signals, err = enterAndStart(s, n, c, relay)
		err = errors.Join(err, n.Close(), entry.Close())
		if run == nil {
			return
		}
		var waitErr error
		ended, waitErr = run.wait(signals)
		err = errors.Join(err, waitErr, run.init.send(initRelease), unix.Close(run.init.control))
	})
	return ended, err
}

// enterAndStart moves the calling thread into a host and starts a command there.
func enterAndStart(s deploy.Scope, n *Namespace, c Command, relay []os.Signal) (*supervised, chan os.Signal, error) {
	var init *initProcess
	var in doors
	steps := []func() error{
		func() (err error) { in, err = openDoors(s.Cgroup, n.name); return err },
		func() error { return new(Thread).enter(n) },
		func() (err error) { init, err = privateView(n.name, c.Files, !c.Privileged); return err },
	}
	if !c.Privileged {
		steps = append(steps, dropCapabilities)
	}
	steps = append(steps, func() error {
		if in.dir == nil || c.Privileged {
			return join(in.host)
		}
		return nil
	})
	defer func() { in.close() }()
	for _, step := range steps {
		if err := step(); err != nil {
			if init != nil {
				err = errors.Join(err, unix.Close(init.control))
			}
			return nil, nil, fmt.Errorf("run %q in %q: %w%s", c.Path, n.name, err, privilege(err))
		}
	}
	if c.Privileged {
		return nil, nil, &fs.PathError{Op: "run", Path: c.Path, Err: syscall.Exec(c.Path, c.Args, c.Env)}
	}
	run, signals, err := start(c, init, relay, in.dir)
	if err != nil {
		return nil, nil, errors.Join(err, unix.Close(init.control))
	}
	if in.dir == nil {
		err = join(in.waiting)
	}
	return run, signals, err
}

// privateView gives the calling thread, which is in a network namespace, its own mount namespace
// and host name, and its children their own PID namespace, with its first process: see Exec.
func privateView(host string, files map[string]string, ownProcesses bool) (init *initProcess, err error) {
	// Keep the path, not the directory, which may be in the machine's /sys.
	dir, dirErr := os.Getwd()
	flags := unix.CLONE_NEWNS | unix.CLONE_NEWUTS
	if ownProcesses {
		flags |= unix.CLONE_NEWPID
	}
	if err := unix.Unshare(flags); err != nil {
		return nil, fmt.Errorf("create a mount, a UTS and a PID namespace: %w", err)
	}
	if err := detachMounts(); err != nil {
		return nil, fmt.Errorf("detach mounts from the machine's: %w", err)
	}
	if err := mountSys(files); err != nil {
		return nil, err
	}
	if ownProcesses {
		if init, err = startInit(); err != nil {
			return nil, err
		}
	}
	err = protectProc()
	if err == nil {
		if err = unix.Sethostname([]byte(host)); err != nil {
			err = fmt.Errorf("set the host name: %w", err)
		}
	}
	if err == nil && dirErr == nil && unix.Chdir(dir) != nil && isBelow(dir, "/sys", "/proc") {
		err = unix.Chdir("/") // the directory is missing there, such as that of a device of the machine
	}
	return init, err
}

// detachMounts makes all mounts slaves of the machine's: they follow its unmounts, so no file system
// stays busy, and not the other way round.
func detachMounts() error {
	err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, "")
	if !errors.Is(err, unix.EINVAL) {
		return err
	}
	// In a chroot, the root may not be a mount. Entering the own mount namespace again leads to its
	// root.
	root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(root)
	ns, err := unix.Open("/proc/thread-self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(ns)
	if err := unix.Setns(ns, unix.CLONE_NEWNS); err != nil {
		return err
	}
	err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, "")
	if err == nil {
		err = unix.Fchdir(root)
	}
	if err == nil {
		err = unix.Chroot(".")
	}
	return err
}

func isBelow(path string, dirs ...string) bool {
	for _, dir := range dirs {
		if path == dir || strings.HasPrefix(path, dir+"/") {
			return true
		}
	}
	return false
}

// mountSys mounts the sysfs of the thread's network namespace, keeps the other mounts below /sys,
// and replaces files of the machine.
func mountSys(files map[string]string) (err error) {
	const sys = "/sys"
	info, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		return err
	}
	type tree struct {
		path string
		fd   int
	}
	var preserved []tree
	defer func() {
		for _, t := range preserved {
			err = errors.Join(err, unix.Close(t.fd))
		}
	}()
	for line := range strings.Lines(string(info)) {
		fields := strings.Fields(line) // proc_pid_mountinfo(5)
		if len(fields) < 5 || !strings.HasPrefix(fields[4], sys+"/") {
			continue
		}
		path, known := fields[4], false
		for _, t := range preserved {
			known = known || isBelow(path, t.path)
		}
		if known {
			continue
		}
		fd, err := unix.OpenTree(unix.AT_FDCWD, path, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
		if err != nil {
			return fmt.Errorf("clone the mount at %s: %w", path, err)
		}
		preserved = append(preserved, tree{path, fd})
	}
	// In a user namespace it cannot be unmounted: the new mount covers it.
	if err := unix.Unmount(sys, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("unmount %s: %w", sys, err)
	}
	if err := replaceFiles(sys, files); err != nil {
		return err
	}
	if err := unix.Mount("sysfs", sys, "sysfs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mount %s: %w", sys, err)
	}
	for _, t := range preserved {
		err := unix.MoveMount(t.fd, "", unix.AT_FDCWD, t.path, unix.MOVE_MOUNT_F_EMPTY_PATH)
		if err != nil && !errors.Is(err, unix.ENOENT) { // the mount point belonged to a device of the machine
			return fmt.Errorf("mount %s again: %w", t.path, err)
		}
	}
	readOnly := unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	if err := unix.MountSetattr(unix.AT_FDCWD, sys, unix.AT_RECURSIVE, &readOnly); err != nil {
		return fmt.Errorf("make %s read-only: %w", sys, err)
	}
	return bindOnItself(sys+"/devices/virtual/net", false)
}

// networkParameters are the directories of kernel parameters that belong to a network namespace.
// Other directories of /proc/sys/net, and machineParameters, may be the machine's.
var networkParameters = []string{"bridge", "core", "ipv4", "ipv6", "mpls", "mptcp", "netfilter", "sctp", "unix"}

// machineParameters are in the directories of networkParameters and belong to the machine.
var machineParameters = []string{"netfilter/nf_hooks_lwtunnel"}

// protectProc makes /proc read-only, except the directories of processes and the kernel parameters
// of the network namespace.
func protectProc() error {
	const proc, network = "/proc", "/proc/sys/net"
	entries, err := os.ReadDir(proc)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		if name[0] >= '0' && name[0] <= '9' || e.Type()&fs.ModeSymlink != 0 {
			continue
		}
		if info, err := e.Info(); err != nil || !e.IsDir() && info.Mode()&0o222 == 0 {
			continue // no longer there, or already read-only
		}
		if err := bindOnItself(filepath.Join(proc, name), true); err != nil {
			return err
		}
	}
	for _, name := range networkParameters {
		if err := bindOnItself(filepath.Join(network, name), false); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, name := range machineParameters {
		if err := bindOnItself(filepath.Join(network, name), true); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// bindOnItself mounts a file or directory, with all mounts below it, on itself, read-only or writable.
func bindOnItself(path string, readOnly bool) error {
	if err := unix.Mount(path, path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("bind-mount %s on itself: %w", path, err)
	}
	attr := unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY}
	if readOnly {
		attr = unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}
	}
	if err := unix.MountSetattr(unix.AT_FDCWD, path, unix.AT_RECURSIVE, &attr); err != nil {
		return fmt.Errorf("change the mount of %s (read-only: %v): %w", path, readOnly, err)
	}
	return nil
}

// replaceFiles mounts new contents over files. It temporarily mounts a file system at dir, which
// must exist.
func replaceFiles(dir string, files map[string]string) error {
	if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "mode=755"); err != nil {
		return fmt.Errorf("mount a temporary file system for %d files: %w", len(files), err)
	}
	for path, text := range files {
		own := filepath.Join(dir, filepath.Base(path))
		if err := errors.Join(os.WriteFile(own, []byte(text), 0o644), os.Chmod(own, 0o644)); err != nil { // Chmod: independent of the umask
			return err
		}
		if err := unix.Mount(own, path, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("mount a file over %s: %w", path, err)
		}
	}
	return unix.Unmount(dir, unix.MNT_DETACH)
}
