package runner

import (
	"bufio"
	"flag"
	"fmt"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"testbed/emu/engine"
	"testbed/emu/fidelity"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/longtest"
	"testbed/emu/plan"
	"testbed/results/tooltest"
	"testbed/results/verdict"
	"testbed/topo"
	"testbed/topo/units"
)

var every = flag.Bool("every", false, "plant each distortion in ten runs of its own, which takes 85 minutes")

// plantedCase is one distortion that is planted in a run of its own.
type plantedCase struct {
	name   string
	checks []string // one of them must not pass
	want   string   // in its reason, or the beginning of a change of the kernel
	often  bool     // planted in every run of make check; the others are planted there by other tests
	apart  bool     // named by its cause, of which other runs see nothing
	run    func(t *testing.T) (fidelity.Samples, verdict.Verdict)
}

// brief50 is at50 with a third of the bytes: for distortions of 300 ms at most.
func brief50() (string, []string) {
	text, trace := at50()
	for i, mb := range []float64{6, 5, 5} {
		trace[i] = fmt.Sprintf(judgedTrace[i], mb)
	}
	return strings.Replace(text, "block: 3MB", "block: 1500KB", 1), trace
}

// everyDistortion returns distortions from outside, as a user's tc, ip, sysctl or iperf3, or other programs of the machine, would
// cause them.
func everyDistortion(t *testing.T, f *topo.Fabric) (all []plantedCase) {
	changes := func(name, want string, often bool, of func() (string, []string), lines ...[]distortion) {
		all = append(all, plantedCase{name, []string{"kernel"}, want, often, true, func(t *testing.T) (fidelity.Samples, verdict.Verdict) {
			return judgedSamples(t, of, distort(lines))
		}})
	}
	for _, line := range distorted(f) {
		for _, d := range line {
			changes(d.name, d.want, false, brief50, []distortion{d})
		}
	}
	for _, link := range []string{"leaf0>spine0", "leaf0>h0-01"} {
		l := findLink(t, f, link)
		built := plan.ShaperOf(f, l, f.Link(l).Rate, nil)
		command := func(rate units.Rate) string {
			return fmt.Sprintf("tc qdisc change dev %s root handle 1: tbf rate %dbps burst %db limit %db", built.Device, rate.BytesPerSecond(), int64(built.Burst), int64(built.Limit))
		}
		for _, by := range []float64{0.5, 0.8, 2, 10} {
			rate := units.Rate(float64(built.Rate) * by)
			want := fmt.Sprintf("%s: rate %v in the plan, %v in", link, built.Rate, rate)
			changes(fmt.Sprintf("%s, %g times the rate for 1 s", link, by), want, by == 0.5, at50, []distortion{{"", built.Namespace, command(rate), command(built.Rate), time.Second, ""}})
			changes(fmt.Sprintf("%s, %g times the rate to the end", link, by), want, by == 2, at50, []distortion{{"", built.Namespace, command(rate), "", 0, ""}})
		}
	}
	for _, hook := range []struct{ namespace, device, direction, link string }{
		{"h1-00", "eth0", "ingress", "h1-00>leaf1"}, {"h0-01", "eth0", "egress", "h0-01>leaf0"}, {"leaf0", "spine0", "egress", "leaf0>spine0"}, {"spine0", "leaf0", "ingress", "spine0>leaf0"},
	} {
		for _, n := range []uint64{2000, 1000, 200} {
			code := fmt.Sprintf("4,32 0 0 4294963256,37 0 1 %d,6 0 0 2,6 0 0 0", (1<<32)-(1<<32)/n)
			changes(fmt.Sprintf("%s, %s, drops of 1 in %d", hook.link, hook.direction, n), hook.link+": filter at "+hook.direction, n == 1000, at50, []distortion{{"", hook.namespace,
				fmt.Sprintf("tc qdisc add dev %s clsact; tc filter add dev %s %s bpf da bytecode '%s'", hook.device, hook.device, hook.direction, code), "", 0, ""}})
		}
	}
	nft := func(name, want string, lines ...[]distortion) {
		all = append(all, plantedCase{name, []string{"kernel"}, want, false, true, func(t *testing.T) (fidelity.Samples, verdict.Verdict) {
			tooltest.Need(t, "nft")
			return judgedSamples(t, at50, distort(lines))
		}})
	}
	for _, n := range []int{2000, 200} {
		for _, x := range []struct{ namespace, family, hook string }{
			{"h1-00", "ip", "prerouting"}, {"h1-00", "ip", "input"}, {"h0-01", "ip", "output"}, {"h0-01", "ip", "postrouting"}, {"leaf0", "ip", "forward"}, {"spine0", "netdev", "ingress device leaf0"},
		} {
			nft(fmt.Sprintf("%s, nftables at %s, drops of 1 in %d", x.namespace, x.hook, n), x.namespace+": change of nftables rules", []distortion{{"", x.namespace,
				fmt.Sprintf("nft 'add table %[1]s t; add chain %[1]s t c { type filter hook %[2]s priority 0; }; add rule %[1]s t c numgen random mod %[3]d 0 drop'", x.family, x.hook, n), "", 0, ""}})
		}
		for _, x := range []struct{ namespace, device, link string }{{"h1-00", "eth0", "h1-00>leaf1"}, {"leaf0", "spine0", "leaf0>spine0"}} {
			name := fmt.Sprintf("%s %s, XDP, drops of 1 in %d", x.namespace, x.device, n)
			all = append(all, plantedCase{name, []string{"kernel"}, x.link + ": XDP program", false, true, func(t *testing.T) (fidelity.Samples, verdict.Verdict) {
				return judgedSamples(t, at50, inside(t, "xdp", x.namespace, x.device, fmt.Sprint(n)))
			}})
		}
	}
	_, spine := topo.UplinkAddrs(0, 0)
	for _, x := range []struct{ name, from, at, addr, flags, want string }{
		{"iperf3, UDP at 1 Mbps for 1 s between hosts", "h0-00", "h1-02", "10.1.2.1", "-u -b 1M -t 1", "10.1.2.1:5201"},
		{"iperf3, 128 KB over TCP between hosts", "h0-02", "h1-01", "10.1.1.1", "-n 128K", "10.1.1.1:5201"},
		{"iperf3, UDP at 1 Mbps for 1 s between switches", "leaf0", "spine0", spine.String(), "-u -b 1M -t 1", "spine0"},
		{"iperf3, 128 KB over TCP between switches", "leaf0", "spine0", spine.String(), "-n 128K", "spine0"},
	} {
		all = append(all, plantedCase{x.name, []string{"foreign"}, x.want, true, true, func(t *testing.T) (fidelity.Samples, verdict.Verdict) {
			tooltest.Need(t, "iperf3")
			return judgedSamples(t, at50, distort([][]distortion{
				{{x.name, x.at, "timeout 5 iperf3 -s -1 >&2 || true", "", 0, ""}},
				{{x.name, x.from, fmt.Sprintf("sleep 0.3; timeout 4 iperf3 -c %s %s >&2", x.addr, x.flags), "", 0, ""}},
			}))
		}})
	}
	all = append(all, pastSettings(t)...)
	planted := func(name, want string, of tamper, checks ...string) {
		all = append(all, plantedCase{name, checks, want, false, false, func(t *testing.T) (fidelity.Samples, verdict.Verdict) { return judgedSamples(t, at50, of) }})
	}
	for _, x := range []struct{ at, device, link string }{
		{"leaf0", "h0-01", "h0-01>leaf0"}, {"leaf1", "h1-02", "h1-02>leaf1"}, {"spine0", "leaf0", "leaf0>spine0"}, {"leaf1", "spine0", "spine0>leaf1"},
	} {
		for _, delay := range []time.Duration{time.Millisecond, 5 * time.Millisecond} {
			often := x.at == "leaf0" && delay == time.Millisecond
			all = append(all, plantedCase{fmt.Sprintf("%s, %v of delay to the end", x.link, delay), []string{"round-trip"}, x.link, often, false, func(t *testing.T) (fidelity.Samples, verdict.Verdict) {
				return judgedSamples(t, at50, inside(t, "detour", x.at, x.device, delay.String()))
			}})
		}
	}
	planted("offloads on", "offloads are on", offloads(), "frames")
	planted("a bucket of 64 KB from the beginning", "h0-00", shapers("h0-00", plan.Uplink, func(s *plan.Shaper) { s.Burst = 64 * units.KB }), "burst")
	planted("completions reported 200 ms late", "", tamper{backends: func(b engine.Backend) engine.Backend { return deaf{b, 200 * time.Millisecond} }}, "wire-vs-engine")
	for _, hold := range []time.Duration{100 * time.Millisecond, 300 * time.Millisecond} {
		all = append(all, plantedCase{fmt.Sprintf("the process stopped for %v", hold), []string{"stall"}, "", false, false, func(t *testing.T) (fidelity.Samples, verdict.Verdict) {
			return fidelity.Samples{}, stopped(t, hold)
		}})
	}
	late := []string{"machine", "scheduling-lateness", "stall", "wire-vs-engine", "packet-spacing", "delivered"}
	beside := func(name string, start func(t *testing.T)) {
		all = append(all, plantedCase{name, late, "", false, false, func(t *testing.T) (fidelity.Samples, verdict.Verdict) {
			start(t)
			return judgedSamples(t, at50, tamper{})
		}})
	}
	for _, n := range []int{1, 2, 8} {
		beside(fmt.Sprintf("%d busy loops per processor", n), func(t *testing.T) {
			for range n * runtime.NumCPU() {
				child(t, "hog", nil)
			}
		})
	}
	beside("3 GB of memory written again and again, twice", func(t *testing.T) {
		for range 2 {
			program(t, "dd", "if=/dev/zero", "of=/dev/null", "bs=3G", "count=1000")
		}
	})
	beside("512 MB written directly to the disk, again and again", func(t *testing.T) {
		program(t, "sh", "-c", fmt.Sprintf("while :; do dd if=/dev/zero of=%s bs=64M count=8 oflag=direct; done", filepath.Join(t.TempDir(), "written")))
	})
	return all
}

