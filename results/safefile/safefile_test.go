package safefile_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"testbed/results/safefile"
	"testbed/results/tooltest"
)

func put(s string) func(io.Writer) error {
	return func(w io.Writer) error {
		_, err := io.WriteString(w, s)
		return err
	}
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// only checks that a directory has no other entries.
func only(t *testing.T, dir string, names ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != len(names) {
		t.Errorf("%s holds %v, want %v", dir, entries, names)
	}
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := safefile.Write(path, put("one")); err != nil || read(t, path) != "one" {
		t.Fatalf("%v", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := safefile.Write(path, put("two")); err != nil || read(t, path) != "two" {
		t.Errorf("%v, %q", err, read(t, path))
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want the previous mode", info.Mode())
	}
	only(t, dir, "a")
}

// Files are never written through a symbolic link, neither an existing one nor one that
// appears while the file is being written.
func TestLinksAreNotFollowed(t *testing.T) {
	dir := t.TempDir()
	target, link := filepath.Join(dir, "target"), filepath.Join(dir, "link")
	if err := os.WriteFile(target, []byte("precious"), 0o644); err != nil {
		t.Fatal(err)
	}
	plant := func() {
		if err := os.Symlink(target, link); err != nil {
			t.Fatal(err)
		}
	}
	plant()
	if err := safefile.Write(link, put("two")); err == nil || !strings.Contains(err.Error(), "it is a symbolic link") {
		t.Errorf("Write through a link: %v", err)
	}
	if _, err := safefile.Create(link); !errors.Is(err, fs.ErrExist) {
		t.Errorf("Create through a link: %v", err)
	}
	if _, err := safefile.OpenFile(link, os.O_RDWR|os.O_CREATE); err == nil || !strings.Contains(err.Error(), "it is a symbolic link") {
		t.Errorf("OpenFile for writing through a link: %v", err)
	}
	only(t, dir, "target", "link")
	if err := os.Remove(link); err != nil {
		t.Fatal(err)
	}
	err := safefile.Write(link, func(w io.Writer) error { plant(); return put("three")(w) })
	if info, statErr := os.Lstat(link); err != nil || statErr != nil || !info.Mode().IsRegular() || read(t, link) != "three" {
		t.Errorf("a link that appears: %v, %v", err, statErr)
	}
	if got := read(t, target); got != "precious" {
		t.Errorf("the target of the link is now %q", got)
	}
	f, err := os.Open(target)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Symlink(target, link+"2"); err != nil {
		t.Fatal(err)
	}
	if b, err := safefile.Read(link + "2"); err != nil || string(b) != "precious" {
		t.Errorf("reading through a link: %v, %q", err, b)
	}
}

// New files and directories have the permissions that the umask allows, at most 0644 and
// 0755.
func TestPermissionsHonourTheUmask(t *testing.T) {
	for umask, want := range map[int][2]fs.FileMode{0: {0o644, 0o755}, 0o022: {0o644, 0o755}, 0o077: {0o600, 0o700}, 0o027: {0o640, 0o750}} {
		dir := t.TempDir()
		func() {
			defer syscall.Umask(syscall.Umask(umask))
			f, err := safefile.Create(filepath.Join(dir, "log"))
			if err == nil {
				err = f.Close()
			}
			if err := errors.Join(err, safefile.WriteData(filepath.Join(dir, "a"), []byte("x")), safefile.MkdirAll(filepath.Join(dir, "d", "e"))); err != nil {
				t.Fatal(err)
			}
		}()
		for name, mode := range map[string]fs.FileMode{"log": want[0], "a": want[0], "d": want[1], "d/e": want[1]} {
			if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != mode {
				t.Errorf("umask %03o: %s has %v (%v), want %v", umask, name, info.Mode().Perm(), err, mode)
			}
		}
	}
}

// With sudo, new files belong to the caller; existing files keep their owner.
func TestOwnersThroughSudo(t *testing.T) {
	tooltest.NeedRoot(t)
	t.Setenv("SUDO_UID", "12345")
	t.Setenv("SUDO_GID", "23456")
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(at("mine"), nil, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(at("other"), nil, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(at("other"), 34567, 45678); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(at("kept"), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := safefile.Create(at("log"))
	if err == nil {
		err = f.Close()
	}
	if err := errors.Join(err, safefile.WriteData(at("new"), nil), safefile.WriteData(at("mine"), nil), safefile.WriteData(at("other"), nil), safefile.MkdirAll(at("kept/d/e"))); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][2]uint32{"log": {12345, 23456}, "new": {12345, 23456}, "kept": {0, 0}, "kept/d": {12345, 23456}, "kept/d/e": {12345, 23456},
		"mine": {0, 0}, "other": {34567, 45678}} {
		info, err := os.Lstat(at(name))
		if err != nil {
			t.Fatal(err)
		}
		if st := info.Sys().(*syscall.Stat_t); [2]uint32{st.Uid, st.Gid} != want {
			t.Errorf("%s belongs to %d:%d, want %v", name, st.Uid, st.Gid, want)
		}
	}
	if info, err := os.Stat(at("other")); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("other has %v, %v", info.Mode(), err)
	}
}

// Paths that are not regular files are refused at once, naming their kind.
func TestOnlyRegularFilesAreOpened(t *testing.T) {
	dir := t.TempDir()
	pipe, socket := filepath.Join(dir, "pipe"), filepath.Join(dir, "socket")
	if err := syscall.Mkfifo(pipe, 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	for path, kind := range map[string]string{pipe: "pipe", socket: "socket", dir: "directory", "/dev/zero": "device", fmt.Sprintf("/dev/fd/%d", r.Fd()): "pipe"} {
		for _, flags := range []int{os.O_RDONLY, os.O_WRONLY, os.O_RDWR} {
			if flags != os.O_RDONLY && strings.HasPrefix(path, "/dev/fd/") {
				continue // a link
			}
			done := make(chan error, 1)
			go func() {
				f, err := safefile.OpenFile(path, flags)
				if err == nil {
					err = errors.Join(errors.New("it was opened"), f.Close())
				}
				done <- err
			}()
			select {
			case err := <-done:
				var at *fs.PathError
				if !errors.Is(err, safefile.ErrNotRegular) || !errors.As(err, &at) || at.Path != path || !strings.Contains(err.Error(), "it is a "+kind) {
					t.Errorf("open %s with flags %d: %v, want a %s", path, flags, err, kind)
				}
			case <-time.After(5 * time.Second):
				t.Fatalf("open %s with flags %d: it blocks", path, flags)
			}
		}
	}
	if _, err := safefile.Read(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such file: %v", err)
	}
	regular := filepath.Join(dir, "regular")
	if err := os.WriteFile(regular, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := safefile.Open(regular)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if flags, _, no := syscall.Syscall(syscall.SYS_FCNTL, f.Fd(), syscall.F_GETFL, 0); no != 0 || flags&syscall.O_NONBLOCK != 0 {
		t.Errorf("flags %#x, %v: want O_NONBLOCK removed", flags, no)
	}
}

// The existing file stays if writing fails.
func TestFailedWriteChangesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := safefile.Write(path, put("one")); err != nil {
		t.Fatal(err)
	}
	bad := errors.New("no more")
	err := safefile.Write(path, func(w io.Writer) error {
		if err := put("half")(w); err != nil {
			return err
		}
		return bad
	})
	if !errors.Is(err, bad) || read(t, path) != "one" {
		t.Errorf("error %v, file %q", err, read(t, path))
	}
	s, err := safefile.Stage(path, put("three"))
	if err != nil || read(t, path) != "one" {
		t.Fatalf("staged: %v, file %q", err, read(t, path))
	}
	if err := s.Discard(); err != nil {
		t.Error(err)
	}
	only(t, dir, "a")
	if err := safefile.Commit(s); err == nil || read(t, path) != "one" {
		t.Errorf("commit of what was discarded: %v, file %q", err, read(t, path))
	}
}

func TestPlacesThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{
		dir:                           "it is a directory",
		filepath.Join(dir, "no", "x"): "there is no directory " + filepath.Join(dir, "no"),
		"/dev/null":                   "it is a device: must be a regular file",
	} {
		if err := safefile.Write(path, put("x")); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("write %s: %v, want %q", path, err, want)
		}
	}
}

// A process that is killed while it writes leaves no temporary file. It runs in another process.
func TestKilledWriterLeavesNothing(t *testing.T) {
	const env = "FILES_TEST_KILLED"
	if dir := os.Getenv(env); dir != "" {
		_ = safefile.Write(filepath.Join(dir, "a"), func(w io.Writer) error { // it never returns
			if err := put("half")(w); err != nil {
				return err
			}
			fmt.Println("writing")
			time.Sleep(time.Minute) // it is killed before
			return nil
		})
		return
	}
	dir := t.TempDir()
	if err := safefile.Write(filepath.Join(dir, "a"), put("before")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledWriterLeavesNothing$")
	cmd.Env = append(os.Environ(), env+"="+dir)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err := errors.Join(err, cmd.Process.Kill()); err != nil || line != "writing\n" {
		t.Fatalf("%q, %v", line, err)
	}
	_ = cmd.Wait() // by the signal
	only(t, dir, "a")
	if got := read(t, filepath.Join(dir, "a")); got != "before" {
		t.Errorf("the file is %q", got)
	}
}

// After Seal no temporary file is left, and none is created or committed. Seal lasts for the
// rest of the process, so the test runs in another process.
func TestSeal(t *testing.T) {
	const env = "FILES_TEST_SEAL"
	dir := os.Getenv(env)
	if dir == "" {
		dir = t.TempDir()
		cmd := exec.Command(os.Args[0], "-test.run=^TestSeal$")
		cmd.Env = append(os.Environ(), env+"="+dir)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		only(t, dir, "done")
		return
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	if err := safefile.Write(at("done"), put("whole")); err != nil {
		t.Fatal(err)
	}
	s, err := safefile.Stage(at("staged"), put("whole"))
	if err != nil {
		t.Fatal(err)
	}
	err = safefile.Write(at("half"), func(w io.Writer) error {
		safefile.Seal()
		return put("half")(w)
	})
	if err == nil {
		t.Error("a file was written after Seal")
	}
	if err := safefile.Commit(s); err == nil {
		t.Error("a file was committed after Seal")
	}
	if err := safefile.Write(at("late"), put("late")); err == nil {
		t.Error("a file was staged after Seal")
	}
}
