package deploy

import (
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Control characters of a command line are not printed, and long command lines are cut.
func TestProcessIsDescribed(t *testing.T) {
	c := exec.CommandContext(t.Context(), "sleep", "652")
	c.Args = []string{"sleep\x1b[31m\n", "652"}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Wait() }()
	defer func() { _ = c.Process.Kill() }()
	var p Process
	for limit := time.Now().Add(10 * time.Second); !strings.HasPrefix(p.Command, "sleep"); time.Sleep(time.Millisecond) {
		if p = Describe(c.Process.Pid, "h0-00"); time.Now().After(limit) { // before execve it has that of the parent
			t.Fatalf("%+v", p)
		}
	}
	if p.Command != "sleep [31m  652" || time.Since(p.Started) > time.Minute {
		t.Errorf("%+v", p)
	}
	p.Command = strings.Repeat("ä", 100)
	if got := p.Short(); len([]rune(got)) != 60 || !strings.HasSuffix(got, "ä…") {
		t.Errorf("short: %q", got)
	}
}
