package scenario

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"testbed/policies/catalog"
	"testbed/topo/magic"
)

// FuzzLoadScenario checks that no file makes the loader panic, that every
// error has a place, and that the Source and the Resolved form of a valid file
// load again as the same scenario.
func FuzzLoadScenario(f *testing.F) {
	good := goodScenario(f)
	f.Add(good, "")
	f.Add(good, "3")
	for _, tt := range badScenarios {
		text := tt.new
		if tt.old != "" {
			text = strings.Replace(good, tt.old, tt.new, 1)
		}
		f.Add(text, "")
	}
	for _, text := range []string{
		strings.Replace(good, "repeat: 2", "repeat: 2\nfaults: [{at: 1s, kind: link-down, link: leaf0<>spine1, for: 500ms}, {at: 1s, kind: link-flap, link: h0-03<>leaf0, down: 100ms, up: 200ms, times: 5}, {at: 2s, kind: link-rate, link: leaf0>spine*, rate: 10Mbps, for: 3s}]", 1),
		strings.Replace(good, "repeat: 2", "repeat: 2\nfaults: [{at: 2s, kind: host-crash, host: h1-02, for: 3s, disk: lost}, {at: 2s, kind: slow-disk, host: h1-02, rate: 1MB/s, for: 2s}, {at: 2s, kind: slow-cpu, host: h1-02, share: 0.25}, {at: 3s, kind: spine-down, spine: spine0}]", 1),
		strings.Replace(good, "scale: {size: 1/100", "scale: {rate: 1/5, size: 1/100", 1),
		"name: x\nfabric: {kind: switch, ports: 8, host_link: 50Mbps, host_links: [{hosts: \"h0-0[01]\", rate: 10Mbps}]}\nworkload: [{kind: trace, path: small.txt}]\narms: {coflow: [fair]}\n",
		"name: x\nfabric: {leaves: 2, spines: 2, hosts_per_leaf: 4, host_link: 50Mbps, uplink: 25Mbps, delay: 1ms, links: [{link: leaf0>spine1, rate: 10Mbps, delay: 2ms, queue: 30KB}]}\nworkload: [{kind: trace, path: small.txt}]\narms: {coflow: [fair]}\n",
		jobsScenario,
		jobsScenario[:strings.Index(jobsScenario, "arms:")] + "arms: {coflow: [fair], placement: [hdfs], fabric.oversubscription: [\"1:1\", \"2:1\"], disk.read: [null, 9MB/s]}\n",
		strings.Replace(good, "repeat: 2", "sweep: {n: [1, 2, 3], trace: [small.txt], exclude: [{n: 3}], include: [{n: 4, trace: small.txt}]}\nrepeat: 2", 1),
		strings.Replace(good, "arms:\n  coflow: [fair, sebf]\n", "arms:\n  coflow: [fair]\n  fabric.queue: [10ms, 40KB]\n  fabric.links: [null, [{link: leaf0>spine1, delay: 1ms}]]\n", 1),
	} {
		if _, err := Parse("s.yaml", []byte(text), options(nil)); err != nil {
			f.Fatalf("a seed does not load, and so tests little: %v\n%s", err, text)
		}
		f.Add(text, "")
	}
	f.Fuzz(func(t *testing.T, text, n string) {
		o := options(nil)
		if n != "" {
			o.Set = map[string]string{"n": n}
		}
		checkLoad(t, text, o)
	})
}

// FuzzLoadTasks is FuzzLoadScenario with jobs of tasks.
func FuzzLoadTasks(f *testing.F) {
	for _, text := range []string{tasksScenario, withItem("{kind: tasks, path: jobs.yaml, first: 1, rate_factor: 1/2}"), withItem("{kind: tasks, generator: bm, tasks: 1/99, block: 1MB}")} {
		if _, err := parseTasks(f, text); err != nil {
			f.Fatalf("a seed does not load, and so tests little: %v\n%s", err, text)
		}
		f.Add(text)
	}
	for _, tt := range badTasks() {
		f.Add(strings.Replace(tt.text, tt.old, tt.new, 1))
	}
	f.Fuzz(func(t *testing.T, text string) {
		checkLoad(t, text, Options{Catalog: catalog.All(), Open: taskFiles.Open})
	})
}

// checkLoad checks a file as FuzzLoadScenario describes.
func checkLoad(t *testing.T, text string, o Options) {
	t.Helper()
	s, err := Parse("s.yaml", []byte(text), o)
	if err != nil {
		if errors.As(err, new(*magic.NotTextError)) {
			return
		}
		var all *Errors
		if !errors.As(err, &all) || len(all.Problems) == 0 {
			t.Fatalf("error %T %v", err, err)
		}
		for _, p := range all.Problems {
			if p.Line < 1 || p.Col < 1 || p.Text == "" || strings.Contains(p.Error(), "\n") {
				t.Errorf("problem %+v", p)
			}
		}
		return
	}
	want := fingerprint(t, s)
	kept := map[string][]byte{}
	for _, file := range s.Files() {
		kept[file.Name] = file.Data
	}
	fabric, err := s.Shape().Build()
	if err != nil {
		t.Fatalf("a scenario that loads has no fabric: %v", err)
	}
	if s.Spec.Limits.Blocks <= 100_000 && s.Spec.Limits.Flows <= 200_000 {
		if _, _, err := s.Workload(fabric, 0); err != nil {
			t.Fatalf("a scenario that loads has no workload: %v", err)
		}
		if _, _, err := s.TaskJobs(fabric, 0); err != nil {
			t.Fatalf("a scenario that loads has no jobs: %v", err)
		}
	}
	open := func(name string) (fs.File, error) {
		return testFiles(kept).Open(name)
	}
	again, err := Parse("s.yaml", s.Source(), Options{Catalog: o.Catalog, Open: open})
	if err != nil {
		t.Fatalf("the source does not load: %v\n%s", err, s.Source())
	}
	if fingerprint(t, again) != want {
		t.Errorf("the source is another scenario:\n%s", s.Source())
	}
	for _, p := range s.Points() {
		checkResolved(t, p.Scenario, o)
		if p.Values == nil {
			continue
		}
		again, err := Parse("s.yaml", p.Scenario.Source(), Options{Catalog: o.Catalog, Open: open})
		if err != nil || fingerprint(t, again) != fingerprint(t, p.Scenario) {
			t.Fatalf("the source of point %s: %v\n%s", p.Name(), err, p.Scenario.Source())
		}
	}
}

func checkResolved(t *testing.T, s *Scenario, o Options) {
	t.Helper()
	resolved, err := s.Resolved()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("s.yaml", resolved, Options{Catalog: o.Catalog, Open: o.Open})
	if err != nil {
		t.Fatalf("the resolved scenario does not load: %v\n%s", err, resolved)
	}
	if fingerprint(t, again) != fingerprint(t, s) {
		t.Errorf("the resolved scenario is another one:\n%s", resolved)
	}
}
