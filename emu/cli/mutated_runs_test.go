package cli

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"testbed/emu/longtest"
	"testbed/results/pcap"
	"testbed/results/rundir"
	"testbed/results/summary"
)

// mutant is a copy of a run of which a test changes files.
type mutant struct {
	dir      string
	content  map[string][]byte // of the run, by path
	captures []string
	rng      *rand.Rand
}

// newMutant copies a run, with plain or compressed captures.
func newMutant(t *testing.T, from string, plain bool) *mutant {
	t.Helper()
	m := &mutant{dir: filepath.Join(t.TempDir(), "run"), content: map[string][]byte{}, rng: rand.New(rand.NewPCG(1, 2))}
	if err := os.CopyFS(m.dir, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(m.dir, func(path string, e fs.DirEntry, err error) error {
		name, ok := strings.CutSuffix(path, pcap.CompressedSuffix)
		if err != nil || !ok || !plain {
			return err
		}
		if err := os.WriteFile(name+pcap.Suffix, decompress(t, path), 0o644); err != nil {
			return err
		}
		return os.Remove(path)
	})
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := rundir.ReadManifest(m.dir)
	if err != nil {
		t.Fatal(err)
	}
	if manifest.Files = nil; plain {
		if err := manifest.Seal(m.dir, ""); err != nil {
			t.Fatal(err)
		}
		if err := manifest.Save(m.dir); err != nil {
			t.Fatal(err)
		}
	}
	err = filepath.WalkDir(m.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		name, err := filepath.Rel(m.dir, path)
		if err != nil {
			return err
		}
		if filepath.Base(filepath.Dir(name)) == rundir.CapturesDir {
			m.captures = append(m.captures, name)
		}
		m.content[name], err = os.ReadFile(path)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func decompress(t *testing.T, path string) []byte {
	t.Helper()
	in, err := pcap.OpenPlain(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	b, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (m *mutant) write(t *testing.T, name string, content []byte) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(m.dir, name), content, 0o644); err != nil {
		t.Fatal(err)
	}
}

// restore makes the directory that of the run again.
func (m *mutant) restore(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir(m.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		if name, _ := filepath.Rel(m.dir, path); m.content[name] == nil {
			return os.Remove(path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range m.content {
		if got, err := os.ReadFile(filepath.Join(m.dir, name)); err != nil || !bytes.Equal(got, content) {
			m.write(t, name, content)
		}
	}
}

// packets changes the blocks of a capture and writes it in its form. How gets the offsets of
// its packets.
func (m *mutant) packets(t *testing.T, name string, how func(capture []byte, packets []int) []byte) {
	t.Helper()
	path := filepath.Join(m.dir, name)
	b := decompress(t, path)
	var packets []int
	for at := 0; at+12 <= len(b); at += int(binary.LittleEndian.Uint32(b[at+4:])) {
		if binary.LittleEndian.Uint32(b[at:]) == 6 {
			packets = append(packets, at)
		}
	}
	b = how(b, packets)
	plain, compressed := strings.CutSuffix(path, pcap.CompressedSuffix)
	if !compressed {
		m.write(t, name, b)
		return
	}
	plain += pcap.Suffix
	if err := os.WriteFile(plain, b, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := pcap.CompressFile(context.Background(), plain); err != nil {
		t.Fatal(err)
	}
}

// stamp changes the stamp of a packet, in nanoseconds.
func (m *mutant) stamp(t *testing.T, name string, how func(uint64) uint64) {
	m.packets(t, name, func(b []byte, packets []int) []byte {
		at := packets[m.rng.IntN(len(packets))]
		stamp := how(uint64(binary.LittleEndian.Uint32(b[at+12:]))<<32 | uint64(binary.LittleEndian.Uint32(b[at+16:])))
		binary.LittleEndian.PutUint32(b[at+12:], uint32(stamp>>32))
		binary.LittleEndian.PutUint32(b[at+16:], uint32(stamp))
		return b
	})
}

// mutations are the ways in which a run directory changes. Each returns the files that changed.
func (m *mutant) mutations(t *testing.T) map[string]func() []string {
	capture := func() string { return m.captures[m.rng.IntN(len(m.captures))] }
	tables := slices.DeleteFunc(summary.DataFiles(), func(name string) bool { return m.content[name] == nil })
	var records []string
	for name := range m.content {
		if strings.Count(name, "/") == 2 {
			records = append(records, name)
		}
	}
	slices.Sort(records)
	flip := func(name string) []string {
		b := slices.Clone(m.content[name])
		b[m.rng.IntN(len(b))] ^= 1 << m.rng.IntN(8)
		m.write(t, name, b)
		return []string{name}
	}
	return map[string]func() []string{
		"a bit of a capture": func() []string { return flip(capture()) },
		"a bit of a record":  func() []string { return flip(records[m.rng.IntN(len(records))]) },
		"a bit of a table":   func() []string { return flip(tables[m.rng.IntN(len(tables))]) },
		"a bit of a stamp": func() []string {
			name := capture()
			m.stamp(t, name, func(ns uint64) uint64 { return ns ^ 1<<m.rng.IntN(32) })
			return []string{name}
		},
		"a stamp + 5 s": func() []string {
			name := capture()
			m.stamp(t, name, func(ns uint64) uint64 { return ns + 5e9 })
			return []string{name}
		},
		"a packet removed": func() []string {
			name := capture()
			m.packets(t, name, func(b []byte, packets []int) []byte {
				at := packets[m.rng.IntN(len(packets))]
				return slices.Delete(b, at, at+int(binary.LittleEndian.Uint32(b[at+4:])))
			})
			return []string{name}
		},
		"a capture cut": func() []string {
			name := capture()
			m.write(t, name, m.content[name][:m.rng.IntN(len(m.content[name]))])
			return []string{name}
		},
		"captures swapped": func() []string {
			a, b := capture(), capture()
			for a == b {
				b = capture()
			}
			m.write(t, a, m.content[b])
			m.write(t, b, m.content[a])
			return []string{a, b}
		},
		"captures of another repeat": func() (names []string) {
			arm := strings.Split(capture(), "/")[0]
			for _, name := range m.captures {
				other := "sebf+hdfs"
				if arm == other {
					other = "fair+hdfs"
				}
				if rest, ok := strings.CutPrefix(name, arm+"/"); ok {
					m.write(t, name, m.content[other+"/"+rest])
					names = append(names, name)
				}
			}
			return names
		},
		"a capture missing": func() []string {
			name := capture()
			if err := os.Remove(filepath.Join(m.dir, name)); err != nil {
				t.Fatal(err)
			}
			return []string{name}
		},
		"a capture in another form": func() []string {
			name := capture() + ".gz"
			m.write(t, name, []byte("x"))
			return []string{name}
		},
		"the last row of a table": func() []string {
			for {
				name := tables[m.rng.IntN(len(tables))]
				if b := m.content[name]; bytes.Count(b, []byte("\n")) > 1 {
					m.write(t, name, b[:bytes.LastIndexByte(b[:len(b)-1], '\n')+1])
					return []string{name}
				}
			}
		},
	}
}

// check verifies that changed files are named, and not one more, and that neither compare nor report
// present a figure that the run did not have.
func (m *mutant) check(t *testing.T, what string, files []string, whole bool) {
	t.Helper()
	_, changes, err := rundir.Inspect(m.dir)
	var got []string
	for _, c := range changes {
		got = append(got, c.File)
	}
	slices.Sort(files)
	if slices.Sort(got); err != nil || !slices.Equal(got, files) {
		t.Errorf("%s: changes %v, %v, want those of %v", what, got, err, files)
	}
	if !whole {
		return
	}
	code, out, errs := call(t, time.Minute, nil, "report", m.dir)
	for _, name := range files {
		if !strings.Contains(errs, name) {
			t.Errorf("%s: report does not name %s:\n%s", what, name, errs)
		}
	}
	table := slices.Contains(summary.DataFiles(), files[0])
	if table == strings.Contains(errs, "not written") || !table && code != exitFailure && code != exitVoid {
		t.Errorf("%s: report has exit code %d\n%s%s", what, code, out, errs)
	}
	for _, name := range summary.DataFiles() { // report repairs tables, and keeps them otherwise
		if b, err := os.ReadFile(filepath.Join(m.dir, name)); m.content[name] != nil && (err != nil || !bytes.Equal(b, m.content[name])) {
			t.Errorf("%s: %s is not that of the run after report", what, name)
		}
	}
}

// mutate changes a run n times in each form of captures. Report judges each of the first reported
// changes of a kind.
func mutate(t *testing.T, n, reported int) {
	r := smallRun(t)
	for _, plain := range []bool{true, false} {
		m := newMutant(t, r.runDir, plain)
		m.check(t, "no change", nil, false)
		all := m.mutations(t)
		kinds := slices.Sorted(maps.Keys(all))
		for i := range n {
			what := fmt.Sprintf("%s, %d, plain %v", kinds[i%len(kinds)], i, plain)
			files := all[kinds[i%len(kinds)]]()
			m.check(t, what, files, i < reported*len(kinds))
			m.restore(t)
		}
	}
}

// No change of a run after its end is silent: each is named, the report of a changed capture is not a
// success, and the run's own figures stay.
func TestMutatedRuns(t *testing.T) {
	t.Parallel()
	longtest.Skip(t, "changes files of a run 24 times in both forms, 20 s")
	mutate(t, 24, 1)
}

func TestManyMutatedRuns(t *testing.T) {
	longtest.Nightly(t, "changes files of a run 2,000 times, 5 minutes")
	mutate(t, 1000, 10)
}

// Of a run without some of its captures, the report has no average of the coflows that are left. It
// leaves the run's own figures alone unless it is forced.
func TestLostCaptures(t *testing.T) {
	t.Parallel()
	longtest.Skip(t, "reports on a run four times, 5 s")
	r := smallRun(t)
	m := newMutant(t, r.runDir, false)
	for i, name := range m.captures {
		if i < 2 {
			if err := os.Remove(filepath.Join(m.dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	out := filepath.Join(t.TempDir(), "again")
	for _, args := range [][]string{{"report", m.dir}, {"report", m.dir, "-o", out}, {"report", m.dir, "--force"}} {
		code, text, errs := call(t, time.Minute, nil, args...)
		wrote := len(args) > 2
		if code != exitVoid || !strings.Contains(text, " of ") || wrote == strings.Contains(errs, "not written") {
			t.Errorf("%v: exit code %d\n%s%s", args, code, text, errs)
		}
		kept, err := os.ReadFile(filepath.Join(m.dir, summary.SummaryFile))
		if forced := args[len(args)-1] == "--force"; err != nil || bytes.Equal(kept, m.content[summary.SummaryFile]) == forced {
			t.Errorf("%v: the summary of the run is kept: %v, %v", args, !forced, err)
		}
	}
	if b, err := os.ReadFile(filepath.Join(out, summary.SummaryFile)); err != nil || !bytes.Contains(b, []byte(`"level": "void"`)) {
		t.Errorf("the report in %s: %v\n%.300s", out, err, b)
	}
	// The changes stay known after a forced report.
	if _, changes, err := rundir.Inspect(m.dir); err != nil || len(changes) != 2 {
		t.Errorf("changes after a forced report: %v, %v", changes, err)
	}
}
