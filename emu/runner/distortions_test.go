package runner

import (
	"cmp"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"testbed/emu/fidelity"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/live"
	"testbed/emu/longtest"
	"testbed/emu/plan"
	"testbed/results/tooltest"
	"testbed/results/verdict"
	"testbed/topo"
	"testbed/topo/units"
)

// distortion changes the kernel during a run, as a user's ip, tc or sysctl would, and takes it back.
type distortion struct {
	name, namespace string
	alter, restore  string        // commands of a shell in the namespace
	hold            time.Duration // between them; 0 to the end of the run, and restore is not carried out
	want            string        // the beginning of the change that is named
}

// distorted returns distortions of the scenario at 50 Mbps. Those of one line are carried out one after the other, and the
// lines side by side.
func distorted(f *topo.Fabric) (lines [][]distortion) {
	places := []string{"h0-02>leaf0", "leaf0>h0-01", "leaf0>spine0", "spine0>leaf1"}
	holds := []time.Duration{100 * time.Millisecond, 300 * time.Millisecond}
	for _, l := range f.Links() {
		if !slices.Contains(places, f.LinkName(l.ID)) {
			continue
		}
		built := plan.ShaperOf(f, l.ID, l.Rate, nil)
		command := func(change func(*plan.Shaper)) string {
			s := built
			change(&s)
			return fmt.Sprintf("tc qdisc change dev %s root handle 1: tbf rate %dbps burst %db limit %db", s.Device, s.Rate.BytesPerSecond(), int64(s.Burst), int64(s.Limit))
		}
		var line []distortion
		for i, change := range []struct {
			name string
			by   func(*plan.Shaper)
			want string
		}{
			{"half the rate", func(s *plan.Shaper) { s.Rate /= 2 }, fmt.Sprintf("rate %v in the plan, %v in", built.Rate, built.Rate/2)},
			{"twice the rate", func(s *plan.Shaper) { s.Rate *= 2 }, fmt.Sprintf("rate %v in the plan, %v in", built.Rate, 2*built.Rate)},
			{"ten times the rate", func(s *plan.Shaper) { s.Rate *= 10; s.Burst *= 5 }, fmt.Sprintf("rate %v in the plan, %v in", built.Rate, 10*built.Rate)},
			{"ten times the bucket", func(s *plan.Shaper) { s.Burst *= 10 }, fmt.Sprintf("burst %d bytes in the plan, %d bytes in", int64(built.Burst), int64(10*built.Burst))},
			{"half the queue", func(s *plan.Shaper) { s.Limit /= 2 }, fmt.Sprintf("queue %d bytes in the plan, %d bytes in", int64(built.Limit), int64(built.Limit/2))},
			{"twice the queue", func(s *plan.Shaper) { s.Limit *= 2 }, fmt.Sprintf("queue %d bytes in the plan, %d bytes in", int64(built.Limit), int64(2*built.Limit))},
		} {
			line = append(line, distortion{f.LinkName(l.ID) + ", " + change.name, built.Namespace, command(change.by), command(func(*plan.Shaper) {}),
				holds[i%len(holds)], f.LinkName(l.ID) + ": " + change.want})
		}
		lines = append(lines, line)
	}
	const brief = 100 * time.Millisecond
	sysctl := func(namespace, key, value string) distortion {
		path := "/proc/sys/" + strings.ReplaceAll(key, ".", "/")
		return distortion{key, namespace, fmt.Sprintf("OLD=$(cat %s); echo %s > %s; sleep 0.1; echo $OLD > %s", path, value, path, path), "", time.Millisecond, namespace + ": " + key}
	}
	lines = append(lines, []distortion{
		sysctl("h0-00", "net.ipv4.tcp_sack", "0"), sysctl("h0-00", "net.ipv4.tcp_timestamps", "0"), sysctl("h0-01", "net.ipv4.tcp_window_scaling", "0"),
		sysctl("h0-02", "net.ipv4.tcp_slow_start_after_idle", "0"), sysctl("h1-00", "net.ipv4.tcp_rmem", "4096 8192 8192"), sysctl("h1-01", "net.ipv4.tcp_wmem", "4096 8192 8192"),
		sysctl("h1-02", "net.ipv4.tcp_ecn", "1"), sysctl("h1-00", "net.ipv4.tcp_congestion_control", "reno"), sysctl("h1-01", "net.ipv4.tcp_min_tso_segs", "4"),
		sysctl("leaf1", "net.ipv4.fib_multipath_hash_policy", "0"),
	}, []distortion{
		{"a larger initial window", "h0-00", `R=$(ip route show default); ip route change $R initcwnd 100`, `ip route change $R`, brief, "h0-00: route default"},
		{"quick acknowledgements", "h1-00", `R=$(ip route show default); ip route change $R quickack 1`, `ip route change $R`, brief, "h1-00: route default"},
		{"a route of its own", "leaf0", "ip route add 10.1.0.1/32 via $(ip route show 10.0.0.0/8 | sed 's/.*via \\([0-9.]*\\).*/\\1/')", "ip route del 10.1.0.1/32", brief, "leaf0: route 10.1.0.1/32"},
		{"a rule", "h0-01", "ip rule add pref 50 lookup 9", "ip rule del pref 50", brief, "h0-01: rule 50: table 9"},
		{"an address", "h1-02", "ip addr add 10.99.0.1/32 dev eth0", "ip addr del 10.99.0.1/32 dev eth0", brief, "h1-02>leaf1: address 10.99.0.1"},
		{"a neighbour", "leaf1", "ip neigh add 10.1.99.1 lladdr 02:00:00:00:00:66 nud permanent dev h1-00", "ip neigh del 10.1.99.1 dev h1-00", brief, "leaf1>h1-00: neighbour 10.1.99.1"},
		{"a longer MTU", "h0-02", "ip link set eth0 mtu 9000", "ip link set eth0 mtu 1500", brief, "h0-02>leaf0: MTU 1500 in the plan, 9000"},
		{"a device", "spine0", "ip link add stray type bridge", "ip link del stray", brief, "spine0 stray: device"},
		{"larger segments", "h1-01", "ip link set eth0 gso_max_segs 40", "", 0, "h1-01>leaf1: gso_max_segs 1 in the plan, 40"},
	}, []distortion{
		{"drops on ingress", "leaf1", "tc qdisc add dev h1-01 clsact; tc filter add dev h1-01 ingress bpf da bytecode '4,32 0 0 4294963256,37 0 1 4273492459,6 0 0 2,6 0 0 0'", "tc qdisc del dev h1-01 clsact", 300 * time.Millisecond,
			"leaf1>h1-01: filter at ingress"},
		{"drops on egress", "h0-01", "tc qdisc add dev eth0 clsact; tc filter add dev eth0 egress bpf da bytecode '4,32 0 0 4294963256,37 0 1 4273492459,6 0 0 2,6 0 0 0'", "tc qdisc del dev eth0 clsact", 300 * time.Millisecond,
			"h0-01>leaf0: filter at egress"},
		{"no shaper", "h1-02", "S=$(tc qdisc show dev eth0); tc qdisc del dev eth0 root", "", 0, "h1-02>leaf1: qdisc tbf at root in the plan, none"},
		{"another queue in the shaper", "spine0", "tc qdisc add dev leaf0 parent 1:1 handle 10: pfifo limit 500", "", 0, "spine0>leaf0: qdisc none in the plan, pfifo at 1:1"},
	})
	return lines
}

