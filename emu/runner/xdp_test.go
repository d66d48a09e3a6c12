package runner

import (
	"runtime"
	"strconv"
	"testing"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// attachXDP attaches an XDP program to a device. It drops one packet in n.
func attachXDP(t *testing.T, device, one string) {
	n, err := strconv.Atoi(one)
	if err != nil {
		t.Fatal(err)
	}
	link, err := netlink.LinkByName(device)
	if err != nil {
		t.Fatal(err)
	}
	program := []struct {
		code, registers byte
		offset          int16
		value           int32
	}{
		{unix.BPF_JMP | unix.BPF_CALL, 0, 0, 7},                              // r0 = bpf_get_prandom_u32()
		{unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, 0, 2, int32(1 << 32 / n)}, // pass, if r0 is not below
		{unix.BPF_ALU64 | unix.BPF_MOV | unix.BPF_K, 0, 0, 1},                // XDP_DROP
		{unix.BPF_JMP | unix.BPF_EXIT, 0, 0, 0},
		{unix.BPF_ALU64 | unix.BPF_MOV | unix.BPF_K, 0, 0, 2}, // XDP_PASS
		{unix.BPF_JMP | unix.BPF_EXIT, 0, 0, 0},
	}
	licence := []byte("GPL\x00")
	load := struct {
		kind, instructions uint32
		program, licence   uintptr
	}{unix.BPF_PROG_TYPE_XDP, uint32(len(program)), uintptr(unsafe.Pointer(&program[0])), uintptr(unsafe.Pointer(&licence[0]))}
	fd, _, errno := unix.Syscall(unix.SYS_BPF, unix.BPF_PROG_LOAD, uintptr(unsafe.Pointer(&load)), unsafe.Sizeof(load))
	runtime.KeepAlive(program)
	runtime.KeepAlive(licence)
	if errno != 0 {
		t.Fatal(errno)
	}
	if err := netlink.LinkSetXdpFdWithFlags(link, int(fd), 1<<1); err != nil { // generic
		t.Fatal(err)
	}
}
