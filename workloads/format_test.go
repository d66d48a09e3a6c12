package workloads

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"testbed/topo/magic"
	"testbed/topo/units"
	"testbed/workloads/drawntest"
)

const (
	goodFlows = `# testbed-flows 1 bytes
# by hand
4 2
1 0 2 0 1 2 3 65 65 2 0 7
# between
7 250.000001 1 3 2 0 125000 3 4000000
`
	goodHTSim = `# by hand
Nodes 4
Connections 4

0->3 id 1 start 5000 size 65
1->2 id 3 start 0 size 7 prio 2
1->3 id 2 start 5000 size 60
3->0 start 5000 size 9 recv_done_trigger 4
`
)

func read(t testing.TB, text string, format TraceFormat) (*Trace, TraceFormat, []string) {
	t.Helper()
	trace, is, remarks, err := ReadTrace("t", strings.NewReader(text), format)
	if err != nil {
		t.Fatalf("ReadTrace(%q): %v", text, err)
	}
	return trace, is, remarks
}

func TestReadFlows(t *testing.T) {
	want := &Trace{Name: "t", Ports: 4, InBytes: true, Coflows: []TraceCoflow{
		{ID: 1, Mappers: []int{0, 1}, Reducers: []TraceReducer{{Port: 3, Size: 130}, {Port: 2, Size: 7, Flows: []Megabytes{0, 7}}}},
		{ID: 7, Arrival: 250*time.Millisecond + 1, Mappers: []int{3}, Reducers: []TraceReducer{{Port: 0, Size: 125_000}, {Port: 3, Size: 4_000_000}}},
	}}
	inMB := *want
	inMB.InBytes = false
	for _, tt := range []struct {
		text string
		want *Trace
	}{
		{goodFlows, want},
		{strings.ReplaceAll(goodFlows, "\n", "\r\n"), want},
		{strings.TrimPrefix(goodFlows, "# testbed-flows 1 bytes\n"), want}, // as in Philae's simulator
		{"\t" + strings.TrimPrefix(strings.ReplaceAll(goodFlows, " ", "\t"), "# testbed-flows 1 bytes\n"), want},
		{"#testbed-flows 1 MB\n4 2\n1 0 2 0 1 2 3:0.00013 2 0 0.000007\n7 250.000001 1 3 2 0:0.125 3 4\n", &inMB},
	} {
		got, is, remarks := read(t, tt.text, FormatFlows)
		if is != FormatFlows || remarks != nil {
			t.Errorf("%q: format %s, remarks %q", tt.text, is, remarks)
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.text, diff)
		}
	}
}

