package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

// Modules of a dependency graph are loaded after their dependencies.
func TestInOrder(t *testing.T) {
	needs := map[string][]string{"a": {"b", "c"}, "b": {"c"}, "c": nil, "d": {"builtin", "a"}, "x": {"y"}, "y": {"x"}}
	read := func(name string) (*module, []string, error) {
		if name == "builtin" {
			return nil, nil, nil
		}
		n, ok := needs[name]
		if !ok {
			return nil, nil, fmt.Errorf("no module %s", name)
		}
		return &module{name: name}, n, nil
	}
	order, err := inOrder([]string{"d", "a", "x"}, read)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range order {
		names = append(names, m.name)
	}
	if diff := cmp.Diff([]string{"c", "b", "a", "d", "y", "x"}, names); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	needs["a"] = []string{"gone"}
	if _, err := inOrder([]string{"d"}, read); err == nil || !strings.Contains(err.Error(), "a needs it: no module gone") {
		t.Errorf("a missing module: %v", err)
	}
}

// The archive is read back by an independent reader of the format.
func TestImage(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"keep/a.txt": "text", "keep/b.go": "package b", "skip/c.txt": "c"} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	im := &Image{files: map[string]entry{}}
	err := im.CopyTree("/src", dir, func(rel string, d os.DirEntry) bool { return rel != "skip" && filepath.Ext(rel) != ".go" })
	if err != nil {
		t.Fatal(err)
	}
	im.Text("/etc/odd", "12345")
	im.Text("/etc/empty", "")
	im.add("/dev/console", entry{mode: modeDevice | 0o600, major: 5, minor: 1})
	var b bytes.Buffer
	if err := im.write(&b); err != nil {
		t.Fatal(err)
	}
	want := []string{"dev 40755", "dev/console 20600 5:1", "etc 40755", "etc/empty 100644", `etc/odd 100644 "12345"`, "src 40755", "src/keep 40755", `src/keep/a.txt 100640 "text"`}
	if diff := cmp.Diff(want, unarchive(t, b.Bytes())); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// unarchive reads an archive as in the kernel's documentation of initramfs: thirteen numbers
// of eight digits, a name and a file, each padded to a multiple of four bytes.
func unarchive(t *testing.T, b []byte) (files []string) {
	t.Helper()
	at := 0
	take := func(n int) []byte {
		if at+n > len(b) {
			t.Fatalf("the archive ends at %d", at)
		}
		at += n
		return b[at-n : at]
	}
	for {
		at = (at + 3) &^ 3
		if magic := string(take(6)); magic != "070701" {
			t.Fatalf("magic %q at %d", magic, at-6)
		}
		var f [13]int
		for i := range f {
			if _, err := fmt.Sscanf(string(take(8)), "%x", &f[i]); err != nil {
				t.Fatal(err)
			}
		}
		name := strings.TrimSuffix(string(take(f[11])), "\x00")
		at = (at + 3) &^ 3
		data := string(take(f[6]))
		if name == "TRAILER!!!" {
			return files
		}
		text := fmt.Sprintf("%s %o", name, f[1])
		if f[9] != 0 {
			text += fmt.Sprintf(" %d:%d", f[9], f[10])
		}
		if data != "" {
			text += fmt.Sprintf(" %q", data)
		}
		files = append(files, text)
	}
}

func TestLibraries(t *testing.T) {
	const ldd = "\tlinux-vdso.so.1 (0x00007ffd)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n"
	if got, want := libraries(ldd), []string{"/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"}; !slices.Equal(got, want) {
		t.Errorf("libraries = %v, want %v", got, want)
	}
}

// A program comes with the libraries it needs, whether it is the first process or not: a guest has no others.
func TestLinked(t *testing.T) {
	sh, err := LookProgram("sh")
	if err != nil {
		t.Fatal(err)
	}
	out, _ := exec.Command("ldd", sh).Output() // fails for a static one
	im, err := NewImage(sh)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append(libraries(string(out)), initPath) {
		if _, there := im.files[name]; !there {
			t.Errorf("no %s in the image", name)
		}
	}
}

