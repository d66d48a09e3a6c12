package runner

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"testbed/emu/fidelity"
	"testbed/emu/kernel"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/live"
	"testbed/emu/longtest"
	"testbed/emu/plan"
	"testbed/hosts/wire"
	"testbed/results/tooltest"
	"testbed/results/verdict"
)

// pastSettings returns distortions that use none of rtnetlink, nftables and the machine's parameters.
func pastSettings(t *testing.T) (all []plantedCase) {
	add := func(name, check, want string, often bool, of func(t *testing.T) tamper) {
		all = append(all, plantedCase{name, []string{check}, want, often, false, func(t *testing.T) (fidelity.Samples, verdict.Verdict) {
			return judgedSamples(t, at50, of(t))
		}})
	}
	for _, x := range []struct {
		name, kind, namespace, device, check, want string
		often                                      bool
	}{
		{"BPF at TCX, drops of 1 in 200 at ingress", "tcx-ingress-drops", "h1-00", "eth0", "kernel", "h1-00: BPF program at ingress of eth0", false},
		{"BPF at TCX, drops of 1 in 200 at egress", "tcx-egress-drops", "leaf0", "spine0", "kernel", "leaf0: BPF program at egress of spine0", false},
		{"BPF at TCX, small windows", "tcx-windows", "h0-00", "eth0", "flow-control", "kept back data of flows for", true},
		{"XDP by a link, drops of 1 in 200", "xdp-drops", "leaf0", "h0-00", "kernel", "leaf0>h0-00: XDP program", false},
		{"BPF of a cgroup, a pace for connections", "sockops-pacing", "h0-00", "lo", "kernel", "h0-00: pacing rate of connections none", false},
		{"BPF of a cgroup, a window of congestion of 4", "sockops-window", "h0-00", "lo", "kernel", "this program: BPF program of a cgroup that is TCP", false},
		{"BPF of a cgroup, drops of 1 in 200 on the way in", "cgroup-ingress-drops", "h0-00", "lo", "retransmission", "hosts lose packets after they arrive", true},
		{"BPF of a cgroup, drops of 1 in 200 on the way out", "cgroup-egress-drops", "h0-00", "lo", "kernel", "this program: BPF program of a cgroup that sends packets", false},
		{"a pace for sockets, from outside", "socket-pacing", "h0-00", "lo", "kernel", "h0-00: pacing rate of connections at their end none", true},
		{"another congestion control for sockets, from outside", "socket-reno", "h0-00", "lo", "kernel", "h0-00: congestion control of connections at their end cubic in the plan, reno", false},
		{"a small receive buffer for sockets, from outside", "socket-buffer", "h0-00", "lo", "kernel", "receive buffer of connections at their end", false},
		{"filters of sockets, drops of 1 in 200", "socket-filter", "h0-00", "lo", "kernel", "socket filter of connections at their end none", false},
		{"raw frames past the queue", "raw-frames", "h0-02", "eth0", "captured-bytes", "the capture of h0-02", false},
		{"SYNs to the port of the run", "syn-flood", "h0-02", "eth0", "foreign", "10.1.0.1:50060", true},
		{"a delay by a queue of netfilter", "netfilter-delay", "leaf0", "lo", "kernel", "leaf0: ip table mangle none in the plan, one", false},
		{"ICMP errors about packets of the run", "icmp", "leaf0", "h0-00", "foreign", "leaf0>h0-00 carried", false},
	} {
		add(x.name, x.check, x.want, x.often, func(t *testing.T) tamper {
			if x.kind == "netfilter-delay" {
				tooltest.Need(t, "iptables-legacy")
			}
			return fromOutside(t, x.kind, x.namespace, x.device)
		})
	}
	shell := func(name, check, want, namespace string, commands string) {
		add(name, check, want, false, func(t *testing.T) tamper {
			tooltest.Need(t, strings.Fields(commands)[0])
			return distort([][]distortion{{{name, namespace, commands, "", 0, ""}}})
		})
	}
	const legacy = "iptables-legacy -w 5 "
	shell("iptables, a segment size of 536", "kernel", "leaf0: ip table mangle none in the plan, one", "leaf0", legacy+"-t mangle -A FORWARD -p tcp --syn -j TCPMSS --set-mss 536")
	shell("iptables, drops of 1 in 200", "kernel", "h1-00: ip table filter none in the plan, one", "h1-00", legacy+"-A INPUT -p tcp -m statistic --mode random --probability 0.005 -j DROP")
	const second = "unshare -m sh -c 'mount --make-rprivate / && mount -t proc proc /mnt && "
	shell("a parameter by a second procfs", "kernel", "h1-01: net.ipv4.tcp_rmem", "h1-01", second+"echo 4096 8192 8192 >/mnt/sys/net/ipv4/tcp_rmem'")
	shell("a parameter of a device", "kernel", "h0-01: net.ipv4.conf.eth0.accept_local 0 in the plan, 1", "h0-01", "echo 1 >/proc/sys/net/ipv4/conf/eth0/accept_local")
	text, trace := at50()
	f, err := loadText(t, text, trace...).Shape().Build()
	if err != nil {
		t.Fatal(err)
	}
	l := findLink(t, f, "leaf0>spine0")
	built := plan.ShaperOf(f, l, f.Link(l).Rate, nil)
	same := fmt.Sprintf("tc qdisc change dev %s root handle 1: tbf rate %dbps burst %db limit %db", built.Device, built.Rate.BytesPerSecond(), int64(built.Burst), int64(built.Limit))
	shell("equal changes of a queue", "kernel", "leaf0>spine0: tbf set again", "leaf0", fmt.Sprintf("seq 500 | while read -r _; do %s; done", same))
	return all
}

