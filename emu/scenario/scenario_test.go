package scenario

import (
	"bytes"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/policies/catalog"
	"testbed/topo/units"
)

var update = flag.Bool("update", false, "rewrite testdata/*.golden")

func load(t testing.TB, path string, set map[string]string) *Scenario {
	t.Helper()
	s, err := Load(path, Options{Set: set, Catalog: testPolicies})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func fingerprint(t testing.TB, s *Scenario) string {
	t.Helper()
	f, err := s.Fingerprint()
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", path, diff)
	}
}

func TestResolved(t *testing.T) {
	s := load(t, "testdata/good.yaml", map[string]string{"n": "3"})
	resolved, err := s.Resolved()
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "resolved.golden", resolved)
	again, err := Parse("testdata/resolved.yaml", resolved, Options{Catalog: testPolicies})
	if err != nil {
		t.Fatalf("the resolved scenario does not load: %v", err)
	}
	if fingerprint(t, again) != fingerprint(t, s) {
		t.Error("the resolved scenario is another one")
	}
}

func TestSource(t *testing.T) {
	s := load(t, "testdata/good.yaml", map[string]string{"n": "3", "trace": "testdata/small.txt"})
	golden(t, "source.golden", s.Source())
	// The result of Files is sufficient to load the scenario again.
	dir := t.TempDir()
	for _, f := range s.Files() {
		path := filepath.Join(dir, filepath.FromSlash(f.Name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, f.Data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	again := load(t, filepath.Join(dir, "scenario.yaml"), nil)
	if fingerprint(t, again) != fingerprint(t, s) {
		t.Error("the kept scenario is another one")
	}
	if !bytes.Equal(again.Source(), s.Source()) {
		t.Error("keeping a kept scenario changes it")
	}
	if plain := load(t, "testdata/good.yaml", nil); fingerprint(t, plain) == fingerprint(t, s) {
		t.Error("another number of spines has the same fingerprint")
	}
}

func TestFingerprintIsOfTheContent(t *testing.T) {
	base := "name: x\nfabric: {leaves: 2, spines: 1, hosts_per_leaf: 4, host_link: 10Mbps}\nworkload: [{kind: trace, path: small.txt}]\narms: {coflow: [fair]}\n"
	other := "# the same\narms: {coflow: [fair]}\nname: x\nvars: {file: sub/copy.txt}\nseed: 1\nfabric: {hosts_per_leaf: 4, leaves: 2, spines: 1, host_link: 0.01Gbps}\nworkload: [{path: \"${file}\", kind: trace}]\n"
	files := fstest.MapFS{"small.txt": testTraces["small.txt"], "sub/copy.txt": testTraces["small.txt"]}
	parse := func(text string) string {
		s, err := Parse("s.yaml", []byte(text), Options{Catalog: testPolicies, Open: files.Open})
		if err != nil {
			t.Fatal(err)
		}
		return fingerprint(t, s)
	}
	first := parse(base)
	if parse(other) != first {
		t.Error("order, comments, variables or places of files change the fingerprint")
	}
	if parse(base+"seed: 2\n") == first {
		t.Error("another seed does not change the fingerprint")
	}
	files["small.txt"] = &fstest.MapFile{Data: []byte("8 1\n1 0 1 0 1 1:1\n")}
	if parse(base) == first {
		t.Error("another trace does not change the fingerprint")
	}
}

func TestVariables(t *testing.T) {
	parse := func(text string, set map[string]string, params ...catalog.Param) (*Scenario, error) {
		base := "\nfabric: {leaves: 2, spines: 1, hosts_per_leaf: 4, host_link: 10Mbps}\nworkload: [{kind: trace, path: small.txt}]\narms: {coflow: [{name: sebf, a: \"${a}\", b: \"${b}\", c: \"$${a}\", d: '1${a}'}]}\ndisk: {write: 1MB/s, dir: \"/x/${b} y\"}\n"
		return Parse("s.yaml", []byte(text+base), Options{Set: set, Catalog: withParams(params...), Open: testTraces.Open})
	}
	choice := func(name, value string) catalog.Param {
		return catalog.Param{Name: name, Type: catalog.Choice, Choices: []string{value}}
	}
	s, err := parse("name: v\nvars: {a: 5, b: \"it's: $x #1\"}", nil, catalog.Param{Name: "a", Type: catalog.Whole, Max: 5}, choice("b", "it's: $x #1"), choice("c", "${a}"), catalog.Param{Name: "d", Type: catalog.Whole, Max: 15})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"a": 5, "b": "it's: $x #1", "c": "${a}", "d": 15}
	if diff := cmp.Diff(want, s.Spec.Arms[0].Policies["coflow"].Params); diff != "" {
		t.Errorf("parameters (-want +got):\n%s", diff)
	}
	if want := "/x/it's: $x #1 y"; s.Spec.Disk.Dir != want {
		t.Errorf("dir %q, want %q", s.Spec.Disk.Dir, want)
	}
	kept, err := Parse("s.yaml", s.Source(), Options{Catalog: s.catalog, Open: func(string) (fs.File, error) { return testTraces.Open("small.txt") }})
	if err != nil {
		t.Fatalf("%v in\n%s", err, s.Source())
	}
	if fingerprint(t, kept) != fingerprint(t, s) {
		t.Errorf("the source is another scenario:\n%s", s.Source())
	}
	set, err := parse("name: v\nvars:\n  a:   # must be set\n  b: 2.5\n", map[string]string{"a": "true"},
		catalog.Param{Name: "a", Type: catalog.Bool}, catalog.Param{Name: "b", Type: catalog.Float, High: 3}, choice("c", "${a}"), choice("d", "1true"))
	if err != nil {
		t.Fatal(err)
	}
	if got := set.Spec.Arms[0].Policies["coflow"].Params; got["a"] != true || got["b"] != 2.5 || got["d"] != "1true" {
		t.Errorf("parameters %v", got)
	}
	if !strings.Contains(string(set.Source()), "  a: true   # must be set\n") {
		t.Errorf("the variable is not set in the source:\n%s", set.Source())
	}
}

func TestSetPathIsOfTheWorkingDirectory(t *testing.T) {
	text := "name: x\nvars: {t: , d: small}\nfabric: {leaves: 2, spines: 1, hosts_per_leaf: 4, host_link: 10Mbps}\nworkload: [{kind: trace, path: \"${t}\"}, {kind: trace, path: \"${d}.txt\"}]\narms: {coflow: [fair]}\n"
	var opened []string
	o := Options{Catalog: testPolicies, Set: map[string]string{"t": "here.txt"}, Open: func(name string) (fs.File, error) {
		opened = append(opened, name)
		return testTraces.Open("small.txt")
	}}
	if _, err := Parse("some/where/s.yaml", []byte(text), o); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"here.txt", "some/where/small.txt"}, opened); diff != "" {
		t.Errorf("opened (-want +got):\n%s", diff)
	}
}

