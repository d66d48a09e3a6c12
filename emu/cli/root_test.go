package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"testbed/emu/deploy"
	"testbed/topo"
	"testbed/topo/units"
)

// leaveUp records testbeds as being up, without building them.
func leaveUp(t *testing.T, state string, ids ...string) {
	t.Helper()
	shape := topo.LeafSpine{Leaves: 2, Spines: 1, HostsPerLeaf: 2, HostLink: units.Mbps, Oversubscription: units.Ratio{Num: 1, Den: 1}, Queue: topo.Queue{Time: time.Second}, MTU: 1500}
	for _, id := range ids {
		o, err := deploy.Create(t.Context(), state, deploy.State{ID: id, Kind: deploy.KindUp, Name: id, Shape: shape, Namespaces: []string{"h0-00"}})
		if err != nil {
			t.Fatal(err)
		}
		if err := o.SetReady(); err != nil {
			t.Fatal(err)
		}
		if err := o.Release(); err != nil {
			t.Fatal(err)
		}
	}
}

// asUser runs the test as a user without root's rights, as commands see it.
func asUser(t *testing.T, id int) {
	t.Helper()
	old := uid
	uid = func() int { return id }
	t.Cleanup(func() { uid = old })
}

// Every command that requires root states it under its own name, and shows the same
// command line with sudo.
func TestRootErrors(t *testing.T) {
	asUser(t, 1000)
	state := t.TempDir()
	leaveUp(t, state, "lab")
	scenario := filepath.Join("..", "..", "scripts", "quickstart", "scenario.yaml")
	for _, c := range []struct{ args, action, more string }{
		{"run " + scenario, createsNamespaces, "; without root: --time virtual runs it in a virtual machine, and testbed sim on the fluid model"},
		{"demo", createsNamespaces, "; without root: testbed demo --sim"},
		{"up " + scenario, createsNamespaces, ""},
		{"down lab", removesNamespaces, ""},
		{"exec h0-00 -- ip addr", entersNamespaces, ""},
		{"shell h0-00", entersNamespaces, ""},
		{"inspect lab", entersNamespaces, ""},
		{"fault link-down leaf0<>spine0", changesLinks, ""},
		{"gc --all", removesNamespaces, ""},
		{"calibrate --quick", createsNamespaces, ""},
	} {
		args := append([]string{"--state-dir", state}, strings.Fields(c.args)...)
		var out, errs bytes.Buffer
		code := Main(t.Context(), args, strings.NewReader(""), &out, &errs)
		verb := strings.Fields(c.args)[0]
		line := strings.ReplaceAll(c.args, "leaf0<>spine0", "'leaf0<>spine0'")
		want := "testbed: " + verb + ": " + c.action + " requires root (current user id: 1000)\n" +
			"hint: sudo " + os.Args[0] + " --state-dir " + state + " " + line + c.more + "\n"
		got := errs.String()
		if strings.HasPrefix(got, "note: ") { // that the machine is not calibrated
			_, got, _ = strings.Cut(got, "\n")
		}
		if code != exitFailure || got != want || out.Len() > 0 {
			t.Errorf("%s: exit code %d, errors\n%swant\n%s", c.args, code, got, want)
		}
	}
}

// The command that up suggests names everything that a second command needs to find the testbed.
func TestExecExample(t *testing.T) {
	state := t.TempDir()
	a := &app{state: deploy.DefaultRoot}
	asUser(t, 0)
	t.Setenv("SUDO_UID", "")
	if got, want := a.execExample(t.Context(), "lab", "h0-00"), program()+" exec h0-00 -- ip addr"; got != want {
		t.Errorf("as root: %s, want %s", got, want)
	}
	t.Setenv("SUDO_UID", "1000")
	if got, want := a.execExample(t.Context(), "lab", "h0-00"), "sudo "+program()+" exec h0-00 -- ip addr"; got != want {
		t.Errorf("under sudo: %s, want %s", got, want)
	}
	a.state = state
	leaveUp(t, state, "lab", "other")
	if got, want := a.execExample(t.Context(), "lab", "h0-00"), "sudo "+program()+" exec --testbed lab --state-dir "+state+" h0-00 -- ip addr"; got != want {
		t.Errorf("with another testbed: %s, want %s", got, want)
	}
}

func TestQuote(t *testing.T) {
	for word, want := range map[string]string{"a-b=c/d.e": "a-b=c/d.e", "": "''", "leaf0>h": "'leaf0>h'", "it's": `'it'\''s'`, "a b": "'a b'"} {
		if got := quote(word); got != want {
			t.Errorf("quote(%q) = %s, want %s", word, got, want)
		}
	}
}