// distort carries out lines of distortions while the backend runs.
func distort(lines [][]distortion) tamper {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var failed []error
	return tamper{
		start: func(_ *live.Config, pins string) error {
			for _, line := range lines {
				wg.Go(func() {
					time.Sleep(300 * time.Millisecond) // the run has begun
					for _, d := range line {
						commands := d.alter
						if d.hold > 0 {
							commands += fmt.Sprintf("; sleep %g; %s", d.hold.Seconds(), cmp.Or(d.restore, "true"))
						}
						if err := within(pins, d.namespace, "sh", "-c", commands); err != nil {
							mu.Lock()
							failed = append(failed, fmt.Errorf("%s: %w", d.name, err))
							mu.Unlock()
						}
					}
				})
			}
			return nil
		},
		recorded: func(string) error {
			wg.Wait()
			mu.Lock()
			defer mu.Unlock()
			return errors.Join(failed...)
		},
	}
}

// Whatever is changed during a run is named, with its values and the time for which it lasted, however brief.
func TestDistortionsAreNamed(t *testing.T) {
	longtest.Skip(t, "runs on packets while the kernel is changed 47 times, 6 s")
	tooltest.Need(t, "ip", "tc", "nsenter")
	netnstest.Require(t)
	runs := 1
	if *whole {
		runs = 10
	}
	for range runs {
		text, trace := at50()
		f, err := loadText(t, text, trace...).Shape().Build()
		if err != nil {
			t.Fatal(err)
		}
		lines := distorted(f)
		s, v := judgedSamples(t, at50, distort(lines))
		show(t, v, false)
		if level(v, "kernel") != verdict.Void {
			t.Errorf("kernel is %v", level(v, "kernel"))
		}
		for _, d := range slices.Concat(lines...) {
			i := slices.IndexFunc(s.Kernel, func(k fidelity.KernelChange) bool { return strings.HasPrefix(k.String(), d.want) })
			if i < 0 {
				t.Errorf("%s: not named: no %q", d.name, d.want)
				continue
			}
			k := s.Kernel[i]
			t.Logf("%s: %v", d.name, k)
			// Both ends have the times at which reports were read, which may be late by a stall.
			if d.restore != "" && k.For < d.hold-fidelity.Default().StallPass || d.hold == 0 && k.For > 0 {
				t.Errorf("%s lasted %v, want %v or more (0 is to the end), less what the first report may be late", d.name, k.For, d.hold)
			}
		}
	}
}

