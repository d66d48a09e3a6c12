package live

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"testbed/emu/engine"
	"testbed/emu/kernel"
	"testbed/emu/kernel/netnstest"
	"testbed/policies"
	"testbed/results/samples"
	"testbed/results/tooltest"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// within runs a command in a namespace of a rig.
func (r *rig) within(name string, command ...string) (string, error) {
	net := "--net=" + filepath.Join(r.cfg.Pins, name)
	b, err := exec.Command("nsenter", append([]string{net}, command...)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%v in %s: %w: %s", command, name, err, b)
	}
	return string(b), err
}

// number returns the number that a pattern finds in a text.
func number(text, pattern string) (float64, error) {
	m := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("no %s in %q", pattern, text)
	}
	return strconv.ParseFloat(m[1], 64)
}

// readSamples ends the rig, and returns the readings of a link and the flows.
func (r *rig) readSamples(t *testing.T, link string) (points []samples.LinkPoint, flows []samples.FlowPoint) {
	t.Helper()
	if _, err := r.Finish(t.Context()); err != nil {
		t.Fatal(err)
	}
	in, err := samples.Open(r.cfg.Samples)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	for p, err := range in.LinkPoints() {
		if err != nil {
			t.Fatal(err)
		}
		if p.Link == link {
			points = append(points, p)
		}
	}
	for p, err := range in.FlowPoints() {
		if err != nil {
			t.Fatal(err)
		}
		flows = append(flows, p)
	}
	return points, flows
}

// poll is what tc showed of a queue at some time between two moments.
type poll struct {
	from, to time.Duration
	bytes    units.Bytes
}

// The samples of a queue agree with what tc shows from outside, 100 times a second: within one frame of what was
// sampled within one interval of its answer, for 95 % of the answers. Between two samples the queue may grow or shrink
// by what the link sends in an interval at most, which no answer exceeds.
func TestSampledQueueIsWhatTCShows(t *testing.T) {
	tooltest.Need(t, "tc", "nsenter")
	netnstest.Timing(t, func(t *testing.T) bool {
		const size = 12 * units.MB // 2 s
		r := newRig(t, 50*units.Mbps, nil)
		for i := range 2 {
			f := workloads.Flow{ID: workloads.FlowID(i), Src: topo.HostID(2 * i), Dst: 1, Size: size / 2}
			r.do(t, engine.StartTransfer{Coflow: 1, Flow: f, Ceiling: policies.NoLimit})
		}
		port := r.sampler.ports[r.fabric.HostDown(1)]
		var polls []poll
		for next := time.Now(); time.Since(r.zero) < 1500*time.Millisecond; next = next.Add(10 * time.Millisecond) {
			time.Sleep(time.Until(next))
			from := time.Since(r.zero)
			text, err := r.within(port.namespace, "tc", "-s", "qdisc", "show", "dev", port.device)
			if err != nil {
				t.Fatal(err)
			}
			n, err := number(text, `(?s)qdisc tbf.*?backlog (\d+)b`)
			if err != nil { // tc shortens numbers
				k, err := number(text, `(?s)qdisc tbf.*?backlog (\d+)Kb`)
				if err != nil {
					t.Fatal(err)
				}
				n = k * 1024
			}
			polls = append(polls, poll{from, time.Since(r.zero), units.Bytes(n)})
		}
		for n := 0; n < 2; {
			_, evs, err := r.Await(t.Context(), engine.NextNever)
			if err != nil {
				t.Fatal(err)
			}
			for _, ev := range evs {
				if _, ok := ev.(engine.TransferFinished); ok {
					n++
				}
			}
		}
		points, _ := r.readSamples(t, r.fabric.LinkName(r.fabric.HostDown(1)))
		interval, frame := r.cfg.Settings.Interval, r.sampler.frame()
		compared, far := 0, 0
		for _, p := range polls {
			low, high, n := units.Bytes(0), units.Bytes(0), 0
			for _, x := range points {
				if x.At < p.from-interval || x.At > p.to+interval {
					continue
				}
				if n == 0 {
					low, high = *x.Queue, *x.Queue
				}
				n, low, high = n+1, min(low, *x.Queue), max(high, *x.Queue)
			}
			if n < 2 {
				continue // between two looks
			}
			compared++
			if most := frame + (50 * units.Mbps).BytesIn(interval); p.bytes < low-most || p.bytes > high+most {
				t.Errorf("at %v tc shows %d bytes, samples %d to %d", p.from, p.bytes, low, high)
			}
			if p.bytes < low-frame-1023 || p.bytes > high+frame { // 1023: where tc shows whole KiB
				far++
				t.Logf("at %v tc shows %d bytes, samples %d to %d", p.from, p.bytes, low, high)
			}
		}
		t.Logf("%d of %d polls beside samples, %d off by more than a frame", compared, len(polls), far)
		least := 20
		if netnstest.Emulated() { // tc takes a quarter of a second there
			least = 3
		}
		if compared < least {
			t.Errorf("too few polls were beside samples, want %d", least)
		}
		return 20*far <= compared
	})
}