// program runs a program until the test ends.
func program(t *testing.T, name string, args ...string) {
	t.Helper()
	c := exec.Command(name, args...)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) // its whole group
		_ = c.Wait()                                      // it was killed
	})
}

// stopped runs the scenario in a process that is stopped for a time.
func stopped(t *testing.T, hold time.Duration) verdict.Verdict {
	t.Helper()
	dir := t.TempDir()
	out := child(t, "judge", []string{"SENSITIVITY_DIR=" + dir})
	lines := bufio.NewScanner(out.stdout)
	for lines.Scan() && lines.Text() != PhaseRun {
	}
	time.Sleep(700 * time.Millisecond) // into the run: no output marks a moment at which it matters
	if err := out.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	time.Sleep(hold)
	if err := out.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for lines.Scan() {
		t.Log(lines.Text())
	}
	return judgedBy(t, out, dir)
}

// caught plants the distortion in a run and reports whether it is caught, with its cause.
func (c plantedCase) caught(t *testing.T) bool {
	s, v := c.run(t)
	named := slices.ContainsFunc(s.Kernel, func(k fidelity.KernelChange) bool { return strings.HasPrefix(k.String(), c.want) })
	caught := slices.IndexFunc(v.Checks, func(x verdict.Check) bool {
		return slices.Contains(c.checks, x.Name) && x.Level > verdict.Pass && (named || strings.Contains(x.Reason, c.want))
	})
	if caught < 0 {
		show(t, v, true)
		return false
	}
	t.Logf("%v: %s: %s", v.Level, v.Checks[caught].Name, v.Checks[caught].Reason)
	return true
}

