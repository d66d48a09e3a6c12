package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"testbed/emu/longtest"
)

// A module that registers a policy has the whole command line, in which the policy is as those of the program, with
// parameters: smallest without its own is lcf with allocation greedy.
func TestOwnModule(t *testing.T) {
	longtest.Skip(t, "links a program, 10 s")
	dir := t.TempDir()
	workspace := "off"
	in := func(where, name string, args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), name, args...)
		cmd.Dir, cmd.Env = where, append(os.Environ(), "GOWORK="+workspace)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	const example = "policies/example"
	in(example, "go", "list", "-deps", ".") // go.mod and go.sum name all that it needs
	// Alone it would compile its copies of all packages, and vet read them.
	root, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	workspace = filepath.Join(dir, "go.work")
	in(root, "go", "work", "init", root, filepath.Join(root, example))
	in(example, "go", "test", "-vet=off", ".")
	program := filepath.Join(dir, "example")
	in(example, "go", "build", "-o", program, ".")
	for name, text := range map[string]string{
		"t.txt": "4 3\n1 0 2 0 2 2 1:4.0 3:2.0\n2 100 1 0 1 1:1.0\n3 200 1 1 1 2:0.5\n",
		"s.yaml": "name: own\nfabric: {kind: switch, ports: 4, host_link: 8Mbps}\nworkload: [{kind: trace, path: t.txt}]\nseed: 1\n" +
			"arms:\n  - {name: lcf, coflow: {name: lcf, allocation: greedy}}\n  - {name: smallest, coflow: smallest}\n" +
			"  - {name: least, coflow: {name: smallest, least: 1GB}}\n  - {name: fifo, coflow: fifo}\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	in(dir, program, "sim", "s.yaml", "--out", "runs")
	log := func(arm string) string {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(dir, "runs", "latest", arm, "0", "events.jsonl"))
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	commands := func(arm string) (all []string) { // with their times; the log of fifo has no progress
		t.Helper()
		for line := range strings.Lines(log(arm)) {
			if at, rest, ok := strings.Cut(line, `,"events":`); ok {
				if _, cmds, ok := strings.Cut(rest, `,"commands":`); ok {
					all = append(all, at+cmds)
				}
			}
		}
		return all
	}
	arms, err := filepath.Glob(filepath.Join(dir, "runs", "latest", "*", "0"))
	if err != nil || len(arms) != 4 {
		t.Fatalf("%v, %v: want 4 arms", arms, err)
	}
	if log("lcf") != log("smallest") {
		t.Error("smallest decides other than lcf")
	}
	if fifo := commands("fifo"); len(fifo) == 0 || !slices.Equal(commands("least"), fifo) || log("least") == log("smallest") {
		t.Error("the parameter has no effect: with it all coflows are equal, and served by ID")
	}
	if out := in(dir, program, "replay", filepath.Join("runs", "latest")); strings.Count(out, "identical") != 4 {
		t.Errorf("replay: %s", out)
	}
	if out := in(dir, program, "schema"); !strings.Contains(out, "smallest") {
		t.Error("the schema does not have the policy")
	}
	out, err := exec.CommandContext(t.Context(), program, "validate", filepath.Join(dir, "none.yaml")).CombinedOutput()
	if err == nil {
		t.Errorf("a scenario that does not exist: %s", out)
	}
}
