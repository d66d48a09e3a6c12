package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"testbed/emu/longtest"
)

// report reads the lines of a guest's report.
func report(t *testing.T, lines ...string) *results {
	t.Helper()
	res, err := readReport(strings.NewReader(strings.Join(lines, "\r\n")+"\r\n"), new(bytes.Buffer))
	if err != nil {
		t.Fatal(err)
	}
	return res
}

const (
	boots  = `##testvm {"what":"boot","text":"6.1.0"}`
	begins = `##testvm {"what":"begin","package":"emu/kernel"}`
	ends   = `##testvm {"what":"end","package":"emu/kernel","took":1500000000}`
	done   = `##testvm {"what":"done"}`
	passes = "--- PASS: TestA (0.00s)"
)

func TestReport(t *testing.T) {
	runs := []run{{Package: "emu/kernel"}}
	tests := []struct {
		name  string
		lines []string
		ok    bool
		says  []string // in the summary
	}{
		{"passed", []string{boots, begins, "=== RUN   TestA", passes, "PASS", ends, done}, true,
			[]string{"on Linux 6.1.0", "emu/kernel", "ok", "1.5"}},
		{"failed", []string{boots, begins, passes, "    --- FAIL: TestB/sub (1.00s)", strings.Replace(ends, `"took"`, `"exit":1,"took"`, 1), done}, false,
			[]string{"FAILED emu/kernel TestB/sub"}},
		{"exit code without a failed test", []string{boots, begins, passes, strings.Replace(ends, `"took"`, `"exit":2,"took"`, 1), done}, false,
			[]string{"FAILED emu/kernel: exit code 2"}},
		{"failed test without an exit code", []string{boots, begins, passes, "--- FAIL: TestB (1.00s)", ends, done}, false,
			[]string{"FAILED emu/kernel TestB"}},
		{"killed", []string{boots, begins, passes, strings.Replace(ends, `"took"`, `"exit":-1,"text":"killed after 8m0s","took"`, 1), done}, false,
			[]string{"FAILED emu/kernel: killed after 8m0s"}},
		{"no end of the package", []string{boots, begins, passes}, false,
			[]string{"NO END", "the guest stopped before its end", "FAILED: the guest stopped before all packages were tested"}},
		{"no end of the guest", []string{boots, begins, passes, ends}, false,
			[]string{"FAILED: the guest stopped before all packages were tested"}},
		{"package not run", []string{boots, done}, false, []string{"NOT RUN"}},
		{"nothing tested", []string{boots, begins, "testing: warning: no tests to run", "PASS", ends, done}, false,
			[]string{"no test passed"}},
		{"no boot", []string{`##testvm {"what":"broken","text":"load module veth: exec format error"}`}, false,
			[]string{"FAILED: init: load module veth"}},
		{"nothing at all", nil, false, []string{"NOT RUN", "FAILED: the guest stopped before all packages were tested"}},
		{"skipped, with the last reason", []string{boots, begins, passes, "=== RUN   TestS", "    s_test.go:5: looking", "    s_test.go:7: the kernel lacks it", "--- SKIP: TestS (0.00s)", ends, done}, true,
			[]string{"SKIPPED emu/kernel TestS: the kernel lacks it"}},
		{"skipped, before another subtest", []string{boots, begins, passes, "=== RUN   TestS/a", "    s_test.go:7: the kernel lacks it", "=== RUN   TestS/b", "--- PASS: TestS (0.00s)", "    --- SKIP: TestS/a (0.00s)", "    --- PASS: TestS/b (0.00s)", ends, done}, true,
			[]string{"SKIPPED emu/kernel TestS/a: the kernel lacks it"}},
		{"timing", []string{boots, begins, "=== RUN   TestT", "    t_test.go:5: timing not judged: emulated processors", "    t_test.go:5: timing not judged: emulated processors", "--- PASS: TestT (0.00s)", ends, done}, true,
			[]string{"NOT JUDGED emu/kernel TestT"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			res := report(t, tt.lines...)
			if got := res.ok(runs); got != tt.ok {
				t.Errorf("ok = %v, want %v", got, tt.ok)
			}
			var b strings.Builder
			if err := res.print(&b, runs); err != nil {
				t.Fatal(err)
			}
			for _, want := range tt.says {
				if !strings.Contains(b.String(), want) {
					t.Errorf("the summary lacks %q:\n%s", want, b.String())
				}
			}
			if strings.Contains(b.String(), "\nFAILED") == tt.ok {
				t.Errorf("the summary of one that is ok (%v):\n%s", tt.ok, b.String())
			}
			if n := strings.Count(b.String(), "NOT JUDGED emu"); n > 1 {
				t.Errorf("%d times not judged", n)
			}
		})
	}
}

func TestReportIsRefused(t *testing.T) {
	for _, line := range []string{"##testvm {", ends} {
		if _, err := readReport(strings.NewReader(line+"\n"), new(bytes.Buffer)); err == nil {
			t.Errorf("%q is accepted", line)
		}
	}
}

func TestParse(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "/c")
	s, err := parse(nil)
	if err != nil || s.cache != "/c/testbed/vm" || s.timeout != 32*time.Minute || !slices.Equal(s.names, packages) {
		t.Errorf("parse() = %+v, %v", s, err)
	}
	for _, args := range [][]string{{"-timeout", "0s"}, {"-memory", "16"}, {"-cpus", "0"}, {"-disk", "8"}, {"-disk", "9000000000000"}, {"-package-timeout", "-1s"},
		{"-speed", "4"}, {"-run", "x", "-speed", "17"}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%v is accepted", args)
		}
	}
}

