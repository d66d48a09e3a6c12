package export_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"testbed/results/export"
	"testbed/results/rundir"
	"testbed/results/rundir/rundirtest"
)

// traceEvent is an event of the trace event format of Chrome.
type traceEvent struct {
	Name  string
	Ph    string
	Ts    *float64
	Dur   *float64
	Pid   *int
	Tid   *int
	S     string
	Args  map[string]any
	order int
}

// checkTrace reports what breaks the rules by which Perfetto reads a trace: times that are no times, slices of a thread
// that overlap, processes and threads without a name, and counters without a number.
func checkTrace(text []byte) (events []traceEvent, problems []string) {
	bad := func(e traceEvent, format string, args ...any) {
		problems = append(problems, fmt.Sprintf("event %d (%s, %s): ", e.order, e.Ph, e.Name)+fmt.Sprintf(format, args...))
	}
	var trace struct{ TraceEvents []traceEvent }
	if err := json.Unmarshal(text, &trace); err != nil {
		return nil, []string{err.Error()}
	}
	type thread struct{ pid, tid int }
	named := map[thread]bool{}
	ends := map[thread]float64{} // of the newest slice
	for i, e := range trace.TraceEvents {
		e.order = i
		if e.Name == "" || e.Ts == nil || e.Pid == nil || e.Tid == nil || *e.Ts < 0 {
			bad(e, "no name, time, process or thread")
			continue
		}
		at := thread{*e.Pid, *e.Tid}
		switch e.Ph {
		case "M":
			name, _ := e.Args["name"].(string)
			if _, sorts := e.Args["sort_index"].(float64); name == "" && !sorts {
				bad(e, "no name: %v", e.Args)
			}
			if e.Name == "process_name" || e.Name == "thread_name" {
				if named[at] {
					bad(e, "second name of %v", at)
				}
				named[at] = true
			}
		case "X":
			if e.Dur == nil || *e.Dur < 0 {
				bad(e, "no duration")
				continue
			}
			if *e.Ts < ends[at]-0.0005 {
				bad(e, "begins at %v in a slice until %v", *e.Ts, ends[at])
			}
			ends[at] = *e.Ts + *e.Dur
		case "i":
			if e.S != "t" {
				bad(e, "scope %q", e.S)
			}
		case "C":
			for _, v := range e.Args {
				if _, ok := v.(float64); !ok {
					bad(e, "value %v", v)
				}
			}
			if len(e.Args) != 1 {
				bad(e, "%d values", len(e.Args))
			}
		default:
			bad(e, "unknown phase")
		}
		if !named[thread{at.pid, 0}] {
			bad(e, "process %d has no name yet", at.pid)
		}
		if (e.Ph == "X" || e.Ph == "i") && !named[at] {
			bad(e, "thread %v has no name yet", at)
		}
		events = append(events, e)
	}
	return events, problems
}

// A trace has all rows of the runs, obeys the rules, and is the same each time.
func TestPerfetto(t *testing.T) {
	spec := rundirtest.Default()
	spec.Tasks = true
	dir := rundirtest.Write(t, spec)
	var log string
	for _, name := range []string{"{\"format\":3,\"t\":0,\"events\":[]}", "{\"t\":200001500,\"events\":[],\"commands\":[{\"SetCeiling\":{}},{\"SetCeiling\":{}},{\"Start\":{}}]}"} {
		log += name + "\n"
	}
	trials, err := filepath.Glob(filepath.Join(dir, "*", "*", rundir.TrialFile))
	if err != nil || len(trials) == 0 {
		t.Fatal(trials, err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(trials[0]), rundir.EventsFile), []byte(log), 0o644); err != nil {
		t.Fatal(err)
	}
	rundirtest.Seal(t, dir)
	r, err := rundir.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	text := write(t, export.Trace, []*rundir.Run{r}, export.Perfetto, export.Options{})
	if again := write(t, export.Trace, []*rundir.Run{r}, export.Perfetto, export.Options{}); string(again) != string(text) {
		t.Error("two traces of a run differ")
	}
	events, problems := checkTrace(text)
	for _, p := range problems[:min(10, len(problems))] {
		t.Error(p)
	}
	count := map[string]int{}
	slices := 0
	for _, e := range events {
		kind, _, _ := strings.Cut(e.Name, " ")
		count[e.Ph+" "+kind]++
		if e.Ph == "X" {
			slices++
		}
		if size, ok := e.Args["size_bytes"]; ok && size != nil {
			if _, ok := size.(float64); !ok {
				t.Fatalf("size %v", size)
			}
		}
		if e.Name == "SetCeiling, Start" && (*e.Ts != 1.5 || e.Args["SetCeiling"] != 2.0) {
			t.Errorf("decision %+v", e)
		}
	}
	if want := len(r.Jobs) + len(r.Attempts) + len(r.Coflows) + len(r.Flows) + len(r.Blocks); slices != want || len(r.Attempts) == 0 {
		t.Errorf("%d slices, want %d", slices, want)
	}
	for _, kind := range []string{"M process_name", "M thread_name", "X job", "X coflow", "X flow", "i SetCeiling,", "C queue", "C throughput", "C cwnd", "C rtt"} {
		if count[kind] == 0 {
			t.Errorf("no %q in %v", kind, count)
		}
	}
	if processes := count["M process_name"]; processes != 3*2 {
		t.Errorf("%d processes, want one for each arm and repeat", processes)
	}
}

// The rules find what breaks them.
func TestTraceRules(t *testing.T) {
	const names = `{"name":"process_name","ph":"M","ts":0,"pid":1,"tid":0,"args":{"name":"p"}},` +
		`{"name":"thread_name","ph":"M","ts":0,"pid":1,"tid":2,"args":{"name":"t"}}`
	for text, want := range map[string]string{
		names: "",
		names + `,{"name":"a","ph":"X","ts":1,"dur":5,"pid":1,"tid":2},{"name":"b","ph":"X","ts":3,"dur":5,"pid":1,"tid":2}`: "begins at 3",
		names + `,{"name":"a","ph":"X","ts":1,"dur":5,"pid":1,"tid":3}`:                                                      "has no name yet",
		names + `,{"name":"a","ph":"C","ts":1,"pid":1,"tid":0,"args":{"x":"1"}}`:                                             "value 1",
		names + `,{"name":"a","ph":"X","ts":-1,"dur":5,"pid":1,"tid":2}`:                                                     "no name, time",
		names + `,`: "invalid",
	} {
		_, problems := checkTrace([]byte(`{"traceEvents":[` + text + `]}`))
		if got := strings.Join(problems, "; "); (want == "") != (got == "") || !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
}
