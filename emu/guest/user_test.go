package guest

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A kernel of user-mode Linux is a program; without the mode in which processing takes no time it is refused.
func TestUserModeKernel(t *testing.T) {
	dir := t.TempDir()
	kernel := func(name, script string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
		return file
	}
	file := kernel("linux", `[ $1 = --version ] && echo 7.2.13 || echo "time-travel=inf-cpu"`)
	t.Setenv(Env, file)
	for _, ask := range []string{file, ""} {
		if k, err := Find(t.Context(), ask); err != nil || !UserMode(ask) || !k.UserMode || k.Image != file || k.Release != "7.2.13" {
			t.Errorf("Find(%q) = %+v, %v", ask, k, err)
		}
	}
	if UserMode(dir) || UserMode(kernel("linux.deb", "")) || UserMode(filepath.Join(dir, "none")) {
		t.Error("a directory, a package or nothing is a kernel of user-mode Linux")
	}
	for name, why := range map[string]string{
		kernel("stock", "echo 6.1"): "make uml-kernel",
		kernel("other", "exit 3"):   "is no kernel of user-mode Linux",
	} {
		if _, err := Find(t.Context(), name); !errors.As(err, &Unavailable{}) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want %q", name, err, why)
		}
	}
}

// The files of ports are below the directory in which the kernel runs, so that names of directories are not in its
// arguments.
func TestUserModeArguments(t *testing.T) {
	m := Machine{Memory: 500}
	if got := m.userModeArguments(); slices.ContainsFunc(got, func(a string) bool { return strings.HasPrefix(a, "hostfs") }) {
		t.Errorf("files of the host without ports: %v", got)
	}
	for _, name := range []string{"a", "b"} {
		f, err := os.Create(filepath.Join(t.TempDir(), name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		m.Ports = append(m.Ports, f)
	}
	got := m.userModeArguments()
	for _, want := range []string{"mem=500M", infinitelyFast, "time-travel-start=1767225600000000000", "hostfs=/proc/self/cwd", "testbed.ports=a,b"} {
		if !slices.Contains(got, want) {
			t.Errorf("arguments %v, want %s", got, want)
		}
	}
}
