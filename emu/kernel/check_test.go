package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"testbed/emu/deploy"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/plan"
	"testbed/results/tooltest"
	"testbed/topo"
	"testbed/topo/units"
)

// kept is a fabric with its executor still open.
type kept struct {
	plan *plan.Plan
	x    *Executor
	t    testing.TB
}

func keep(t testing.TB, s topo.LeafSpine) *kept {
	t.Helper()
	netnstest.Require(t)
	f, err := s.Build()
	if err != nil {
		t.Fatal(err)
	}
	k := &kept{plan.Compile("check", f, plan.Options{Seed: 1, Congestion: "cubic"}), NewExecutor(t.TempDir()), t}
	d, err := deploy.Apply(t.Context(), k.plan, k.x)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(d.Destroy(context.Background()), k.x.Close()); err != nil {
			t.Error(err)
		}
	})
	return k
}

// sh runs a command in a namespace.
func (k *kept) sh(namespace, command string) {
	k.t.Helper()
	if out, err := k.try(namespace, command); err != nil {
		k.t.Fatalf("in %s: %s: %v\n%s", namespace, command, err, out)
	}
}

func (k *kept) try(namespace, command string) (string, error) {
	var out strings.Builder
	cmd := exec.Command("sh", "-c", command)
	cmd.Stdout, cmd.Stderr = &out, &out
	err := k.x.builder(namespace).do(cmd.Run)
	return out.String(), err
}

// verify returns the differences from the plan.
func (k *kept) verify() []string {
	k.t.Helper()
	err := deploy.Verify(k.t.Context(), k.plan, k.x)
	var d *deploy.DifferenceError
	if err != nil && !errors.As(err, &d) {
		k.t.Fatal(err)
	}
	if d == nil {
		return nil
	}
	return d.Differences
}

// alteration changes a kernel object without the executor.
type alteration struct {
	name, namespace, alter, restore string
	want                            []string // differences from the plan
}

const alteredShaper = "tc qdisc replace dev h0-01 root handle 1: tbf rate 20000000bit burst 2264b limit 50000b"

const hostRoute = "ip route change default via %GW% dev eth0 proto static congctl cubic"

const frameLost = "%s: a frame from %s is lost: no arrival within 200ms"

