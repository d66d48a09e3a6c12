package experiment

import (
	"encoding/json"
	"errors"
	"fmt"
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
// 2000 to 2500 bytes and not at 1 Gbps, carrying so many packets a second.
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
	f, err := Predict(t.Context(), s, byHand(1e6))
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
	if err := f.Script(&text); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"links by the calibration of 2026-01-02", "calibrated capacity at MTU 1500: 1000000 shaped packets/s over 20 saturated links"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("plan does not say %q", want)
		}
	}
	if f.Overload() != "" {
		t.Errorf("Overload() = %q", f.Overload())
	}

	f, err = Predict(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := plannedBursts(f.Plan)[50*units.Mbps], plan.DefaultBurst(50*units.Mbps, 1500); got != want || f.Capacity != nil || f.Overload() != "" || !strings.Contains(f.Calibration, "no calibration") {
		t.Errorf("without a calibration: bucket %d, capacity %v, %q", got, f.Capacity, f.Calibration)
	}
}

// 50 Mbps at MTU 1500 are 4128 packets/s; over 4 links 16,512, less what is
// headers of the flow's first second.
func TestOverload(t *testing.T) {
	s := load(t, "fair", "1 0 1 0 1 1:20")
	f, err := Predict(t.Context(), s, byHand(10000))
	if err != nil {
		t.Fatal(err)
	}
	if peak := f.Load[0].PeakPackets; peak < 16000 || peak > 17500 {
		t.Fatalf("peak %v packets/s, want about 16,500", peak)
	}
	if over := f.Overload(); !strings.Contains(over, "at MTU 1500 is 10000, and 12500 is the most") || !strings.Contains(over, "arm fair") {
		t.Errorf("Overload() = %q", over)
	}
	for _, packets := range []float64{14000, 1e6} { // 14,000 with a quarter more is enough
		if f, err = Predict(t.Context(), s, byHand(packets)); err != nil || f.Overload() != "" {
			t.Errorf("capacity %v: %q, %v", packets, f.Overload(), err)
		}
	}
	c := byHand(10000)
	c.Capacity[0].Bounded = true
	if f, err = Predict(t.Context(), s, c); err != nil || f.Overload() != "" {
		t.Errorf("no end was found to the capacity, but %q, %v", f.Overload(), err)
	}
	out := t.TempDir()
	_, err = Execute(t.Context(), s, Options{Out: out, StateRoot: filepath.Join(t.TempDir(), "state"), Calibration: byHand(10000)})
	var over *OverloadError
	if left, _ := os.ReadDir(out); !errors.As(err, &over) || !strings.Contains(err.Error(), "--force") || len(left) > 0 {
		t.Errorf("Execute() = %v, and made %v", err, left)
	}
}

// A forced run says so in its manifest, and runs with the calibrated buckets.
func TestForcedRun(t *testing.T) {
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

// A rate without a window is refused with what would work; what is advised does.
func TestRefusedRate(t *testing.T) {
	text := strings.Replace(fmt.Sprintf(twoRacks, "fair"), "host_link: 50Mbps", "host_link: 1Gbps", 1)
	text = strings.Replace(text, "workload:", "scale: {size: 1/2, time: 1/3}\nworkload:", 1)
	s := loadText(t, text, oneFlow)
	_, err := Predict(t.Context(), s, byHand(1e9))
	if err == nil {
		t.Fatal("1 Gbps is accepted")
	}
	const scale = "scale: {rate: 1/10, size: 1/20, time: 1/3}"
	for _, want := range []string{"links of 1Gbps at MTU 1500", "flows of 50KB (fabric.short_flow)", "the nearest calibrated rates that do are 100Mbps;", scale} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	if _, err := Execute(t.Context(), s, Options{Out: t.TempDir(), Calibration: byHand(1e9)}); err == nil || !strings.Contains(err.Error(), "no token bucket") {
		t.Errorf("Execute() = %v", err)
	}
	if _, err := Preview(t.Context(), s, false); err != nil {
		t.Errorf("validate refuses it too: %v", err)
	}
	advised := loadText(t, strings.Replace(text, "scale: {size: 1/2, time: 1/3}", scale, 1), oneFlow)
	f, err := Predict(t.Context(), advised, byHand(1e9))
	if err != nil {
		t.Fatalf("what was advised is refused: %v", err)
	}
	before, err := Predict(t.Context(), s, nil)
	if err != nil {
		t.Fatal(err)
	}
	if a, b := f.Duration.Seconds(), before.Duration.Seconds(); a < 0.999*b || a > 1.001*b {
		t.Errorf("scaled, it takes %v, before %v", f.Duration, before.Duration)
	}
	larger := loadText(t, strings.Replace(text, "host_link: 1Gbps", "host_link: 1Gbps, short_flow: 400KB", 1), oneFlow)
	if _, err := Predict(t.Context(), larger, byHand(1e9)); err != nil {
		t.Errorf("with a larger short_flow: %v", err)
	}
}
