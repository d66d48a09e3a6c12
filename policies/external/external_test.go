package external

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"testbed/policies"
	"testbed/policies/coflow"
	"testbed/policies/external/messages"
	"testbed/policies/policytest"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// says is a conversation with a function, which returns lines for a line.
type says func(line string) []string

func (f says) Ask(line []byte, use func([]byte) (bool, error)) (time.Duration, error) {
	for _, l := range f(string(line)) {
		if accepted, err := use([]byte(l)); accepted || err != nil {
			return time.Millisecond, err
		}
	}
	return 0, errors.New("no answer")
}

const hello = `{"type":"hello","version":2,"needs":["sizes","new_flows","links"],"triggers":{"coflows":true,"every":8000000},"more":1}`

func fabric(t testing.TB) *topo.Fabric {
	t.Helper()
	f, err := topo.BigSwitch(2, units.Gbps)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// opened returns an instance to which a process answers the given lines.
func opened(t testing.TB, latency time.Duration, lines ...string) (*Scheduler, policies.CoflowInstance, *[]string) {
	t.Helper()
	s := Coflow(Settings{Latency: latency})
	var asked []string
	talk := says(func(line string) []string {
		asked = append(asked, line)
		if len(asked) == 1 {
			return []string{`{"type":"news"}`, hello}
		}
		return lines
	})
	if err := s.Open(talk, fabric(t), 7); err != nil {
		t.Fatal(err)
	}
	return s, s.New(), &asked
}

func view(t testing.TB) *policies.CoflowView {
	f := fabric(t)
	v := &policies.CoflowView{Cluster: &policies.Cluster{Now: 5, Fabric: f}}
	for _, l := range f.Links() {
		v.Capacity = append(v.Capacity, l.Rate)
	}
	v.Coflows = []policies.CoflowState{{
		ID: 3, Arrival: 1, Width: 2, Senders: 3, Receivers: 4, Left: 5, Sent: 6, MostSent: 7, Queue: 8, Since: 9,
		Links:    []policies.LinkState{{Link: 0, Flows: 1, Pilots: 1, Begun: true, Remaining: 10}, {Link: 2, Flows: 1}},
		Finished: 11, Median: 12, Pilots: 13, PilotsLeft: 14, PilotSent: 15, Size: 16, Largest: 17, Remaining: 18, Bound: 19,
		Flows: []policies.FlowState{{ID: 20, Src: 0, Dst: 1, Path: []topo.LinkID{0, 2}, Pilot: true, Sent: 21, Size: 22, Remaining: 23}},
	}, {ID: 4}}
	return v
}

func TestMessages(t *testing.T) {
	s, x, asked := opened(t, 0, `{"type":"news"}`, `{"type":"schedule","n":1,"later":2}`)
	if d := cmp.Diff(policies.Sizes|policies.NewFlows|policies.Links, s.Needs()); d != "" {
		t.Errorf("needs (-want +got):\n%s", d)
	}
	if want := (policies.Triggers{Coflows: true, Every: 8 * time.Millisecond}); s.Triggers() != want || string(s.Hello()) != hello {
		t.Errorf("triggers %+v, want %+v; hello %s", s.Triggers(), want, s.Hello())
	}
	var out policies.Schedule
	x.Decide(view(t), &out)
	want := []string{
		`{"type":"hello","version":2,"role":"coflow","parameters":null,"seed":7,"fabric":{"hosts":2,"racks":1,"host_racks":[0,0],` +
			`"links":[{"name":"h0-00\u003eleaf0","rate":1000000000},{"name":"leaf0\u003eh0-00","rate":1000000000},` +
			`{"name":"h0-01\u003eleaf0","rate":1000000000},{"name":"leaf0\u003eh0-01","rate":1000000000}]}}` + "\n",
		`{"type":"decide","n":1,"now":5,"capacity":[1000000000,1000000000,1000000000,1000000000],"coflows":[{"id":3,"arrival":1,"width":2,` +
			`"senders":3,"receivers":4,"left":5,"sent":6,"most_sent":7,"queue":8,"since":9,"finished":11,"median":12,"pilots":13,` +
			`"pilots_left":14,"pilot_sent":15,"size":16,"largest":17,"remaining":18,"bound":19,"links":[0,2],"link_flows":[1,1],"link_remaining":[10,0],"link_pilots":[1,0],"idle_links":[2],` +
			`"flows":[[20,0,1,1,21,22,23,[0,2]]]},{"id":4}]}` + "\n",
	}
	if d := cmp.Diff(want, *asked); d != "" || out.Err != nil {
		t.Errorf("%v (-want +got):\n%s", out.Err, d)
	}
}

func TestCapacityAsBefore(t *testing.T) {
	n := 0
	s := Coflow(Settings{})
	var shown []bool
	err := s.Open(says(func(line string) []string {
		if strings.Contains(line, "hello") {
			return []string{hello}
		}
		n++
		shown = append(shown, strings.Contains(line, "capacity"))
		return []string{fmt.Sprintf(`{"type":"schedule","n":%d}`, n)}
	}), fabric(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	x, v := s.New(), view(t)
	for i := range 4 {
		if i == 2 {
			v.Capacity[1] = 0
		}
		var out policies.Schedule
		if x.Decide(v, &out); out.Err != nil {
			t.Fatal(out.Err)
		}
	}
	if want := []bool{true, false, true, false}; !slices.Equal(shown, want) {
		t.Errorf("capacities shown %v, want %v", shown, want)
	}
}

// Integers leave out capacities that are as before.
func TestBinary(t *testing.T) {
	v := view(t)
	numbers := func(n int64, rest ...int64) []int64 { return append([]int64{n, 5}, rest...) }
	capacity := []int64{4, 1e9, 1e9, 1e9, 1e9}
	coflows := []int64{2, 3, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 14, 15, 16, 17, 18, 19, 2, 1, 1, 2 << 32, 1 | 1<<32, 10, 0, 1, 0, 2,
		20, 0, 1, 1, 21, 22, 23, 2, 0, 2, 4}
	coflows = append(coflows, make([]int64, 21)...)
	var x binaryViews
	for n, tt := range []struct {
		change func()
		want   []int64
	}{
		{func() {}, slices.Concat(numbers(0), capacity, coflows)},
		{func() {}, slices.Concat(numbers(1, 0), coflows)},
		{func() { v.Capacity[3], capacity[4] = 0, 0 }, slices.Concat(numbers(2), []int64{4, 1e9, 1e9, 1e9, 0}, coflows)},
	} {
		tt.change()
		head, after, _ := bytes.Cut(x.append(nil, n, v, policies.Sizes), []byte("\n"))
		got := make([]int64, len(after)/8)
		if _, err := binary.Decode(after, binary.LittleEndian, got); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("message %d (-want +got):\n%s", n, d)
		}
		if want := fmt.Sprintf(`{"type":"decide","n":%d,"bytes":%d}`, n, len(after)); strings.TrimSpace(string(head)) != want {
			t.Errorf("line %q, want %q", head, want)
		}
	}
}

// The examples read the numbers of a coflow in the order of the message.
func TestOrderOfNumbers(t *testing.T) {
	for file, list := range map[string][2]string{
		"wasm/testbed.go":   {"type Numbers struct {", "int64"},
		"wasm/sebf.c":       {"struct coflow {\n\tint64_t", ";"},
		"python/testbed.py": {"        (\n", ") = numbers"},
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, after, _ := strings.Cut(string(text), list[0])
		declared, _, _ := strings.Cut(after, list[1])
		names := strings.FieldsFunc(strings.NewReplacer("self.", "", "_", "").Replace(declared),
			func(r rune) bool { return r == ',' || unicode.IsSpace(r) })
		var c policies.CoflowState
		own := max(0, len(names)-3) // the others are lengths
		for i, name := range names[:own] {
			field := reflect.ValueOf(&c).Elem().FieldByNameFunc(func(f string) bool { return strings.EqualFold(f, name) })
			if !field.IsValid() {
				t.Fatalf("%s: %s is nothing of a coflow", file, name)
			}
			field.SetInt(int64(1000 + i))
		}
		message := binaryCoflow(nil, &c, true)
		if want := []string{"links", "idle", "flows"}; 8*len(names) != len(message) || !slices.Equal(names[own:], want) {
			t.Errorf("%s: %d numbers of %d, the last are %v, want %v", file, len(names), len(message)/8, names[own:], want)
		}
		for i, name := range names[:own] {
			if got := binary.LittleEndian.Uint64(message[8*i:]); got != uint64(1000+i) {
				t.Errorf("%s: %s is not number %d", file, name, i)
			}
		}
	}
}

// What scan decodes, json.Unmarshal decodes alike.
func FuzzScan(f *testing.F) {
	for _, line := range []string{full, `{"type":"schedule","n":1,"steps":[{"rule":"madd","coflows":[1,0]},{"coflows":[],"rule":"greedy"}]}`,
		` { "n" : -0 , "queues" : [ 1 , 2 ] } `, `{"n":01}`, `{"n":1.0}`, `{"n":1,}`, `{"n":1}}`, `{"N":1}`, `{"watch":[],"wake":5}`,
		`{"type":"schedul\u0065"}`, `{"n":1e3}`, `{"n":null}`, `{"pilots":[9223372036854775807]}`, `{"steps":[{"within":1,"budget":2}]}`} {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var got, want answer
		if !got.scan(line) {
			return
		}
		if err := json.Unmarshal(line, &want); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if d := cmp.Diff(want, got, cmp.AllowUnexported(answer{}), cmpopts.EquateEmpty()); d != "" {
			t.Errorf("%q (-want +got):\n%s", line, d)
		}
	})
}

const full = `{"type":"schedule","n":1,"steps":[{"rule":"madd","coflows":[1,0],"part":"others","only":"served","budget":1,"within":5},` +
	`{"rule":"explicit","rates":[{"flow":20,"rate":1.5}]}],"budgets":[0.5],"queues":[1,2],"watch":[3,0],"watch_most":[4,0],"pilots":[20],"wake":9}`

func TestAnswer(t *testing.T) {
	want := policies.Schedule{
		Steps: []policies.Step{
			{Coflows: []int{1, 0}, Rule: policies.MADD, Part: policies.Others, Only: policies.Served, Budget: 1, Within: 5},
			{Rule: policies.Explicit, Rates: []policies.FlowRate{{Flow: 20, Rate: 1.5}}},
		},
		Budgets: []float64{0.5}, Queues: []int{1, 2}, Watch: []int64{3, 0}, WatchMost: []int64{4, 0}, Pilots: []workloads.FlowID{20}, Wake: 9,
		Answer: []byte(full),
	}
	opt := cmpopts.IgnoreUnexported(policies.Schedule{})
	for latency, took := range map[time.Duration]time.Duration{0: 0, time.Second: time.Second, Measured: time.Millisecond} {
		_, x, _ := opened(t, latency, full)
		var got policies.Schedule
		x.Decide(view(t), &got)
		if want.Latency = took; !cmp.Equal(want, got, opt) {
			t.Errorf("latency %v (-want +got):\n%s", latency, cmp.Diff(want, got, opt))
		}
		// A replay needs no process.
		again := Coflow(Settings{})
		if err := again.Recorded([]byte(hello)); err != nil {
			t.Fatal(err)
		}
		replayed := again.New()
		replayed.(policies.Replayer).Replay(got.Answer, got.Latency)
		var copied policies.Schedule
		if replayed.Decide(view(t), &copied); !cmp.Equal(got, copied, opt) {
			t.Errorf("replay (-want +got):\n%s", cmp.Diff(got, copied, opt))
		}
		copied.Reset()
		if replayed.Decide(view(t), &copied); copied.Err == nil || copied.Err.Error() != "the log has no answer to decision 2" {
			t.Errorf("replay of a decision that the log has not: %v", copied.Err)
		}
	}
}

func TestInvalidAnswers(t *testing.T) {
	for line, want := range map[string]string{
		`nothing`:               "no message: invalid character",
		`[]`:                    "no message: json: cannot unmarshal array",
		`{"n":1}`:               `no message: "type" is missing`,
		`{"type":"schedule"}`:   `n is 0: must be 1, that of the message "decide"`,
		`{"type":"news","n":1}`: "no answer",
		`{"type":"schedule","n":1,"steps":[{"rule":"madd"},{"rule":"best"}]}`:              `step 1: rule "best": must be free, max_min`,
		`{"type":"schedule","n":1,"steps":[{}]}`:                                           `step 0: rule "": must be`,
		`{"type":"schedule","n":1,"steps":[{"rule":"free","part":"half"}]}`:                `step 0: part "half": must be all, pilots, others or chosen`,
		`{"type":"schedule","n":1,"steps":[{"rule":"free","only":"me"}]}`:                  `step 0: only "me": must be everyone, skipped or served`,
		`{"type":"schedule","n":1,"steps":[{"rule":"free","coflows":["a"]}]}`:              "steps.coflows",
		`{"type":"schedule","n":1,"steps":[{"rule":"explicit","rates":[{"rate":1e999}]}]}`: "1e999",
	} {
		_, x, _ := opened(t, 0, line)
		var out policies.Schedule
		if x.Decide(view(t), &out); out.Err == nil || !strings.Contains(out.Err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, out.Err, want)
		}
	}
	for line, want := range map[string]string{
		`{"type":"hello","version":1,"needs":["ignores_links"]}`: "hello: version 1: must be 2, in which needs are all facts that the policy sees",
		`{"type":"hello","version":2,"needs":["luxe"]}`:          `hello: needs: unknown fact "luxe": must be progress, links, totals,`,
		`{"type":"hello","version":"2"}`:                         "hello: json",
	} {
		s := Coflow(Settings{})
		if err := s.Open(says(func(string) []string { return []string{line} }), fabric(t), 1); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

// The published schema lists the keys, names and needs of the program.
func TestSchema(t *testing.T) {
	type node struct {
		Properties map[string]*node
		Items      *node
		Enum       []string
	}
	var s struct {
		Defs map[string]*node `json:"$defs"`
	}
	if err := json.Unmarshal(Schema, &s); err != nil {
		t.Fatal(err)
	}
	keys := func(n *node) (names []string) {
		for name := range n.Properties {
			names = append(names, name)
		}
		slices.Sort(names)
		return names
	}
	tags := func(v any, more ...string) []string {
		for _, f := range reflect.VisibleFields(reflect.TypeOf(v)) {
			if !f.Anonymous {
				name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
				more = append(more, name)
			}
		}
		slices.Sort(more)
		return more
	}
	sent := func(line string) map[string]any {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	names := func(m map[string]any) (names []string) {
		for name := range m {
			names = append(names, name)
		}
		slices.Sort(names)
		return names
	}
	_, x, asked := opened(t, 0, `{"type":"schedule","n":1}`)
	x.Decide(view(t), &policies.Schedule{})
	first, decide := sent((*asked)[0]), sent((*asked)[1])
	steps, jobs := s.Defs["schedule"].Properties["steps"].Items, s.Defs["assign"].Properties["jobs"].Items
	for _, tt := range []struct {
		what      string
		want, got []string
	}{
		{"hello", names(first), keys(s.Defs["hello"])},
		{"fabric", names(first["fabric"].(map[string]any)), keys(s.Defs["hello"].Properties["fabric"])},
		{"answer to hello", tags(messages.Greeting{}), keys(s.Defs["hello_answer"])},
		{"triggers", tags(messages.Triggers{}), keys(s.Defs["hello_answer"].Properties["triggers"])},
		{"decide", slices.Sorted(slices.Values(append(names(decide), "bytes"))), keys(s.Defs["decide"])},
		{"coflow", names(decide["coflows"].([]any)[0].(map[string]any)), keys(s.Defs["decide"].Properties["coflows"].Items)},
		{"schedule", tags(answer{}), keys(s.Defs["schedule"])},
		{"step", tags(messages.Step{}), keys(steps)},
		{"rate", tags(messages.Rate{}), keys(steps.Properties["rates"].Items)},
		{"rules", Rules, steps.Properties["rule"].Enum},
		{"parts", Parts, steps.Properties["part"].Enum},
		{"selections", Onlys, steps.Properties["only"].Enum},
		{"type Hello", tags(messages.Hello{}), keys(s.Defs["hello"])},
		{"type Fabric", tags(messages.Fabric{}), keys(s.Defs["hello"].Properties["fabric"])},
		{"type Link", tags(messages.Link{}), keys(s.Defs["hello"].Properties["fabric"].Properties["links"].Items)},
		{"type View", tags(messages.View{}, "bytes", "type"), keys(s.Defs["decide"])},
		{"type Coflow", tags(messages.Coflow{}), keys(s.Defs["decide"].Properties["coflows"].Items)},
		{"type TaskView", tags(messages.TaskView{}, "type"), keys(s.Defs["assign"])},
		{"type Slots", tags(messages.Slots{}), keys(s.Defs["assign"].Properties["slots"].Items)},
		{"type Job", tags(messages.Job{}), keys(jobs)},
		{"type Stage", tags(messages.Stage{}), keys(jobs.Properties["stages"].Items)},
		{"type Assignment", tags(messages.Assignment{}, "type", "n"), keys(s.Defs["assignment"])},
		{"type Launch", tags(messages.Launch{}), keys(s.Defs["assignment"].Properties["launch"].Items)},
		{"type Attempt", tags(messages.Attempt{}), keys(s.Defs["running"])},
		{"type PlacementView", tags(messages.PlacementView{}, "type"), keys(s.Defs["place"])},
	} {
		if d := cmp.Diff(tt.want, tt.got); d != "" {
			t.Errorf("%s (-program +schema):\n%s", tt.what, d)
		}
	}
	for i, name := range Rules {
		if got := policies.Rule(i).String(); !strings.EqualFold(strings.ReplaceAll(name, "_", ""), got) {
			t.Errorf("rule %d is %s, and %s in messages", i, got, name)
		}
	}
}

// python runs a policy of the directory python.
func python(t testing.TB, name string) Conversation {
	t.Helper()
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3: ", err)
	}
	cmd := exec.Command("python3", name)
	cmd.Dir, cmd.Stderr = "python", os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Error(err)
		}
	})
	buffer := make([]byte, 1<<20)
	return talk(func(line []byte, use func([]byte) (bool, error)) (time.Duration, error) {
		began := time.Now()
		if _, err := in.Write(line); err != nil {
			return 0, err
		}
		n := 0
		for n == 0 || buffer[n-1] != '\n' {
			more, err := out.Read(buffer[n:])
			if n += more; err != nil {
				return 0, err
			}
		}
		_, err := use(bytes.TrimSpace(buffer[:n]))
		return time.Since(began), err
	})
}

