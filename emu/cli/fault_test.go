package cli

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"testbed/emu/deploy"
	"testbed/emu/kernel"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/longtest"
)

// hand is a testbed that is up, and where its namespaces are pinned.
type hand struct {
	place
	pins string
}

// reach moves n bytes from one host to another, within a bound, and returns how long
// that took, or the error.
func (h hand) reach(t *testing.T, src, dst string, addr netip.Addr, n int, bound time.Duration) (time.Duration, error) {
	t.Helper()
	open := func(name string) *kernel.Namespace {
		ns, err := kernel.OpenNamespace(filepath.Join(h.pins, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ns.Close() })
		return ns
	}
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	l, err := open(dst).Listen(ctx, netip.AddrPortFrom(addr, 0), kernel.SocketOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	start := time.Now()
	go func() {
		in, err := l.Accept()
		if err != nil {
			return // the listener was closed
		}
		defer in.Close()
		_ = in.SetDeadline(start.Add(bound))
		if _, err := io.CopyN(io.Discard, in, int64(n)); err == nil {
			_, _ = in.Write([]byte{1}) // the other end shows whether it arrived
		}
	}()
	srcAddr := netip.AddrPort{}
	if addr.Is4() {
		srcAddr = netip.AddrPortFrom(netip.IPv4Unspecified(), 0)
	}
	p, err := open(src).Connect(srcAddr, l.Addr().(*net.TCPAddr).AddrPort(), kernel.SocketOptions{})
	if err != nil {
		return 0, err
	}
	conn, err := p.Wait(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(start.Add(bound))
	if _, err := conn.Write(make([]byte, n)); err != nil {
		return 0, err
	}
	_, err = io.ReadFull(conn, make([]byte, 1))
	return time.Since(start), err
}

// Each fault by hand affects only its target, and is taken back by its
// opposite, after --for, and on Ctrl-C.
func TestFaultByHand(t *testing.T) {
	t.Parallel()
	longtest.Skip(t, "injects every kind of fault by hand, 7 s")
	p := newPlace(t)
	before := look(t)
	t.Cleanup(func() {
		if _, err := deploy.Collect(context.Background(), p.state, kernel.Reaper{}, true); err != nil {
			t.Error(err)
		}
	})
	p.run(t, 0, "up", "scenario.yaml", "--name", "lab")
	e, err := deploy.Find(t.Context(), p.state, "lab")
	if err != nil {
		t.Fatal(err)
	}
	f, err := e.State.Shape.Build()
	if err != nil {
		t.Fatal(err)
	}
	h := hand{p, e.PinDir()}
	passes := func(when string, want bool, src, dst string) {
		t.Helper()
		to, err := f.FindHost(dst)
		if err != nil {
			t.Fatal(err)
		}
		bound := 5 * time.Second
		if !want {
			bound = 400 * time.Millisecond
		}
		if took, err := h.reach(t, src, dst, f.HostAddr(to), 1000, bound); (err == nil) != want {
			t.Errorf("%s: from %s to %s: %v after %v, want it to pass: %v", when, src, dst, err, took, want)
		}
	}
	passes("whole", true, "h0-01", "h1-02")

	for _, tt := range []struct {
		breaks, mends []string
		cut, not      [2]string
	}{
		{[]string{"link-down", "h0-01<>leaf0"}, []string{"link-up", "h0-01<>leaf0"}, [2]string{"h0-00", "h0-01"}, [2]string{"h0-00", "h1-01"}},
		{[]string{"host-crash", "h1-02"}, []string{"host-back", "h1-02"}, [2]string{"h1-00", "h1-02"}, [2]string{"h0-00", "h1-01"}},
		{[]string{"link-down", "leaf1<>spine*"}, []string{"link-up", "leaf1<>spine*"}, [2]string{"h0-00", "h1-02"}, [2]string{"h1-00", "h1-01"}},
	} {
		name := strings.Join(tt.breaks, " ")
		p.run(t, 0, append([]string{"fault"}, tt.breaks...)...)
		passes(name, false, tt.cut[0], tt.cut[1])
		passes(name, true, tt.not[0], tt.not[1])
		p.run(t, 0, append([]string{"fault"}, tt.mends...)...)
		passes(strings.Join(tt.mends, " "), true, tt.cut[0], tt.cut[1])
	}

	// Leaves route around one spine, whichever it is, and not around two.
	p.run(t, 0, "fault", "spine-down", "spine0")
	for range 4 { // by several source ports, of which some would take it
		passes("spine0 down", true, "h0-00", "h1-02")
	}
	p.run(t, 0, "fault", "spine-down", "spine1")
	passes("both spines down", false, "h0-00", "h1-02")
	p.run(t, 0, "fault", "spine-up", "spine0")
	for range 4 {
		passes("spine0 back", true, "h0-00", "h1-02")
	}
	p.run(t, 0, "fault", "spine-up", "spine1")

	// A rate: 250 KB take 0.1 s at 20 Mbps and a second at 2 Mbps.
	took := func(when string) time.Duration {
		t.Helper()
		d, err := h.reach(t, "h0-00", "h0-01", f.HostAddr(1), 250_000, 20*time.Second)
		if err != nil {
			t.Fatalf("%s: %v", when, err)
		}
		return d
	}
	whole := took("whole rate")
	p.run(t, 0, "fault", "link-rate", "h0-00>leaf0", "2Mbps")
	slow := took("a tenth of the rate")
	p.run(t, 0, "fault", "link-rate", "h0-00>leaf0", "20Mbps")
	again := took("whole rate again")
	t.Logf("250 KB took %v at 20 Mbps, %v at 2 Mbps, and %v at 20 Mbps", whole, slow, again)
	if !netnstest.Emulated() && (slow < 900*time.Millisecond || again > slow/2) {
		t.Errorf("250 KB took %v, %v at a tenth of the rate, and %v again", whole, slow, again)
	}

	// For a while, and until Ctrl-C.
	for _, tt := range []struct {
		name, lasts string
		interrupt   bool
	}{{"for a while", "2s", false}, {"until Ctrl-C", "1m", true}} {
		c := p.command(t, "fault", "link-down", "h0-01<>leaf0", "--for", tt.lasts)
		said, write, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		c.Stderr, c.Stdout = write, &out
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		write.Close()
		start := time.Now()
		_ = said.SetReadDeadline(start.Add(10 * time.Second))
		line := make([]byte, 200)
		n, err := said.Read(line) // it reports that the link is down
		if err != nil || !strings.Contains(string(line[:n]), "link-down h0-01<>leaf0, for "+tt.lasts[:1]) {
			t.Errorf("%s: says %q, %v", tt.name, line[:n], err)
		}
		passes(tt.name, false, "h0-00", "h0-01")
		if tt.interrupt {
			if err := c.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
		}
		err = c.Wait()
		said.Close()
		if d := time.Since(start); err != nil || d > 20*time.Second || !strings.Contains(out.String(), "undone") {
			t.Errorf("%s: ended after %v: %v, %q", tt.name, d, err, &out)
		}
		passes(tt.name+" is over", true, "h0-00", "h0-01")
	}

	// What is wrong changes nothing.
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"link-down", "h0-01>leaf0"}, "a cable carries both directions"},
		{[]string{"host-crash", "h7-00"}, "h7-00"},
		{[]string{"spine-down", "spine7"}, "the fabric has 2"},
		{[]string{"link-rate", "h0-00>leaf0", "fast"}, "fast"},
		{[]string{"link-rate", "h0-00>leaf0", "0bps"}, "rate 0 must be positive (to stop all traffic, run: testbed fault link-down 'h0-00<>leaf0')"},
		{[]string{"link-rate", "leaf*<>spine1", "0Mbps"}, "testbed fault link-down 'leaf*<>spine1'"},
		{[]string{"link-rate", "h0-0*>leaf0", "7bps"}, `link-rate h0-0*>leaf0: "7bps": expected a rate from 10Kbps to 1000Gbps`},
		{[]string{"link-rate", "leaf0>spine1", "99999Gbps"}, `"99999Gbps": expected a rate from 10Kbps to 1000Gbps`},
		{[]string{"link-rate", "--", "h0-00>leaf0", "-1Mbps"}, "no number"},
		{[]string{"link-up", "h0-01<>leaf0", "--for", "1s"}, "--for is only for faults"},
		{[]string{"link-down", "h0-01<>leaf0", "--for", "-1s"}, "must be positive"},
	} {
		if _, errs := p.run(t, exitUsage, append([]string{"fault"}, tt.args...)...); !strings.Contains(errs, tt.want) {
			t.Errorf("fault %v says %q, want %q", tt.args, errs, tt.want)
		}
	}
	passes("after what was refused", true, "h0-00", "h0-01")
	if again := took("after rates that were refused"); !netnstest.Emulated() && again > slow/2 {
		t.Errorf("250 KB took %v after rates that were refused, and %v at a tenth of the rate", again, slow)
	}

	// A verb that changes no cable fails, and says which state they are in.
	idle := func(want string, args ...string) {
		t.Helper()
		if _, errs := p.run(t, exitFailure, append([]string{"fault"}, args...)...); !strings.Contains(errs, want) {
			t.Errorf("fault %v says %q, want %q", args, errs, want)
		}
	}
	idle("already up: h0-01<>leaf0", "link-up", "h0-01<>leaf0")
	idle("already up: h1-02<>leaf1", "host-back", "h1-02")
	idle("already up: leaf0<>spine1, leaf1<>spine1", "spine-up", "spine1")
	p.run(t, 0, "fault", "host-crash", "h0-01")
	idle("already cut", "host-crash", "h0-01")
	// What another command has cut stays so when --for is over.
	idle("already cut", "link-down", "h0-01<>leaf0", "--for", "1ms")
	if out, _ := p.run(t, 0, "fault", "link-down", "h0-0*<>leaf0", "--for", "1ms"); strings.Contains(out, "h0-01") || !strings.Contains(out, "h0-00") {
		t.Errorf("of the cables of h0-00 and h0-01, which is cut: %q, want the first alone", out)
	}
	passes("the first cable is back", true, "h0-00", "h0-02")
	passes("the second is still cut", false, "h0-00", "h0-01")
	p.run(t, 0, "fault", "host-back", "h0-01")
	passes("the second is back", true, "h0-00", "h0-01")

	p.run(t, 0, "down", "lab")
	p.leftNothing(t, before)
}
