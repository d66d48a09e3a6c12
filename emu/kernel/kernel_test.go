package kernel

import (
	"cmp"
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"testbed/emu/deploy"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/plan"
	"testbed/topo"
	"testbed/topo/units"
)

// fabric is a built fabric and its open namespaces.
type fabric struct {
	*topo.Fabric
	plan  *plan.Plan
	pins  string
	notes []string
	t     testing.TB

	mu   sync.Mutex
	open map[string]*Namespace
}

func shape(leaves, hosts, spines int, rate units.Rate, mtu units.Bytes) topo.LeafSpine {
	return topo.LeafSpine{Leaves: leaves, Spines: spines, HostsPerLeaf: hosts, HostLink: rate,
		Oversubscription: units.Ratio{Num: 1, Den: 1}, Queue: topo.Queue{Time: 20 * time.Millisecond}, MTU: mtu}
}

// scope is that of the fabric's processes, without a cgroup.
func (b *fabric) scope() deploy.Scope { return deploy.Scope{Pins: b.pins, Names: b.plan.Namespaces()} }

// build builds a fabric and destroys it after the test.
func build(t testing.TB, s topo.LeafSpine, o plan.Options) *fabric {
	t.Helper()
	netnstest.Require(t)
	f, err := s.Build()
	if err != nil {
		t.Fatal(err)
	}
	o.Congestion = cmp.Or(o.Congestion, "cubic")
	b := &fabric{Fabric: f, plan: plan.Compile(t.Name(), f, o), pins: t.TempDir(), open: map[string]*Namespace{}, t: t}
	d, err := deploy.Apply(t.Context(), b.plan, NewExecutor(b.pins))
	if err != nil {
		t.Fatal(err)
	}
	b.notes = d.Notes()
	t.Cleanup(func() {
		for _, n := range b.open {
			if err := n.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := d.Destroy(context.Background()); err != nil {
			t.Error(err)
		}
		left, err := os.ReadDir(b.pins)
		if err != nil || len(left) > 0 {
			t.Errorf("left in %s: %v, %v", b.pins, left, err)
		}
	})
	return b
}

// ns returns a namespace of the fabric by name.
func (b *fabric) ns(name string) *Namespace {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open[name] == nil {
		n, err := OpenNamespace(filepath.Join(b.pins, name))
		if err != nil {
			b.t.Fatal(err)
		}
		b.open[name] = n
	}
	return b.open[name]
}

// flow is one TCP transfer of a test.
type flow struct {
	src, dst topo.HostID
	size     units.Bytes
	port     uint16 // source port; 0 means any
}

const testPort = 50060

// cubic are the options of most sockets. The routes of hosts state their congestion control.
var cubic = SocketOptions{}

// sink accepts connections on all given hosts and discards their data. It answers each connection
// with one byte once its sender has closed its direction.
func (b *fabric) sink(hosts ...topo.HostID) {
	b.t.Helper()
	for _, h := range hosts {
		l, err := b.ns(b.HostName(h)).Listen(b.t.Context(), netip.AddrPortFrom(b.HostAddr(h), testPort), cubic)
		if err != nil {
			b.t.Fatal(err)
		}
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				wg.Go(func() {
					defer c.Close()
					if _, err := io.Copy(io.Discard, c); err != nil {
						b.t.Errorf("sink: %v", err)
					}
					c.Write([]byte{1})
				})
			}
		})
		b.t.Cleanup(func() { l.Close(); wg.Wait() })
	}
}

// send sends a flow to a sink and returns the time from the first write to the sink's answer.
func (b *fabric) send(f flow) (time.Duration, error) {
	src := netip.AddrPortFrom(b.HostAddr(f.src), f.port)
	c, err := b.ns(b.HostName(f.src)).Dial(b.t.Context(), src, netip.AddrPortFrom(b.HostAddr(f.dst), testPort), cubic)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	start := time.Now()
	if _, err := io.CopyN(c, zeros{}, int64(f.size)); err != nil {
		return 0, err
	}
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return 0, err
	}
	_, err = io.ReadFull(c, make([]byte, 1))
	return time.Since(start), err
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { return len(b), nil }
