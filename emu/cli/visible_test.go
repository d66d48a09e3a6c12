package cli

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"

	"testbed/emu/longtest"
	"testbed/results/pcap"
	"testbed/results/rundir"
	"testbed/results/rundir/rundirtest"
)

// escape is what a foreign file may contain: a colour, a title, a carriage return, a C1 code
// and a character that reverses text.
const escape = "\x1b[31mX\x1b]0;t\a\rY\u009b2J\x7f\u202e"

// shows runs a verb on a foreign file. Nothing that it prints may act on a terminal.
func (p place) shows(t *testing.T, planted string, args ...string) (stdout string) {
	t.Helper()
	var out, errs bytes.Buffer
	Main(t.Context(), args, strings.NewReader(""), &out, &errs)
	for name, text := range map[string]string{"standard output": out.String(), "standard error": errs.String()} {
		if i := strings.IndexFunc(text, func(r rune) bool {
			return r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r == '\u202e'
		}); i >= 0 {
			t.Errorf("%s: testbed %s: %s contains %q", planted, strings.Join(args, " "), name, text[max(0, i-30):min(len(text), i+30)])
		}
	}
	return out.String()
}

// plant fills every string of a struct.
func plant(v reflect.Value, text string) {
	for i := range v.NumField() {
		switch f := v.Field(i); f.Kind() {
		case reflect.String:
			f.SetString(text)
		case reflect.Struct:
			if f.CanSet() && f.Type().PkgPath() != "time" {
				plant(f, text)
			}
		}
	}
}

func TestEscapesInCapturesAreVisible(t *testing.T) {
	p := place{dir: t.TempDir()}
	for _, text := range []string{escape, "=1+1"} {
		var meta pcap.Meta
		plant(reflect.ValueOf(&meta).Elem(), text)
		var b bytes.Buffer
		w, err := pcap.NewWriter(&b, meta, []pcap.Interface{{Name: text, Description: text, Comment: text, SnapLen: 160}})
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Close(pcap.Stats{}); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(p.dir, "x"+strconv.Itoa(len(text))+".pcapng")
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{path}, {path, path}, {path, "--json"}, {path, "--csv"}} {
			out := p.shows(t, "capture", append([]string{"pcap"}, args...)...)
			if text == escape && len(args) == 1 && !strings.Contains(out, `\u001b[31mX\u001b]0;t\u0007`) {
				t.Errorf("pcap shows\n%s", out)
			}
		}
	}
}

// A capture may be in a file of any name.
func TestNamesOfFilesAreVisible(t *testing.T) {
	p := place{dir: t.TempDir()}
	for _, name := range []string{"=1+1,.pcap", escape + ".pcap"} {
		path := filepath.Join(p.dir, name)
		datagrams(t, path, 2, 4)
		t.Chdir(p.dir)
		for _, args := range [][]string{{name}, {name, name}, {name, "--json"}, {name, "--csv"}, {"."}, {name + "none"}} {
			p.shows(t, "name of a file", append([]string{"pcap"}, args...)...)
		}
		rows, err := csv.NewReader(strings.NewReader(p.shows(t, "name of a file", "pcap", "--csv", name))).ReadAll()
		if err != nil || len(rows) != 3 {
			t.Fatalf("%v, %v", rows, err)
		}
		if name[0] == '=' && rows[1][0] != "'"+name {
			t.Errorf("the cell is %q", rows[1][0])
		}
	}
}

// leaves calls f for each string of a JSON value, with its place and a function that sets it.
func leaves(place string, v any, set func(any), f func(place, was string, set func(any))) {
	switch v := v.(type) {
	case string:
		f(place, v, set)
	case map[string]any:
		for k, x := range v {
			leaves(place+"."+k, x, func(x any) { v[k] = x }, f)
		}
	case []any:
		for i, x := range v {
			leaves(fmt.Sprintf("%s[%d]", place, i), x, func(x any) { v[i] = x }, f)
		}
	}
}

func TestEscapesInManifestsAreVisible(t *testing.T) {
	t.Parallel()
	longtest.Computes(t)
	p := place{dir: t.TempDir()}
	runs := t.TempDir()
	dir := filepath.Join(runs, "foreign")
	if err := os.Rename(rundirtest.Write(t, rundirtest.Default()), dir); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "manifest.json")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var manifest map[string]any
	if err := json.Unmarshal(whole, &manifest); err != nil {
		t.Fatal(err)
	}
	planted, quoted := 0, 0
	leaves("manifest", manifest, nil, func(at, was string, set func(any)) {
		planted++
		for _, text := range []string{escape, was + escape, "=1+1"} {
			set(text)
			b, err := json.Marshal(manifest)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, b, 0o644); err != nil {
				t.Fatal(err)
			}
			var sealed rundir.Manifest
			if json.Unmarshal(b, &sealed) == nil { // else it is no manifest, which is shown as well
				if err := sealed.Save(dir); err != nil {
					t.Fatal(err)
				}
			}
			for _, args := range [][]string{{"runs", runs}, {"runs", runs, "--json"}, {"replay", dir}, {"compare", dir}, {"plot", dir, "--list"}} {
				p.shows(t, at, args...)
			}
			if text != "=1+1" {
				continue
			}
			for _, args := range [][]string{{"export", dir, "--table", "runs", "--csv"}, {"export", dir, "--table", "arms", "--csv"}, {"export", dir, "--table", "coflows", "--csv"}, {"compare", dir, "--csv"}} {
				rows, _ := csv.NewReader(strings.NewReader(p.shows(t, at, args...))).ReadAll()
				for _, row := range rows {
					for _, cell := range row {
						if cell == "'=1+1" {
							quoted++
						}
						if _, err := strconv.ParseFloat(cell, 64); cell != "" && strings.ContainsRune("=+-@\t", rune(cell[0])) && err != nil {
							t.Errorf("%s: %v has the cell %q", at, args, cell)
						}
					}
				}
			}
		}
		set(was)
	})
	if planted < 10 || quoted == 0 {
		t.Errorf("%d strings in the manifest, %d formulas in CSV", planted, quoted)
	}
}
