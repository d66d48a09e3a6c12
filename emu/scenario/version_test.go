package scenario

import (
	"bytes"
	"os"
	"reflect"
	"strings"
	"testing"
)

// A file without a version has version 1. A newer version is the only error of a file, with
// its place and a remedy; other values are refused as those of any key.
func TestVersion(t *testing.T) {
	data, err := os.ReadFile("testdata/good.yaml")
	if err != nil {
		t.Fatal(err)
	}
	parse := func(line string) (*Scenario, error) {
		return Parse("testdata/good.yaml", append([]byte(line), data...), Options{Catalog: testPolicies})
	}
	plain, err := parse("")
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"", "version: 1\n"} {
		s, err := parse(line)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		resolved, err := s.Resolved()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(resolved, []byte("version: 1\nname: good\n")) {
			t.Errorf("%q: the resolved scenario begins %.40q, want the version", line, resolved)
		}
		if differs, err := WorkloadDiffers(plain, s); err != nil || differs != nil {
			t.Errorf("%q: differs from the scenario without a version: %v, %v", line, differs, err)
		}
		if got, want := fingerprint(t, s), fingerprint(t, plain); got != want {
			t.Errorf("%q: fingerprint %s, want that without a version, %s", line, got, want)
		}
	}
	// The fingerprint of the scenario without a version.
	const earlier = "2f012e9944e49f044551be7b457ac982d4a24cac90550c489476f816d7786b80"
	if got := fingerprint(t, load(t, "testdata/good.yaml", map[string]string{"n": "3"})); got != earlier {
		t.Errorf("fingerprint %s, want %s: the version must not be part of it", got, earlier)
	}
	for line, want := range map[string]string{
		"version: 2\n": "testdata/good.yaml:1:10: version: 2: this testbed reads scenario files up to version 1: use a newer testbed, or write the file for version 1",
		"version: 99999999999999999999\nunknown: 1\n": "testdata/good.yaml:1:10: version: 99999999999999999999: this testbed reads scenario files up to version 1: use a newer testbed, or write the file for version 1",
		"version: 0\n":     `testdata/good.yaml:1:10: version: "0": must be 1`,
		"version: -1\n":    `testdata/good.yaml:1:10: version: "-1": must be 1`,
		"version: \"2\"\n": `testdata/good.yaml:1:10: version: "2" in quotes: must be 1, without quotes`,
		"version: one\n":   `testdata/good.yaml:1:10: version: "one": must be 1`,
		"version: [2]\n":   `testdata/good.yaml:1:10: version: a list: must be 1`,
		"version:\n":       `testdata/good.yaml:1:9: version: no value: must be 1, or leave the key out`,
	} {
		if _, err := parse(line); err == nil || err.Error() != want {
			t.Errorf("%q: %v\nwant %s", line, err, want)
		}
	}
}

// The bound of the schema is the newest version that Parse reads.
func TestNewestVersion(t *testing.T) {
	data, err := Schema(documented)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(data), `"$id": "urn:testbed:scenario:1"`) || newestVersion != 1 {
		t.Errorf("the schema has no $id of version %d", newestVersion)
	}
	for _, f := range fieldsOf(reflect.TypeFor[Spec]()) {
		if f.key == "version" && *f.maximum != newestVersion {
			t.Errorf("version: at most %v, want %d", *f.maximum, newestVersion)
		}
	}
}
