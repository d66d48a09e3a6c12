package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/olekukonko/tablewriter"

	"testbed/emu/longtest"
)

// longReason is the length to which the summary cuts a skip's reason, in bytes. The output
// above it has the whole reason.
const longReason = 200

// outcome is the result of one package's binary in the guest.
type outcome struct {
	Package string
	Ended   bool // its end was reported
	Exit    int
	Why     string // reason if it has no exit code of its own
	Took    time.Duration
	Passed  int
	Failed  []string
	Skipped []skip
	Timing  []string // tests whose timing was not judged
}

type skip struct{ Test, Reason string }

func (o *outcome) ok() bool {
	return o.Ended && o.Exit == 0 && o.Why == "" && len(o.Failed) == 0 && o.Passed > 0
}

// results is the content of a report.
type results struct {
	Kernel   string
	Outcomes []*outcome
	Done     bool   // the guest ran all binaries
	Broken   string // reason if it did not
}

// ok reports whether every binary of runs ran and passed.
func (r *results) ok(runs []run) bool {
	if !r.Done || r.Broken != "" || len(r.Outcomes) != len(runs) {
		return false
	}
	return !slices.ContainsFunc(r.Outcomes, func(o *outcome) bool { return !o.ok() })
}

// Lines of a test binary that was started with -test.v.
var (
	verdictLine = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+) \(`)
	startLine   = regexp.MustCompile(`^=== (?:RUN|CONT|NAME)\s+(\S+)`)
	logLine     = regexp.MustCompile(`^\s+\S+\.go:\d+: (.*)`)
)

// readReport reads the guest's report until it ends, and copies the output of tests to w.
func readReport(r io.Reader, w io.Writer) (*results, error) {
	res := &results{}
	var o *outcome // of the running binary
	var test string
	var said map[string]string
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadString('\n')
		line = strings.TrimRight(line, "\r\n")
		if text, ok := strings.CutPrefix(line, markerStart); ok {
			var m mark
			if err := json.Unmarshal([]byte(text), &m); err != nil {
				return res, fmt.Errorf("mark %q of the report: %w", line, err)
			}
			switch m.What {
			case "boot":
				res.Kernel = m.Text
				fmt.Fprintf(w, "==== booted Linux %s\n", m.Text)
			case "begin":
				o, test, said = &outcome{Package: m.Package}, "", map[string]string{}
				res.Outcomes = append(res.Outcomes, o)
				fmt.Fprintf(w, "==== %s\n", m.Package)
			case "end":
				if o == nil || o.Package != m.Package {
					return res, fmt.Errorf("report: end of %s without a begin", m.Package)
				}
				o.Ended, o.Exit, o.Why, o.Took = true, m.Exit, m.Text, m.Took
				o = nil
			case "done":
				res.Done = true
				return res, nil
			case "broken":
				res.Broken = m.Text
				return res, nil
			}
		} else if line != "" {
			fmt.Fprintln(w, line)
			if o != nil {
				o.read(line, &test, said)
			}
		}
		if err == io.EOF {
			return res, nil
		}
		if err != nil {
			return res, err
		}
	}
}

// read reads one line of output. test is the test that printed last, and said the last line of each
// test: a test logs the reason of a skip before the skip.
func (o *outcome) read(line string, test *string, said map[string]string) {
	if m := startLine.FindStringSubmatch(line); m != nil {
		*test = m[1]
		return
	}
	if m := verdictLine.FindStringSubmatch(line); m != nil {
		switch m[1] {
		case "PASS":
			o.Passed++
		case "FAIL":
			o.Failed = append(o.Failed, m[2])
		case "SKIP":
			o.Skipped = append(o.Skipped, skip{m[2], said[m[2]]})
		}
		return
	}
	if m := logLine.FindStringSubmatch(line); m != nil {
		said[*test] = m[1]
		if strings.HasPrefix(m[1], longtest.NotJudged) && !slices.Contains(o.Timing, *test) {
			o.Timing = append(o.Timing, *test)
		}
	}
}

// without returns the runs that have no result.
func (r *results) without(runs []run) []run {
	return slices.DeleteFunc(slices.Clone(runs), func(x run) bool {
		return r != nil && slices.ContainsFunc(r.Outcomes, func(o *outcome) bool { return o.Package == x.Package && o.Ended })
	})
}

// print writes the summary: a row per package, then each failure, skip and timing that was not
// judged, by name.
func (r *results) print(w io.Writer, runs []run) error {
	if r.Kernel != "" {
		fmt.Fprintf(w, "\non Linux %s, emulated in software\n", r.Kernel)
	}
	t := tablewriter.NewTable(w)
	t.Header("package", "result", "passed", "failed", "skipped", "timing not judged", "seconds")
	for _, run := range runs {
		i := slices.IndexFunc(r.Outcomes, func(o *outcome) bool { return o.Package == run.Package })
		row := []any{run.Package, "NOT RUN", "", "", "", "", ""}
		if i >= 0 {
			o := r.Outcomes[i]
			result := "ok"
			switch {
			case !o.Ended:
				result = "NO END"
			case !o.ok():
				result = "FAILED"
			}
			row = []any{o.Package, result, o.Passed, len(o.Failed), len(o.Skipped), len(o.Timing), fmt.Sprintf("%.1f", o.Took.Seconds())}
		}
		if err := t.Append(row...); err != nil {
			return err
		}
	}
	if err := t.Render(); err != nil {
		return err
	}
	long := 0
	for _, o := range r.Outcomes {
		for _, s := range o.Skipped {
			if strings.HasPrefix(s.Reason, longtest.Marker) {
				long++
				continue
			}
			reason := s.Reason
			if len(reason) > longReason {
				reason = strings.ToValidUTF8(reason[:longReason], "") + " …"
			}
			fmt.Fprintf(w, "SKIPPED %s %s: %s\n", o.Package, s.Test, reason)
		}
		for _, name := range o.Timing {
			fmt.Fprintf(w, "NOT JUDGED %s %s\n", o.Package, name)
		}
	}
	if long > 0 {
		fmt.Fprintf(w, "SKIPPED %d long tests (run: make test-vm VMFLAGS=-long)\n", long)
	}
	for _, o := range r.Outcomes {
		for _, name := range o.Failed {
			fmt.Fprintf(w, "FAILED %s %s\n", o.Package, name)
		}
		switch {
		case !o.Ended:
			fmt.Fprintf(w, "FAILED %s: the guest stopped before its end\n", o.Package)
		case o.Why != "":
			fmt.Fprintf(w, "FAILED %s: %s\n", o.Package, o.Why)
		case o.Exit != 0 && len(o.Failed) == 0:
			fmt.Fprintf(w, "FAILED %s: exit code %d\n", o.Package, o.Exit)
		case o.Passed == 0:
			fmt.Fprintf(w, "FAILED %s: no test passed\n", o.Package)
		}
	}
	for _, run := range runs {
		if !slices.ContainsFunc(r.Outcomes, func(o *outcome) bool { return o.Package == run.Package }) {
			fmt.Fprintf(w, "FAILED %s: not run\n", run.Package)
		}
	}
	if r.Broken != "" {
		fmt.Fprintf(w, "FAILED: init: %s\n", r.Broken)
	} else if !r.Done {
		fmt.Fprintln(w, "FAILED: the guest stopped before all packages were tested")
	}
	return nil
}
