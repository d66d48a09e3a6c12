package kernel

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"testbed/emu/kernel/netnstest"
)

func fact(t *testing.T, facts []Fact, name string) Fact {
	t.Helper()
	i := slices.IndexFunc(facts, func(f Fact) bool { return f.Name == name })
	if i < 0 {
		t.Fatalf("no fact %q", name)
	}
	return facts[i]
}

// Probe's fact about a kind of qdisc agrees with adding one with all its options.
func TestProbeIsRightAboutQdiscs(t *testing.T) {
	netnstest.Require(t)
	facts := Probe()
	space, err := ns.TempNetNS()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := space.Close(); err != nil {
			t.Error(err)
		}
	}()
	root := netlink.QdiscAttrs{LinkIndex: loopbackIndex, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT}
	ingress := netlink.QdiscAttrs{LinkIndex: loopbackIndex, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_INGRESS}
	for kind, q := range map[string]netlink.Qdisc{
		"tbf":      &netlink.Tbf{QdiscAttrs: root, Rate: 1e6, Limit: 10000, Buffer: 100000},
		"netem":    netlink.NewNetem(root, netlink.NetemQdiscAttrs{Latency: 1000}),
		"fq":       netlink.NewFq(root),
		"htb":      netlink.NewHtb(root),
		"fq_codel": netlink.NewFqCodel(root),
		"prio":     netlink.NewPrio(root),
		"ingress":  &netlink.Ingress{QdiscAttrs: ingress},
		"clsact":   &netlink.GenericQdisc{QdiscAttrs: ingress, QdiscType: "clsact"},
	} {
		err := space.Do(func(ns.NetNS) error {
			return netlink.QdiscAdd(q)
		})
		f := fact(t, facts, "qdisc "+kind)
		if f.Have != (err == nil) || f.Unknown {
			t.Errorf("%+v, but adding one gives %v", f, err)
		}
		if err == nil {
			if err := space.Do(func(ns.NetNS) error { return netlink.QdiscDel(q) }); err != nil {
				t.Fatal(err)
			}
		}
		if netnstest.Guest() && err != nil {
			t.Errorf("a stock kernel without %s: %v", kind, err)
		}
	}
}

// A stock kernel has all features that a testbed can use, except those added in Linux 6.11.
func TestProbeOfAStockKernel(t *testing.T) {
	netnstest.Require(t)
	if !netnstest.Guest() {
		t.Skip("tests the kernel that make test-vm boots")
	}
	never := []string{"bare metal", "idle", "clock source", "timers", "cgroup v1 blkio", "fib_multipath_hash_seed", "HZ of 250 or more", "open files", "locked memory", "processors"}
	for _, f := range Probe(t.TempDir()) {
		if !f.Have && !slices.Contains(never, f.Name) {
			t.Errorf("%+v", f)
		}
	}
}

// Every fact has a group, a unique name and a cost; an unknown fact is not available.
func TestProbeIsWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, f := range Probe("/", t.TempDir()) {
		if f.Group == "" || f.Name == "" || f.Cost == "" || f.Unknown && (f.Have || f.Detail == "") {
			t.Errorf("%+v", f)
		}
		if seen[f.Name] {
			t.Errorf("%s twice", f.Name)
		}
		seen[f.Name] = true
	}
}

// Probe leaves no file behind, and checks the disk of a directory that does not exist yet.
func TestProbeOfADirectory(t *testing.T) {
	dir := t.TempDir()
	facts := directory(filepath.Join(dir, "not", "yet"))
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	f, err := os.OpenFile(filepath.Join(dir, "direct"), os.O_CREATE|os.O_WRONLY|unix.O_DIRECT, 0o600)
	if err == nil {
		err = f.Close()
	}
	if facts[0].Have != (err == nil) {
		t.Errorf("%+v, but a direct open gives %v", facts[0], err)
	}
	if facts[1].Unknown {
		t.Errorf("%+v", facts[1])
	}
	for _, f := range directory("/proc/self/status/x") {
		if f.Have || !f.Unknown {
			t.Errorf("below a file: %+v", f)
		}
	}
}

// Probe reports a low limit of open files.
func TestProbeSeesALimit(t *testing.T) {
	const arg = "TESTBED_TEST_LIMIT"
	if os.Getenv(arg) == "1" {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 512, Max: 512}); err != nil {
			t.Fatal(err)
		}
		if f := fact(t, limits(), "open files"); f.Have || f.Unknown || !strings.Contains(f.Detail, "512") {
			t.Errorf("%+v", f)
		}
		return
	}
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestProbeSeesALimit$")
	child.Env = append(os.Environ(), arg+"=1")
	if out, err := child.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

func TestMountPoint(t *testing.T) {
	const info = `31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime shared:5 master:1 - cgroup cgroup rw,cpu,cpuacct
38 31 0:35 / /sys/fs/cgroup/blkio rw,relatime - cgroup cgroup rw,blkio
broken
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw
`
	for _, tt := range []struct{ kind, option, want string }{
		{"cgroup", "blkio", "/sys/fs/cgroup/blkio"},
		{"cgroup", "cpuacct", "/sys/fs/cgroup/cpu"},
		{"cgroup", "io", ""},
		{"cgroup2", "", "/sys/fs/cgroup/unified"},
		{"ext4", "", ""},
	} {
		if got := parseMountInfo(info, tt.kind, tt.option); got != tt.want {
			t.Errorf("parseMountInfo(%s, %q) = %q, want %q", tt.kind, tt.option, got, tt.want)
		}
	}
}