// alterations are of a fabric of 2 leaves, 2 spines and 4 hosts at 20 Mbps.
func alterations() []alteration {
	const tbf, lost = alteredShaper, frameLost
	return []alteration{
		{"rate", "leaf0", strings.Replace(tbf, "20000000", "10000000", 1), tbf,
			[]string{"leaf0>h0-01: rate 20Mbps in the plan, 10Mbps in the kernel"}},
		{"burst", "leaf0", strings.Replace(tbf, "2264b", "2300b", 1), tbf,
			[]string{"leaf0>h0-01: burst 2264 bytes in the plan, 2300 bytes in the kernel"}},
		{"queue", "leaf0", strings.Replace(tbf, "50000b", "40000b", 1), tbf,
			[]string{"leaf0>h0-01: queue 50000 bytes in the plan, 40000 bytes in the kernel"}},
		{"no shaper", "leaf0", "tc qdisc del dev h0-01 root", tbf,
			[]string{"leaf0>h0-01: qdisc tbf at root in the plan, none in the kernel"}},
		{"other shaper", "leaf0", "tc qdisc replace dev h0-01 root handle 2: pfifo limit 10", "tc qdisc del dev h0-01 root; " + tbf,
			[]string{"leaf0>h0-01: qdisc tbf at root in the plan, pfifo in the kernel"}},
		{"MTU", "spine1", "ip link set leaf0 mtu 1400", "ip link set leaf0 mtu 1500",
			[]string{"spine1>leaf0: MTU 1500 in the plan, 1400 in the kernel"}},
		{"segments", "h0-00", "ip link set eth0 gso_max_segs 40", "ip link set eth0 gso_max_segs 1",
			[]string{"h0-00>leaf0: gso_max_segs 1 in the plan, 40 in the kernel"}},
		{"route deleted", "leaf1", "ip route del 10.0.0.0/8", "ip route add 10.0.0.0/8 proto static %BOTH1%",
			[]string{"leaf1: route 10.0.0.0/8 via"}},
		{"route of one next hop", "leaf0", "ip route replace 10.0.0.0/8 proto static %SPINE0%", "ip route replace 10.0.0.0/8 proto static %BOTH%",
			[]string{"leaf0: route 10.0.0.0/8 via"}},
		{"route weighted", "leaf0", "ip route replace 10.0.0.0/8 proto static %WEIGHTED%", "ip route replace 10.0.0.0/8 proto static %BOTH%",
			[]string{"leaf0: route 10.0.0.0/8 via"}},
		{"route added", "h0-01", "ip route add 10.9.0.0/16 dev eth0", "ip route del 10.9.0.0/16",
			[]string{"h0-01: route 10.9.0.0/16 none in the plan, dev eth0 in the kernel"}},
		{"blackhole answered", "leaf0", "ip route del blackhole 10.0.0.0/16; ip route add unreachable 10.0.0.0/16", "ip route del unreachable 10.0.0.0/16; ip route add blackhole 10.0.0.0/16 proto static",
			[]string{"leaf0: route 10.0.0.0/16 blackhole in the plan, dev none (a route of type 7) in the kernel"}},
		{"neighbour", "h0-01", "ip neigh replace %GW% lladdr 02:00:00:00:00:66 nud permanent dev eth0", "ip neigh replace %GW% lladdr 02:00:00:00:01:00 nud permanent dev eth0",
			[]string{"h0-01>leaf0: neighbour %GW% 02:00:00:00:01:00 in the plan, 02:00:00:00:00:66 in the kernel"}},
		{"neighbour that ages", "h0-01", "ip neigh change %GW% lladdr 02:00:00:00:01:00 nud stale dev eth0", "ip neigh replace %GW% lladdr 02:00:00:00:01:00 nud permanent dev eth0",
			[]string{"h0-01>leaf0: neighbour %GW% 02:00:00:00:01:00 in the plan, none in the kernel"}},
		{"address added", "h1-00", "ip addr add 10.7.7.7/32 dev eth0", "ip addr del 10.7.7.7/32 dev eth0",
			[]string{"h1-00>leaf1: address 10.7.7.7 none in the plan, 10.7.7.7/32 in the kernel"}},
		{"offload", "h1-01", "%OFFLOAD%", "%ONLOAD%",
			[]string{"h1-01>leaf1: offload gro off in the plan, on in the kernel"}},
		{"parameter", "leaf0", "echo 1 > /proc/sys/net/ipv4/fib_multipath_hash_policy", "echo 3 > /proc/sys/net/ipv4/fib_multipath_hash_policy",
			[]string{"leaf0: net.ipv4.fib_multipath_hash_policy 3 in the plan, 1 in the kernel"}},
		{"parameter of three", "h0-00", "echo 4096 131072 600000 > /proc/sys/net/ipv4/tcp_rmem", "echo 4096 131072 6291456 > /proc/sys/net/ipv4/tcp_rmem",
			[]string{"h0-00: net.ipv4.tcp_rmem 4096 131072 6291456 in the plan, 4096 131072 600000 in the kernel"}},
		{"ingress drop", "leaf0", "tc qdisc add dev spine1 clsact; tc filter add dev spine1 ingress bpf da bytecode '1,6 0 0 2'", "tc qdisc del dev spine1 clsact",
			[]string{"leaf0>spine1: qdisc none in the plan, clsact at ingress in the kernel", fmt.Sprintf(lost, "spine1>leaf0", "leaf0")}},
		{"device added", "leaf0", "ip link add stray type bridge", "ip link del stray",
			[]string{"leaf0 stray: device none in the plan, stray in the kernel"}},
		{"peak rate", "leaf0", tbf + " peakrate 30mbit mtu 3000", tbf, []string{"leaf0>h0-01: shaper's peak rate none in the plan, peak rate in the kernel"}},
		{"route with an initial window", "h0-01", "ip route change default via %GW% dev eth0 proto static congctl cubic initcwnd 50", hostRoute,
			[]string{"h0-01: route default via %GW% dev eth0, congctl cubic in the plan, via %GW% dev eth0, congctl cubic, initcwnd 50 in the kernel"}},
		{"another congestion control", "h0-01", "ip route change default via %GW% dev eth0 proto static congctl reno", hostRoute,
			[]string{"h0-01: route default via %GW% dev eth0, congctl cubic in the plan, via %GW% dev eth0, congctl reno in the kernel"}},
		{"no congestion control", "h0-01", "ip route change default via %GW% dev eth0 proto static", hostRoute,
			[]string{"h0-01: route default via %GW% dev eth0, congctl cubic in the plan, via %GW% dev eth0 in the kernel"}},
		{"rule", "leaf0", "ip rule add pref 100 lookup 7", "ip rule del pref 100", []string{"leaf0: rule 100: table 7 none in the plan, one in the kernel"}},
		{"lo down", "h0-00", "ip link set lo down", "ip link set lo up",
			[]string{"h0-00 lo: device up in the plan, down in the kernel"}},
	}
}

// alter carries an alteration out, restore takes it back.
func (k *kept) alter(c alteration) {
	k.t.Helper()
	k.carryOut(c.namespace, c.alter)
}

