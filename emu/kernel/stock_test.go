package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"testbed/emu/kernel/netnstest"
)

// lacking ends a test of what stock kernels have and some others have not: make
// test-vm runs it on one that must have it.
func lacking(t *testing.T, what string) {
	t.Helper()
	if netnstest.Emulated() {
		t.Fatalf("%s, on a stock kernel", what)
	}
	t.Skipf("%s: tested by make test-vm", what)
}

// netem with a delay of 20 ms on one end of a link holds each datagram for that
// long, which a round trip shows.
func TestNetemDelays(t *testing.T) {
	netnstest.Require(t)
	const delay = 20 * time.Millisecond
	var spaces [2]ns.NetNS
	for i := range spaces {
		space, err := ns.TempNetNS()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := space.Close(); err != nil {
				t.Error(err)
			}
		})
		spaces[i] = space
	}
	inside := func(i int, f func() error) {
		t.Helper()
		if err := spaces[i].Do(func(ns.NetNS) error { return f() }); err != nil {
			t.Fatal(err)
		}
	}
	inside(0, func() error {
		link := netlink.NewVeth(netlink.LinkAttrs{Name: "end0"})
		link.PeerName, link.PeerNamespace = "end1", netlink.NsFd(int(spaces[1].Fd()))
		return netlink.LinkAdd(link)
	})
	for i := range spaces {
		inside(i, func() error {
			link, err := netlink.LinkByName(fmt.Sprint("end", i))
			if err != nil {
				return err
			}
			addr, err := netlink.ParseAddr(fmt.Sprintf("192.0.2.%d/24", i+1))
			if err != nil {
				return err
			}
			return errors.Join(netlink.AddrAdd(link, addr), netlink.LinkSetUp(link))
		})
	}
	var echo, ask net.Conn
	inside(1, func() error {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(192, 0, 2, 2), Port: 7})
		echo = c
		return err
	})
	inside(0, func() (err error) {
		ask, err = net.Dial("udp4", "192.0.2.2:7")
		return err
	})
	done := make(chan struct{})
	t.Cleanup(func() {
		ask.Close()
		echo.Close()
		<-done
	})
	go func() {
		defer close(done)
		b := make([]byte, 64)
		for {
			n, from, err := echo.(*net.UDPConn).ReadFrom(b)
			if err != nil {
				return // closed
			}
			_, _ = echo.(*net.UDPConn).WriteTo(b[:n], from) // the asker waits in vain, and says so
		}
	}()
	fastest := func() time.Duration {
		t.Helper()
		least := time.Hour
		for i := range 10 {
			start := time.Now()
			want := []byte{byte(i)}
			if err := ask.SetDeadline(start.Add(5 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if _, err := ask.Write(want); err != nil {
				t.Fatal(err)
			}
			got := make([]byte, 64)
			n, err := ask.Read(got)
			if err != nil || !bytes.Equal(got[:n], want) {
				t.Fatalf("an echo of %v: %v, %v", want, got[:n], err)
			}
			least = min(least, time.Since(start))
		}
		return least
	}
	before := fastest()
	var err error
	inside(0, func() error {
		link, err2 := netlink.LinkByName("end0")
		if err2 != nil {
			return err2
		}
		q := netlink.NewNetem(netlink.QdiscAttrs{LinkIndex: link.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
			netlink.NetemQdiscAttrs{Latency: uint32(delay.Microseconds())})
		err = netlink.QdiscAdd(q)
		return nil
	})
	if errors.Is(err, unix.ENOENT) {
		lacking(t, "the kernel has no netem")
	}
	if err != nil {
		t.Fatal(err)
	}
	after := fastest()
	t.Logf("fastest of ten round trips: %v without netem, %v with %v of it", before, after, delay)
	if before >= delay || after < delay || after-before > 2*delay {
		t.Errorf("a delay of %v makes %v of a round trip of %v", delay, after, before)
	}
}

// io.max of cgroup 2 holds a process to its bytes a second on a loop device:
// the bytes are those that the device counts.
func TestIOMaxThrottlesALoopDevice(t *testing.T) {
	netnstest.Require(t)
	const root = "/sys/fs/cgroup"
	if control, err := os.ReadFile(root + "/cgroup.subtree_control"); err != nil || !strings.Contains(" "+string(control), " io") {
		lacking(t, "cgroup 2 has no io controller")
	}
	const rate, size, block = 4 << 20, 4 << 20, 64 << 10
	file := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(file, make([]byte, 2*size), 0o600); err != nil {
		t.Fatal(err)
	}
	device, number := loopDevice(t, file)

	group := filepath.Join(root, fmt.Sprintf("testbed-test-%d", os.Getpid()))
	if err := os.Mkdir(group, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.Remove(group); err != nil {
			t.Error(err)
		}
	})
	dir, err := os.Open(group)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	write := func() time.Duration {
		t.Helper()
		before := sectors(t, device)
		cmd := exec.CommandContext(t.Context(), "dd", "if=/dev/zero", "of="+device, fmt.Sprint("bs=", block), fmt.Sprint("count=", size/block), "oflag=direct", "conv=notrunc")
		cmd.SysProcAttr = &unix.SysProcAttr{UseCgroupFD: true, CgroupFD: int(dir.Fd())}
		start := time.Now()
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		took := time.Since(start)
		if wrote := (sectors(t, device) - before) * 512; wrote != size {
			t.Errorf("%s counts %d bytes written, want %d", device, wrote, size)
		}
		return took
	}
	free := write()
	limit := fmt.Sprintf("%s wbps=%d", number, rate)
	if err := os.WriteFile(filepath.Join(group, "io.max"), []byte(limit), 0); err != nil {
		t.Fatalf("%s: %v", limit, err)
	}
	held := write()
	least := time.Duration(size) * time.Second / rate
	t.Logf("%d bytes: %v without a limit, %v at %d bytes a second", size, free, held, rate)
	if free > held/2 || held < least*8/10 {
		t.Errorf("the limit makes %v of %v, want at least %v", held, free, least)
	}
}

// loopDevice makes a block device of a file, and gives its path and numbers.
func loopDevice(t *testing.T, file string) (path, number string) {
	t.Helper()
	control, err := os.Open("/dev/loop-control")
	if err != nil {
		t.Fatal(err)
	}
	defer control.Close()
	n, err := unix.IoctlRetInt(int(control.Fd()), unix.LOOP_CTL_GET_FREE)
	if err != nil {
		t.Fatal(err)
	}
	path = "/dev/loop" + strconv.Itoa(n)
	device, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	backing, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer backing.Close()
	if err := unix.IoctlSetInt(int(device.Fd()), unix.LOOP_SET_FD, int(backing.Fd())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(unix.IoctlSetInt(int(device.Fd()), unix.LOOP_CLR_FD, 0), device.Close()); err != nil {
			t.Error(err)
		}
	})
	var st unix.Stat_t
	if err := unix.Fstat(int(device.Fd()), &st); err != nil {
		t.Fatal(err)
	}
	return path, fmt.Sprintf("%d:%d", unix.Major(st.Rdev), unix.Minor(st.Rdev))
}

// sectors is how many of 512 bytes were written to a device.
func sectors(t *testing.T, device string) int64 {
	t.Helper()
	stat, err := os.ReadFile("/sys/block/" + filepath.Base(device) + "/stat")
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(strings.Fields(string(stat))[6], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
