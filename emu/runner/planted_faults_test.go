package runner

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"testbed/emu/engine"
	"testbed/emu/fidelity"
	"testbed/emu/kernel"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/live"
	"testbed/emu/longtest"
	"testbed/emu/plan"
	"testbed/results/flows"
	"testbed/results/pcap"
	"testbed/results/tooltest"
	"testbed/results/verdict"
	"testbed/topo/units"
	"testbed/workloads"
)

// shapers changes all shapers, or that of one device where namespace is given,
// once the fabric is built and was found to be as planned. A fabric that is built
// otherwise is refused before it runs, so that no verdict is needed.
func shapers(namespace, device string, change func(*plan.Shaper)) tamper {
	return tamper{start: func(cfg *live.Config, pins string) error {
		changed := 0
		for _, op := range plan.Compile("planted", cfg.Fabric, plan.Options{Burst: cfg.Burst}).Ops() {
			s, ok := op.(plan.Shaper)
			if !ok || namespace != "" && (s.Namespace != namespace || s.Device != device) {
				continue
			}
			change(&s)
			n, err := kernel.OpenNamespace(filepath.Join(pins, s.Namespace))
			if err != nil {
				return err
			}
			if err := errors.Join(n.Reshape(s), n.Close()); err != nil {
				return err
			}
			changed++
		}
		if changed == 0 {
			return fmt.Errorf("no shaper of %s at %s", device, namespace)
		}
		return nil
	}}
}

