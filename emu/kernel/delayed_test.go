package kernel

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"testbed/emu/deploy"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/plan"
	"testbed/topo"
	"testbed/topo/units"
)

// lacking skips a test of a feature that stock kernels have and this one lacks. make test-vm runs
// the test on a kernel that must have it.
func lacking(t *testing.T, what string) {
	t.Helper()
	if netnstest.Guest() {
		t.Fatalf("%s, on a stock kernel", what)
	}
	t.Skipf("%s: tested by make test-vm", what)
}

func haveQdisc(t *testing.T, kind string) bool {
	t.Helper()
	err := testFeatures([]plan.Feature{{Kind: plan.QueueingDiscipline, Name: kind}})[0]
	if err != nil && !errors.Is(err, deploy.ErrUnsupported) {
		t.Fatal(err)
	}
	return err == nil
}

func requireQdiscs(t *testing.T, kinds ...string) {
	t.Helper()
	netnstest.Require(t)
	for _, k := range kinds {
		if !haveQdisc(t, k) {
			lacking(t, "the kernel has no sch_"+k)
		}
	}
}

// A delay and RED are altered without the executor, reported by name, and restored by the commands
// that the plan prints.
func TestVerifyNamesAlteredDelayAndRED(t *testing.T) {
	t.Parallel()
	requireQdiscs(t, "netem", "red")
	s := early(true)
	s.Delay = 2 * time.Millisecond
	k := keep(t, s)
	k.x.Settings.ProbeTimeout = 500 * time.Millisecond
	if d := k.verify(); len(d) > 0 {
		t.Fatalf("as built it differs: %q", d)
	}
	var ops []string
	var limit uint32
	for _, op := range k.plan.Ops() {
		mine := false
		switch op := op.(type) {
		case plan.Delay:
			if mine = op.Namespace == "leaf0" && op.Device == "h0-01"; mine {
				limit = op.Packets
			}
		case plan.Shaper:
			mine = op.Namespace == "leaf0" && op.Device == "h0-01"
		case plan.RED:
			mine = op.Namespace == "leaf0" && op.Device == "h0-01"
		}
		if mine {
			ops = append(ops, strings.Replace(op.String(), " -n leaf0", "", 1))
		}
	}
	if len(ops) != 3 {
		t.Fatalf("the link is shaped by %q", ops)
	}
	netem, tbf, red := ops[0], ops[1], ops[2]
	all := strings.Join(ops, " && ")
	change := func(command, from, to string) string {
		t.Helper()
		if !strings.Contains(command, from) {
			t.Fatalf("%q has no %q", command, from)
		}
		return strings.Replace(command, from, to, 1)
	}
	for _, c := range []struct {
		name, alter, restore string
		want                 []string
	}{
		{"delay", change(netem, "delay 2000us", "delay 5ms"), netem, []string{"delay 2ms in the plan, 5ms in the kernel"}},
		{"limit of the delay", change(netem, fmt.Sprint("limit ", limit), "limit 1000"), netem,
			[]string{fmt.Sprintf("delay's limit %d packets in the plan, 1000 packets in the kernel", limit)}},
		{"loss", netem + " loss 0.0001%", netem, []string{"delay's loss none in the plan, loss in the kernel"}},
		{"jitter", change(netem, "delay 2000us", "delay 2ms 1ms"), netem, []string{"delay's jitter none in the plan, jitter in the kernel"}},
		{"rate below a delay", change(tbf, "rate 20000000bit", "rate 10000000bit"), tbf, []string{"rate 20Mbps in the plan, 10Mbps in the kernel"}},
		{"queue below a delay", change(tbf, "limit 200000b", "limit 100000b"), tbf, []string{"queue 200000 bytes in the plan, 100000 bytes in the kernel"}},
		{"min", change(red, "min 10000", "min 12000"), red, []string{"red's min 10000 bytes in the plan, 12000 bytes in the kernel"}},
		{"max", change(red, "max 30000", "max 40000"), red, []string{"red's max 30000 bytes in the plan, 40000 bytes in the kernel"}},
		{"limit of red", change(red, "limit 200000", "limit 150000"), red, []string{"red's limit 200000 bytes in the plan, 150000 bytes in the kernel"}},
		{"probability", change(red, "probability 0.1", "probability 0.2"), red, []string{"red's probability 0.1 in the plan, 0.2 in the kernel"}},
		{"marks", change(red, " ecn", ""), red, []string{"red's ecn on in the plan, off in the kernel"}},
		{"no delay", "tc qdisc del dev h0-01 root", all, []string{"qdisc netem at root in the plan, none in the kernel",
			"qdisc tbf at 1:1 in the plan, none in the kernel", "qdisc red at 2:1 in the plan, none in the kernel"}},
		{"shaper at the root", "tc qdisc del dev h0-01 root && " + change(tbf, "parent 1:1 handle 2:", "root handle 2:"), "tc qdisc del dev h0-01 root && " + all,
			[]string{"qdisc netem at root in the plan, tbf in the kernel", "qdisc tbf at 1:1 in the plan, none in the kernel", "qdisc red at 2:1 in the plan, none in the kernel"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			k.t = t
			k.sh("leaf0", c.alter)
			got := k.verify()
			k.sh("leaf0", c.restore)
			// tc computes another weight for other bounds.
			got = slices.DeleteFunc(got, func(d string) bool { return strings.Contains(d, "red's weight") && strings.HasPrefix(c.name, "m") })
			t.Logf("%q", got)
			want := make([]string, len(c.want))
			for i, w := range c.want {
				want[i] = "leaf0>h0-01: " + w
			}
			if !slices.Equal(got, want) {
				t.Errorf("after %q:\n%s\nwant\n%s", c.alter, strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			if left := k.verify(); len(left) > 0 {
				t.Fatalf("after %q it still differs: %q", c.restore, left)
			}
		})
	}
}

// The shaper of each port is found, including below a delay.
func TestPortsBelowADelay(t *testing.T) {
	requireQdiscs(t, "netem", "red")
	s := early(false)
	s.Delay = 2 * time.Millisecond
	b := build(t, s, plan.Options{Seed: 1})
	for _, l := range b.Links() {
		p := b.port(l.ID)
		if p.Rate != l.Rate || p.Limit != l.Queue || !p.Up || p.Qdisc.Kind != "tbf" {
			t.Errorf("%s: %+v, want %v and a queue of %v", b.LinkName(l.ID), p, l.Rate, l.Queue)
		}
	}
	// A delay without a shaper has no rate.
	namespace, device := plan.Egress(b.Fabric, 0)
	if err := b.ns(namespace).onDevice(device, func(x *builder, index int) error {
		return x.delay(index, plan.Delay{Namespace: namespace, Device: device, Delay: time.Millisecond, Packets: 100})
	}); err != nil {
		t.Fatal(err)
	}
	if p := b.port(0); p.Rate != s.HostLink {
		t.Errorf("a delay that is changed in place leaves %+v", p)
	}
}

func (b *fabric) port(id topo.LinkID) Port {
	b.t.Helper()
	namespace, device := plan.Egress(b.Fabric, id)
	ports, err := b.ns(namespace).Ports()
	if err != nil {
		b.t.Fatal(err)
	}
	i := slices.IndexFunc(ports, func(p Port) bool { return p.Device == device })
	if i < 0 {
		b.t.Fatalf("%s has no %s", namespace, device)
	}
	return ports[i]
}

// roundTrip returns the shortest of several round trips of a byte from host 0 to host 1, which
// echoes it.
func (b *fabric) roundTrip() time.Duration {
	b.t.Helper()
	c, err := b.ns(b.HostName(0)).Dial(b.t.Context(), netip.AddrPortFrom(b.HostAddr(0), 0), netip.AddrPortFrom(b.HostAddr(1), testPort), cubic)
	if err != nil {
		b.t.Fatal(err)
	}
	defer c.Close()
	best := time.Hour
	for range 10 {
		start := time.Now()
		if err := c.SetDeadline(start.Add(10 * time.Second)); err != nil {
			b.t.Fatal(err)
		}
		if _, err := c.Write([]byte{1}); err != nil {
			b.t.Fatal(err)
		}
		if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
			b.t.Fatal(err)
		}
		best = min(best, time.Since(start))
	}
	return best
}

// A cable with delays is cut and mended, and the rate of a shaper below a delay is changed: the
// delay remains, and the shaper remains below it.
func TestFaultsOfDelayedLinks(t *testing.T) {
	requireQdiscs(t, "netem")
	b := build(t, delayed(), plan.Options{Seed: 1})
	b.echo(1)
	const want = 2 * (3 + 7 + 3 + 3) * time.Millisecond
	slower := func(when string) {
		t.Helper()
		took := b.roundTrip()
		t.Logf("%s: there and back in %v, %v of it propagation", when, took, want)
		if took < want || took > 2*want && !netnstest.NotJudged(t) {
			t.Errorf("%s: there and back in %v, want %v and little more", when, took, want)
		}
	}
	slower("as built")
	for range 2 {
		b.cut(b.HostUp(1))
		was := b.received("h1-00", "eth0")
		b.volley(0, 1, 10)
		time.Sleep(2 * want) // longer than packets in flight take
		if n := b.received("h1-00", "eth0") - was; n != 0 {
			t.Errorf("a cut link passed %d packets", n)
		}
		b.mend(b.HostUp(1))
		slower("mended")
	}

	uplink := b.find("leaf0>spine0")[0]
	namespace, _ := plan.Egress(b.Fabric, uplink)
	const rate = 4 * units.Mbps
	op := plan.ShaperOf(b.Fabric, uplink, rate, nil)
	if err := b.ns(namespace).Reshape(op); err != nil {
		t.Fatal(err)
	}
	if p := b.port(uplink); p.Rate != rate || p.Limit != op.Limit {
		t.Errorf("reshaped it is %+v, want %v and a queue of %v", p, rate, op.Limit)
	}
	slower("reshaped")
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	b.blast(ctx, &wg, 0, 1, 2000, 15*units.Mbps)
	time.Sleep(500 * time.Millisecond)
	got := b.carried([]topo.LinkID{uplink}, 2*time.Second)[0]
	t.Logf("carries %.2f Mbps of 4", got/1e6)
	if got > 1.02*float64(rate) || got < 0.98*float64(rate) && !netnstest.NotJudged(t) {
		t.Errorf("carries %.2f Mbps, want 4", got/1e6)
	}
}
