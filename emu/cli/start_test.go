package cli

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// The packages of this program allocate little before main runs: every command waits for it. Tables and patterns
// that few commands need are made when they are needed.
func TestStartAllocatesLittle(t *testing.T) {
	t.Parallel()
	const maxAllocs, maxBytes = 300, 64 << 10 // of a package
	cmd := exec.Command(os.Args[0], "-test.list", "^$")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	packages := 0
	for line := range strings.Lines(string(out)) {
		// init testbed/emu/cli @1.2 ms, 0.01 ms clock, 336 bytes, 3 allocs
		f := strings.Fields(line)
		if len(f) != 11 || f[0] != "init" || !strings.HasPrefix(f[1], "testbed/") {
			continue
		}
		packages++
		var bytesOf, allocs int
		if _, err := fmt.Sscan(f[7]+" "+f[9], &bytesOf, &allocs); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if allocs > maxAllocs || bytesOf > maxBytes {
			t.Errorf("%s: %d allocations, %d bytes before main, want at most %d and %d", f[1], allocs, bytesOf, maxAllocs, maxBytes)
		}
	}
	if packages < 5 {
		t.Errorf("%d packages of the program in the trace:\n%s", packages, out)
	}
}
