// Package oracletest supports tests that compare with results of independent simulators, on
// the public Facebook trace that the coflow literature uses. The results are not part of
// the project: they are next to it, in ../shared. If they are missing, such a test is
// skipped.
package oracletest

import (
	"encoding/csv"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"testbed/workloads"
)

// Facebook and First150 are names of trace files: the public trace (from
// github.com/coflow/coflow-benchmark), and its first 150 coflows.
const (
	Facebook = "traces/FB2010-1Hr-150-0.txt"
	First150 = "oracle/prefix150/FB2010-first150.txt"
)

// Path returns the absolute path of a file next to the project. It skips the test if the
// file does not exist.
func Path(t testing.TB, name string) string {
	t.Helper()
	path, ok := Find(t, name)
	if !ok {
		t.Skipf("no %s: the reference results are not part of the project", path)
	}
	return path
}

// Find is Path without the skip: ok reports whether the file exists.
func Find(t testing.TB, name string) (path string, ok bool) {
	t.Helper()
	root, err := os.Getwd() // of the package under test
	if err != nil {
		t.Fatal(err)
	}
	for {
		_, err := os.Stat(filepath.Join(root, "go.mod"))
		if err == nil {
			break
		}
		if up := filepath.Dir(root); errors.Is(err, fs.ErrNotExist) && up != root {
			root = up
			continue
		}
		t.Fatalf("the test is not run below its module: %v", err)
	}
	path = filepath.Join(filepath.Dir(root), "shared", filepath.FromSlash(name))
	_, err = os.Stat(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return path, err == nil
}

// Trace reads a trace file.
func Trace(t testing.TB, name string) *workloads.Trace {
	t.Helper()
	path := Path(t, name)
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	trace, err := workloads.ParseTrace(path, file)
	if err != nil {
		t.Fatal(err)
	}
	return trace
}

// Times reads a column of a table of results, in ms, keyed by its column coflow_id.
func Times(t testing.TB, name, column string) map[workloads.CoflowID]float64 {
	t.Helper()
	path := Path(t, name)
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil || len(rows) < 2 {
		t.Fatalf("%s: %d lines, %v", path, len(rows), err)
	}
	col := map[string]int{}
	for i, name := range rows[0] {
		col[name] = i
	}
	id, ok1 := col["coflow_id"]
	at, ok2 := col[column]
	if !ok1 || !ok2 {
		t.Fatalf("%s: columns %v: expected coflow_id and %s", path, rows[0], column)
	}
	out := map[workloads.CoflowID]float64{}
	for i, row := range rows[1:] {
		n, err1 := strconv.Atoi(row[id])
		ms, err2 := strconv.ParseFloat(row[at], 64)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatalf("%s: line %d: %v", path, i+2, err)
		}
		out[workloads.CoflowID(n)] = ms
	}
	if len(out) != len(rows)-1 {
		t.Fatalf("%s: %d coflows on %d lines", path, len(out), len(rows)-1)
	}
	return out
}
