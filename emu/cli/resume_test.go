package cli

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/longtest"
	"testbed/results/report"
	"testbed/results/rundir"
	"testbed/results/rundir/rundirtest"
	"testbed/results/summary"
)

const severalTrials = `name: several
fabric: {leaves: 3, spines: 2, hosts_per_leaf: 6, host_link: 20Mbps, oversubscription: "3:1", queue: 20ms}
disk: {write: 2MB/s, size: 640MB}
workload:
  - {kind: jobs, count: 20, load: 0.3, block: 1MB, packet: 32KB, window: 3}
arms: {coflow: [fair, sebf, aalo], placement: [hdfs]}
repeat: 8
`

const sweptTrials = `name: swept
vars: {over: , load: }
sweep: {over: ["1:1", "3:1"], load: [0.2, 0.4], exclude: [{over: "1:1", load: 0.4}]}
fabric: {leaves: 3, spines: 2, hosts_per_leaf: 6, host_link: 20Mbps, oversubscription: "${over}", queue: 20ms}
disk: {write: 2MB/s, size: 640MB}
workload:
  - {kind: jobs, count: 40, load: "${load}", block: 1MB, packet: 32KB, window: 3}
arms: {coflow: [fair, sebf], placement: [hdfs]}
repeat: 4
`

func sameTables(t *testing.T, what string, want, got map[string]string) {
	t.Helper()
	for name := range want {
		if want[name] != got[name] {
			t.Errorf("%s: %s is another", what, name)
		}
	}
}

// manifests returns the manifests of a sweep.
func manifests(t *testing.T, dir string) map[string]string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*", rundir.ManifestFile))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, name := range append(found, filepath.Join(dir, rundir.SweepFile)) {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = string(b)
	}
	return out
}

// onlyRun returns the one run directory in a directory.
func onlyRun(t *testing.T, dir string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "*-*", rundir.ManifestFile))
	if err != nil || len(found) != 1 {
		t.Fatalf("runs %v, %v", found, err)
	}
	return filepath.Dir(found[0])
}