// judgedSamples runs a scenario once and returns what the verdict was computed from, and the verdict.
func judgedSamples(t *testing.T, of func() (string, []string), planted tamper) (fidelity.Samples, verdict.Verdict) {
	t.Helper()
	text, trace := of()
	text += "limits: {duration: 1m}\n"
	o := options(t)
	o.tamper, o.Force = planted, true
	s := loadText(t, text, trace...)
	out, err := Execute(t.Context(), s, o)
	if err != nil {
		t.Fatal(err)
	}
	return readSamples(t, repeatDir(out.Dir, s.ArmList()[0].Name, 0)), out.Report.Summary.Arms[0].Verdicts[0]
}

// What links deliver shows a rate that differs for a moment, and what hosts receive a larger bucket, without the reports of the
// kernel.
func TestMomentsAreMeasured(t *testing.T) {
	longtest.Nightly(t, "changes links for a moment in up to 11 runs on packets, 50 s")
	tooltest.Need(t, "tc", "nsenter")
	netnstest.Require(t)
	text, trace := at50()
	f, err := loadText(t, text, trace...).Shape().Build()
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, link, check string
		by                func(*plan.Shaper)
		hold              time.Duration
		power             netnstest.Trials
	}{
		{"half the rate for 300 ms between switches", "leaf0>spine0", "delivered", func(s *plan.Shaper) { s.Rate /= 2 }, 300 * time.Millisecond, certain},
		{"half the rate for 300 ms toward a host", "leaf0>h0-01", "delivered", func(s *plan.Shaper) { s.Rate /= 2 }, 300 * time.Millisecond, certain},
		{"80 % of the rate for 1 s", "leaf0>spine0", "delivered", func(s *plan.Shaper) { s.Rate = s.Rate * 4 / 5 }, time.Second, likely}, // found in 21 of 22 runs: the queue may be short whenever it is sampled
		{"a bucket of 64 KB toward a host", "leaf0>h0-01", "burst", func(s *plan.Shaper) { s.Burst = 64 * units.KB }, time.Second, certain},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := findLink(t, f, tt.link)
			built := plan.ShaperOf(f, l, f.Link(l).Rate, nil)
			command := func(s plan.Shaper) string {
				return fmt.Sprintf("tc qdisc change dev %s root handle 1: tbf rate %dbps burst %db limit %db", s.Device, s.Rate.BytesPerSecond(), int64(s.Burst), int64(s.Limit))
			}
			changed := built
			tt.by(&changed)
			trials(tt.power).Run(t, func(t *testing.T) bool {
				_, v := judgedSamples(t, at50, distort([][]distortion{{{tt.name, built.Namespace, "sleep 0.5; " + command(changed), command(built), tt.hold, ""}}}))
				c := v.Checks[slices.IndexFunc(v.Checks, func(c verdict.Check) bool { return c.Name == tt.check })]
				t.Logf("%v: %s. %s", c.Level, c.Value, c.Reason)
				return c.Level >= verdict.Degraded && strings.Contains(c.Reason, tt.link)
			})
		})
	}
}

func findLink(t *testing.T, f *topo.Fabric, name string) topo.LinkID {
	t.Helper()
	ids, err := f.FindLinks(name)
	if err != nil || len(ids) != 1 {
		t.Fatal(ids, err)
	}
	return ids[0]
}

// A change that ends a run is named in its error and in its verdict.
func TestDistortionThatEndsTheRunIsNamed(t *testing.T) {
	t.Parallel()
	longtest.Skip(t, "runs on packets until a fault ends it, 15 s")
	tooltest.Need(t, "ip", "nsenter")
	netnstest.Require(t)
	for _, tt := range []struct{ name, namespace, alter, want string }{
		{"a route removed", "h0-00", "ip route del default", "h0-00: route default via"},
		{"a hash policy", "leaf0", "echo 0 > /proc/sys/net/ipv4/fib_multipath_hash_policy", "leaf0: net.ipv4.fib_multipath_hash_policy 3 in the plan, 0 in the kernel"},
		{"a link deleted", "leaf1", "ip link del h1-00", "device"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := options(t)
			o.tamper = distort([][]distortion{{{tt.name, tt.namespace, tt.alter, "", 0, tt.want}}})
			text, trace := at50()
			text = strings.Replace(text, "spines: 1", "spines: 2", 1) + "limits: {stuck: 2s, duration: 15s}\n"
			s := loadText(t, text, trace...)
			out, err := Execute(t.Context(), s, o)
			if err == nil {
				v := out.Report.Summary.Arms[0].Verdicts[0]
				show(t, v, false)
				if level(v, "kernel") != verdict.Void {
					t.Errorf("%s: the run ends without an error and without a verdict on the kernel", tt.name)
				}
				return
			}
			t.Logf("%v", err)
			if !strings.Contains(err.Error(), "the kernel was changed during the run: ") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("no %q in %v", tt.want, err)
			}
			dirs, globErr := filepath.Glob(filepath.Join(o.Out, "judged-*", s.ArmList()[0].Name, "0"))
			if globErr != nil || len(dirs) != 1 {
				t.Fatal(dirs, globErr)
			}
			var v verdict.Verdict
			if found, err := readJSON(filepath.Join(dirs[0], fidelityFile), &v); err != nil || !found || level(v, "kernel") != verdict.Void {
				t.Errorf("verdict %v, %v: %+v", found, err, v)
			}
		})
	}
}