type talk func([]byte, func([]byte) (bool, error)) (time.Duration, error)

func (f talk) Ask(line []byte, use func([]byte) (bool, error)) (time.Duration, error) {
	return f(line, use)
}

// The examples in Python decide as the policies of the program do.
func TestPython(t *testing.T) {
	for name, p := range map[string]policies.CoflowScheduler{"sebf.py": coflow.SEBF{}, "aalo.py": coflow.DefaultAalo()} {
		s := Coflow(Settings{})
		if err := s.Open(python(t, name), fabric(t), 1); err != nil {
			t.Fatal(err)
		}
		if s.Needs() != p.Needs() || s.Triggers() != p.Triggers() {
			t.Errorf("%s: %v, %+v: want %v, %+v", name, s.Needs(), s.Triggers(), p.Needs(), p.Triggers())
		}
		x := s.New()
		rapid.Check(t, func(t *rapid.T) {
			compare := func(v, _ *policies.CoflowView, want *policies.Schedule) error {
				var got policies.Schedule
				x.Decide(v, &got)
				if d := cmp.Diff(fmt.Sprint(want.Steps, want.Queues, want.Watch), fmt.Sprint(got.Steps, got.Queues, got.Watch)); d != "" || got.Err != nil {
					return fmt.Errorf("%v (-program +python):\n%s", got.Err, d)
				}
				return nil
			}
			if err := policytest.Clusters().Draw(t, "cluster").Run(p, p.Needs(), compare); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		})
	}
}