func TestReadHTSim(t *testing.T) {
	ns5 := 5 * time.Nanosecond
	grouped := &Trace{Name: "t", Ports: 4, InBytes: true, Coflows: []TraceCoflow{
		{ID: 1, Mappers: []int{1}, Reducers: []TraceReducer{{Port: 2, Size: 7}}},
		{ID: 2, Arrival: ns5, Mappers: []int{0, 1}, Reducers: []TraceReducer{{Port: 3, Size: 125, Flows: []Megabytes{65, 60}}}},
		{ID: 3, Arrival: ns5, Mappers: []int{3}, Reducers: []TraceReducer{{Port: 0, Size: 9}}},
	}}
	got, _, remarks := read(t, goodHTSim, FormatHTSim)
	if diff := cmp.Diff(grouped, got); diff != "" {
		t.Errorf("grouped by start (-want +got):\n%s", diff)
	}
	if want := []string{"grouped connections with the same start into coflows: 4 connections, 3 coflows"}; !slices.Equal(remarks, want) {
		t.Errorf("remarks %q, want %q", remarks, want)
	}
	// Comments state coflows and the order of their ports, also for equal starts.
	text := "Nodes 4\nConnections 3\n# testbed-coflow 4 from 1 0 to 3 2 ids 1-2\n# testbed-coflow 6 from 1 to 0 ids 7-9\n" +
		"1->3 id 1 start 2000 size 8\n0->2 id 2 start 2000 size 9\n1->0 id 8 start 2000 size 5\n"
	stated := &Trace{Name: "t", Ports: 4, InBytes: true, Coflows: []TraceCoflow{
		{ID: 4, Arrival: 2, Mappers: []int{1, 0}, Reducers: []TraceReducer{{Port: 3, Size: 8, Flows: []Megabytes{8, 0}}, {Port: 2, Size: 9, Flows: []Megabytes{0, 9}}}},
		{ID: 6, Arrival: 2, Mappers: []int{1}, Reducers: []TraceReducer{{Port: 0, Size: 5}}},
	}}
	got, _, remarks = read(t, text, FormatHTSim)
	if diff := cmp.Diff(stated, got); diff != "" || remarks != nil {
		t.Errorf("stated coflows, remarks %q (-want +got):\n%s", remarks, diff)
	}
	// Remarks report the parts of the file that a trace cannot represent.
	_, _, remarks = read(t, "Nodes 3\nConnections 3\nTriggers 1\nFailures 1\n0->1 start 1 size 5\n0->1 start 1.25 size 6\n1->2 start 1 size 6 send_done_trigger 3 addon\ntrigger id 3 oneshot\nfailure switch_type TOR switch_id 0 link_id 1\n", FormatHTSim)
	want := []string{
		"grouped connections with the same start into coflows: 3 connections, 1 coflows",
		"merged 1 connections into others between the same nodes",
		"rounded the starts of 1 coflows down to a nanosecond",
		"ignored 1 triggers: a trace has none",
		"ignored 1 failures: a trace has none (use faults of a scenario)",
	}
	if diff := cmp.Diff(want, remarks); diff != "" {
		t.Errorf("remarks (-want +got):\n%s", diff)
	}
}

func TestDetectTrace(t *testing.T) {
	for _, tt := range []struct {
		text string
		want TraceFormat
	}{
		{goodTrace, FormatBenchmark}, {goodFlows, FormatFlows}, {goodHTSim, FormatHTSim},
		{strings.TrimPrefix(goodFlows, "# testbed-flows 1 bytes\n"), FormatFlows},
		{"#testbed-flows 9 MB\n", FormatFlows},
		{"\nNodes 4\n", FormatHTSim}, {"Connections 4\nNodes 3\n", FormatHTSim},
		{"", FormatBenchmark}, {"4 1\n", FormatBenchmark}, {"4 1\n1 0 1 0 1 1\n", FormatBenchmark},
		{"4 1\n1 0 1 0 1 x 4\n", FormatBenchmark}, {"4 1\n\n1 0.5 1 0 1 2 4\n", FormatFlows},
		{"4 1\n1 0 120" + strings.Repeat(" 100", 120) + " 1 5:3.0\n", FormatBenchmark},
	} {
		if got, _ := detectTrace([]byte(tt.text)); got != tt.want {
			t.Errorf("detectTrace(%q) = %s, want %s", tt.text, got, tt.want)
		}
	}
}

