package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"testbed/emu/deploy"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/longtest"
)

// processes are those that ps lists in a testbed, as "host command".
func (p place) processes(t *testing.T, id string) (names []string) {
	t.Helper()
	out, _ := p.run(t, 0, "ps", "--json")
	var rows []struct {
		ID        string
		Processes []deploy.Process
	}
	if err := json.Unmarshal([]byte(out), &rows); err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		for _, q := range r.Processes {
			if r.ID != id {
				continue
			}
			if age := time.Since(q.Started); age < 0 || age > 5*time.Minute {
				t.Errorf("%v was started %v ago", q, age)
			}
			names = append(names, q.Host+" "+q.Command)
		}
	}
	slices.Sort(names)
	return names
}

// gone reports whether a process has ended; one that its parent has not waited for has.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	return strings.HasPrefix(string(stat[bytes.LastIndexByte(stat, ')')+1:]), " Z")
}

// start starts a program of this machine, which the end of the test kills.
func (p place) start(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir, c.Env, c.WaitDelay = p.dir, p.command(t).Env, time.Second
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c
}

// A testbed owns the processes in it, by any parent: ps lists them, down ends
// them, with --keep it does not, and no other process is touched.
func TestDownEndsProcesses(t *testing.T) {
	t.Parallel()
	p := upLab(t)
	p.run(t, 0, "up", "scenario.yaml", "--name", "other")
	inOther := p.start(t, "testbed", "exec", "--testbed", "other", "h0-00", "--", "sleep", "611")
	outside := p.start(t, "sleep", "612")
	private := p.start(t, "unshare", "-n", "sleep", "613")
	direct := p.start(t, "testbed", "exec", "--testbed", "lab", "h0-00", "--", "sleep", "601")
	entered := p.start(t, "nsenter", "--net="+filepath.Join(p.state, "lab", "ns", "leaf1"), "sleep", "602")
	// Daemons: one ends when it is asked to and says so, one ignores that, one is stopped.
	ended := filepath.Join(p.dir, "asked")
	p.run(t, 0, "exec", "--testbed", "lab", "h0-01", "--", "sh", "-c", `
		(trap "echo asked > asked; exit" TERM; while :; do sleep 0.1; done) <&- >/dev/null 2>&1 &
		(trap "" TERM HUP; sleep 603) <&- >/dev/null 2>&1 &
		(kill -STOP $(sh -c 'echo $PPID')) <&- >/dev/null 2>&1 &`)
	wanted := []string{"h0-00 sleep 601", "leaf1 sleep 602", "h0-01 sleep 603"}
	until(t, "ps to list all", func() bool {
		names := p.processes(t, "lab")
		for _, w := range wanted {
			if !slices.Contains(names, w) {
				return false
			}
		}
		// The shells of the loop and of the stopped one, often one of the one that ignores
		// signals (dash replaces it by its last command), and often a sleep of the loop.
		return len(names) >= len(wanted)+2
	})
	// A killed exec leaves no process behind.
	killed := p.start(t, "testbed", "exec", "--testbed", "lab", "h0-02", "--", "sleep", "604")
	until(t, "ps to list another", func() bool {
		names := p.processes(t, "lab")
		return slices.Contains(names, "h0-02 sleep 604")
	})
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait() // by the signal
	until(t, "the command of a killed exec to end", func() bool { return !slices.Contains(p.processes(t, "lab"), "h0-02 sleep 604") })

	table, _ := p.run(t, 0, "ps")
	if !strings.Contains(table, "sleep 601") || strings.Contains(table, strconv.Itoa(direct.Process.Pid)) { // exec itself only waits
		t.Errorf("ps prints\n%s", table)
	}
	if out, _ := p.run(t, 0, "gc"); !strings.Contains(out, "nothing to remove") {
		t.Errorf("gc says %q", out)
	}
	_, errs := p.run(t, exitFailure, "down", "lab", "--keep")
	for _, w := range []string{"sleep 601 (pid ", "sleep 602", "sleep 603", "hint:"} {
		if !strings.Contains(errs, w) {
			t.Errorf("down --keep does not list %s: %s", w, errs)
		}
	}
	if names := p.processes(t, "lab"); len(names) < len(wanted)+2 {
		t.Errorf("after down --keep there are %q", names)
	}
	p.run(t, exitUsage, "down", "lab", "--grace", "-1s")
	out, _ := p.run(t, 0, "down", "lab", "--grace", "2s", "--json")
	var down struct{ Ended []deploy.Process }
	if err := json.Unmarshal([]byte(out), &down); err != nil || len(down.Ended) < len(wanted)+2 {
		t.Errorf("down prints %v\n%s", err, out)
	}
	for _, q := range down.Ended {
		if !gone(q.PID) {
			t.Errorf("%v is still there", q)
		}
	}
	for _, c := range []*exec.Cmd{direct, entered} { // exec ends after its command
		until(t, "the process to end", func() bool { return gone(c.Process.Pid) })
	}
	if _, err := os.Stat(ended); err != nil {
		t.Errorf("SIGKILL came before SIGTERM: %v", err)
	}
	for what, c := range map[string]*exec.Cmd{"of another testbed": inOther, "outside": outside, "of another namespace": private} {
		if gone(c.Process.Pid) {
			t.Errorf("down ended a process %s", what)
		}
	}
	if names := p.processes(t, "other"); len(names) != 1 {
		t.Errorf("the other testbed has %q", names)
	}
	p.run(t, 0, "down", "other", "--keep=false", "--grace", "0")
	until(t, "the process to end", func() bool { return gone(inOther.Process.Pid) })
	if left := p.left(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// An open shell, which ignores SIGTERM, does not hold down up for the grace.
func TestDownEndsShells(t *testing.T) {
	hangup := make(chan os.Signal, 1) // under nohup(1) the shell would inherit that SIGHUP is ignored
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	p := upLab(t)
	c := p.command(t, "shell", "h0-00")
	c.Env = append(c.Env, "SHELL=/bin/sh", "ENV=")
	tty := terminal(t, c)
	if _, err := tty.WriteString("sleep 641 &\n"); err != nil {
		t.Fatal(err)
	}
	until(t, "the shell to start a job", func() bool {
		names := p.processes(t, "lab")
		return slices.Contains(names, "h0-00 sleep 641")
	})
	start := time.Now()
	p.run(t, 0, "down", "--grace", "60s")
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("down took %v", took)
	}
	_ = c.Wait() // by the signal
}

// Down from a shell in the testbed refuses: it would end what runs it.
func TestDownFromInsideRefuses(t *testing.T) {
	t.Parallel()
	p := upLab(t)
	_, errs := p.run(t, exitFailure, "exec", "h0-00", "--", "testbed", "down", "lab")
	if !strings.Contains(errs, `in the testbed's own namespace "h0-00"`) {
		t.Errorf("down from inside says %q", errs)
	}
	p.run(t, 0, "exec", "h0-00", "--", "true")
	p.run(t, 0, "down")
}

// A run that ends, and gc of a run that was killed, end the processes that were started
// in its testbed.
func TestRunsEndProcesses(t *testing.T) {
	t.Parallel()
	longtest.Skip(t, "ends runs that have foreign processes, 7 s")
	for _, kill := range []bool{false, true} {
		t.Run(fmt.Sprintf("killed=%v", kill), func(t *testing.T) {
			if !kill && netnstest.Emulated() {
				t.Skip("a whole run takes minutes under emulation, and ends processes as gc does")
			}
			p := newPlace(t)
			before := look(t)
			c := p.command(t, "run", "scenario.yaml")
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			p.awaitCaptures(t)
			entries, err := deploy.List(t.Context(), p.state)
			if err != nil || len(entries) != 1 {
				t.Fatalf("%v, %v", entries, err)
			}
			id := entries[0].State.ID
			inside := p.start(t, "testbed", "exec", "--testbed", id, "h0-00", "--", "sleep", "621")
			until(t, "ps to list it", func() bool {
				names := p.processes(t, id)
				return slices.Contains(names, "h0-00 sleep 621")
			})
			if kill {
				if err := c.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
			_ = c.Wait() // how it ended is seen by what is left
			if kill {
				if gone(inside.Process.Pid) {
					t.Error("the kill ended the process: the test tests nothing")
				}
				if out, _ := p.run(t, 0, "gc"); !strings.Contains(out, "ended sleep 621 (pid ") {
					t.Errorf("gc says %q", out)
				}
			}
			until(t, "the process to end", func() bool { return gone(inside.Process.Pid) })
			p.leftNothing(t, before)
		})
	}
}

// No command starts in a testbed while it is removed: each has entered, and is ended, or
// is refused.
func TestNoCommandEscapesDown(t *testing.T) {
	longtest.Skip(t, "starts commands in five testbeds that are removed, 6 s")
	if netnstest.Emulated() {
		t.Skip("starts programs faster than emulated processors do")
	}
	const rounds, commands, most, pause = 5, 4, 40, 5 * time.Millisecond // most: at a time, on a slow machine
	entered, begun := 0, 0
	for range rounds {
		p := upLab(t)
		var started []chan struct{} // closed at the end of the command
		running := make(chan struct{}, most)
		start := func() {
			select {
			case running <- struct{}{}:
			default:
				return
			}
			host := fmt.Sprintf("h%d-%02d", len(started)%2, len(started)%3)
			c, done := p.start(t, "testbed", "exec", "--testbed", "lab", host, "--", "sleep", "631"), make(chan struct{})
			started = append(started, done)
			go func() { _ = c.Wait(); <-running; close(done) }() // by a signal, or refused
		}
		for range commands {
			start()
		}
		down := p.command(t, "down", "lab", "--json")
		var ended, downErrs bytes.Buffer
		down.Stdout, down.Stderr = &ended, &downErrs
		if err := down.Start(); err != nil {
			t.Fatal(err)
		}
		isDown := make(chan error)
		go func() { isDown <- down.Wait() }()
		for more := true; more; {
			start()
			select {
			case err := <-isDown:
				if more = false; err != nil {
					t.Fatalf("down: %v\n%s", err, &downErrs)
				}
			case <-time.After(pause):
			}
		}
		entered, begun = entered+strings.Count(ended.String(), "sleep 631"), begun+len(started)
		for i, done := range started {
			select {
			case <-done:
			case <-time.After(20 * time.Second):
				t.Fatalf("command %d is still there", i)
			}
		}
	}
	t.Logf("%d of %d commands had entered", entered, begun)
	if entered == 0 || entered == begun {
		t.Error("either no command entered or none was refused: the test tests nothing")
	}
}
