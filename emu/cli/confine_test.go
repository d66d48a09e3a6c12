package cli

import (
	"bufio"
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
	"golang.org/x/sys/unix"

	"testbed/emu/deploy"
	"testbed/results/tooltest"
)

// writeParameters writes parameters of the kernel: each whole number one higher or lower, as far as
// the kernel takes it, and anything else unchanged. It prints those that it could open.
const writeParameters = `
while read -r f; do
	(exec 3> "$f") 2>/dev/null || continue
	echo "$f"
	{ IFS= read -r v < "$f"; } 2>/dev/null || v=1
	case $v in
	""|*[!0-9]*) echo "$v" > "$f";;
	*) echo $((v + 1)) > "$f" || echo $((v - 1)) > "$f";;
	esac 2>/dev/null
done
true`

// A command in a host writes every parameter of the kernel that it can open: only those of its
// network, and none of the machine's has another value afterwards.
func TestCommandCannotChangeParameters(t *testing.T) {
	t.Parallel()
	p := upLab(t)
	var paths []string
	err := filepath.WalkDir("/proc/sys", func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			paths = append(paths, path)
		}
		return nil // of a device that has gone
	})
	if err != nil {
		t.Fatal(err)
	}
	eth, _ := p.run(t, 0, "exec", "h0-00", "--", "find", "/proc/sys/net", "-type", "f")
	paths = append(paths, strings.Fields(eth)...)
	slices.Sort(paths)
	paths = slices.Compact(paths)
	before := sysctls(t)
	c := p.command(t, "exec", "h0-00", "--", "sh", "-c", writeParameters)
	c.Stdin = strings.NewReader(strings.Join(paths, "\n") + "\n")
	out, err := c.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	after := sysctls(t)
	if diff := cmp.Diff(before, after); diff != "" {
		t.Errorf("parameters of the machine (-before +after):\n%s", diff)
		for path, v := range before { // leave the machine as it was, as far as it goes back
			if after[path] != v {
				if err := os.WriteFile(path, []byte(v), 0); err != nil {
					t.Errorf("%s: %v", path, err)
				}
			}
		}
	}
	written := strings.Fields(string(out))
	for _, path := range written {
		if !strings.HasPrefix(path, "/proc/sys/net/") || strings.HasSuffix(path, "lwtunnel") {
			t.Errorf("a command in a host can write %s", path)
		}
	}
	for _, name := range []string{"ipv4/tcp_congestion_control", "ipv4/conf/eth0/rp_filter", "ipv6/conf/all/forwarding", "core/somaxconn"} {
		if !slices.Contains(written, "/proc/sys/net/"+name) {
			t.Errorf("a command in a host cannot write %s", name)
		}
	}
	t.Logf("%d of %d parameters could be written", len(written), len(paths))
	if len(written) < 200 {
		t.Error("the test tests nothing")
	}
}

