// Package oracletest is for tests that compare with results of independent
// simulators, on the public Facebook trace that the coflow literature uses. They are
// no part of the project and lie beside it, in ../shared; where they do not, such a
// test is skipped.
//
// It holds nothing that a comparison is judged by.
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

// Facebook and First150 are files of traces: the public trace (from
// github.com/coflow/coflow-benchmark), and its first 150 coflows.
const (
	Facebook = "traces/FB2010-1Hr-150-0.txt"
	First150 = "oracle/prefix150/FB2010-first150.txt"
)

// Path is where a file beside the project is, as an absolute path. The test is
// skipped where it is not there.
func Path(t testing.TB, name string) string {
	t.Helper()
	path, ok := Find(t, name)
	if !ok {
		t.Skipf("no %s: what is compared with is not part of the project", path)
	}
	return path
}

// Find is Path without the skip: ok tells whether the file is there.
func Find(t testing.TB, name string) (path string, ok bool) {
	t.Helper()
	root, err := os.Getwd() // that of the package under test
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

// Trace reads a trace.
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

// Times reads a column of a table of results, in ms, by its column coflow_id.
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
		t.Fatalf("%s: columns %v, want coflow_id and %s", path, rows[0], column)
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
