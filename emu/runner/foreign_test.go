package runner

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"testbed/emu/engine"
	"testbed/emu/kernel"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/live"
	"testbed/emu/longtest"
	"testbed/results/verdict"
	"testbed/topo"
	"testbed/topo/units"
)

// later calls do once, in a goroutine, when the engine waits at or after a time.
type later struct {
	engine.Backend
	at time.Duration
	do func()
}

func (l *later) Await(ctx context.Context, wake time.Duration) (time.Duration, []engine.Event, error) {
	now, evs, err := l.Backend.Await(ctx, wake)
	if now >= l.at && l.do != nil {
		go l.do()
		l.do = nil
	}
	return now, evs, err
}

// withForeign runs a coflow across racks while send runs, and returns the verdict and the
// directory of the run. open opens a namespace.
func withForeign(t *testing.T, send func(f *topo.Fabric, open func(name string) *kernel.Namespace, pins string) error) (verdict.Check, *Outcome) {
	t.Helper()
	s := load(t, "fair", "1 0 1 0 1 1:9.0")
	o := options(t)
	var opened []*kernel.Namespace
	var done sync.WaitGroup
	var failed error
	if send != nil {
		var cfg *live.Config
		var pins string
		o.tamper = tamper{
			start: func(c *live.Config, p string) error { cfg, pins = c, p; return nil },
			backends: func(b engine.Backend) engine.Backend {
				done.Add(1)
				return &later{b, 300 * time.Millisecond, func() {
					defer done.Done()
					failed = send(cfg.Fabric, func(name string) *kernel.Namespace {
						n, err := kernel.OpenNamespace(filepath.Join(pins, name))
						if err != nil {
							panic(err)
						}
						opened = append(opened, n)
						return n
					}, pins)
				}}
			},
		}
	}
	out, err := Execute(t.Context(), s, o)
	done.Wait()
	for _, n := range opened {
		failed = errors.Join(failed, n.Close())
	}
	if err := errors.Join(err, failed); err != nil {
		t.Fatal(err)
	}
	v := out.Report.Summary.Arms[0].Verdicts[0]
	show(t, v, false)
	for _, c := range v.Checks {
		if c.Name == "foreign" {
			return c, out
		}
	}
	t.Fatal("no check of foreign traffic")
	return verdict.Check{}, nil
}

// rawFrames sends frames of an experimental protocol by a device of a namespace, past IP.
func rawFrames(namespace, device string, n int) error {
	failed := make(chan error)
	go func() {
		failed <- func() error {
			if err := enter(namespace); err != nil {
				return err
			}
			face, err := net.InterfaceByName(device)
			if err != nil {
				return err
			}
			fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			frame := make([]byte, 100)
			copy(frame, slices.Repeat([]byte{0xff}, 6)) // to all
			copy(frame[6:], face.HardwareAddr)
			frame[12], frame[13] = 0x88, 0xb5
			for range n {
				err = errors.Join(err, unix.Sendto(fd, frame, 0, &unix.SockaddrLinklayer{Ifindex: face.Index}))
			}
			return errors.Join(err, unix.Close(fd))
		}()
	}()
	return <-failed
}