// What root could do to the machine, a command in a host cannot, unless it is privileged.
func TestCommandIsConfined(t *testing.T) {
	t.Parallel()
	tooltest.Need(t, "ip", "nsenter", "unshare", "mount")
	p := upLab(t)
	outside := p.start(t, "sleep", "691")
	pin := filepath.Join(p.state, "lab", "ns", "leaf1")
	for name, tt := range map[string]struct {
		command, says string
	}{
		"remount parameters":        {"mount -o remount,bind,rw /proc/sys", "denied"},
		"mount other parameters":    {"mount -t proc proc " + p.dir, "denied"},
		"enter a namespace":         {"nsenter --net=" + pin + " true", "not permitted"},
		"the first process's":       {"nsenter -t 1 -n true", "denied"},
		"make a namespace":          {"unshare -n true", "not permitted"},
		"make a device":             {"mknod " + filepath.Join(p.dir, "null") + " c 1 3", "not permitted"},
		"end the machine's process": {fmt.Sprintf("kill -0 %d", outside.Process.Pid), ""},
		"look into its memory":      {fmt.Sprintf("cat /proc/%d/environ", outside.Process.Pid), "No such file"},
	} {
		t.Run(name, func(t *testing.T) {
			c := p.command(t, "exec", "h0-00", "--", "sh", "-c", tt.command)
			if out, err := c.CombinedOutput(); err == nil || !strings.Contains(string(out), tt.says) {
				t.Errorf("%s: %v, %s", tt.command, err, out)
			}
			if strings.Contains(tt.command, "-t 1 ") {
				return // the machine's first process may be in a container's
			}
			c = p.command(t, "exec", "--privileged", "h0-00", "--", "sh", "-c", tt.command)
			if out, err := c.CombinedOutput(); err != nil {
				t.Errorf("%s with --privileged: %v, %s", tt.command, err, out)
			}
		})
	}
	// Capabilities are missing in the bounding set too: no program can get them back.
	out, _ := p.run(t, 0, "exec", "h0-00", "--", "sh", "-c", `while read -r k v; do case $k in Cap*) echo $k $v;; esac; done < /proc/self/status`)
	for line := range strings.Lines(out) {
		var set string
		var bits uint64
		if _, err := fmt.Sscanf(line, "%s %x", &set, &bits); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		for _, c := range []int{unix.CAP_SYS_MODULE, unix.CAP_SYS_BOOT, unix.CAP_SYS_TIME, unix.CAP_SYS_RAWIO, unix.CAP_MKNOD, unix.CAP_SYS_PTRACE, unix.CAP_BPF, unix.CAP_SYS_ADMIN} {
			if bits>>c&1 == 1 {
				t.Errorf("%s has capability %d", set, c)
			}
		}
		if set == "CapEff:" && (bits>>unix.CAP_NET_ADMIN&1 == 0 || bits>>unix.CAP_NET_RAW&1 == 0) {
			t.Errorf("%s%s", "no rights on the network: ", line)
		}
	}
	// The host's network is the command's to change.
	p.run(t, 0, "exec", "h0-00", "--", "sh", "-c", "ip link set eth0 mtu 1400 && ip addr add 10.9.9.9/32 dev lo")
	table, _ := p.run(t, 0, "exec", "h0-00", "--", "sh", "-c", "ls -d /proc/[0-9]*")
	if n := len(strings.Fields(table)); n > 4 {
		t.Errorf("%d processes in /proc:\n%s", n, table)
	}
}

// A process that leaves the namespaces of its host is listed, and ended with the testbed, which
// leaves no cgroup.
func TestDownEndsProcessesInOtherNamespaces(t *testing.T) {
	t.Parallel()
	tooltest.Need(t, "unshare")
	p := upLab(t)
	e, err := deploy.Find(t.Context(), p.state, "lab")
	if err != nil {
		t.Fatal(err)
	}
	if e.State.Cgroup == "" {
		t.Skip("needs a cgroup hierarchy that can be written")
	}
	private := p.start(t, "testbed", "exec", "--privileged", "h0-00", "--", "unshare", "-n", "sleep", "701")
	p.start(t, "testbed", "exec", "h0-01", "--", "unshare", "-rn", "sleep", "702")
	p.run(t, 0, "exec", "--privileged", "h0-02", "--", "sh", "-c", `setsid unshare -n sh -c 'trap "" TERM HUP; sleep 703; true' </dev/null >/dev/null 2>&1 &`)
	wanted := []string{"h0-00 sleep 701", "h0-01 sleep 702", "h0-02 sleep 703"}
	until(t, "ps to list all", func() bool {
		names := p.processes(t, "lab")
		return !slices.ContainsFunc(wanted, func(w string) bool { return !slices.Contains(names, w) })
	})
	out, _ := p.run(t, 0, "down", "lab", "--grace", "200ms")
	for _, w := range []string{"sleep 701", "sleep 702", "sleep 703"} {
		if !strings.Contains(out, "ended "+w) {
			t.Errorf("down does not end %s: %s", w, out)
		}
	}
	if !gone(private.Process.Pid) {
		t.Error("a process is left")
	}
	if _, err := os.Stat(e.State.Cgroup); err == nil {
		t.Errorf("cgroup %s is left", e.State.Cgroup)
	}
}

