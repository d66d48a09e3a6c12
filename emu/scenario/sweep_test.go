package scenario

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/policies/catalog"
	"testbed/workloads"
)

// withSweep has the sweep on line 3.
const withSweep = `name: sweep  # it's "$5"
vars: {over: , load: 0.5, n: 4, cc: cubic}
sweep: %s
fabric: {leaves: 2, spines: 1, hosts_per_leaf: "${n}", host_link: 50Mbps, oversubscription: "${over}", congestion_control: "${cc}"}
disk: {write: 1MB/s, size: 640MB, dir: "/a$$b"}
workload: [{kind: jobs, count: 3, load: "${load}", block: 1MB, window: 1, mappers: 1-2, reducers: 1-2}]
arms: {coflow: [fair, sebf], fabric.queue: [20ms, 40ms]}
`

func sweepText(sweep string) string { return strings.Replace(withSweep, "%s", sweep, 1) }

func pointNames(s *Scenario) (names []string) {
	for _, p := range s.Points() {
		names = append(names, p.Name())
	}
	return names
}

// Points are all combinations of the values, less those excluded and with those included; each has a workload of its own.
func TestPoints(t *testing.T) {
	s, err := parseArms(sweepText(`{over: ["1:1", "2:1", "5:1"], load: [0.2, 0.5], exclude: [{over: "1:1", load: 0.2}, {over: "5:1"}], include: [{load: 0.9, over: "7:2"}]}`), map[string]string{"cc": "bbr"})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"over=1to1,load=0.5", "over=2to1,load=0.2", "over=2to1,load=0.5", "over=7to2,load=0.9"}, pointNames(s)); d != "" {
		t.Fatalf("points (-want +got):\n%s", d)
	}
	for i, p := range s.Points() {
		over, load := p.Values[0], p.Values[1]
		text := strings.NewReplacer("sweep: %s\n", "", "over: ,", `over: "`+over.Value+`",`, "load: 0.5,", "load: "+load.Value+",", "cc: cubic", "cc: bbr").Replace(withSweep)
		alone := mustArms(t, text)
		if fingerprint(t, alone) != fingerprint(t, p.Scenario) {
			t.Errorf("point %d is not the scenario with its values", i)
		}
		if d := cmp.Diff(alone.OfArm(3).Spec, p.Scenario.OfArm(3).Spec); d != "" {
			t.Errorf("point %d: an arm (-want +got):\n%s", i, d)
		}
		if got := p.Scenario.Points(); len(got) != 1 || got[0].Values != nil || got[0].Scenario != p.Scenario {
			t.Errorf("point %d has points: %v", i, got)
		}
		again := mustArms(t, string(p.Scenario.Source()))
		if fingerprint(t, again) != fingerprint(t, p.Scenario) || len(again.points) > 0 || len(again.Spec.Vars) > 0 {
			t.Errorf("the source of point %d is another scenario:\n%s", i, p.Scenario.Source())
		}
	}
	if a, b := worksOf(t, s.points[1].Scenario), worksOf(t, s.points[2].Scenario); cmp.Equal(a, b) {
		t.Error("points of two loads have the same workload")
	}
	again := mustArms(t, string(s.Source()))
	if fingerprint(t, again) != fingerprint(t, s) || !slices.Equal(pointNames(again), pointNames(s)) {
		t.Errorf("the source is another scenario:\n%s", s.Source())
	}
	if !strings.Contains(string(s.Source()), `"${over}"`) || strings.Contains(string(s.Source()), "${cc}") {
		t.Errorf("the source replaces swept variables, or keeps others:\n%s", s.Source())
	}
	fewer := mustArms(t, sweepText(`{over: ["1:1", "2:1"], load: [0.5]}`))
	if fingerprint(t, fewer) == fingerprint(t, s) {
		t.Error("another sweep has the same fingerprint")
	}
	resolved, err := s.Resolved()
	if err != nil || strings.Count(string(resolved), "\nname: sweep\n") != 4 || !strings.Contains(string(resolved), "---\n# point over=2to1,load=0.5\n") {
		t.Errorf("resolved: %v\n%s", err, resolved)
	}
	differs, err := WorkloadDiffers(s, fewer)
	if err != nil || len(differs) == 0 || !strings.HasPrefix(differs[0].Key, "over=1to1,load=0.5: ") {
		t.Errorf("%v, %v", differs, err)
	}
	if _, err := s.Scaled(workloads.Factor{Num: 2, Den: 1}); err == nil || !strings.Contains(err.Error(), "it has a sweep of 4 points: scale one of them") {
		t.Errorf("scaled: %v", err)
	}
	for _, tt := range []struct {
		values map[string]string
		want   string
	}{
		{nil, "over=1to1,load=0.5 over=2to1,load=0.2 over=2to1,load=0.5 over=7to2,load=0.9"},
		{map[string]string{"over": "2:1"}, "over=2to1,load=0.2 over=2to1,load=0.5"},
		{map[string]string{"over": "2:1", "load": "0.5"}, "over=2to1,load=0.5"},
		{map[string]string{"over": "7:2", "load": "0.5"}, "point over=7:2: no such value: expected 1:1, 2:1"},
		{map[string]string{"ower": "2:1"}, `point ower=2:1: ower is not swept (did you mean "over"?)`},
		{map[string]string{"cc": "bbr"}, "point cc=bbr: cc is not swept: expected over, load"},
	} {
		var got []string
		points, err := s.Choose(tt.values)
		for _, p := range points {
			got = append(got, p.Name())
		}
		if err != nil {
			got = []string{err.Error()}
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("points with %v: %q, want %s", tt.values, got, tt.want)
		}
	}
	plain := mustArms(t, withArms+"[{}]")
	if _, err := plain.Choose(map[string]string{"a": "b"}); err == nil || err.Error() != "point a=b: scenario changes has no sweep" {
		t.Errorf("points without a sweep: %v", err)
	}
	if got := plain.Points(); len(got) != 1 || got[0].Name() != "" || got[0].Scenario != plain {
		t.Errorf("points without a sweep: %v", got)
	}
}

