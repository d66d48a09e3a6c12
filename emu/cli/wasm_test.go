package cli

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/longtest"
	"testbed/emu/wasm/wasmtest"
	"testbed/results/rundir"
)

// The examples in Go and C decide as SEBF of the program on the quickstart.
func TestModulesOnQuickstart(t *testing.T) {
	t.Parallel()
	for name, built := range map[string]func(testing.TB) string{"Go": wasmtest.SEBF, "C": wasmtest.C} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, path := t.TempDir(), built(t)
			if err := os.CopyFS(dir, os.DirFS("../../scripts/quickstart")); err != nil {
				t.Fatal(err)
			}
			scenario := filepath.Join(dir, "scenario.yaml")
			text, err := os.ReadFile(scenario)
			if err != nil {
				t.Fatal(err)
			}
			arms := strings.NewReplacer("coflow: [fair, sebf]", "coflow: [sebf, {wasm: "+path+"}]", "placement: [hdfs, sinbad]", "placement: [hdfs]")
			if err := os.WriteFile(scenario, []byte(arms.Replace(string(text))), 0o644); err != nil {
				t.Fatal(err)
			}
			place{}.testbed(t, 0, "sim", scenario, "--out", dir)
			program, _ := logged(t, filepath.Join(dir, "latest", "sebf+hdfs", "0", "events.jsonl"))
			module, answers := logged(t, filepath.Join(dir, "latest", "sebf.wasm+hdfs", "0", "events.jsonl"))
			if d := cmp.Diff(program, module); d != "" || answers < 20 {
				t.Errorf("%d answers of the module (-program +module):\n%s", answers, d)
			}
		})
	}
}

// A module decides as the policy of the program does, in scenarios and on traces. It is part of the run directory, so the
// run can be replayed and goes on without the original.
func TestModules(t *testing.T) {
	longtest.Computes(t)
	module, err := os.ReadFile(wasmtest.SEBF(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	const trace = "4 3\n1 0 1 0 1 1:1.0\n2 100 2 0 2 2 1:4.0 3:2.0\n3 200 1 1 1 2:1.0\n"
	const text = "name: modules\nfabric: {kind: switch, ports: 4, host_link: 8Mbps}\nworkload: [{kind: trace, path: t.txt}]\nseed: 1\n" +
		"arms:\n  coflow: [sebf, {wasm: mine/sebf.wasm, latency: 0s, memory: 64MiB}]\n"
	if err := os.Mkdir("mine", 0o755); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]string{"t.txt": trace, "s.yaml": text, "mine/sebf.wasm": string(module),
		"none.yaml": strings.Replace(text, "sebf.wasm", "none.wasm", 1)} {
		if err := os.WriteFile(name, []byte(data), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var p place
	p.testbed(t, 0, "sim", "s.yaml", "--out", "runs")
	dir, err := filepath.EvalSymlinks("runs/latest")
	if err != nil {
		t.Fatal(err)
	}
	program, none := logged(t, filepath.Join(dir, "sebf", "0", "events.jsonl"))
	outside, answers := logged(t, filepath.Join(dir, "sebf.wasm", "0", "events.jsonl"))
	if d := cmp.Diff(program, outside); d != "" || none != 0 || answers < 4 || len(program) < 4 {
		t.Errorf("%d answers of the module in the log, %d of the policy of the program (-program +module):\n%s", answers, none, d)
	}
	m, _, err := rundir.Inspect(dir)
	sum := sha256.Sum256(module)
	if err != nil || m.Files["policies/sebf.wasm"] != hex.EncodeToString(sum[:]) {
		t.Errorf("%v: files of the run %v: must have policies/sebf.wasm with SHA-256 %x", err, m.Files, sum)
	}
	if err := os.RemoveAll("mine"); err != nil {
		t.Fatal(err)
	}
	if out, _ := p.testbed(t, 0, "replay", dir); !strings.Contains(out, "sebf.wasm, repeat 0: identical") {
		t.Errorf("replay: %s", out)
	}
	if _, errs := p.testbed(t, 1, "sim", "none.yaml"); !strings.Contains(errs, "none.yaml:6:25: arms.coflow[1].wasm: mine/none.wasm: no such file") {
		t.Errorf("a module that does not exist: %s", errs)
	}
	module[9] ^= 0xff
	if err := os.WriteFile("bad.wasm", module, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, errs := p.testbed(t, 1, "trace", "simulate", "t.txt", "-p", "wasm=bad.wasm"); !strings.Contains(errs, "policy bad.wasm: ") {
		t.Errorf("a module that is none: %s", errs)
	}
	stored := filepath.Join(dir, "policies", "sebf.wasm")
	out, _ := p.testbed(t, 0, "trace", "simulate", "t.txt", "-p", "sebf", "-p", "wasm="+stored+",memory=64MiB", "--csv")
	if rows := strings.Split(strings.TrimSpace(out), "\n"); len(rows) != 3 || !strings.Contains(rows[2], "wasm=") {
		t.Errorf("a module on a trace:\n%s", out)
	}
}
