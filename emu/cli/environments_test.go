package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"testbed/emu/deploy"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/longtest"
	"testbed/results/tooltest"
)

// environment is a way to start programs as a container or a user namespace does.
type environment struct {
	name  string
	start []string // before the program
	works bool
	// up is the outcome of testbed up, if it differs: "refused", or part of a note.
	up string
}

// withCapabilities starts a program with those of a Docker container by default, and more.
func withCapabilities(more ...string) []string {
	held := append(strings.Fields("chown dac_override fowner fsetid kill setgid setuid setpcap net_bind_service sys_chroot mknod audit_write setfcap"), more...)
	return []string{"setpriv", "--bounding-set", "-all,+" + strings.Join(held, ",+"), "--"}
}

// withMounts starts a program in a mount namespace of its own, after commands that change it.
func withMounts(commands string) []string {
	return []string{"unshare", "-m", "sh", "-ec", commands + "\n\"$@\"", "sh"}
}

const readOnlySys = "mount -o bind /proc/sys /proc/sys; mount -o remount,bind,ro /proc/sys"

// environments is docs/hand.md, and what differs from it in one point each.
func environments(state string) []environment {
	const session = "ends with this mount namespace"
	nobody := []string{"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--"}
	container := withCapabilities("net_admin", "sys_admin", "net_raw")
	return []environment{
		{name: "root", works: true},
		{name: "capabilities of Docker", start: withCapabilities("net_raw")},
		{name: "and NET_ADMIN", start: withCapabilities("net_raw", "net_admin")},
		{name: "and SYS_ADMIN", start: container, works: true},
		{name: "without NET_RAW", start: withCapabilities("net_admin", "sys_admin")},
		{name: "without NET_ADMIN", start: withCapabilities("net_raw", "sys_admin")},
		{name: "read-only /proc/sys", start: append(withMounts(readOnlySys), container...)},
		{name: "/proc/sys writable again", start: append(withMounts(readOnlySys+"; mount -o remount,bind,rw /proc/sys"), container...), works: true, up: session},
		{name: "read-only /run", start: withMounts("mkdir -p " + state + "; mount -t tmpfs -o ro none " + state)},
		{name: "mount namespace", start: []string{"unshare", "-m"}, works: true, up: session},
		{name: "user namespace", start: []string{"unshare", "-rmn"}, works: userNamespaces(), up: session},
		{name: "user namespace of another user", start: append(slices.Clip(nobody), "unshare", "-rmn"), works: userNamespaces(), up: session},
		{name: "another user", start: nobody},
	}
}

// userNamespaces reports whether this kernel shows the parameters of a namespace's sockets in user
// namespaces. Linux 6.1 does not.
func userNamespaces() bool {
	return exec.Command("unshare", "-rn", "test", "-e", "/proc/sys/net/core/somaxconn").Run() == nil
}

// Doctor reports no missing feature exactly where run and up work, and none of them leaves
// anything.
func TestDoctorAgreesWithRunAndUp(t *testing.T) {
	t.Parallel()
	longtest.Computes(t)
	tooltest.Need(t, "unshare", "setpriv")
	netnstest.Require(t)
	for i, e := range environments("") {
		t.Run(strings.ReplaceAll(e.name, "/", "_"), func(t *testing.T) {
			p := newPlaceAt(t, openDir(t), openDir(t))
			for _, file := range []string{"scenario.yaml", "coflow.txt"} {
				text, err := twoHosts.ReadFile("twohosts/" + file)
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(p.dir, file), text, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			environments(p.state)[i].check(t, p)
		})
	}
}

// openDir returns a directory that every user may write to.
func openDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// copyProgram writes a copy of the program that every user may execute, and returns its directory.
func copyProgram(t *testing.T, dir string) string {
	t.Helper()
	from, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "testbed"), text, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func (e environment) check(t *testing.T, p place) {
	before := look(t)
	const script = `
		testbed doctor >doctor.txt 2>&1; echo doctor $?
		testbed run scenario.yaml >run.txt 2>&1; echo run $?
		testbed up scenario.yaml --name lab >up.txt 2>&1; up=$?; echo up $up
		if [ $up = 0 ]; then testbed exec h0-00 -- true && testbed down lab; echo down $?; fi`
	words := append(append([]string{}, e.start...), "sh", "-c", script)
	cmd := exec.CommandContext(t.Context(), words[0], words[1:]...)
	cmd.Dir, cmd.Env = p.dir, append(os.Environ(), deploy.RootEnv+"="+p.state, "HOME="+p.dir)
	if slices.Contains(e.start, "--reuid") {
		cmd.Env = append(cmd.Env, "PATH="+copyProgram(t, openDir(t))+":"+os.Getenv("PATH"))
	}
	out, err := cmd.CombinedOutput()
	codes := map[string]int{"down": 0}
	for line := range strings.Lines(string(out)) {
		var verb string
		var code int
		if _, err := fmt.Sscan(line, &verb, &code); err == nil {
			codes[verb] = code
		}
	}
	ok := map[string]bool{"doctor": codes["doctor"] == 0, "run": codes["run"] == 0 || codes["run"] == exitVoid, "up": codes["up"] == 0 && codes["down"] == 0}
	read := func(verb string) string {
		text, err := os.ReadFile(filepath.Join(p.dir, verb+".txt"))
		if err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return string(text)
	}
	for verb, works := range ok {
		if works != e.works {
			t.Errorf("%s: exit code %d, works: %t, want %t\n%s", verb, codes[verb], works, e.works, read(verb))
		}
	}
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if e.works && e.up != "" && !strings.Contains(read("up"), e.up) {
		t.Errorf("up does not state %q:\n%s", e.up, read("up"))
	}
	mark := map[bool]string{true: "yes", false: "no"}[e.works]
	if !regexp.MustCompile(`(?m)^  ` + mark + ` +run, up, demo, calibrate +in `).MatchString(read("doctor")) {
		t.Errorf("doctor does not mark run and up with %q:\n%s", mark, read("doctor"))
	}
	if !e.works && !strings.Contains(read("doctor"), "MISSING two hosts") {
		t.Errorf("doctor does not state that two hosts are missing:\n%s", read("doctor"))
	}
	p.leftNothing(t, before)
	if left, err := filepath.Glob(filepath.Join(p.dir, ".doctor-*")); err != nil || len(left) > 0 {
		t.Errorf("left by doctor: %v, %v", left, err)
	}
}

// A testbed that would end with the process that built it is not built.
func TestUpRefusesWhatEndsAtOnce(t *testing.T) {
	tooltest.Need(t, "unshare")
	p := newPlace(t)
	before := look(t)
	cmd := p.command(t, "up", "scenario.yaml", "--name", "lab")
	cmd.Args = append([]string{"unshare", "-m"}, cmd.Args...)
	var err error
	if cmd.Path, err = exec.LookPath("unshare"); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "its mount namespace is private") || !strings.Contains(string(out), "hint: to keep it") {
		t.Errorf("%v\n%s", err, out)
	}
	p.leftNothing(t, before)
}

// Doctor that is interrupted while its testbed exists removes it.
func TestInterruptedDoctorLeavesNothing(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	before := look(t)
	cmd := p.command(t, "doctor")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p.awaitTestbed(t)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != exitFailure {
		t.Errorf("ended with %v", err)
	}
	p.leftNothing(t, before)
	if left, err := filepath.Glob(filepath.Join(p.dir, ".doctor-*")); err != nil || len(left) > 0 {
		t.Errorf("left by doctor: %v, %v", left, err)
	}
}
