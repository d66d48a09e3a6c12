package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"testbed/emu/deploy"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/plan"
	"testbed/topo/units"
)

// victimEnv makes the test binary a process that builds a fabric and kills itself. Its value is
// "root:n" for a kill after n steps. A step is an operation that is carried out or undone, or a
// part of one.
const victimEnv = "TESTBED_TEST_VICTIM"

func TestMain(m *testing.M) {
	if arg := os.Getenv(victimEnv); arg != "" {
		root, after, _ := strings.Cut(arg, ":")
		n, err := strconv.Atoi(after)
		if err == nil {
			err = victim(root, n)
		}
		fmt.Println(err)
		os.Exit(1)
	}
	if arg := os.Getenv(execEnv); arg != "" {
		fmt.Println(execInHost(arg))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// victimShape is small, so that the test can reach every step.
var victimShape = shape(1, 2, 1, 50*units.Mbps, 1500)

// victim builds and destroys a fabric in the same way as a run.
func victim(root string, after int) (err error) {
	f, err := victimShape.Build()
	if err != nil {
		return err
	}
	p := plan.Compile("victim", f, plan.Options{})
	s := &suicidal{left: after}
	s.step("begin")
	o, err := deploy.Create(context.Background(), root, deploy.State{ID: "victim", Kind: deploy.KindRun, Name: p.Name, Shape: victimShape, Namespaces: p.Namespaces()})
	if err != nil {
		return err
	}
	s.step("record")
	if err := o.AddDirectory(filepath.Join(filepath.Dir(root), "disks")); err != nil {
		return err
	}
	s.step("directory")
	s.Executor = NewExecutor(o.PinDir())
	s.Executor.Settings.Workers = 2
	d, err := deploy.Apply(context.Background(), p, s)
	if err != nil {
		return err
	}
	s.step("applied")
	if err := deploy.Verify(context.Background(), p, s.Executor); err != nil {
		return err
	}
	s.step("verified")
	if err := d.Destroy(context.Background()); err != nil {
		return err
	}
	s.step("destroyed")
	if err := o.Remove(context.Background(), dyingReaper{s}); err != nil {
		return err
	}
	s.step("removed")
	return errSurvived
}

var errSurvived = errors.New("survived")

// suicidal is an executor that kills its process between two operations.
type suicidal struct {
	*Executor
	mu   sync.Mutex
	left int
}

func (s *suicidal) step(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left == 0 {
		fmt.Println("dies after", name)
		_ = unix.Kill(unix.Getpid(), unix.SIGKILL) // never fails or returns
		select {}
	}
	s.left--
}

func (s *suicidal) Do(ctx context.Context, op plan.Op) error {
	err := s.Executor.Do(ctx, op)
	s.step(op.String())
	return err
}

func (s *suicidal) Undo(ctx context.Context, op plan.Op) error {
	err := s.Executor.Undo(ctx, op)
	s.step("undo of " + op.String())
	return err
}

// dyingReaper kills its process during the removal of a record.
type dyingReaper struct{ s *suicidal }

func (r dyingReaper) Reap(ctx context.Context, s deploy.Scope) ([]deploy.Process, error) {
	r.s.step("begin of removal")
	ended, err := Reaper{}.Reap(ctx, s)
	r.s.step("namespaces of removal")
	return ended, err
}

// gc removes everything that a process killed after any of its steps leaves behind.
func TestKilledAfterEveryStep(t *testing.T) {
	t.Parallel()
	netnstest.Require(t)
	before := rootNamespace(t)
	base := t.TempDir()
	start := time.Now()
	step := 1
	if netnstest.Emulated() {
		step = 7 // ten times slower there
	}
	for after := 0; ; after += step {
		dir := filepath.Join(base, strconv.Itoa(after))
		root := filepath.Join(dir, "root")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		child := exec.Command(os.Args[0])
		child.Env = append(os.Environ(), fmt.Sprintf("%s=%s:%d", victimEnv, root, after))
		out, err := child.Output()
		if string(out) == errSurvived.Error()+"\n" {
			f, err := victimShape.Build()
			if err != nil {
				t.Fatal(err)
			}
			ops := len(plan.Compile("victim", f, plan.Options{}).Ops())
			t.Logf("killed after each of %d steps (or every %d), %d operations and their undoing among them, in %v", after, step, ops, time.Since(start).Round(time.Millisecond))
			if after < 2*ops {
				t.Errorf("%d steps for %d operations that are done and undone", after, ops)
			}
			break
		}
		var exit *exec.ExitError
		if !errors.As(err, &exit) || exit.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL || !strings.HasPrefix(string(out), "dies after ") {
			t.Fatalf("the victim of step %d says %q, %v", after, out, err)
		}
		if _, err := deploy.Collect(t.Context(), root, Reaper{}, false); err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		err = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
			if path != dir && path != root && path != filepath.Join(root, ".lock") {
				t.Errorf("%s: left %s", out, path)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if mounts := mountsUnder(t, dir); len(mounts) > 0 {
			t.Fatalf("%s: left mounts %q", out, mounts)
		}
	}
	if diff := cmp.Diff(before, rootNamespace(t)); diff != "" {
		t.Errorf("root namespace (-before +after):\n%s", diff)
	}
}

func mountsUnder(t *testing.T, dir string) (lines []string) {
	t.Helper()
	// Not /proc/self: the first thread may be the one that netnstest discarded, which has its own
	// mounts.
	mounts, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, dir+"/") {
			lines = append(lines, line)
		}
	}
	return lines
}

// A testbed that a live process has locked is not collected.
func TestLivingProcessIsNotCollected(t *testing.T) {
	netnstest.Require(t)
	root := filepath.Join(t.TempDir(), "root")
	f, err := victimShape.Build()
	if err != nil {
		t.Fatal(err)
	}
	p := plan.Compile("lives", f, plan.Options{})
	o, err := deploy.Create(t.Context(), root, deploy.State{ID: "lives", Kind: deploy.KindRun, Name: p.Name, Shape: victimShape, Namespaces: p.Namespaces()})
	if err != nil {
		t.Fatal(err)
	}
	x := NewExecutor(o.PinDir())
	d, err := deploy.Apply(t.Context(), p, x)
	if err != nil {
		t.Fatal(err)
	}
	if removed, err := deploy.Collect(t.Context(), root, Reaper{}, true); len(removed) != 0 || err != nil {
		t.Errorf("collected %v, %v while it lives", removed, err)
	}
	if err := deploy.Verify(t.Context(), p, x); err != nil {
		t.Errorf("after a collection beside it: %v", err)
	}
	if err := errors.Join(d.Destroy(t.Context()), x.Close(), o.Remove(t.Context(), Reaper{})); err != nil {
		t.Error(err)
	}
}
