package engines

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"testbed/emu/cli"
	"testbed/results/rundir"
	"testbed/results/rundir/rundirtest"
	"testbed/results/tooltest"

	"github.com/rogpeppe/go-internal/testscript"
	"go.yaml.in/yaml/v4"
)

// env is set by make test-engines, for tests that start engines or take long.
const env = "TESTBED_ENGINES"

const (
	page     = "../../docs/scale-out.md"
	parts    = 4               // of every recipe
	patience = 5 * time.Minute // for a step of an engine, which takes seconds
)

// Engines start "testbed" from PATH, which is this program.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"testbed": func() { os.Exit(cli.Process()) }})
}

func needEngines(t *testing.T) {
	t.Helper()
	if os.Getenv(env) == "" {
		t.Skip("starts engines, run by make test-engines")
	}
}

func blocks(t *testing.T, page string) []tooltest.Block {
	t.Helper()
	b, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	return tooltest.Blocks(string(b))
}

// recipe is a section of the page with its files and commands, in a directory with a scenario.
type recipe struct {
	*testing.T
	dir      string
	commands []string          // by block
	files    map[string]string // by name
	env      []string
}

func follow(t *testing.T, heading string, jobs, repeats int) recipe {
	t.Helper()
	r := recipe{T: t, dir: t.TempDir(), files: map[string]string{}}
	for _, b := range blocks(t, page) {
		switch {
		case b.Heading != heading:
		case b.Name == "":
			r.commands = append(r.commands, b.Text)
		default:
			r.files[b.Name] = b.Text
		}
		if n := strings.Count(b.Text, "\n"); n > 15 {
			t.Errorf("%s:%d: a recipe has at most 15 lines: %d", page, b.Line, n)
		}
	}
	if len(r.commands)+len(r.files) == 0 {
		t.Fatalf("%s has no recipe %q", page, heading)
	}
	files := maps.Clone(r.files)
	files["scenario.yaml"] = fmt.Sprintf(`name: several
fabric: {leaves: 3, spines: 2, hosts_per_leaf: 6, host_link: 20Mbps, oversubscription: "3:1", queue: 20ms}
disk: {write: 2MB/s, size: 640MB}
workload:
  - {kind: jobs, count: %d, load: 0.3, block: 1MB, packet: 32KB, window: 3}
arms: {coflow: [fair, sebf], placement: [hdfs]}
repeat: %d
`, jobs, repeats)
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(r.dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// command returns a command of a shell that stops at the first error.
func (r recipe) command(text string) *exec.Cmd {
	c := exec.CommandContext(r.Context(), "bash", "-eu", "-o", "pipefail", "-c", text)
	c.Dir, c.Env = r.dir, append(os.Environ(), r.env...)
	return c
}

func (r recipe) run(text string) string {
	r.Helper()
	out, err := r.command(text).CombinedOutput()
	if err != nil {
		r.Fatalf("%s: %v\n%s", text, err, out)
	}
	return string(out)
}

// only returns the one file that matches.
func (r recipe) only(pattern string) string {
	r.Helper()
	found, err := filepath.Glob(filepath.Join(r.dir, pattern))
	if err != nil || len(found) != 1 {
		r.Fatalf("%s: expected one: %v, %v", pattern, found, err)
	}
	return found[0]
}

// merged checks that there were four parts and that the merged run has the tables of one call.
func (r recipe) merged() {
	r.Helper()
	if found, err := filepath.Glob(filepath.Join(r.dir, "parts", "*", "several-sim-*")); err != nil || len(found) != parts {
		r.Fatalf("expected %d parts: %v, %v", parts, found, err)
	}
	r.run("testbed sim scenario.yaml -o whole")
	whole := rundirtest.Tables(r, r.only("whole/several-sim-*"))
	got := rundirtest.Tables(r, r.only("runs/several-sim-*"))
	if whole["jobs.csv"] == "" {
		r.Fatal("one call has no jobs.csv: the test shows nothing")
	}
	for name := range whole {
		if whole[name] != got[name] {
			r.Errorf("merged parts: %s differs from that of one call", name)
		}
	}
}

// trials returns the time at which each trial of a part ended, of those that its manifest has.
func (r recipe) trials(part int) map[string]time.Time {
	r.Helper()
	ended := map[string]time.Time{}
	dirs, err := filepath.Glob(filepath.Join(r.dir, "parts", fmt.Sprint(part), "several-sim-*"))
	if err != nil || len(dirs) > 1 {
		r.Fatalf("part %d: %v, %v", part, dirs, err)
	}
	for _, dir := range dirs {
		if _, err := os.Stat(filepath.Join(dir, rundir.ManifestFile)); errors.Is(err, fs.ErrNotExist) {
			continue // it has just begun
		}
		m, err := rundir.ReadManifest(dir)
		if err != nil {
			r.Fatal(err)
		}
		for name := range m.Files {
			if filepath.Base(name) != rundir.TrialFile {
				continue
			}
			info, err := os.Stat(filepath.Join(dir, name))
			if err != nil {
				r.Fatal(err)
			}
			ended[name] = info.ModTime()
		}
	}
	return ended
}

// begun waits until a trial of a part has ended, and returns those that have.
func (r recipe) begun(part int) map[string]time.Time {
	r.Helper()
	var ended map[string]time.Time
	r.await(fmt.Sprintf("trial of part %d", part), func() bool {
		ended = r.trials(part)
		return len(ended) > 0
	})
	return ended
}

// kept checks that a part was killed before its last trial, and that it went on without executing
// again the trials that had ended.
func (r recipe) kept(part int, killed map[string]time.Time, ofTrials int) {
	r.Helper()
	now := r.trials(part)
	if len(killed) >= ofTrials || len(now) != ofTrials {
		r.Errorf("part %d: %d of %d trials before it was killed, %d after it went on", part, len(killed), ofTrials, len(now))
	}
	for name, at := range killed {
		if !now[name].Equal(at) {
			r.Errorf("%s was executed again", name)
		}
	}
	r.Logf("part %d: killed after %d of %d trials", part, len(killed), ofTrials)
}

func (r recipe) await(what string, is func() bool) {
	r.Helper()
	for start := time.Now(); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Since(start) > patience {
			r.Fatalf("no %s after %v", what, patience)
		}
	}
}

func TestParallel(t *testing.T) {
	t.Parallel()
	tooltest.Need(t, "parallel")
	r := follow(t, "GNU parallel", 10, parts)
	r.run(r.commands[0])
	r.merged()
}

// standIn puts a shell script in place of a program.
func (r *recipe) standIn(name, script string) {
	r.Helper()
	bin := filepath.Join(r.dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		r.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		r.Fatal(err)
	}
	r.env = append(r.env, "PATH="+bin+":"+os.Getenv("PATH"))
}

// The stand-in for ssh runs commands on this machine and records the host.
func TestParallelOverSSH(t *testing.T) {
	t.Parallel()
	tooltest.Need(t, "parallel")
	r := follow(t, "GNU parallel over ssh", 10, parts)
	// parallel wraps what it runs for the user's shell, and takes --workdir from HOME if it is below.
	r.env = append(r.env, "SHELL=/bin/sh", "HOME="+t.TempDir())
	r.standIn("ssh", "echo \"$1\" >>"+r.dir+"/hosts\nshift\n[ \"$1\" != -- ] || shift\nexec sh -c \"$*\"\n")
	r.run(r.commands[0])
	hosts, err := os.ReadFile(filepath.Join(r.dir, "hosts"))
	if err != nil || !bytes.Contains(hosts, []byte("host1\n")) || !bytes.Contains(hosts, []byte("host2\n")) {
		t.Errorf("commands ran on %q, %v, expected host1 and host2", hosts, err)
	}
	r.merged()
}

// A part that is killed, with what started it, is started again by GNU parallel and goes on.
func TestParallelGoesOn(t *testing.T) {
	needEngines(t)
	tooltest.Need(t, "parallel")
	const repeats = 32
	r := follow(t, "GNU parallel", 60, repeats)
	testbed, err := exec.LookPath("testbed")
	if err != nil {
		t.Fatal(err)
	}
	r.standIn("testbed", "echo $$ >>"+r.dir+"/pids.$(echo \"$*\" | tr -c '0-9a-z\\n' _)\nexec "+testbed+" \"$@\"\n")
	c := r.command(r.commands[0])
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	r.begun(2)
	var pid int
	b, err := os.ReadFile(r.only("pids.*shard_2_4*"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(string(b), &pid); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	killed := r.trials(2)
	if err := c.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	r.kept(2, killed, 2*repeats/parts)
	r.merged()
}

// HTCondor's submit file: its macros are expanded and its command runs, once for each line of the
// file of shards.
func TestHTCondor(t *testing.T) {
	t.Parallel()
	r := follow(t, "HTCondor", 10, parts)
	lines := strings.Split(strings.TrimSpace(r.commands[0]), "\n")
	if len(lines) != 4 || lines[1] != "condor_submit parts.sub" {
		t.Fatalf("commands %q", lines)
	}
	r.run(lines[0])
	set := map[string]string{}
	var variable, list string
	for line := range strings.Lines(r.files["parts.sub"]) {
		if key, value, ok := strings.Cut(line, "="); ok {
			set[strings.TrimSpace(key)] = strings.TrimSpace(value)
		} else if n, err := fmt.Sscanf(line, "queue %s from %s", &variable, &list); n != 2 {
			t.Fatalf("parts.sub: %q: %v", line, err)
		}
	}
	if filepath.Base(set["executable"]) != "testbed" || set["transfer_executable"] != "false" {
		t.Errorf("parts.sub runs %q", set["executable"])
	}
	b, err := os.ReadFile(filepath.Join(r.dir, list))
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for i, shard := range strings.Fields(string(b)) {
		args := strings.NewReplacer("$("+variable+")", shard, "$(Process)", fmt.Sprint(i)).Replace(set["arguments"])
		r.run("testbed " + args)
		want = append(want, args)
	}
	r.run(lines[3])
	r.merged()
	t.Run("dry-run", func(t *testing.T) {
		needEngines(t)
		if _, err := exec.LookPath("condor_submit"); err != nil {
			t.Skip("not installed: condor_submit, which Debian 12 does not package: its own parser did not check parts.sub")
		}
		ads := r.run("condor_submit -dry-run - parts.sub")
		for _, args := range want {
			if !strings.Contains(ads, args) {
				t.Errorf("condor_submit -dry-run has no job %q:\n%s", args, ads)
			}
		}
	})
}

// The container's command of a Kubernetes job, for every index.
func TestKubernetes(t *testing.T) {
	t.Parallel()
	r := follow(t, "Kubernetes", 10, parts)
	var job struct {
		Spec struct {
			CompletionMode string `yaml:"completionMode"`
			Completions    int
			Template       struct {
				Spec struct{ Containers []struct{ Command []string } }
			}
		}
	}
	if err := yaml.Unmarshal([]byte(r.files["job.yaml"]), &job); err != nil {
		t.Fatal(err)
	}
	containers := job.Spec.Template.Spec.Containers
	if job.Spec.CompletionMode != "Indexed" || job.Spec.Completions != parts || len(containers) != 1 || len(containers[0].Command) == 0 {
		t.Fatalf("job.yaml: %+v", job)
	}
	command := containers[0].Command
	for _, arg := range command { // Kubernetes itself would replace it
		if variable := regexp.MustCompile(`\$\([A-Za-z_]\w*\)`).FindString(arg); variable != "" {
			t.Errorf("job.yaml: unexpected reference %s", variable)
		}
	}
	for i := range job.Spec.Completions {
		c := exec.CommandContext(t.Context(), command[0], command[1:]...)
		c.Dir, c.Env = r.dir, append(os.Environ(), fmt.Sprintf("JOB_COMPLETION_INDEX=%d", i))
		if out, err := c.CombinedOutput(); err != nil {
			t.Fatalf("index %d: %v\n%s", i, err, out)
		}
	}
	r.run("testbed merge parts/*/latest")
	r.merged()
	t.Run("schema", func(t *testing.T) {
		needEngines(t)
		validate := func(name, text string) ([]byte, error) {
			path := filepath.Join(t.TempDir(), name)
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
			return exec.CommandContext(t.Context(), "go", "run", validator, "--version", kubernetes, path).CombinedOutput()
		}
		if out, err := exec.CommandContext(t.Context(), "go", "run", validator, "--help").CombinedOutput(); err != nil {
			t.Skipf("not available: %s: job.yaml was not checked against Kubernetes' schema: %s", validator, out)
		}
		if out, err := validate("job.yaml", r.files["job.yaml"]); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		for was, wrong := range map[string]string{"image:": "images:", "completions: 4": "completions: four"} {
			bad := strings.Replace(r.files["job.yaml"], was, wrong, 1)
			if out, err := validate("bad.yaml", bad); err == nil || bad == r.files["job.yaml"] {
				t.Errorf("a manifest with %s is valid: %s", wrong, out)
			}
		}
	})
}

// validator checks manifests against the schema of a version of Kubernetes, which it contains.
const (
	validator  = "sigs.k8s.io/kubectl-validate@v0.0.4"
	kubernetes = "1.30"
)

// The steps of the workflow, for each value of its matrix. Artifacts are the directory of parts.
func TestMatrix(t *testing.T) {
	t.Parallel()
	r := follow(t, "CI matrix", 10, parts)
	type job struct {
		Needs    string
		Strategy struct{ Matrix struct{ Part []int } }
		Steps    []struct {
			Run, Uses string
			With      map[string]string
		}
	}
	var workflow struct{ Jobs map[string]job }
	if err := yaml.Unmarshal([]byte(r.files["matrix.yaml"]), &workflow); err != nil {
		t.Fatal(err)
	}
	part, merge := workflow.Jobs["part"], workflow.Jobs["merge"]
	if len(part.Strategy.Matrix.Part) != parts || merge.Needs != "part" || len(workflow.Jobs) != 2 {
		t.Fatalf("matrix.yaml: %+v", workflow)
	}
	run := func(j job, value string) (ran int) {
		for _, step := range j.Steps {
			text := strings.NewReplacer("${{ matrix.part }}", value).Replace(step.Run)
			if strings.Contains(text, "${{") {
				t.Errorf("matrix.yaml: unknown expression in %q", text)
			}
			if text != "" {
				r.run(text)
				ran++
			}
			if pattern := step.With["path"]; strings.Contains(step.Uses, "upload-artifact") {
				if found, err := filepath.Glob(filepath.Join(r.dir, pattern)); err != nil || len(found) == 0 {
					t.Errorf("matrix.yaml: no file to upload at %s (%v)", pattern, err)
				}
			}
		}
		return ran
	}
	for _, value := range part.Strategy.Matrix.Part {
		if run(part, fmt.Sprint(value)) != 1 {
			t.Error("matrix.yaml: a part has one command")
		}
	}
	if run(merge, "") != 1 {
		t.Error("matrix.yaml: merge has one command")
	}
	r.merged()
}

// Every recipe of the page is tested.
func TestEveryRecipe(t *testing.T) {
	var headings []string
	for _, b := range blocks(t, page) {
		headings = append(headings, b.Heading)
	}
	want := []string{"GNU parallel", "GNU parallel over ssh", "Slurm", "HTCondor", "Kubernetes", "CI matrix"}
	if got := slices.Compact(headings); !slices.Equal(got, want) {
		t.Errorf("recipes %q, tested are %q", got, want)
	}
}