// fromOutside starts role "outside" of TestChild in a namespace of a testbed, and waits until it has planted what kind names.
func fromOutside(t *testing.T, kind, namespace, device string) tamper {
	return tamper{start: func(_ *live.Config, pins string) error {
		if strings.HasPrefix(kind, "sockops") || strings.HasPrefix(kind, "cgroup") {
			t.Cleanup(func() {
				if err := leaveCgroup(); err != nil {
					t.Error(err)
				}
			})
		}
		c := child(t, "outside", []string{"SENSITIVITY_INSIDE=" + strings.Join([]string{filepath.Join(pins, namespace), device, kind}, " ")})
		lines := bufio.NewScanner(c.stdout)
		for lines.Scan() {
			if lines.Text() == planted {
				return nil
			}
			t.Log(lines.Text())
		}
		return fmt.Errorf("%s: not planted", kind)
	}}
}

// planted is what role "outside" prints when it is ready.
const planted = "planted"

// A program of the cgroup that was there before the run is no change: service managers attach such programs to count traffic.
func TestProgramFromBeforeVoidsNothing(t *testing.T) {
	longtest.Skip(t, "judges a run on packets, 4 s")
	netnstest.Require(t)
	if err := fromOutside(t, "cgroup-egress-passes", "net", "lo").start(nil, "/proc/self/ns"); err != nil {
		t.Fatal(err)
	}
	was, err := kernel.ProcessSnapshot()
	if err != nil || len(was) == 0 {
		t.Fatalf("programs %v: %v", was, err)
	}
	_, v := judgedSamples(t, brief50, tamper{})
	if level(v, "kernel") != verdict.Pass {
		show(t, v, true)
		t.Error("the kernel was changed")
	}
}

