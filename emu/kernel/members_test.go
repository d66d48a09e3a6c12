package kernel

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"testbed/emu/plan"
	"testbed/topo/units"
)

// visitorEnv makes the test binary a process whose first thread only is in the namespace at a path.
const visitorEnv = "TESTBED_TEST_VISITOR"

// Locking the thread in init keeps the main function on the first thread.
func init() {
	if path := os.Getenv(visitorEnv); path != "" {
		runtime.LockOSThread()
		f, err := os.Open(path)
		if err == nil {
			err = unix.Setns(int(f.Fd()), unix.CLONE_NEWNET)
		}
		fmt.Println("visits", err)
		_, _ = io.Copy(io.Discard, os.Stdin) // until the test ends
		os.Exit(0)
	}
}

// A process is in a testbed with all its threads. A program whose first thread only visits a
// namespace, like this project's threads, is not in it and is not ended.
func TestVisitorsAreNotMembers(t *testing.T) {
	b := build(t, shape(1, 2, 0, 50*units.Mbps, 1500), plan.Options{})
	pin := filepath.Join(b.pins, "h0-01")
	visitor := exec.CommandContext(t.Context(), os.Args[0])
	visitor.Env = append(os.Environ(), visitorEnv+"="+pin)
	in, err := visitor.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	out, err := visitor.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	member := exec.CommandContext(t.Context(), "nsenter", "--net="+pin, "sh", "-c", "sleep 651; true")
	for _, c := range []*exec.Cmd{visitor, member} {
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "visits <nil>\n" {
		t.Fatalf("%q, %v", line, err)
	}
	pid := visitor.Process.Pid
	inside, err := idOf(fmt.Sprintf("/proc/%d/ns/net", pid))
	if want, err2 := idOf(pin); err != nil || err2 != nil || inside != want {
		t.Fatalf("the visitor's first thread is in %v, not in %v: %v, %v", inside, want, err, err2)
	}
	until(t, "the members are listed with their commands", func() bool {
		found, err := Processes(b.pins, b.plan.Namespaces())
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range found {
			if p.PID == pid {
				t.Fatalf("a visitor is listed: %v", p)
			}
		}
		return len(found) == 2 && found[0].Command == "sh -c sleep 651; true" && found[1].Command == "sleep 651" && found[0].Host == "h0-01" && found[0].PID == member.Process.Pid
	})
	ended, err := Reaper{Grace: time.Minute}.Reap(t.Context(), b.pins, b.plan.Namespaces())
	if err != nil || len(ended) != 2 {
		t.Errorf("ended %v, %v", ended, err)
	}
	_ = member.Wait() // ended by the signal
	if err := visitor.Process.Signal(unix.Signal(0)); err != nil {
		t.Errorf("the visitor: %v", err)
	}
	in.Close()
	if err := visitor.Wait(); err != nil {
		t.Errorf("the visitor ended with %v", err)
	}
}
