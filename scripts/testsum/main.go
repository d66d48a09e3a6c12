// Command testsum summarizes what make test and make check ran: the number of tests that passed,
// and every reason for which tests were skipped, from files of go test -json.
//
//	testsum FILE...
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

// summary counts the results of tests.
type summary struct {
	passed, failed int // without subtests
	long           int
	skipped        map[string][]string // tests and subtests by reason, without long tests
}

// logged matches a line that a test logged: a reason is logged before the skip.
var logged = regexp.MustCompile(`^\s+\S+\.go:\d+: (.*)`)

// read adds the results of a file of go test -json.
func (s *summary) read(r io.Reader) error {
	type key struct{ pkg, test string }
	said := map[key]string{}
	d := json.NewDecoder(r)
	for {
		var e event
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if e.Test == "" {
			continue
		}
		k := key{e.Package, e.Test}
		top := !strings.Contains(e.Test, "/")
		switch e.Action {
		case "output":
			if m := logged.FindStringSubmatch(e.Output); m != nil {
				said[k] = m[1]
			}
			continue
		case "pass":
			if top {
				s.passed++
			}
		case "fail":
			if top {
				s.failed++
			}
		case "skip":
			if strings.HasPrefix(said[k], longtest.Marker) {
				s.long++
				break
			}
			reason := cmp.Or(said[k], "no reason given")
			s.skipped[reason] = append(s.skipped[reason], strings.TrimPrefix(e.Package, "testbed/")+" "+e.Test)
		default:
			continue
		}
		delete(said, k)
	}
}

// print writes a line for each reason, then one for the long tests and one with the totals.
func (s *summary) print(w io.Writer) {
	for _, reason := range slices.Sorted(maps.Keys(s.skipped)) {
		tests := slices.Sorted(slices.Values(s.skipped[reason]))
		more := ""
		if n := len(tests) - 1; n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		fmt.Fprintf(w, "skipped: %s%s: %s\n", tests[0], more, reason)
	}
	other := 0
	for _, tests := range s.skipped {
		other += len(tests)
	}
	if s.long > 0 {
		fmt.Fprintf(w, "skipped: %d long tests: make check runs them\n", s.long)
	}
	fmt.Fprintf(w, "tests: %d passed, %d failed, %d skipped\n", s.passed, s.failed, s.long+other)
}

func run(w io.Writer, paths []string) error {
	s := summary{skipped: map[string][]string{}}
	for _, path := range paths {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		err = s.read(f)
		f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	s.print(w)
	return nil
}

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "testsum:", err)
		os.Exit(1)
	}
}
