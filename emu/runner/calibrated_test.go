package runner

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"testbed/emu/calibration"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/plan"
	"testbed/topo/units"
)

// byHand is a calibration in which MTU 1500 works up to 100 Mbps with buckets of
// 2000 to 2500 bytes and not at 1 Gbps, with a capacity of packets per second.
func byHand(packets float64) *calibration.Calibration {
	link := func(rate units.Rate, rateError float64) calibration.Link {
		one := func(x float64) calibration.Spread { return calibration.Spread{Median: x, Least: x, Most: x} }
		return calibration.Link{Rate: rate, MTU: 1500, Flow: 50 * units.KB, Bursts: []calibration.Burst{
			{Size: 2000, RateError: one(rateError), Credit: one(2000)}, {Size: 2500, RateError: one(rateError), Credit: one(2500)}, {Size: 12000, RateError: one(0), Credit: one(12000)},
		}}
	}
	return &calibration.Calibration{Version: calibration.Version, Date: time.Date(2026, 1, 2, 0, 0, 0, 0, time.UTC),
		Links:    []calibration.Link{link(10*units.Mbps, 0), link(100*units.Mbps, 0), link(200*units.Mbps, -0.05), link(units.Gbps, -0.1)},
		Capacity: []calibration.Capacity{{MTU: 1500, Rate: 20 * units.Mbps, Flows: 10, Links: 20, Packets: packets, Cost: 10 * time.Microsecond}}}
}

// plannedBursts are the buckets of a plan's shapers, in order of appearance.
func plannedBursts(p *plan.Plan) map[units.Rate]units.Bytes {
	out := map[units.Rate]units.Bytes{}
	for _, op := range p.Ops() {
		if s, ok := op.(plan.Shaper); ok {
			out[s.Rate] = s.Burst
		}
	}
	return out
}

const oneFlow = "1 0 1 0 1 1:5"

func TestPredictByCalibration(t *testing.T) {
	s := load(t, "fair", oneFlow)
	f, err := Predict(t.Context(), s, Options{Calibration: byHand(1e6)})
	if err != nil {
		t.Fatal(err)
	}
	w := calibration.Window{Least: 2000, Most: 2615} // 2615.5 bytes of credit, all of which a bucket of as many gives
	if got := plannedBursts(f.Plan)[50*units.Mbps]; got < w.Pick()-5 || got > w.Pick()+5 {
		t.Errorf("bucket of 50Mbps = %d, want about %d", got, w.Pick())
	}
	if l := f.Load[0]; f.Capacity == nil || l.CPU != l.PeakPackets*10e-6/float64(runtime.NumCPU()) || l.PeakLinks != 4 {
		t.Errorf("load %+v, capacity %+v: want the calibrated cost and 4 links in use", l, f.Capacity)
	}
	var text strings.Builder
	if err := f.Script(&text, -1); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"links use the calibration of 2026-01-02", "calibrated capacity at MTU 1500: 1000000 shaped packets/s over 20 saturated links"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("plan does not say %q", want)
		}
	}
	if f.Decision.Action != Start {
		t.Errorf("Decision = %v", f.Decision)
	}

	f, err = Predict(t.Context(), s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := plannedBursts(f.Plan)[50*units.Mbps], plan.DefaultBurst(50*units.Mbps, 1500); got != want || f.Capacity != nil || f.Decision.Action != Start || !strings.Contains(f.Calibration, "not calibrated") {
		t.Errorf("without a calibration: bucket %d, capacity %v, %q", got, f.Capacity, f.Calibration)
	}
}

// 50 Mbps at MTU 1500 are 4128 packets/s; over 4 links 16,512. A run is refused above
// the capacity and warns from 85 % on, or from another level that is set.
func TestOverload(t *testing.T) {
	s := load(t, "fair", "1 0 1 0 1 1:20")
	f, err := Predict(t.Context(), s, Options{Calibration: byHand(10000)})
	if err != nil {
		t.Fatal(err)
	}
	peak := f.Load[0].PeakPackets
	if peak < 16500 || peak > 16530 {
		t.Fatalf("peak %v packets/s, want 16,512", peak)
	}
	for _, want := range []string{"165 %", "calibrated capacity at MTU 1500 is 10000", "arm fair: 165", "write scale: {rate: 1/2, size: 1/2}"} {
		if got := f.Decision.String(); !strings.Contains(got, want) {
			t.Errorf("Decision = %q: want %q", got, want)
		}
	}
	for _, tt := range []struct {
		capacity, warn float64
		want           Action
	}{
		{peak / 1.2, 0, Refuse}, {peak / 1.01, 0, Refuse}, {peak / 0.99, 0, Warn}, {peak / 0.86, 0, Warn}, {peak / 0.84, 0, Start},
		{peak / 0.84, 0.8, Warn}, {peak / 0.86, 0.9, Start}, {peak / 1.2, 5, Refuse},
	} {
		f, err := Predict(t.Context(), s, Options{Calibration: byHand(tt.capacity), WarnLoad: tt.warn})
		if err != nil || f.Decision.Action != tt.want {
			t.Errorf("capacity %v, warning level %v: %v, %v, want %s", tt.capacity, tt.warn, f.Decision, err, tt.want)
		}
	}
	// If the calibration reached no limit, the processors decide.
	c := byHand(10000)
	c.Capacity[0].Bounded = true
	for cost, want := range map[time.Duration]Action{10 * time.Microsecond: Start, time.Duration(runtime.NumCPU()) * 100 * time.Microsecond: Refuse} {
		c.Capacity[0].Cost = cost
		if f, err = Predict(t.Context(), s, Options{Calibration: c}); err != nil || f.Decision.Action != want {
			t.Errorf("no end was found to the capacity, at %v a packet: %v, %v, want %s", cost, f.Decision, err, want)
		}
	}
	out := t.TempDir()
	_, err = Execute(t.Context(), s, Options{Out: out, StateRoot: filepath.Join(t.TempDir(), "state"), Calibration: byHand(peak / 1.2)})
	var over *OverloadError
	if left, _ := os.ReadDir(out); !errors.As(err, &over) || !strings.Contains(err.Error(), "120 %") || !strings.Contains(err.Error(), "--force") || len(left) > 0 {
		t.Errorf("Execute() = %v, and made %v", err, left)
	}
}

