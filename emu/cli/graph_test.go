package cli

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A testbed that is up is drawn as it was built.
func TestGraphOfATestbed(t *testing.T) {
	t.Parallel()
	p := upLab(t)
	out, _ := p.run(t, 0, "graph", "lab")
	for _, want := range []string{"testbed lab", "h1-02", "spine1", "host links 20Mbps", "uplinks 10Mbps"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if out, _ := p.run(t, 0, "graph", "lab", "--format", "dot"); !strings.Contains(out, "graph") || !strings.Contains(out, "spine1") {
		t.Errorf("as DOT:\n%s", out)
	}
}

// The load drawn of a run is what crossed each link.
func TestGraphOfARun(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	// One flow of 2 MB on links of 20 Mbps, and nothing else.
	text := strings.Replace(smallScenario, "  - {kind: writers, count: 2, blocks: 1, block: 1MB, packet: 32KB, window: 3}\n", "", 1)
	text = strings.Replace(text, "coflow: [fair, sebf], placement: [hdfs]", "coflow: [fair]", 1)
	for name, text := range map[string]string{"scenario.yaml": text, "trace.txt": "6 1\n1 0 1 0 1 3:2.0\n"} {
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := p.command(t, "run", "scenario.yaml").CombinedOutput(); err != nil && !strings.Contains(string(out), "run is void: fidelity checks failed") {
		t.Fatalf("%v\n%s", err, out)
	}
	runs, err := filepath.Glob(filepath.Join(p.dir, "runs", "small-*"))
	if err != nil || len(runs) != 1 {
		t.Fatalf("runs %v, %v", runs, err)
	}
	out, _ := p.run(t, 0, "graph", runs[0], "--arm", "fair")
	span := regexp.MustCompile(`mean load over ([0-9.]+m?s)`).FindStringSubmatch(out)
	if span == nil {
		t.Fatalf("no span in\n%s", out)
	}
	took, err := time.ParseDuration(span[1])
	if err != nil {
		t.Fatal(err)
	}
	loads := map[string]float64{}
	for _, m := range regexp.MustCompile(`<title>(\S+)&gt;(\S+) [^<]*, ([0-9.]+) ?% loaded`).FindAllStringSubmatch(out, -1) {
		x, err := strconv.ParseFloat(m[3], 64)
		if err != nil {
			t.Fatal(err)
		}
		loads[m[1]+">"+m[2]] = x
	}
	want := 100 * 2e6 * 8 / 20e6 / took.Seconds() // without headers
	for _, l := range []string{"h0-00>leaf0", "leaf1>h1-01"} {
		if loads[l] < want-1 || loads[l] > 1.1*want+1 {
			t.Errorf("%s is %v %% loaded, want %.1f %% and headers, over %v", l, loads[l], want, took)
		}
	}
	for _, l := range []string{"h1-02>leaf1", "leaf0>h0-02"} {
		if x, ok := loads[l]; !ok || x > 1 {
			t.Errorf("%s is %v %% loaded (drawn: %v), want nothing", l, x, ok)
		}
	}
}

// A fabric of one switch has no uplinks to show, and a cable that is cut shows on
// it as down, until it is mended.
func TestInspectOfASwitchAndOfFaults(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	star := strings.Replace(smallScenario, `{leaves: 2, spines: 2, hosts_per_leaf: 3, host_link: 20Mbps, oversubscription: "3:1", queue: 20ms}`, "{kind: switch, ports: 6, host_link: 20Mbps, queue: 20ms}", 1)
	if err := os.WriteFile(filepath.Join(p.dir, "star.yaml"), []byte(star), 0o644); err != nil {
		t.Fatal(err)
	}
	p.run(t, 0, "up", "star.yaml", "--name", "star")
	defer p.run(t, 0, "down", "star")
	look := func() string {
		out, _ := p.run(t, 0, "inspect", "star", "--interval", "100ms")
		return out
	}
	out := look()
	for _, want := range []string{"12 links", "leaf0>h0-05", "h0-00>leaf0"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	for _, never := range []string{"spine", "down", "Uplinks"} {
		if strings.Contains(out, never) {
			t.Errorf("%q in\n%s", never, out)
		}
	}
	p.run(t, 0, "fault", "--testbed", "star", "link-down", "h0-01<>leaf0")
	if out := look(); !strings.Contains(out, "2 down (") || !strings.Contains(out, "leaf0>h0-01") || !strings.Contains(out, "h0-01>leaf0") {
		t.Errorf("with a cable cut:\n%s", out)
	}
	p.run(t, 0, "fault", "--testbed", "star", "link-up", "h0-01<>leaf0")
	if out := look(); strings.Contains(out, "down") {
		t.Errorf("with the cable mended:\n%s", out)
	}
}
