package kernel

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Snapshot is what a plan does not state and the kernel does not report, by name: values of all parameters, and what else
// handles packets. Whatever is not a parameter is none of the testbed's.
type Snapshot map[string]string

// Parameter reports whether a name of a snapshot is that of a parameter.
func (Snapshot) Parameter(name string) bool { return strings.HasPrefix(name, parameterPrefix) }

const parameterPrefix = "net."

// snapshotDirs are the directories below /proc/sys whose parameters are read, with all directories in them.
var snapshotDirs = []string{"net/core", "net/ipv4"}

// snapshotTables are the lists of tables of the older iptables.
var snapshotTables = []string{"ip_tables_names", "arp_tables_names"}

// Snapshot reads a namespace that this executor created: all parameters of IPv4 and of its devices, tables of the older
// iptables, and BPF programs that a link attaches to devices and to the namespace.
func (x *Executor) Snapshot(ctx context.Context, namespace string) (Snapshot, error) {
	s := Snapshot{}
	err := x.inNamespace(namespace, func(b *builder) error {
		devices, err := b.readDevices()
		if err != nil {
			return fmt.Errorf("devices: %w", err)
		}
		return b.do(func() error {
			for index, d := range devices {
				err = errors.Join(err,
					s.programs("BPF program at ingress of "+d.Name, uint32(index), unix.BPF_TCX_INGRESS, 0),
					s.programs("BPF program at egress of "+d.Name, uint32(index), unix.BPF_TCX_EGRESS, 0))
			}
			err = errors.Join(err, s.ofNamespace())
			if errors.Is(err, unix.EPERM) { // in a user namespace: ProcessSnapshot fails, too
				err = nil
			}
			return errors.Join(err, s.tables(), s.parameters(b.proc))
		})
	})
	if err != nil {
		return nil, fmt.Errorf("read back namespace %q: %w%s", namespace, err, privilege(err))
	}
	return s, ctx.Err()
}

// ofNamespace adds the programs of the namespace of the calling thread.
func (s Snapshot) ofNamespace() (err error) {
	fd, err := unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return errors.Join(
		s.programs("BPF program that looks sockets up", uint32(fd), unix.BPF_SK_LOOKUP, 0),
		s.programs("BPF program that dissects flows", uint32(fd), unix.BPF_FLOW_DISSECTOR, 0),
		unix.Close(fd))
}

// tables adds the tables of iptables.
func (s Snapshot) tables() error {
	for _, name := range snapshotTables {
		b, err := os.ReadFile("/proc/thread-self/net/" + name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // a kernel without these tables
			return err
		}
		for _, table := range strings.Fields(string(b)) {
			s[fmt.Sprintf("%s table %s", strings.TrimSuffix(name, "_tables_names"), table)] = "one"
		}
	}
	return nil
}

// parameters adds those that can be read. What modules of the machine offer is none of a namespace.
func (s Snapshot) parameters(proc *procfs) error {
	root := fmt.Sprintf("/proc/self/fd/%d/", proc.dir)
	buffer := make([]byte, 4096)
	for _, dir := range snapshotDirs {
		err := filepath.WalkDir(root+"sys/"+dir, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() || strings.HasPrefix(e.Name(), "tcp_available_") || strings.HasPrefix(e.Name(), "tcp_allowed_") {
				return err
			}
			value, err := proc.read(strings.TrimPrefix(path, root), buffer)
			if errors.Is(err, unix.EACCES) { // it can only be written
				return nil
			}
			s[strings.ReplaceAll(strings.TrimPrefix(path, root+"sys/"), "/", ".")] = value
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// socketHooks are the points of a cgroup at which BPF programs change sockets of IPv4 and their packets.
var socketHooks = map[string]uint32{
	"receives packets": unix.BPF_CGROUP_INET_INGRESS,
	"sends packets":    unix.BPF_CGROUP_INET_EGRESS,
	"makes sockets":    unix.BPF_CGROUP_INET_SOCK_CREATE,
	"is TCP":           unix.BPF_CGROUP_SOCK_OPS,
	"binds":            unix.BPF_CGROUP_INET4_BIND,
	"has bound":        unix.BPF_CGROUP_INET4_POST_BIND,
	"connects":         unix.BPF_CGROUP_INET4_CONNECT,
	"sends datagrams":  unix.BPF_CGROUP_UDP4_SENDMSG,
	"sets options":     unix.BPF_CGROUP_SETSOCKOPT,
	"reads options":    unix.BPF_CGROUP_GETSOCKOPT,
	"uses parameters":  unix.BPF_CGROUP_SYSCTL,
}

// ProcessSnapshot reads which BPF programs handle the sockets of this process by its cgroup and those above.
func ProcessSnapshot() (Snapshot, error) {
	s := Snapshot{}
	fd, err := cgroup()
	if err != nil || fd < 0 {
		return s, err
	}
	for what, hook := range socketHooks {
		err = errors.Join(err, s.programs("BPF program of a cgroup that "+what, uint32(fd), hook, unix.BPF_F_QUERY_EFFECTIVE))
	}
	return s, errors.Join(err, unix.Close(fd))
}

// cgroup opens the directory of this process in cgroup 2, also where that is not mounted; -1 if the kernel has none.
func cgroup() (int, error) {
	b, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return -1, err
	}
	for line := range strings.Lines(string(b)) {
		path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::")
		if !ok {
			continue
		}
		root, err := mountDetached("cgroup2")
		if err != nil {
			return -1, fmt.Errorf("mount cgroup 2: %w%s", err, privilege(err))
		}
		dir, err := unix.Openat(root, "."+path, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		return dir, errors.Join(err, unix.Close(root))
	}
	return -1, nil
}

// programs adds the BPF programs that are attached to a device, or to what target is a descriptor of.
func (s Snapshot) programs(what string, target, at, flags uint32) error {
	ids := new([64]uint32)
	var pinned runtime.Pinner
	pinned.Pin(ids)
	defer pinned.Unpin()
	query := struct { // union bpf_attr of BPF_PROG_QUERY
		target, at, flags, attached          uint32
		ids                                  uint64
		count, _                             uint32
		attachFlags, links, linkFlags, stage uint64
	}{target: target, at: at, flags: flags, ids: uint64(uintptr(unsafe.Pointer(ids))), count: uint32(len(ids))}
	_, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_QUERY, uintptr(unsafe.Pointer(&query)), unsafe.Sizeof(query))
	switch {
	case errno == unix.ENOENT || errno == unix.EINVAL || errno == unix.ENOSYS || errno == unix.EOPNOTSUPP:
		return nil // none, or a kernel without this kind
	case errno == unix.ENOSPC: // more than ids holds
	case errno != 0:
		return fmt.Errorf("%s: %w", what, errno)
	}
	if query.count > 0 {
		s[what] = fmt.Sprintf("%d programs %v", query.count, ids[:min(query.count, uint32(len(ids)))])
	}
	return nil
}