func (k *kept) restore(c alteration) {
	k.t.Helper()
	k.carryOut(c.namespace, c.restore)
}

func (k *kept) carryOut(namespace, command string) {
	k.t.Helper()
	if value, ok := map[string]uint32{"%OFFLOAD%": 1, "%ONLOAD%": 0}[command]; ok {
		if err := k.x.builder(namespace).ethtool(plan.Uplink, unix.ETHTOOL_SGRO, value); err != nil {
			k.t.Fatal(err)
		}
		return
	}
	k.sh(namespace, k.fill(command))
}

// Each kind of kernel object is altered without the executor, reported by name, and restored.
func TestVerifyNamesWhatWasAltered(t *testing.T) {
	t.Parallel()
	tooltest.Need(t, "ip", "tc")
	k := keep(t, shape(2, 2, 2, 20*units.Mbps, 1500))
	k.x.Settings.ProbeTimeout = 200 * time.Millisecond
	if d := k.verify(); len(d) > 0 {
		t.Fatalf("as built it differs: %q", d)
	}
	for _, c := range alterations() {
		t.Run(c.name, func(t *testing.T) {
			k.t = t
			k.alter(c)
			got := k.verify()
			k.restore(c)
			t.Logf("%q", got)
			ok := len(got) == len(c.want)
			for i := 0; ok && i < len(got); i++ {
				ok = strings.HasPrefix(got[i], k.fill(c.want[i]))
			}
			if !ok {
				t.Errorf("after %q:\n%s\nwant\n%s", c.alter, strings.Join(got, "\n"), k.fill(strings.Join(c.want, "\n")))
			}
			if left := k.verify(); len(left) > 0 {
				t.Fatalf("after %q it still differs: %q", c.restore, left)
			}
		})
	}
}

// Hosts with jumbo frames have the initial window of the plan, and another is reported.
func TestInitialWindowOfJumboFrames(t *testing.T) {
	tooltest.Need(t, "ip")
	k := keep(t, shape(1, 2, 2, 20*units.Mbps, 9000))
	if d := k.verify(); len(d) > 0 {
		t.Fatalf("as built it differs: %q", d)
	}
	k.sh("h0-01", k.fill(hostRoute+" initcwnd 10"))
	want := k.fill("h0-01: route default via %GW% dev eth0, congctl cubic, initcwnd 7 in the plan, " +
		"via %GW% dev eth0, congctl cubic, initcwnd 10 in the kernel")
	if d := k.verify(); len(d) != 1 || d[0] != want {
		t.Errorf("got %q, want %q", d, want)
	}
}

// fill replaces the placeholders of a command with addresses and next hops of the plan.
func (k *kept) fill(s string) string {
	for _, op := range k.plan.Ops() {
		switch op := op.(type) {
		case plan.Route:
			if op.Namespace == "leaf1" && op.Dst.Bits() == 8 {
				s = strings.ReplaceAll(s, "%BOTH1%", fmt.Sprintf("nexthop via %v dev %s nexthop via %v dev %s", op.Via[0].Addr, op.Via[0].Device, op.Via[1].Addr, op.Via[1].Device))
			}
			if op.Namespace == "leaf0" && op.Dst.Bits() == 8 {
				hop := func(i, weight int) string {
					return fmt.Sprintf("nexthop via %v dev %s weight %d ", op.Via[i].Addr, op.Via[i].Device, weight)
				}
				s = strings.NewReplacer("%BOTH%", hop(0, 1)+hop(1, 1), "%WEIGHTED%", hop(0, 1)+hop(1, 2), "%SPINE0%", fmt.Sprintf("via %v dev %s", op.Via[0].Addr, op.Via[0].Device)).Replace(s)
			}
		case plan.Neighbour:
			if op.Namespace == "h0-01" {
				s = strings.ReplaceAll(s, "%GW%", op.Addr.String())
			}
		}
	}
	return s
}