// Without qemu the exit code is exitUnavailable, or 0 if optionalEnv is 1.
func TestWithoutQemu(t *testing.T) {
	longtest.Skip(t, "builds the program, 5 s")
	dir := t.TempDir()
	exe := filepath.Join(dir, "testvm")
	if out, err := exec.Command("go", "build", "-o", exe, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, tt := range []struct {
		optional string
		want     int
	}{{"", exitUnavailable}, {"1", 0}} {
		cmd := exec.CommandContext(t.Context(), exe)
		cmd.Env = []string{"PATH=" + dir, "HOME=" + dir, optionalEnv + "=" + tt.optional}
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		if got := cmd.ProcessState.ExitCode(); got != tt.want || !strings.Contains(string(out), "NOTHING WAS TESTED") || !strings.Contains(string(out), "apt-get install") {
			t.Errorf("%s=%s: exit code %d, want %d\n%s", optionalEnv, tt.optional, got, tt.want, out)
		}
	}
}

// -run can select tests that are skipped by default. The default selections name existing tests.
func TestSelection(t *testing.T) {
	for _, tt := range []struct {
		settings settings
		name     string
		want     string
	}{
		{settings{}, "emu/live", "-test.skip=" + skipTests["emu/live"]},
		{settings{}, "emu/kernel", "-test.skip=" + virtualTests["emu/kernel"]},
		{settings{}, "hosts", "-test.run=Loopback"},
		{settings{}, "emu/runner", "-test.skip=" + skipTests["emu/runner"] + "|" + virtualTests["emu/runner"]},
		{settings{}.judged(), "emu/runner", "-test.run=" + virtualTests["emu/runner"]},
		{settings{run: "Scripts"}, "emu/cli", "-test.run=Scripts"},
		{settings{run: "Scripts", speed: 4}, "emu/cli", "-test.run=Scripts"},
	} {
		if got := tt.settings.selection(tt.name); !slices.Equal(got, []string{tt.want}) {
			t.Errorf("selection(%q) of %+v = %q, want %q", tt.name, tt.settings, got, tt.want)
		}
	}
	s := settings{names: []string{"./emu/kernel", "testbed/emu/live"}}
	if got := s.judged().names; !slices.Equal(got, s.names[:1]) {
		t.Errorf("packages of the pass in virtual time are %q", got)
	}
	for _, patterns := range []map[string]string{onlyTests, skipTests, virtualTests} {
		for name, p := range patterns {
			if !slices.Contains(packages, name) {
				t.Errorf("%s is not in packages", name)
			}
			tests := testsIn(t, name)
			for _, part := range alternatives(p) {
				if !slices.ContainsFunc(tests, regexp.MustCompile(part).MatchString) {
					t.Errorf("%s has no test %q", name, part)
				}
			}
		}
	}
	// Comments name tests too, which may be in any package.
	text, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	all := testsIn(t, ".")
	for _, name := range regexp.MustCompile(`\bTest[A-Z]\w+`).FindAllString(string(text), -1) {
		if !slices.Contains(all, name) {
			t.Errorf("main.go names %s, which does not exist", name)
		}
	}
}

// alternatives returns the patterns of each name in ^Test(A|B)$, or p itself.
func alternatives(p string) []string {
	names, grouped := strings.CutPrefix(p, "^Test(")
	if !grouped {
		return []string{p}
	}
	var out []string
	for name := range strings.SplitSeq(strings.TrimSuffix(names, ")$"), "|") {
		out = append(out, "^Test"+name+"$")
	}
	return out
}

// testsIn returns the names of all tests in and below a directory of the repository.
func testsIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	out, err := exec.Command("grep", "-rhoE", "--include=*_test.go", "^func Test[A-Za-z0-9_]*", filepath.Join("..", "..", dir)).Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		names = append(names, strings.TrimPrefix(strings.TrimSpace(line), "func "))
	}
	return names
}

// The excerpt of a console starts at the first complaint, whose traces explain the others.
func TestConsoleExcerpt(t *testing.T) {
	console := []byte("boot\r\nWARNING: CPU: 0\r\ntrace 1\r\ntrace 2\r\nWARNING: CPU: 1\r\n")
	if got, want := consoleExcerpt(console, 3), "WARNING: CPU: 0\ntrace 1\ntrace 2"; got != want {
		t.Errorf("with complaints: %q, want %q", got, want)
	}
	if got, want := consoleExcerpt([]byte("a\nb\nc\n"), 2), "b\nc"; got != want {
		t.Errorf("without: %q, want %q", got, want)
	}
}

// Packages without a result are those that have not begun, or not ended.
func TestWithoutResult(t *testing.T) {
	runs := []run{{Package: "a"}, {Package: "b"}, {Package: "c"}}
	res := &results{Outcomes: []*outcome{{Package: "a", Ended: true}, {Package: "b"}}}
	if got := res.without(runs); len(got) != 2 || got[0].Package != "b" || got[1].Package != "c" {
		t.Errorf("without a result: %+v, want b and c", got)
	}
	if got := (*results)(nil).without(runs); len(got) != 3 {
		t.Errorf("of no report: %+v, want all", got)
	}
}

func TestWatchConsole(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		console := filepath.Join(t.TempDir(), "console")
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		go watchConsole(ctx, cancel, console)
		for n := 1; n <= maxLockups; n++ {
			if ctx.Err() != nil {
				t.Fatalf("ended after %d lockups, want %d", n-1, maxLockups)
			}
			text := strings.Repeat("[ 1.0] watchdog: "+lockupSign+" - CPU#0 stuck for 26s!\n", n)
			if err := os.WriteFile(console, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
		if ctx.Err() == nil {
			t.Errorf("not ended after %d lockups", maxLockups)
		}
	})
}