// plant distorts a run in ways that rtnetlink, nftables and the machine's parameters do not show, until it is killed. The run is
// that of the parent process.
func plant(t *testing.T, namespace, device, kind string) {
	if err := enter(namespace); err != nil {
		t.Fatal(err)
	}
	index := 0
	if d, err := net.InterfaceByName(device); err == nil {
		index = d.Index
	}
	var err error
	each := func() {}
	switch kind {
	case "tcx-ingress-drops":
		err = linkBPF(uint32(index), unix.BPF_TCX_INGRESS, unix.BPF_PROG_TYPE_SCHED_CLS, 0, dropOne(200, 2, -1))
	case "tcx-egress-drops":
		err = linkBPF(uint32(index), unix.BPF_TCX_EGRESS, unix.BPF_PROG_TYPE_SCHED_CLS, 0, dropOne(200, 2, -1))
	case "tcx-windows":
		err = linkBPF(uint32(index), unix.BPF_TCX_INGRESS, unix.BPF_PROG_TYPE_SCHED_CLS, 0, clampWindows(20))
	case "xdp-drops":
		const generic = 1 << 1 // XDP_FLAGS_SKB_MODE
		err = linkBPF(uint32(index), unix.BPF_XDP, unix.BPF_PROG_TYPE_XDP, generic, dropOne(200, 1, 2))
	case "sockops-pacing":
		err = ofCgroup(unix.BPF_CGROUP_SOCK_OPS, unix.BPF_PROG_TYPE_SOCK_OPS, setOption(unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, 1_500_000))
	case "sockops-window":
		const clamp = 1002 // TCP_BPF_SNDCWND_CLAMP
		err = ofCgroup(unix.BPF_CGROUP_SOCK_OPS, unix.BPF_PROG_TYPE_SOCK_OPS, setOption(unix.IPPROTO_TCP, clamp, 4))
	case "cgroup-ingress-drops":
		err = ofCgroup(unix.BPF_CGROUP_INET_INGRESS, unix.BPF_PROG_TYPE_CGROUP_SKB, dropOne(200, 0, 1))
	case "cgroup-egress-passes":
		err = ofCgroup(unix.BPF_CGROUP_INET_EGRESS, unix.BPF_PROG_TYPE_CGROUP_SKB, dropOne(200, 1, 1))
	case "cgroup-egress-drops":
		err = ofCgroup(unix.BPF_CGROUP_INET_EGRESS, unix.BPF_PROG_TYPE_CGROUP_SKB, dropOne(200, 0, 1))
	case "socket-pacing":
		each = everySocket(func(fd int) error {
			return unix.SetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_MAX_PACING_RATE, 1_500_000)
		})
	case "socket-reno":
		each = everySocket(func(fd int) error {
			return unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "reno")
		})
	case "socket-buffer":
		each = everySocket(func(fd int) error {
			return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 32768)
		})
	case "socket-filter":
		const random = 0xfffff038 // SKF_AD_OFF + SKF_AD_RANDOM
		filter := []unix.SockFilter{
			{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: random},
			{Code: unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, K: 1 << 32 / 200, Jf: 1},
			{Code: unix.BPF_RET, K: 1 << 18},
			{Code: unix.BPF_RET},
		}
		each = everySocket(func(fd int) error {
			return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
		})
	case "raw-frames":
		each, err = repeatFrames(index, 200*time.Microsecond, func(b []byte) []byte { return append(b, make([]byte, 1000)...) }, 0x88b5)
	case "syn-flood":
		each, err = repeatFrames(index, 200*time.Microsecond, syn, unix.ETH_P_IP)
	case "icmp":
		each, err = shorten(index)
	case "netfilter-delay":
		each, err = delayForwarded(10 * time.Millisecond)
	default:
		err = errors.New("unknown kind")
	}
	if err != nil {
		t.Fatalf("%s: %v", kind, err)
	}
	fmt.Println(planted)
	for parent := os.Getppid(); os.Getppid() == parent; { // it may be killed
		each()
		time.Sleep(20 * time.Millisecond)
	}
}

// instruction is one of BPF's. Registers are the destination and, times 16, the source.
type instruction struct {
	code, registers byte
	offset          int16
	value           int32
}

// Instructions of which programs consist.
const (
	call   = unix.BPF_JMP | unix.BPF_CALL
	exit   = unix.BPF_JMP | unix.BPF_EXIT
	moveK  = unix.BPF_ALU64 | unix.BPF_MOV | unix.BPF_K
	moveX  = unix.BPF_ALU64 | unix.BPF_MOV | unix.BPF_X
	atMost = unix.BPF_JMP | unix.BPF_JLE | unix.BPF_K
	equal  = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K
	notIs  = unix.BPF_JMP | unix.BPF_JNE | unix.BPF_K
)

// dropOne returns drop for one packet in n, and pass for the others.
func dropOne(n, drop, pass int32) []instruction {
	return []instruction{
		{call, 0, 0, 7}, // r0 = bpf_get_prandom_u32()
		{unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K, 0, 2, int32(1 << 32 / int64(n))},
		{moveK, 0, 0, drop},
		{exit, 0, 0, 0},
		{moveK, 0, 0, pass},
		{exit, 0, 0, 0},
	}
}

