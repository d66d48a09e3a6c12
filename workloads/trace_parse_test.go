package workloads

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/topo/magic"
)

const goodTrace = "4 2\n1 0 2 0 1 1 3:65.0\n7 250 1 3 2 0:0.125 3:4\n"

func TestParseTrace(t *testing.T) {
	want := &Trace{Name: "good", Ports: 4, Coflows: []TraceCoflow{
		{ID: 1, Mappers: []int{0, 1}, Reducers: []TraceReducer{{Port: 3, Size: 65 * megabyte}}},
		{ID: 7, Arrival: 250 * time.Millisecond, Mappers: []int{3}, Reducers: []TraceReducer{{Port: 0, Size: 125_000}, {Port: 3, Size: 4 * megabyte}}},
	}}
	for _, text := range []string{
		goodTrace,
		strings.TrimSuffix(goodTrace, "\n"),
		goodTrace + "\n \n",
		strings.ReplaceAll(goodTrace, "\n", " \r\n"),
		strings.ReplaceAll(goodTrace, " ", "\t "),
		strings.ReplaceAll(goodTrace, "65.0", "0065.00000000"),
	} {
		got, err := ParseTrace("good", strings.NewReader(text))
		if err != nil {
			t.Errorf("ParseTrace(%q): %v", text, err)
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("ParseTrace(%q) (-want +got):\n%s", text, diff)
		}
	}
}

