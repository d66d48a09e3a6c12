package cli

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"testbed/emu/kernel/netnstest"
)

// guards lists the guards of faults of the place's testbeds.
func (p place) guards(t *testing.T) (pids []int) {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lines {
		b, err := os.ReadFile(path)
		words := strings.Split(string(b), "\x00")
		if err == nil && slices.Contains(words, guardVerb) && slices.Contains(words, p.state) {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			if err != nil {
				t.Fatal(err)
			}
			pids = append(pids, pid)
		}
	}
	return pids
}

// faulty lists the links of testbed lab that are down or not at the plan's rate.
func (p place) faulty(t *testing.T) []string {
	t.Helper()
	out, _ := p.run(t, 0, "inspect", "lab", "--json", "--interval", "0")
	var s struct {
		Summary struct {
			Down    []string
			OffPlan []string `json:"off_plan"`
		}
	}
	if err := json.Unmarshal([]byte(out), &s); err != nil {
		t.Fatal(err)
	}
	return append(s.Summary.Down, s.Summary.OffPlan...)
}

// begin starts a fault and returns its command once the links are changed.
func (p place) begin(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	c := p.command(t, append([]string{"fault"}, args...)...)
	said, err := c.StderrPipe()
	if err == nil {
		err = c.Start()
	}
	if err == nil {
		_, err = bufio.NewReader(said).ReadString('\n')
	}
	if err != nil {
		t.Fatal(err)
	}
	if p.faulty(t) == nil || len(p.guards(t)) != 1 {
		t.Fatalf("fault %v: changed links %v, guards %v: want some, and one", args, p.faulty(t), p.guards(t))
	}
	return c
}

// soon waits until a condition holds.
func soon(t *testing.T, bound time.Duration, what string, holds func() bool) {
	t.Helper()
	start := time.Now()
	for !holds() {
		if time.Since(start) > bound {
			t.Errorf("not within %v: %s", bound, what)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Logf("after %v: %s", time.Since(start).Round(time.Millisecond), what)
}

// A fault of --for does not stay when its command is killed, stopped or interrupted, and no
// process of it stays when it is over or the testbed is removed.
func TestFaultOfKilledCommand(t *testing.T) {
	before := look(t)
	p := upLab(t)
	none := func() bool { return len(p.guards(t)) == 0 }
	whole := func() bool { return len(p.faulty(t)) == 0 }
	brief := netnstest.Patience(2 * time.Second) // long enough to be looked at on a busy machine
	for _, tt := range []struct {
		args   []string
		signal syscall.Signal
		bound  time.Duration
	}{
		{[]string{"link-rate", "h0-00>leaf0", "1Mbps", "--for", "1m"}, syscall.SIGKILL, time.Second},
		{[]string{"link-down", "leaf0<>spine1", "--for", "1m"}, syscall.SIGKILL, time.Second},
		{[]string{"link-rate", "h0-00<>leaf0", "1Mbps", "--for", "1m"}, syscall.SIGINT, time.Second},
		{[]string{"host-crash", "h0-01", "--for", brief.String()}, syscall.SIGSTOP, brief + guardSlack + time.Second},
	} {
		c := p.begin(t, tt.args...)
		if err := c.Process.Signal(tt.signal); err != nil {
			t.Fatal(err)
		}
		what := strings.Join(tt.args, " ") + ", " + tt.signal.String()
		soon(t, tt.bound, what+": links are as planned", whole)
		soon(t, time.Second, what+": no guard", none)
		_ = c.Process.Kill() // the stopped one; the others have ended
		_ = c.Wait()
	}

	// Neither the command nor its guard outlives the testbed.
	c := p.begin(t, "link-rate", "h0-00>leaf0", "1Mbps", "--for", "1m")
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	p.run(t, 0, "down", "lab")
	select {
	case <-ended:
		if code := c.ProcessState.ExitCode(); code != exitFailure {
			t.Errorf("exit code %d after the testbed was removed, want %d", code, exitFailure)
		}
	case <-time.After(time.Second):
		t.Error("the command goes on after the testbed was removed")
	}
	soon(t, time.Second, "testbed removed: no guard", none)
	p.leftNothing(t, before)

	// If both are killed, inspect says what is left and how to restore it.
	p.upHere(t)
	c = p.begin(t, "link-rate", "h0-00>leaf0", "1Mbps", "--for", "1m")
	for _, pid := range append(p.guards(t), c.Process.Pid) {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
	}
	_ = c.Wait() // killed
	out, _ := p.run(t, 0, "inspect", "lab", "--interval", "0")
	if want := "1 not at the plan's rate (restore it: testbed fault link-rate LINK RATE): h0-00>leaf0"; !strings.Contains(out, want) {
		t.Errorf("inspect says\n%s\nwithout %q", out, want)
	}
	p.run(t, 0, "fault", "link-rate", "h0-00>leaf0", "20Mbps")
	if left := p.faulty(t); len(left) > 0 {
		t.Errorf("after the rate was restored: %v", left)
	}
}
