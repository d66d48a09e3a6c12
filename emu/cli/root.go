package cli

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"

	"testbed/emu/deploy"
)

// uid returns the effective user id. Tests replace it.
var uid = os.Geteuid

// What commands do that requires root.
const (
	createsNamespaces = "creating network namespaces"
	entersNamespaces  = "entering network namespaces"
	removesNamespaces = "removing network namespaces"
	changesLinks      = "changing links"
)

// needRoot returns an error where this process is not root, so that a command fails
// before it has changed anything. The hint is the same command line with sudo, and more.
func (a *app) needRoot(command, action string, more ...string) error {
	if uid() == 0 {
		return nil
	}
	hint := append([]string{a.invocation(a.args...)}, more...)
	return hinted{fmt.Errorf("%s: %s requires root (current user id: %d)", command, action, uid()), strings.Join(hint, "; ")}
}

// invocation returns the shell command that runs this program as root with arguments:
// with sudo, unless the user is root without it.
func (a *app) invocation(args ...string) string {
	var words []string
	if uid() != 0 || os.Getenv("SUDO_UID") != "" {
		words = append(words, "sudo")
	}
	words = append(words, quote(program()))
	for _, arg := range args {
		words = append(words, quote(arg))
	}
	return strings.Join(words, " ")
}

// program returns this program as the user calls it: by path, or by a name in PATH.
func program() string {
	if strings.Contains(os.Args[0], "/") {
		return os.Args[0]
	}
	return "testbed"
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_./:=,@%+-]+$`)

// quote returns a word as a shell reads it back.
func quote(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
}

// execExample returns the command that runs "ip addr" on a host of a testbed.
func (a *app) execExample(ctx context.Context, testbed, host string) string {
	args := []string{"exec"}
	if entries, err := deploy.List(ctx, a.state); err == nil && len(entries) > 1 {
		args = append(args, "--testbed", testbed)
	}
	if a.state != deploy.DefaultRoot {
		args = append(args, "--state-dir", a.state)
	}
	return a.invocation(append(args, host, "--", "ip", "addr")...)
}
