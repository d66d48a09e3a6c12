// Package wasmtest builds the example of a policy in WebAssembly, for tests.
//
// It is no part of the program.
package wasmtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// SEBF returns the path of the module built from policies/external/wasm.
func SEBF(t testing.TB) string {
	t.Helper()
	root, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	out := filepath.Join(t.TempDir(), "sebf.wasm")
	cmd := exec.Command("go", "build", "-trimpath", "-buildmode=c-shared", "-ldflags=-s -w", "-o", out, "./policies/external/wasm")
	cmd.Dir, cmd.Env = strings.TrimSpace(string(root)), append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "CGO_ENABLED=0", "GOFLAGS=")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, text)
	}
	return out
}