// badTraces are invalid traces with the expected lines of their errors.
var badTraces = []struct{ name, text, want string }{
	{"empty file", "", `t:1:1: empty file: expected a first line with the number of ports and of coflows, such as "150 526"`},
	{"blank header", "\n1 0 1 0 1 1:1\n", "t:1:1: line ends before the number of ports: expected a whole number, 1 to 100000"},
	{"header of one number", "4\n1 0 1 0 1 1:1\n", "t:1:2: line ends before the number of coflows: expected a whole number, 1 to 10000000"},
	{"header with a word", "4 many\n1 0 1 0 1 1:1\n", `t:1:3: number of coflows "many": expected a whole number, 1 to 10000000`},
	{"header of three", "4 1 9\n1 0 1 0 1 1:1\n", `t:1:5: "9" after the number of coflows: expected the end of the line`},
	{"no ports", "0 1\n1 0 1 0 1 1:1\n", `t:1:1: number of ports "0": expected a whole number, 1 to 100000`},
	{"negative ports", "-4 1\n1 0 1 0 1 1:1\n", `t:1:1: number of ports "-4": expected a whole number, 1 to 100000`},
	{"plus sign", "+4 1\n1 0 1 0 1 1:1\n", `t:1:1: number of ports "+4": expected a whole number, 1 to 100000`},
	{"too few coflows", "4 3\n1 0 1 0 1 1:1\n", "t:1:3: 3 coflows announced, 1 lines follow: expected one line a coflow"},
	{"too many coflows", "4 1\n1 0 1 0 1 1:1\n2 0 1 0 1 1:1\n", "t:1:3: 1 coflows announced, 2 lines follow: expected one line a coflow"},
	{"no coflow", "4 1\n", "t:1:3: 1 coflows announced, 0 lines follow: expected one line a coflow"},
	{"blank line between", "4 2\n1 0 1 0 1 1:1\n\n2 0 1 0 1 1:1\n", "t:3:1: blank line: expected a coflow"},
	{"comment", "4 1\n# made by hand\n", `t:2:1: coflow id "#": expected a whole number, 0 to 2147483647`},
	{"negative id", "4 1\n-1 0 1 0 1 1:1\n", `t:2:1: coflow id "-1": expected a whole number, 0 to 2147483647`},
	{"same id", "4 2\n5 0 1 0 1 1:1\n5 0 1 0 1 1:1\n", "t:3:1: coflow id 5 again: expected ascending ids without duplicates"},
	{"unsorted ids", "4 2\n5 0 1 0 1 1:1\n4 0 1 0 1 1:1\n", "t:3:1: coflow id 4 after 5: expected ascending ids"},
	{"arrival going back", "4 2\n1 10 1 0 1 1:1\n2 9 1 0 1 1:1\n", "t:3:3: arrival 9 ms after one at 10 ms: expected arrivals in ascending order"},
	{"negative arrival", "4 1\n1 -5 1 0 1 1:1\n", `t:2:3: arrival in ms "-5": expected a whole number, 0 to 9223372036854`},
	{"fractional arrival", "4 1\n1 0.5 1 0 1 1:1\n", `t:2:3: arrival in ms "0.5": expected a whole number, 0 to 9223372036854`},
	{"arrival overflow", "4 1\n1 99999999999999999999 1 0 1 1:1\n", `t:2:3: arrival in ms "99999999999999999999": expected a whole number, 0 to 9223372036854`},
	{"no mappers", "4 1\n1 0 0 1 1:1\n", `t:2:5: number of mappers "0": expected a whole number, 1 to 4`},
	{"more mappers than ports", "4 1\n1 0 5 0 1 2 3 0 1 1:1\n", `t:2:5: number of mappers "5": expected a whole number, 1 to 4`},
	{"mapper count too low", "4 1\n1 0 1 0 1 1 3:65.0\n", `t:2:11: reducer "1": expected port:MB, such as "65:1.0"`},
	{"mapper count too high", "4 1\n1 0 2 0 1 3:65.0\n", `t:2:11: number of reducers "3:65.0": expected a whole number, 1 to 4`},
	{"mapper's port out of range", "4 1\n1 0 1 4 1 1:1\n", `t:2:7: mapper's port "4": expected a whole number, 0 to 3`},
	{"mapper twice", "4 1\n1 0 2 0 0 1 1:1\n", "t:2:9: mapper's port 0 again: expected each port once"},
	{"line ends in the mappers", "4 1\n1 0 3 0 1", "t:2:10: line ends before the mapper's port: expected a whole number, 0 to 3"},
	{"no reducers", "4 1\n1 0 1 0 0\n", `t:2:9: number of reducers "0": expected a whole number, 1 to 4`},
	{"line ends in the reducers", "4 1\n1 0 1 0 2 1:1\n", `t:2:14: line ends before the next reducer: expected port:MB, such as "65:1.0"`},
	{"reducer twice", "4 1\n1 0 1 0 2 1:1 1:2\n", "t:2:15: reducer's port 1 again: expected each port once"},
	{"reducer's port out of range", "4 1\n1 0 1 0 1 9:1\n", `t:2:11: reducer's port "9": expected a whole number, 0 to 3`},
	{"no size", "4 1\n1 0 1 0 1 1:\n", `t:2:13: reducer's MB "": expected a decimal above 0 and at most 10000000.0`},
	{"zero size", "4 1\n1 0 1 0 1 1:0.0\n", `t:2:13: reducer's MB "0.0": expected a decimal above 0 and at most 10000000.0`},
	{"negative size", "4 1\n1 0 1 0 1 1:-1\n", `t:2:13: reducer's MB "-1": expected a decimal above 0 and at most 10000000.0`},
	{"NaN", "4 1\n1 0 1 0 1 1:NaN\n", `t:2:13: reducer's MB "NaN": expected a decimal above 0 and at most 10000000.0`},
	{"infinity", "4 1\n1 0 1 0 1 1:+Inf\n", `t:2:13: reducer's MB "+Inf": expected a decimal above 0 and at most 10000000.0`},
	{"exponent", "4 1\n1 0 1 0 1 1:1e3\n", `t:2:13: reducer's MB "1e3": expected a decimal above 0 and at most 10000000.0`},
	{"size overflow", "4 1\n1 0 1 0 1 1:10000000.000001\n", `t:2:13: reducer's MB "10000000.000001": expected a decimal above 0 and at most 10000000.0`},
	{"unit on the size", "4 1\n1 0 1 0 1 1:5MB\n", `t:2:13: reducer's MB "5MB": expected a decimal above 0 and at most 10000000.0`},
	{"trailing fields", "4 1\n1 0 1 0 1 1:1 2:1\n", `t:2:15: "2:1" after the last reducer: expected the end of the line`},
	{"not text", "4 1\n\x00\xff 0\n", `t:2:1: coflow id "\x00\xff": expected a whole number, 0 to 2147483647`},
	{"long field", "4 1\n" + strings.Repeat("9", 90) + "\n", `t:2:1: coflow id "` + strings.Repeat("9", 60) + `…": expected a whole number, 0 to 2147483647`},
	{"all lines at once", "4 9\nx\n1 0 1 0 1 1:1\n2 0 1 8 1 1:1\n", `t:2:1: coflow id "x": expected a whole number, 0 to 2147483647
t:4:7: mapper's port "8": expected a whole number, 0 to 3
t:1:3: 9 coflows announced, 3 lines follow: expected one line a coflow`},
}

func TestParseTraceErrors(t *testing.T) {
	for _, tt := range badTraces {
		got, err := ParseTrace("t", strings.NewReader(tt.text))
		if err == nil {
			t.Errorf("%s: ParseTrace(%q) = %+v, want an error", tt.name, tt.text, got)
		} else if err.Error() != tt.want {
			t.Errorf("%s: ParseTrace(%q):\n%v\nwant\n%s", tt.name, tt.text, err, tt.want)
		}
	}
}

func TestParseTraceBoundsErrors(t *testing.T) {
	_, err := ParseTrace("t", strings.NewReader("4 100\n"+strings.Repeat("x\n", 100)))
	var errs *TraceErrors
	if !errors.As(err, &errs) || errs.Total != 100 || len(errs.First) != MaxTraceErrors {
		t.Fatalf("errors %+v, want 100, of which %d are listed", err, MaxTraceErrors)
	}
	if !strings.HasSuffix(err.Error(), "\nt: and 80 more errors like these") {
		t.Errorf("error does not end with the number of others:\n%v", err)
	}
}

