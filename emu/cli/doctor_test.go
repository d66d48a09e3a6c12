package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/calibration"
	"testbed/emu/guest"
	"testbed/emu/kernel"
	"testbed/results/metrics"
	tables "testbed/results/table"
	"testbed/topo/units"
)

func TestPrintFacts(t *testing.T) {
	facts := []kernel.Fact{
		{Group: "links", Name: "veth", Have: true, Needed: true, Detail: "created a pair", Cost: "no links"},
		{Group: "links", Name: "qdisc tbf", Needed: true, Detail: "the kernel has no such kind", Cost: "links cannot be shaped"},
		{Group: "disks", Name: "direct I/O in /a/rather/long/name/of/a/directory", Detail: "no", Cost: strings.Repeat("slow ", 15)},
		{Group: "links", Name: "qdisc fq", Unknown: true, Detail: "not tried", Cost: "timers"},
	}
	var b strings.Builder
	if err := printFacts(&b, facts); err != nil {
		t.Fatal(err)
	}
	const want = `links
  yes     veth                            created a pair
  MISSING qdisc tbf                       the kernel has no such kind; without it: links cannot be
                                          shaped
  ?       qdisc fq                        not tried

disks
  no      direct I/O in /a/rather/long/name/of/a/directory
                                          no; without it: slow slow slow slow slow slow slow slow
                                          slow slow slow slow slow slow slow

1 present, 2 missing, 1 of them required; 1 not checked
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// The output on this machine fits a terminal of 100 columns.
func TestDoctorFitsATerminal(t *testing.T) {
	var b strings.Builder
	if err := printFacts(&b, append(kernel.Probe("/tmp"), otherTestbeds(t.Context(), t.TempDir()), calibrated())); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if n := len([]rune(strings.TrimSpace(line))); n > tables.DefaultWidth {
			t.Errorf("%d columns: %s", n, line)
		}
	}
}

// Doctor reports a calibration, of none, of one that is another machine's, and
// of a file that is none.
func TestDoctorTellsOfCalibration(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "c.json")
	date := time.Date(2024, 5, 6, 12, 0, 0, 0, time.Local)
	c := calibration.Calibration{Version: calibration.Version, Date: date, Machine: calibration.MachineID(), Kernel: calibration.Kernel()}
	for _, tt := range []struct {
		name, env string
		write     func() error
		have      bool
		needed    bool
		want      []string
	}{
		{"none", "", nil, false, false, []string{"not calibrated", "default buckets"}},
		{"calibrated", path, func() error { return c.Write(path) }, true, false, []string{"calibrated on 2024-05-06"}},
		{"of another kernel", path, func() error { o := c; o.Kernel = "1.2.3"; return o.Write(path) }, true, false,
			[]string{"calibrated on 2024-05-06", "another machine or kernel (1.2.3)"}},
		{"no calibration", path, func() error { return os.WriteFile(path, []byte("x"), 0o600) }, false, true,
			[]string{"MISSING", path, "refuse to start: remove the file"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("XDG_CACHE_HOME", dir)
			t.Setenv(calibration.Env, tt.env)
			if tt.write != nil {
				if err := tt.write(); err != nil {
					t.Fatal(err)
				}
			}
			f := calibrated()
			if f.Have != tt.have || f.Needed != tt.needed {
				t.Errorf("%+v", f)
			}
			var b strings.Builder
			if err := printFacts(&b, []kernel.Fact{f}); err != nil {
				t.Fatal(err)
			}
			flat := strings.Join(strings.Fields(b.String()), " ")
			for _, want := range tt.want {
				if !strings.Contains(flat, want) {
					t.Errorf("no %q in %q", want, flat)
				}
			}
		})
	}
}

func TestDoctorFailsForWhatIsNeeded(t *testing.T) {
	needed := func(have, unknown bool) kernel.Fact {
		return kernel.Fact{Name: "x", Needed: true, Have: have, Unknown: unknown, Cost: "all"}
	}
	for _, tt := range []struct {
		name  string
		facts []kernel.Fact
		want  string
	}{
		{"all there", []kernel.Fact{needed(true, false), {Name: "y", Cost: "little"}}, ""},
		{"not looked at", []kernel.Fact{needed(false, true)}, ""},
		{"two missing", []kernel.Fact{needed(false, false), needed(false, false)}, "x is missing: all\nx is missing: all"},
	} {
		got := ""
		if err := needs(tt.facts); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%s: needs = %q, want %q", tt.name, got, tt.want)
		}
	}
}

// The tables of a calibration fit a terminal, with every figure whole.
func TestCalibrationFitsItsWidth(t *testing.T) {
	c := &calibration.Calibration{Kernel: "6.18.44", CPUs: 128}
	c.Links = []calibration.Link{{Rate: units.Gbps, MTU: 1500}, {Rate: units.Gbps, MTU: 9000}}
	for i := range 16 { // four sizes over two and four links, at two MTUs
		c.Flows = append(c.Flows, calibration.Flow{Rate: units.Gbps, MTU: c.Links[i/8].MTU, Links: 2 + i/4%2*2, Size: metrics.FlowErrorSizes[i%4], Error: calibration.Spread{Median: -0.987}, Computed: -1})
	}
	c.Capacity = []calibration.Capacity{{MTU: 9000, Rate: 1_000_000_000, Flows: 12345, Bounded: true, Links: 12345, Packets: 123456789, Cost: 12345 * time.Nanosecond, CostFrom: [2]float64{12345, 67890}}}
	c.Disk.Throttles = []calibration.Throttle{{Name: "cgroup io.max", Missing: strings.Repeat("no such controller ", 12)}}
	var b strings.Builder
	if err := writeCalibration(&b, c, tables.Style{ASCII: true}); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if n := tables.Width(strings.TrimRight(line, "\n")); n > tables.DefaultWidth {
			t.Errorf("%d columns: %s", n, line)
		}
		if strings.Contains(line, "1Gbps") && !strings.Contains(line, "MTU 1500") && !strings.Contains(line, "MTU 9000") && !strings.Contains(line, "12345") {
			t.Errorf("which MTU is not said in %s", line)
		}
	}
	if n := strings.Count(b.String(), "-98.7 (-100.0)"); n != 16 {
		t.Errorf("%d of 16 errors of flows in\n%s", n, &b)
	}
	for _, figure := range []string{"12345 or more", "123456789", "12.3 us (12.3 to 67.9)", "missing: no such controller"} {
		if !strings.Contains(b.String(), figure) {
			t.Errorf("no %q in\n%s", figure, &b)
		}
	}
}

// Doctor names all that virtual time lacks, and the one command that installs it.
func TestDoctorTellsOfVirtualTime(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	t.Setenv(guest.Env, filepath.Join(t.TempDir(), "no-kernel"))
	f := virtualTime(t.Context())
	for _, want := range []string{guest.Program, "no-kernel/boot: no such file"} {
		if !strings.Contains(f.Detail, want) {
			t.Errorf("no %q in %q", want, f.Detail)
		}
	}
	if f.Have || f.Needed || !strings.Contains(f.Cost, "qemu-system-x86 linux-image-cloud-amd64") {
		t.Errorf("%+v", f)
	}
}
