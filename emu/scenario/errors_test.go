package scenario

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

// testTraces are the traces that scenarios of tests may name.
var testTraces = fstest.MapFS{
	"small.txt": {Data: []byte("8 4\n1 0 2 0 1 1 3:65.0\n2 250 1 3 2 0:12.5 5:4\n5 250 1 2 1 2:7.0\n9 1000 8 0 1 2 3 4 5 6 7 2 0:80.0 4:8.0\n")},
	"bad.txt":   {Data: []byte("8 3\n1 0 2 0 1 1 3:65.0\n2 250 1 8 1 0:1\n5 100 1 2 1 2:NaN\n")},
	"local.txt": {Data: []byte("40 1\n1 0 1 0 1 20:1\n")},
	"dir/x.txt": {Data: []byte("1 1\n")},
	"long.txt":  {Data: []byte("1 1\n" + strings.Repeat(" ", 1000))},
}

// checkPolicy knows fair and sebf, hdfs and sinbad with its two parameters.
func checkPolicy(role, name string, params map[string]any) error {
	known := map[string][]string{"coflow/fair": nil, "coflow/sebf": nil, "placement/hdfs": nil, "placement/sinbad": {"threshold", "tolerance"}}
	takes, ok := known[role+"/"+name]
	if !ok {
		return fmt.Errorf("no %s policy %q: want one of those listed", role, name)
	}
	var errs []error
	for _, p := range sortedKeys(params) {
		if strings.Join(takes, " ") == "" || !strings.Contains(strings.Join(takes, " "), p) {
			errs = append(errs, fmt.Errorf("no parameter %q of %s", p, name))
		} else if s, ok := params[p].(string); ok && p == "tolerance" {
			errs = append(errs, fmt.Errorf("%s: %s: %s: want a number", name, p, s))
		}
	}
	return errors.Join(errs...)
}

func options(set map[string]string) Options {
	return Options{Set: set, CheckPolicy: checkPolicy, Open: testTraces.Open}
}

func goodScenario(t testing.TB) string {
	t.Helper()
	data, err := os.ReadFile("testdata/good.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestLoadErrors(t *testing.T) {
	good := goodScenario(t)
	for _, tt := range badScenarios {
		text := tt.new
		if tt.old != "" {
			if strings.Count(good, tt.old) != 1 {
				t.Errorf("%s: %q is in good.yaml %d times, want once", tt.name, tt.old, strings.Count(good, tt.old))
				continue
			}
			text = strings.Replace(good, tt.old, tt.new, 1)
		}
		_, err := Parse("s.yaml", []byte(text), options(tt.set))
		if err == nil {
			t.Errorf("%s: no error, want\n%s", tt.name, tt.want)
		} else if err.Error() != tt.want {
			t.Errorf("%s:\n%v\nwant\n%s", tt.name, err, tt.want)
		}
	}
}

// testFiles are files by name.
func testFiles(files map[string][]byte) fstest.MapFS {
	m := fstest.MapFS{}
	for name, data := range files {
		m[name] = &fstest.MapFile{Data: data}
	}
	return m
}
