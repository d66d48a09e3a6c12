package runner

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/results/report"
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
