package tooltest

import (
	"bytes"
	"context"
	"os/exec"
	"testing"
	"time"
)

// Browse opens an address of 127.0.0.1 in Chromium, which reaches no other one, and returns the document after its
// scripts ran, and the browser's log. The caller checks with Need that chromium is installed.
func Browse(t testing.TB, address string) (document, log string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	c := exec.CommandContext(ctx, "chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--log-level=0",
		"--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--user-data-dir="+t.TempDir(), "--virtual-time-budget=5000", "--dump-dom", address)
	c.WaitDelay = 10 * time.Second
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); err != nil {
		t.Fatalf("chromium: %v\n%s", err, stderr.String())
	}
	return stdout.String(), stderr.String()
}