// A package that does not exist makes the kernel Unavailable.
func TestNoSuchKernel(t *testing.T) {
	_, err := Fetch(context.Background(), "/no/such/kernel.deb", t.TempDir(), t.Logf)
	var none Unavailable
	if !errors.As(err, &none) {
		t.Errorf("Fetch of a missing package: %v", err)
	}
}

// A machine in virtual time takes neither times nor random numbers of the host.
func TestArguments(t *testing.T) {
	m := Machine{Kernel: Kernel{Image: "/boot/vmlinuz"}, Memory: 512, Processors: 2, Console: "/tmp/console", Args: []string{"-more"}}
	if got := strings.Join(m.arguments(), " "); !strings.Contains(got, "-smp 2") || !strings.Contains(got, "tsc=reliable") || strings.Contains(got, "icount") || strings.Contains(got, "virtio-serial") || !strings.HasSuffix(got, " -more") {
		t.Errorf("in real time: %s", got)
	}
	m.Virtual, m.Speed, m.Ports = true, 3, make([]*os.File, 2)
	got := strings.Join(m.arguments(), " ")
	for _, want := range []string{
		"-smp 1", "tcg,thread=single", "shift=0,sleep=off,align=off,rr=record,rrfile=/dev/null", "-rdrand,-rdseed", "-seed 1", "clock=vm",
		"tsc_early_khz=3000000 tsc=reliable", "-machine microvm,acpi=on,pit=off,pic=off",
		"nokaslr random.trust_cpu=off", "virtio-serial-pci,ioeventfd=off", "path=/proc/self/fd/5,append=on -device virtserialport,nr=2,chardev=port1",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("in virtual time: %s lacks %q", got, want)
		}
	}
}

// callerEnv makes TestEndsWithItsCaller the caller of a guest.
const callerEnv = "GUEST_CALLER"

// A guest ends with its caller, even with one that is killed, and no file of it is left.
func TestEndsWithItsCaller(t *testing.T) {
	k, err := Find(t.Context(), "")
	if _, err2 := Look(); err != nil || err2 != nil {
		t.Skip(errors.Join(err, err2))
	}
	dir, called := os.LookupEnv(callerEnv)
	if !called {
		dir = t.TempDir()
	}
	im, err := NewImage(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	m := Machine{Kernel: k, Image: im, Memory: 512, Virtual: true, Speed: 1, Console: "/dev/null", Args: []string{"-pidfile", filepath.Join(dir, "pid")}}
	if called {
		t.Fatal(m.Run(t.Context()))
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the test ends it")
	go func() { cancel(errors.Join(why, AwaitFile(filepath.Join(dir, "pid"), time.Minute))) }()
	if err := m.Run(ctx); !errors.Is(err, why) {
		t.Errorf("cancelled: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "pid")); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	caller := exec.Command(os.Args[0], "-test.run=^TestEndsWithItsCaller$")
	caller.Env = append(os.Environ(), callerEnv+"="+dir)
	if err := caller.Start(); err != nil {
		t.Fatal(err)
	}
	if err := AwaitFile(filepath.Join(dir, "pid"), time.Minute); err != nil {
		t.Fatal(err)
	}
	var pid int
	for deadline := time.Now().Add(time.Minute); pid == 0; time.Sleep(10 * time.Millisecond) { // the file is empty at first
		b, err := os.ReadFile(filepath.Join(dir, "pid"))
		if pid, _ = strconv.Atoi(strings.TrimSpace(string(b))); err != nil || time.Now().After(deadline) {
			t.Fatalf("no process of the guest in %q: %v", b, err)
		}
	}
	// An interrupt of the terminal reaches the group of the caller.
	if group, err := unix.Getpgid(pid); err != nil || group != pid {
		t.Errorf("the guest is in group %d, want one of its own, %d (%v)", group, pid, err)
	}
	if err := caller.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = caller.Wait() // it was killed
	state := fmt.Sprintf("/proc/%d/stat", pid)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(state)
		if err != nil || strings.Contains(string(text), ") Z ") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the guest outlives its caller: %s", text)
		}
	}
}

// The first process of a container is not that of a guest.
func TestOutsideOfAGuest(t *testing.T) {
	First() // returns
	if Inside() {
		t.Errorf("%s is set", insideEnv)
	}
}
