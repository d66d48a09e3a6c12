package netnstest

import (
	"fmt"
	"testing"
)

// tries is how often a test that judges timing may run: the machine may be busy
// with something else.
const tries = 3

// Timing runs a test that judges how long real packets take, up to three times
// until it is content. Each try is a subtest with its own cleanup and says what
// it saw: all of them with -v, and the last where none was content. What f fails by itself, with t.Error or t.Fatal, is about correctness
// and is not tried again. Where processors are emulated f runs once, and only
// what it fails by itself counts.
func Timing(t *testing.T, f func(t *testing.T) (ok bool)) {
	t.Helper()
	if NotJudged(t) {
		f(t)
		return
	}
	for i := range tries {
		ok := false
		try := func(t *testing.T) {
			if ok = f(t); !ok && i == tries-1 {
				t.Errorf("out of bounds in all of %d tries", tries)
			}
		}
		if !t.Run(fmt.Sprintf("try=%d", i+1), try) || ok {
			return
		}
		t.Logf("try %d of %d was out of bounds", i+1, tries)
	}
}
