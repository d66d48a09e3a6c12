package cli

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// interruptLimit is the time within which a computing verb ends in a test. The verb has
// half a second; the rest is for a machine that is busy with other tests.
const interruptLimit = 2 * time.Second

// signalled starts a command line in a process of its own, with a pipe that nothing
// closes as its standard input, sends it a signal after some time, and returns when it
// has ended. Time 0 is the moment at which it has begun to read.
func signalled(t *testing.T, after time.Duration, sig os.Signal, env string, args ...string) (cmd *exec.Cmd, stderr string, took time.Duration) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), "testbed", args...)
	cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), env)
	var errs bytes.Buffer
	cmd.Stderr = &errs
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	if after == 0 {
		if _, err := io.WriteString(stdin, strings.Repeat("#", 200000)); err != nil { // more than a pipe holds
			t.Fatal(err)
		}
	}
	time.Sleep(after)
	sent := time.Now()
	if err := cmd.Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case <-ended:
	case <-time.After(interruptLimit):
		_ = cmd.Process.Kill()
		<-ended
		t.Errorf("testbed %s goes on %v after %v", strings.Join(args, " "), interruptLimit, sig)
	}
	return cmd, errs.String(), time.Since(sent)
}

// A verb that computes ends soon after one signal, with exit code 1, a line that says
// so, and no file, also where it waits for its input or is in the middle of a long step.
func TestInterruptEndsComputing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	trace, wide := filepath.Join(dir, "trace.txt"), filepath.Join(dir, "wide.txt")
	for _, args := range [][]string{{"trace", "generate", "--coflows", "300", "-o", trace}, {"trace", "derive", trace, "--kind", "replicate", "--copies", "12", "-o", wide}} {
		if code, _, errs := call(t, time.Minute, nil, args...); code != 0 {
			t.Fatalf("%v: exit code %d\n%s", args, code, errs)
		}
	}
	for _, c := range []struct {
		after time.Duration
		sig   os.Signal
		args  []string
	}{
		{0, os.Interrupt, []string{"trace", "info", "-"}},
		{0, syscall.SIGTERM, []string{"trace", "convert", "-", "-o", "out.flows"}},
		{0, syscall.SIGHUP, []string{"trace", "filter", "-", "-o", "out.flows", "--first", "3"}},
		{3 * time.Second, syscall.SIGQUIT, []string{"trace", "simulate", wide, "-p", "saath", "-q"}},
	} {
		cmd, errs, took := signalled(t, c.after, c.sig, "GOTRACEBACK=", c.args...)
		t.Logf("testbed %s: %v after the signal: %s", strings.Join(c.args, " "), took.Round(time.Millisecond), errs)
		if code := cmd.ProcessState.ExitCode(); code != exitFailure || !strings.Contains(errs, "testbed: interrupted: ") || strings.Contains(errs, "goroutine ") {
			t.Errorf("testbed %s: exit code %d\n%s", strings.Join(c.args, " "), code, errs)
		}
		if left, err := os.ReadDir(cmd.Dir); err != nil || len(left) > 0 {
			t.Errorf("testbed %s: files %v, %v", strings.Join(c.args, " "), left, err)
		}
	}
}

// SIGQUIT prints the traces of the runtime where GOTRACEBACK asks for them, and only
// there.
func TestTracesOnRequest(t *testing.T) {
	for setting, asked := range map[string]bool{"": false, "none": false, "single": true, "all": true} {
		_, errs, _ := signalled(t, 0, syscall.SIGQUIT, "GOTRACEBACK="+setting, "trace", "info", "-")
		if traces := strings.Contains(errs, "goroutine "); traces != asked {
			t.Errorf("GOTRACEBACK=%s: traces %v\n%s", setting, traces, errs)
		}
	}
}