func TestWorkload(t *testing.T) {
	s := load(t, "testdata/good.yaml", nil)
	f, err := s.Shape().Build()
	if err != nil {
		t.Fatal(err)
	}
	w, notes, err := s.Workload(f, 0)
	if err != nil {
		t.Fatal(err)
	}
	again, _, _ := s.Workload(f, 0)
	if diff := cmp.Diff(w, again); diff != "" {
		t.Errorf("the same repeat gives another workload:\n%s", diff)
	}
	other, _, _ := s.Workload(f, 1)
	if cmp.Equal(w, other) {
		t.Error("another repeat gives the same workload")
	}
	if len(w.Coflows) != 2 || len(w.Writers) != 6 {
		t.Fatalf("%d coflows, %d writers, want 2, 6", len(w.Coflows), len(w.Writers))
	}
	if c := w.Coflows[1]; c.ID != 2 || c.Arrival != 25*time.Millisecond || c.Flows[0].Size != 125*units.KB {
		t.Errorf("coflow %+v: want id 2 at 25ms with a first flow of 125KB", c)
	}
	block, last := 0, time.Duration(0)
	for i, wr := range w.Writers {
		if int(wr.ID) != i || wr.Start < last {
			t.Errorf("writer %d has id %d and starts at %v, after one at %v", i, wr.ID, wr.Start, last)
		}
		last = wr.Start
		for _, b := range wr.Blocks {
			if int(b.ID) != block || b.Writer != wr.ID || b.Client != wr.Client {
				t.Errorf("block %+v: want id %d of writer %d", b, block, wr.ID)
			}
			block++
		}
	}
	golden(t, "notes.golden", []byte(strings.Join(notes, "\n")+"\n"))
}

// The policies of arms do not influence the random draws of a workload.
func TestArmsHaveTheSameDraws(t *testing.T) {
	good := goodScenario(t)
	a, err := Parse("s.yaml", []byte(good), options(nil))
	if err != nil {
		t.Fatal(err)
	}
	b, err := Parse("s.yaml", []byte(strings.Replace(good, "[fair, sebf]", "[sebf]", 1)), options(nil))
	if err != nil {
		t.Fatal(err)
	}
	f, err := a.Shape().Build()
	if err != nil {
		t.Fatal(err)
	}
	wa, _, _ := a.Workload(f, 3)
	wb, _, _ := b.Workload(f, 3)
	if diff := cmp.Diff(wa, wb); diff != "" {
		t.Errorf("other arms, other workload:\n%s", diff)
	}
}

