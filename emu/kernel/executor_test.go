package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"testbed/emu/deploy"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/plan"
	"testbed/topo"
	"testbed/topo/units"
)

func TestOpenNamespaceErrors(t *testing.T) {
	dir := t.TempDir()
	if _, err := OpenNamespace(filepath.Join(dir, "h0-00")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("OpenNamespace of nothing: %v", err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenNamespace(file); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("OpenNamespace of a file that nothing is mounted on: %v", err)
	}
}

func TestCloseTwice(t *testing.T) {
	b := build(t, shape(1, 1, 0, 50*units.Mbps, 1500), plan.Options{})
	n, err := OpenNamespace(filepath.Join(b.pins, "h0-00"))
	if err != nil {
		t.Fatal(err)
	}
	if err := n.SendUDP([]byte{1}, netip.AddrPortFrom(topo.MarkAddr(), 9)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := n.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := n.Links(); !errors.Is(err, errClosed) {
		t.Errorf("Links after Close: %v", err)
	}
	if err := n.SendUDP([]byte{1}, netip.AddrPortFrom(topo.MarkAddr(), 9)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("SendUDP after Close: %v", err)
	}
	if _, err := n.Dial(t.Context(), netip.AddrPort{}, netip.AddrPortFrom(b.GatewayAddr(0), 9), cubic); err == nil {
		t.Error("Dial after Close: no error")
	}
}

func TestExecutorErrors(t *testing.T) {
	netnstest.Require(t)
	dir := t.TempDir()
	x := NewExecutor(dir)
	ctx := t.Context()
	do := func(op plan.Op) error { return x.Do(ctx, op) }
	if err := do(plan.Namespace{Name: "a"}); err != nil {
		t.Fatal(err)
	}
	if err := NewExecutor(dir).Do(ctx, plan.Namespace{Name: "a"}); !errors.Is(err, os.ErrExist) {
		t.Errorf("a namespace that is there: %v", err)
	}
	if err := do(plan.Sysctl{Namespace: "a", Set: []plan.Setting{{Key: "net.ipv4.no_such_thing", Value: "1"}}}); !errors.Is(err, deploy.ErrUnsupported) {
		t.Errorf("a parameter that does not exist: %v", err)
	}
	if err := do(plan.Sysctl{Namespace: "a", Set: []plan.Setting{{Key: "net.ipv4.ip_forward", Value: "x"}}}); err == nil || errors.Is(err, deploy.ErrUnsupported) {
		t.Errorf("a value that is refused: %v", err)
	}
	if err := do(plan.Up{Namespace: "b", Device: "lo"}); err == nil || !strings.Contains(err.Error(), `namespace "b" was not created`) {
		t.Errorf("a namespace of no plan: %v", err)
	}
	if err := do(plan.Up{Namespace: "a", Device: "eth0"}); err == nil || !strings.Contains(err.Error(), `no device "eth0"`) {
		t.Errorf("no device: %v", err)
	}
	if err := do(plan.Route{Namespace: "a", Dst: topo.RackPrefix(0), Via: []plan.Hop{{Addr: netip.MustParseAddr("10.0.0.1"), Device: "lo"}}}); err == nil {
		t.Error("a route to nowhere: no error")
	}
	for range 2 {
		if err := x.Undo(ctx, plan.Namespace{Name: "a"}); err != nil {
			t.Errorf("Undo: %v", err)
		}
	}
	if _, err := (Reaper{}).Reap(ctx, deploy.Scope{Pins: dir, Names: []string{"../a"}}); err == nil {
		t.Error("a namespace called ../a is allowed")
	}
	if err := x.Close(); err != nil {
		t.Error(err)
	}
}

// rootNamespace returns the parts of the root namespace that a testbed must not change.
func rootNamespace(t *testing.T) map[string][]string {
	t.Helper()
	state := map[string][]string{}
	links, err := netlink.LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		state["links"] = append(state["links"], l.Attrs().Name)
	}
	routes, err := netlink.RouteListFiltered(unix.AF_INET, &netlink.Route{}, netlink.RT_FILTER_TABLE)
	if err != nil {
		t.Fatal(err)
	}
	state["routes"] = []string{fmt.Sprint(len(routes))}
	for _, file := range []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.disable_ipv6", "net.ipv4.tcp_no_metrics_save"} {
		value, err := os.ReadFile("/proc/sys/" + strings.ReplaceAll(file, ".", "/"))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
		state[file] = []string{string(value)}
	}
	mounts, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, t.TempDir()) || strings.Contains(line, filepath.Dir(t.TempDir())) {
			state["mounts"] = append(state["mounts"], line)
		}
	}
	return state
}

