package kernel

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"testbed/emu/deploy"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/plan"
	"testbed/results/tooltest"
	"testbed/topo"
	"testbed/topo/units"
)

// BenchmarkBuild builds, checks and destroys fabrics with one spine: 100 hosts in 10 racks (111
// namespaces, 110 links, 220 shapers), and more in racks of 50. bare-up-ms is the limit of
// up-ms, and bare-down-ms of gone-ms: the same kernel objects by bare netlink requests, without pins,
// descriptive errors or a record; bare-parallel-up-ms on the threads that the executor uses, bare-up-ms on one.
// Destroy returns when no process uses the namespaces; gone-ms is the time from the call of Destroy until the
// kernel has removed them.
func BenchmarkBuild(b *testing.B) {
	netnstest.Require(b)
	for _, s := range []struct{ leaves, hosts int }{{10, 10}, {20, 50}, {30, 50}, {60, 50}, {100, 50}} {
		b.Run(fmt.Sprintf("hosts=%d", s.leaves*s.hosts), func(b *testing.B) {
			f, err := shape(s.leaves, s.hosts, 1, 20*units.Mbps, 1500).Build()
			if err != nil {
				b.Fatal(err)
			}
			p := plan.Compile("bench", f, plan.Options{})
			sum := map[string]time.Duration{}
			for b.Loop() {
				start := time.Now()
				lap := func(name string) {
					sum[name] += time.Since(start)
					start = time.Now()
				}
				x := NewExecutor(b.TempDir())
				start = time.Now()
				d, err := deploy.Apply(b.Context(), p, x)
				if err != nil {
					b.Fatal(err)
				}
				lap("up-ms")
				if err := deploy.Verify(b.Context(), p, x); err != nil {
					b.Fatal(errors.Join(err, d.Destroy(context.Background())))
				}
				lap("check-ms")
				w := newWatcher(b)
				for i, name := range p.Namespaces() {
					w.add(int(x.builder(name).net.Fd()), i)
				}
				start = time.Now()
				if err := d.Destroy(context.Background()); err != nil {
					b.Fatal(err)
				}
				down := time.Since(start)
				w.wait()
				lap("gone-ms")
				sum["down-ms"] += down
				up, down := bareBuild(b, p, 1)
				sum["bare-up-ms"] += up
				sum["bare-down-ms"] += down
				up, _ = bareBuild(b, p, x.Settings.Workers)
				sum["bare-parallel-up-ms"] += up
			}
			for name, took := range sum {
				b.ReportMetric(took.Seconds()*1000/float64(b.N), name)
			}
			b.ReportMetric(0, "ns/op") // their sum is meaningless
		})
	}
}

// watcher detects when namespaces have ended. It gives each an ID in its own namespace; the kernel
// frees the ID when it begins to remove the namespace. The kernel removes namespaces in order, so
// once one more, released after the last of them, is gone, they are gone too.
type watcher struct {
	b     *testing.B
	watch ns.NetNS
	h     *netlink.Handle
	route *nl.SocketHandle
}

func newWatcher(b *testing.B) *watcher {
	b.Helper()
	watch, err := ns.TempNetNS()
	if err != nil {
		b.Fatal(err)
	}
	w := &watcher{b: b, watch: watch}
	err = watch.Do(func(ns.NetNS) (err error) {
		if w.h, err = netlink.NewHandle(unix.NETLINK_ROUTE); err == nil {
			w.route, err = routeSocket()
		}
		return err
	})
	if err != nil {
		b.Fatal(err)
	}
	return w
}

func (w *watcher) add(fd, number int) {
	w.b.Helper()
	if err := w.h.SetNetNsIdByFd(fd, number); err != nil {
		w.b.Fatal(err)
	}
}

// numbered returns the number of namespaces that the kernel has not begun to remove.
func (w *watcher) numbered() int {
	w.b.Helper()
	req := nl.NewNetlinkRequest(unix.RTM_GETNSID, unix.NLM_F_DUMP)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: w.route}
	req.AddData(nl.NewRtGenMsg())
	msgs, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNSID)
	if err != nil && !errors.Is(err, nl.ErrDumpInterrupted) {
		w.b.Fatal(err)
	}
	return len(msgs)
}

