package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/kernel/netnstest"
	"testbed/results/summary"
	"testbed/results/tooltest"
)

// own is a text without the lines on namespaces and loop devices elsewhere: those of other tests come and go, also in a
// copy of the machine's mounts.
func (p place) own(text string) string {
	return strings.Join(slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool {
		return (strings.Contains(line, " - nsfs ") || strings.Contains(line, "/dev/loop")) && !strings.Contains(line, p.state) && !strings.Contains(line, p.dir)
	}), "\n")
}

// rootState is all that a run might change where the program is started, by
// the question that was asked.
func (p place) rootState(t *testing.T) map[string]string {
	t.Helper()
	state := sysctls(t)
	for _, q := range []struct {
		command string
		needed  bool
	}{
		{"ip -d link", true}, {"ip addr", true}, {"ip route show table all", true}, {"ip -6 route show table all", true},
		{"ip rule", true}, {"ip -6 rule", true}, {"ip neigh", true}, {"tc qdisc", true}, {"tc filter show dev furniture0", true},
		{"losetup -a", false}, {"nft list ruleset", false}, {"iptables-save", false},
	} {
		words := strings.Fields(q.command)
		if _, err := exec.LookPath(words[0]); err != nil {
			if q.needed {
				t.Fatalf("%s: apt-get install iproute2", err)
			}
			t.Logf("not looked at: %s: not installed", q.command)
			continue
		}
		out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
		if err != nil && q.needed {
			t.Fatalf("%s: %v\n%s", q.command, err, out)
		}
		state[q.command] = p.own(string(out))
	}
	mounts, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	state["mounts"] = p.own(string(mounts))
	return state
}

// moving are the parameters that the kernel moves by itself.
var moving = map[string]string{
	"/proc/sys/net/netfilter/nf_conntrack_count": "counts connections that are followed",
}

// sysctls are the values of /proc/sys/net.
func sysctls(t *testing.T) map[string]string {
	t.Helper()
	values := map[string]string{}
	err := filepath.WalkDir("/proc/sys/net", func(path string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // of a device that has gone
		}
		if err != nil || e.IsDir() || moving[path] != "" {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			b = []byte(fmt.Sprint("unreadable: ", errors.Unwrap(err))) // such as those only written to
		}
		values[path] = string(b)
		return nil
	})
	if err != nil || len(values) < 100 {
		t.Fatalf("%d parameters, %v", len(values), err)
	}
	return values
}

const insideEnv = "TESTBED_TEST_INSIDE"

// The namespace and mounts in which the program is started are the same to the
// byte after a run, an interrupted run, and one that was killed and collected.
// The machine's own are busy with other things, so the test starts itself again
// in others, with a device, addresses, routes, neighbours, a shaper and parameters
// that are not the default. Parameters are compared outside too, since some are of
// the whole machine.
func TestRootIsAsBefore(t *testing.T) {
	t.Parallel()
	tooltest.Need(t, "ip", "tc")
	netnstest.Require(t)
	if os.Getenv(insideEnv) != "" {
		rootIsAsBefore(t)
		return
	}
	before := sysctls(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRootIsAsBefore$", "-test.v")
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !strings.Contains(string(out), "compared 4 times") {
		t.Errorf("in namespaces of its own: %v", err)
	}
	if diff := cmp.Diff(before, sysctls(t)); diff != "" {
		t.Errorf("parameters of the machine (-before +after):\n%s", diff)
	}
}

func rootIsAsBefore(t *testing.T) {
	p := newPlace(t)
	for _, c := range []string{
		"ip link set lo up", "ip link add furniture0 type veth peer name furniture1", "ip link set furniture0 up", "ip link set furniture1 up",
		"ip addr add 10.0.0.1/24 dev furniture0", "ip route add 10.4.0.0/16 via 10.0.0.9", "ip rule add to 10.5.0.0/16 lookup 77",
		"ip route add default via 10.0.0.8 table 77", "ip neigh add 10.0.0.9 lladdr 02:00:00:00:00:09 dev furniture0 nud permanent",
		"tc qdisc add dev furniture0 root tbf rate 1mbit burst 3000 limit 30000", "tc qdisc add dev furniture0 clsact",
		"tc filter add dev furniture0 ingress bpf da bytecode '1,6 0 0 0'",
	} {
		if out, err := exec.Command("sh", "-c", c).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", c, err, out)
		}
	}
	for path, v := range map[string]string{"ipv4/ip_forward": "1", "ipv4/conf/all/rp_filter": "2", "ipv4/tcp_ecn": "1", "ipv4/fib_multipath_hash_policy": "1"} {
		if err := os.WriteFile("/proc/sys/net/"+path, []byte(v), 0); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(2500 * time.Millisecond) // for the kernel to be done with its addresses
	before, compared := p.rootState(t), 0
	same := func(after string) {
		t.Helper()
		compared++
		if diff := cmp.Diff(before, p.rootState(t)); diff != "" {
			t.Errorf("after %s (-before +after):\n%s", after, diff)
		}
		if left := p.left(t); len(left) > 0 {
			t.Errorf("after %s left: %v", after, left)
		}
	}
	same("nothing")
	c := p.command(t, "run", "scenario.yaml")
	if out, err := c.CombinedOutput(); err != nil && c.ProcessState.ExitCode() != exitVoid {
		t.Fatalf("%v\n%s", err, out)
	}
	same("a run")
	for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		c := p.command(t, "run", "scenario.yaml")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		p.awaitCaptures(t)
		if err := c.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		_ = c.Wait() // by the signal
		if s == syscall.SIGKILL {
			p.run(t, 0, "gc")
		}
		same("signal " + s.String())
	}
	t.Logf("%d parameters and answers compared %d times", len(before), compared)
}