func TestErrorsOfSweeps(t *testing.T) {
	many := "[" + strings.Repeat("1, ", 40) + "]"
	for _, tt := range []struct{ name, sweep, want string }{
		{"no mapping", "[over]", "3:8: sweep: a list: expected a mapping of variables to lists of values"},
		{"no variables", "{}", "3:8: sweep: a mapping: expected a mapping of variables to lists of values"},
		{"undeclared", "{oven: [1]}", `3:9: sweep.oven: no variable: declare it under vars (did you mean "over"?)`},
		{"no list", `{over: "1:1"}`, `3:15: sweep.over: "1:1": expected a list`},
		{"empty list", "{over: []}", "3:15: sweep.over: empty: expected at least one element"},
		{"a list as a value", "{over: [[1]]}", "3:16: sweep.over[0]: a list: expected one value"},
		{"null", "{over: [null]}", "3:16: sweep.over[0]: no value: expected one value"},
		{"set too", "{over: [\"1:1\"], cc: [bbr]}", "3:24: sweep.cc: set by --set, but swept: choose points with --point cc=reno"},
		{"unused", "{over: [\"1:1\"], n: [3, 4], unused: [1]}", "2:52: vars.unused: swept, but the file does not use ${unused}: leave it out"},
		{"the same twice", `{over: ["1:1", "1:1"]}`, "3:8: sweep: two points have the name over=1to1: write each point once, with values whose letters, digits or signs (._+-) differ"},
		{"excludes another variable", `{over: ["1:1"], exclude: [{load: 0.5}]}`, "3:35: sweep.exclude[0].load: not swept: expected over"},
		{"excludes no point", `{over: ["1:1"], exclude: [{over: "2:1"}]}`, "3:34: sweep.exclude[0]: excludes no point: leave it out, or write values as the sweep does"},
		{"excludes all points", `{over: ["1:1"], exclude: [{over: "1:1"}]}`, "3:8: sweep: no points: expected at least one variable with a value that is not excluded"},
		{"only includes", `{include: [{over: "1:1"}]}`, "3:20: sweep.include[0].over: not swept: expected "},
		{"includes a part", `{over: ["1:1"], load: [0.5], include: [{over: "1:1"}]}`, "3:47: sweep.include[0]: no value of load: a point has a value of every swept variable"},
		{"includes text", `{over: ["1:1"], include: [x]}`, `3:34: sweep.include[0]: "x": expected a mapping of swept variables to values`},
		{"too many", "{over: " + many + ", load: " + many + "}", "3:8: sweep: more than 1000 points: sweep fewer values"},
		{"a long name", `{over: ["` + strings.Repeat("1", 200) + `"]}`, "3:8: sweep: a point has the name "},
		{"a value of one point", `{over: ["1:1", "banana"], load: [0.2, 0.5]}`,
			`4:93: fabric.oversubscription: point over=banana,load=0.2 and 1 others: ratio "banana": expected two positive whole numbers, such as "5:1"`},
		{"a contradiction of one point", `{over: ["1:1", "5000:1"]}`,
			`4:93: fabric.oversubscription: point over=5000to1: 5000:1: 4 hosts of 50Mbps and 1 spines make each uplink 40000 bps: must be 100Kbps to 1Tbps`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			text := strings.Replace(sweepText(tt.sweep), "cc: cubic", "cc: cubic, unused: 1", 1)
			var set map[string]string
			if tt.name == "set too" {
				set = map[string]string{"cc": "reno"}
			}
			_, err := parseArms(text, set)
			if err == nil || !strings.HasPrefix(err.Error(), "s.yaml:"+tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("%v\nwant\ns.yaml:%s", err, tt.want)
			}
		})
	}
	// An error of every point is reported once, without a point.
	_, err := parseArms(strings.Replace(sweepText(`{over: ["1:1", "2:1"]}`), "50Mbps", "50", 1), nil)
	if err == nil || strings.Contains(err.Error(), "point") || strings.Count(err.Error(), "\n") != 0 {
		t.Errorf("%v", err)
	}
}

