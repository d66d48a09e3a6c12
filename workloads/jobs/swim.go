package jobs

import (
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"testbed/topo/units"
	"testbed/workloads"
)

// Record is a job of a trace that has totals and no tasks.
type Record struct {
	Name    string
	Submit  time.Duration
	Input   units.Bytes // read by maps
	Shuffle units.Bytes // sent from maps to reduces; 0 if the job has no reduces
	Output  units.Bytes // written by reduces, or by maps if there are none; without replicas
	Path    string      // of the input, "" if the trace does not state it
}

// swimFields are the fields of a line of SWIM.
var swimFields = [...]string{"job name", "submit time in s", "gap to the previous job in s", "input bytes", "shuffle bytes", "output bytes"}

// swimPaths is the largest number of fields after those: the paths of the input and of the output.
const swimPaths = 2

// maxSWIMLine is the longest line read, in bytes. A line of the public traces has fewer than 80.
const maxSWIMLine = 4096

// ReadSWIM reads a trace of jobs in the format of SWIM (Chen et al., MASCOTS 2011), as the public
// Facebook traces of 2009 and 2010 have it: one line per job,
//
//	<name> <submit s> <s since the previous job> <input> <shuffle> <output> [<input path> [<output path>]]
//
// with whole numbers, sizes in bytes, fields separated by tabs or spaces, and jobs in order of
// submission. The first line may be from the middle of a trace. Blank lines and lines that begin with # are ignored. The error is a
// *workloads.TraceErrors with the first error of every invalid line, or the error of reading r;
// name is the name of the file in it.
func ReadSWIM(name string, r io.Reader, l Limits) ([]Record, error) {
	l = l.WithDefaults()
	var records []Record
	errs := &workloads.TraceErrors{}
	var last time.Duration // submission of the last valid line
	var total units.Bytes
	lost := true // the line before is missing or invalid, so the gap to it is unknown
	n, whole, err := errs.Scan(name, r, maxSWIMLine, "one job a line", func(n int, text string) bool {
		if t := strings.TrimSpace(text); t == "" || t[0] == '#' {
			return true
		}
		col := 0
		fail := func(format string, args ...any) bool {
			errs.Add(workloads.TraceError{Name: name, Line: n, Col: col + 1, Text: fmt.Sprintf(format, args...)})
			lost = true
			return true
		}
		if len(records) == l.Jobs {
			fail("more than %d jobs up to this line: the limit of a workload; the rest is not read", l.Jobs)
			return false
		}
		var fields [len(swimFields)]string
		var cols [len(swimFields)]int
		for i, what := range swimFields {
			if fields[i], cols[i], col = nextField(text, col); fields[i] == "" {
				return fail("line ends before the %s: expected %d fields", what, len(swimFields))
			}
		}
		var paths [swimPaths]string
		for i := range paths {
			paths[i], _, col = nextField(text, col)
		}
		if extra, at, _ := nextField(text, col); extra != "" {
			col = at
			return fail("%q after the paths of input and output: expected the end of the line", units.Clip(extra))
		}
		var numbers [len(swimFields)]int64
		for i := 1; i < len(fields); i++ {
			most := int64(maxSize)
			if i < 3 {
				most = int64(maxTime / time.Second)
			}
			x, err := strconv.ParseInt(fields[i], 10, 64)
			if c := fields[i][0]; err != nil || c == '+' || c == '-' || x > most {
				col = cols[i]
				return fail("%s %q: expected a whole number, 0 to %d", swimFields[i], units.Clip(fields[i]), most)
			}
			numbers[i] = x
		}
		rec := Record{fields[0], time.Duration(numbers[1]) * time.Second, units.Bytes(numbers[3]), units.Bytes(numbers[4]), units.Bytes(numbers[5]), paths[0]}
		if col = cols[1]; rec.Submit < last {
			return fail("submit time %d s after one at %d s: expected jobs in order of submission", numbers[1], last/time.Second)
		}
		if gap := rec.Submit - last; !lost && gap != time.Duration(numbers[2])*time.Second {
			col = cols[2]
			return fail("gap of %d s: the submit times are %d s apart", numbers[2], gap/time.Second)
		}
		if total += rec.Input + rec.Shuffle + rec.Output; total > maxTotal {
			total, col = 0, 0
			return fail("more than %v up to this line: the limit of a trace", maxTotal)
		}
		last, lost = rec.Submit, false
		records = append(records, rec)
		return true
	})
	if err != nil {
		return nil, err
	}
	if whole && len(records) == 0 && errs.Total == 0 {
		errs.Add(workloads.TraceError{Name: name, Line: max(n, 1), Col: 1, Text: "no jobs: expected one a line, with " + strings.Join(swimFields[:], ", ")})
	}
	if errs.Total > 0 {
		return nil, errs
	}
	return records, nil
}

// nextField returns the field of a line at or after an index, its index, and the index after it;
// "" at the end of the line.
func nextField(line string, i int) (field string, at, end int) {
	blank := func(b byte) bool { return b == ' ' || b == '\t' || b == '\r' }
	for i < len(line) && blank(line[i]) {
		i++
	}
	at = i
	for i < len(line) && !blank(line[i]) {
		i++
	}
	return line[at:i], at, i
}

// IsSWIM reports whether the first bytes of a file look like a SWIM trace: the first line that
// is not blank or a comment has six to eight fields, the second to sixth of them whole numbers.
func IsSWIM(head []byte) bool {
	for line := range strings.Lines(string(head)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0][0] == '#' {
			continue
		}
		if len(fields) < len(swimFields) || len(fields) > len(swimFields)+swimPaths {
			return false
		}
		for _, f := range fields[1:len(swimFields)] {
			if n, err := strconv.ParseUint(f, 10, 64); err != nil || n > math.MaxInt64 {
				return false
			}
		}
		return true
	}
	return false
}