// within runs a command in a namespace of a testbed.
func within(pins, namespace string, command ...string) error {
	b, err := exec.Command("nsenter", append([]string{"--net=" + filepath.Join(pins, namespace)}, command...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", strings.Join(command, " "), err, b)
	}
	return nil
}

// inside starts a role of TestChild in a namespace of a testbed, for a device and with one more argument.
func inside(t *testing.T, role, namespace, device, argument string) tamper {
	return tamper{start: func(_ *live.Config, pins string) error {
		child(t, role, []string{"SENSITIVITY_INSIDE=" + strings.Join([]string{filepath.Join(pins, namespace), device, argument}, " ")})
		return nil
	}}
}

// enter ties the goroutine to a thread of a namespace.
func enter(namespace string) error {
	runtime.LockOSThread() // and never unlocked: the thread ends with its namespace
	ns, err := netns.GetFromPath(namespace)
	if err != nil {
		return err
	}
	return errors.Join(netns.Set(ns), ns.Close())
}

// dropping drops a packet in a hundred on one device, in or out, by a classifier
// that draws a random number: no queue and no counter of the testbed
// shows it.
func dropping(namespace, device, direction string) tamper {
	return droppingOf(namespace, device, direction, 100)
}

// droppingOf drops one packet in n.
func droppingOf(namespace, device, direction string, n uint64) tamper {
	return tamper{start: func(_ *live.Config, pins string) error {
		// ld rand; jgt #(1-1/n)*2^32: ret TC_ACT_SHOT; ret TC_ACT_OK
		code := fmt.Sprintf("4,32 0 0 4294963256,37 0 1 %d,6 0 0 2,6 0 0 0", (1<<32)-(1<<32)/n)
		if err := within(pins, namespace, "tc", "qdisc", "add", "dev", device, "clsact"); err != nil {
			return err
		}
		return within(pins, namespace, "tc", "filter", "add", "dev", device, direction, "bpf", "direct-action", "bytecode", code)
	}}
}

// deaf reports completions to the engine late.
type deaf struct {
	engine.Backend
	by time.Duration
}

func (d deaf) Await(ctx context.Context, wake time.Duration) (time.Duration, []engine.Event, error) {
	now, evs, err := d.Backend.Await(ctx, wake)
	for _, ev := range evs {
		if _, ok := ev.(engine.TransferFinished); ok {
			time.Sleep(d.by)
			return now + d.by, evs, err
		}
	}
	return now, evs, err
}

// deafToReads reports the ends of reads of input blocks to the engine late.
type deafToReads struct {
	engine.Backend
	by    time.Duration
	reads map[workloads.FlowID]bool
}

func (d deafToReads) Do(ctx context.Context, cmds []engine.Command) error {
	for _, c := range cmds {
		switch c := c.(type) {
		case engine.StartTransfer:
			d.reads[c.Flow.ID] = c.Task != nil && c.Task.From == nil
		case engine.ReadDisk:
			d.reads[c.ID] = c.Task != nil
		}
	}
	return d.Backend.Do(ctx, cmds)
}

func (d deafToReads) Await(ctx context.Context, wake time.Duration) (time.Duration, []engine.Event, error) {
	now, evs, err := d.Backend.Await(ctx, wake)
	for _, ev := range evs {
		if f, ok := ev.(engine.TransferFinished); ok && d.reads[f.Flow] {
			time.Sleep(d.by)
			return now + d.by, evs, err
		}
	}
	return now, evs, err
}

// A false end of a read is caught, on the wire and from a host's own disk, although it is less than the
// time in which the attempt consumes what its host holds. All reads are compared.
func TestFalseEndOfAReadIsCaught(t *testing.T) {
	longtest.Skip(t, "runs jobs of tasks up to three times on packets, 15 s")
	netnstest.Require(t)
	const reads = `
name: reads
fabric: {leaves: 2, spines: 1, hosts_per_leaf: 2, host_link: 40Mbps, oversubscription: "2:1", queue: 20ms}
disk: {write: 3MB/s, size: 64MB}
heartbeat: {interval: 100ms}
workload:
  - {kind: tasks, generator: mix, jobs: 3, gap: 200ms, block: 500KB, map_rate: 1MB/s, profiles: [{name: scan, maps: 3-4, reduces: 0.3, keep_map: 0.2}]}
tasks: {map_slots: 1, input: {replicas: 1}}
arms: [{coflow: fair, placement: hdfs, tasks: fifo}]
`
	judged := func(t *testing.T, planted tamper) (verdict.Verdict, []fidelity.Transfer) {
		var seen flows.Records
		planted.observed = func(r flows.Records) { seen = r }
		o := options(t)
		o.tamper = planted
		s := loadText(t, reads)
		out, err := Execute(t.Context(), s, o)
		if err != nil {
			t.Fatal(err)
		}
		dir := repeatDir(out.Dir, s.ArmList()[0].Name, 0)
		var v verdict.Verdict
		if found, err := readJSON(filepath.Join(dir, fidelityFile), &v); err != nil || !found {
			t.Fatal(found, err)
		}
		inputs, remote := 0, 0
		all := readSamples(t, dir).Transfers
		for _, x := range all {
			switch {
			case strings.HasPrefix(x.Name, "the input of attempt"):
				inputs++
			case strings.HasPrefix(x.Name, "input flow"):
				remote++
				if x.Lag < 50*time.Millisecond || x.Engine < x.Wire {
					t.Errorf("%+v: must be consumed after its last packet", x)
				}
			}
		}
		maps, far := 0, 0
		for _, a := range seen.Attempts {
			if a.Kind == flows.MapTask {
				maps++
				if a.Locality != flows.NodeLocal {
					far++
				}
			}
		}
		if inputs != maps || remote != far || far == 0 || far == maps {
			t.Errorf("%d of %d maps are compared, and %d of the %d that are not node-local", inputs, maps, remote, far)
		}
		return v, all
	}
	t.Run("clean", func(t *testing.T) {
		netnstest.Timing(t, func(t *testing.T) bool {
			v, all := judged(t, tamper{})
			worst := time.Duration(0)
			for _, x := range all {
				if strings.HasPrefix(x.Name, "input flow") {
					worst = max(worst, x.Engine-x.Wire-x.Lag)
				}
			}
			show(t, v, false)
			t.Logf("latest end of a read beyond its bound: %v", worst)
			return level(v, "wire-vs-engine") == verdict.Pass
		})
	})
	t.Run("20 ms late", func(t *testing.T) {
		netnstest.OnlyTiming(t)
		trials(certain).Run(t, func(t *testing.T) bool {
			v, _ := judged(t, tamper{backends: func(b engine.Backend) engine.Backend {
				return deafToReads{b, 20 * time.Millisecond, map[workloads.FlowID]bool{}}
			}})
			got := level(v, "wire-vs-engine")
			show(t, v, got < verdict.Degraded)
			return got >= verdict.Degraded
		})
	})
}

// missing takes one packet in fifty out of the capture of a host or switch.
func missing(captures, name string) error {
	path := filepath.Join(captures, name+flows.Suffix)
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	r, err := pcap.NewReader(bytes.NewReader(b))
	if err != nil {
		return err
	}
	meta, _ := r.Meta()
	var out bytes.Buffer
	var w *pcap.Writer
	for i := 1; ; i++ {
		p, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return err
		}
		if w == nil {
			if w, err = pcap.NewWriter(&out, meta, r.Interfaces()); err != nil {
				return err
			}
		}
		if i%50 == 0 {
			continue
		}
		if err := w.Write(p.Interface, p.Time(), p.Data, p.Len); err != nil {
			return err
		}
	}
	stats, _ := r.Stats()
	if err := w.Close(stats); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}