// badFlows and badHTSim are invalid traces with the expected lines of their errors.
var badFlows = []struct{ name, text, want string }{
	{"empty", "", `t:1:1: empty file: expected a first line with the number of ports and of coflows, such as "150 526"`},
	{"comments alone", "# a\n# b\n", `t:2:1: empty file: expected a first line with the number of ports and of coflows, such as "150 526"`},
	{"other version", "# testbed-flows 2 bytes\n4 1\n1 0 1 0 1 1 1\n", `t:1:17: version "2" of the flows format: must be 1, the one this program knows`},
	{"no unit", "# testbed-flows 1\n4 1\n1 0 1 0 1 1 1\n", `t:1:18: unit of sizes "": expected MB or bytes`},
	{"unit", "#testbed-flows 1 KB\n4 1\n1 0 1 0 1 1 1\n", `t:1:18: unit of sizes "KB": expected MB or bytes`},
	{"more on the first line", "# testbed-flows 1 MB x\n4 1\n1 0 1 0 1 1 1\n", `t:1:22: "x" after the unit of sizes: expected the end of the line`},
	{"two first lines", "# testbed-flows 1 MB\n# testbed-flows 1 MB\n4 1\n1 0 1 0 1 1 1\n", `t:2:3: testbed-flows again: expected it once`},
	{"blank header", "\n1 0 1 0 1 1 1\n", "t:1:1: line ends before the number of ports: expected a whole number, 1 to 100000"},
	{"blank line", "4 2\n1 0 1 0 1 1 1\n\n2 0 1 0 1 1 1\n", "t:3:1: blank line: expected a coflow"},
	{"too few coflows", "# x\n4 3\n1 0 1 0 1 1 1\n", "t:2:3: 3 coflows announced, 1 lines follow: expected one line a coflow"},
	{"arrival", "4 1\n1 -1 1 0 1 1 1\n", `t:2:3: arrival in ms "-1": expected a number, 0 to 9223372036854, of at most 6 decimals`},
	{"arrival in less than ns", "4 1\n1 0.0000001 1 0 1 1 1\n", `t:2:3: arrival in ms "0.0000001": expected a number, 0 to 9223372036854, of at most 6 decimals`},
	{"no arrival", "4 1\n1\n", `t:2:2: arrival in ms "": expected a number, 0 to 9223372036854, of at most 6 decimals`},
	{"late arrival", "4 1\n1 9223372036854 1 0 1 1 1\n", `t:2:3: arrival in ms "9223372036854": expected a whole number, 0 to 9223372036853`},
	{"arrival going back", "4 2\n1 1.5 1 0 1 1 1\n2 1.25 1 0 1 1 1\n", "t:3:3: arrival 1.25 ms after one at 1.5 ms: expected arrivals in ascending order"},
	{"no reducer", "4 1\n1 0 1 0 1\n", "t:2:10: line ends before the next reducer: expected its port and the size of the flow from each mapper"},
	{"no flow", "4 1\n1 0 2 0 1 1 1 5\n", "t:2:16: line ends before the flow from mapper 2 of 2: expected its size"},
	{"one flow more", "4 1\n1 0 2 0 1 1 1 5 6 7\n", `t:2:19: "7" after the last reducer: expected the end of the line`},
	{"reducer's port", "4 1\n1 0 1 0 1 4 1\n", `t:2:11: reducer's port "4": expected a whole number, 0 to 3`},
	{"reducer twice", "4 1\n1 0 1 0 2 1 1 1 1\n", "t:2:15: reducer's port 1 again: expected each port once"},
	{"decimal bytes", "4 1\n1 0 1 0 1 1 1.5\n", `t:2:13: flow's size in bytes "1.5": expected a whole number, 0 to 10000000000000`},
	{"negative bytes", "4 1\n1 0 1 0 1 1 -5\n", `t:2:13: flow's size in bytes "-5": expected a whole number, 0 to 10000000000000`},
	{"MB", "# testbed-flows 1 MB\n4 1\n1 0 1 0 1 1 1e3\n", `t:3:13: flow's size in MB "1e3": expected a decimal, 0, or above it and at most 10000000.0`},
	{"no MB", "# testbed-flows 1 MB\n4 1\n1 0 1 0 1 1:0\n", `t:3:13: reducer's size in MB "0": expected a decimal, above 0 and at most 10000000.0`},
	{"no bytes", "4 1\n1 0 1 0 1 1:0\n", `t:2:13: reducer's size in bytes "0": expected a whole number, 1 to 10000000000000`},
	{"nothing fetched", "4 1\n1 0 2 0 1 2 1 5 5 2 0 0\n", "t:2:19: reducer's port 2 fetches 0.0 MB: must be more than 0 and at most 10000000.0"},
	{"too much fetched", "4 1\n1 0 2 0 1 1 1 10000000000000 1\n", "t:2:13: reducer's port 1 fetches 10000000.000001 MB: must be more than 0 and at most 10000000.0"},
	{"idle mapper", "4 1\n1 0 2 0 3 1 1 5 0\n", "t:2:1: mapper's port 3 sends nothing: expected a flow from every mapper"},
}

