package runner

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"testbed/emu/engine"
)

// simulated runs a scenario of two arms, with writers and Sinbad, twice each.
func simulated(t *testing.T) string {
	t.Helper()
	s := loadText(t, `
name: logged
fabric: {leaves: 3, spines: 2, hosts_per_leaf: 3, host_link: 20Mbps, oversubscription: "3:1", queue: 20ms}
disk: {write: 2MB/s, size: 64MB}
workload:
  - {kind: trace, path: trace.txt, mb: MB}
  - {kind: writers, count: 2, blocks: 2, block: 1MB, replicas: 3, packet: 32KB, window: 3}
arms:
  - {name: plain, coflow: fair, placement: hdfs}
  - {name: both, coflow: sebf, placement: {name: sinbad, threshold: 500KB}}
repeat: 2
`, "1 0 3 0 1 2 2 8:1.5 4:0.5", "2 300 2 3 4 1 0:0.9")
	out, err := Simulate(t.Context(), s, Options{Out: t.TempDir(), Version: "v1"})
	if err != nil {
		t.Fatal(err)
	}
	return out.Dir
}

func all() ReplayOptions { return ReplayOptions{Repeat: AllRepeats, Version: "v1"} }

func TestReplayOfASimulation(t *testing.T) {
	dir := simulated(t)
	out, err := Replay(t.Context(), dir, all())
	if err != nil || len(out.Repeats) != 4 || len(out.Notes) != 0 {
		t.Fatalf("%+v, %v", out, err)
	}
	for _, r := range out.Repeats {
		if r.Differs != nil || r.Unfinished != "" || r.Steps < 10 || r.Commands < 10 {
			t.Errorf("%s, repeat %d: %+v", r.Arm, r.Repeat, r.Replayed)
		}
	}
	one, err := Replay(t.Context(), dir, ReplayOptions{Arm: "both", Repeat: 1, Version: "v1"})
	if err != nil || len(one.Repeats) != 1 || one.Repeats[0].Replayed != out.Repeats[3].Replayed {
		t.Errorf("one repeat: %+v, %v, want %+v", one, err, out.Repeats[3])
	}
	if other, err := Replay(t.Context(), dir, ReplayOptions{Repeat: AllRepeats, Version: "v2"}); err != nil || len(other.Notes) != 1 || !strings.Contains(other.Notes[0], "v1") {
		t.Errorf("another version: %+v, %v", other, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Replay(ctx, dir, all()); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestReplayFindsWhatWasChanged(t *testing.T) {
	dir := simulated(t)
	log := filepath.Join(dir, "plain", "1", eventsFile)
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	step := 0
	for i, l := range lines { // the last chain of the log goes elsewhere
		if bytes.Contains(l, []byte(`{"StartChain"`)) {
			step = i
		}
	}
	edited := bytes.Replace(lines[step], []byte(`"Targets":[`), []byte(`"Targets":[8,`), 1)
	if bytes.Equal(edited, lines[step]) {
		t.Fatalf("line %d: %s", step+1, lines[step])
	}
	write := func(path string, data []byte) {
		t.Helper()
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(log, bytes.Join(append(append(append([][]byte{}, lines[:step]...), edited), lines[step+1:]...), nil))
	out, err := Replay(t.Context(), dir, all())
	if err == nil || !strings.Contains(err.Error(), "plain/1/events.jsonl was changed after the run") || len(out.Repeats) != 4 {
		t.Fatalf("%+v, %v", out, err)
	}
	for i, r := range out.Repeats {
		if d := r.Differs; (d != nil) != (i == 1) || d != nil && (d.Step != step+1 || r.Steps != step || !bytes.Contains(d.Logged, []byte(`"Targets":[8,`)) || bytes.Contains(d.Replayed, []byte(`[8,`))) {
			t.Errorf("%s, repeat %d: %+v, differs %+v, want only plain, repeat 1 at step %d", r.Arm, r.Repeat, r.Replayed, d, step+1)
		}
	}

	write(log, text[:len(text)-20])
	out, err = Replay(t.Context(), dir, all())
	var bad *engine.LogError
	if !errors.As(err, &bad) || bad.Line != len(lines)-1 || !strings.Contains(err.Error(), log) || out == nil || len(out.Repeats) != 2 {
		t.Errorf("a log that is cut off: %+v, %v, want an error of line %d of %s", out, err, len(lines)-1, log)
	}
	write(log, nil)
	if _, err := Replay(t.Context(), dir, all()); err == nil || !strings.Contains(err.Error(), "log is empty") {
		t.Errorf("an empty log: %v", err)
	}
	if err := os.Remove(log); err != nil {
		t.Fatal(err)
	}
	if _, err := Replay(t.Context(), dir, all()); err == nil || !strings.Contains(err.Error(), "no log of plain/1") {
		t.Errorf("no log: %v", err)
	}
	write(log, text)

	// Another parameter of a policy decides otherwise, and only in its arm.
	path := filepath.Join(dir, "scenario.yaml")
	s, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := bytes.Replace(s, []byte("threshold: 500KB"), []byte("threshold: 1GB"), 1)
	if bytes.Equal(changed, s) {
		t.Fatalf("no threshold in\n%s", s)
	}
	write(path, changed)
	out, err = Replay(t.Context(), dir, all())
	if err == nil || !strings.Contains(err.Error(), "scenario.yaml was changed after the run") || len(out.Notes) != 1 ||
		!strings.Contains(out.Notes[0], "differs from the run") {
		t.Fatalf("%+v, %v", out, err)
	}
	differ := 0
	for _, r := range out.Repeats {
		if r.Differs != nil {
			differ++
			if r.Arm != "both" {
				t.Errorf("%s differs, whose policy was not changed", r.Arm)
			}
		}
	}
	if differ == 0 {
		t.Error("nothing differs with another parameter")
	}
}

func TestReplayErrors(t *testing.T) {
	dir := simulated(t)
	for _, tt := range []struct {
		dir  string
		o    ReplayOptions
		want string
	}{
		{dir, ReplayOptions{Arm: "sebf", Repeat: AllRepeats}, `unknown arm "sebf" (available: plain, both)`},
		{dir, ReplayOptions{Repeat: 2}, "no repeat 2: expected 0 to 1"},
		{t.TempDir(), all(), "no manifest.json: expected a run directory"},
	} {
		if _, err := Replay(t.Context(), tt.dir, tt.o); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v, want %q", tt.o, err, tt.want)
		}
	}
}
