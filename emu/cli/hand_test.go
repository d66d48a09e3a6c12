package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"testbed/emu/deploy"
	"testbed/emu/kernel"
	"testbed/emu/kernel/netnstest"
	"testbed/results/tooltest"
	"testbed/topo"
)

// reach is a program that connects to a port of a host, by name, on which nothing
// listens. It prints the outcome: a refusal is the host's answer.
func reach() {
	for _, name := range os.Args[1:] {
		c, err := net.DialTimeout("tcp4", net.JoinHostPort(name, "9"), 5*time.Second)
		if err == nil {
			err = c.Close()
		}
		fmt.Println(name, errors.Is(err, syscall.ECONNREFUSED), err)
	}
}

// upLab builds testbed lab, of 20 Mbps hosts and 10 Mbps uplinks, in a place of its own. It is removed
// with the test.
func upLab(t *testing.T) place {
	t.Helper()
	p := newPlace(t)
	p.upHere(t)
	return p
}

// upHere builds testbed lab from the scenario of the place. It is removed with the test.
func (p place) upHere(t *testing.T) {
	t.Helper()
	t.Cleanup(func() {
		if _, err := deploy.Collect(context.Background(), p.state, kernel.Reaper{}, true); err != nil {
			t.Error(err)
		}
	})
	p.run(t, 0, "up", "scenario.yaml", "--name", "lab")
}