// Files that several points share are read once. A path with a swept variable stays in the source, and all files are
// sufficient to load the scenario, or a point, again.
func TestFilesOfPoints(t *testing.T) {
	dir := t.TempDir()
	write := func(dir, name, text string) {
		t.Helper()
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(dir, "other/t.txt", "4 1\n1 0 1 0 1 1:1.0\n")
	write(dir, "s/in/a.txt", "4 1\n1 0 1 0 1 1:2.0\n")
	write(dir, "s/in/b.txt", "4 1\n1 0 1 0 1 1:3.0\n")
	const text = `name: files
vars: {t: , first: 1, cc: cubic}
sweep: {t: [a, b], cc: [cubic, bbr]}
fabric: {leaves: 1, spines: 0, hosts_per_leaf: 4, host_link: 50Mbps, congestion_control: "${cc}"}
workload:
  - {kind: trace, path: ../other/t.txt, mb: MB}
  - {kind: trace, path: "in/${t}.txt", mb: MB}
arms: [{}]
`
	opened := map[string]int{}
	load := func(dir string) *Scenario {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(dir, "scenario.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		s, err := Parse(filepath.Join(dir, "scenario.yaml"), data, Options{Catalog: catalog.All(), Open: func(name string) (fs.File, error) {
			opened[filepath.Base(name)]++
			return os.Open(name)
		}})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	write(dir, "s/scenario.yaml", text)
	s := load(filepath.Join(dir, "s"))
	if d := cmp.Diff(map[string]int{"t.txt": 1, "a.txt": 1, "b.txt": 1}, opened); d != "" {
		t.Errorf("files that were opened (-want +got):\n%s", d)
	}
	var names []string
	for _, f := range s.Files() {
		names = append(names, f.Name)
		write(dir, "kept/"+f.Name, string(f.Data))
	}
	if d := cmp.Diff([]string{"scenario.yaml", "traces/t.txt", "in/a.txt", "in/b.txt"}, names); d != "" {
		t.Errorf("files (-want +got):\n%s", d)
	}
	if again := load(filepath.Join(dir, "kept")); fingerprint(t, again) != fingerprint(t, s) {
		t.Error("the files are another scenario")
	}
	for i, p := range s.Points() {
		at := fmt.Sprintf("point%d", i)
		for _, f := range p.Scenario.Files() {
			write(dir, at+"/"+f.Name, string(f.Data))
		}
		if again := load(filepath.Join(dir, at)); fingerprint(t, again) != fingerprint(t, p.Scenario) {
			t.Errorf("the files of point %d are another scenario", i)
		}
	}
	_, err := Parse(filepath.Join(dir, "s/scenario.yaml"), []byte(strings.Replace(text, `"in/${t}`, `"../s/in/${t}`, 1)), Options{Catalog: catalog.All()})
	if err == nil || !strings.Contains(err.Error(), `s/in/a.txt: a path with a swept variable must be below the directory of the scenario file`) {
		t.Errorf("%v", err)
	}
	_, err = Parse(filepath.Join(dir, "s/scenario.yaml"), []byte(strings.Replace(text, "../other/t.txt", "in/a.txt", 1)), Options{Catalog: catalog.All()})
	if err != nil {
		t.Error(err)
	}
}
