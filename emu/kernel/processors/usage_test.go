package processors

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The time charged to a process and its children equals that of wait4, on every kernel
// configuration, and othersSince is at least that.
func TestProcessTimes(t *testing.T) {
	was, err := readUsage()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("sh", "-c", "(i=0; while [ $i -lt 50000 ]; do i=$((i+1)); done); while :; do :; done")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = c.Process.Kill() // already ended, unless the test failed
		_ = c.Wait()
	}()
	of := func(p usage) (c2 charged) {
		for id, x := range p {
			if id.pid == c.Process.Pid {
				c2 = x
			}
		}
		return c2
	}
	var is usage
	for deadline := time.Now().Add(time.Minute); of(is).self < 300*time.Millisecond || of(is).children == 0; time.Sleep(10 * time.Millisecond) {
		if is, err = readUsage(); err != nil {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatalf("charged %+v after a minute", of(is))
		}
	}
	if err := c.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(c.Process.Pid) + "/stat")
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), ") Z ") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the killed process has not ended after a minute")
		}
	}
	if is, err = readUsage(); err != nil {
		t.Fatal(err)
	}
	_ = c.Wait() // it was killed
	got, want := of(is), c.ProcessState.UserTime()+c.ProcessState.SystemTime()
	const cut = 4 * userTick // user and system time of both are truncated to ticks
	if sum := got.self + got.children; sum < want-cut || sum > want {
		t.Errorf("charged %+v, want %v in all", got, want)
	}
	if others := is.othersSince(was); others < got.self { // the time of children may be offset by a process that was not waited for
		t.Errorf("others took %v, want %v or more", others, got.self)
	}
	t.Logf("charged %+v, wait4 %v, all others %v", got, want, is.othersSince(was))
}
