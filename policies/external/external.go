// Package external is a coflow policy that a process outside of the program implements, in any language:
// the messages of their conversation, JSON lines, and the policies.CoflowScheduler that holds it.
// docs/writing-a-policy.md describes the messages.
//
// It starts no process: package process does.
package external

import (
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/topo/words"
	"testbed/workloads"
)

// Version is the version of the messages.
const Version = 1

// Schema is the JSON schema of all messages.
//
//go:embed schema.json
var Schema []byte

// End is the last message.
const End = `{"type":"end"}` + "\n"

// Measured is the latency of answers that take effect after the time that the process took.
const Measured time.Duration = -1

// Settings describe a process and its bounds.
type Settings struct {
	Command []string // program and arguments
	// Latency is the time from a decision until its rate caps take effect, or Measured.
	Latency time.Duration
	Timeout time.Duration // the longest wait for an answer and for the end of the process
	Output  units.Bytes   // the most output for one answer, and the most standard error that is kept
	// Parameters are for the process; nil if there are none.
	Parameters map[string]any
}

// Conversation is what a process says.
type Conversation interface {
	// Ask sends a line, and passes the lines that follow to use until it accepts one. It returns the time
	// that this took. An error of use is returned with the place of the line.
	Ask(line []byte, use func(line []byte) (accepted bool, err error)) (time.Duration, error)
}

// Scheduler is the policy that a process implements. A conversation belongs to one run, so New is called once.
type Scheduler struct {
	Settings
	talk     Conversation // nil in a replay
	greeting greeting
	raw      json.RawMessage // of greeting
}

// greeting is the answer to the first message.
type greeting struct {
	Type     string   `json:"type"`
	Version  int      `json:"version"`
	Needs    []string `json:"needs"`
	Triggers struct {
		Coflows bool          `json:"coflows"`
		Flows   bool          `json:"flows"`
		Pilots  bool          `json:"pilots"`
		Every   time.Duration `json:"every"`
	} `json:"triggers"`
}

// needs returns the facts and hints that a process may declare.
func needs() map[string]func(*policies.Needs) *bool {
	return map[string]func(*policies.Needs) *bool{
		"sizes":            func(n *policies.Needs) *bool { return &n.Sizes },
		"totals":           func(n *policies.Needs) *bool { return &n.Totals },
		"flows":            func(n *policies.Needs) *bool { return &n.Flows },
		"new_flows":        func(n *policies.Needs) *bool { return &n.NewFlows },
		"pilot_flows":      func(n *policies.Needs) *bool { return &n.PilotFlows },
		"most_sent":        func(n *policies.Needs) *bool { return &n.MostSent },
		"ignores_progress": func(n *policies.Needs) *bool { return &n.IgnoresProgress },
		"ignores_links":    func(n *policies.Needs) *bool { return &n.IgnoresLinks },
	}
}

type link struct {
	Name string `json:"name"`
	Rate int64  `json:"rate"` // bit/s
}

// Open begins the conversation: it describes the fabric and asks for needs and triggers.
func (s *Scheduler) Open(talk Conversation, f *topo.Fabric, seed uint64) error {
	var links []link
	for i, l := range f.Links() {
		links = append(links, link{Name: f.LinkName(topo.LinkID(i)), Rate: int64(l.Rate)})
	}
	hello, err := json.Marshal(map[string]any{
		"type": "hello", "version": Version, "role": "coflow", "parameters": s.Parameters, "seed": seed,
		"fabric": map[string]any{"hosts": f.Hosts(), "racks": f.Racks(), "links": links},
	})
	if err != nil {
		return err
	}
	s.talk = talk
	_, err = talk.Ask(append(hello, '\n'), func(line []byte) (bool, error) {
		is, err := isType(line, "hello")
		if err != nil || !is {
			return false, err
		}
		return true, s.Recorded(line)
	})
	return err
}

// Recorded takes the answer to the first message from a record, as Hello returned it.
func (s *Scheduler) Recorded(line []byte) error {
	var g greeting
	if err := json.Unmarshal(line, &g); err != nil {
		return fmt.Errorf("hello: %w", err)
	}
	if g.Version != Version {
		return fmt.Errorf("hello: version %d: must be %d, the version of this program", g.Version, Version)
	}
	known := needs()
	for _, name := range g.Needs {
		if known[name] == nil {
			return fmt.Errorf("hello: unknown need %q: must be %s", name, words.Or(Needs()))
		}
	}
	s.greeting, s.raw = g, slices.Clone(line)
	return nil
}

// Hello returns the answer to the first message.
func (s *Scheduler) Hello() json.RawMessage { return s.raw }