// edit replaces text of the scenario of the place.
func (p place) edit(t *testing.T, old, text string) {
	t.Helper()
	path := filepath.Join(p.dir, "scenario.yaml")
	b, err := os.ReadFile(path)
	if err == nil && !strings.Contains(string(b), old) {
		err = fmt.Errorf("%s has no %q", path, old)
	}
	if err == nil {
		err = os.WriteFile(path, []byte(strings.Replace(string(b), old, text, 1)), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// combined runs a program on this machine.
func combined(t *testing.T, words ...string) string {
	t.Helper()
	out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	if err != nil {
		t.Fatalf("%q: %v\n%s", words, err, out)
	}
	return string(out)
}

// The files that a command in a host reads belong to the host, and those that it writes stay
// there.
// The machine is a disposable one: namespaces of the test, with mounts that are shared
// as on a machine that systemd runs.
func TestCommandHasTheViewOfItsHost(t *testing.T) {
	t.Parallel()
	tooltest.Need(t, "ip")
	if _, err := os.Stat(hostsFile); err != nil {
		t.Skipf("names of hosts need a machine with %s: %v", hostsFile, err)
	}
	netnstest.Require(t)
	if os.Getenv(insideEnv) != "" {
		viewOfHost(t)
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCommandHasTheViewOfItsHost$", "-test.v")
	cmd.Env = append(os.Environ(), insideEnv+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWUTS}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil || !bytes.Contains(out, []byte("files were tried")) {
		t.Errorf("in namespaces of its own: %v", err)
	}
}

func viewOfHost(t *testing.T) {
	here := t.TempDir()
	hosts := filepath.Join(here, "hosts")
	if err := os.WriteFile(hosts, []byte("192.0.2.9 h1-02 leaf1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	lookups := filepath.Join(here, "nsswitch.conf")
	if err := os.WriteFile(lookups, []byte("passwd: files\nhosts: dns\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range [][]string{
		{"mount", "--make-rshared", "/"}, {"mount", "-t", "sysfs", "sysfs", "/sys"},
		{"mount", "-t", "tmpfs", "tmpfs", "/sys/fs/cgroup"}, {"mkdir", "/sys/fs/cgroup/kept"},
		{"mount", "--bind", hosts, hostsFile}, {"mount", "--bind", lookups, switchFile},
		{"ip", "link", "set", "lo", "up"}, {"ip", "link", "add", "furniture0", "type", "veth", "peer", "name", "furniture1"},
	} {
		combined(t, c...)
	}
	p := upLab(t)
	const device = "/sys/class/net/furniture0"
	machine := func() map[string]string {
		state := map[string]string{"name": combined(t, "uname", "-n")}
		for _, path := range []string{device + "/mtu", "/proc/self/mountinfo", hostsFile, switchFile, "/proc/sys/net/ipv4/ip_forward"} {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			state[path] = string(b)
		}
		state["/proc/self/mountinfo"] = p.own(state["/proc/self/mountinfo"])
		return state
	}
	before := machine()
	in := func(code int, host string, words ...string) string {
		t.Helper()
		out, _ := p.run(t, code, append([]string{"exec", host, "--"}, words...)...)
		return strings.TrimSpace(out)
	}

	// Devices and the host's own name.
	in(2, "h0-00", "sh", "-c", "echo 1444 > "+device+"/mtu")
	for host, want := range map[string]string{"h0-00": "eth0 lo", "leaf1": "h1-00 h1-01 h1-02 lo spine0 spine1"} {
		if got := strings.Join(strings.Fields(in(0, host, "ls", "/sys/class/net")), " "); got != want {
			t.Errorf("/sys/class/net of %s has %q, want %q", host, got, want)
		}
		if got := in(0, host, "uname", "-n"); got != host {
			t.Errorf("the name of %s is %q", host, got)
		}
	}
	if got := in(0, "h0-00", "sh", "-c", "echo 1400 > /sys/class/net/eth0/mtu; cat /sys/class/net/eth0/mtu; cat /sys/class/net/eth0/mtu"); got != "1400\n1400" {
		t.Errorf("the MTU of the host's own device is %q after 1400 was written", got)
	}
	if got := in(0, "h0-00", "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward; cat /proc/sys/net/ipv4/ip_forward"); got != "1" {
		t.Errorf("ip_forward of the host is %q after 1 was written", got)
	}
	// What is mounted below /sys is still there, and a current directory is a name.
	in(0, "h0-00", "test", "-d", "/sys/fs/cgroup/kept")
	in(1, "h0-00", "mkdir", "/sys/fs/cgroup/new")
	c := p.command(t, "exec", "h0-00", "--", "sh", "-c", "pwd; echo 1333 > mtu; cat eth0/mtu")
	c.Dir = device
	if out, err := c.Output(); err == nil || string(out) != "/\n" {
		t.Errorf("in the directory of a device of the machine: %v, %q", err, out)
	}
	c = p.command(t, "exec", "h0-00", "--", "cat", "eth0/mtu")
	c.Dir = "/sys/class/net"
	if out, err := c.Output(); err != nil || string(out) != "1400\n" {
		t.Errorf("in /sys/class/net: %v, %q", err, out)
	}

	// Nothing of the machine's can be written to.
	var paths []string
	for _, root := range []string{"/sys", "/proc/sys", "/proc/irq", "/proc/sysrq-trigger", "/proc/bus", "/proc/fs"} {
		err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() && (path == "/proc/sys/net" || path == "/sys/devices/virtual/net") {
				return fs.SkipDir // gone, or the host's
			}
			if info, err := e.Info(); err == nil && (e.IsDir() || info.Mode()&0o222 != 0 && info.Mode().IsRegular()) {
				paths = append(paths, path)
			}
			return nil
		})
		if err != nil && !errors.Is(err, fs.SkipDir) {
			t.Fatal(err)
		}
	}
	const writable = `for f; do if test -w "$f"; then echo "$f"; fi; done`
	tried, can := 0, 0
	for part := range slices.Chunk(paths, 1000) {
		if out := in(0, "h0-00", append([]string{"sh", "-c", writable, "sh"}, part...)...); out != "" {
			t.Errorf("a command in a host can write to %d files of the machine, such as %.400s", strings.Count(out, "\n")+1, out)
		}
		can += strings.Count(combined(t, append([]string{"sh", "-c", writable, "sh"}, part...)...), "\n")
		tried += len(part)
	}
	if can < 300 {
		t.Errorf("%d of %d files can be written to outside: the test tests nothing", can, tried)
	}
	for _, path := range []string{"/sys/class/net/eth0/mtu", "/proc/sys/net/ipv4/ip_forward", "/proc/self/oom_score_adj"} {
		in(0, "h0-00", "test", "-w", path)
	}

	// Names, in place of the machine's.
	f, err := p.shape(t).Build()
	if err != nil {
		t.Fatal(err)
	}
	const resolve = `for name; do set -- $(getent ahostsv4 $name); echo $name $1; done`
	for host, want := range map[string]string{
		"h0-00":  "h1-02 10.1.2.1\nleaf0 10.0.0.0\nleaf1 10.1.0.0\nspine0 172.16.0.0\nspine1 172.16.0.2\nlocalhost 127.0.0.1",
		"leaf1":  "h1-02 10.1.2.1\nleaf0 10.0.0.0\nleaf1 10.1.0.0\nspine0 172.16.1.0\nspine1 172.16.1.2\nlocalhost 127.0.0.1",
		"spine1": "h1-02 10.1.2.1\nleaf0 10.0.0.0\nleaf1 10.1.0.0\nspine0 172.16.0.0\nspine1 172.16.0.2\nlocalhost 127.0.0.1",
	} {
		if got := in(0, host, "sh", "-c", resolve, "sh", "h1-02", "leaf0", "leaf1", "spine0", "spine1", "localhost"); got != want {
			t.Errorf("names in %s (-want +got):\n%s", host, cmp.Diff(want, got))
		}
	}
	for _, h := range []topo.HostID{0, topo.HostID(f.Hosts() - 1)} { // one in each rack
		words := []string{"exec", f.HostName(h), "--", "reach", f.HostName((h + 1) % topo.HostID(f.Hosts())), f.HostName(h), "leaf0", "leaf1", "spine0", "spine1"}
		if out, _ := p.run(t, 0, words...); strings.Count(out, " true ") != len(words)-4 {
			t.Errorf("from %s by name:\n%s", f.HostName(h), out)
		}
	}
	in(2, "h0-00", "getent", "hosts", "nowhere")
	if _, err := exec.LookPath("ping"); err == nil {
		in(0, "h0-00", "ping", "-c", "1", "-W", "2", "h1-02")
	} else {
		t.Log("no ping: hosts were reached over TCP alone")
	}

	// Mounts and names that a command makes are gone with it.
	mounts, _ := p.run(t, 0, "exec", "--privileged", "h0-00", "--", "sh", "-c", "mount -t tmpfs tmpfs "+here+" && ls -A "+here+" | wc -l")
	if got := strings.TrimSpace(mounts); got != "0" {
		t.Errorf("a mount in a host has %q entries", got)
	}
	if diff := cmp.Diff(before, machine()); diff != "" {
		t.Errorf("the machine (-before +after):\n%s", diff)
	}
	combined(t, "mount", "-t", "tmpfs", "tmpfs", "/etc")
	_, errs := p.run(t, 0, "exec", "h0-00", "--", "true")
	combined(t, "umount", "/etc")
	if !strings.Contains(errs, "names of hosts do not resolve") {
		t.Errorf("without %s exec says %q", hostsFile, errs)
	}
	p.run(t, 0, "down")
	t.Logf("%d files were tried, %d of which the machine can write to", tried, can)
}

// withoutHostsNote returns what exec printed without its note on a machine that has no /etc/hosts,
// such as a minimal chroot.
func withoutHostsNote(text string) string {
	if _, err := os.Stat(hostsFile); err == nil {
		return text
	}
	return strings.Replace(text, "note: this machine has no "+hostsFile+": names of hosts do not resolve\n", "", 1)
}

// shape is that of the place's scenario, by the record of testbed lab.
func (p place) shape(t *testing.T) topo.LeafSpine {
	t.Helper()
	e, err := deploy.Find(t.Context(), p.state, "lab")
	if err != nil {
		t.Fatal(err)
	}
	return e.State.Shape
}

// A command ends as it would without testbed: its code, its signal, and the codes that
// shells have for what cannot be run.
func TestExecEndsAsItsCommand(t *testing.T) {
	t.Parallel()
	p := upLab(t)
	text := filepath.Join(p.dir, "trace.txt")
	script := filepath.Join(p.dir, "script")
	if err := os.WriteFile(script, []byte("#!/no/such/interpreter\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		command []string
		code    int
		says    string
	}{
		{"done", []string{"true"}, 0, ""},
		{"its code", []string{"sh", "-c", "exit 7"}, 7, ""},
		{"killed", []string{"sh", "-c", "kill -9 $$"}, 128 + 9, "Killed"},
		{"terminated", []string{"sh", "-c", "kill $$"}, 128 + 15, "Terminated"},
		{"not found", []string{"no-such-command"}, 127, "testbed: exec in h0-00: no-such-command: executable file not found"},
		{"no such file", []string{"./no-such-command"}, 127, "testbed: exec in h0-00: ./no-such-command: no such file"},
		{"below a file", []string{text + "/x"}, 127, "not a directory"},
		{"no interpreter", []string{script}, 127, "no such file"},
		{"not executable", []string{text}, 126, "trace.txt: permission denied"},
		{"directory", []string{p.dir}, 126, "is a directory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			// A shell prints what it makes of the end.
			c := exec.CommandContext(t.Context(), "sh", append([]string{"-c", `testbed "$@"; echo "code $?"`, "sh", "exec", "h0-00", "--"}, tt.command...)...)
			c.Dir, c.Env = p.dir, p.command(t).Env
			var stderr strings.Builder
			c.Stderr = &stderr
			out, err := c.Output()
			errs := withoutHostsNote(stderr.String())
			if err != nil || string(out) != fmt.Sprintf("code %d\n", tt.code) || !strings.Contains(errs, tt.says) || (errs != "") != (tt.says != "") {
				t.Errorf("%v, %q, says %q; want code %d and %q", err, out, errs, tt.code, tt.says)
			}
		})
	}
}

// Standard input, environment, directory, arguments and ignored signals are the command's, as if it
// were started without testbed. With --privileged, so is the process id.
func TestExecHandsEverythingOver(t *testing.T) {
	t.Parallel()
	p := upLab(t)
	var c *exec.Cmd
	for _, flag := range []string{"--privileged=false", "--privileged"} {
		c = p.command(t, "exec", flag, "h0-00", "--", "sh", "-c", `cat; echo "$TESTBED_HOST $SUDO_UID $1 $(pwd) $$"; cat <&3`, "--", "--json")
		c.Env = append(c.Env, "SUDO_UID=1234")
		c.Stdin = strings.NewReader("from standard input\n")
		text, err := os.Open(filepath.Join(p.dir, "trace.txt"))
		if err != nil {
			t.Fatal(err)
		}
		c.ExtraFiles = []*os.File{text}
		out, err := c.Output()
		pid := 2 // the first process of the command's own namespace is testbed's
		if flag == "--privileged" {
			pid = c.Process.Pid
		}
		want := fmt.Sprintf("from standard input\nh0-00 1234 --json %s %d\n", p.dir, pid)
		if got, rest := string(out[:min(len(out), len(want))]), out[min(len(out), len(want)):]; err != nil || got != want || len(rest) == 0 {
			t.Errorf("%s: %v, %q and %d bytes of an open file, want %q", flag, err, got, len(rest), want)
		}
		if err := text.Close(); err != nil {
			t.Fatal(err)
		}
	}
	// As under nohup.
	ignoring := exec.CommandContext(t.Context(), "sh", "-c", `trap "" HUP INT; exec testbed exec h0-00 -- sh -c 'kill -HUP $$; kill -INT $$; echo alive'`)
	ignoring.Dir, ignoring.Env = p.dir, c.Env
	if out, err := ignoring.CombinedOutput(); err != nil || withoutHostsNote(string(out)) != "alive\n" {
		t.Errorf("with signals ignored: %v, %q", err, out)
	}
	// A signal to testbed is one to the command, which decides what it does.
	traps := p.command(t, "exec", "h0-00", "--", "sh", "-c", `trap "echo got it; exit 3" TERM; echo ready; while :; do sleep 0.05; done`)
	stdout, err := traps.StdoutPipe()
	if err == nil {
		err = traps.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	ready := make([]byte, len("ready\n"))
	if _, err := io.ReadFull(stdout, ready); err != nil {
		t.Fatal(err)
	}
	if err := traps.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(stdout)
	_ = traps.Wait() // its code is looked at next
	if code := traps.ProcessState.ExitCode(); err != nil || string(rest) != "got it\n" || code != 3 {
		t.Errorf("%v, %q, code %d", err, rest, code)
	}
}

// terminal starts a command on a new terminal and returns its other end.
func terminal(t *testing.T, c *exec.Cmd) *os.File {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Close() }) // the command's end may have closed it
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	end, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	c.Stdin, c.Stdout, c.Stderr = end, end, end
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := errors.Join(c.Start(), end.Close()); err != nil {
		t.Fatal(err)
	}
	return master
}

// A shell in a host has the terminal: Ctrl-C ends what runs in it and not the shell,
// and jobs are stopped and go on.
func TestShellHasTheTerminal(t *testing.T) {
	p := upLab(t)
	c := p.command(t, "shell", "h0-00")
	c.Env = append(c.Env, "SHELL=/bin/sh", "PS1=", "ENV=")
	tty := terminal(t, c)
	lines := make(chan string)
	go func() {
		defer close(lines)
		var part strings.Builder
		b := make([]byte, 1)
		for {
			if n, err := tty.Read(b); n == 0 || err != nil {
				return // EIO, when the last process has closed it
			}
			if b[0] == '\n' {
				lines <- strings.TrimSpace(part.String())
				part.Reset()
			} else {
				part.WriteByte(b[0])
			}
		}
	}()
	var seen []string
	expect := func(want string) {
		t.Helper()
		limit := time.After(30 * time.Second)
		for {
			select {
			case line, ok := <-lines:
				seen = append(seen, line)
				if line == want {
					return
				}
				if !ok {
					t.Fatalf("the terminal was closed before %q: %q", want, seen)
				}
			case <-limit:
				t.Fatalf("no %q on the terminal: %q; processes %q", want, seen, p.processes(t, "lab"))
			}
		}
	}
	say := func(text string) {
		t.Helper()
		if _, err := tty.WriteString(text); err != nil {
			t.Fatal(err)
		}
	}
	say("stty -echo 2>/dev/null; echo on $(uname -n)\n")
	expect("on h0-00")
	// Signals are sent to a program that runs: a shell between fork and exec may miss them.
	runs := func(command string) {
		t.Helper()
		say(command + "\n")
		until(t, "ps to list "+command, func() bool { return slices.Contains(p.processes(t, "lab"), "h0-00 "+command) })
	}
	runs("sleep 100")
	say("\x03")
	say("echo code $?\n")
	expect("code 130")
	runs("sleep 101")
	say("\x1a")
	say("echo stopped $?\n")
	expect("stopped 148")
	say("kill -CONT %1; kill %1; echo ended\n")
	expect("ended")
	until(t, "the job to end", func() bool { return !slices.Contains(p.processes(t, "lab"), "h0-00 sleep 101") })
	say("jobs\nexit 5\n") // the shell does not exit once while it knows of a stopped job
	go func() {           // what is left on the terminal
		for range lines {
		}
	}()
	_ = c.Wait() // its code is looked at next
	if code := c.ProcessState.ExitCode(); code != 5 {
		t.Errorf("the shell's code is %d, want 5: %q", code, seen)
	}
}
