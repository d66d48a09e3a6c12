package cli

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"testbed/emu/longtest"
	"testbed/results/pcap"
	"testbed/results/tooltest"
)

// testbed runs a command line within a time and returns its exit code and what it
// printed.
func call(t *testing.T, limit time.Duration, stdin io.Reader, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	done := make(chan int, 1)
	go func() { done <- Main(context.Background(), args, stdin, &out, &errs) }()
	select {
	case code := <-done:
		return code, out.String(), errs.String()
	case <-time.After(limit):
		t.Fatalf("testbed %s: no end within %v", strings.Join(args, " "), limit)
		return 0, "", ""
	}
}

// simulatedRun is the directory of a simulation of the quickstart.
func simulatedRun(t *testing.T) string {
	t.Helper()
	out := t.TempDir()
	if code, _, errs := call(t, time.Minute, nil, "sim", "-q", "--out", out, "../../scripts/quickstart/scenario.yaml"); code != 0 {
		t.Fatalf("sim: exit code %d\n%s", code, errs)
	}
	runs, err := filepath.Glob(filepath.Join(out, "*-*"))
	if err != nil || len(runs) != 1 {
		t.Fatalf("%v, %v", runs, err)
	}
	return runs[0]
}

// A named pipe at the place of any file that a verb reads is refused at once: the verb
// names the file and does not wait for a writer.
func TestNamedPipesAreRefused(t *testing.T) {
	run := simulatedRun(t)
	scenario := filepath.Join(run, "scenario.yaml")
	pipe := filepath.Join(t.TempDir(), "pipe.pcap")
	mkfifo := func(path string) {
		t.Helper()
		if err := syscall.Mkfifo(path, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	mkfifo(pipe)
	refused := func(file, says string, args ...string) {
		t.Helper()
		code, out, errs := call(t, 10*time.Second, nil, args...)
		if code == 0 || !strings.Contains(errs, "it is a pipe") || !strings.Contains(errs, filepath.Base(file)) && !strings.Contains(errs, "…: it is a pipe") || !strings.Contains(errs, says) {
			t.Errorf("testbed %s: exit code %d\n%s%s", strings.Join(args, " "), code, out, errs)
		}
	}
	const hint = "hint: to read a pipe, name standard input, -"
	out := filepath.Join(t.TempDir(), "out.txt")
	for _, args := range [][]string{{"validate", pipe}, {"plan", pipe}, {"sim", pipe}, {"graph", pipe}, {"workload", "generate", pipe, "-o", out}} {
		refused(pipe, "", args...)
	}
	for _, args := range [][]string{{"trace", "info", pipe}, {"trace", "convert", pipe, "-o", out}, {"trace", "scale", pipe, "-o", out}, {"trace", "filter", pipe, "-o", out},
		{"trace", "derive", pipe, "-o", out, "--kind", "wide"}, {"trace", "simulate", pipe}, {"workload", "info", pipe}, {"pcap", pipe}} {
		refused(pipe, hint, args...)
	}
	for _, args := range [][]string{{"trace", "generate", "-o", pipe, "--coflows", "10", "--force"}, {"trace", "simulate", filepath.Join(run, "traces/coflows.txt"), "--coflows", pipe},
		{"graph", scenario, "-o", pipe, "--format", "dot"}, {"plot", run, "--figure", "cct-cdf", "-o", pipe, "--format", "svg"}} {
		refused(pipe, "write ", args...)
	}
	t.Setenv("TESTBED_CALIBRATION", pipe)
	refused(pipe, "", "plan", "../../scripts/quickstart/scenario.yaml")
	t.Setenv("TESTBED_CALIBRATION", "")

	// Each file of a run that a verb reads.
	for file, verbs := range map[string][][]string{
		"manifest.json":            {{"compare", run}, {"replay", run}, {"plot", run, "--figure", "cct-cdf", "-o", filepath.Join(t.TempDir(), "a.svg")}, {"export", run, "--csv", "--table", "coflows"}},
		"summary.json":             {{"compare", run}},
		"coflows.csv":              {{"compare", run}},
		"scenario.yaml":            {{"replay", run}},
		"traces/coflows.txt":       {{"validate", scenario}, {"replay", run}},
		"fair+hdfs/0/events.jsonl": {{"replay", run}},
	} {
		path := filepath.Join(run, file)
		if err := os.Rename(path, path+".kept"); err != nil {
			t.Fatal(err)
		}
		mkfifo(path)
		for _, args := range verbs {
			refused(path, "", args...)
		}
		if err := os.Rename(path+".kept", path); err != nil {
			t.Fatal(err)
		}
	}
	captures := filepath.Join(t.TempDir(), "arm", "0", "captures")
	if err := os.MkdirAll(captures, 0o755); err != nil {
		t.Fatal(err)
	}
	mkfifo(filepath.Join(captures, "h0-00.pcapng"))
	refused("h0-00.pcapng", "", "report", filepath.Join(captures, "../../.."))
	refused("h0-00.pcapng", "", "pcap", filepath.Join(captures, "../../.."))

	// Files of the state of testbeds.
	for _, name := range []string{".lock", "left/lock", "left/state.json"} {
		state := t.TempDir()
		if err := os.Mkdir(filepath.Join(state, "left"), 0o755); err != nil {
			t.Fatal(err)
		}
		mkfifo(filepath.Join(state, name))
		for _, args := range [][]string{{"ps"}, {"inspect"}, {"down", "left"}, {"gc"}} {
			args = append(args, "--state-dir", state)
			code, out, errs := call(t, 10*time.Second, nil, args...)
			// A record that cannot be read is that of a process that was killed.
			unread := name == "left/state.json" && (args[0] == "ps" || args[0] == "inspect")
			if all := out + errs; !unread && (code == 0 || !strings.Contains(all, "it is a pipe")) && os.Geteuid() == 0 {
				t.Errorf("testbed %s with a pipe at %s: exit code %d\n%s", strings.Join(args, " "), name, code, all)
			}
		}
	}
}

// A pipe can be read as standard input.
func TestStandardInputCanBeAPipe(t *testing.T) {
	var trace bytes.Buffer
	if code := Main(t.Context(), []string{"trace", "generate", "--coflows", "20", "-o", "-"}, nil, &trace, io.Discard); code != 0 {
		t.Fatal("trace generate: exit code ", code)
	}
	var capture bytes.Buffer
	w, err := pcap.NewWriter(&capture, pcap.Meta{Host: "h0-00"}, []pcap.Interface{{Name: "eth0"}})
	if err == nil {
		err = w.Close(pcap.Stats{})
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args  []string
		input []byte
		says  string
	}{
		{[]string{"trace", "info", "-"}, trace.Bytes(), "standard input"},
		{[]string{"pcap", "-"}, capture.Bytes(), "capture     -"},
	} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, _ = w.Write(c.input)
			_ = w.Close()
		}()
		code, out, errs := call(t, 10*time.Second, r, c.args...)
		if code != 0 || !strings.Contains(out, c.says) {
			t.Errorf("testbed %s: exit code %d\n%s%s", strings.Join(c.args, " "), code, out, errs)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// Through sudo a run belongs to the caller, with the directories above it that the run
// made and no other, and no file of it is writable for others, whatever the umask.
func TestRunsBelongToTheCaller(t *testing.T) {
	tooltest.NeedRoot(t)
	t.Setenv("SUDO_UID", "12345")
	t.Setenv("SUDO_GID", "23456")
	for umask, most := range map[int]os.FileMode{0: 0o755, 0o077: 0o700} {
		dir := t.TempDir()
		old := syscall.Umask(umask)
		code, _, errs := call(t, time.Minute, nil, "sim", "-q", "--out", filepath.Join(dir, "new", "runs"), "../../scripts/quickstart/scenario.yaml")
		syscall.Umask(old)
		if code != 0 {
			t.Fatalf("sim: exit code %d\n%s", code, errs)
		}
		n := 0
		err := filepath.WalkDir(filepath.Join(dir, "new"), func(path string, e os.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			n++
			if st := info.Sys().(*syscall.Stat_t); st.Uid != 12345 || st.Gid != 23456 || info.Mode().Type() != os.ModeSymlink && info.Mode().Perm()&^most != 0 {
				t.Errorf("umask %03o: %s has %v and belongs to %d:%d", umask, path, info.Mode(), st.Uid, st.Gid)
			}
			return nil
		})
		if err != nil || n < 30 {
			t.Errorf("%d files and directories, %v: want 30 or more", n, err)
		}
		if info, err := os.Stat(dir); err != nil || info.Sys().(*syscall.Stat_t).Uid != 0 {
			t.Errorf("the directory that was there has been given away: %v", err)
		}
	}
}

// A command whose output cannot be written fails, for every kind of output.
func TestOutputThatCannotBeWritten(t *testing.T) {
	t.Parallel()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	run := simulatedRun(t)
	trace := filepath.Join(run, "traces/coflows.txt")
	for _, args := range [][]string{{"--help"}, {"help", "run"}, {"trace", "--help"}, {"trace"}, {}, {"completion", "bash"}, {"__complete", "trace", ""}, {"version"}, {"version", "--json"}, {"schema"},
		{"compare", run}, {"compare", run, "--json"}, {"compare", run, "--csv"}, {"plot", "--list"}, {"export", "--list"}, {"export", run, "--csv", "--table", "coflows"},
		{"validate", filepath.Join(run, "scenario.yaml")}, {"plan", filepath.Join(run, "scenario.yaml")}, {"graph", filepath.Join(run, "scenario.yaml")}, {"replay", run},
		{"trace", "info", trace}, {"trace", "info", trace, "--json"}, {"trace", "convert", trace, "-o", "-"}, {"trace", "simulate", trace}, {"workload", "generate", filepath.Join(run, "scenario.yaml"), "-o", "-"},
		{"ps", "--json", "--state-dir", t.TempDir()}} {
		var errs bytes.Buffer
		if code := Main(t.Context(), args, nil, full, &errs); code != exitFailure || strings.Count(errs.String(), "no space left on device") != 1 {
			t.Errorf("testbed %s > /dev/full: exit code %d\n%s", strings.Join(args, " "), code, errs.String())
		}
	}
}

// An error repeats at most the beginning of what was given, in quotes, be it an
// argument, a value in a scenario or a line of a file that is no trace.
func TestErrorsRepeatLittle(t *testing.T) {
	t.Parallel()
	longtest.Computes(t)
	dir := t.TempDir()
	long := strings.Repeat("9", 100000)
	file := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	trace := file("trace.txt", "2 1\n1 0 1 0 1 1:1\n")
	scenario := func(name, old, new string) string {
		t.Helper()
		text, err := os.ReadFile("../../scripts/quickstart/scenario.yaml")
		if err != nil {
			t.Fatal(err)
		}
		changed := strings.Replace(string(text), old, new, 1)
		if changed == string(text) {
			t.Fatalf("the quickstart has no %q", old)
		}
		return file(name, changed)
	}
	for _, args := range [][]string{
		{"trace", "simulate", trace, "--rate", long + "Mbps"}, {"trace", "simulate", trace, "--rate", long}, {"trace", "simulate", trace, "-p", long}, {"trace", "simulate", trace, "-p", "aalo:interval=" + long},
		{"trace", "simulate", trace, "-p", "aalo:" + long + "=1"}, {"trace", "simulate", trace, "--base", long}, {"trace", "simulate", trace, "--mb", long}, {"trace", "simulate", trace, "--first", long},
		{"trace", "info", trace, "--per-mb", long}, {"trace", "info", trace, "--from", long}, {"trace", "scale", trace, "-o", "-", "--size-factor", long}, {"trace", "filter", trace, "-o", "-", "--ids", long},
		{"trace", "filter", trace, "-o", "-", "--arrival", long}, {"trace", "filter", trace, "-o", "-", "--min-size", long}, {"trace", "generate", "-o", "-", "--seed", long}, {"trace", long}, {long},
		{"trace", "info", file("digits", long+"\n")}, {"trace", "info", file("words", strings.Repeat(long+" ", 9)+"\n")}, {"trace", "info", file("x.cm", "Nodes "+long+"\n")}, {"workload", "info", file("w", long)},
		{"workload", "info", file("w2", "testbed-workload 1\nfabric racks="+long[:3000]+" hosts=1\n")},
		{"sim", "../../scripts/quickstart/scenario.yaml", "--set", long}, {"sim", "../../scripts/quickstart/scenario.yaml", "--set", "seed=" + long}, {"sim", "../../scripts/quickstart/scenario.yaml", "--check-scale=" + long},
		{"validate", scenario("rate.yaml", "write: 3.4", "write: "+long)}, {"validate", scenario("name.yaml", "fabric:", long+":")}, {"validate", scenario("policy.yaml", "fair", long)},
		{"pcap", trace, "--sort", long}, {"pcap", trace, "--limit", long}, {"compare", dir, "--baseline", long}, {"plot", dir, "--figure", long, "-o", "x.svg"}, {"graph", trace, "--format", long},
	} {
		var out, errs bytes.Buffer
		code := Main(t.Context(), args, nil, &out, &errs)
		for _, run := range strings.FieldsFunc(errs.String(), func(r rune) bool { return r != '9' }) {
			if len(run) > 60 {
				t.Errorf("testbed %.70s: it repeats %d digits:\n%.300s", strings.Join(args, " "), len(run), errs.String())
				break
			}
		}
		if code == 0 || errs.Len() == 0 || errs.Len() > 5000 {
			t.Errorf("testbed %.70s: exit code %d, %d bytes of errors", strings.Join(args, " "), code, errs.Len())
		}
	}
}

// A byte order mark at the beginning of a file, as editors on Windows write it, is not
// content.
func TestByteOrderMark(t *testing.T) {
	dir := t.TempDir()
	const trace = "2 1\n1 0 1 0 1 1:1\n"
	for name, text := range map[string]string{"a.txt": trace, "a.flows": "# testbed-flows 1 MB\n" + trace, "a.cm": "Nodes 2\nConnections 1\n0->1 id 1 start 0 size 1000000\n",
		"a.workload": "testbed-workload 1\nfabric racks=2 hosts=2\ncoflow 0 arrival=0s\nflow 0 h0-00>h1-00 size=1MB\n"} {
		path := filepath.Join(dir, name)
		var shown [2]string
		for i, mark := range []string{"", "\ufeff"} {
			if err := os.WriteFile(path, []byte(mark+text), 0o644); err != nil {
				t.Fatal(err)
			}
			verb := "trace"
			if name == "a.workload" {
				verb = "workload"
			}
			code, out, errs := call(t, 10*time.Second, nil, verb, "info", path)
			if code != 0 {
				t.Errorf("%s with mark %q: exit code %d\n%s", name, mark, code, errs)
			}
			shown[i] = out
		}
		if shown[0] != shown[1] {
			t.Errorf("%s: with the mark:\n%s\nwithout it:\n%s", name, shown[1], shown[0])
		}
	}
}