var badHTSim = []struct{ name, text, want string }{
	{"empty", "", "t:1:1: no line \"Nodes\": expected it before the connections, such as \"Nodes 16\"\nt:1:1: no line \"Connections\": expected it before the connections, such as \"Connections 16\""},
	{"no header", "0->1 start 0 size 1\n", "t:1:1: no line \"Nodes\": expected it before the connections, such as \"Nodes 16\"\nt:1:1: no line \"Connections\": expected it before the connections, such as \"Connections 16\""},
	{"Nodes twice", "Nodes 4\nNodes 4\nConnections 1\n0->1 start 0 size 1\n", "t:2:1: Nodes again: expected it once"},
	{"Nodes late", "Connections 1\n0->1 start 0 size 1\nNodes 4\n", "t:3:1: Nodes after connections: expected it before them"},
	{"Nodes of a word", "Nodes x\nConnections 1\n0->1 start 0 size 1\n", `t:1:7: number of nodes "x": expected a whole number, 1 to 100000`},
	{"Nodes of two", "Nodes 4 5\nConnections 1\n0->1 start 0 size 1\n", `t:1:9: "5" after the number of nodes: expected the end of the line`},
	{"no connection", "Nodes 4\nConnections 0\n", `t:2:13: number of connections "0": expected a whole number, 1 to 2147483647`},
	{"too few", "Nodes 4\nConnections 2\n0->1 start 0 size 1\n", "t:2:13: 2 connections announced, 1 lines follow: expected one line each"},
	{"triggers not announced", "Nodes 4\nConnections 1\n0->1 start 0 size 1\ntrigger id 1 oneshot\n", `t:4:1: 1 of them, but no line "Triggers": expected "Triggers 1" before them`},
	{"failures not there", "Nodes 4\nConnections 1\nFailures 1\n0->1 start 0 size 1\n", "t:3:10: 1 failures announced, 0 lines follow: expected one line each"},
	{"other line", "Nodes 4\nConnections 1\n0->1 start 0 size 1\nflow\n", `t:4:1: "flow": expected a line that begins with Nodes, Connections, Triggers, Failures, trigger, failure or src->dst, such as "0->13"`},
	{"source", "Nodes 4\nConnections 1\n4->1 start 0 size 1\n", `t:3:1: source "4": expected a whole number, 0 to 3`},
	{"destination", "Nodes 4\nConnections 1\n0->x start 0 size 1\n", `t:3:4: destination "x": expected a whole number, 0 to 3`},
	{"no destination", "Nodes 4\nConnections 1\n0-> start 0 size 1\n", `t:3:4: destination "": expected a whole number, 0 to 3`},
	{"no size", "Nodes 4\nConnections 1\n0->1 start 0\n", "t:3:1: connection without size: expected one"},
	{"no start", "Nodes 4\nConnections 1\n0->1 size 5\n", "t:3:1: connection without start: expected one"},
	{"size 0", "Nodes 4\nConnections 1\n0->1 start 0 size 0\n", `t:3:19: size in bytes, where 0 means an endless flow, "0": expected a whole number, 1 to 10000000000000`},
	{"size without a number", "Nodes 4\nConnections 1\n0->1 start 0 size\n", "t:3:18: line ends before the size in bytes, where 0 means an endless flow,: expected a whole number, 1 to 10000000000000"},
	{"start", "Nodes 4\nConnections 1\n0->1 start 1e9 size 5\n", `t:3:12: start in ps "1e9": expected a whole number, 0 to 9223372036854775807`},
	{"start with a bad fraction", "Nodes 4\nConnections 1\n0->1 start 1. size 5\n", `t:3:12: start in ps "1.": expected a number`},
	{"size twice", "Nodes 4\nConnections 1\n0->1 start 1 size 5 size 6\n", "t:3:21: size again: expected it once"},
	{"other word", "Nodes 4\nConnections 1\n0->1 start 1 size 5 sizes 6\n", `t:3:21: "sizes": expected start, size, id, prio, send_done_trigger or recv_done_trigger, each with a number`},
	{"id 0", "Nodes 4\nConnections 1\n0->1 id 0 start 1 size 5\n", `t:3:9: id "0": expected a whole number, 1 to 4294967295`},
	{"waits for a trigger", "Nodes 4\nConnections 1\nTriggers 1\n0->1 id 1 trigger 1 size 5\ntrigger id 1 oneshot\n", "t:4:11: the connection waits for a trigger, the end of other connections: a trace only has arrivals: specify a start in ps"},
	{"too much", "Nodes 4\nConnections 2\n0->1 start 0 size 10000000000000\n2->1 start 0 size 1\n", "t:4:1: more than 10000000000000 bytes to node 1 in coflow 1"},
	{"comment", "Nodes 4\nConnections 1\n# testbed-coflow x\n0->1 id 1 start 0 size 1\n", `t:3:18: coflow id "x": expected a whole number, 0 to 2147483647`},
	{"comment without from", "Nodes 4\nConnections 1\n# testbed-coflow 1 to 3\n0->1 id 1 start 0 size 1\n", `t:3:20: "to": expected from`},
	{"comment without mappers", "Nodes 4\nConnections 1\n# testbed-coflow 1 from to 3\n0->1 id 1 start 0 size 1\n", `t:3:25: mapper's port "to": expected a whole number, 0 to 3`},
	{"comment with a port twice", "Nodes 4\nConnections 1\n# testbed-coflow 1 from 0 to 1 1 ids 1-1\n0->1 id 1 start 0 size 1\n", `t:3:32: reducer's port 1 again: expected each port once`},
	{"comment without ids", "Nodes 4\nConnections 1\n# testbed-coflow 1 from 0 to 1\n0->1 id 1 start 0 size 1\n", `t:3:31: reducer's port "": expected a whole number, 0 to 3`},
	{"comment of ids going down", "Nodes 4\nConnections 1\n# testbed-coflow 1 from 0 to 1 ids 2-1\n0->1 id 1 start 0 size 1\n", `t:3:36: last id "1": expected a whole number, 2 to 4294967295`},
	{"comments overlap", "Nodes 4\nConnections 1\n# testbed-coflow 1 from 0 to 1 ids 1-2\n# testbed-coflow 2 from 0 to 1 ids 2-3\n0->1 id 1 start 0 size 1\n", "t:4:39: ids from 2, but coflow 1 has ids up to 2: expected ids in ascending order of coflows"},
	{"comments out of order", "Nodes 4\nConnections 1\n# testbed-coflow 2 from 0 to 1 ids 1-2\n# testbed-coflow 1 from 0 to 1 ids 3-3\n0->1 id 1 start 0 size 1\n", "t:4:1: coflow id 1 after 2: expected ascending ids"},
	{"no id under comments", "Nodes 4\nConnections 1\n# testbed-coflow 1 from 0 to 1 ids 1-1\n0->1 start 0 size 1\n", "t:4:1: connection without an id: comments declare the coflows by ids\nt:3:1: coflow 1 has no connection: expected one with an id of 1 to 1"},
	{"id twice", "Nodes 4\nConnections 2\n# testbed-coflow 1 from 0 to 1 2 ids 1-2\n0->1 id 1 start 0 size 1\n0->2 id 1 start 0 size 1\n", "t:5:1: id 1 again: expected each once\nt:4:1: no connection to port 2, which coflow 1 declares"},
	{"id of no coflow", "Nodes 4\nConnections 2\n# testbed-coflow 1 from 0 to 1 ids 1-1\n0->1 id 1 start 0 size 1\n0->2 id 4 start 0 size 1\n", "t:5:1: id 4 is in no testbed-coflow: expected every connection in one"},
	{"ports of no coflow", "Nodes 4\nConnections 1\n# testbed-coflow 1 from 0 to 1 ids 1-1\n0->2 id 1 start 0 size 1\n", "t:4:1: 0->2 is not between ports of coflow 1, to which id 1 belongs"},
	{"two starts", "Nodes 4\nConnections 2\n# testbed-coflow 1 from 0 2 to 1 ids 1-2\n0->1 id 1 start 0 size 1\n2->1 id 2 start 1 size 1\n", "t:5:1: start 1 ps, but coflow 1 has connections with start 0: expected equal starts"},
	{"pair twice", "Nodes 4\nConnections 2\n# testbed-coflow 1 from 0 to 1 ids 1-2\n0->1 id 1 start 0 size 1\n0->1 id 2 start 0 size 1\n", "t:5:1: 0->1 again in coflow 1: expected each pair of ports once"},
	{"idle mapper", "Nodes 4\nConnections 1\n# testbed-coflow 1 from 0 2 to 1 ids 1-2\n0->1 id 1 start 0 size 1\n", "t:3:1: mapper's port 2 of coflow 1 sends nothing: expected a connection from every mapper"},
	{"starts going back", "Nodes 4\nConnections 2\n# testbed-coflow 1 from 0 to 1 ids 1-1\n# testbed-coflow 2 from 0 to 1 ids 2-2\n0->1 id 1 start 5000 size 1\n0->1 id 2 start 1000 size 1\n", "t:4:1: coflow 2 starts before the previous one: expected coflows in order of start"},
}

