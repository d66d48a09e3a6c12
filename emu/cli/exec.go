package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"syscall"

	"testbed/emu/deploy"
	"testbed/emu/kernel"
	"testbed/results/safefile"
	"testbed/topo"
)

// Exit codes of a command that is not run, as shells have them.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
)

// Files of the machine that a command in a host reads as the host's.
const (
	hostsFile  = "/etc/hosts"
	switchFile = "/etc/nsswitch.conf"
)

// inside runs a command in a namespace of a testbed, and returns or ends as the command
// does. The verb, exec or shell, is for errors.
func (a *app) inside(ctx context.Context, verb, testbed, host string, command []string, privileged bool) error {
	e, err := a.find(ctx, given(testbed))
	if err != nil {
		return err
	}
	// No command may go on entering while another process waits to remove the testbed.
	if e.Live && e.State.Kind == deploy.KindUp {
		return fmt.Errorf("%s in %s: testbed %s is being built or removed: its lock is held by %s", verb, host, e.State.ID, e.Holder)
	}
	f, err := e.State.Shape.Build()
	if err != nil {
		return fmt.Errorf("testbed %s: %w", e.State.ID, err)
	}
	if !known(e.State.Namespaces, host) {
		return usageError{fmt.Errorf("testbed %s has no host or switch %q: hosts are %s to %s, switches are %s, … and %s, …", e.State.ID, host, f.HostName(0), f.HostName(topo.HostID(f.Hosts()-1)), topo.LeafName(0), topo.SpineName(0))}
	}
	if err := a.needRoot(verb, entersNamespaces); err != nil {
		return err
	}
	path, err := exec.LookPath(command[0])
	if err != nil && !errors.Is(err, exec.ErrDot) { // a PATH with "." is the user's
		return refused(verb, host, command[0], err)
	}
	files, err := hostFiles(f, host)
	if err != nil {
		return err
	}
	if files[hostsFile] == "" {
		fmt.Fprintf(a.stderr, "note: this machine has no %s: names of hosts do not resolve\n", hostsFile)
	}
	// What was ignored when this program started, as under nohup, is ignored again.
	signal.Reset()
	ended, err := kernel.Exec(ctx, e.Scope(), host, kernel.Command{Path: path, Args: command, Env: append(os.Environ(), "TESTBED_HOST="+host), Files: files, Privileged: privileged})
	var program *fs.PathError
	if errors.As(err, &program) && program.Path == path {
		return refused(verb, host, command[0], program)
	}
	if err != nil {
		return err
	}
	if ended.Signal != 0 {
		return errors.Join(kernel.EndBy(ended.Signal), exitCode(128+int(ended.Signal)))
	}
	return exitCode(ended.Code)
}

// refused returns the error of a command that could not be started.
func refused(verb, host, command string, err error) error {
	code := exitNotExecutable
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		code = exitNotFound
	}
	for e := err; e != nil; e = errors.Unwrap(e) {
		err = e // the cause: the rest repeats the command
	}
	return notRun{fmt.Errorf("%s in %s: %s: %w", verb, host, command, err), code}
}

// lookups is the line of nsswitch.conf(5) that says how names of hosts are resolved.
var lookups = regexp.MustCompile(`(?m)^[ \t]*hosts:.*$`)

// hostFiles are the files that a command in a host, leaf or spine reads, of those that
// the machine has.
func hostFiles(f *topo.Fabric, of string) (map[string]string, error) {
	out := map[string]string{}
	if _, err := os.Stat(hostsFile); err == nil {
		out[hostsFile] = etcHosts(f, of)
	}
	// Other services ask the machine's daemons, over sockets that are files.
	text, err := safefile.Read(switchFile)
	switch {
	case err == nil:
		out[switchFile] = lookups.ReplaceAllString(string(text), "") + "\nhosts: files\n"
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	return out, nil
}

// etcHosts is the text of /etc/hosts in a host, leaf or spine. A leaf has the address
// of its first port to a host, which all others reach; a spine has that of its link to
// the rack that the text is for.
func etcHosts(f *topo.Fabric, of string) string {
	var b strings.Builder
	b.WriteString("127.0.0.1 localhost\n::1 localhost\n")
	for h := range topo.HostID(f.Hosts()) {
		fmt.Fprintln(&b, f.HostAddr(h), f.HostName(h))
	}
	near := topo.RackID(0)
	for r := range topo.RackID(f.Racks()) {
		fmt.Fprintln(&b, f.GatewayAddr(f.HostIn(r, 0)), topo.LeafName(r))
		if of == topo.LeafName(r) {
			near = r
		}
	}
	if r, _, ok := topo.ParseHostName(of); ok {
		near = r
	}
	for s := range f.Spines() {
		_, onSpine := topo.UplinkAddrs(near, s)
		fmt.Fprintln(&b, onSpine, topo.SpineName(s))
	}
	return b.String()
}
