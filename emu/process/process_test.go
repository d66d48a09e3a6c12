package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"testbed/topo/units"
)

const (
	testTimeout = 300 * time.Millisecond
	testOutput  = 10_000 * units.Byte
	patience    = 10 * testTimeout
)

func start(t *testing.T, script string, timeout time.Duration) (*Process, *bytes.Buffer) {
	t.Helper()
	var kept bytes.Buffer
	p, err := Start(Config{Name: "policy", Command: []string{"sh", "-c", script}, Dir: t.TempDir(), Stderr: &kept, Timeout: timeout, Output: testOutput})
	if err != nil {
		t.Fatal(err)
	}
	return p, &kept
}

// accept accepts lines that begin with "answer", ignores those that begin with "other", and rejects all others.
func accept(line []byte) (bool, error) {
	switch {
	case bytes.HasPrefix(line, []byte("answer")):
		return true, nil
	case bytes.HasPrefix(line, []byte("other")):
		return false, nil
	}
	return false, errors.New("no message")
}

func TestConversation(t *testing.T) {
	p, kept := start(t, `while read line; do test "$line" = end && exit; echo other; echo "answer $line"; echo said >&2; done`, testTimeout)
	for i := range 3 {
		var got string
		took, err := p.Ask(fmt.Appendf(nil, "%d\n", i), func(line []byte) (bool, error) {
			got = string(line)
			return accept(line)
		})
		if want := fmt.Sprintf("answer %d\n", i); err != nil || got != want || took <= 0 || took > testTimeout {
			t.Errorf("line %d: %q after %v, %v", i, got, took, err)
		}
	}
	if err := p.Close([]byte("end\n")); err != nil {
		t.Error(err)
	}
	if kept.String() != strings.Repeat("said\n", 3) {
		t.Errorf("standard error %q", kept)
	}
	if left := p.processes(); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
}

// bomb starts two processes of its kind, each in a group of its own.
const bomb = `export bomb='test $1 = 0 || { setsid sh -c "$bomb" sh $(($1-1)) & setsid sh -c "$bomb" sh $(($1-1)) & }; sleep 60'`

// Every way in which a process fails is an error that names the line, within a bound, and leaves no process.
func TestFailures(t *testing.T) {
	const answers = `read a; echo answer; `
	for _, tt := range []struct {
		name, script string
		want         string // at the second line
		timeout      time.Duration
	}{
		{"exits in the middle", answers + `read b; echo broken >&2; exit 3`, `line 2 to it: it ended (exit status 3); its standard error ends with: broken`, testTimeout},
		{"exits with status 0", answers + `exit 0`, `it ended (exit status 0)`, testTimeout},
		{"dies of a signal", answers + `read b; kill -9 $$`, `it ended (signal: killed)`, testTimeout},
		{"hangs", answers + `read b; sleep 60`, `line 2 to it: no answer within 300ms (timeout)`, testTimeout},
		{"garbage", answers + `read b; echo garbage; sleep 60`, `line 2 of its output: no message: garbage`, testTimeout},
		{"binary", answers + `read b; printf '\001\000\n'; sleep 60`, `line 2 of its output: no message`, testTimeout},
		{"a line without end", answers + `read b; printf answ; exit`, `line 2 of its output is cut off after 4 bytes: it ended`, testTimeout},
		{"much output in a line", answers + `read b; yes | tr -d '\n'`, `line 2 of its output: more than 10KB of output for one answer (output)`, testTimeout},
		{"many lines", answers + `read b; yes other`, `more than 10KB of output for one answer (output)`, testTimeout},
		{"closes its output", answers + `exec >&-; sleep 60`, `it has closed its standard input or output`, testTimeout},
		{"children", answers + `sleep 60 & sleep 61 & read b; exit 1`, `it ended (exit status 1)`, testTimeout},
		{"children with its output", answers + `read b; (sleep 60; echo answer) & wait`, `no answer within 300ms`, testTimeout},
		{"children that leave its group", answers + `setsid sleep 60 & read b; sleep 0.1; exit 1`, `it ended (exit status 1)`, testTimeout},
		{"ignores signals", answers + `trap '' TERM INT HUP; read b; while :; do sleep 1; done`, `no answer within 300ms`, testTimeout},
		{"a gigabyte", answers + `read b; head -c 1000000000 /dev/zero`, `more than 10KB of output for one answer (output)`, testTimeout},
		{"children without end", answers + `read b; bomb() { test $1 = 0 || { bomb $(($1-1)) & bomb $(($1-1)) & }; sleep 60; }; bomb 7`, `processes: must be at most 200`, patience},
		{"children without end that leave its group", answers + `read b; ` + bomb + `; sh -c "$bomb" sh 7`, `processes: must be at most 200`, patience},
		{"much standard error", answers + `read b; yes >&2`, `no answer within 300ms`, testTimeout},
		{"closes its input", `read a; exec <&-; echo answer; sleep 60`, `line 2 to it: it has closed its standard input`, testTimeout},
		{"reads nothing", `echo answer; sleep 60`, `line 2 to it: no answer within 300ms`, testTimeout},
		{"reads one line", answers + `sleep 60`, `line 2 to it: it has read `, testTimeout},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, kept := start(t, tt.script, tt.timeout)
			if _, err := p.Ask([]byte("1\n"), accept); err != nil {
				t.Fatal(err)
			}
			line := []byte("2\n")
			if tt.name == "reads one line" {
				line = bytes.Repeat([]byte("2"), 1<<20) // more than a pipe holds
			}
			began := time.Now()
			_, err := p.Ask(line, accept)
			took := time.Since(began)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
			if _, again := p.Ask(line, accept); again != err {
				t.Errorf("then %v, want the same error", again)
			}
			if err := p.Close([]byte("end\n")); err != nil {
				t.Errorf("closing: %v", err)
			}
			if all := time.Since(began); took > patience || all > 2*patience {
				t.Errorf("the error took %v, all %v: want at most %v and %v", took, all, patience, 2*patience)
			}
			if left := p.processes(); len(left) > 0 {
				t.Errorf("processes %v are left", left)
			}
			if n := kept.Len(); n > int(testOutput) || tt.name == "much standard error" && n != int(testOutput) {
				t.Errorf("%d bytes of standard error are kept", n)
			}
			t.Logf("%v after %v, closed after %v", err, took, time.Since(began))
		})
	}
}

