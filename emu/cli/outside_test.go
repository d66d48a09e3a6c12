package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"testbed/emu/wasm/wasmtest"
)

// Coflow policies in Python and in WebAssembly, and placement in Python, decide on packets: their runs end, replay
// without them, and their process has the user who called sudo, and real-time priority as this program. One that fails in
// the middle ends its trial. Nothing is left.
func TestOutsidePoliciesOnPackets(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	if _, err := os.Stat("/usr/bin/python3"); err != nil {
		t.Skip("no python3 that every user can run: ", err)
	}
	if err := os.Chmod(filepath.Dir(p.dir), 0o755); err != nil { // for another user
		t.Fatal(err)
	}
	before := look(t)
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for name, path := range map[string]string{"sebf.wasm": wasmtest.SEBF(t), "testbed.py": "", "sebf.py": "", "least_loaded.py": ""} {
		if path == "" {
			path = filepath.Join("../../policies/external/python", name)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		write(name, string(b))
	}
	const user = "12345"
	write("who.sh", "id -u >&2\nexec /usr/bin/python3 sebf.py\n")
	write("fails.py", `import os, testbed
class Fails:
    needs, triggers = [], {"coflows": True, "flows": True}
    def decide(self, view, schedule):
        if os.sched_getscheduler(0) == os.SCHED_RR | os.SCHED_RESET_ON_FORK: # on packets: the fluid model predicts before
            os.write(2, b"priority %d" % os.sched_getparam(0).sched_priority)
            os._exit(3)
        schedule.step("greedy", range(len(view.coflows)))
testbed.run(Fails())
`)
	arms := func(coflow, placement string) string {
		return strings.Replace(smallScenario, "arms: {coflow: [fair, sebf], placement: [hdfs]}", "arms: {coflow: ["+coflow+"], placement: ["+placement+"]}", 1)
	}
	write("s.yaml", arms("{wasm: sebf.wasm}, {exec: [sh, who.sh], files: [sebf.py, testbed.py]}", "{exec: [/usr/bin/python3, least_loaded.py], files: [testbed.py]}"))
	write("fails.yaml", arms("{exec: [/usr/bin/python3, fails.py], files: [testbed.py]}", "hdfs"))
	run := func(scenario string) (out string, code int) {
		c := p.command(t, "run", scenario)
		c.Env = append(c.Env, "SUDO_UID="+user, "SUDO_GID="+user)
		b, err := c.CombinedOutput()
		if c.ProcessState == nil {
			t.Fatal(err)
		}
		return string(b), c.ProcessState.ExitCode()
	}
	if out, code := run("s.yaml"); code != 0 && code != exitVoid {
		t.Fatalf("exit code %d\n%s", code, out)
	}
	runs, err := filepath.Glob(filepath.Join(p.dir, "runs", "small-*", "*", "0", "coflow.policy.stderr"))
	if err != nil || len(runs) == 0 {
		t.Fatal("no errors of a policy: ", err)
	}
	said, err := os.ReadFile(runs[len(runs)-1])
	if err != nil || string(said) != user+"\n" {
		t.Errorf("the policy says %q, %v: want its user, %s", said, err, user)
	}
	if out, code := run("fails.yaml"); code != 1 || !strings.Contains(out, "it ended (exit status 3); its standard error ends with: priority 1") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	for name := range strings.FieldsSeq("sebf.wasm who.sh sebf.py testbed.py least_loaded.py") {
		if err := os.Remove(filepath.Join(p.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if out, _ := p.run(t, 0, "replay", filepath.Dir(filepath.Dir(filepath.Dir(runs[len(runs)-1])))); strings.Count(out, "repeat 0: identical") != 2 {
		t.Errorf("replay: %s", out)
	}
	p.leftNothing(t, before)
}