// clampWindows lowers the windows that packets of TCP announce, and passes them on.
func clampWindows(most int32) []instruction {
	const protocol, window, sum = 23, 48, 50 // behind the headers of Ethernet and of IP
	swapped := int32(binary.LittleEndian.Uint16([]byte{byte(most >> 8), byte(most)}))
	return []instruction{
		{moveX, 0x16, 0, 0}, // r6 = packet
		{unix.BPF_LD | unix.BPF_ABS | unix.BPF_B, 0, 0, protocol},
		{notIs, 0, 18, unix.IPPROTO_TCP},
		{unix.BPF_LD | unix.BPF_ABS | unix.BPF_H, 0, 0, window},
		{atMost, 0, 16, most},
		{moveX, 0x07, 0, 0},
		{unix.BPF_ALU | unix.BPF_END | unix.BPF_TO_BE, 7, 0, 16},
		{unix.BPF_ST | unix.BPF_MEM | unix.BPF_H, 10, -2, swapped},
		{moveX, 0x61, 0, 0},
		{moveK, 2, 0, sum},
		{moveX, 0x73, 0, 0},
		{moveK, 4, 0, swapped},
		{moveK, 5, 0, 2},
		{call, 0, 0, 11}, // bpf_l4_csum_replace
		{moveX, 0x61, 0, 0},
		{moveK, 2, 0, window},
		{moveX, 0xa3, 0, 0},
		{unix.BPF_ALU64 | unix.BPF_ADD | unix.BPF_K, 3, 0, -2},
		{moveK, 4, 0, 2},
		{moveK, 5, 0, 0},
		{call, 0, 0, 9}, // bpf_skb_store_bytes
		{moveK, 0, 0, -1},
		{exit, 0, 0, 0},
	}
}

// setOption sets an option of each connection once it is established.
func setOption(level, option, value int32) []instruction {
	const active, passive = 4, 5 // BPF_SOCK_OPS_*_ESTABLISHED_CB
	return []instruction{
		{unix.BPF_LDX | unix.BPF_MEM | unix.BPF_W, 0x12, 0, 0}, // r2 = what happened
		{equal, 2, 1, active},
		{notIs, 2, 7, passive},
		{unix.BPF_ST | unix.BPF_MEM | unix.BPF_W, 10, -4, value},
		{moveK, 2, 0, level},
		{moveK, 3, 0, option},
		{moveX, 0xa4, 0, 0},
		{unix.BPF_ALU64 | unix.BPF_ADD | unix.BPF_K, 4, 0, -4},
		{moveK, 5, 0, 4},
		{call, 0, 0, 49}, // bpf_setsockopt
		{moveK, 0, 0, 1},
		{exit, 0, 0, 0},
	}
}

// bpf calls bpf(2).
func bpf(command uintptr, attr unsafe.Pointer, size uintptr) (int, error) {
	fd, _, errno := unix.Syscall(unix.SYS_BPF, command, uintptr(attr), size)
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// loadBPF loads a program for a point at which it is attached.
func loadBPF(kind, at uint32, program []instruction) (int, error) {
	licence := []byte("GPL\x00")
	log := make([]byte, 1<<16)
	var pinned runtime.Pinner
	defer pinned.Unpin()
	pinned.Pin(&licence[0])
	pinned.Pin(&program[0])
	pinned.Pin(&log[0])
	attr := struct {
		kind, instructions    uint32
		program, licence      uint64
		level, size           uint32
		log                   uint64
		version, flags        uint32
		name                  [16]byte
		index, expectedAttach uint32
	}{kind: kind, instructions: uint32(len(program)), program: uint64(uintptr(unsafe.Pointer(&program[0]))), licence: uint64(uintptr(unsafe.Pointer(&licence[0]))),
		level: 1, size: uint32(len(log)), log: uint64(uintptr(unsafe.Pointer(&log[0]))), expectedAttach: at}
	fd, err := bpf(unix.BPF_PROG_LOAD, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	if err != nil {
		return -1, fmt.Errorf("%w: %s", err, unix.ByteSliceToString(log))
	}
	return fd, nil
}

// linkBPF attaches a program to a device, or a cgroup, until this process ends.
func linkBPF(target, at, kind, flags uint32, program []instruction) error {
	fd, err := loadBPF(kind, at, program)
	if err != nil {
		return err
	}
	attr := struct{ program, target, at, flags, more, _, _, _ uint32 }{uint32(fd), target, at, flags, 0, 0, 0, 0}
	_, err = bpf(unix.BPF_LINK_CREATE, unsafe.Pointer(&attr), unsafe.Sizeof(attr))
	return err
}

// ofCgroup moves the parent process to a cgroup of its own below its present one, with a program.
func ofCgroup(at, kind uint32, program []instruction) error {
	parent := os.Getppid()
	return withCgroups(parent, func(present string) error {
		dir := filepath.Join(present, ownCgroup(parent))
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			return err
		}
		if err := linkBPF(uint32(fd), at, kind, 0, program); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(parent)), 0)
	})
}

// ownCgroup returns the name of the cgroup that ofCgroup makes for a process.
func ownCgroup(process int) string { return fmt.Sprintf("testbed-outside-%d", process) }