// A simulation of 24 trials that is killed at 20 random moments (6 in short tests) and goes on has the tables of one that was not; so does
// one that was split into four parts. Trials that had ended are not executed again.
func TestKilledSimulationGoesOn(t *testing.T) {
	t.Parallel()
	longtest.Computes(t)
	p := place{t.TempDir(), filepath.Join(t.TempDir(), "state")}
	if err := os.WriteFile(filepath.Join(p.dir, "scenario.yaml"), []byte(severalTrials), 0o644); err != nil {
		t.Fatal(err)
	}
	p.run(t, 0, "sim", "scenario.yaml", "--out", "whole")
	want := rundirtest.Tables(t, onlyRun(t, filepath.Join(p.dir, "whole")))
	killed := filepath.Join(p.dir, "killed")
	rng := rand.New(rand.NewPCG(1, 7))
	kept := map[string]time.Time{}
	moments := 20
	if testing.Short() {
		moments = 6
	}
	kills, had := 0, 0
	for range moments {
		args := []string{"sim", "scenario.yaml", "--out", killed}
		if _, err := os.Stat(killed); err == nil {
			args = []string{"sim", "--resume", onlyRun(t, killed)}
		}
		c := p.command(t, args...)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		for more := had + rng.IntN(3); had < more || len(args) == 4; time.Sleep(time.Millisecond) {
			ended, _ := filepath.Glob(filepath.Join(killed, "*-*", "*", "*", rundir.TrialFile))
			if found, _ := filepath.Glob(filepath.Join(killed, "*-*", "manifest.json")); len(found) > 0 { // it has a directory
				args = nil
			}
			if had = len(ended); had == 24 {
				break
			}
		}
		time.Sleep(time.Duration(rng.IntN(20)) * time.Millisecond)
		_ = c.Process.Kill() // unless it has ended
		if err := c.Wait(); err != nil {
			kills++
		}
	}
	dir := onlyRun(t, killed)
	m, err := rundir.ReadManifest(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name := range m.Files {
		if filepath.Base(name) == rundir.TrialFile {
			info, err := os.Stat(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			kept[name] = info.ModTime()
		}
	}
	p.run(t, 0, "sim", "--resume", dir)
	for name, at := range kept {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || !info.ModTime().Equal(at) {
			t.Errorf("%s was executed again (%v)", name, err)
		}
	}
	t.Logf("killed %d times; %d of 24 trials had ended before the last call", kills, len(kept))
	if kills < 4 || len(kept) == 0 {
		t.Errorf("it was killed %d times, and %d trials had ended: the test shows nothing", kills, len(kept))
	}
	sameTables(t, "killed", want, rundirtest.Tables(t, dir))

	out, _ := p.run(t, 0, "shards", "scenario.yaml", "--count", "4")
	var parts []string
	for i, shard := range strings.Fields(out) {
		part := fmt.Sprint("part", i)
		p.run(t, 0, "sim", "scenario.yaml", "--shard", shard, "--out", part)
		parts = append(parts, onlyRun(t, filepath.Join(p.dir, part)))
	}
	if len(parts) != 4 {
		t.Fatalf("shards: %q", out)
	}
	p.run(t, 0, append([]string{"merge", "-o", "merged"}, parts...)...)
	merged := onlyRun(t, filepath.Join(p.dir, "merged"))
	sameTables(t, "merged", want, rundirtest.Tables(t, merged))

	// A part that is missing is named, and can be made up for.
	_, errs := p.run(t, 0, append([]string{"merge", "-o", "lacking"}, parts[1:]...)...)
	if want := "no run has 6 trials: fair+hdfs/0, sebf+hdfs/0, aalo+hdfs/0, fair+hdfs/4, sebf+hdfs/4, aalo+hdfs/4"; !strings.Contains(errs, want) {
		t.Errorf("merge says %q, want %q", errs, want)
	}
	lacking := onlyRun(t, filepath.Join(p.dir, "lacking"))
	p.run(t, 0, "sim", "--resume", lacking)
	sameTables(t, "made up for", want, rundirtest.Tables(t, lacking))
}

// Parts of different scenarios are refused, with the keys that differ, and so are trials that were changed.
func TestMergeRefuses(t *testing.T) {
	t.Parallel()
	longtest.Computes(t)
	p := place{t.TempDir(), filepath.Join(t.TempDir(), "state")}
	for name, seed := range map[string]string{"a": "", "b": "seed: 7\n"} {
		if err := os.WriteFile(filepath.Join(p.dir, name+".yaml"), []byte(strings.Replace(severalTrials, "repeat: 8", "repeat: 2", 1)+seed), 0o644); err != nil {
			t.Fatal(err)
		}
		p.run(t, 0, "sim", name+".yaml", "--out", name)
	}
	a, b := onlyRun(t, filepath.Join(p.dir, "a")), onlyRun(t, filepath.Join(p.dir, "b"))
	_, errs := p.run(t, 1, "merge", "-o", "both", a, b)
	if !strings.Contains(errs, "are no parts of one run: workload_fingerprint: ") {
		t.Errorf("merge of two scenarios: %s", errs)
	}
	if err := os.WriteFile(filepath.Join(a, "fair+hdfs", "1", "asked.json"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	was, err := os.ReadFile(filepath.Join(a, rundir.ManifestFile))
	if err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"merge", "-o", "both", a}, {"sim", "--resume", a}} {
		if _, errs := p.run(t, 1, args...); !strings.Contains(errs, "fair+hdfs/1/asked.json was changed after the run") {
			t.Errorf("%s: %s", args[0], errs)
		}
	}
	if is, err := os.ReadFile(filepath.Join(a, rundir.ManifestFile)); err != nil || string(is) != string(was) {
		t.Errorf("the manifest of the refused run is another (%v)", err)
	}
	if _, err := os.Stat(filepath.Join(p.dir, "both")); !os.IsNotExist(err) {
		t.Errorf("a refused merge left a directory (%v)", err)
	}
}

// The seed of the command line is that of the run, also in its scenario, whether or not the file states one.
func TestSeedOfTheCommandLine(t *testing.T) {
	t.Parallel()
	longtest.Computes(t)
	p := place{t.TempDir(), filepath.Join(t.TempDir(), "state")}
	text := strings.Replace(severalTrials, "repeat: 8", "repeat: 1", 1)
	for name, text := range map[string]string{"stated": text + "seed: 7 # of the file\n", "not": strings.TrimSpace(text), "in": text + "seed: 9\n", "by": "vars: {s: 3}\nseed: ${s}\n" + text} {
		if err := os.WriteFile(filepath.Join(p.dir, name+".yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		args := []string{"sim", name + ".yaml", "--out", name, "--seed", "9"}
		if name == "in" {
			args = args[:4]
		}
		p.run(t, 0, args...)
	}
	in := onlyRun(t, filepath.Join(p.dir, "in"))
	for _, name := range []string{"stated", "not", "by"} {
		dir := onlyRun(t, filepath.Join(p.dir, name))
		sameTables(t, name, rundirtest.Tables(t, in), rundirtest.Tables(t, dir))
		p.run(t, 0, "replay", dir)
		p.run(t, 0, "sim", "--resume", dir)
	}
	if err := os.WriteFile(filepath.Join(p.dir, "flow.yaml"), []byte("{name: x}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, errs := p.run(t, 1, "validate", "flow.yaml", "--seed", "2"); !strings.Contains(errs, "write seed on a line of its own") {
		t.Errorf("flow: %s", errs)
	}
}

// Only chosen trials are executed, and the run says which it lacks.
func TestChosenTrials(t *testing.T) {
	t.Parallel()
	p := place{t.TempDir(), filepath.Join(t.TempDir(), "state")}
	if err := os.WriteFile(filepath.Join(p.dir, "scenario.yaml"), []byte(severalTrials), 0o644); err != nil {
		t.Fatal(err)
	}
	out, _ := p.run(t, 0, "sim", "scenario.yaml", "--arm", "sebf+hdfs,fair+hdfs", "--repeats", "2..4", "--json")
	var s summary.Run
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatal(err)
	}
	if len(s.Arms) != 2 || s.Arms[0].Repeats != 3 || s.Partial == nil || len(s.Partial.Ended) != 6 || len(s.Partial.NotBegun) != 18 || !strings.Contains(s.Partial.Why, "--arm sebf+hdfs,fair+hdfs --repeats 2..4") {
		t.Errorf("%d arms, partial %+v", len(s.Arms), s.Partial)
	}
	for args, want := range map[string]string{
		"--arm x":            `unknown arm "x" (available: fair+hdfs, sebf+hdfs, aalo+hdfs)`,
		"--repeats 7..9":     "no repeat 9: expected 0 to 7",
		"--repeats 9..7":     `--repeats "9..7": must be a repeat`,
		"--shard 0/4":        `--shard "0/4": must be I/N`,
		"--shard 12/12":      "none of the 24 trials is chosen: --shard 12/12",
		"--resume --set a=b": "a run that goes on has its variables and seed",
	} {
		c := p.command(t, append([]string{"sim", "scenario.yaml"}, strings.Fields(args)...)...)
		if strings.Contains(args, "--resume") {
			c = p.command(t, append([]string{"sim"}, strings.Fields(args)...)...)
		}
		b, err := c.CombinedOutput()
		if err == nil || !strings.Contains(string(b), want) {
			t.Errorf("%s: %v, %s, want %q", args, err, b, want)
		}
	}
}

// A run on packets that is killed in its second trial keeps the first; what the kill left on the machine goes with the call
// that goes on.
func TestKilledRunGoesOn(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	before := look(t)
	c := p.command(t, "run", "scenario.yaml")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	dir := p.await(t, "captures of the second arm", func(dir string) bool {
		found, err := filepath.Glob(filepath.Join(dir, "sebf+hdfs", "0", "captures", "*.pcapng"))
		return err == nil && len(found) > 0
	})
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // by the signal
	if len(p.left(t)) == 0 {
		t.Error("the kill left nothing: the test shows nothing")
	}
	first := filepath.Join(dir, "fair+hdfs", "0", rundir.TrialFile)
	was, err := os.ReadFile(first)
	if err != nil {
		t.Fatal(err)
	}
	c = p.command(t, "run", "--resume", dir)
	b, err := c.CombinedOutput()
	if code := c.ProcessState.ExitCode(); code != 0 && code != exitVoid { // of a busy machine
		t.Fatalf("exit code %d, %v\n%s", code, err, b)
	}
	if is, err := os.ReadFile(first); err != nil || string(is) != string(was) {
		t.Errorf("the first trial was executed again (%v)", err)
	}
	run, err := rundir.Open(dir)
	if err != nil || run.Manifest.State != rundir.Complete || run.Summary.Partial != nil || len(run.Summary.Arms) != 2 {
		t.Errorf("%v", err)
	}
	p.leftNothing(t, before)
}

// A sweep that is killed and goes on, or that is split and merged, has the tables of one that was not. Its points are run
// directories.
func TestSweepGoesOn(t *testing.T) {
	t.Parallel()
	if longtest.Instrumented { // TestKilledSimulationGoesOn and TestLooksDecideRepeats have the same goroutines
		longtest.Skip(t, "runs sweeps, a minute under the race detector")
	}
	p := place{t.TempDir(), filepath.Join(t.TempDir(), "state")}
	if err := os.WriteFile(filepath.Join(p.dir, "scenario.yaml"), []byte(sweptTrials), 0o644); err != nil {
		t.Fatal(err)
	}
	only := func(dir string) string {
		found, err := filepath.Glob(filepath.Join(p.dir, dir, "*-*", rundir.SweepFile))
		if err != nil || len(found) != 1 {
			t.Fatalf("sweeps %v, %v", found, err)
		}
		return filepath.Dir(found[0])
	}
	points := []string{"over=1to1,load=0.2", "over=3to1,load=0.2", "over=3to1,load=0.4"}
	tables := func(dir string) map[string]string {
		out := map[string]string{}
		for _, name := range []string{report.SweepCSV, report.SweepMarkdown, report.SweepSummary} {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			out[name] = strings.ReplaceAll(string(b), filepath.Base(dir), "RUN")
		}
		for _, point := range points {
			for name, text := range rundirtest.Tables(t, filepath.Join(dir, point)) {
				out[point+"/"+name] = strings.ReplaceAll(text, filepath.Base(dir), "RUN")
			}
		}
		return out
	}
	out, _ := p.run(t, 0, "sim", "scenario.yaml", "--out", "whole")
	if !strings.Contains(out, "a sweep of 3 points") || !strings.Contains(out, "│ 3:1  │ 0.4  │ sebf+hdfs │") {
		t.Errorf("it prints\n%s", out)
	}
	want := tables(only("whole"))
	if rows := strings.Split(strings.TrimSpace(want[report.SweepCSV]), "\n"); len(rows) < 7 || !strings.HasPrefix(rows[0], "over,load,arm,metric,") || !strings.HasPrefix(rows[1], "1:1,0.2,fair+hdfs,") {
		t.Errorf("%s:\n%s", report.SweepCSV, want[report.SweepCSV])
	}
	c := p.command(t, "sim", "scenario.yaml", "--out", "killed")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	for range 20_000 {
		if found, _ := filepath.Glob(filepath.Join(p.dir, "killed", "*-*", "*", "*", "*", rundir.TrialFile)); len(found) > 2 {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err == nil {
		t.Error("it ended before it was killed: the test shows nothing")
	}
	killed := only("killed")
	p.run(t, 0, "sim", "--resume", "scenario.yaml", "--out", "killed", "--point", "over=1:1") // a part first
	p.run(t, 0, "sim", "--resume", killed)
	sameTables(t, "killed", want, tables(killed))
	var parts []string
	out, _ = p.run(t, 0, "shards", "scenario.yaml", "--count", "4")
	for i, shard := range strings.Fields(out) {
		part := fmt.Sprint("part", i)
		p.run(t, 0, "sim", "scenario.yaml", "--shard", shard, "--out", part)
		parts = append(parts, only(part))
	}
	p.run(t, 0, append([]string{"merge", "-o", "merged"}, parts...)...)
	sameTables(t, "merged", want, tables(only("merged")))
	p.run(t, 0, "report", only("merged"), "-o", "again")
	sameTables(t, "reported again", map[string]string{report.SweepCSV: want[report.SweepCSV]}, map[string]string{report.SweepCSV: tables(only("merged"))[report.SweepCSV]})
	// A point that cannot go on keeps all points as they are.
	changed := only("whole")
	if err := os.WriteFile(filepath.Join(changed, points[2], "sebf+hdfs", "3", "asked.json"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	before := manifests(t, changed)
	if _, errs := p.run(t, 1, "sim", "--resume", changed); !strings.Contains(errs, "asked.json was changed after the run") {
		t.Errorf("resume of a changed sweep: %s", errs)
	}
	if d := cmp.Diff(before, manifests(t, changed)); d != "" {
		t.Errorf("a refused call changed the sweep (-before +after):\n%s", d)
	}
	if out, _ := p.run(t, 0, "runs", "whole"); !strings.Contains(out, "fluid model, 3 points, changed") {
		t.Errorf("runs:\n%s", out)
	}
	out, _ = p.run(t, 0, "plan", "scenario.yaml", "--json")
	var plan struct {
		Points []plannedPoint
		Trials int
	}
	if err := json.Unmarshal([]byte(out), &plan); err != nil || len(plan.Points) != 3 || plan.Trials != 24 || plan.Points[0].Disk == 0 || plan.Points[0].Duration == 0 {
		t.Errorf("plan: %v\n%s", err, out)
	}
	for args, want := range map[string]string{
		"--point over=2:1": "point over=2:1: no such value: expected 1:1, 3:1",
		"--point x=1":      "x is not swept: expected over, load",
		"--check-scale=2":  "it has a sweep",
	} {
		c := p.command(t, append([]string{"sim", "scenario.yaml"}, strings.Fields(args)...)...)
		if b, err := c.CombinedOutput(); err == nil || !strings.Contains(string(b), want) {
			t.Errorf("%s: %v, %s, want %q", args, err, b, want)
		}
	}
}