var whole = flag.Bool("whole", false, "run each planted fault 30 times, and the clean scenario 90 times, which takes an hour")

// certain is the rule for faults that are caught whatever else the machine does, and likely
// that for faults whose effect depends on how late timers are.
var (
	certain = netnstest.Trials{Power: 0.99, Runs: 2, Least: 2}
	likely  = netnstest.Trials{Power: 0.9, Runs: 5, Least: 4}
)

// trials is the rule, or that of 30 runs for the same power with -whole.
func trials(quick netnstest.Trials) netnstest.Trials {
	if *whole {
		return quick.More(30)
	}
	return quick
}

// together is the rule certain for a fault whose cause the verdict names: a busy machine causes no such name. Its
// runs go side by side, next to other tests, and no disturbance of the machine excuses one.
func together(t *testing.T, f func(t *testing.T) (ok bool)) {
	t.Helper()
	t.Parallel()
	rule := trials(certain)
	var caught atomic.Int32
	t.Run("runs", func(t *testing.T) {
		for range rule.Runs {
			t.Run("", func(t *testing.T) {
				t.Parallel()
				if f(t) {
					caught.Add(1)
				}
			})
		}
	})
	if n := int(caught.Load()); n < rule.Least {
		t.Errorf("caught in %d runs; %v", n, rule)
	}
}

// plantedFault is a fault that a check must catch in the verdict of a run.
type plantedFault struct {
	name, check string
	least       verdict.Level
	planted     tamper
}

func (p plantedFault) caught(t *testing.T) bool {
	v := runJudged(t, at50, p.planted)
	got := level(v, p.check)
	show(t, v, got < p.least)
	t.Logf("%s is %v, want %v at least", p.check, got, p.least)
	return got >= p.least
}

// Faults whose cause the verdict names.
func TestNamedFaultsAreCaught(t *testing.T) {
	t.Parallel()
	longtest.Skip(t, "runs 2 planted faults twice on packets, 18 s")
	netnstest.Require(t)
	for _, p := range []plantedFault{
		{"packets missing from a capture", "captured-bytes", verdict.Void, tamper{recorded: func(captures string) error { return missing(captures, "h0-01") }}},
		{"offloads left on", "frames", verdict.Void, offloads()},
	} {
		t.Run(p.name, func(t *testing.T) { together(t, p.caught) })
	}
}

