package longtest

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// childEnv makes TestChild a marked test in a process of its own.
const childEnv = "LONGTEST_CHILD"

// A marked test runs, but under -short is skipped with its reason.
func TestSkip(t *testing.T) {
	for _, tt := range []struct{ flag, want string }{
		{"-test.short=false", "--- PASS: TestChild"},
		{"-test.short=true", Marker + "sends for 40 s\n--- SKIP: TestChild"},
	} {
		c := exec.Command(os.Args[0], "-test.run=^TestChild$", "-test.v", tt.flag)
		c.Env = append(os.Environ(), childEnv+"=1")
		out, err := c.CombinedOutput()
		text := string(out)
		for _, part := range strings.Split(tt.want, "\n") {
			if err != nil || !strings.Contains(text, part) {
				t.Errorf("%s: %v, expected %q:\n%s", tt.flag, err, part, text)
			}
		}
	}
}

// TestChild is started by TestSkip.
func TestChild(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		Skip(t, "sends for 40 s")
	}
}

// A test that computes much runs only without the race detector.
func TestComputes(t *testing.T) {
	ran := false
	t.Run("test", func(t *testing.T) {
		Computes(t)
		ran = true
	})
	if ran == Instrumented {
		t.Errorf("ran %t, under the race detector %t", ran, Instrumented)
	}
}