// A signal to exec, and one to its process group, reach the command once.
func TestSignalsReachTheCommandOnce(t *testing.T) {
	t.Parallel()
	p := upLab(t)
	c := p.command(t, "exec", "h0-00", "--", "sh", "-c", `trap "echo int" INT; trap "echo usr" USR1; trap "exit 9" TERM; echo ready; while :; do sleep 0.02; done`)
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdout, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(stdout); s.Scan(); {
			lines <- s.Text()
		}
	}()
	expect := func(after, want string) {
		t.Helper()
		select {
		case got := <-lines:
			if got != want {
				t.Fatalf("after %s: %q, want %q", after, got, want)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("nothing after %s", after)
		}
	}
	expect("the start", "ready")
	for _, s := range []struct {
		to     int
		signal syscall.Signal
		want   string
	}{
		{c.Process.Pid, syscall.SIGINT, "int"}, {-c.Process.Pid, syscall.SIGINT, "int"}, {c.Process.Pid, syscall.SIGINT, "int"},
		{-c.Process.Pid, syscall.SIGUSR1, "usr"}, {c.Process.Pid, syscall.SIGUSR1, "usr"},
	} {
		if err := syscall.Kill(s.to, s.signal); err != nil {
			t.Fatal(err)
		}
		expect(fmt.Sprint(s.signal, " to ", s.to), s.want)
		select {
		case extra := <-lines:
			t.Errorf("%v to %d: also %q", s.signal, s.to, extra)
		case <-time.After(100 * time.Millisecond):
		}
	}
	if err := c.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	for range lines { // until its end
	}
	_ = c.Wait() // its code is looked at next
	if code := c.ProcessState.ExitCode(); code != 9 {
		t.Errorf("code %d, want 9", code)
	}
}

// In a chroot whose root is no mount point, commands run as elsewhere, and no mount is left.
func TestExecInAChroot(t *testing.T) {
	t.Parallel()
	tooltest.Need(t, "mount", "chroot")
	program, err := exec.LookPath("testbed")
	if err != nil {
		t.Fatal(err)
	}
	p := upLab(t)
	root := filepath.Join(p.dir, "root")
	var script strings.Builder
	script.WriteString("set -e; mount --make-rprivate /\n") // of a mount namespace that ends with the script
	for _, dir := range []string{"/bin", "/lib", "/lib64", "/usr", "/etc", "/proc", "/sys", "/dev", "/run", "/tmp", filepath.Dir(program), p.state} {
		if info, err := os.Stat(dir); err == nil && info.IsDir() {
			fmt.Fprintf(&script, "mkdir -p %[1]s%[2]s; mount --rbind %[2]s %[1]s%[2]s\n", root, dir)
		}
	}
	script.WriteString("mount --make-rshared /\n") // as on a machine that systemd runs
	before := filepath.Join(p.dir, "before")
	fmt.Fprintf(&script, "sort /proc/self/mountinfo >%s\n", before)
	fmt.Fprintf(&script, "chroot %s %s exec h0-00 -- sh -c 'ls /sys/class/net; uname -n; echo 1 > /proc/sys/kernel/panic || exit 3'; code=$?\n", root, program)
	// Other tests may remove mount points of theirs meanwhile.
	fmt.Fprintf(&script, "! grep -vxFf %s /proc/self/mountinfo && echo \"no further mounts, code $code\"\n", before)
	text := strings.Replace(script.String(), "; code=$?", " || code=$?", 1)
	c := exec.CommandContext(t.Context(), "unshare", "-m", "sh", "-c", text)
	c.Env = append(os.Environ(), deploy.RootEnv+"="+p.state)
	out, err := c.CombinedOutput()
	if want := "eth0\nlo\nh0-00\n"; err != nil || !strings.Contains(string(out), want) || !strings.Contains(string(out), "no further mounts, code 3") {
		t.Errorf("%v\n%s", err, out)
	}
}
