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
