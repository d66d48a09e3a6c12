package workloads

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"testbed/topo/magic"
	"testbed/topo/units"
)

// TraceFormat is a format of trace files, by name.
type TraceFormat string

// The formats. docs/traces.md describes each exactly.
const (
	// FormatBenchmark is the format of the public coflow-benchmark: one line per coflow,
	// with the MB of each reducer from all mappers.
	FormatBenchmark TraceFormat = "coflow-benchmark"
	// FormatFlows has the size of every flow, in MB or in bytes. In bytes and without its
	// first line it is the input format of the simulator published with Philae.
	FormatFlows TraceFormat = "flows"
	// FormatHTSim is a connection matrix of htsim: one line per flow, in bytes.
	FormatHTSim TraceFormat = "htsim"
)

// TraceFormats returns all formats, each with the extension of its files.
func TraceFormats() []struct {
	Format TraceFormat
	Ending string
	Doc    string
} {
	return []struct {
		Format TraceFormat
		Ending string
		Doc    string
	}{
		{FormatBenchmark, ".txt", "one line per coflow, MB by reducer"},
		{FormatFlows, ".flows", "one line per coflow, MB or bytes by flow"},
		{FormatHTSim, ".cm", "one line per flow: a connection matrix of htsim"},
	}
}

// ParseTraceFormat returns the format with the given name.
func ParseTraceFormat(name string) (TraceFormat, error) {
	var names []string
	for _, f := range TraceFormats() {
		if string(f.Format) == name {
			return f.Format, nil
		}
		names = append(names, string(f.Format))
	}
	return "", fmt.Errorf("unknown trace format %q (available: %s)", units.Clip(name), strings.Join(names, ", "))
}

// FormatOfFile returns the format for the extension of a file name, or "" if there is
// none.
func FormatOfFile(name string) TraceFormat {
	end := filepath.Ext(name)
	for _, f := range TraceFormats() {
		if f.Ending == end {
			return f.Format
		}
	}
	return ""
}

// detectTrace detects the format of a trace from its beginning. It is certain if the content has a
// property of this format alone. An unknown format counts as coflow-benchmark.
func detectTrace(data []byte) (_ TraceFormat, certain bool) {
	content := 0 // lines except blank lines and comments
	var header []byte
	for line := range bytes.Lines(data) {
		if content == 0 && bytes.HasPrefix(bytes.TrimLeft(line, "# \t"), []byte(flowsMark+" ")) && line[0] == '#' {
			return FormatFlows, true
		}
		fields := bytes.Fields(line[:min(len(line), 256)])
		if len(fields) == 0 || fields[0][0] == '#' {
			continue
		}
		if content++; content == 1 {
			if first := string(fields[0]); slices.Contains(htsimHeads, first) {
				return FormatHTSim, true
			}
			header = fields[0]
			if len(fields) > 2 && aReducer(line) { // no first line
				return FormatBenchmark, true
			}
			continue
		}
		// The shortest coflow of the flows format has seven whole numbers. A coflow of
		// coflow-benchmark has a colon among its first seven fields, or longer lists.
		if len(fields) < 7 || bytes.IndexByte(line, ':') >= 0 || slices.ContainsFunc(fields, func(f []byte) bool { return !number(string(f)) }) {
			if content < detectLines && !aReducer(line) {
				continue
			}
			return FormatBenchmark, aReducer(line)
		}
		if content > 2 {
			return FormatBenchmark, false
		}
		_, err := parseLines("", strings.NewReader(fmt.Sprintf("%s 1\n%s", header, line)), true)
		return FormatFlows, err == nil
	}
	return FormatBenchmark, content == 0
}

// IsTrace reports whether the first bytes of a file are certainly those of a coflow trace.
func IsTrace(head []byte) bool {
	_, certain := detectTrace(head)
	return certain && len(bytes.TrimSpace(head)) > 0
}

// detectLines is the number of lines in which detectTrace looks for a reducer.
const detectLines = 20

// aReducer reports whether a line of coflow-benchmark has a field such as "65:1.0".
func aReducer(line []byte) bool {
	for f := range bytes.FieldsSeq(line) {
		port, size, ok := strings.Cut(string(f), ":")
		if ok && digits(port) && number(size) {
			return true
		}
	}
	return false
}

// quoted matches what an error quotes of a file.
var quoted = regexp.MustCompile(` "(\\.|[^"\\])*"`)

// unknown returns one error for a file whose format is unknown, with the first of e, those of
// reading it in a format. It quotes nothing: it may be another file, and a secret one.
func (e *TraceErrors) unknown(data []byte, format TraceFormat) error {
	var names []string
	for _, f := range TraceFormats() {
		names = append(names, string(f.Format))
	}
	first := e.First[0]
	text := "none of the formats of traces, " + strings.Join(names, ", ")
	if start := bytes.TrimSpace(data); len(start) > 0 && (start[0] == '{' || start[0] == '[') {
		text = "JSON, " + text
	} else {
		text += fmt.Sprintf("; as %s: %s", format, quoted.ReplaceAllString(first.Text, ""))
	}
	first.Text = text
	return &TraceErrors{First: []TraceError{first}, Total: 1}
}

// number reports whether a field is a decimal without a sign.
func number(s string) bool {
	whole, frac, dotted := strings.Cut(s, ".")
	return digits(whole) && (!dotted || digits(frac))
}

// ReadTrace reads a trace in a format; with "" it detects the format. The remarks describe
// the parts of the file that a Trace cannot represent. The error is a *TraceErrors with
// the first error of every invalid line, or the error of reading r; name is the name of
// the file in it.
func ReadTrace(name string, r io.Reader, format TraceFormat) (_ *Trace, is TraceFormat, remarks []string, _ error) {
	var data []byte
	text, err := magic.Text(r)
	if err == nil {
		data, err = io.ReadAll(text)
	}
	if err != nil {
		return nil, format, nil, fmt.Errorf("%s: %w", name, err)
	}
	certain := true
	if format == "" {
		format, certain = detectTrace(data)
	}
	var t *Trace
	switch format {
	case FormatBenchmark:
		t, err = ParseTrace(name, bytes.NewReader(data))
	case FormatFlows:
		t, err = parseLines(name, bytes.NewReader(data), true)
	case FormatHTSim:
		t, remarks, err = parseHTSim(name, bytes.NewReader(data))
	default:
		_, err = ParseTraceFormat(string(format))
	}
	var errs *TraceErrors
	if !certain && errors.As(err, &errs) {
		err = errs.unknown(data, format)
	}
	return t, format, remarks, err
}
