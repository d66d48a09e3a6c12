package kernel

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"testbed/emu/deploy"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/plan"
	"testbed/topo/units"
)

// victimEnv makes the test binary a process that builds a fabric and waits to be
// killed: "root:n", to wait after n operations.
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
	os.Exit(m.Run())
}

func victim(root string, after int) error {
	s := shape(2, 2, 2, 50*units.Mbps, 1500)
	f, err := s.Build()
	if err != nil {
		return err
	}
	p := plan.Compile("victim", f, plan.Options{})
	o, err := deploy.Create(root, deploy.State{ID: "victim", Kind: deploy.KindRun, Name: p.Name, Shape: s, Namespaces: p.Namespaces()})
	if err != nil {
		return err
	}
	if err := o.AddDirectory(filepath.Join(filepath.Dir(root), "disks")); err != nil {
		return err
	}
	_, err = deploy.Apply(context.Background(), p, &waiting{NewExecutor(o.PinDir()), after})
	runtime.KeepAlive(o) // the garbage collector would close its lock
	return err
}

// waiting carries out some operations, says so, and waits.
type waiting struct {
	*Executor
	left int
}

func (w *waiting) Do(ctx context.Context, op plan.Op) error {
	if w.left == 0 {
		fmt.Println("waiting")
		<-ctx.Done()
		time.Sleep(time.Hour)
	}
	w.left--
	return w.Executor.Do(ctx, op)
}

// A process that is killed while it builds leaves what gc removes whole.
func TestKilledWhileBuilding(t *testing.T) {
	netnstest.Require(t)
	for _, after := range []int{0, 1, 7, 8, 30, 100, 133} {
		t.Run(fmt.Sprint(after), func(t *testing.T) {
			before := rootNamespace(t)
			dir := t.TempDir()
			root := filepath.Join(dir, "root")
			child := exec.Command(os.Args[0])
			child.Env = append(os.Environ(), fmt.Sprintf("%s=%s:%d", victimEnv, root, after))
			out, err := child.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			line, _ := bufio.NewReader(out).ReadString('\n')
			if live, err := deploy.Collect(t.Context(), root, Reaper{}, true); len(live) != 0 || err != nil {
				t.Errorf("collected %v, %v while it lives", live, err)
			}
			if err := child.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			child.Wait() // killed
			if line != "waiting\n" {
				t.Fatalf("the victim says %q", line)
			}
			removed, err := deploy.Collect(t.Context(), root, Reaper{}, false)
			if err != nil || len(removed) != 1 || removed[0].ID != "victim" {
				t.Fatalf("Collect = %+v, %v", removed, err)
			}
			var left []string
			err = filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
				left = append(left, path)
				return err
			})
			if err != nil || len(left) != 3 { // dir, root, its lock
				t.Errorf("left: %v, %v", left, err)
			}
			after := rootNamespace(t)
			if len(after["mounts"]) != 0 || fmt.Sprint(before["links"]) != fmt.Sprint(after["links"]) {
				t.Errorf("before %v, after %v", before, after)
			}
		})
	}
}