// Faults that are caught whatever else the machine does.
func TestPlantedFaultsAreCaught(t *testing.T) {
	longtest.Skip(t, "runs 4 planted faults twice on packets, 40 s")
	tooltest.Need(t, "ip", "tc")
	netnstest.Require(t)
	series := []string{ // each is like another case, or one of TestEveryDistortionIsCaught
		"buckets of 120 KB",
		"a packet in a hundred dropped on a leaf's ingress",
		"a bucket of 64 KB on one host's uplink",
		"a packet in a hundred dropped on a host's ingress",
		"a packet in a hundred dropped on a leaf's egress",
		"a link at 110 % of its rate",
		"hosts' uplinks at 85 % of their rate",
	}
	for _, p := range []plantedFault{
		{"a ring of one block", "capture-drops", verdict.Void,
			tamper{start: func(cfg *live.Config, _ string) error { cfg.Ring = 1; return nil }}},
		{"buckets of 120 KB", "burst", verdict.Void,
			shapers("", "", func(s *plan.Shaper) { s.Burst = min(120*units.KB, s.Limit) })},
		{"a bucket of 64 KB on one host's uplink", "burst", verdict.Degraded,
			shapers("h0-00", plan.Uplink, func(s *plan.Shaper) { s.Burst = 64 * units.KB })},
		{"a packet in a hundred dropped on a host's ingress", "loss", verdict.Void, dropping("h1-00", "eth0", "ingress")},
		{"a packet in a hundred dropped on a leaf's ingress", "loss", verdict.Void, dropping("leaf0", "h0-00", "ingress")},
		{"a packet in a hundred dropped on a leaf's egress", "loss", verdict.Void, dropping("leaf1", "h1-00", "egress")},
		{"a link at 90 % of its rate", "delivered", verdict.Degraded,
			shapers("leaf0", "h0-01", func(s *plan.Shaper) { s.Rate = s.Rate * 9 / 10 })},
		{"a link at 110 % of its rate", "delivered", verdict.Void,
			shapers("leaf0", "h0-01", func(s *plan.Shaper) { s.Rate = s.Rate * 11 / 10 })},
		{"hosts' uplinks at 85 % of their rate", "delivered", verdict.Degraded,
			shapers("", "", func(s *plan.Shaper) {
				if s.Device == plan.Uplink {
					s.Rate = s.Rate * 85 / 100
				}
			})},
		{"disks at 80 % of their rate", "disk", verdict.Void,
			tamper{start: func(cfg *live.Config, _ string) error {
				cfg.DiskRates = slices.Clone(cfg.DiskRates)
				for h := range cfg.DiskRates {
					cfg.DiskRates[h] = cfg.DiskRates[h] * 8 / 10
				}
				return nil
			}}},
		{"completions reported 200 ms late", "wire-vs-engine", verdict.Degraded,
			tamper{backends: func(b engine.Backend) engine.Backend { return deaf{b, 200 * time.Millisecond} }}},
	} {
		t.Run(p.name, func(t *testing.T) {
			if slices.Contains(series, p.name) {
				longtest.Nightly(t, "runs a planted fault twice, 10 s")
			}
			if slices.Contains([]string{"burst", "delivered", "disk", "wire-vs-engine"}, p.check) {
				netnstest.OnlyTiming(t)
			}
			trials(certain).Run(t, p.caught)
		})
	}
}

// A bucket of one frame loses rate wherever timers are late, more at higher rates.
func TestBucketOfOneFrameIsCaught(t *testing.T) {
	longtest.Nightly(t, "runs a planted fault up to 5 times, 20 s")
	netnstest.Require(t)
	netnstest.OnlyTiming(t)
	trials(likely).Run(t, func(t *testing.T) bool {
		v := runJudged(t, at100, shapers("", "", func(s *plan.Shaper) { s.Burst = s.MTU + plan.EthernetHeader }))
		show(t, v, true)
		return level(v, "delivered") > verdict.Pass
	})
}

// Eight busy processes per processor run next to the testbed.
func TestProcessorHogIsCaught(t *testing.T) {
	longtest.Nightly(t, "runs a planted fault up to 5 times, 28 s")
	netnstest.Require(t)
	netnstest.OnlyTiming(t)
	trials(likely).Run(t, func(t *testing.T) bool {
		for range 8 * runtime.NumCPU() {
			child(t, "hog", nil)
		}
		v := runJudged(t, at50, tamper{})
		show(t, v, true)
		late := max(level(v, "scheduling-lateness"), level(v, "stall"), level(v, "packet-spacing"), level(v, "delivered"))
		t.Logf("the worst of what was late: %v", late)
		return level(v, "machine") > verdict.Pass
	})
}

