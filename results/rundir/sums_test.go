package rundir_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"testbed/emu/longtest"
	"testbed/results/rundir"
	"testbed/results/rundir/rundirtest"
	"testbed/results/summary"
)

// full has every table.
func full() rundirtest.Spec {
	s := rundirtest.Default()
	s.Jobs, s.Tasks, s.Arms, s.Repeats = true, true, s.Arms[:1], 1
	return s
}

// cutRow removes the last row of a table.
func cutRow(s string) string { return s[:strings.LastIndex(s[:len(s)-1], "\n")+1] }

func change(t *testing.T, path string, how func(string) string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(how(string(b))), 0o644); err != nil {
		t.Fatal(err)
	}
}

// A table or summary that was changed after the run is refused by name: by its sum and, where there is
// no manifest, by its rows.
func TestChangedTables(t *testing.T) {
	longtest.Computes(t)
	for _, bare := range []bool{false, true} {
		made := rundirtest.Write(t, full())
		open(t, made)
		for _, name := range summary.DataFiles() {
			hows := map[string]func(string) string{"row": cutRow, "missing": nil,
				"bit": func(s string) string { return s[:len(s)/2] + string(s[len(s)/2]^1) + s[len(s)/2+1:] }}
			if bare {
				delete(hows, "bit")
			}
			for what, how := range hows {
				if bare && name == summary.SummaryFile {
					continue
				}
				t.Run(fmt.Sprint(name, " ", what, " bare ", bare), func(t *testing.T) {
					dir := filepath.Join(t.TempDir(), "run")
					if err := os.CopyFS(dir, os.DirFS(made)); err != nil {
						t.Fatal(err)
					}
					if bare {
						if err := os.Remove(filepath.Join(dir, rundir.ManifestFile)); err != nil {
							t.Fatal(err)
						}
					}
					if how == nil {
						if err := os.Remove(filepath.Join(dir, name)); err != nil {
							t.Fatal(err)
						}
					} else {
						change(t, filepath.Join(dir, name), how)
					}
					wantError(t, dir, name, "testbed report")
				})
			}
		}
	}
}

// Inspect names every file that differs from what the run wrote, and no other.
func TestChangesAreNamed(t *testing.T) {
	dir := rundirtest.Write(t, rundirtest.Default())
	put := func(name, content string) {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"scenario.yaml", "fair/0/captures/h0-00.pcapng", "fair/0/captures/h0-01.pcapng", "fair/0/events.jsonl", "fair/0/.new-x"} {
		put(name, name)
	}
	rundirtest.Seal(t, dir)
	if _, changes, err := rundir.Inspect(dir); err != nil || len(changes) > 0 {
		t.Fatalf("a run that nothing changed: %v, %v", changes, err)
	}
	put("fair/0/captures/h0-00.pcapng", "other")
	if err := os.Remove(filepath.Join(dir, "fair/0/captures/h0-01.pcapng")); err != nil {
		t.Fatal(err)
	}
	put("fair/0/captures/h0-01.pcapng.gz", "other form")
	put("fair/0/failures.json", "[]")
	put("sebf/0/captures/h0-00.pcapng", "another repeat")
	put("scenario.yaml", "other")
	put("figures/cct.pdf", "drawn later")
	put("notes.txt", "of the user")
	m, changes, err := rundir.Inspect(dir)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range changes {
		what, _, _ := strings.Cut(c.String(), ":")
		got = append(got, what)
		if c.OfRepeat() != strings.HasPrefix(c.File, "fair/") && c.OfRepeat() != strings.HasPrefix(c.File, "sebf/") {
			t.Errorf("%s: part of a repeat: %v", c.File, c.OfRepeat())
		}
	}
	want := []string{
		"fair/0/captures/h0-00.pcapng was changed after the run",
		"fair/0/captures/h0-01.pcapng is missing",
		"scenario.yaml was changed after the run",
		"fair/0/captures/h0-01.pcapng.gz was added after the run",
		"fair/0/failures.json was added after the run",
		"sebf/0/captures/h0-00.pcapng was added after the run",
	}
	if !slices.Equal(got, want) {
		t.Errorf("changes\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// Changes of captures do not keep the run's own tables from being read, but are known.
	if r := open(t, dir); len(r.Changes) != len(want) {
		t.Errorf("Open: %d changes, want %d", len(r.Changes), len(want))
	}
	if list, err := rundir.List(filepath.Dir(dir)); err != nil || len(list) != 1 || len(list[0].Changes) != len(want) {
		t.Errorf("List: %+v, %v", list, err)
	}
	// Seal adds sums of new files, and leaves those of others alone.
	before := m.Files["scenario.yaml"]
	if err := m.Seal(dir, ""); err != nil {
		t.Fatal(err)
	}
	if m.Files["scenario.yaml"] != before || m.Files["notes.txt"] == "" {
		t.Errorf("sums after a second Seal: %v", m.Files)
	}
	// Around finds the run directory of a capture.
	if at, ok := rundir.Around(filepath.Join(dir, "fair/0/captures/h0-00.pcapng")); !ok || at != dir {
		t.Errorf("Around: %s, %v", at, ok)
	}
}

// A manifest that was changed is refused; one without sums makes its files unchecked.
func TestChangedManifest(t *testing.T) {
	dir := rundirtest.Write(t, rundirtest.Default())
	path := filepath.Join(dir, rundir.ManifestFile)
	change(t, path, func(s string) string { return strings.Replace(s, `"seed": 7`, `"seed": 8`, 1) })
	wantError(t, dir, "manifest.json was changed after it was written")
	change(t, path, func(s string) string {
		i := strings.LastIndex(s, `"sha256": "`)
		return s[:i] + "\"sha256\": \"\"\n}\n"
	})
	if r := open(t, dir); len(r.Changes) == 0 || !strings.Contains(r.Changes[0].String(), "manifest.json states no SHA-256 sums") {
		t.Errorf("changes %v", r.Changes)
	}
}
