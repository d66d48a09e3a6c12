// Package tooltest is for tests that compare with programs of others.
package tooltest

import (
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Env makes a test fail that would be skipped for want of a program, where it is
// set to "required".
const Env = "TESTBED_TOOLS"

// packages are Debian's, by program, where their names differ.
var packages = map[string]string{"capinfos": "wireshark-common", "editcap": "wireshark-common", "mergecap": "wireshark-common", "script": "bsdutils"}

// Need skips the test where one of the programs is not installed, and says how to
// install it. With TESTBED_TOOLS=required the test fails instead.
func Need(t testing.TB, programs ...string) {
	t.Helper()
	var missing, install []string
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			missing = append(missing, p)
			if deb, ok := packages[p]; ok {
				p = deb
			}
			install = append(install, p)
		}
	}
	if len(missing) == 0 {
		return
	}
	const format = "not installed: %s: apt-get install %s"
	if os.Getenv(Env) == "required" {
		t.Fatalf(format, strings.Join(missing, ", "), strings.Join(install, " "))
	}
	t.Skipf(format, strings.Join(missing, ", "), strings.Join(install, " "))
}
