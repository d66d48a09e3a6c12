package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"testbed/emu/deploy"
	"testbed/emu/kernel"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/longtest"
)

const smallScenario = `
name: small
fabric: {leaves: 2, spines: 2, hosts_per_leaf: 3, host_link: 20Mbps, oversubscription: "3:1", queue: 20ms}
disk: {write: 1MB/s, size: 64MB}
workload:
  - {kind: trace, path: trace.txt, mb: MB}
  - {kind: writers, count: 2, blocks: 1, block: 1MB, packet: 32KB, window: 3}
arms: {coflow: [fair, sebf], placement: [hdfs]}
`

// machine is what runs must leave as it was: the interfaces of the root
// namespace, and of mounts and loop devices those of the test's own directories,
// where its state is and its disks are.
type machine struct {
	links, loops, mounts, cgroups string
}

// leftNothing reports the changes of a run to the machine, and its own objects that it left.
func (p place) leftNothing(t *testing.T, before machine) {
	t.Helper()
	if after := look(t); after != before {
		t.Errorf("the machine was\n%+v\nand is\n%+v", before, after)
	}
	if left := p.left(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func look(t *testing.T) machine {
	t.Helper()
	return lookAt(t, filepath.Dir(t.TempDir()))
}

// lookAt treats everything in or below a directory as the test's own.
func lookAt(t *testing.T, own string) machine {
	t.Helper()
	own += "/" // other runs of the machine come and go
	var m machine
	ifs, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range ifs {
		m.links += i.Name + " "
	}
	read := func(path string) string {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	// Not /proc/self: that is the first thread, which a test can have left in a mount namespace of its own.
	for line := range strings.Lines(read("/proc/thread-self/mountinfo")) {
		if strings.Contains(line, "nsfs") && strings.Contains(line, own) {
			m.mounts += line
		}
	}
	m.cgroups = read("/proc/self/cgroup")
	loops, err := filepath.Glob("/sys/block/loop*/loop/backing_file")
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range loops {
		file, err := os.ReadFile(l)
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENXIO) {
			continue // of another process, detached since
		}
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(string(file), own) {
			m.loops += l + " of " + string(file)
		}
	}
	return m
}

// place is a directory with a small scenario, and a state directory of its own.
type place struct{ dir, state string }

func newPlace(t *testing.T) place {
	t.Helper()
	return newPlaceAt(t, t.TempDir(), t.TempDir())
}

func newPlaceAt(t *testing.T, dir, state string) place {
	t.Helper()
	netnstest.Require(t)
	p := place{dir, filepath.Join(state, "state")}
	for name, text := range map[string]string{
		"scenario.yaml": smallScenario,
		"trace.txt":     "6 2\n1 0 2 0 2 2 1:2.0 3:2.0\n2 400 1 4 2 1:0.4 5:0.2\n",
	} {
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return p
}

func (p place) command(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	c := exec.CommandContext(t.Context(), "testbed", args...)
	c.Dir, c.Env = p.dir, append(os.Environ(), deploy.RootEnv+"="+p.state)
	return c
}

func (p place) run(t *testing.T, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	c := p.command(t, args...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if got := c.ProcessState.ExitCode(); got != want {
		t.Fatalf("testbed %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, want, &out, &errs)
	}
	return out.String(), errs.String()
}

// left lists the entries that the state directory and the run directories still hold of
// testbeds.
func (p place) left(t *testing.T) []string {
	t.Helper()
	var out []string
	entries, err := os.ReadDir(p.state)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	for _, e := range entries {
		if e.IsDir() {
			out = append(out, e.Name())
		}
	}
	disks, err := filepath.Glob(filepath.Join(p.dir, "runs", "*-*", "*", "*", "disks"))
	if err != nil {
		t.Fatal(err)
	}
	return append(out, disks...)
}

// awaitTestbed waits until a command has begun to build a testbed.
func (p place) awaitTestbed(t *testing.T) {
	t.Helper()
	for deadline := time.Now().Add(netnstest.Patience(20 * time.Second)); len(p.left(t)) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it builds no testbed")
		}
	}
}

// small is a run of the small scenario that several tests read and none changes. TestMain
// removes its directory.
var small struct {
	once sync.Once
	home string // "" before it was made
	err  error
	ran
}

// ran is a run that has ended, and its output.
type ran struct {
	place
	runDir        string
	out           string
	code          int
	before, after machine
}

// smallRun makes the run, the first time.
func smallRun(t *testing.T) ran {
	t.Helper()
	netnstest.Require(t)
	small.once.Do(func() {
		small.err = errors.New("not attempted: another test reports why")
		home, err := os.MkdirTemp("", "testbed-cli-")
		if err != nil {
			t.Fatal(err)
		}
		small.home = home
		dir := filepath.Join(home, "dir")
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		small.place = newPlaceAt(t, dir, home)
		small.before = lookAt(t, home)
		c := small.command(t, "run", "scenario.yaml")
		out, err := c.CombinedOutput()
		small.out, small.code, small.after = string(out), c.ProcessState.ExitCode(), lookAt(t, home)
		if small.code != 0 && small.code != exitVoid {
			t.Fatalf("%v\n%s", err, out)
		}
		runs, err := filepath.Glob(filepath.Join(dir, "runs", "*-*"))
		if err != nil || len(runs) != 1 {
			t.Fatal(runs, err)
		}
		small.runDir, small.err = runs[0], nil
	})
	if small.err != nil {
		t.Fatalf("the run of the small scenario: %v", small.err)
	}
	return small.ran
}

func TestRunPrintsTablesAndLeavesNothing(t *testing.T) {
	t.Parallel()
	r := smallRun(t)
	for _, want := range []string{"Coflow completion time", "Block write time", "fair+hdfs", "sebf+hdfs", "verdict", "Run directory: runs/small-", "arm 2/2"} {
		if !strings.Contains(r.out, want) {
			t.Errorf("no %q in\n%s", want, r.out)
		}
	}
	if r.after != r.before {
		t.Errorf("the machine was\n%+v\nand is\n%+v", r.before, r.after)
	}
	if left := r.left(t); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// kill -9 at random moments, and then gc, leaves nothing; a run that goes on
// at the same time is not disturbed. The moments are one in each part of the time, so that none
// of it is left out: as many anywhere would leave longer gaps.
func TestKilledRunsAreCollected(t *testing.T) {
	t.Parallel()
	longtest.Skip(t, "kills runs at several moments, 30 s")
	killed, other := newPlace(t), newPlace(t)
	other.state = killed.state
	before := look(t)
	long := strings.Replace(smallScenario, "name: small", "name: other\nrepeat: 4", 1)
	if err := os.WriteFile(filepath.Join(other.dir, "scenario.yaml"), []byte(long), 0o644); err != nil {
		t.Fatal(err)
	}
	concurrent := other.command(t, "run", "scenario.yaml", "--json")
	var concurrentOut, concurrentErr bytes.Buffer
	concurrent.Stdout, concurrent.Stderr = &concurrentOut, &concurrentErr
	if err := concurrent.Start(); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	const kills, span = 30, 1500 * time.Millisecond
	for _, i := range rng.Perm(kills) {
		wait := (time.Duration(i)*span + time.Duration(rng.Int64N(int64(span)))) / kills
		c := killed.command(t, "run", "scenario.yaml")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		<-time.After(wait)
		if err := c.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait() // killed
		out, _ := killed.run(t, 0, "gc", "--json")
		var removed []struct{ ID string }
		if err := json.Unmarshal([]byte(out), &removed); err != nil {
			t.Fatal(err)
		}
		t.Logf("kill %d after %v: gc removed %v", i+1, wait.Round(time.Millisecond), removed)
		for _, name := range killed.left(t) {
			if !strings.HasPrefix(name, "other-") {
				t.Errorf("kill %d after %v left %s", i+1, wait, name)
			}
		}
		for _, r := range removed {
			if strings.HasPrefix(r.ID, "other-") {
				t.Errorf("gc removed the concurrent run: %s", r.ID)
			}
		}
	}
	err := concurrent.Wait()
	if code := concurrent.ProcessState.ExitCode(); code != 0 && code != exitVoid {
		t.Errorf("the concurrent run: %v\n%s", err, &concurrentErr)
	}
	var sum struct {
		Arms []struct {
			Repeats  int
			Problems []string
		}
	}
	if err := json.Unmarshal(concurrentOut.Bytes(), &sum); err != nil || len(sum.Arms) != 2 || sum.Arms[0].Repeats != 4 || len(sum.Arms[0].Problems) > 0 {
		t.Errorf("the concurrent run reports %+v, %v", sum, err)
	}
	if after := look(t); after != before {
		t.Errorf("the machine was\n%+v\nand is\n%+v", before, after)
	}
	if left := append(killed.left(t), other.left(t)...); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestInterruptEndsCleanly(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	before := look(t)
	c := p.command(t, "run", "scenario.yaml")
	var errs bytes.Buffer
	c.Stderr = &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	p.awaitTestbed(t) // before it has begun to listen, a signal ends it at once
	<-time.After(300 * time.Millisecond)
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // its exit code is looked at next
	if code := c.ProcessState.ExitCode(); code != exitFailure {
		t.Errorf("exit code %d, want %d\n%s", code, exitFailure, &errs)
	}
	p.leftNothing(t, before)
}

// A testbed that is up is used by hand, survives gc, and goes with down.
func TestUpAndDown(t *testing.T) {
	p := newPlace(t)
	before := look(t)
	t.Cleanup(func() {
		if _, err := deploy.Collect(context.Background(), p.state, kernel.Reaper{}, true); err != nil {
			t.Error(err)
		}
	})
	out, _ := p.run(t, 0, "up", "scenario.yaml", "--name", "lab")
	if !strings.Contains(out, "testbed lab is up: 6 hosts and 4 switches") {
		t.Errorf("up says %q", out)
	}
	if _, errs := p.run(t, exitFailure, "up", "scenario.yaml", "--name", "lab"); !strings.Contains(errs, "lab") {
		t.Errorf("up again says %q", errs)
	}
	if out, _ := p.run(t, 0, "ps"); !strings.Contains(out, "lab") {
		t.Errorf("ps says %q", out)
	}
	// A command sees its host's interfaces and no others, and its exit code is
	// passed on.
	if out, _ := p.run(t, 7, "exec", "h1-02", "--", "sh", "-c", "cat /proc/net/dev; exit 7"); !strings.Contains(out, "eth0:") || strings.Count(out, ":") != 2 {
		t.Errorf("h1-02 has the interfaces\n%s", out)
	}
	if _, err := exec.LookPath("ping"); err == nil {
		p.run(t, 0, "exec", "h0-00", "--", "ping", "-c", "1", "-W", "2", "10.1.2.1")
	}
	if _, errs := p.run(t, exitUsage, "exec", "h9-09", "--", "true"); !strings.Contains(errs, "hosts are h0-00 to h1-02") {
		t.Errorf("exec on a stranger says %q", errs)
	}
	if out, _ := p.run(t, 0, "gc"); !strings.Contains(out, "nothing to remove") {
		t.Errorf("gc says %q", out)
	}
	p.run(t, 0, "down")
	p.leftNothing(t, before)
}
