package files_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"testbed/results/files"
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

// only checks that nothing else is left in a directory.
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
	if err := files.Write(path, put("one")); err != nil || read(t, path) != "one" {
		t.Fatalf("%v", err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink("a", link); err != nil {
		t.Fatal(err)
	}
	if err := files.Write(link, put("two")); err != nil || read(t, path) != "two" {
		t.Errorf("through a link: %v, %q", err, read(t, path))
	}
	if info, err := os.Lstat(link); err != nil || info.Mode().Type() != os.ModeSymlink {
		t.Errorf("the link is %v, %v", info.Mode(), err)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, want that of before", info.Mode())
	}
	only(t, dir, "a", "link")
}

// What was there stays where writing fails.
func TestFailedWriteChangesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a")
	if err := files.Write(path, put("one")); err != nil {
		t.Fatal(err)
	}
	bad := errors.New("no more")
	err := files.Write(path, func(w io.Writer) error {
		if err := put("half")(w); err != nil {
			return err
		}
		return bad
	})
	if !errors.Is(err, bad) || read(t, path) != "one" {
		t.Errorf("error %v, file %q", err, read(t, path))
	}
	s, err := files.Stage(path, put("three"))
	if err != nil || read(t, path) != "one" {
		t.Fatalf("staged: %v, file %q", err, read(t, path))
	}
	if err := s.Discard(); err != nil {
		t.Error(err)
	}
	only(t, dir, "a")
}

func TestPlacesThatCannotBeWritten(t *testing.T) {
	dir := t.TempDir()
	for path, want := range map[string]string{
		dir:                           "it is a directory",
		filepath.Join(dir, "no", "x"): "there is no directory " + filepath.Join(dir, "no"),
		"/dev/null":                   "it is no regular file",
	} {
		if err := files.Write(path, put("x")); err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) {
			t.Errorf("write %s: %v, want %q", path, err, want)
		}
	}
}