// awaitCaptures waits until the run that was begun last captures packets.
func (p place) awaitCaptures(t *testing.T) {
	t.Helper()
	p.await(t, "captures of an arm", func(dir string) bool {
		found, err := filepath.Glob(filepath.Join(dir, "*", "*", "captures", "*.pcapng"))
		return err == nil && len(found) > 0
	})
}

// await waits until the directory of the run that was begun last is as wanted.
func (p place) await(t *testing.T, what string, wanted func(dir string) bool) (dir string) {
	t.Helper()
	const patience = time.Minute
	for start := time.Now(); time.Since(start) < patience; time.Sleep(5 * time.Millisecond) {
		manifests, err := filepath.Glob(filepath.Join(p.dir, "runs", "*-*", "manifest.json"))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range manifests {
			b, err := os.ReadFile(m)
			if err == nil && strings.Contains(string(b), `"state": "running"`) && wanted(filepath.Dir(m)) {
				return filepath.Dir(m)
			}
		}
	}
	t.Fatalf("no %s after %v", what, patience)
	return ""
}

// A run that was killed may have its locks for some time: ps lists it as left over at once, and gc
// waits for it.
func TestCollectAtOnceAfterKill(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	before := look(t)
	c := p.command(t, "run", "scenario.yaml")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	p.awaitCaptures(t)
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if out, _ := p.run(t, 0, "ps", "--json"); !strings.Contains(out, `"status": "left over"`) {
		t.Errorf("ps says %s", out)
	}
	if out, _ := p.run(t, 0, "gc"); !strings.Contains(out, fmt.Sprintf("its process %d is gone", c.Process.Pid)) {
		t.Errorf("gc says %q", out)
	}
	_ = c.Wait() // by the signal
	p.leftNothing(t, before)
}

