package runner

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/results/report"
	"testbed/results/rundir"
)

func TestSettingsOf(t *testing.T) {
	in := json.RawMessage(`{"tool":"v1","seed":18446744073709551615,"arms":["a","b"],"state":"running","partial":{"why":"x"},"forced":"","none":null,
		"settings":{"procs":16,"deep":{"er":true},"list":[{"x":1,"y":2},3],"empty":[]},"notes":["one","two"]}`)
	want := []report.Setting{{Key: "tool", Value: "v1"}, {Key: "seed", Value: "18446744073709551615"}, {Key: "arms", Value: "a; b"},
		{Key: "settings.procs", Value: "16"}, {Key: "settings.deep.er", Value: "true"}, {Key: "settings.list", Value: "x 1; y 2; 3"}, {Key: "notes", Value: "one; two"}}
	got, err := settingsOf(in)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	if _, err := settingsOf(json.RawMessage(`{"a":`)); err == nil {
		t.Error("half a manifest gives no error")
	}
}

// The manifest has the settings of an arm whose changes give it others than the first.
func TestSettingsOfArms(t *testing.T) {
	s := loadText(t, `
name: settings
fabric: {leaves: 2, spines: 1, hosts_per_leaf: 2, host_link: 20Mbps, oversubscription: "1:1"}
disk: {write: 2MB/s}
workload: [{kind: jobs, count: 2, load: 0.2, mappers: 1, reducers: 1, block: 1MB, packet: 32KB, window: 3}]
arms:
  - {name: one, coflow: fair, placement: hdfs}
  - {name: same, coflow: sebf, placement: hdfs}
  - {name: other, coflow: fair, placement: hdfs, set: {setup: simultaneous}}
`)
	r, err := newRun(s, Options{}, rundir.Packets)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.describe(t.Context()); err != nil {
		t.Fatal(err)
	}
	m := r.manifest
	if other := string(m.ArmSettings["other"]); len(m.ArmSettings) != 1 || other == string(m.Settings) || !strings.Contains(other, "simultaneous") || strings.Contains(string(m.Settings), "simultaneous") {
		t.Errorf("settings %s, of arms %s", m.Settings, m.ArmSettings)
	}
}

// Trials with other settings in one arm only, or on another machine in virtual time, belong to no run.
func TestSettingsThatDiffer(t *testing.T) {
	of := func(settings, other, kernel string) *Manifest {
		return &Manifest{Arms: []string{"one", "other"}, Settings: json.RawMessage(settings), ArmSettings: map[string]json.RawMessage{"other": json.RawMessage(other)},
			Machine: &rundir.Machine{Kernel: kernel}}
	}
	was := of(`{"setup":"connect","ring":1}`, `{"setup":"simultaneous","ring":1}`, "ab")
	for _, x := range []struct {
		now  *Manifest
		want string
	}{
		{was, ""},
		{of(`{"setup":"connect","ring":2}`, `{"setup":"simultaneous","ring":2}`, "ab"), "settings.ring: 1, and 2 in arm one"},
		{of(`{"setup":"connect","ring":1}`, `{"setup":"simultaneous","ring":2}`, "ab"), "settings.ring: 1, and 2 in arm other"},
		{of(`{"setup":"connect","ring":1}`, `{"setup":"simultaneous","ring":1}`, "cd"), "machine: kernel_sha256 was ab, and is cd"},
		{&Manifest{Arms: was.Arms, Settings: was.Settings, Machine: was.Machine}, "settings.setup: simultaneous, and connect in arm other"},
	} {
		if got := differs(was, x.now); got != x.want {
			t.Errorf("differs: %q, want %q", got, x.want)
		}
	}
}