// wait waits until all namespaces have ended.
func (w *watcher) wait() {
	w.b.Helper()
	const patience = 30 * time.Second
	start := time.Now()
	for w.numbered() > 0 {
		if time.Since(start) > patience {
			w.b.Fatalf("%d namespaces live on after %v", w.numbered(), patience)
		}
		time.Sleep(time.Millisecond)
	}
	last, err := ns.TempNetNS()
	if err != nil {
		w.b.Fatal(err)
	}
	link := netlink.NewVeth(netlink.LinkAttrs{Name: "last", TxQLen: -1})
	link.PeerName, link.PeerNamespace = "watch", netlink.NsFd(last.Fd())
	if err := errors.Join(w.h.LinkAdd(link), last.Close()); err != nil {
		w.b.Fatal(err)
	}
	for time.Since(start) < patience {
		if _, err := w.h.LinkByName("last"); errors.As(err, new(netlink.LinkNotFoundError)) {
			w.route.Close()
			w.h.Close()
			if err := w.watch.Close(); err != nil {
				w.b.Fatal(err)
			}
			return
		}
		time.Sleep(time.Millisecond)
	}
	w.b.Fatalf("namespaces live on after %v", patience)
}

// bareBuild creates the kernel objects of a plan on some threads and releases them. It returns the
// time to create them, and the time until the kernel has removed them.
func bareBuild(b *testing.B, p *plan.Plan, threads int) (up, down time.Duration) {
	b.Helper()
	w := newWatcher(b)
	start := time.Now()
	made, failed := bare(p, threads)
	up = time.Since(start)
	for _, n := range made {
		w.add(n.fd, n.number)
	}
	released := time.Now()
	for _, n := range made {
		n.route.Close()
		failed = errors.Join(failed, n.proc.release(), unix.Close(n.fd))
	}
	if failed != nil {
		b.Fatal(failed)
	}
	w.wait()
	return up, time.Since(released)
}

// bare carries out a plan, each stage on new threads, which end with it. Thread i of n has namespaces i, i+n and so on;
// a stage with links has one thread, as in package deploy.
func bare(p *plan.Plan, threads int) (made map[string]*bareNamespace, err error) {
	made = map[string]*bareNamespace{}
	for i, name := range p.Namespaces() {
		made[name] = &bareNamespace{builder: newBuilder(""), number: i}
	}
	var pool procfsPool
	errs := make([]error, threads)
	for _, stage := range p.Stages {
		threads := threads
		if slices.ContainsFunc(stage.Ops, func(op plan.Op) bool { return plan.NamespaceOf(op) == "" }) {
			threads = 1
		}
		var wg sync.WaitGroup
		for thread := range threads {
			wg.Go(func() {
				onThread(func() {
					for _, op := range stage.Ops {
						n := made[plan.NamespaceOf(op)]
						if n != nil && n.number%threads != thread {
							continue
						}
						if err := n.do(op, made, &pool); err != nil {
							errs[thread] = errors.Join(errs[thread], fmt.Errorf("%s: %w", op, err))
						}
					}
				})
			})
		}
		wg.Wait()
	}
	return made, errors.Join(errs...)
}

type bareNamespace struct {
	*builder
	fd, number int
}

// do carries out an operation in the namespace; n is nil if it is in two.
func (n *bareNamespace) do(op plan.Op, made map[string]*bareNamespace, pool *procfsPool) (err error) {
	switch op := op.(type) {
	case plan.Namespace:
		err = n.enterNew(pool)
	case plan.Sysctl:
		err = unix.Setns(n.fd, unix.CLONE_NEWNET)
		for _, s := range op.Set {
			err = errors.Join(err, n.proc.write(s))
		}
	case plan.Veth:
		z := made[op.B.Namespace]
		err = made[op.A.Namespace].link(z.builder, z.fd, op)
	case plan.Offloads:
		err = n.disableOffloads(op.Device, plan.OffloadFlags)
	case plan.Shaper:
		err = n.shape(n.index[op.Device], op)
	case plan.Address:
		err = n.address(n.index[op.Device], op)
	case plan.Up:
		err = n.setUp(n.index[op.Device], true)
	case plan.Neighbour:
		err = n.neighbour(n.index[op.Device], op)
	case plan.Route:
		err = n.addRoute(op, unix.NLM_F_EXCL)
	}
	return err
}