// A process that ends at once, or does not end at the end.
func TestEnds(t *testing.T) {
	for _, tt := range []struct{ name, script, asked, closed string }{
		{"at once", `exit 4`, "line 1 to it: it ended (exit status 4)", ""},
		{"never", `read a; echo answer; sleep 60`, "", "it has not ended within 300ms after the last line"},
		{"with an error", `read a; echo answer; read b; echo sorry >&2; exit 5`, "", "it ended (exit status 5); its standard error ends with: sorry"},
		{"at the end of input", `while read a; do echo answer; done`, "", ""},
	} {
		p, _ := start(t, tt.script, testTimeout)
		check := func(what string, err error, want string) {
			t.Helper()
			if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %s: %v, want %q", tt.name, what, err, want)
			}
		}
		_, err := p.Ask([]byte("1\n"), accept)
		check("answer", err, tt.asked)
		check("end", p.Close([]byte("end\n")), tt.closed)
		if left := p.processes(); len(left) > 0 {
			t.Errorf("%s: processes %v are left", tt.name, left)
		}
	}
}

func TestCannotStart(t *testing.T) {
	_, err := Start(Config{Name: "policy mine", Command: []string{"testbed-no-such-program"}, Dir: t.TempDir(), Timeout: testTimeout, Output: testOutput})
	if !errors.Is(err, exec.ErrNotFound) || !strings.Contains(err.Error(), "policy mine: ") {
		t.Error(err)
	}
}

// A process of root is that of the user who called sudo, and its group is its own.
func TestUser(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("not root: no other user")
	}
	t.Setenv("SUDO_UID", "12345")
	t.Setenv("SUDO_GID", "23456")
	p, err := Start(Config{Command: []string{"sh", "-c", `read a; echo answer $(id -u) $(id -g) $(id -G) $$; read b`}, Timeout: testTimeout * 10, Output: testOutput})
	if err != nil {
		t.Fatal(err)
	}
	var got string
	_, err = p.Ask([]byte("1\n"), func(line []byte) (bool, error) {
		got = string(line)
		return accept(line)
	})
	if want := fmt.Sprintf("answer 12345 23456 23456 %d\n", p.pid); err != nil || got != want {
		t.Errorf("%q, %v, want %q", got, err, want)
	}
	if group, err := syscall.Getpgid(p.pid); err != nil || group != p.pid {
		t.Errorf("group %d, %v, want its own", group, err)
	}
	if err := p.Close([]byte("end\n")); err != nil {
		t.Error(err)
	}
}