// The same limits hold without a calibration, by the default cost of a packet.
func TestOverloadByDefault(t *testing.T) {
	hosts := 2 * runtime.NumCPU()
	var trace []string
	for i := range hosts {
		trace = append(trace, fmt.Sprintf("%d 0 1 %d 1 %d:300", i+1, i, hosts+i))
	}
	// Each flow loads two links: 4 links for each processor.
	carried := 1 / PacketCost.Seconds() / 4 * 8 * 1514
	ports := max(2*hosts, 128) // of the trace
	text := func(share float64) string {
		return fmt.Sprintf("name: s\nfabric: {leaves: 1, spines: 0, hosts_per_leaf: %d, host_link: %.0fbps}\nworkload: [{kind: trace, path: trace.txt, mb: MB}]\narms: {coflow: [fair]}\n", ports, share*carried)
	}
	for share, want := range map[float64]Action{0.8: Start, 0.9: Warn, 1.05: Refuse} {
		f, err := Predict(t.Context(), loadText(t, text(share), trace...), Options{})
		if err != nil || f.Decision.Action != want || math.Abs(f.Decision.Share-share) > 0.01 {
			t.Errorf("%.0f %% of the processors: %v, %v, want %s", 100*share, f.Decision, err, want)
		}
	}
	var over *OverloadError
	out := t.TempDir()
	_, err := Execute(t.Context(), loadText(t, text(1.05), trace...), Options{Out: out, StateRoot: filepath.Join(t.TempDir(), "state")})
	if left, _ := os.ReadDir(out); !errors.As(err, &over) || !strings.Contains(err.Error(), "105 %") || !strings.Contains(err.Error(), "sudo testbed calibrate") || len(left) > 0 {
		t.Errorf("Execute() = %v, and made %v", err, left)
	}
}

// The manifest of a forced run states it, and the run uses with the calibrated buckets.
func TestForcedRun(t *testing.T) {
	t.Parallel()
	netnstest.Require(t)
	s := load(t, "fair", oneFlow)
	out, err := Execute(t.Context(), s, Options{Out: t.TempDir(), StateRoot: filepath.Join(t.TempDir(), "state"), Calibration: byHand(1000), Force: true})
	if err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(out.Dir, "manifest.json"))
	var m Manifest
	if err == nil {
		err = json.Unmarshal(data, &m)
	}
	if err != nil || !strings.Contains(m.Forced, "capacity at MTU 1500 is 1000") || !strings.Contains(m.Calibration, "2026-01-02") {
		t.Errorf("manifest: forced %q, calibration %q, %v", m.Forced, m.Calibration, err)
	}
	text, err := os.ReadFile(filepath.Join(out.Dir, "plan.txt"))
	if err != nil || strings.Contains(string(text), fmt.Sprintf("burst %db", plan.DefaultBurst(50*units.Mbps, 1500))) {
		t.Errorf("plan.txt has default buckets: %v", err)
	}
}

// A rate without a window is refused with a proposal, and the proposal works.
func TestRefusedRate(t *testing.T) {
	text := strings.Replace(fmt.Sprintf(twoRacks, "fair"), "host_link: 50Mbps", "host_link: 1Gbps", 1)
	text = strings.Replace(text, "workload:", "scale: {size: 1/2, time: 1/3}\nworkload:", 1)
	s := loadText(t, text, oneFlow)
	_, err := Predict(t.Context(), s, Options{Calibration: byHand(1e9)})
	if err == nil {
		t.Fatal("1 Gbps is accepted")
	}
	const scale = "scale: {rate: 1/10, size: 1/20, time: 1/3}"
	for _, want := range []string{"links of 1Gbps at MTU 1500", "flows of 50KB (fabric.short_flow)", "the nearest calibrated rates that work are 100Mbps;", scale} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if _, err := Execute(t.Context(), s, Options{Out: t.TempDir(), Calibration: byHand(1e9)}); err == nil || !strings.Contains(err.Error(), "no token bucket") {
		t.Errorf("Execute() = %v", err)
	}
	if _, err := Preview(s); err != nil {
		t.Errorf("validate refuses it too: %v", err)
	}
	advised := loadText(t, strings.Replace(text, "scale: {size: 1/2, time: 1/3}", scale, 1), oneFlow)
	f, err := Predict(t.Context(), advised, Options{Calibration: byHand(1e9)})
	if err != nil {
		t.Fatalf("what was advised is refused: %v", err)
	}
	before, err := Predict(t.Context(), s, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if a, b := f.Duration.Seconds(), before.Duration.Seconds(); a < 0.999*b || a > 1.001*b {
		t.Errorf("scaled, it takes %v, before %v", f.Duration, before.Duration)
	}
	larger := loadText(t, strings.Replace(text, "host_link: 1Gbps", "host_link: 1Gbps, short_flow: 400KB", 1), oneFlow)
	if _, err := Predict(t.Context(), larger, Options{Calibration: byHand(1e9)}); err != nil {
		t.Errorf("with a larger short_flow: %v", err)
	}
}
