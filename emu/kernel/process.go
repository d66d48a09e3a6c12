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
}

// Exec replaces this process by a command inside the namespace that is pinned at path. It returns
// only if that fails; the error of execve(2) is wrapped as an fs.PathError. Open files, terminal,
// process ID and current directory stay, and the exit status of the command is that of the process.
//
// The command has its own mount namespace. In it, /sys shows the devices of the network namespace.
// /sys and everything in /proc except the directories of processes are read-only; the devices and
// kernel parameters (/proc/sys/net) of the network namespace stay writable. The host name is the
// name of the pin. Mounts made by the command are visible only to it.
//
// Reaper.Reap and Exec exclude each other: no command enters a namespace that is being removed.
func Exec(ctx context.Context, path string, c Command) error {
	name := filepath.Base(path)
	entry, err := lockPins(ctx, filepath.Dir(path), unix.LOCK_SH, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("run %q in %q: %w: is the testbed up?", c.Path, name, err)
	} else if err != nil {
		return fmt.Errorf("run %q in %q: %w", c.Path, name, err)
	}
	defer entry.Close() // execve closes it too, with the process in the namespace
	n, err := OpenNamespace(path)
	if err != nil {
		return err
	}
	onThread(func() {
		if err = new(Thread).enter(n); err == nil {
			err = privateView(name, c.Files)
		}
		if err != nil {
			err = fmt.Errorf("run %q in %q: %w%s", c.Path, name, err, privilege(err))
			return
		}
		err = &fs.PathError{Op: "run", Path: c.Path, Err: syscall.Exec(c.Path, c.Args, c.Env)}
	})
	return errors.Join(err, n.Close())
}

// privateView gives the calling thread, which is in a network namespace, its own mount namespace
// and host name: see Exec.
func privateView(host string, files map[string]string) error {
	// Keep the path, not the directory, which may be in the machine's /sys.
	dir, dirErr := os.Getwd()
	if err := unix.Unshare(unix.CLONE_NEWNS | unix.CLONE_NEWUTS); err != nil {
		return fmt.Errorf("create a mount and a UTS namespace: %w", err)
	}
	// A slave mount, not a private one: it follows the machine's unmounts, so no file system stays
	// busy.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SLAVE, ""); err != nil {
		return fmt.Errorf("detach mounts from the machine's: %w", err)
	}
	if err := errors.Join(mountSys(files), protectProc()); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte(host)); err != nil {
		return fmt.Errorf("set the host name: %w", err)
	}
	if dirErr == nil && unix.Chdir(dir) != nil && isBelow(dir, "/sys", "/proc") {
		return unix.Chdir("/") // the directory is missing there, such as that of a device of the machine
	}
	return nil
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
	return readOnly(sys, sys+"/devices/virtual/net")
}

// protectProc makes /proc read-only, except the directories of processes and the kernel parameters
// of the network namespace.
func protectProc() error {
	const proc = "/proc"
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
		path, except := filepath.Join(proc, name), ""
		if name == "sys" {
			except = path + "/net"
		}
		if err := unix.Mount(path, path, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("bind-mount %s on itself: %w", path, err)
		}
		if err := readOnly(path, except); err != nil {
			return err
		}
	}
	return nil
}

// readOnly makes a mount and all mounts below it read-only, except the directory except, unless
// that is "".
func readOnly(path, except string) error {
	if err := unix.MountSetattr(unix.AT_FDCWD, path, unix.AT_RECURSIVE, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
		return fmt.Errorf("make %s read-only: %w", path, err)
	}
	if except == "" {
		return nil
	}
	err := unix.Mount(except, except, "", unix.MS_BIND, "")
	if err == nil {
		err = unix.MountSetattr(unix.AT_FDCWD, except, 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
	}
	if err != nil {
		return fmt.Errorf("make %s writable: %w", except, err)
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
