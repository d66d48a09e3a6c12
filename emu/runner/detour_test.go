package runner

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"testbed/topo/units"
)

// takeDetour routes what a device receives to a TUN device, and returns each packet to IP after a delay, until it is killed: a
// delay that needs no support by the kernel's queues.
func takeDetour(t *testing.T, device, after string) {
	delay, err := time.ParseDuration(after)
	if err != nil {
		t.Fatal(err)
	}
	tun, err := openDetour(device)
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
