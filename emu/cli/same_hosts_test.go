package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"testbed/emu/deploy"
	"testbed/results/tooltest"
)

// stateOfHost prints what a namespace has that can differ: all of its parameters, devices with
// their offloads, queues, addresses, routes, neighbours and filters.
const stateOfHost = `
grep -r '' /proc/sys/net 2>&1 | sort
for d in lo eth0 $(ip -o link show up | sed -n 's/.*: \(h[0-9-]*\|leaf[0-9]*\|spine[0-9]*\)@.*/\1/p'); do
	ip -d -o link show dev $d 2>/dev/null | sed 's/ link-netnsid [0-9]*//'
	[ $d = lo ] || offloads $d 2>/dev/null
done
tc qdisc show
ip -o addr show | sed 's/^[0-9]*: //'
ip -4 route show table all; ip -6 route show table all; ip rule show; ip neigh show nud permanent | sort
nft list ruleset 2>/dev/null
true`

// offloads is a program that prints all features of a device: each word of those that are available,
// requested, active and fixed (ETHTOOL_GFEATURES).
func offloads() {
	arg := [2 + 4*4]uint32{unix.ETHTOOL_GFEATURES, 4} // for up to 128 features
	var req struct {                                  // struct ifreq
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}
	copy(req.name[:], os.Args[1])
	req.data = unsafe.Pointer(&arg)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err == nil {
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL, uintptr(unsafe.Pointer(&req))); errno != 0 {
			err = errno
		}
	}
	runtime.KeepAlive(&arg)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Printf("features of %s: %x\n", os.Args[1], arg[1:])
}

// hostState returns the state of a namespace.
func hostState(t *testing.T, pin string) string {
	t.Helper()
	return combined(t, "nsenter", "--net="+pin, "sh", "-c", stateOfHost)
}

// A host and a leaf of a testbed that is up have the same parameters, devices, queues and routes as
// those of a run of the same scenario.
func TestHostsOfUpAndRunAreTheSame(t *testing.T) {
	t.Parallel()
	tooltest.Need(t, "ip", "tc", "nsenter")
	p := upLab(t)
	run := newPlace(t)
	c := run.command(t, "run", "scenario.yaml")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Wait() }() // of no interest: it is interrupted
	signal := func(s syscall.Signal) {
		if err := c.Process.Signal(s); err != nil {
			t.Error(err)
		}
	}
	pins := ""
	for start := time.Now(); pins == ""; time.Sleep(20 * time.Millisecond) {
		entries, err := deploy.List(t.Context(), run.state)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if e.State.Ready {
				pins = e.PinDir()
			}
		}
		if time.Since(start) > time.Minute {
			t.Fatal("the run built no testbed in a minute")
		}
	}
	signal(syscall.SIGSTOP) // its testbed stays as it is
	defer func() { signal(syscall.SIGINT); signal(syscall.SIGCONT) }()
	for _, name := range []string{"h0-00", "h1-02", "leaf1", "spine0"} {
		inRun := hostState(t, filepath.Join(pins, name))
		inUp := hostState(t, filepath.Join(p.state, "lab", "ns", name))
		if n := strings.Count(inUp, "\n"); n < 300 || !strings.Contains(inUp, "features of ") {
			t.Fatalf("%s: only %d lines:\n%s", name, n, inUp)
		}
		if diff := cmp.Diff(inRun, inUp); diff != "" {
			t.Errorf("%s of a run and of a testbed that is up (-run +up):\n%s", name, diff)
		}
	}
}

// Both ends of connections of a program in a testbed that is up use the scenario's congestion
// control, whatever the machine's default is.
func TestProgramsUseTheCongestionControl(t *testing.T) {
	t.Parallel()
	tooltest.Need(t, "iperf3", "ss")
	for _, name := range []string{"cubic", "reno"} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			p.edit(t, "queue: 20ms", "queue: 20ms, congestion_control: "+name)
			p.upHere(t)
			server := p.command(t, "exec", "h1-00", "--", "timeout", "20", "iperf3", "-s", "-1")
			client := p.command(t, "exec", "h0-00", "--", "sh", "-c",
				"until iperf3 -c h1-00 -t 15; do sleep 0.1; done") // until both ends were seen
			client.Stdout = nil
			for _, c := range []*exec.Cmd{server, client} {
				if err := c.Start(); err != nil {
					t.Fatal(err)
				}
			}
			uses := regexp.MustCompile(`(?m)^ESTAB.*\n\s+(\w+) `)
			seen := map[string]int{}
			for start := time.Now(); len(seen) < 2 && time.Since(start) < 15*time.Second; {
				for _, host := range []string{"h0-00", "h1-00"} {
					out, _ := p.run(t, 0, "exec", host, "--", "ss", "-tinH")
					for _, m := range uses.FindAllStringSubmatch(strings.TrimSpace(out), -1) {
						if m[1] != name {
							t.Errorf("a connection of %s uses %s, want %s:\n%s", host, m[1], name, out)
						}
						seen[host]++
					}
				}
			}
			if len(seen) < 2 {
				t.Errorf("connections were seen on %v, want both hosts", seen)
			}
			for _, c := range []*exec.Cmd{client, server} {
				if err := c.Process.Signal(syscall.SIGTERM); err != nil {
					t.Error(err)
				}
				_ = c.Wait() // by the signal
			}
		})
	}
}