func TestParseTraceLongLine(t *testing.T) {
	_, err := ParseTrace("t", strings.NewReader("4 1\n"+strings.Repeat("1 ", maxTraceLine)))
	want := "t:2:1: line longer than 16777216 bytes: expected one coflow a line; the rest is not read"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestParseTraceReadError(t *testing.T) {
	broken := errors.New("disk on fire")
	_, err := ParseTrace("t", iotest.ErrReader(broken))
	if !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "t: line 1: ") {
		t.Errorf("error %v, want the reader's error with the position", err)
	}
}

func TestParseTraceSums(t *testing.T) {
	wide := func(id int) string {
		var b strings.Builder
		fmt.Fprintf(&b, "%d 0 1 0 100000", id)
		for port := range 100_000 {
			fmt.Fprintf(&b, " %d:10000000", port)
		}
		return b.String() + "\n"
	}
	_, err := ParseTrace("t", strings.NewReader("100000 2\n"+wide(1)+wide(2)))
	want := "t:3:1: more than 1000000000000.0 MB up to this line: the limit of a trace"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

func TestMegabytes(t *testing.T) {
	for _, tt := range []struct {
		in   string
		want Megabytes
		out  string
	}{
		{"65.0", 65_000_000, "65.0"}, {"1", 1_000_000, "1.0"}, {"0.125", 125_000, "0.125"}, {"0.000001", 1, "0.000001"},
		{"0.3333333333333333", 333_334, "0.333334"}, {"0.0000000000001", 1, "0.000001"}, {"10000000.0", 1e13, "10000000.0"},
	} {
		got, ok := parseMegabytes(tt.in)
		if !ok || got != tt.want || got.String() != tt.out {
			t.Errorf("parseMegabytes(%q) = %d %q, %v, want %d %q", tt.in, got, got, ok, tt.want, tt.out)
		}
	}
}

func TestWriteTraceErrors(t *testing.T) {
	good := func() *Trace {
		trace, err := ParseTrace("t", strings.NewReader(goodTrace))
		if err != nil {
			t.Fatal(err)
		}
		return trace
	}
	for _, tt := range []struct {
		name  string
		spoil func(*Trace)
		want  string
	}{
		{"ports", func(t *Trace) { t.Ports = 0 }, "0 ports"},
		{"empty", func(t *Trace) { t.Coflows = nil }, "0 coflows"},
		{"ids", func(t *Trace) { t.Coflows[1].ID = 1 }, "expected ascending ids"},
		{"arrivals", func(t *Trace) { t.Coflows[0].Arrival = time.Second }, "in ascending order"},
		{"microseconds", func(t *Trace) { t.Coflows[1].Arrival++ }, "expected whole milliseconds"},
		{"size", func(t *Trace) { t.Coflows[1].Reducers[0].Size = 0 }, "0.0 MB"},
		{"port", func(t *Trace) { t.Coflows[1].Reducers[0].Port = 4 }, "port 4"},
		{"twice", func(t *Trace) { t.Coflows[0].Mappers[1] = 0 }, "port 0"},
		{"no reducer", func(t *Trace) { t.Coflows[0].Reducers = nil }, "expected a mapper and a reducer"},
	} {
		trace := good()
		tt.spoil(trace)
		var out bytes.Buffer
		err := WriteTrace(&out, trace)
		if err == nil || !strings.Contains(err.Error(), tt.want) || out.Len() > 0 {
			t.Errorf("%s: WriteTrace wrote %d bytes, error %v, want %q and nothing written", tt.name, out.Len(), err, tt.want)
		}
	}
	broken := errors.New("disk full")
	if err := WriteTrace(failingWriter{broken}, good()); !errors.Is(err, broken) {
		t.Errorf("WriteTrace to a full disk: %v", err)
	}
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

// FuzzParseTrace checks that no input makes the parser panic, that errors have a position, and
// that an accepted trace does not change when written and read back.
func FuzzParseTrace(f *testing.F) {
	f.Add(goodTrace)
	for _, tt := range badTraces {
		f.Add(tt.text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		trace, err := ParseTrace("t", strings.NewReader(text))
		if err != nil {
			if errors.As(err, new(*magic.NotTextError)) {
				return
			}
			var errs *TraceErrors
			if !errors.As(err, &errs) {
				t.Fatalf("error %T %v", err, err)
			}
			for _, e := range errs.First {
				if e.Line < 1 || e.Col < 1 {
					t.Errorf("error without a position: %+v", e)
				}
			}
			return
		}
		var out bytes.Buffer
		if err := WriteTrace(&out, trace); err != nil {
			t.Fatalf("WriteTrace of an accepted trace: %v", err)
		}
		back, err := ParseTrace("t", &out)
		if err != nil {
			t.Fatalf("reading back: %v", err)
		}
		if diff := cmp.Diff(trace, back); diff != "" {
			t.Errorf("reading back (-want +got):\n%s", diff)
		}
		for _, c := range trace.Coflows {
			if c.LowerBound(8*time.Millisecond) < 0 {
				t.Errorf("coflow %d: negative lower bound", c.ID)
			}
		}
	})
}