// After Destroy the kernel removes the namespaces and their devices, and the root namespace is
// unchanged.
func TestNothingIsLeft(t *testing.T) {
	netnstest.Require(t)
	before := rootNamespace(t)
	f, err := shape(2, 2, 2, 50*units.Mbps, 1500).Build()
	if err != nil {
		t.Fatal(err)
	}
	pins := t.TempDir()
	p := plan.Compile("left", f, plan.Options{})
	d, err := deploy.Apply(t.Context(), p, NewExecutor(pins))
	if err != nil {
		t.Fatal(err)
	}
	// A link from a namespace of the test into each namespace of the fabric exists until that
	// namespace is removed.
	watch, err := ns.TempNetNS()
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Close()
	var h *netlink.Handle
	err = watch.Do(func(ns.NetNS) (err error) {
		h, err = netlink.NewHandle(unix.NETLINK_ROUTE)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, name := range p.Namespaces() {
		in, err := ns.GetNS(filepath.Join(pins, name))
		if err != nil {
			t.Fatal(err)
		}
		link := netlink.NewVeth(netlink.LinkAttrs{Name: name, TxQLen: -1})
		link.PeerName, link.PeerNamespace = "watch", netlink.NsFd(in.Fd())
		if err := errors.Join(h.LinkAdd(link), in.Close()); err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	if err := d.Destroy(context.Background()); err != nil {
		t.Fatal(err)
	}
	returned := time.Since(start)
	for {
		links, err := h.LinkList()
		if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
			t.Fatal(err)
		}
		if err == nil && len(links) == 1 { // lo
			break
		}
		if time.Since(start) > 10*time.Second {
			t.Fatalf("%d namespaces live on 10 s after Destroy", len(links)-1)
		}
		time.Sleep(time.Millisecond)
	}
	t.Logf("Destroy returned after %v, the last device was gone after %v", returned, time.Since(start))
	if diff := cmp.Diff(before, rootNamespace(t)); diff != "" {
		t.Errorf("root namespace (-before +after):\n%s", diff)
	}
}

// The first thread of the process cannot be discarded, so it enters no namespace.
func TestOnThreadSparesTheFirst(t *testing.T) {
	var first, others int
	for range 2000 {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				onThread(func() {
					if unix.Gettid() == unix.Getpid() {
						t.Error("ran on the first thread")
					}
				})
			})
		}
		wg.Wait()
		// A goroutine that does not lock its thread may run on the first thread.
		wg.Go(func() {
			if unix.Gettid() == unix.Getpid() {
				first++
			} else {
				others++
			}
		})
		wg.Wait()
	}
	t.Logf("of goroutines that were not told, %d ran on the first thread and %d on others", first, others)
}

// Each procfs serves a bounded number of namespaces, so that a look-up in it does not take longer the more
// namespaces there are, and ends with them.
func TestNamespacesShareFewProcfs(t *testing.T) {
	netnstest.Require(t)
	files := openFiles()
	x := NewExecutor(t.TempDir())
	serves := map[int]int{} // namespaces by descriptor of the procfs
	const namespaces = 2*namespacesPerProcfs + 1
	for i := range namespaces {
		name := fmt.Sprint("n", i)
		if err := x.Do(t.Context(), plan.Namespace{Name: name}); err != nil {
			t.Fatal(err)
		}
		serves[x.made[name].proc.dir]++
	}
	var machine unix.Stat_t
	if err := unix.Stat("/proc", &machine); err != nil {
		t.Fatal(err)
	}
	for dir, n := range serves {
		var own unix.Stat_t
		if err := unix.Fstat(dir, &own); err != nil {
			t.Fatal(err)
		}
		if n > namespacesPerProcfs || own.Dev == machine.Dev {
			t.Errorf("a procfs serves %d namespaces; it is that of the machine: %t", n, own.Dev == machine.Dev)
		}
	}
	// Programs in a namespace see at /proc what was set in another procfs.
	set := plan.Setting{Key: "net.ipv4.tcp_rmem", Value: "4096 8192 8193"}
	if err := x.Do(t.Context(), plan.Sysctl{Namespace: "n40", Set: []plan.Setting{set}}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"n40", "n41"} {
		var text []byte
		err := x.made[name].do(func() (err error) {
			text, err = os.ReadFile("/proc/sys/net/ipv4/tcp_rmem")
			return err
		})
		if got := strings.Join(strings.Fields(string(text)), " "); err != nil || (got == set.Value) != (name == "n40") {
			t.Errorf("tcp_rmem of %s: %q, %v", name, got, err)
		}
	}
	for i := range namespaces {
		if err := x.Undo(t.Context(), plan.Namespace{Name: fmt.Sprint("n", i)}); err != nil {
			t.Error(err)
		}
	}
	if n := openFiles(); n != files {
		t.Errorf("%d open files, %d before", n, files)
	}
}

// Operations of Work stay on one thread, in the namespace of each, and end with it.
func TestWork(t *testing.T) {
	netnstest.Require(t)
	x := NewExecutor(t.TempDir())
	names := []string{"a", "b", "a"}
	used := map[int]bool{}
	x.Work(t.Context(), func(ctx context.Context) {
		for _, name := range names[:2] {
			if err := x.Do(ctx, plan.Namespace{Name: name}); err != nil {
				t.Error(err)
			}
			used[unix.Gettid()] = true
		}
		for i, name := range names {
			set := plan.Setting{Key: "net.core.somaxconn", Value: fmt.Sprint(100 + i)}
			if err := x.Do(ctx, plan.Sysctl{Namespace: name, Set: []plan.Setting{set}}); err != nil {
				t.Error(err)
			}
			found, err := x.Read(ctx, name, []string{set.Key})
			if err != nil || found.Parameters[set.Key] != set.Value {
				t.Errorf("%s: %v, %v, want %v", name, found.Parameters, err, set)
			}
			used[unix.Gettid()] = true
		}
	})
	if len(used) != 1 || used[unix.Getpid()] {
		t.Errorf("worked on threads %v, the first is %d", used, unix.Getpid())
	}
	for i, name := range names[:2] { // on other threads
		found, err := x.Read(t.Context(), name, []string{"net.core.somaxconn"})
		if want := fmt.Sprint(102 - i); err != nil || found.Parameters["net.core.somaxconn"] != want {
			t.Errorf("%s: %v, %v, want %v", name, found.Parameters, err, want)
		}
		if err := x.Undo(t.Context(), plan.Namespace{Name: name}); err != nil {
			t.Error(err)
		}
	}
}
