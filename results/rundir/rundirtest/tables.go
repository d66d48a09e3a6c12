package rundirtest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"testbed/results/summary"
)

// Tables returns the tables and the summary of a run by file, without the name of the run. Files
// that it lacks are empty.
func Tables(t testing.TB, dir string) map[string]string {
	t.Helper()
	tables := map[string]string{}
	for _, name := range summary.DataFiles() {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		tables[name] = strings.ReplaceAll(string(b), filepath.Base(dir), "RUN")
	}
	return tables
}
