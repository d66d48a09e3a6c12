package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// Two packages in one file, whose lines alternate, and one in another file.
func TestSummary(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	one := write("one.json", `{"Action":"start","Package":"testbed/a"}
{"Action":"run","Package":"testbed/a","Test":"TestLong"}
{"Action":"run","Package":"testbed/b","Test":"TestShark"}
{"Action":"output","Package":"testbed/a","Test":"TestLong","Output":"    a_test.go:7: long test, run by make check: sends for 40 s\n"}
{"Action":"output","Package":"testbed/b","Test":"TestShark","Output":"    b_test.go:9: not installed: tshark: apt-get install tshark\n"}
{"Action":"output","Package":"testbed/a","Test":"TestLong","Output":"--- SKIP: TestLong (0.00s)\n"}
{"Action":"skip","Package":"testbed/a","Test":"TestLong","Elapsed":0}
{"Action":"skip","Package":"testbed/b","Test":"TestShark","Elapsed":0}
{"Action":"output","Package":"testbed/b","Test":"TestOK","Output":"    b_test.go:9: a figure\n"}
{"Action":"pass","Package":"testbed/b","Test":"TestOK/sub","Elapsed":0}
{"Action":"pass","Package":"testbed/b","Test":"TestOK","Elapsed":0}
{"Action":"skip","Package":"testbed/c","Elapsed":0}
{"Action":"pass","Package":"testbed/b","Elapsed":0}
`)
	two := write("two.json", `{"ImportPath":"testbed/d","Action":"build-output","Output":"# testbed/d\n"}
{"Action":"output","Package":"testbed/e","Test":"TestAlso/tshark","Output":"        e_test.go:1: not installed: tshark: apt-get install tshark\n"}
{"Action":"skip","Package":"testbed/e","Test":"TestAlso/tshark","Elapsed":0}
{"Action":"fail","Package":"testbed/e","Test":"TestAlso","Elapsed":0}
{"Action":"skip","Package":"testbed/e","Test":"TestMute","Elapsed":0}
`)
	var out strings.Builder
	if err := run(&out, []string{one, two}); err != nil {
		t.Fatal(err)
	}
	const want = `skipped: e TestMute: no reason given
skipped: b TestShark and 1 more: not installed: tshark: apt-get install tshark
skipped: 1 long tests: make check runs them
tests: 1 passed, 1 failed, 4 skipped
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := run(&out, []string{write("cut.json", `{"Action":"pa`)}); err == nil || !strings.Contains(err.Error(), "cut.json: unexpected EOF") {
		t.Errorf("a file that is cut off: %v", err)
	}
}

// A test that ran again without the race detector counts once, with its later result; a failure
// stays.
func TestRanAgain(t *testing.T) {
	dir := t.TempDir()
	paths := []string{filepath.Join(dir, "race.json"), filepath.Join(dir, "timing.json")}
	for i, text := range []string{`{"Action":"output","Package":"testbed/a","Test":"TestSlow/attempt=1","Output":"    a_test.go:7: timing not judged: race detector\n"}
{"Action":"pass","Package":"testbed/a","Test":"TestSlow/attempt=1"}
{"Action":"pass","Package":"testbed/a","Test":"TestSlow"}
{"Action":"output","Package":"testbed/a","Test":"TestOnly","Output":"    a_test.go:7: timing not judged: race detector\n"}
{"Action":"skip","Package":"testbed/a","Test":"TestOnly"}
{"Action":"output","Package":"testbed/b","Test":"TestWrong","Output":"    a_test.go:7: timing not judged: race detector\n"}
{"Action":"fail","Package":"testbed/b","Test":"TestWrong"}
{"Action":"output","Package":"testbed/b","Test":"TestStalls","Output":"    a_test.go:7: timing not judged: race detector\n"}
{"Action":"pass","Package":"testbed/b","Test":"TestStalls"}
{"Action":"pass","Package":"testbed/b","Test":"TestPlain"}
`, `{"Action":"pass","Package":"testbed/a","Test":"TestSlow"}
{"Action":"pass","Package":"testbed/a","Test":"TestOnly"}
{"Action":"pass","Package":"testbed/b","Test":"TestWrong"}
{"Action":"output","Package":"testbed/b","Test":"TestStalls","Output":"    a_test.go:7: timing not judged: a processor stopped for 98ms\n"}
{"Action":"pass","Package":"testbed/b","Test":"TestStalls"}
`} {
		if err := os.WriteFile(paths[i], []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, tt := range []struct {
		args []string
		want string
	}{
		{paths[:1], "skipped: a TestOnly: timing not judged: race detector\ntiming not judged: a TestSlow and 1 more: race detector\ntests: 3 passed, 1 failed, 1 skipped\n"},
		{paths, "timing not judged: b TestStalls: a processor stopped for 98ms\ntests: 4 passed, 1 failed, 0 skipped\n"},
		{[]string{"-timing", paths[0]}, "testbed/a ^(TestOnly|TestSlow)$\ntestbed/b ^(TestStalls|TestWrong)$\n"},
	} {
		var out strings.Builder
		if err := run(&out, tt.args); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tt.want, out.String()); diff != "" {
			t.Errorf("%s: (-want +got):\n%s", tt.args, diff)
		}
	}
}
