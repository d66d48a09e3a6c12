package cli

import (
	"encoding/csv"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"testbed/emu/kernel/netnstest"
	"testbed/emu/longtest"
	"testbed/results/summary"
)

const scaleScenario = `
name: scale
fabric: {leaves: 2, spines: 1, hosts_per_leaf: 3, host_link: 20Mbps, oversubscription: "3:1", queue: 20ms}
disk: {write: 1MB/s, size: 64MB}
workload:
  - {kind: trace, path: trace.txt, mb: MB}
  - {kind: writers, count: 3, blocks: 3, block: 400KB, packet: 10KB, window: 4}
arms: {coflow: [fair, sebf], placement: [hdfs]}
`

// Ten coflows of two flows, a new one each 200 ms.
func scaleTrace() string {
	var b strings.Builder
	b.WriteString("6 10\n")
	for i := range 10 {
		b.WriteString(strconv.Itoa(i+1) + " " + strconv.Itoa(200*i) + " 1 " + strconv.Itoa(i%3) + " 2 3:" + strconv.FormatFloat(0.1+0.04*float64(i%4), 'f', 2, 64) + " 4:0.2\n")
	}
	return b.String()
}

// The scaled half moves half the bytes in the same time, in a directory of its
// own, and the captures alone give the comparison again.
func TestCheckScaleOnPackets(t *testing.T) {
	longtest.Skip(t, "runs at two scales, 15 s")
	p := newPlace(t)
	before := look(t)
	for name, text := range map[string]string{"scenario.yaml": scaleScenario, "trace.txt": scaleTrace()} {
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	netnstest.Timing(t, func(t *testing.T) bool {
		c := p.command(t, "run", "scenario.yaml", "--check-scale", "2", "--json", "--out", "runs"+strings.ReplaceAll(t.Name(), "/", "-"))
		out, err := c.Output()
		if code := c.ProcessState.ExitCode(); code != 0 && code != exitVoid {
			t.Fatal(err)
		}
		var sum summary.Run
		if err := json.Unmarshal(out, &sum); err != nil || sum.ScaleCheck == nil {
			t.Fatalf("%v in\n%s", err, out)
		}
		check := sum.ScaleCheck
		dir := filepath.Join(p.dir, "runs"+strings.ReplaceAll(t.Name(), "/", "-"), sum.RunID)
		if check.By != "2" || check.RunID != sum.RunID+"-scaled" || check.Level == nil {
			t.Errorf("check %+v", check)
		}
		full, half := table(t, filepath.Join(dir, "coflows.csv")), table(t, filepath.Join(dir, "scaled", "coflows.csv"))
		void := sum.Arms[0].Void() || sum.Arms[1].Void() || check.Worst().String() == "void"
		if void != (check.Outcome == summary.ScaleUnknown) {
			t.Errorf("void is %t and the outcome %q: %v", void, check.Outcome, check.Reasons)
		}
		again, errs := p.run(t, c.ProcessState.ExitCode(), "report", dir, "--json")
		var second summary.Run
		if err := json.Unmarshal([]byte(again), &second); err != nil {
			t.Fatalf("%v: %s", err, errs)
		}
		a, _ := json.Marshal(check)
		b, _ := json.Marshal(second.ScaleCheck)
		if string(a) != string(b) {
			t.Errorf("the run says\n%s\nand its captures\n%s", a, b)
		}
		if void {
			t.Logf("void: %v", check.Reasons)
			return false
		}
		if len(full) != 20 || len(half) != 20 {
			t.Fatalf("%d coflows, and %d scaled, want 20", len(full), len(half))
		}
		var mean [2]float64
		for i := range full {
			if n, m := number(t, full[i]["size_bytes"]), number(t, half[i]["size_bytes"]); n != 2*m {
				t.Errorf("coflow %s has %v bytes, and %v scaled", full[i]["coflow"], n, m)
			}
			mean[0] += number(t, full[i]["cct_us"]) / 1e6 / float64(len(full))
			mean[1] += number(t, half[i]["cct_us"]) / 1e6 / float64(len(half))
		}
		for _, m := range check.Compared {
			t.Logf("%s %s %s: %v, scaled %v, ratio %v: %s", m.Arm, m.Metric, m.Speedup, m.Full, m.Scaled, m.Ratio, m.Outcome)
		}
		t.Logf("average CCT %.3f s, scaled %.3f s: %s", mean[0], mean[1], check.Outcome)
		return math.Abs(mean[1]/mean[0]-1) < 0.1
	})
	p.leftNothing(t, before)
}

func table(t *testing.T, path string) []map[string]string {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil || len(rows) == 0 {
		t.Fatal(path, err)
	}
	var out []map[string]string
	for _, r := range rows[1:] {
		m := map[string]string{}
		for i, h := range rows[0] {
			m[h] = r[i]
		}
		out = append(out, m)
	}
	return out
}

func number(t *testing.T, s string) float64 {
	t.Helper()
	x, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return x
}
