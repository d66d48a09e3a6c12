package workloads

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

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

// detectTrace detects the format of a trace from its beginning. An unknown format counts
// as coflow-benchmark, whose parser reports the errors.
func detectTrace(data []byte) TraceFormat {
	content := 0 // lines except blank lines and comments
	for line := range bytes.Lines(data) {
		if content == 0 && bytes.HasPrefix(bytes.TrimLeft(line, "# \t"), []byte(flowsMark+" ")) && line[0] == '#' {
			return FormatFlows
		}
		fields := bytes.Fields(line[:min(len(line), 256)])
		if len(fields) == 0 || fields[0][0] == '#' {
			continue
		}
		if content++; content == 1 {
			if first := string(fields[0]); slices.Contains(htsimHeads, first) {
				return FormatHTSim
			}
			continue
		}
		// The shortest coflow of the flows format has seven whole numbers. A coflow of
		// coflow-benchmark has a colon among its first seven fields, or longer lists.
		if len(fields) < 7 || bytes.IndexByte(line, ':') >= 0 || slices.ContainsFunc(fields, func(f []byte) bool { return !number(string(f)) }) {
			return FormatBenchmark
		}
		return FormatFlows
	}
	return FormatBenchmark
}

// number reports whether a field is a decimal without a sign.
func number(s string) bool {
	whole, frac, dotted := strings.Cut(s, ".")
	return digits(whole) && (!dotted || digits(frac))
}

// byteOrderMark may begin a file and is ignored.
const byteOrderMark = "\ufeff"

// ReadTrace reads a trace in a format; with "" it detects the format. The remarks describe
// the parts of the file that a Trace cannot represent. The error is a *TraceErrors with
// the first error of every invalid line, or the error of reading r; name is the name of
// the file in it.
func ReadTrace(name string, r io.Reader, format TraceFormat) (_ *Trace, is TraceFormat, remarks []string, _ error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, format, nil, fmt.Errorf("%s: %w", name, err)
	}
	data = bytes.TrimPrefix(data, []byte(byteOrderMark))
	if format == "" {
		format = detectTrace(data)
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
	return t, format, remarks, err
}
