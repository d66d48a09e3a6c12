package scenario

import (
	"errors"
	"io/fs"
	"strings"
	"testing"
)

// FuzzLoadScenario checks that no file makes the loader panic, that every
// mistake has a place, and that a file that loads can be kept: its Source and its
// Resolved form load again as the same scenario.
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
	f.Fuzz(func(t *testing.T, text, n string) {
		o := options(nil)
		if n != "" {
			o.Set = map[string]string{"n": n}
		}
		s, err := Parse("s.yaml", []byte(text), o)
		if err != nil {
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
		}
		open := func(name string) (fs.File, error) {
			return testFiles(kept).Open(name)
		}
		again, err := Parse("s.yaml", s.Source(), Options{CheckPolicy: checkPolicy, Open: open})
		if err != nil {
			t.Fatalf("the source does not load: %v\n%s", err, s.Source())
		}
		if fingerprint(t, again) != want {
			t.Errorf("the source is another scenario:\n%s", s.Source())
		}
		resolved, err := s.Resolved()
		if err != nil {
			t.Fatal(err)
		}
		again, err = Parse("s.yaml", resolved, options(nil))
		if err != nil {
			t.Fatalf("the resolved scenario does not load: %v\n%s", err, resolved)
		}
		if fingerprint(t, again) != want {
			t.Errorf("the resolved scenario is another one:\n%s", resolved)
		}
	})
}
