// Command testsum summarizes what make test and make check ran: the number of tests that passed,
// every reason for which tests were skipped, and every test that left a duration unjudged, from files
// of go test -json.
//
//	testsum FILE...
//	testsum -timing FILE
//
// If a test is in several files, the last one counts, but a failure is never replaced. With -timing
// it writes a line for each package with tests that left a duration unjudged: the package, and a
// regular expression for go test -run that matches them.
//
// It judges nothing: the exit code of the tests is that of go test.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"testbed/emu/longtest"
)

// event is a line of go test -json (go doc test2json).
type event struct {
	Action, Package, Test, Output string
}

// test identifies a test or subtest.
type test struct{ pkg, name string }

// top is the test that a subtest belongs to, or itself.
func (t test) top() test {
	name, _, _ := strings.Cut(t.name, "/")
	return test{t.pkg, name}
}

func (t test) String() string { return strings.TrimPrefix(t.pkg, "testbed/") + " " + t.name }

// result is how a test ended.
type result struct {
	action string // pass, fail or skip
	reason string // of a skip: the last line that was logged before it
}

// summary is the results of tests.
type summary struct {
	results  map[test]result
	unjudged map[test]string // tests, not subtests, that left a duration unjudged, and the first reason
}

// logged matches a line that a test logged: a reason is logged before the skip.
var logged = regexp.MustCompile(`^\s+\S+\.go:\d+: (.*)`)

// read returns the results in a file of go test -json.
func read(r io.Reader) (summary, error) {
	s := summary{map[test]result{}, map[test]string{}}
	said := map[test]string{}
	d := json.NewDecoder(r)
	for {
		var e event
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			return s, nil
		} else if err != nil {
			return s, err
		}
		k := test{e.Package, e.Test}
		switch e.Action {
		case "output":
			m := logged.FindStringSubmatch(e.Output)
			if m == nil || e.Test == "" {
				break
			}
			said[k] = m[1]
			if why, ok := strings.CutPrefix(m[1], longtest.NotJudged); ok && s.unjudged[k.top()] == "" {
				s.unjudged[k.top()] = cmp.Or(why, "no reason given")
			}
		case "pass", "fail", "skip":
			if e.Test != "" {
				s.results[k] = result{e.Action, cmp.Or(said[k], "no reason given")}
				delete(said, k)
			}
		}
	}
}

// add replaces the results of tests that ran again, unless they had failed.
func (s summary) add(later summary) {
	again := func(t test, _ result) bool {
		_, ran := later.results[t.top()]
		return ran && s.results[t.top()].action != "fail"
	}
	maps.DeleteFunc(s.unjudged, func(t test, _ string) bool { return again(t, result{}) })
	maps.DeleteFunc(s.results, again)
	failed := map[test]bool{} // before; what this file adds does not count
	for t, r := range s.results {
		failed[t] = r.action == "fail"
	}
	for t, r := range later.results {
		if !failed[t.top()] {
			s.results[t] = r
		}
	}
	maps.Copy(s.unjudged, later.unjudged)
}

// printReasons writes a line for each reason, with one of its tests and the number of the others.
func printReasons(w io.Writer, what string, by map[string][]string) {
	for _, reason := range slices.Sorted(maps.Keys(by)) {
		tests := slices.Sorted(slices.Values(by[reason]))
		more := ""
		if n := len(tests) - 1; n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		fmt.Fprintf(w, "%s: %s%s: %s\n", what, tests[0], more, reason)
	}
}

// print writes a line for each reason, then one for the long tests and one with the totals, which
// leave out subtests other than skipped ones.
func (s summary) print(w io.Writer) {
	passed, failed, long, skipped := 0, 0, 0, 0
	reasons, unjudged := map[string][]string{}, map[string][]string{}
	for t, r := range s.results {
		top := t == t.top()
		switch {
		case r.action == "skip" && strings.HasPrefix(r.reason, longtest.Marker):
			long++
		case r.action == "skip":
			skipped++
			reasons[r.reason] = append(reasons[r.reason], t.String())
		case top && r.action == "pass":
			passed++
		case top:
			failed++
		}
	}
	for t, why := range s.unjudged {
		if s.results[t].action == "pass" {
			unjudged[why] = append(unjudged[why], t.String())
		}
	}
	printReasons(w, "skipped", reasons)
	printReasons(w, "timing not judged", unjudged)
	if long > 0 {
		fmt.Fprintf(w, "skipped: %d long tests: make check runs them\n", long)
	}
	fmt.Fprintf(w, "tests: %d passed, %d failed, %d skipped\n", passed, failed, long+skipped)
}

// printTiming writes the packages with tests that left a duration unjudged.
func (s summary) printTiming(w io.Writer) {
	names := map[string][]string{}
	for t := range s.unjudged {
		names[t.pkg] = append(names[t.pkg], t.name)
	}
	for _, pkg := range slices.Sorted(maps.Keys(names)) {
		fmt.Fprintf(w, "%s ^(%s)$\n", pkg, strings.Join(slices.Sorted(slices.Values(names[pkg])), "|"))
	}
}

func run(w io.Writer, args []string) error {
	timing := len(args) > 0 && args[0] == "-timing"
	if timing {
		args = args[1:]
	}
	s := summary{map[test]result{}, map[test]string{}}
	for _, path := range args {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		later, err := read(f)
		f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		s.add(later)
	}
	if timing {
		s.printTiming(w)
	} else {
		s.print(w)
	}
	return nil
}

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
		os.Exit(1)
	}
}