// The samples of a flow's connection are what ss shows at the same moment: while the flow is paused, nothing changes.
func TestSampledConnectionIsWhatSSShows(t *testing.T) {
	t.Parallel()
	tooltest.Need(t, "ss", "nsenter")
	r := newRig(t, 50*units.Mbps, nil)
	f := workloads.Flow{ID: 7, Src: 0, Dst: 4, Size: 16 * units.MB}
	r.do(t, engine.StartTransfer{Coflow: 1, Flow: f, Ceiling: policies.NoLimit})
	compared := 0
	var last kernel.FlowState
	for range 20 {
		time.Sleep(100 * time.Millisecond)
		r.do(t, engine.SetCeiling{Flow: 7, Ceiling: 0})
		time.Sleep(150 * time.Millisecond) // what is under way arrives
		x := r.network.connections.flows
		x.mu.Lock()
		if len(x.all) != 1 {
			t.Fatalf("%d connections with flows, want 1", len(x.all))
		}
		c := x.all[0].conn
		x.mu.Unlock()
		before, _, err := kernel.FlowStateOf(c.TCPConn)
		text, ssErr := r.within("h0-00", "ss", "-tinH", "dst", r.fabric.HostAddr(4).String())
		after, _, afterErr := kernel.FlowStateOf(c.TCPConn)
		if err := errors.Join(err, ssErr, afterErr); err != nil {
			t.Fatal(err)
		}
		r.do(t, engine.SetCeiling{Flow: 7, Ceiling: policies.NoLimit})
		if before != after {
			continue
		}
		compared++
		last = after
		rtt, err := number(text, `\brtt:([\d.]+)/`)
		window, err2 := number(text, `\bcwnd:(\d+)`)
		delivery, err3 := number(text, `\bdelivery_rate (\d+)bps`)
		if err := errors.Join(err, err2, err3); err != nil {
			t.Fatal(err)
		}
		resent, err := number(text, `\bretrans:\d+/(\d+)`)
		if err != nil {
			resent = 0 // ss shows no zero
		}
		shown := kernel.FlowState{RTT: time.Duration(rtt*1000+0.5) * time.Microsecond, Window: int64(window), Delivery: units.Rate(delivery), Retransmitted: int64(resent)}
		if shown != before {
			t.Errorf("ss shows %+v, the sampler reads %+v:\n%s", shown, before, text)
		}
	}
	t.Logf("%d of 20 moments compared", compared)
	if compared < 5 {
		t.Error("the connection hardly ever stood still")
	}
	for done := false; !done; {
		_, evs, err := r.Await(t.Context(), engine.NextNever)
		if err != nil {
			t.Fatal(err)
		}
		for _, ev := range evs {
			if _, ok := ev.(engine.TransferFinished); ok {
				done = true
			}
		}
	}
	_, flows := r.readSamples(t, "")
	found := false
	for _, p := range flows {
		if p.Flow != 7 {
			t.Errorf("samples of flow %d", p.Flow)
		}
		found = found || p.RTT == last.RTT && p.Window == int(last.Window) && p.Delivery == last.Delivery && p.Retransmitted == int(last.Retransmitted)
	}
	if !found {
		t.Errorf("of %d samples none is %+v, which the connection had for 150 ms", len(flows), last)
	}
}
