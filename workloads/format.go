package workloads

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
)

// TraceFormat is a format of trace files, by name.
type TraceFormat string

// The formats. docs/traces.md describes each exactly.
const (
	// FormatBenchmark is that of the public coflow-benchmark: a line a coflow, each
	// reducer's MB over all mappers.
	FormatBenchmark TraceFormat = "coflow-benchmark"
	// FormatFlows states every flow's size, in MB or in bytes. In bytes and without
	// its first line it is what the simulator published with Philae reads.
	FormatFlows TraceFormat = "flows"
	// FormatHTSim is a connection matrix of htsim: a line a flow, in bytes.
	FormatHTSim TraceFormat = "htsim"
)

// TraceFormats are all formats, each with the ending by which file names state it.
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
		{FormatBenchmark, ".txt", "a line a coflow, MB by reducer"},
		{FormatFlows, ".flows", "a line a coflow, MB or bytes by flow"},
		{FormatHTSim, ".cm", "a line a flow: a connection matrix of htsim"},
	}
}

// ParseTraceFormat finds a format by its name.
func ParseTraceFormat(name string) (TraceFormat, error) {
	var names []string
	for _, f := range TraceFormats() {
		if string(f.Format) == name {
			return f.Format, nil
		}
		names = append(names, string(f.Format))
	}
	return "", fmt.Errorf("no trace format %q: have %s", clip(name), strings.Join(names, ", "))
}

// FormatOfFile is the format that the ending of a file's name states, "" where it
// states none.
func FormatOfFile(name string) TraceFormat {
	end := filepath.Ext(name)
	for _, f := range TraceFormats() {
		if f.Ending == end {
			return f.Format
		}
	}
	return ""
}

// detectTrace tells the format of a trace by how it begins; what is of none is
// taken for coflow-benchmark, whose errors then tell what is wrong.
func detectTrace(data []byte) TraceFormat {
	content := 0 // lines that are neither blank nor a comment
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
		// The shortest coflow of the flows format has seven whole numbers, and one of
		// coflow-benchmark a colon within the same room or lists longer than that.
		if len(fields) < 7 || bytes.IndexByte(line, ':') >= 0 || slices.ContainsFunc(fields, func(f []byte) bool { return !number(string(f)) }) {
			return FormatBenchmark
		}
		return FormatFlows
	}
	return FormatBenchmark
}

// number tells a decimal without a sign.
func number(s string) bool {
	whole, frac, dotted := strings.Cut(s, ".")
	return digits(whole) && (!dotted || digits(frac))
}

// ReadTrace reads a trace in a format, or, with "", in the one it is found to be in.
// The remarks tell what of the file the trace does not hold. The error is a
// *TraceErrors with the first mistake of every bad line, or that of reading r; name
// stands for the file in it.
func ReadTrace(name string, r io.Reader, format TraceFormat) (_ *Trace, is TraceFormat, remarks []string, _ error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, format, nil, fmt.Errorf("%s: %w", name, err)
	}
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
