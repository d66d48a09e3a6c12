// Package wasmtest builds the examples of a policy in WebAssembly, for tests.
//
// It is no part of the program.
package wasmtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"testbed/results/safefile"
	"testbed/results/tooltest"
)

// SEBF returns the path of the module built from policies/external/wasm.
func SEBF(t testing.TB) string {
	t.Helper()
	return built(t, "go", "build", "-trimpath", "-buildmode=c-shared", "-ldflags=-s -w", "-o", "sebf.wasm", "./policies/external/wasm")
}

// C returns the path of the module built from policies/external/wasm/sebf.c, by the command in that file.
func C(t testing.TB) string {
	t.Helper()
	tooltest.Need(t, "clang", "wasm-ld")
	const source = "policies/external/wasm/sebf.c"
	text, err := safefile.Read(filepath.Join(root(t), source))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\tclang ")
	line, _, _ := strings.Cut(after, "\n")
	return built(t, "clang", append(strings.Fields(strings.TrimSuffix(line, "sebf.c")), source)...)
}

// built returns the path of what a command writes to -o sebf.wasm.
func built(t testing.TB, name string, args ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "sebf.wasm")
	for i := range args {
		if args[i] == "sebf.wasm" {
			args[i] = out
		}
	}
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = root(t), append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", name, err, text)
	}
	return out
}

func root(t testing.TB) string {
	t.Helper()
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return strings.TrimSpace(string(dir))
}
