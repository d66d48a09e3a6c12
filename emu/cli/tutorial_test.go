package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"testbed/emu/deploy"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/longtest"
)

// tutorialStep is a fenced block of commands, and the output that the document quotes
// after it.
type tutorialStep struct {
	line     int // of the document
	commands string
	output   []string // may be empty
	exact    bool     // numbers are the same on every machine
}

// tutorialSteps extracts the commands of a document, which stand in blocks of kind sh, and
// the output that a block of kind text quotes. Output that does not depend on the machine
// is marked "text exact".
func tutorialSteps(doc string) ([]tutorialStep, error) {
	var steps []tutorialStep
	fence := regexp.MustCompile("(?ms)^```([^\n]*)\n(.*?)^```$")
	for _, at := range fence.FindAllStringSubmatchIndex(doc, -1) {
		kind, body := doc[at[2]:at[3]], doc[at[4]:at[5]]
		line := 1 + strings.Count(doc[:at[0]], "\n")
		switch kind {
		case "sh":
			steps = append(steps, tutorialStep{line: line, commands: body})
		case "text", "text exact":
			if len(steps) == 0 || steps[len(steps)-1].output != nil {
				return nil, fmt.Errorf("line %d: output without commands", line)
			}
			last := &steps[len(steps)-1]
			last.output, last.exact = strings.Split(strings.TrimSuffix(body, "\n"), "\n"), kind == "text exact"
		default:
			return nil, fmt.Errorf("line %d: block of kind %q: expected sh, text or text exact", line, kind)
		}
	}
	return steps, nil
}

var (
	figures  = regexp.MustCompile(`\d+(\.\d+)?( ?(µs|ms|s|[KMG]?bps|[KM]?B))?\b`)
	padding  = regexp.MustCompile(`[\s─]+`)
	verdicts = regexp.MustCompile(`degraded( \[N\])?`) // by a busy machine
)

// cells returns the cells of a table's line, or nil for another line.
func cells(line string) []string {
	if !strings.HasPrefix(line, "│") {
		return nil
	}
	var out []string
	for cell := range strings.SplitSeq(strings.Trim(line, "│"), "│") {
		out = append(out, strings.TrimSpace(cell))
	}
	return out
}

// within reports whether all of a are in b, in their order.
func within(a, b []string) bool {
	for _, cell := range a {
		at := slices.Index(b, cell)
		if at < 0 {
			return false
		}
		b = b[at+1:]
	}
	return true
}

// shows reports whether a line of output shows a quoted one. Without exact, the lines of a
// table match if one has all cells of the other, since tables hide columns to fit their
// width.
func shows(line, quoted string, exact bool) bool {
	a, b := cells(line), cells(quoted)
	if exact || a == nil || b == nil {
		return strings.Contains(line, quoted)
	}
	return a[0] == b[0] && (within(a, b) || within(b, a))
}

// plainLine returns a line without padding, since figures have the width of their column.
// Without exact, it also replaces figures of packets, and with them what marks the lowest.
func plainLine(line string, exact bool) string {
	if !exact {
		line = figures.ReplaceAllString(strings.ReplaceAll(line, "★", ""), "N")
		line = verdicts.ReplaceAllString(line, "pass")
	}
	return strings.TrimSpace(padding.ReplaceAllString(line, " "))
}

// missingLines returns the quoted lines that output does not have. A quoted line may be a
// part of a line. Each line is found once: in order if exact, else in any order, since
// tables are sorted by figures.
func missingLines(quoted []string, output string, exact bool) []string {
	var lines, missing []string
	for line := range strings.Lines(output) {
		lines = append(lines, plainLine(line, exact))
	}
	for _, q := range quoted {
		if !exact && strings.ContainsAny(q, "┌├└") {
			continue // the columns of a border differ if some are hidden
		}
		at := slices.IndexFunc(lines, func(line string) bool { return shows(line, plainLine(q, exact), exact) })
		switch {
		case at < 0:
			missing = append(missing, q)
		case exact:
			lines = lines[at+1:]
		default:
			lines = slices.Delete(lines, at, at+1)
		}
	}
	return missing
}

