package calibration

import (
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/results/metrics"
	"testbed/topo/units"
)

// made returns a link with buckets of the given sizes, errors and credits.
func made(rate units.Rate, mtu units.Bytes, bursts ...[3]float64) Link {
	l := Link{Rate: rate, MTU: mtu, Flow: 50 * units.KB}
	for _, b := range bursts {
		one := func(x float64) Spread { return Spread{x, x, x} }
		l.Bursts = append(l.Bursts, Burst{units.Bytes(b[0]), one(b[1]), one(b[2])})
	}
	return l
}

func TestWire(t *testing.T) {
	for _, tt := range []struct{ size, mtu, want units.Bytes }{
		{1448, 1500, 1514}, {1449, 1500, 1449 + 2*66}, {50000, 1500, 50000 + 35*66}, {250000, 9000, 250000 + 28*66},
	} {
		if got := Wire(tt.size, tt.mtu); got != tt.want {
			t.Errorf("Wire(%d, %d) = %d, want %d", tt.size, tt.mtu, got, tt.want)
		}
	}
}

// 5 % of 50 KB on the wire at MTU 1500 are 2615.5 bytes.
func TestWindow(t *testing.T) {
	tests := []struct {
		name  string
		link  Link
		short units.Bytes
		want  Window
	}{
		{"both ends measured", made(1, 1500, [3]float64{1514, -0.05, 1400}, [3]float64{1900, -0.002, 1800}, [3]float64{2300, 0, 2200}), 50 * units.KB, Window{1900, 2300}},
		{"upper end between two", made(1, 1500, [3]float64{2000, 0, 2015.5}, [3]float64{3000, 0, 3215.5}), 50 * units.KB, Window{2000, 2500}},
		{"larger flows", made(1, 1500, [3]float64{2000, 0, 2015.5}, [3]float64{3000, 0, 3215.5}), 250 * units.KB, Window{2000, 3000}},
		{"no bucket holds the rate", made(1, 1500, [3]float64{2000, -0.02, 1000}, [3]float64{3000, 0.011, 1000}), 50 * units.KB, Window{}},
		{"those that hold the rate are too large", made(1, 1500, [3]float64{2000, -0.02, 1000}, [3]float64{4000, 0, 3000}), 50 * units.KB, Window{}},
		{"flows slower than the link", made(1, 1500, [3]float64{2000, 0, -3000}), 50 * units.KB, Window{}},
		{"an outlier parts the window", made(1, 1500, [3]float64{1600, 0, 1000}, [3]float64{1700, -0.03, 1000}, [3]float64{1800, 0, 1000}, [3]float64{2300, 0, 1000}), 50 * units.KB, Window{1800, 2300}},
		{"late timers hide what a bucket gives", made(1, 1500, [3]float64{2300, 0, 1500}, [3]float64{2600, 0, 2000}, [3]float64{3000, 0, 2500}), 50 * units.KB, Window{2300, 2615}},
		{"they hide it in all", made(1, 1500, [3]float64{2300, -0.02, 1500}, [3]float64{2700, 0, 2000}), 50 * units.KB, Window{}},
		{"nothing measured", Link{MTU: 1500}, 50 * units.KB, Window{}},
	}
	for _, tt := range tests {
		if got := tt.link.Window(tt.short); got != tt.want {
			t.Errorf("%s: Window(%v) = %v, want %v", tt.name, tt.short, got, tt.want)
		}
	}
	if got := (Window{1000, 16000}).Pick(); got != 8000 {
		t.Errorf("Pick() = %d, want three quarters of the way up, 8000", got)
	}
}

func TestLinkInterpolates(t *testing.T) {
	c := &Calibration{Links: []Link{
		made(100*units.Mbps, 1500, [3]float64{2000, -0.01, 2000}, [3]float64{3000, 0, 3000}),
		made(10*units.Mbps, 1500, [3]float64{2000, 0, 1000}, [3]float64{3000, 0, 3000}),
		made(10*units.Mbps, 9000, [3]float64{9500, 0, 9100}),
	}}
	half := units.Rate(math.Sqrt(10*100) * 1e6) // the middle on a logarithmic scale
	near := cmp.Comparer(func(a, b float64) bool { return math.Abs(a-b) < 1e-4*(1+math.Abs(a)) })
	tests := []struct {
		rate units.Rate
		mtu  units.Bytes
		want Link
	}{
		{10 * units.Mbps, 1500, made(0, 0, [3]float64{2000, 0, 1000}, [3]float64{3000, 0, 3000})},
		{half, 1500, made(0, 0, [3]float64{2000, -0.005, 1500}, [3]float64{3000, 0, 3000})},
		{units.Mbps, 1500, made(0, 0, [3]float64{2000, 0, 1000}, [3]float64{3000, 0, 3000})},
		{120 * units.Mbps, 1500, made(0, 0, [3]float64{2000, -0.01, 2000}, [3]float64{3000, 0, 3000})},
		{10 * units.Mbps, 2000, made(0, 0, [3]float64{2500, 0, 1500}, [3]float64{3500, 0, 3500})},
		{10 * units.Mbps, 8000, made(0, 0, [3]float64{8500, 0, 8100})},
	}
	for _, tt := range tests {
		tt.want.Rate, tt.want.MTU = tt.rate, tt.mtu
		got, ok := c.Link(tt.rate, tt.mtu)
		if diff := cmp.Diff(tt.want, got, near); !ok || diff != "" {
			t.Errorf("Link(%v, %d) = _, %v:\n%s", tt.rate, tt.mtu, ok, diff)
		}
	}
	for _, rate := range []units.Rate{126 * units.Mbps, units.Gbps, 0, -1} {
		if _, ok := c.Link(rate, 1500); ok {
			t.Errorf("Link(%v) beyond what was calibrated is ok", rate)
		}
	}
	if _, ok := new(Calibration).Link(units.Mbps, 1500); ok {
		t.Error("Link of an empty calibration is ok")
	}
	if c.Links[0].Bursts[0].Size != 2000 || c.Links[2].Bursts[0].Size != 9500 {
		t.Error("Link changed the calibration")
	}
}