func TestReadTraceErrors(t *testing.T) {
	for _, f := range []struct {
		format TraceFormat
		bad    []struct{ name, text, want string }
	}{{FormatFlows, badFlows}, {FormatHTSim, badHTSim}} {
		for _, tt := range f.bad {
			got, _, _, err := ReadTrace("t", strings.NewReader(tt.text), f.format)
			if err == nil {
				t.Errorf("%s: %s: ReadTrace(%q) = %+v, want an error", f.format, tt.name, tt.text, got)
			} else if err.Error() != tt.want {
				t.Errorf("%s: %s: ReadTrace(%q):\n%v\nwant\n%s", f.format, tt.name, tt.text, err, tt.want)
			}
		}
	}
	if _, _, _, err := ReadTrace("t", strings.NewReader(""), "ns3"); err == nil || err.Error() != `unknown trace format "ns3" (available: coflow-benchmark, flows, htsim)` {
		t.Errorf("format ns3: %v", err)
	}
	broken := errors.New("disk on fire")
	for _, f := range TraceFormats() {
		if _, _, _, err := ReadTrace("t", iotest.ErrReader(broken), f.Format); !errors.Is(err, broken) {
			t.Errorf("%s: %v, want the reader's error", f.Format, err)
		}
	}
}

// The memory for a few connections is limited.
func TestHTSimPairs(t *testing.T) {
	var b strings.Builder
	const n = 9000
	fmt.Fprintf(&b, "Nodes %d\nConnections %d\n", n, n)
	for i := range n {
		fmt.Fprintf(&b, "%d->%d start 0 size 1\n", i, (i+1)%n)
	}
	_, _, _, err := ReadTrace("t", strings.NewReader(b.String()), "")
	want := "t:3:1: coflow 1, with 9000 senders and 9000 receivers, exceeds 67108864 pairs of them in total: use fewer, or different starts"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// anyTrace draws a trace as readers return it: without Flows if all flows have the same size.
func anyTrace(t *rapid.T, inBytes bool) *Trace {
	ports := rapid.IntRange(1, 9).Draw(t, "ports")
	trace := &Trace{Name: "t", Ports: ports, InBytes: inBytes}
	list := rapid.SliceOfNDistinct(rapid.IntRange(0, ports-1), 1, ports, rapid.ID[int])
	id, at := CoflowID(-1), time.Duration(0)
	unit := rapid.SampledFrom([]time.Duration{time.Millisecond, time.Nanosecond}).Draw(t, "unit")
	for range rapid.IntRange(1, 4).Draw(t, "coflows") {
		id += CoflowID(rapid.IntRange(1, 5).Draw(t, "id"))
		at += unit * time.Duration(rapid.IntRange(0, 1e6).Draw(t, "gap"))
		c := TraceCoflow{ID: id, Arrival: at, Mappers: list.Draw(t, "mappers")}
		m := len(c.Mappers)
		even := rapid.Bool().Draw(t, "even")
		for j, port := range list.Draw(t, "reducers") {
			r := TraceReducer{Port: port}
			if even {
				if r.Size = Megabytes(rapid.Int64Range(1, 1e9).Draw(t, "size")); inBytes {
					r.Size *= Megabytes(m)
				}
				c.Reducers = append(c.Reducers, r)
				continue
			}
			for i := range m {
				least := int64(count(j == 0 || i == 0)) // one per mapper and per reducer
				r.Flows = append(r.Flows, Megabytes(rapid.Int64Range(least, 5).Draw(t, "flow")))
				r.Size += r.Flows[i]
			}
			if slices.Min(r.Flows) == slices.Max(r.Flows) {
				r.Flows = nil
			}
			c.Reducers = append(c.Reducers, r)
		}
		trace.Coflows = append(trace.Coflows, c)
	}
	return trace
}

// A trace does not change when written and read back, and its format is detected.
func TestFormatsReadBack(t *testing.T) {
	cases, compared := 0, map[TraceFormat]int{}
	rapid.Check(t, func(t *rapid.T) {
		inBytes := rapid.Bool().Draw(t, "in bytes")
		trace := anyTrace(t, inBytes)
		cases++
		for _, f := range TraceFormats() {
			if f.Format == FormatHTSim && !inBytes || f.Format == FormatBenchmark && (inBytes || trace.checkBenchmark() != nil) {
				var b bytes.Buffer
				if err := WriteTraceAs(&b, trace, f.Format); f.Format == FormatHTSim && (err == nil || b.Len() > 0) {
					t.Fatalf("%s: wrote %q", f.Format, b.String())
				}
				continue
			}
			var b bytes.Buffer
			if err := WriteTraceAs(&b, trace, f.Format); err != nil {
				t.Fatalf("%s: %v", f.Format, err)
			}
			back, is, remarks, err := ReadTrace("t", bytes.NewReader(b.Bytes()), "")
			if err != nil || is != f.Format || remarks != nil {
				t.Fatalf("%s: read as %s, remarks %q, error %v:\n%s", f.Format, is, remarks, err, b.String())
			}
			if diff := cmp.Diff(trace, back); diff != "" {
				t.Fatalf("%s (-want +got):\n%s\nof\n%s", f.Format, diff, b.String())
			}
			compared[f.Format]++
		}
	})
	// Of 1,000 traces 497 could be htsim and 147 coflow-benchmark, which holds few of them.
	for format, part := range map[TraceFormat]float64{FormatFlows: 1, FormatHTSim: 0.45, FormatBenchmark: 0.13} {
		drawntest.AtLeast(t, "traces as "+string(format), compared[format], cases, part)
	}
}

// Fit returns a trace that the format can represent, with the same bytes except for less than
// one additional byte per flow.
func TestFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		trace := anyTrace(t, rapid.Bool().Draw(t, "in bytes"))
		before := trace.changed(func(*TraceCoflow) {})
		o := FitOptions{MB: rapid.SampledFrom([]units.Bytes{0, units.MB, units.MiB}).Draw(t, "MB"), Even: rapid.Bool().Draw(t, "even")}
		mb := o.MB
		if mb == 0 {
			mb = DefaultMB
		}
		for _, f := range TraceFormats() {
			fitted, remarks, err := Fit(trace, f.Format, o)
			if f.Format == FormatBenchmark && !o.Even && trace.uneven() > 0 {
				if err == nil {
					t.Fatalf("%s of uneven flows: want an error", f.Format)
				}
				continue
			}
			if err != nil {
				t.Fatalf("%s: %v", f.Format, err)
			}
			if err := WriteTraceAs(io.Discard, fitted, f.Format); err != nil {
				t.Fatalf("%s: the fitted trace is not written: %v", f.Format, err)
			}
			if diff := cmp.Diff(before, trace); diff != "" {
				t.Fatalf("%s: Fit changed its input (-before +after):\n%s", f.Format, diff)
			}
			for i, c := range fitted.Coflows {
				was := trace.Coflows[i]
				if c.ID != was.ID || was.Arrival-c.Arrival < 0 || was.Arrival-c.Arrival >= time.Millisecond {
					t.Fatalf("%s: coflow %d at %v, was %d at %v", f.Format, c.ID, c.Arrival, was.ID, was.Arrival)
				}
				for j, r := range c.Reducers {
					size := float64(r.Size) * float64(fitted.MB(mb)) / 1e6
					exact := float64(was.Reducers[j].Size) * float64(trace.MB(mb)) / 1e6
					room := float64(len(c.Mappers))
					if f.Format == FormatBenchmark {
						room = 2
					}
					if size < exact*(1-1e-12) || size > exact*(1+1e-12)+room {
						t.Fatalf("%s: reducer of %v bytes, was %v (remarks %q)", f.Format, size, exact, remarks)
					}
					if len(remarks) == 0 && math.Abs(size-exact) > exact*1e-12 {
						t.Fatalf("%s: %v bytes became %v without a remark", f.Format, exact, size)
					}
				}
			}
		}
	})
}