// leaveCgroup takes this process out of the cgroup that ofCgroup made, and removes that.
func leaveCgroup() error {
	return withCgroups(os.Getpid(), func(present string) error {
		if filepath.Base(present) != ownCgroup(os.Getpid()) {
			return nil // it was not planted
		}
		if err := os.WriteFile(filepath.Join(filepath.Dir(present), "cgroup.procs"), []byte(strconv.Itoa(os.Getpid())), 0); err != nil {
			return err
		}
		return os.Remove(present)
	})
}

// withCgroups calls f with the directory of a process in cgroup 2, mounted for f alone.
func withCgroups(process int, f func(present string) error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the mount goes with the thread
		err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS)
		if err == nil {
			err = unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")
		}
		if err == nil {
			err = unix.Mount("cgroup2", "/sys/fs/cgroup", "cgroup2", 0, "")
		}
		b, readErr := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", process))
		if err = errors.Join(err, readErr); err == nil {
			_, path, _ := strings.Cut(string(b), "0::")
			path, _, _ = strings.Cut(path, "\n")
			err = f(filepath.Join("/sys/fs/cgroup", path))
		}
		done <- err
	}()
	return <-done
}

// everySocket returns a function that changes each socket of the parent process, once.
func everySocket(change func(fd int) error) func() {
	process, err := unix.PidfdOpen(os.Getppid(), 0)
	if err != nil {
		panic(err)
	}
	seen := map[string]bool{}
	return func() {
		dir := fmt.Sprintf("/proc/%d/fd", os.Getppid())
		entries, _ := os.ReadDir(dir) // those that are gone meanwhile
		for _, e := range entries {
			name, err := os.Readlink(filepath.Join(dir, e.Name()))
			if err != nil || !strings.HasPrefix(name, "socket:") || seen[name] {
				continue
			}
			n, err := strconv.Atoi(e.Name())
			if err != nil {
				continue
			}
			fd, err := unix.PidfdGetfd(process, n, 0)
			if err != nil {
				continue
			}
			if i, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil && i.State == 1 {
				seen[name] = change(fd) == nil
			}
			unix.Close(fd)
		}
	}
}

// repeatFrames returns a function that sends frames by a device, past its queue, for 20 ms, one after each gap.
func repeatFrames(index int, gap time.Duration, fill func([]byte) []byte, kind int) (func(), error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, 0)
	if err != nil {
		return nil, err
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
		return nil, err
	}
	to := &unix.SockaddrLinklayer{Ifindex: index}
	peer, err := gatewayMAC()
	if err != nil {
		return nil, err
	}
	return func() {
		for end := time.Now().Add(20 * time.Millisecond); time.Now().Before(end); time.Sleep(gap) {
			b := append(append([]byte{}, peer...), 2, 0, 0, 0, 0, 9)
			b = binary.BigEndian.AppendUint16(b, uint16(kind))
			_ = unix.Sendto(fd, fill(b), 0, to) // a device that is gone ends the run
		}
	}, nil
}

// gatewayMAC returns the address of the only neighbour of the namespace.
func gatewayMAC() ([]byte, error) {
	b, err := os.ReadFile("/proc/thread-self/net/arp")
	if err != nil {
		return nil, err
	}
	lines := strings.Split(string(b), "\n")
	if len(lines) < 2 {
		return nil, errors.New("no neighbour")
	}
	return net.ParseMAC(strings.Fields(lines[1])[3])
}

// syn appends a SYN from h0-02 to the port for flows of h1-00.
func syn(b []byte) []byte {
	tcp := binary.BigEndian.AppendUint16(nil, uint16(33000+rand.N(20000)))
	tcp = binary.BigEndian.AppendUint16(tcp, wire.ShufflePort)
	tcp = binary.BigEndian.AppendUint32(tcp, rand.Uint32())
	tcp = append(tcp, 0, 0, 0, 0, 5<<4, 2, 0x10, 0, 0, 0, 0, 0)
	from, to := []byte{10, 0, 2, 1}, []byte{10, 1, 0, 1}
	pseudo := append(append(append([]byte{}, from...), to...), 0, unix.IPPROTO_TCP, 0, byte(len(tcp)))
	binary.BigEndian.PutUint16(tcp[16:], checksum(append(pseudo, tcp...)))
	return append(append(b, header(from, to, unix.IPPROTO_TCP, len(tcp))...), tcp...)
}