func TestSpread(t *testing.T) {
	if got, want := SpreadOf([]float64{3, 1, 2, 10}), (Spread{2.5, 1, 10}); got != want {
		t.Errorf("SpreadOf = %v, want %v", got, want)
	}
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "b", "c.json")
	c := &Calibration{Version: Version, Date: time.Unix(0, 0).UTC(), Links: []Link{made(units.Mbps, 1500, [3]float64{2000, 0, 1000})},
		Capacity: []Capacity{{MTU: 1500, Rate: units.Mbps, Flows: 1, Links: 2, Packets: 3, Cost: 4}},
		Noise: &Noise{Noise: metrics.Noise{Date: time.Unix(0, 0).UTC(), Pairs: 40, Total: map[string]metrics.Deviations{"cct": {MeanRatio: 0.1}}, Between: map[string]metrics.Deviations{"cct": {MeanRatio: 0.05}}},
			Took: time.Minute, Figures: []FalsePositives{{Metric: "cct", Statistic: "median", Pairs: 40, Alone: Share{Excluded: 2, Rate: 0.05, CI: [2]float64{0.01, 0.17}, Width: 0.1}}}}}
	for range 2 {
		if err := c.Write(path); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Read(path)
	if diff := cmp.Diff(c, got); err != nil || diff != "" {
		t.Fatalf("Read() = %v\n%s", err, diff)
	}
	if left, err := os.ReadDir(filepath.Dir(path)); err != nil || len(left) != 1 {
		t.Errorf("beside the file: %v, %v", left, err)
	}
	for name, change := range map[string]func(*Calibration){
		"version 7":             func(c *Calibration) { c.Version = 7 },
		"rate must be positive": func(c *Calibration) { c.Links[0].Rate = 0 },
		"MTU above 52":          func(c *Calibration) { c.Links[0].MTU = 52 },
		"sizes must ascend":     func(c *Calibration) { c.Links[0].Bursts = append(c.Links[0].Bursts, c.Links[0].Bursts[0]) },
		"noise of cct":          func(c *Calibration) { c.Noise.Between["cct"] = metrics.Deviations{Median: -1} },
		"all must be positive":  func(c *Calibration) { c.Capacity[0].Packets = 0 },
	} {
		bad := &Calibration{}
		data, err := json.Marshal(c)
		if err != nil || json.Unmarshal(data, bad) != nil {
			t.Fatal(err)
		}
		change(bad)
		if err := bad.Write(path); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(path); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), "testbed calibrate") {
			t.Errorf("%s: Read() = %v", name, err)
		}
	}
	if err := os.WriteFile(path, []byte("{"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(path); err == nil {
		t.Error("Read of half a file = nil")
	}
	if err := c.Write("/proc/no/such"); err == nil {
		t.Error("Write where nothing can be written = nil")
	}
}

func TestPath(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(Env, "")
	t.Setenv("SUDO_USER", "")
	t.Setenv("XDG_CACHE_HOME", dir)
	want := filepath.Join(dir, "testbed", "calibration-"+MachineID()+"-"+Kernel()+".json")
	if got, err := Path(); err != nil || got != want {
		t.Errorf("Path() = %q, %v, want %q", got, err, want)
	}
	if c, err := Load(); c != nil || err != nil {
		t.Errorf("Load() without a file = %v, %v", c, err)
	}
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("HOME", dir)
	if got, err := Path(); err != nil || !strings.HasPrefix(got, filepath.Join(dir, ".cache", "testbed")+"/") {
		t.Errorf("Path() = %q, %v", got, err)
	}
	t.Setenv(Env, filepath.Join(dir, "none.json"))
	if got, err := Path(); err != nil || got != filepath.Join(dir, "none.json") {
		t.Errorf("Path() = %q, %v", got, err)
	}
	if _, err := Load(); err == nil {
		t.Error("Load() of a named file that is not there = nil")
	}
}