// The commands of the tutorial run in their order and print the output that it quotes. Its quotes of
// packets has a verdict and so depends on timing; without privilege, the commands before the
// first sudo run.
func TestTutorial(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile(filepath.Join(root, "docs", "tutorial.md"))
	if err != nil {
		t.Fatal(err)
	}
	steps, err := tutorialSteps(string(doc))
	if err != nil {
		t.Fatalf("docs/tutorial.md: %v", err)
	}
	if n := len(steps); n < 10 {
		t.Fatalf("docs/tutorial.md has %d blocks of commands, expected 10 or more", n)
	}
	t.Run("fluid", func(t *testing.T) {
		netnstest.OnlyTiming(t) // the virtual machine has no bash
		first := slices.IndexFunc(steps, func(s tutorialStep) bool { return strings.Contains(s.commands, "sudo ") })
		if missing, err := follow(t, root, steps[:first]); err != nil || missing != "" {
			t.Error(err, missing)
		}
	})
	t.Run("packets", func(t *testing.T) {
		longtest.Skip(t, "runs the commands of the tutorial, 13 s")
		netnstest.Require(t)
		netnstest.OnlyTiming(t)
		netnstest.Timing(t, func(t *testing.T) bool {
			missing, err := follow(t, root, steps)
			if err != nil {
				t.Log(err)
			}
			t.Log(missing)
			return err == nil && missing == ""
		})
	})
}

// follow runs the commands of steps, with the rights of the test, and returns which quoted lines
// their outputs lack. An error states the commands that ended with an exit code other than 0, as
// those of a run with verdict void do.
func follow(t *testing.T, root string, steps []tutorialStep) (missing string, err error) {
	t.Helper()
	dir, bin := t.TempDir(), t.TempDir()
	if err := os.Symlink(filepath.Join(root, "scripts"), filepath.Join(dir, "scripts")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "sudo"), []byte("#!/bin/sh\nexec \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	// One shell runs all blocks, as a reader's does, and marks where each one begins.
	const mark = "--- commands of line "
	var script strings.Builder
	for _, s := range steps {
		fmt.Fprintf(&script, "echo '%s%d'\n%s", mark, s.line, s.commands)
	}
	c := exec.CommandContext(t.Context(), "bash", "-eu", "-o", "pipefail", "-c", script.String())
	c.Dir = dir
	c.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), deploy.RootEnv+"="+filepath.Join(t.TempDir(), "state"))
	start := time.Now()
	out, err := c.CombinedOutput()
	outputs := strings.Split(string(out), mark)[1:]
	if err != nil {
		return "", fmt.Errorf("docs/tutorial.md: %w:\n%s", err, out)
	}
	if len(outputs) != len(steps) {
		t.Fatalf("%d blocks of commands ran, expected %d:\n%s", len(outputs), len(steps), out)
	}
	for i, s := range steps {
		if lines := missingLines(s.output, outputs[i], s.exact); len(lines) > 0 {
			missing += fmt.Sprintf("docs/tutorial.md:%d: the output lacks these lines:\n%s\nIt is %s%s", s.line, strings.Join(lines, "\n"), mark, outputs[i])
		}
	}
	t.Logf("%d blocks of commands took %v", len(steps), time.Since(start).Round(time.Second))
	return missing, nil
}

// A quoted line must be in the output: figures of packets may differ, names and labels may not.
func TestMissingLines(t *testing.T) {
	const table = `
Coflow completion time (CCT)
┌──────┬────┬────────────┬──────────┐
│ arm  │  n │    average │ verdict  │
├──────┼────┼────────────┼──────────┤
│ fair │ 12 │    1.652 s │ pass     │
│ sebf │ 12 │ ★ 855.9 ms │ degraded │
└──────┴────┴────────────┴──────────┘
`
	for _, c := range []struct {
		quoted         string
		exact, missing bool
	}{
		{quoted: "│ arm  │  n │ average │ verdict │"},
		{quoted: "│ sebf │ 12 │ ★ 901.2 ms │ pass │"},
		{quoted: "│ sebf │ 12 │ 901.2 ms │ 1.059 │ pass │"}, // a column that a narrow table hides
		{quoted: "│ fair │ 12 │    1.652 s │ pass     │", exact: true},
		{quoted: "Coflow completion time"},
		{quoted: "│ fair │ 12 │ 1.653 s │ pass │", exact: true, missing: true},
		{quoted: "│ varys │ 12 │ 901.2 ms │ pass │", missing: true},
		{quoted: "│ sebf │ 12 │ 901.2 ms │ void │", missing: true},
		{quoted: "│ arm  │  n │ mean │ verdict │", missing: true},
		{quoted: "Block completion time", missing: true},
	} {
		if got := missingLines([]string{c.quoted}, table, c.exact); (len(got) > 0) != c.missing {
			t.Errorf("missingLines(%q, exact=%t) = %q, want missing=%t", c.quoted, c.exact, got, c.missing)
		}
	}
}