func (n *bareNamespace) enterNew(pool *procfsPool) error {
	err := unix.Unshare(unix.CLONE_NEWNET)
	if err == nil {
		n.fd, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	if err == nil {
		n.proc, err = pool.take()
	}
	if err == nil {
		n.route, err = routeSocket()
	}
	return err
}

func BenchmarkLinks(b *testing.B) {
	f := build(b, shape(1, 10, 0, 20*units.Mbps, 1500), plan.Options{})
	for _, name := range []string{"h0-00", "leaf0"} {
		n := f.ns(name)
		b.Run(fmt.Sprintf("ns=%s", name), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := n.Links(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkNextHopDevice(b *testing.B) {
	f := build(b, shape(2, 1, 2, 20*units.Mbps, 1500), plan.Options{})
	leaf, src, dst := f.ns("leaf0"), netip.AddrPortFrom(f.HostAddr(0), 20000), netip.AddrPortFrom(f.HostAddr(1), testPort)
	for b.Loop() {
		if _, err := leaf.NextHopDevice("h0-00", src, dst); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDial(b *testing.B) {
	f := build(b, shape(1, 2, 0, 1000*units.Mbps, 1500), plan.Options{})
	f.sink(1)
	host := f.ns("h0-00")
	for b.Loop() {
		c, err := host.Dial(b.Context(), netip.AddrPort{}, netip.AddrPortFrom(f.HostAddr(1), testPort), cubic)
		if err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
}

// The text of a plan, run as a script, builds what the executor builds.
func TestPlanTextIsAScript(t *testing.T) {
	t.Parallel()
	tooltest.Need(t, "ip", "tc", "unshare")
	b := build(t, shape(2, 2, 2, 50*units.Mbps, 1500), plan.Options{Seed: 1})
	var script strings.Builder
	script.WriteString("set -e\nmount -t tmpfs tmpfs /run\nmkdir /run/netns\n") // in the mount namespace of this shell
	for line := range strings.Lines(b.plan.Text()) {
		switch {
		case strings.Contains(line, "ethtool"): // rarely installed
		case strings.Contains(line, "sysctl"):
		case strings.Contains(line, "link show"):
			script.WriteString(strings.TrimSpace(line) + " > /dev/null\n")
		default:
			script.WriteString(line)
		}
	}
	const report = `ip -n $n -o link | grep -v '^1: lo:'; ip -n $n -o addr show scope global; ip -n $n route; ip -n $n neigh; tc -n $n qdisc`
	script.WriteString("for n in " + strings.Join(b.plan.Namespaces(), " ") + "; do echo == $n; " + report + "; done\n")
	out, err := exec.Command("unshare", "-m", "sh", "-c", script.String()).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var want strings.Builder
	for _, name := range b.plan.Namespaces() {
		fmt.Fprintf(&want, "== %s\n", name)
		cmd := exec.Command("sh", "-c", strings.ReplaceAll(report, " -n $n", ""))
		cmd.Stdout = &want
		if err := b.ns(name).do(cmd.Run); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(comparable(want.String()), comparable(string(out))); diff != "" {
		t.Errorf("(-executor +script):\n%s", diff)
	}
}

// comparable removes the numbers that the kernel assigns, and the protocol of routes.
func comparable(report string) []string {
	for _, drop := range []string{`link-netnsid \d+`, `link-netns \S+`, `@if\d+`, `(?m)^\d+: `, `qdisc tbf [0-9a-f]+:`, `proto static`, `qlen \d+`, ` +\\`} {
		report = regexp.MustCompile(drop).ReplaceAllString(report, "")
	}
	var lines []string
	from := 0 // of this namespace
	for line := range strings.Lines(report) {
		if strings.HasPrefix(line, "==") {
			slices.Sort(lines[from:])
			from = len(lines)
		}
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	slices.Sort(lines[from:])
	return lines
}

// A failed build leaves nothing behind: here a link has a name that is already in use.
func TestFailedBuildLeavesNothing(t *testing.T) {
	netnstest.Require(t)
	pins := t.TempDir()
	end := func(ns string, n byte) plan.End {
		return plan.End{Namespace: ns, Device: "x" + strings.Repeat("y", 20), MAC: plan.MAC{2, n}}
	}
	p := &plan.Plan{Name: "bad", Shape: topo.LeafSpine{}, Stages: []plan.Stage{{Name: "all", Ops: []plan.Op{
		plan.Namespace{Name: "a"}, plan.Namespace{Name: "b"}, plan.Veth{A: end("a", 1), B: end("b", 2), MTU: 1500},
	}}}}
	_, err := deploy.Apply(t.Context(), p, NewExecutor(pins))
	if err == nil || errors.Is(err, deploy.ErrUnsupported) {
		t.Fatalf("a device with a name of 21 bytes: %v", err)
	}
	t.Log(err)
	if left, err := os.ReadDir(filepath.Clean(pins)); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