// A run with about four times the load that the machine carries, forced to start, is void.
func TestOverloadIsVoid(t *testing.T) {
	longtest.Nightly(t, "runs an overloaded scenario up to 5 times, 30 s")
	netnstest.Require(t)
	netnstest.OnlyTiming(t)
	text, trace := judgedAt(600)
	f, err := Predict(t.Context(), loadText(t, text, trace...), Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", f.Decision.Why)
	if f.Decision.Action != Refuse {
		t.Errorf("such a run is not refused without --force: %+v", f.Decision)
	}
	trials(likely).Run(t, func(t *testing.T) bool {
		v := runJudged(t, func() (string, []string) { return judgedAt(600) }, tamper{})
		show(t, v, true)
		return v.Level == verdict.Void
	})
}

// A testbed that is stopped for 300 ms.
func TestStoppedProcessIsCaught(t *testing.T) {
	longtest.Skip(t, "runs a planted fault twice, 9 s")
	netnstest.Require(t)
	trials(certain).Run(t, func(t *testing.T) bool {
		v := stopped(t, 300*time.Millisecond)
		got := level(v, "stall")
		show(t, v, got < verdict.Degraded)
		return got >= verdict.Degraded
	})
}

// judgedBy is the verdict of a process in role "judge", which it waits for.
func judgedBy(t *testing.T, p started, dir string) (v verdict.Verdict) {
	t.Helper()
	if err := p.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "verdict.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// started is a process that a test started.
type started struct {
	cmd    *exec.Cmd
	stdin  io.Writer
	stdout io.Reader
}

// child runs this test binary again in a role of TestChild, until it or the test
// ends.
func child(t *testing.T, role string, env []string) started {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.timeout=10m")
	cmd.Env = append(append(os.Environ(), "SENSITIVITY_ROLE="+role), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if cmd.ProcessState == nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait() // it was killed
		}
	})
	return started{cmd, stdin, stdout}
}

// TestChild is a process that other tests start, not a test: in role "hog" it is busy
// until it is killed, in role "burn" it takes a share of all processors (burn), in role
// "judge" it runs the scenario, prints its phases and writes the verdict, in roles "detour" and "xdp" it delays or
// drops packets of a device (inside), and in role "outside" it distorts a run past rtnetlink, nftables and parameters (plant).
func TestChild(t *testing.T) {
	switch os.Getenv("SENSITIVITY_ROLE") {
	case "hog":
		for start := time.Now(); time.Since(start) < 50*time.Second; {
		}
	case "burn":
		burn(t)
	case "outside":
		args := strings.Fields(os.Getenv("SENSITIVITY_INSIDE"))
		plant(t, args[0], args[1], args[2])
	case "detour", "xdp":
		args := strings.Fields(os.Getenv("SENSITIVITY_INSIDE"))
		time.Sleep(300 * time.Millisecond) // the run has begun
		if err := enter(args[0]); err != nil {
			t.Fatal(err)
		}
		if os.Getenv("SENSITIVITY_ROLE") == "detour" {
			takeDetour(t, args[1], args[2])
		} else {
			attachXDP(t, args[1], args[2])
		}
	case "judge":
		text, trace := at50()
		o := options(t)
		said := ""
		o.Progress = func(p Progress) {
			if p.Phase != said {
				said = p.Phase
				fmt.Println(said)
			}
		}
		out, err := Execute(t.Context(), loadText(t, text, trace...), o)
		if err != nil {
			t.Fatal(err)
		}
		b, err := json.Marshal(out.Report.Summary.Arms[0].Verdicts[0])
		if err == nil {
			err = os.WriteFile(filepath.Join(os.Getenv("SENSITIVITY_DIR"), "verdict.json"), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// Capturing changes the observations of the engine by less than the bound.
func TestCapturesDoNotDisturb(t *testing.T) {
	longtest.Nightly(t, "compares 10 runs on packets, 40 s")
	netnstest.Require(t)
	netnstest.OnlyTiming(t)
	const bound = 0.05
	netnstest.Timing(t, func(t *testing.T) bool {
		s := runSample(t)
		median := func(runs [][]time.Duration) time.Duration {
			var of []time.Duration
			for _, ccts := range runs {
				of = append(of, ccts[1])
			}
			slices.Sort(of)
			return of[rounds/2]
		}
		t.Logf("CCTs captured %v, not %v", s.with, s.without)
		a, b := median(s.with), median(s.without)
		off := float64(a-b) / float64(b)
		t.Logf("median CCT %v captured, %v not: %+.2f %%, bound %g %%", a, b, 100*off, 100*bound)
		return off >= -bound && off <= bound
	})
}