// header returns a header of IPv4.
func header(from, to []byte, protocol byte, payload int) []byte {
	b := []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0}
	binary.BigEndian.PutUint16(b[2:], uint16(20+payload))
	b = append(append(b, from...), to...)
	binary.BigEndian.PutUint16(b[10:], checksum(b))
	return b
}

func checksum(b []byte) uint16 {
	sum := uint32(0)
	for i := 0; i+1 < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	if len(b)%2 == 1 {
		sum += uint32(b[len(b)-1]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

// shorten answers packets that a device receives with errors: they are longer than 600 bytes.
func shorten(index int) (func(), error) {
	all := int(binary.LittleEndian.Uint16([]byte{unix.ETH_P_IP >> 8, unix.ETH_P_IP & 0xff}))
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW, all)
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Ifindex: index, Protocol: uint16(all)}); err != nil {
		return nil, err
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 20_000}); err != nil {
		return nil, err
	}
	to := &unix.SockaddrLinklayer{Ifindex: index}
	b := make([]byte, 2048)
	return func() {
		last := time.Now()
		for end := last.Add(time.Second); time.Now().Before(end); {
			n, from, err := unix.Recvfrom(fd, b, 0)
			l, ok := from.(*unix.SockaddrLinklayer)
			if err != nil || !ok || l.Pkttype == unix.PACKET_OUTGOING || n < 700 || b[23] != unix.IPPROTO_TCP || time.Since(last) < 5*time.Millisecond {
				continue // also of packets that waited here: TCP ignores errors about what has been acknowledged
			}
			last = time.Now()
			icmp := append([]byte{3, 4, 0, 0, 0, 0, 600 >> 8, 600 & 0xff}, b[14:14+28]...)
			binary.BigEndian.PutUint16(icmp[2:], checksum(icmp))
			frame := append(append(append([]byte{}, b[6:12]...), b[:6]...), 8, 0)
			frame = append(append(frame, header(b[30:34], b[26:30], unix.IPPROTO_ICMP, len(icmp))...), icmp...)
			_ = unix.Sendto(fd, frame, 0, to) // a device that is gone ends the run
		}
	}, nil
}

// delayForwarded holds back each packet that a namespace forwards, in queue 0 of netfilter, which iptables fills.
func delayForwarded(by time.Duration) (func(), error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	const packet, verdict, config = unix.NFNL_SUBSYS_QUEUE << 8, unix.NFNL_SUBSYS_QUEUE<<8 | 1, unix.NFNL_SUBSYS_QUEUE<<8 | 2
	send := func(kind, attribute uint16, data ...byte) error {
		b := binary.NativeEndian.AppendUint32(nil, uint32(16+4+4+(len(data)+3)&^3))
		b = binary.NativeEndian.AppendUint16(b, kind)
		b = binary.NativeEndian.AppendUint16(b, unix.NLM_F_REQUEST)
		b = append(b, make([]byte, 8+4)...) // no sequence, this process, any family, queue 0
		b = binary.NativeEndian.AppendUint16(b, uint16(4+len(data)))
		b = append(binary.NativeEndian.AppendUint16(b, attribute), data...)
		return unix.Sendto(fd, append(b, make([]byte, (4-len(data)%4)%4)...), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}
	if err := errors.Join(
		send(config, 1, 1, 0, 0, 0),    // NFQA_CFG_CMD: bind
		send(config, 2, 0, 0, 0, 0, 1), // NFQA_CFG_PARAMS: without the data of packets
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 500}),
		exec.Command("iptables-legacy", "-w", "5", "-t", "mangle", "-A", "FORWARD", "-j", "NFQUEUE").Run(),
	); err != nil {
		return nil, err
	}
	type held struct {
		id  []byte
		due time.Time
	}
	var queue []held
	b := make([]byte, 1<<16)
	return func() {
		for end := time.Now().Add(time.Second); time.Now().Before(end); {
			if n, _, err := unix.Recvfrom(fd, b, 0); err == nil && n >= 28 && binary.NativeEndian.Uint16(b[4:]) == packet {
				queue = append(queue, held{bytes.Clone(b[24:28]), time.Now().Add(by)}) // NFQA_PACKET_HDR is the first attribute
			}
			for ; len(queue) > 0 && !time.Now().Before(queue[0].due); queue = queue[1:] {
				_ = send(verdict, 2, append([]byte{0, 0, 0, 1}, queue[0].id...)...) // accept; the namespace may be gone
			}
		}
	}, nil
}