// Alterations that no single command can restore, each on a new fabric.
func TestVerifyNamesWhatIsGone(t *testing.T) {
	t.Parallel()
	tooltest.Need(t, "ip")
	for _, c := range []struct {
		name, namespace, alter string
		want                   []string
	}{
		{"address removed", "h0-01", "ip addr del %ADDR% dev eth0", []string{"h0-01>leaf0: address ", "h0-01: route default via"}},
		{"device down", "leaf0", "ip link set h0-01 down", []string{"leaf0>h0-01: device up in the plan, down in the kernel",
			"h0-01>leaf0: a frame from eth0 is lost: ", "leaf0>h0-01: a frame from h0-01 is lost: send failed: network is down"}},
		{"link deleted", "leaf0", "ip link del h0-01", []string{"h0-01>leaf0: device eth0 in the plan, none in the kernel",
			"leaf0>h0-01: device h0-01 in the plan, none in the kernel", "leaf0>h0-01: address ", "leaf0>h0-01: neighbour "}},
		{"address of the device", "h0-01", "ip link set eth0 address 02:00:00:00:00:77", []string{
			"h0-01>leaf0: address of the device 02:00:00:00:01:01 in the plan, 02:00:00:00:00:77 in the kernel", "h0-01>leaf0: neighbour "}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := keep(t, shape(1, 2, 0, 20*units.Mbps, 1500))
			k.x.Settings.ProbeTimeout = 200 * time.Millisecond
			alter := c.alter
			for _, op := range k.plan.Ops() {
				if a, ok := op.(plan.Address); ok && a.Namespace == "h0-01" {
					alter = strings.ReplaceAll(alter, "%ADDR%", a.Prefix.String())
				}
			}
			k.sh(c.namespace, alter)
			got := k.verify()
			t.Logf("%q", got)
			for _, want := range c.want {
				if !slices.ContainsFunc(got, func(g string) bool { return strings.HasPrefix(g, want) }) {
					t.Errorf("after %q no %q in\n%s", alter, want, strings.Join(got, "\n"))
				}
			}
		})
	}
}

// A link between the wrong ends carries frames to the wrong devices.
func TestProbeFindsCrossedLinks(t *testing.T) {
	tooltest.Need(t, "ip")
	k := keep(t, shape(1, 2, 0, 20*units.Mbps, 1500))
	k.x.Settings.ProbeTimeout = 200 * time.Millisecond
	k.sh("leaf0", "ip link set h0-00 down && ip link set h0-00 name x && ip link set h0-01 down && ip link set h0-01 name h0-00 && ip link set x name h0-01 && ip link set h0-00 up && ip link set h0-01 up")
	b := k.x.builder("leaf0")
	b.index["h0-00"], b.index["h0-01"] = b.index["h0-01"], b.index["h0-00"] // simulates swapped links
	lost, err := k.x.Probe(t.Context(), k.plan.Links())
	if err != nil || len(lost) != 4 {
		t.Fatalf("Probe() = %+v, %v, want four frames lost", lost, err)
	}
	if want := "arrived at h0-01 of leaf0"; lost[0].Why != want {
		t.Errorf("lost: %q, want %q", lost[0].Why, want)
	}
}

// The sockets of Probe are closed when Evict returns.
func TestEvictWaitsForProbe(t *testing.T) {
	k := keep(t, shape(2, 2, 1, 20*units.Mbps, 1500))
	files := openFiles()
	if lost, err := k.x.Probe(t.Context(), k.plan.Links()); err != nil || len(lost) > 0 {
		t.Fatal(lost, err)
	}
	release, err := k.x.Evict(t.Context())
	if err := errors.Join(err, release()); err != nil {
		t.Error(err)
	}
	if n := openFiles(); n != files {
		t.Errorf("%d open files, %d before", n, files)
	}
}

// A check of 100 hosts takes less time than building them.
func TestVerifyIsCheap(t *testing.T) {
	netnstest.OnlyTiming(t)
	start := time.Now()
	k := keep(t, shape(10, 10, 1, 20*units.Mbps, 1500))
	built := time.Since(start)
	netnstest.Timing(t, func(t *testing.T) bool {
		var took []time.Duration
		for range 5 {
			start := time.Now()
			if err := deploy.Verify(t.Context(), k.plan, k.x); err != nil {
				t.Fatal(err)
			}
			took = append(took, time.Since(start))
		}
		slices.Sort(took)
		t.Logf("100 hosts built in %v and checked in %v", built, took)
		return took[len(took)/2] < built
	})
	if err := k.x.closing.Wait(); err != nil {
		t.Error(err)
	}
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil || len(threads) > 60 {
		t.Errorf("%d threads stay, %v", len(threads), err)
	}
}

func BenchmarkVerify(b *testing.B) {
	k := keep(b, shape(10, 10, 1, 20*units.Mbps, 1500))
	want := k.plan.Links()
	for b.Loop() {
		start := time.Now()
		for _, name := range k.plan.Namespaces() {
			if _, err := k.x.Read(b.Context(), name, nil); err != nil {
				b.Fatal(err)
			}
		}
		read := time.Since(start)
		start = time.Now()
		if lost, err := k.x.Probe(b.Context(), want); err != nil || len(lost) > 0 {
			b.Fatal(lost, err)
		}
		b.ReportMetric(read.Seconds()*1000, "read-ms")
		b.ReportMetric(time.Since(start).Seconds()*1000, "probe-ms")
	}
}