func TestTwoTraces(t *testing.T) {
	text := "name: x\nfabric: {leaves: 2, spines: 1, hosts_per_leaf: 4, host_link: 10Mbps}\nworkload: [{kind: trace, path: small.txt}, {kind: trace, path: small.txt, merge: false}]\narms: {coflow: [fair]}\n"
	s, err := Parse("s.yaml", []byte(text), options(nil))
	if err != nil {
		t.Fatal(err)
	}
	f, err := s.Shape().Build()
	if err != nil {
		t.Fatal(err)
	}
	w, _, err := s.Workload(f, 0)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[int]bool{}
	flow := 0
	for i, c := range w.Coflows {
		ids[int(c.ID)] = true
		if i > 0 && c.Arrival < w.Coflows[i-1].Arrival {
			t.Errorf("coflow %d arrives before the one ahead of it", c.ID)
		}
		for _, fl := range c.Flows {
			if int(fl.ID) != flow {
				t.Errorf("flow %d, want %d", fl.ID, flow)
			}
			flow++
		}
	}
	// One of four coflows has both ends on the same host.
	if len(ids) != 6 || len(w.Coflows) != 6 {
		t.Errorf("%d coflows with %d different ids, want 6", len(w.Coflows), len(ids))
	}
	var names []string
	for _, f := range s.Files() {
		names = append(names, f.Name)
	}
	if diff := cmp.Diff([]string{"scenario.yaml", "traces/small.txt", "traces/1-small.txt"}, names); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestArmList(t *testing.T) {
	s := load(t, "testdata/good.yaml", nil)
	var names []string
	for _, a := range s.ArmList() {
		names = append(names, a.Name)
	}
	if diff := cmp.Diff([]string{"fair+hdfs", "fair+sinbad", "sebf+hdfs", "sebf+sinbad"}, names); diff != "" {
		t.Errorf("arms (-want +got):\n%s", diff)
	}
	want := Policy{Name: "sinbad", Params: map[string]any{"threshold": "1MB", "tolerance": 10}}
	if diff := cmp.Diff(want, s.ArmList()[1].Policies["placement"]); diff != "" {
		t.Errorf("placement of the second arm (-want +got):\n%s", diff)
	}
}

func TestLoadFiles(t *testing.T) {
	if _, err := Load("testdata/nowhere.yaml", Options{Catalog: testPolicies}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a missing scenario: %v", err)
	}
	if _, err := Load("testdata", Options{Catalog: testPolicies}); err == nil || !strings.Contains(err.Error(), "it is a directory: must be a regular file") {
		t.Errorf("a directory: %v", err)
	}
	big := filepath.Join(t.TempDir(), "big.yaml")
	if err := os.WriteFile(big, bytes.Repeat([]byte("#\n"), maxFile), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(big, Options{Catalog: testPolicies}); err == nil || !strings.Contains(err.Error(), "larger than 1048576 bytes") {
		t.Errorf("a huge file: %v", err)
	}
	_, err := Load("testdata/good.yaml", Options{Catalog: testPolicies, Set: map[string]string{"n": "0", "trace": "no/such"}})
	var all *Errors
	if !errors.As(err, &all) || len(all.Problems) != 2 {
		t.Fatalf("errors %v, want two", err)
	}
	var one Problem
	if !errors.As(err, &one) || one.Line != 5 || one.Path != "fabric.spines" {
		t.Errorf("first problem %+v, want that of the spines", one)
	}
}

// Patterns of captured links are resolved together: each link once, in order.
func TestCapturedLinks(t *testing.T) {
	text := strings.Replace(goodScenario(t), "repeat: 2", `capture: {links: ["leaf1<>spine*", "leaf*>spine0", "leaf0>h0-0[01]"]}`, 1)
	s, err := Parse("s.yaml", []byte(text), options(nil))
	if err != nil {
		t.Fatal(err)
	}
	f, err := s.Shape().Build()
	if err != nil {
		t.Fatal(err)
	}
	links, err := s.CapturedLinks(f)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, id := range links {
		got = append(got, f.LinkName(id))
	}
	want := []string{"leaf0>h0-00", "leaf0>h0-01", "leaf0>spine0", "leaf1>spine0", "spine0>leaf1", "leaf1>spine1", "spine1>leaf1", "leaf2>spine0", "leaf3>spine0"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("CapturedLinks (-want +got):\n%s", diff)
	}
}

// The sentence of a scenario has arms, fabric, workload without defaults, repeats and seed, and the names of its files.
func TestSentence(t *testing.T) {
	const want = "4 arms (fair+hdfs, fair+sinbad, sebf+hdfs, sebf+sinbad) on 4 leaves x 5 hosts, 3 spines, host link 50Mbps, " +
		"oversubscription 5:1, queue 20ms, MTU 1500; workload: trace (path traces/small.txt, first 3), writers (count 4, " +
		"blocks 3, block 4MB, start 500ms, spread 2s), writers (hosts: 2, blocks 1, block 8MB, replicas 2, window 12); " +
		"2 repeats, seed 7."
	s := load(t, "testdata/good.yaml", map[string]string{"n": "3"})
	if got, err := s.Sentence(); err != nil || got != want {
		t.Errorf("%v\ngot  %s\nwant %s", err, got, want)
	}
}