// BenchmarkDecision measures a decision of sebf.py with 50 coflows on 20 links each.
func BenchmarkDecision(b *testing.B) {
	f, err := topo.BigSwitch(20, units.Gbps)
	if err != nil {
		b.Fatal(err)
	}
	v := &policies.CoflowView{Cluster: &policies.Cluster{Now: 1e9, Fabric: f}}
	for _, l := range f.Links() {
		v.Capacity = append(v.Capacity, l.Rate)
	}
	for i := range 50 {
		c := policies.CoflowState{ID: workloads.CoflowID(i), Arrival: time.Duration(1e6 * i), Width: 100, Senders: 10, Receivers: 10, Left: 90,
			Sent: units.Bytes(1e8 + i), Size: 1e9, Largest: 1e8, Remaining: 9e8, Bound: 8e9}
		for l := range 20 {
			c.Links = append(c.Links, policies.LinkState{Link: topo.LinkID(l), Flows: 10, Begun: true, Remaining: units.Bytes(9e7 + 1000*i + l)})
		}
		v.Coflows = append(v.Coflows, c)
	}
	for name, p := range map[string]func() policies.CoflowScheduler{
		"program": func() policies.CoflowScheduler { return coflow.SEBF{} },
		"python": func() policies.CoflowScheduler {
			s := Coflow(Settings{})
			if err := s.Open(python(b, "sebf.py"), f, 1); err != nil {
				b.Fatal(err)
			}
			return s
		},
	} {
		b.Run(name, func(b *testing.B) {
			x := p().New()
			var s policies.Schedule
			for b.Loop() {
				s.Reset()
				if x.Decide(v, &s); s.Err != nil {
					b.Fatal(s.Err)
				}
			}
		})
	}
}
