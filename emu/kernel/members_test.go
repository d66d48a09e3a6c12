package kernel

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"testbed/emu/deploy"
	"testbed/emu/plan"
	"testbed/results/tooltest"
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
		found, err := Processes(b.scope())
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
	ended, err := Reaper{Grace: time.Minute}.Reap(t.Context(), b.scope())
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

// execEnv makes the test binary run a command in a namespace of a testbed: the directory of pins, the
// name and the cgroup.
const execEnv = "TESTBED_TEST_EXEC"

func execInHost(arg string) error {
	part := strings.Split(arg, ":")
	_, err := Exec(context.Background(), deploy.Scope{Pins: part[0], Cgroup: part[2]}, part[1],
		Command{Path: "/bin/sh", Args: []string{"sh", "-c", `trap "" TERM HUP; unshare -n sh -c "sleep 653; true"; true`}, Env: os.Environ(), Privileged: true})
	return err
}

// A process that has left the namespaces of its host is ended in every kind of cgroup hierarchy, with
// cgroup.kill and without.
func TestReaperEndsTheCgroup(t *testing.T) {
	tooltest.Need(t, "unshare")
	kinds := 0
	for _, h := range []struct{ kind, option string }{{"cgroup2", ""}, {"cgroup", "freezer"}, {"cgroup", "pids"}} {
		root, err := findMount(h.kind, h.option)
		if err != nil || root == "" {
			t.Logf("not tested: this machine has no %s %s: %v", h.kind, h.option, err)
			continue
		}
		kinds++
		t.Run(h.kind+h.option, func(t *testing.T) {
			b := build(t, shape(1, 2, 0, 50*units.Mbps, 1500), plan.Options{})
			s := b.scope()
			s.Cgroup = filepath.Join(root, fmt.Sprintf("testbed-test-%d-%s", os.Getpid(), h.option))
			c := exec.CommandContext(t.Context(), os.Args[0])
			c.Env = append(os.Environ(), execEnv+"="+s.Pins+":h0-01:"+s.Cgroup)
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			go func() { _ = c.Wait() }() // by the signal
			var sleeps deploy.Process
			until(t, "the process in another namespace is listed", func() bool {
				found, err := Processes(s)
				if err != nil {
					t.Fatal(err)
				}
				i := slices.IndexFunc(found, func(p deploy.Process) bool { return p.Command == "sleep 653" && p.Host == "h0-01" })
				if i >= 0 {
					sleeps = found[i]
				}
				return i >= 0
			})
			outside := deploy.Scope{Pins: s.Pins, Names: s.Names}
			if found, err := Processes(outside); err != nil || slices.ContainsFunc(found, func(p deploy.Process) bool { return p.PID == sleeps.PID }) {
				t.Fatalf("it is found without the cgroup, %v: the test tests nothing", err)
			}
			if err := killCgroup(s.Cgroup, map[int]string{sleeps.PID: "", os.Getpid(): ""}); err != nil { // not this process
				t.Fatal(err)
			}
			if _, err := (Reaper{}).Reap(t.Context(), s); err != nil {
				t.Error(err)
			}
			if p := deploy.Describe(sleeps.PID, ""); p.Command == "sleep 653" {
				t.Errorf("%v is left", p)
			}
			if _, err := os.Stat(s.Cgroup); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("cgroup %s is left: %v", s.Cgroup, err)
			}
		})
	}
	if kinds == 0 {
		t.Skip("needs a cgroup hierarchy")
	}
}
