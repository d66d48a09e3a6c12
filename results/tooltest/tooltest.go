// Package tooltest supports tests that need other programs, or root.
package tooltest

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Env is an environment variable: with the value "required", a test fails instead of being
// skipped if a program is missing.
const Env = "TESTBED_TOOLS"

// packages are Debian's package names by program, if they differ.
var packages = map[string]string{"capinfos": "wireshark-common", "editcap": "wireshark-common", "mergecap": "wireshark-common", "script": "bsdutils",
	"mkfs.ext4": "e2fsprogs", "nft": "nftables", "iptables-legacy": "iptables", "ip": "iproute2", "tc": "iproute2", "unshare": "util-linux",
	"setpriv": "util-linux", "wasm-ld": "lld",
	"munged": "munge", "sbatch": "slurm-client"}

// Need skips the test if one of the programs is not installed, and names the package to
// install. With TESTBED_TOOLS=required the test fails instead.
func Need(t testing.TB, programs ...string) {
	t.Helper()
	var missing, install []string
	for _, p := range programs {
		if _, err := exec.LookPath(p); err != nil {
			missing = append(missing, p)
			if deb, ok := packages[p]; ok {
				p = deb
			}
			if !slices.Contains(install, p) {
				install = append(install, p)
			}
		}
	}
	if len(missing) > 0 {
		Missing(t, strings.Join(missing, ", "), install...)
	}
}

// Missing skips the test because something is not installed, and names the packages to install. With
// TESTBED_TOOLS=required the test fails instead.
func Missing(t testing.TB, what string, install ...string) {
	t.Helper()
	const format = "not installed: %s: apt-get install %s"
	if os.Getenv(Env) == "required" {
		t.Fatalf(format, what, strings.Join(install, " "))
	}
	t.Skipf(format, what, strings.Join(install, " "))
}

// NeedRoot skips the test if it does not run as root. With TESTBED_PRIVILEGED, as in make test
// and continuous integration, the test fails instead.
func NeedRoot(t testing.TB) {
	t.Helper()
	uid := os.Geteuid()
	if uid == 0 {
		return
	}
	if os.Getenv("TESTBED_PRIVILEGED") != "" {
		t.Fatalf("TESTBED_PRIVILEGED is set, but the test runs as user %d", uid)
	}
	t.Skipf("runs as user %d: run the test as root", uid)
}