// Traffic that is not of the run is noticed, with its endpoints.
func TestForeignTrafficIsCaught(t *testing.T) {
	t.Parallel()
	longtest.Skip(t, "sends foreign traffic in 9 runs on packets, 20 s")
	netnstest.Require(t)
	datagrams := func(from *kernel.Namespace, to netip.Addr, size units.Bytes, every, during time.Duration) error {
		payload := make([]byte, size-42) // Ethernet, IP and UDP
		for begun := time.Now(); time.Since(begun) < during; time.Sleep(every) {
			if err := from.SendUDP(payload, netip.AddrPortFrom(to, 9)); err != nil {
				return err
			}
		}
		return nil
	}
	t.Run("clean", func(t *testing.T) {
		c, out := withForeign(t, nil)
		s := readSamples(t, repeatDir(out.Dir, "fair", 0))
		if c.Level != verdict.Pass || len(s.Foreign) > 0 {
			t.Errorf("%+v, foreign traffic %+v", c, s.Foreign)
		}
		if len(s.Switches) != 3 {
			t.Errorf("%d switches, want 3", len(s.Switches))
		}
		for _, p := range s.Switches {
			if p.Created > 0 || p.Delivered > 0 || p.Forwarded == 0 {
				t.Errorf("%+v, want forwarded packets alone", p)
			}
		}
	})
	for _, tt := range []struct {
		name    string
		send    func(f *topo.Fabric, open func(name string) *kernel.Namespace, pins string) error
		reasons []string
		hosts   bool // captures show it
	}{
		{"UDP at 2 % of the link for 300 ms", func(f *topo.Fabric, open func(string) *kernel.Namespace, _ string) error {
			const size = 1000 * units.Byte
			every := (f.Link(f.HostUp(0)).Rate / 50).TimeToSend(size)
			return datagrams(open("h0-00"), f.HostAddr(1), size, every, 300*time.Millisecond)
		}, []string{"udp 10.0.0.1:", " > 10.0.1.1:9 "}, true},
		{"TCP of 64 KB", func(f *topo.Fabric, open func(string) *kernel.Namespace, _ string) error {
			ctx := context.Background()
			to := netip.AddrPortFrom(f.HostAddr(1), 5201)
			l, err := open("h0-01").Listen(ctx, to, kernel.SocketOptions{})
			if err != nil {
				return err
			}
			c, err := open("h0-00").Dial(ctx, netip.AddrPort{}, to, kernel.SocketOptions{})
			if err != nil {
				return errors.Join(err, l.Close())
			}
			in, err := l.Accept()
			if err != nil {
				return errors.Join(err, c.Close(), l.Close())
			}
			_, err = c.Write(make([]byte, 64*units.KB))
			err = errors.Join(err, c.Close())
			_, all := io.Copy(io.Discard, in)
			return errors.Join(err, all, in.Close(), l.Close())
		}, []string{"tcp 10.0.0.1:", " > 10.0.1.1:5201 "}, true},
		{"UDP from a leaf to a spine", func(f *topo.Fabric, open func(string) *kernel.Namespace, _ string) error {
			_, spine := topo.UplinkAddrs(0, 0)
			return datagrams(open("leaf0"), spine, 100, 30*time.Millisecond, 300*time.Millisecond)
		}, []string{"leaf0", "spine0"}, false},
		{"frames that are not IP from a leaf to a spine", func(_ *topo.Fabric, _ func(string) *kernel.Namespace, pins string) error {
			return rawFrames(filepath.Join(pins, "leaf0"), "spine0", 30)
		}, []string{"leaf0 sent 30 packets to spines that none of its hosts sent"}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			together(t, func(t *testing.T) bool {
				c, out := withForeign(t, tt.send)
				t.Logf("%+v", c)
				for _, want := range tt.reasons {
					if !strings.Contains(c.Reason, want) {
						t.Errorf("reason %q, want %q", c.Reason, want)
					}
				}
				dir := repeatDir(out.Dir, "fair", 0)
				reported := func(without string) verdict.Verdict {
					if without != "" {
						if err := os.Remove(filepath.Join(dir, without)); err != nil {
							t.Fatal(err)
						}
					}
					again, err := Report(t.Context(), out.Dir, ReportOptions{})
					if err != nil {
						t.Fatal(err)
					}
					return again.Report.Summary.Arms[0].Verdicts[0]
				}
				stored := reported("")
				if got := level(stored, "foreign"); got != c.Level {
					t.Errorf("a report on the run states %v, want %v", got, c.Level)
				}
				again := reported(fidelityFile)
				missing := verdict.Check{Name: "records", Level: verdict.Degraded, Reason: fidelityFile + " is missing: it is not used"}
				again.Checks = slices.DeleteFunc(again.Checks, func(c verdict.Check) bool {
					return c.Name == missing.Name && c.Level == missing.Level && c.Reason == missing.Reason
				})
				if d := cmp.Diff(stored, again); d != "" {
					t.Errorf("a report that judges the samples again (-stored, +again):\n%s", d)
				}
				if got := level(reported(measuredFile), "foreign"); tt.hosts && got != c.Level {
					t.Errorf("a report on captures alone states %v, want %v", got, c.Level)
				}
				return c.Level >= verdict.Degraded
			})
		})
	}
}