// eachDistortion runs a test for each distortion of everyDistortion.
func eachDistortion(t *testing.T, test func(t *testing.T, c plantedCase)) {
	t.Helper()
	tooltest.Need(t, "ip", "tc", "nsenter")
	netnstest.Require(t)
	longtest.Computes(t)
	text, trace := at50()
	f, err := loadText(t, text, trace...).Shape().Build()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range everyDistortion(t, f) {
		test(t, c)
	}
}

// Each distortion is caught, with its cause, in a run of its own: with -every in nine of ten runs or more. Without, those
// that are apart are planted by TestDistortionsApartAreCaught.
func TestEveryDistortionIsCaught(t *testing.T) {
	longtest.Skip(t, "plants distortions in runs of their own on packets, 5 s")
	rule := netnstest.Trials{Power: 0.999, Runs: 1, Least: 1}
	if *every {
		rule = netnstest.Trials{Power: 0.99, Runs: 10, Least: 9}
	}
	eachDistortion(t, func(t *testing.T, c plantedCase) {
		if *every || c.often && !c.apart {
			t.Run(c.name, func(t *testing.T) {
				netnstest.OnlyTiming(t)
				rule.Run(t, c.caught)
			})
		}
	})
}

// Runs with distortions whose cause no other can have go side by side, and no disturbance excuses one.
func TestDistortionsApartAreCaught(t *testing.T) {
	t.Parallel()
	longtest.Skip(t, "plants 12 distortions in runs of their own on packets, 50 s")
	eachDistortion(t, func(t *testing.T, c plantedCase) {
		if c.often && c.apart {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				if !c.caught(t) {
					t.Error("not caught")
				}
			})
		}
	})
}