// Needs returns the names that a process may declare to need, sorted.
func Needs() (names []string) {
	for name := range needs() {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Needs returns those of the process; none before Open.
func (s *Scheduler) Needs() (n policies.Needs) {
	known := needs()
	for _, name := range s.greeting.Needs {
		*known[name](&n) = true
	}
	return n
}

// Triggers returns those of the process; none before Open.
func (s *Scheduler) Triggers() policies.Triggers { return policies.Triggers(s.greeting.Triggers) }

// New returns the instance that holds the conversation or, without one, answers from a log.
func (s *Scheduler) New() policies.CoflowInstance { return &instance{s: s, sizes: s.Needs().Sizes} }

// Name returns the name of an arm with the policy: the last argument that is no option, without directory.
func Name(command []string) string {
	for _, arg := range slices.Backward(command) {
		if strings.HasPrefix(arg, "-") {
			continue
		}
		if name := arg[strings.LastIndexByte(arg, '/')+1:]; name != "" {
			return name
		}
	}
	return "exec"
}

type instance struct {
	s     *Scheduler
	sizes bool // are shown
	n     int  // number of decisions
	line  []byte
	sent  []units.Rate // capacities as last sent
	// logged is the answer of a log to the next decision; nil without one.
	logged  []byte
	latency time.Duration
}

// Replay passes the logged answer to the next decision.
func (x *instance) Replay(answer []byte, latency time.Duration) {
	x.logged, x.latency = answer, latency
}

// Decide implements policies.CoflowInstance.
func (x *instance) Decide(v *policies.CoflowView, s *policies.Schedule) {
	x.n++
	if x.s.talk == nil {
		if x.logged == nil {
			s.Err = fmt.Errorf("the log has no answer to decision %d", x.n)
			return
		}
		_, s.Err = x.read(x.logged, s)
		s.Answer, s.Latency, x.logged = x.logged, x.latency, nil
		return
	}
	x.line = x.appendView(x.line[:0], v)
	took, err := x.s.talk.Ask(x.line, func(line []byte) (bool, error) {
		accepted, err := x.read(line, s)
		if accepted {
			s.Answer = slices.Clone(line)
		}
		return accepted, err
	})
	s.Err = err
	if s.Latency = x.s.Latency; s.Latency == Measured {
		s.Latency = took
	}
}

// isType reports whether a line is a message of a type. Others are ignored, unless they are no messages.
func isType(line []byte, name string) (bool, error) {
	var m struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(line, &m); err != nil {
		return false, fmt.Errorf("no message: %w", err)
	}
	if m.Type == "" {
		return false, errors.New(`no message: "type" is missing`)
	}
	return m.Type == name, nil
}

// answer is a schedule of a process.
type answer struct {
	N         int                `json:"n"`
	Steps     []step             `json:"steps"`
	Budgets   []float64          `json:"budgets"`
	Queues    []int              `json:"queues"`
	Watch     []int64            `json:"watch"`
	WatchMost []int64            `json:"watch_most"`
	Pilots    []workloads.FlowID `json:"pilots"`
	Wake      time.Duration      `json:"wake"`
}

type step struct {
	Coflows []int         `json:"coflows"`
	Rule    string        `json:"rule"`
	Part    string        `json:"part"`
	Only    string        `json:"only"`
	Budget  int           `json:"budget"`
	Within  time.Duration `json:"within"`
	Rates   []rate        `json:"rates"`
}

type rate struct {
	Flow workloads.FlowID `json:"flow"`
	Rate float64          `json:"rate"`
}

// The names of rules, parts and selections, by value.
var (
	Rules = []string{"free", "max_min", "equal_split", "greedy", "madd", "slowest_rate", "exclusive_ports", "proportional", "explicit"}
	Parts = []string{"all", "pilots", "others", "chosen"}
	Onlys = []string{"everyone", "skipped", "served"}
)

// read fills a schedule from a line. It reports whether the line is an answer.
func (x *instance) read(line []byte, s *policies.Schedule) (bool, error) {
	if is, err := isType(line, "schedule"); err != nil || !is {
		return false, err
	}
	var a answer
	if err := json.Unmarshal(line, &a); err != nil {
		return false, fmt.Errorf("schedule: %w", err)
	}
	if a.N != x.n {
		return false, fmt.Errorf("schedule: n is %d: must be %d, that of the message \"decide\"", a.N, x.n)
	}
	for i, st := range a.Steps {
		out := policies.Step{Coflows: st.Coflows, Budget: st.Budget, Within: st.Within}
		for _, named := range []struct {
			key, value string
			names      []string
			set        func(uint8)
		}{
			{"rule", st.Rule, Rules, func(n uint8) { out.Rule = policies.Rule(n) }},
			{"part", st.Part, Parts, func(n uint8) { out.Part = policies.Part(n) }},
			{"only", st.Only, Onlys, func(n uint8) { out.Only = policies.Only(n) }},
		} {
			at := slices.Index(named.names, named.value)
			if named.value == "" && named.key != "rule" {
				at = 0
			}
			if at < 0 {
				return false, fmt.Errorf("schedule: step %d: %s %q: must be %s", i, named.key, named.value, words.Or(named.names))
			}
			named.set(uint8(at))
		}
		for _, r := range st.Rates {
			out.Rates = append(out.Rates, policies.FlowRate(r))
		}
		s.Steps = append(s.Steps, out)
	}
	s.Budgets, s.Queues, s.Watch = append(s.Budgets, a.Budgets...), append(s.Queues, a.Queues...), append(s.Watch, a.Watch...)
	s.WatchMost, s.Pilots, s.Wake = append(s.WatchMost, a.WatchMost...), append(s.Pilots, a.Pilots...), a.Wake
	return true, nil
}

// appendView appends the message "decide". Numbers that are 0 are left out of coflows, and so are capacities
// that are as before.
func (x *instance) appendView(b []byte, v *policies.CoflowView) []byte {
	b = append(b, `{"type":"decide","n":`...)
	b = strconv.AppendInt(b, int64(x.n), 10)
	b = number(b, `,"now":`, int64(v.Now))
	if !slices.Equal(x.sent, v.Capacity) {
		x.sent = append(x.sent[:0], v.Capacity...)
		b = append(b, `,"capacity":[`...)
		for _, r := range v.Capacity {
			b = append(strconv.AppendInt(b, int64(r), 10), ',')
		}
		b = closed(b)
	}
	b = append(b, `,"coflows":[`...)
	for i := range v.Coflows {
		b = append(x.appendCoflow(b, &v.Coflows[i]), ',')
	}
	return append(closed(b), '}', '\n')
}

// close ends a list, whose last element has a comma after it.
func closed(b []byte) []byte {
	if b[len(b)-1] == ',' {
		b = b[:len(b)-1]
	}
	return append(b, ']')
}

// number appends a key and its value, unless that is 0.
func number(b []byte, key string, n int64) []byte {
	if n == 0 {
		return b
	}
	return strconv.AppendInt(append(b, key...), n, 10)
}

// row appends a list of numbers and a comma.
func row(b []byte, numbers ...int64) []byte {
	b = append(b, '[')
	for _, n := range numbers {
		b = append(strconv.AppendInt(b, n, 10), ',')
	}
	return append(closed(b), ',')
}

func (x *instance) appendCoflow(b []byte, c *policies.CoflowState) []byte {
	b = strconv.AppendInt(append(b, `{"id":`...), int64(c.ID), 10)
	b = number(b, `,"arrival":`, int64(c.Arrival))
	b = number(b, `,"width":`, int64(c.Width))
	b = number(b, `,"senders":`, int64(c.Senders))
	b = number(b, `,"receivers":`, int64(c.Receivers))
	b = number(b, `,"left":`, int64(c.Left))
	b = number(b, `,"sent":`, int64(c.Sent))
	b = number(b, `,"most_sent":`, int64(c.MostSent))
	b = number(b, `,"queue":`, int64(c.Queue))
	b = number(b, `,"since":`, int64(c.Since))
	b = number(b, `,"finished":`, int64(c.Finished))
	b = number(b, `,"median":`, int64(c.Median))
	b = number(b, `,"pilots":`, int64(c.Pilots))
	b = number(b, `,"pilots_left":`, int64(c.PilotsLeft))
	b = number(b, `,"pilot_sent":`, int64(c.PilotSent))
	b = number(b, `,"size":`, int64(c.Size))
	b = number(b, `,"largest":`, int64(c.Largest))
	b = number(b, `,"remaining":`, int64(c.Remaining))
	b = number(b, `,"bound":`, int64(c.Bound))
	b = column(b, `,"links":[`, c.Links, func(l *policies.LinkState) (int64, bool) { return int64(l.Link), true })
	b = column(b, `,"link_flows":[`, c.Links, func(l *policies.LinkState) (int64, bool) { return int64(l.Flows), true })
	if x.sizes {
		b = column(b, `,"link_remaining":[`, c.Links, func(l *policies.LinkState) (int64, bool) { return int64(l.Remaining), true })
	}
	if c.PilotsLeft > 0 {
		b = column(b, `,"link_pilots":[`, c.Links, func(l *policies.LinkState) (int64, bool) { return int64(l.Pilots), true })
	}
	b = column(b, `,"idle_links":[`, c.Links, func(l *policies.LinkState) (int64, bool) { return int64(l.Link), !l.Begun })
	if len(c.Flows) > 0 {
		b = append(b, `,"flows":[`...)
		for i := range c.Flows {
			f := &c.Flows[i]
			b = row(b, int64(f.ID), int64(f.Src), int64(f.Dst), flag(f.Pilot), int64(f.Sent), int64(f.Size), int64(f.Remaining))
			b = append(b[:len(b)-2], `,[`...)
			for _, l := range f.Path {
				b = append(strconv.AppendInt(b, int64(l), 10), ',')
			}
			b = append(closed(b), ']', ',')
		}
		b = closed(b)
	}
	return append(b, '}')
}

// column appends a key and the numbers of the links that have one, unless none has.
func column(b []byte, key string, links []policies.LinkState, of func(*policies.LinkState) (int64, bool)) []byte {
	before := len(b)
	b = append(b, key...)
	began := len(b)
	for i := range links {
		if n, has := of(&links[i]); has {
			b = append(strconv.AppendInt(b, n, 10), ',')
		}
	}
	if len(b) == began {
		return b[:before]
	}
	return closed(b)
}

func flag(set bool) int64 {
	if set {
		return 1
	}
	return 0
}
