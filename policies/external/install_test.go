package external

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"testbed/emu/longtest"
	"testbed/results/tooltest"
)

// pip installs the modules for policies and learning environments; a policy of the examples runs with
// them in an environment that has nothing else.
func TestPythonModules(t *testing.T) {
	longtest.Skip(t, "creates a virtual environment and a wheel, 10 s")
	const packages = "setuptools, ensurepip, pip, venv, wheel" // setuptools replaces what others import
	var builder string                                         // the user's Python may lack what Debian's has
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		if exec.CommandContext(t.Context(), name, "-c", "import "+packages).Run() == nil {
			builder = name
		}
	}
	if builder == "" {
		tooltest.Missing(t, "a Python with "+packages, "python3-venv", "python3-pip", "python3-wheel")
	}
	dir := t.TempDir()
	source, at := filepath.Join(dir, "source"), filepath.Join(dir, "venv")
	if err := os.CopyFS(source, os.DirFS("python")); err != nil { // setuptools writes to it
		t.Fatal(err)
	}
	python := filepath.Join(at, "bin", "python")
	for _, args := range [][]string{
		{builder, "-m", "pip", "wheel", "-q", "--no-index", "--no-build-isolation", "-w", dir, source},
		{builder, "-m", "venv", at},
		{python, "-m", "pip", "install", "-q", "--no-index", "--find-links", dir, "testbed"},
		{python, "-c", "import testbed, testbed_gym; assert testbed.VERSION == 2, testbed.VERSION; testbed_gym.Problem()"},
	} {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%q: %v\n%s", args, err, out)
		}
	}
}
