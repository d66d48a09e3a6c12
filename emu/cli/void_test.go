package cli

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"testbed/emu/longtest"
	"testbed/results/tooltest"
)

// drop makes a namespace of the first arm lose two packets in a hundred before its
// IP, as soon as its testbed was checked and is ready.
func (p place) drop(t *testing.T, namespace, device string) {
	t.Helper()
	// ld rand; jgt #0.98*2^32: ret TC_ACT_SHOT; ret TC_ACT_OK
	const code = "4,32 0 0 4294963256,37 0 1 4209067950,6 0 0 2,6 0 0 0"
	var said []byte
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		pins, err := filepath.Glob(filepath.Join(p.state, "*.1.1", "*", namespace))
		if err != nil {
			t.Fatal(err)
		}
		if len(pins) != 1 {
			continue
		}
		state, err := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(pins[0])), "state.json"))
		if err != nil || !strings.Contains(string(state), `"ready": true`) {
			continue
		}
		tc := func(args ...string) (err error) {
			said, err = exec.Command("nsenter", append([]string{"--net=" + pins[0], "tc"}, args...)...).CombinedOutput()
			return err
		}
		if tc("qdisc", "replace", "dev", device, "clsact") == nil &&
			tc("filter", "add", "dev", device, "ingress", "bpf", "direct-action", "bytecode", code) == nil {
			return
		}
	}
	t.Fatalf("no filter at %s of %s within 10 s: %s", device, namespace, said)
}

// A run with a void arm ends with exit code 3 and shows no figure of that arm,
// neither on the terminal nor in its files.
func TestVoidArmShowsNoFigure(t *testing.T) {
	t.Parallel()
	longtest.Skip(t, "plants a fault in a run, 7 s")
	tooltest.Need(t, "tc")
	p := newPlace(t)
	c := p.command(t, "run", "scenario.yaml")
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Process.Kill() }) // it has ended, unless the test failed before
	p.drop(t, "h1-00", "eth0")
	_ = c.Wait() // its exit code is looked at next
	if code := c.ProcessState.ExitCode(); code != exitVoid {
		t.Fatalf("exit code %d, want %d\n%s%s", code, exitVoid, &out, &errs)
	}
	figure := regexp.MustCompile(`\d (µs|ms|s|[KMG]?B|%)(\s|$)|×`)
	rows := 0
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "│ fair+hdfs ") {
			if rows++; !strings.Contains(line, "void") || figure.MatchString(line) {
				t.Errorf("row of a void arm: %s", line)
			}
		} else if strings.HasPrefix(line, "│ sebf+hdfs ") && strings.Contains(line, "×") {
			t.Errorf("a speed-up over a void arm: %s", line)
		}
	}
	want := 7 // of four times, of where the time of two went, and of placement
	if strings.Contains(out.String(), "sebf+hdfs is void") {
		want = 4 // a busy machine made the other arm void: tables without any figure are left out
	}
	if rows != want {
		t.Errorf("%d rows of the void arm, want %d\n%s", rows, want, &out)
	}
	if !strings.Contains(out.String(), "fair+hdfs is void") || !strings.Contains(out.String(), "loss is void") {
		t.Errorf("no reason in\n%s", &out)
	}
	if !strings.Contains(errs.String(), "run is void: fidelity checks failed") {
		t.Errorf("stderr %s", &errs)
	}
	runs, err := filepath.Glob(filepath.Join(p.dir, "runs", "*-*"))
	if err != nil || len(runs) != 1 {
		t.Fatal(runs, err)
	}
	read := func(name string) []byte {
		b, err := os.ReadFile(filepath.Join(runs[0], name))
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	var sum struct {
		Arms []struct {
			Name, Verdict string
			CCT, FCT      any
			WriteTime     any `json:"write_time"`
			RequestTime   any `json:"request_time"`
			Placement     any
		}
	}
	if err := json.Unmarshal(read("summary.json"), &sum); err != nil {
		t.Fatal(err)
	}
	if a := sum.Arms[0]; a.Name != "fair+hdfs" || a.Verdict != "void" || a.CCT != nil || a.FCT != nil || a.WriteTime != nil || a.RequestTime != nil || a.Placement != nil {
		t.Errorf("summary %+v", a)
	}
	for line := range strings.Lines(string(read("report.md"))) {
		if strings.HasPrefix(line, "| fair+hdfs | void") && figure.MatchString(line) {
			t.Errorf("report.md: %s", line)
		}
	}
	for _, name := range []string{"flows.csv", "coflows.csv", "blocks.csv", "breakdown.csv", "links.csv", "drops.csv", "progress.csv", "requests.csv", "balance.csv"} {
		records, err := csv.NewReader(bytes.NewReader(read(name))).ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range records {
			if strings.Contains(strings.Join(r, ","), "fair+hdfs") {
				t.Errorf("%s: %v", name, r)
			}
		}
	}
	if left := p.left(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
