package quickstart

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"testbed/emu/runner"
	"testbed/emu/scenario"
	"testbed/hosts/wire"
	"testbed/policies/catalog"
)

// outside are arms of jobs.yaml whose policies are processes, after the arm that fair.py copies.
const outside = `arms:
  - {name: delay, coflow: fair, placement: hdfs, tasks: {name: fair, with: [{delay: {t1: 500ms, t2: 500ms}}]}}
  - name: fair.py
    coflow: fair
    placement: hdfs
    tasks: {exec: [python3, fair.py], timeout: 2m, parameters: {t1: 0.5, t2: 0.5}}
  - name: late
    coflow: fair
    placement: {exec: [python3, least_loaded.py], timeout: 2m, latency: 30ms}
    tasks: {exec: [python3, fair.py], timeout: 2m, latency: 50ms, parameters: {t1: 0.5, t2: 0.5}}

repeat: 1
`

// FAIR with delay scheduling in Python equals that of the program on the example of jobs, command by command. Placement and
// tasks with latency run to the end. All replay without their processes.
func TestProcesses(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3: ", err)
	}
	dir := t.TempDir()
	jobs, err := os.ReadFile("jobs.yaml")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, _ := strings.Cut(string(jobs), "arms:")
	_, after, found := strings.Cut(rest, "repeat: 1\n")
	if !found {
		t.Fatal("jobs.yaml has no arms before repeat")
	}
	write := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("jobs.yaml", []byte(before+outside+after))
	programs := []string{"testbed.py", "fair.py", "least_loaded.py"}
	for _, name := range programs {
		program, err := os.ReadFile(filepath.Join("../../policies/external/python", name))
		if err != nil {
			t.Fatal(err)
		}
		write(name, program)
	}
	s, err := scenario.Load(filepath.Join(dir, "jobs.yaml"), scenario.Options{Catalog: catalog.All()})
	if err != nil {
		t.Fatal(err)
	}
	out, err := runner.Simulate(t.Context(), s, runner.Options{Out: filepath.Join(dir, "runs")})
	if err != nil {
		t.Fatal(err)
	}
	want, none := commands(t, out.Dir, "delay")
	got, decisions := commands(t, out.Dir, "fair.py")
	for i := range max(len(want), len(got)) {
		if i >= len(want) || i >= len(got) || want[i] != got[i] {
			t.Fatalf("step %d of %d and %d differs: %s, want %s", i, len(want), len(got), at(got, i), at(want, i))
		}
	}
	late, lateDecisions := commands(t, out.Dir, "late")
	if none["tasks"] != 0 || decisions["tasks"] < 1000 || lateDecisions["tasks"] < 1000 || lateDecisions["placement"] < 36 {
		t.Errorf("decisions of processes by role: %v, %v, %v", none, decisions, lateDecisions)
	}
	done := fmt.Sprintf(`{"MarkTask":{"Moment":%d,`, wire.JobDone)
	const all = 36
	if n, of := strings.Count(strings.Join(late, ""), done), strings.Count(strings.Join(want, ""), done); n != all || of != all {
		t.Errorf("%d jobs were done with latency, %d without: want %d", n, of, all)
	}
	for _, name := range programs {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	replays, err := runner.Replay(t.Context(), out.Dir, runner.ReplayOptions{Repeat: runner.AllRepeats})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range replays.Repeats {
		if r.Differs != nil || r.Unfinished != "" {
			t.Errorf("replay of %s: %+v, unfinished: %s", r.Arm, r.Differs, r.Unfinished)
		}
	}
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "none"
}

// commands returns the time and the commands of each step of an arm that has some, without decisions, which it counts by role.
func commands(t *testing.T, dir, arm string) (steps []string, decisions map[string]int) {
	t.Helper()
	file, err := os.Open(filepath.Join(dir, arm, "0", "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	decisions = map[string]int{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<26)
	for lines.Scan() {
		var step struct {
			T        json.RawMessage
			Commands []json.RawMessage
		}
		if err := json.Unmarshal(lines.Bytes(), &step); err != nil {
			t.Fatal(err)
		}
		var kept [][]byte
		for _, c := range step.Commands {
			var is struct{ Decided *struct{ Role string } }
			if err := json.Unmarshal(c, &is); err != nil {
				t.Fatal(err)
			}
			if is.Decided != nil {
				decisions[is.Decided.Role]++
			} else {
				kept = append(kept, c)
			}
		}
		if len(kept) > 0 {
			steps = append(steps, string(step.T)+" "+string(bytes.Join(kept, []byte(","))))
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return steps, decisions
}
