package runner

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"testbed/emu/guest"
	"testbed/emu/longtest"
	"testbed/emu/scenario"
	"testbed/results/rundir"
	"testbed/results/tooltest"
)

// bootEnv makes a test of this file the process that runs a trial in virtual time, into a directory, with a seed.
const bootEnv = "RUNNER_BOOT"

// bareEnv makes boot check that it has no privileges.
const bareEnv = "RUNNER_BARE"

// bare checks that this process is of an ordinary user, without capabilities, and can get none.
func bare(t *testing.T) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"CapInh:\t0*", "CapPrm:\t0*", "CapEff:\t0*", "CapBnd:\t0*", "CapAmb:\t0*", "NoNewPrivs:\t1", "Uid:\t[1-9].*"} {
		if !regexp.MustCompile("(?m)^" + line + "$").Match(status) {
			t.Fatalf("no line %q in\n%s", line, status)
		}
	}
}

// boot runs the trial if this process is to do so.
func boot(t *testing.T) {
	dir, seed, ok := strings.Cut(os.Getenv(bootEnv), "#")
	if !ok {
		return
	}
	n, err := strconv.ParseUint(seed, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv(bareEnv) != "" {
		bare(t)
	}
	o := Options{Out: dir, Version: "test", Choice: Choice{only: map[string]bool{"fair/0": true}}}
	if _, err := Execute(t.Context(), forkScenario(t, scenario.VirtualTime, n), o); err != nil {
		t.Fatal(err)
	}
	t.SkipNow()
}

// booted returns the command of boot, after words that start it in another way.
func booted(t *testing.T, before []string, program, dir string, seed int) *exec.Cmd {
	t.Helper()
	args := append(slices.Clone(before), program, "-test.run=^"+t.Name()+"$")
	c := exec.Command(args[0], args[1:]...)
	c.Env = append(os.Environ(), fmt.Sprintf("%s=%s#%d", bootEnv, dir, seed), "HOME="+dir)
	c.Dir = "."
	return c
}

// inContainer returns the command that runs c in a container of runc: of an ordinary user without capabilities, without a
// network, and with devices that every container has, such as /dev/null. Of this machine it has the programs, their
// libraries and the kernel, read only, and dir.
func inContainer(t *testing.T, c *exec.Cmd, dir string) *exec.Cmd {
	t.Helper()
	type values = map[string]any
	bundle := t.TempDir()
	mounts := []values{
		{"destination": "/proc", "type": "proc", "source": "proc"},
		{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": []string{"nosuid", "noexec"}},
		{"destination": "/tmp", "type": "tmpfs", "source": "tmpfs", "options": []string{"mode=1777"}},
		{"destination": dir, "type": "bind", "source": dir, "options": []string{"rbind"}},
	}
	err := os.Mkdir(filepath.Join(bundle, "rootfs"), 0o755)
	for _, name := range []string{"/bin", "/boot", "/etc", "/lib", "/lib64", "/sbin", "/usr"} {
		if to, err2 := os.Readlink(name); err2 == nil {
			err = errors.Join(err, os.Symlink(to, filepath.Join(bundle, "rootfs", name)))
		} else if _, err2 := os.Stat(name); err2 == nil {
			mounts = append(mounts, values{"destination": name, "type": "bind", "source": name, "options": []string{"rbind", "ro"}})
		}
	}
	var namespaces []values
	for _, name := range []string{"ipc", "mount", "network", "pid", "uts"} {
		namespaces = append(namespaces, values{"type": name})
	}
	c.Env = append(c.Env, "TMPDIR=/tmp")
	config, err2 := json.Marshal(values{
		"ociVersion": "1.0.2", "root": values{"path": "rootfs", "readonly": true}, "mounts": mounts, "linux": values{"namespaces": namespaces},
		"process": values{"user": values{"uid": 65534, "gid": 65534}, "cwd": c.Dir, "args": c.Args, "env": c.Environ(),
			"noNewPrivileges": true, "capabilities": values{}},
	})
	if err := errors.Join(err, err2, os.WriteFile(filepath.Join(bundle, "config.json"), config, 0o644)); err != nil {
		t.Fatal(err)
	}
	return exec.Command("runc", "--root", filepath.Join(bundle, "state"), "run", "--bundle", bundle, strings.ReplaceAll("boots"+bundle, "/", "-"))
}

// public returns a directory for all users with this program, what the tests read, and a kernel, whose directory it sets
// in the environment.
func public(t *testing.T, k guest.Kernel) (dir, program string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "boots")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	kernel := filepath.Join(dir, "kernel")
	if root := filepath.Dir(filepath.Dir(k.Image)); k.UserMode {
		t.Setenv(guest.Env, kernel)
		var b []byte
		b, err = os.ReadFile(k.Image)
		err = errors.Join(err, os.WriteFile(kernel, b, 0o755))
	} else if root != "/" {
		t.Setenv(guest.Env, kernel)
		err = os.CopyFS(kernel, os.DirFS(root))
	}
	program = filepath.Join(dir, "program")
	b, err2 := os.ReadFile(os.Args[0])
	err = errors.Join(err, err2, os.Chmod(dir, 0o755), os.WriteFile(program, b, 0o755), os.CopyFS(filepath.Join(dir, "testdata"),
		os.DirFS("testdata")))
	if err != nil {
		t.Fatal(err)
	}
	return dir, program
}

// Ten boots of a trial leave the same bytes in all of its files: one alone, the others side by side and with two busy
// loops, some of them as an ordinary user without capabilities, in namespaces of a container, and where libraries do not
// use some instructions of this processor, as on an older one. Boots in containers of an OCI runtime leave them too. Another
// seed leaves others.
func TestBootsAnywhere(t *testing.T) {
	boot(t)
	longtest.Nightly(t, "boots fourteen guests, five minutes of a processor")
	needsGuests(t)
	k, _, err := CheckVirtual(t.Context(), VirtualOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dir, program := public(t, k)
	ordinary := []string{"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"}
	contained := append([]string{"unshare", "--net", "--ipc", "--uts", "--pid", "--fork", "--mount-proc"}, ordinary...)
	if os.Geteuid() != 0 {
		ordinary, contained = nil, nil
	}
	const masked = "GLIBC_TUNABLES=glibc.cpu.hwcaps=-AVX512F,-AVX2,-AVX,-ERMS,-BMI2,-SSE4_2"
	type way struct {
		before    []string
		env       string
		seed      int
		container bool
	}
	start := func(t *testing.T, place int, w way) (trial string, wait func() error) {
		out := filepath.Join(dir, strconv.Itoa(place))
		c := booted(t, w.before, program, out, w.seed)
		c.Dir, c.Env = dir, append(c.Env, w.env)
		if w.before != nil || w.container {
			c.Env = append(c.Env, bareEnv+"=1")
		}
		if w.container {
			c = inContainer(t, c, dir)
		}
		var text bytes.Buffer
		c.Stdout, c.Stderr = &text, &text
		if err := errors.Join(os.Mkdir(out, 0o777), os.Chmod(out, 0o777), c.Start()); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(out, "latest", "fair", "0"), func() error {
			if err := c.Wait(); err != nil {
				return fmt.Errorf("%w: %s", err, &text)
			}
			return nil
		}
	}
	sums := func(trial string) map[string][sha256.Size]byte {
		all := map[string][sha256.Size]byte{}
		for name, content := range files(t, trial+"/") {
			all[name] = sha256.Sum256([]byte(content))
		}
		return all
	}
	trial, wait := start(t, 0, way{seed: 1})
	if err := wait(); err != nil {
		t.Fatal(err)
	}
	want := sums(trial)
	runtime.LockOSThread() // the loops end with it, even if this process is killed
	defer runtime.UnlockOSThread()
	for range 2 {
		loop := exec.Command("sh", "-c", "while :; do :; done")
		loop.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL}
		if err := loop.Start(); err != nil {
			t.Fatal(err)
		}
		defer func() {
			_ = loop.Process.Kill()
			_ = loop.Wait() // it was killed
		}()
	}
	place := 1
	compare := func(t *testing.T, ways []way) {
		trials, waits := make([]string, len(ways)), make([]func() error, len(ways))
		for i, w := range ways {
			trials[i], waits[i] = start(t, place, w)
			place++
		}
		for i, w := range ways {
			if err := waits[i](); err != nil {
				t.Errorf("%+v: %v", w, err)
				continue
			}
			got, differ := sums(trials[i]), 0
			for name, sum := range want {
				if got[name] != sum {
					differ++
					if w.seed == 1 {
						t.Errorf("%+v: %s differs", w, name)
					}
				}
			}
			t.Logf("%+v: %d of %d files differ", w, differ, len(want))
			if len(got) != len(want) || w.seed != 1 && differ == 0 {
				t.Errorf("%+v: %d files, want %d, and others with another seed", w, len(got), len(want))
			}
		}
	}
	compare(t, []way{
		{seed: 1}, {seed: 1}, {seed: 1, before: ordinary}, {seed: 1, before: ordinary}, {seed: 1, before: contained}, {seed: 1, before: contained},
		{seed: 1, env: masked}, {seed: 1, env: masked, before: ordinary}, {seed: 1, env: masked, before: contained}, {seed: 2},
	})
	t.Run("containers", func(t *testing.T) {
		tooltest.Need(t, "runc")
		if os.Geteuid() != 0 {
			t.Skip("starts containers: run the test as root")
		}
		compare(t, []way{{seed: 1, container: true}, {seed: 1, env: masked, container: true}, {seed: 2, container: true}})
	})
}

// After kill -9 of the program no guest is left, and nothing on disk but the directory of the run with its partial trial.
func TestKilledInVirtualTime(t *testing.T) {
	boot(t)
	longtest.Skip(t, "boots a guest, 5 s of a processor")
	needsGuests(t)
	temporary, dir := t.TempDir(), t.TempDir()
	c := booted(t, nil, os.Args[0], dir, 1)
	c.Env = append(c.Env, "TMPDIR="+temporary)
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	c.Env = append(c.Env, "XDG_CACHE_HOME="+cache)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	reported := func() bool {
		lines, _ := filepath.Glob(filepath.Join(dir, "fork-*", "fair", "0", "guest.jsonl"))
		if len(lines) == 0 {
			return false
		}
		info, err := os.Stat(lines[0])
		return err == nil && info.Size() > 0
	}
	within := func(what string, done func() bool) {
		t.Helper()
		for deadline := time.Now().Add(5 * time.Minute); !done(); time.Sleep(100 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal(what)
			}
		}
	}
	within("the guest reports nothing", reported)
	if len(guests(dir)) == 0 {
		t.Error("no guest is found")
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // it was killed
	within("the guest outlives its caller", func() bool { return len(guests(dir)) == 0 })
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("temporary files %v, %v", left, err)
	}
	runs, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range runs {
		if e.Name() != "latest" && !strings.HasPrefix(e.Name(), "fork-") {
			t.Errorf("%s is left", e.Name())
		}
	}
	if ended, _ := filepath.Glob(filepath.Join(dir, "fork-*", "fair", "0", rundir.TrialFile)); len(ended) > 0 {
		t.Errorf("the trial has ended: %v", ended)
	}
}

// guests returns the processes with a guest of a run below a directory: of qemu, and those of user-mode Linux, which run
// there.
func guests(dir string) (pids []string) {
	list, _ := filepath.Glob("/proc/[0-9]*")
	for _, p := range list {
		b, _ := os.ReadFile(filepath.Join(p, "cmdline")) // it may have ended
		in, _ := os.Readlink(filepath.Join(p, "cwd"))
		if strings.Contains(string(b), guest.Program) && strings.Contains(string(b), dir) || strings.HasPrefix(in, dir) {
			pids = append(pids, filepath.Base(p))
		}
	}
	return pids
}