var wholeTrace = flag.Bool("whole", false, "take all of the public trace through formats that state every flow, too, which takes 10 s under the race detector")

// The public trace does not change by a byte when converted to every format and back. For
// formats with one entry per flow, only the first 60 coflows are used without -whole.
func TestFacebookThroughFormats(t *testing.T) {
	for _, f := range TraceFormats() {
		trace, data := facebookTrace(t)
		if f.Format != FormatBenchmark && !*wholeTrace {
			trace.Coflows = trace.Coflows[:60]
			var b bytes.Buffer
			if err := WriteTrace(&b, trace); err != nil {
				t.Fatal(err)
			}
			data = b.Bytes()
		}
		fitted, _, err := Fit(trace, f.Format, FitOptions{MB: units.MiB})
		if err != nil {
			t.Fatal(err)
		}
		var file, back bytes.Buffer
		if err := WriteTraceAs(&file, fitted, f.Format); err != nil {
			t.Fatal(err)
		}
		got, is, _, err := ReadTrace("t", &file, "")
		if err != nil || is != f.Format {
			t.Fatalf("%s, read as %s: %v", f.Format, is, err)
		}
		if got, _, err = Fit(got, FormatBenchmark, FitOptions{MB: units.MiB}); err != nil {
			t.Fatal(err)
		}
		if err := WriteTrace(&back, got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(back.Bytes(), data) {
			t.Errorf("%s: the trace changed", f.Format)
		}
	}
}

func fuzzFormat(f *testing.F, format TraceFormat, seeds ...string) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		trace, _, _, err := ReadTrace("t", strings.NewReader(text), format)
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
		if err := trace.check(); err != nil {
			t.Fatalf("an accepted trace: %v", err)
		}
		fitted, _, err := Fit(trace, format, FitOptions{})
		if err != nil {
			return // rounded up above a bound
		}
		var out bytes.Buffer
		if err := WriteTraceAs(&out, fitted, format); err != nil {
			t.Fatalf("writing the fitted trace: %v", err)
		}
		back, is, _, err := ReadTrace("t", &out, "")
		if err != nil || is != format {
			t.Fatalf("reading back as %s: %v", is, err)
		}
		if diff := cmp.Diff(fitted, back); diff != "" {
			t.Errorf("reading back (-want +got):\n%s", diff)
		}
		if s := back.Stats(DefaultPerMB); s.Flows < 1 || s.Size <= 0 {
			t.Errorf("statistics %+v", s)
		}
	})
}

func FuzzReadFlows(f *testing.F) {
	seeds := []string{goodFlows, strings.ReplaceAll(goodFlows, "bytes", "MB")}
	for _, tt := range badFlows {
		seeds = append(seeds, tt.text)
	}
	fuzzFormat(f, FormatFlows, seeds...)
}

func FuzzReadHTSim(f *testing.F) {
	seeds := []string{goodHTSim, "Nodes 4\nConnections 2\n# testbed-coflow 4 from 1 0 to 3 ids 1-2\n1->3 id 1 start 2000 size 8\n0->3 id 2 start 2000 size 9\n"}
	for _, tt := range badHTSim {
		seeds = append(seeds, tt.text)
	}
	fuzzFormat(f, FormatHTSim, seeds...)
}
