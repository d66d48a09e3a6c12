package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"testbed/emu/cli"
	"testbed/emu/longtest"
)

// make install writes the program, man pages and completions, which work, and make
// uninstall removes all of them and nothing else.
func TestInstall(t *testing.T) {
	longtest.Skip(t, "builds and installs the program, 8 s")
	dest := t.TempDir()
	mk := func(target string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "make", "-s", target, "DESTDIR="+dest, "PREFIX=/usr", "OUT="+filepath.Join(dest, "build"))
		cmd.Env = slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "MAKE") || strings.HasPrefix(e, "MFLAGS") })
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("make %s: %v\n%s", target, err, out)
		}
		return string(out)
	}
	other := filepath.Join(dest, "usr", "share", "man", "man1", "testbed-other.1")
	if err := os.MkdirAll(filepath.Dir(other), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(other, []byte("of another package\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	mk("all")
	mk("install")
	installsWithoutGo(t, dest)
	program := filepath.Join(dest, "usr", "bin", "testbed")
	run := func(name string, args ...string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
		if err != nil {
			t.Errorf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	version := strings.Fields(run(program, "version"))[1]
	if version != cli.Release && !strings.HasPrefix(version, cli.Release+"+") || strings.Contains(version, "unknown") {
		t.Errorf("the installed program is version %q, want %s or %s+COMMIT", version, cli.Release, cli.Release)
	}

	share := func(path string) string { return filepath.Join(dest, "usr", "share", path) }
	for path, begins := range map[string]string{
		"bash-completion/completions/testbed":    "# bash completion V2 for testbed",
		"zsh/site-functions/_testbed":            "#compdef testbed",
		"fish/vendor_completions.d/testbed.fish": "# fish completion for testbed",
		"testbed/installed":                      "/usr/bin/testbed\n",
		"man/man1/testbed-trace-simulate.1":      `.nh`,
		"man/man1/testbed-completion-bash.1":     `.nh`,
		"man/man1/testbed-workload-info.1":       `.nh`,
	} {
		if text := read(t, share(path)); !strings.HasPrefix(text, begins) {
			t.Errorf("%s begins with %.40q, want %q", path, text, begins)
		}
	}
	for _, c := range append(cli.Command().Commands(), cli.Command()) {
		if c.Name() == "help" || c.Hidden {
			continue
		}
		page := read(t, share("man/man1/"+strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"))
		for _, part := range []string{".TH \"TESTBED\" \"1\"", "\"testbed " + version + "\"", ".SH NAME", ".SH SYNOPSIS", ".SH DESCRIPTION", ".SH OPTIONS"} {
			if !strings.Contains(page, part) {
				t.Errorf("the man page of %s has no %s", c.CommandPath(), part)
			}
		}
	}
	if _, err := exec.LookPath("man"); err == nil {
		if text := run("man", "-l", share("man/man1/testbed-run.1")); !strings.Contains(text, "testbed run SCENARIO") {
			t.Errorf("man shows no usage of testbed run:\n%s", text)
		}
	} else {
		t.Log("man is not installed: the pages are checked as text only")
	}

	// What the completion scripts call, and the script itself in bash.
	if out := run(program, "__complete", "trace", "si"); !strings.HasPrefix(out, "simulate\t") {
		t.Errorf("testbed trace si completes to %q", out)
	}
	if out := run(program, "__complete", "run", "--warn"); !strings.HasPrefix(out, "--warn-load\t") {
		t.Errorf("testbed run --warn completes to %q", out)
	}
	if _, err := exec.LookPath("bash"); err == nil {
		// The script calls this function of the package bash-completion, and a builtin that works
		// only while the user completes.
		script := `_get_comp_words_by_ref() { words=("${COMP_WORDS[@]}"); cword=1; cur=${words[1]}; prev=${words[0]}; }
			compopt() { :; }; COMP_TYPE=9; source "$1"; COMP_WORDS=("$2" workl); __start_testbed; printf '%s\n' "${COMPREPLY[@]}"`
		if out := run("bash", "-c", script, "bash", share("bash-completion/completions/testbed"), program); strings.TrimSpace(out) != "workload" {
			t.Errorf("bash completes workl to %q", out)
		}
	}

	mk("uninstall")
	var left []string
	err := filepath.WalkDir(filepath.Join(dest, "usr"), func(path string, e fs.DirEntry, err error) error {
		if err == nil && !e.IsDir() && path != other {
			left = append(left, path)
		}
		return err
	})
	if err != nil || len(left) > 0 {
		t.Errorf("after make uninstall: %v %v", left, err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("make uninstall removed a file of another package: %v", err)
	}
}

// installsWithoutGo installs what was built with the PATH of sudo, which may have no go, and nothing
// is compiled again. Where nothing is built, the error states the remedy, also with go in the PATH.
func installsWithoutGo(t *testing.T, dest string) {
	const path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
	install := func(out string) (string, error) {
		cmd := exec.CommandContext(t.Context(), "make", "-s", "install", "DESTDIR="+t.TempDir(), "OUT="+out)
		cmd.Env = []string{path}
		text, err := cmd.CombinedOutput()
		return string(text), err
	}
	built := filepath.Join(dest, "build", "testbed")
	before, err := os.Stat(built)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := install(filepath.Dir(built)); err != nil || !strings.Contains(out, "installed ") {
		t.Errorf("make install with %s: %v\n%s", path, err, out)
	}
	if after, err := os.Stat(built); err != nil || !os.SameFile(before, after) || !after.ModTime().Equal(before.ModTime()) {
		t.Errorf("make install has built %s again (%v)", built, err)
	}
	out, err := install(filepath.Join(t.TempDir(), "empty"))
	if err == nil || !strings.Contains(out, "is not built: run make first") {
		t.Errorf("make install without a build: %v\n%s", err, out)
	}
}

// README.md names the Go of go.mod.
func TestReadmeNamesGo(t *testing.T) {
	for line := range strings.Lines(read(t, "go.mod")) {
		if version, ok := strings.CutPrefix(strings.TrimSpace(line), "go "); ok {
			if want := "Go " + strings.TrimSuffix(version, ".0") + " from [go.dev/dl]"; !strings.Contains(read(t, "README.md"), want) {
				t.Errorf("README.md does not state %q", want)
			}
			return
		}
	}
	t.Error("go.mod states no version of Go")
}