// Another user cannot hold the locks of a testbed, and a process that does hold one is named.
func TestOthersCannotHoldLocks(t *testing.T) {
	tooltest.Need(t, "flock", "setpriv")
	p := upLab(t)
	for dir := p.state; len(dir) > len(os.TempDir()); dir = filepath.Dir(dir) { // of the test: let others in
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{".lock", "lab/lock", "lab/ns"} {
		out, err := exec.Command("setpriv", "--reuid=65534", "--clear-groups", "flock", "-n", filepath.Join(p.state, path), "true").CombinedOutput()
		if err == nil || !strings.Contains(string(out), "Permission denied") {
			t.Errorf("another user locks %s: %v, %s", path, err, out)
		}
	}
	p.run(t, 0, "exec", "h0-00", "--", "true")
	holder := p.start(t, "flock", "--no-fork", filepath.Join(p.state, ".lock"), "sleep", "671")
	c := p.command(t, "ps")
	errs, err := c.StderrPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(errs).ReadString('\n')
	if err != nil || !strings.Contains(line, fmt.Sprintf("is locked by sleep 671 (pid %d)", holder.Process.Pid)) {
		t.Errorf("ps says %q, %v", line, err)
	}
	interrupted := time.Now()
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err == nil || time.Since(interrupted) > time.Second {
		t.Errorf("ps ended %v after Ctrl-C: %v", time.Since(interrupted), err)
	}
	if err := holder.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = holder.Wait() // by the signal
	p.run(t, 0, "down")
}

// Ctrl-C in the second arm: the first is reported, and every output states what was cut.
func TestInterruptSavesWhatEnded(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	before := look(t)
	c := p.command(t, "run", "scenario.yaml")
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	dir := p.await(t, "captures of the second arm", func(dir string) bool {
		found, err := filepath.Glob(filepath.Join(dir, "sebf+hdfs", "0", "captures", "*.pcapng"))
		return err == nil && len(found) > 0
	})
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // its exit code is looked at next
	if code := c.ProcessState.ExitCode(); code != exitFailure && code != exitVoid {
		t.Errorf("exit code %d\n%s", code, &errs)
	}
	want := &summary.Partial{Ended: []string{"fair+hdfs/0"}, Cut: []string{"sebf+hdfs/0"}, NotBegun: []string{}}
	for file, state := range map[string]string{"manifest.json": "interrupted", "summary.json": ""} {
		b, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Fatalf("%v\n%s", err, &errs)
		}
		var got struct {
			State   string
			Partial *summary.Partial
			Arms    []any
		}
		if err := json.Unmarshal(b, &got); err != nil {
			t.Fatal(err)
		}
		if got.Partial == nil || got.Partial.Why == "" {
			t.Fatalf("%s does not say why it is partial: %s", file, b)
		}
		got.Partial.Why = ""
		if diff := cmp.Diff(want, got.Partial); diff != "" || got.State != state {
			t.Errorf("%s: state %q, (-want +got):\n%s", file, got.State, diff)
		}
	}
	md, err := os.ReadFile(filepath.Join(dir, "report.md"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"report.md": string(md), "what it prints": out.String()} {
		text = strings.Join(strings.Fields(text), " ") // lines are broken to fit a terminal
		if !strings.Contains(text, "PARTIAL: the run does not have all of its trials") || !strings.Contains(text, "Completed: fair+hdfs/0. Interrupted: sebf+hdfs/0. Not started: none.") {
			t.Errorf("%s does not say what was cut:\n%s", name, text)
		}
	}
	p.leftNothing(t, before)
}

// Ctrl-C twice ends the process at once, wherever the first had got to, and gc
// removes the rest.
func TestSecondInterruptEndsAtOnce(t *testing.T) {
	p := newPlace(t)
	before := look(t)
	killed := 0
	for i := range 5 {
		c := p.command(t, "run", "scenario.yaml")
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		p.awaitCaptures(t)
		var took time.Duration
		for range 2 {
			if err := c.Process.Signal(os.Interrupt); err != nil && !errors.Is(err, os.ErrProcessDone) {
				t.Fatal(err)
			}
			<-time.After(time.Duration(i+1) * time.Millisecond) // two signals at once are one
		}
		start := time.Now()
		_ = c.Wait() // how it ended is looked at next
		took = time.Since(start)
		if status, ok := c.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() && status.Signal() == syscall.SIGINT {
			killed++
			if took > time.Second && !netnstest.NotJudged(t) {
				t.Errorf("it ended %v after the second signal", took)
			}
		}
		p.run(t, 0, "gc")
		if left := p.left(t); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
		if err := os.RemoveAll(filepath.Join(p.dir, "runs")); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d of 5 were ended by the second signal", killed)
	if killed == 0 {
		t.Error("the second signal never ended a run")
	}
	if after := look(t); after != before {
		t.Errorf("the machine was\n%+v\nand is\n%+v", before, after)
	}
}
