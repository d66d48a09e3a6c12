package runner

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"testbed/emu/live"
	"testbed/topo/units"
)

// detour lets packets that a device of a namespace receives wait in another process, from 300 ms after the start of the run
// to its end: a delay that needs no support by the kernel's queues.
func detour(t *testing.T, namespace, device string, delay time.Duration) tamper {
	return tamper{start: func(_ *live.Config, pins string) error {
		child(t, "detour", []string{"DETOUR=" + strings.Join([]string{filepath.Join(pins, namespace), device, delay.String()}, " ")})
		return nil
	}}
}

// takeDetour routes what a device receives to a TUN device, and returns each packet to IP after a delay, until it is killed.
func takeDetour(t *testing.T) {
	args := strings.Fields(os.Getenv("DETOUR"))
	delay, err := time.ParseDuration(args[2])
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond) // the run has begun
	enter(t, args[0])
	tun, err := openDetour(args[1])
	if err != nil {
		t.Fatal(err)
	}
	type waiting struct {
		until  time.Time
		packet []byte
	}
	packets := make(chan waiting, 1000)
	go func() {
		for p := range packets {
			time.Sleep(time.Until(p.until))
			if _, err := syscall.Write(tun, p.packet); err != nil {
				panic(err)
			}
		}
	}()
	for buffer := make([]byte, 64*units.KB); ; {
		n, err := syscall.Read(tun, buffer)
		if err != nil {
			t.Fatal(err)
		}
		packets <- waiting{time.Now().Add(delay), append([]byte(nil), buffer[:n]...)}
	}
}

// enter ties the goroutine to a thread of a namespace.
func enter(t *testing.T, namespace string) {
	t.Helper()
	runtime.LockOSThread() // and never unlocked: the thread ends with its namespace
	ns, err := netns.GetFromPath(namespace)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(netns.Set(ns), ns.Close()); err != nil {
		t.Fatal(err)
	}
}

// openDetour returns a new TUN device to which packets from another device are routed.
func openDetour(device string) (int, error) {
	tun, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, err
	}
	request, err := unix.NewIfreq("detour")
	if err != nil {
		return 0, err
	}
	request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(tun, unix.TUNSETIFF, request); err != nil {
		return 0, fmt.Errorf("TUNSETIFF: %w", err)
	}
	link, err := netlink.LinkByName("detour")
	if err != nil {
		return 0, err
	}
	const table = 77
	rule := netlink.NewRule()
	rule.IifName, rule.Table, rule.Priority = device, table, 100
	everywhere := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
	return tun, errors.Join(
		netlink.LinkSetUp(link),
		netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Table: table, Dst: everywhere}),
		netlink.RuleAdd(rule),
	)
}
