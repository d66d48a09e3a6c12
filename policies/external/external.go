// Package external holds policies outside of the program, in any language: processes and WebAssembly modules. It
// defines the messages of their conversation and the policies of each role that hold it.
// docs/writing-a-policy.md describes the messages.
//
// It starts no policy: package outside does.
package external

import (
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"testbed/policies"
	"testbed/policies/external/messages"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/topo/words"
)

// Schema is the JSON schema of all messages.
//
//go:embed schema.json
var Schema []byte

// Examples are policies, with what they need of their language.
//
//go:embed python/testbed.py python/smallest_first.py python/oldest_first.py python/least_loaded.py golang messages
var Examples embed.FS

// End is the last message.
const End = `{"type":"end"}` + "\n"

// Measured is the latency of answers that take effect after the time that the process took.
const Measured time.Duration = -1

// Settings describe a policy and its bounds: a module if Module is set, and otherwise a process.
type Settings struct {
	Command []string // program and arguments
	Module  string   // path of a WebAssembly module
	// Latency is the time from a decision until it takes effect, or Measured.
	Latency time.Duration
	Timeout time.Duration // the longest wait for an answer and for the end of the process
	Output  units.Bytes   // the most output for one answer, and the most standard error that is kept
	Memory  units.Bytes   // the most memory of a module
	Work    int64         // the most calls and turns of loops of a module for one answer
	// Parameters are for the policy; nil if there are none.
	Parameters map[string]any
}

// String returns the settings without the role.
func (s Settings) String() string {
	if s.Module != "" {
		return "policy " + s.Module
	}
	return "policy " + strings.Join(s.Command, " ")
}

// Conversation is what a policy says.
type Conversation interface {
	// Ask sends a message, and passes the lines that follow to use until it accepts one. It returns the time
	// that this took. An error of use is returned with the place of the line.
	Ask(line []byte, use func(line []byte) (accepted bool, err error)) (time.Duration, error)
}

// Policy is what policies of all roles have in common that a process implements. A conversation belongs to one run, so that
// only one instance is made.
type Policy struct {
	Settings
	role     string
	needs    policies.Facts
	talk     Conversation // nil in a replay
	greeting messages.Greeting
	raw      json.RawMessage // of greeting
}

// Open begins the conversation: it describes the fabric and asks for needs and triggers.
func (p *Policy) Open(talk Conversation, f *topo.Fabric, seed uint64) error {
	parameters, err := json.Marshal(p.Parameters)
	if err != nil {
		return err
	}
	fabric := messages.Fabric{Hosts: f.Hosts(), Racks: f.Racks()}
	for h := range f.Hosts() {
		fabric.HostRacks = append(fabric.HostRacks, int(f.RackOf(topo.HostID(h))))
	}
	for i, l := range f.Links() {
		fabric.Links = append(fabric.Links, messages.Link{Name: f.LinkName(topo.LinkID(i)), Rate: int64(l.Rate)})
	}
	hello, err := json.Marshal(messages.Hello{
		Type:       "hello",
		Version:    messages.Version,
		Role:       p.role,
		Parameters: parameters,
		Seed:       seed,
		Fabric:     fabric,
	})
	if err != nil {
		return err
	}
	p.talk = talk
	_, err = talk.Ask(append(hello, '\n'), func(line []byte) (bool, error) {
		is, err := isType(line, "hello")
		if err != nil || !is {
			return false, err
		}
		return true, p.Recorded(line)
	})
	return err
}

// Recorded takes the answer to the first message from a record, as Hello returned it.
func (p *Policy) Recorded(line []byte) error {
	var g messages.Greeting
	if err := json.Unmarshal(line, &g); err != nil {
		return fmt.Errorf("hello: %w", err)
	}
	if g.Version != messages.Version {
		return fmt.Errorf("hello: version %d: must be %d, in which needs are all facts that the policy sees", g.Version, messages.Version)
	}
	needs, err := policies.NamedFacts(p.role, g.Needs)
	if err != nil {
		return fmt.Errorf("hello: needs: %w", err)
	}
	if g.Views != "" && !slices.Contains(Views, g.Views) {
		return fmt.Errorf("hello: views %q: must be %s", g.Views, words.Or(Views))
	}
	p.greeting, p.needs, p.raw = g, needs, slices.Clone(line)
	return nil
}

// String returns the policy as errors name it.
func (p *Policy) String() string { return p.role + " " + p.Settings.String() }

// Of returns the part that policies of all roles have in common, nil for a policy of the program.
func Of(policy any) *Policy {
	if p, ok := policy.(interface{ outside() *Policy }); ok {
		return p.outside()
	}
	return nil
}

func (p *Policy) outside() *Policy { return p }

// Role returns the name of the role.
func (p *Policy) Role() string { return p.role }

// Hello returns the answer to the first message.
func (p *Policy) Hello() json.RawMessage { return p.raw }

// Needs returns those of the process; none before Open.
func (p *Policy) Needs() policies.Facts { return p.needs }

// Name returns the name of an arm with a process or a module: the last argument that is no option, without
// directory.
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

// decisions are those of an instance.
type decisions struct {
	p      *Policy
	n      int // number so far
	line   []byte
	sent   []units.Rate // capacities as last sent
	logged []logged     // answers of a log to the next decisions
}

type logged struct {
	answer  []byte
	latency time.Duration
}

// Replay passes the logged answer to a decision, in their order.
func (d *decisions) Replay(answer []byte, latency time.Duration) {
	d.logged = append(d.logged, logged{answer, latency})
}

// decide sends a message and returns the answer, which is the line that read accepts, and its latency. In a replay it takes
// them from the log.
func (d *decisions) decide(
	message func([]byte) []byte, read func([]byte) (bool, error),
) (answer []byte, latency time.Duration, err error) {
	d.n++
	if d.p.talk == nil {
		if len(d.logged) == 0 {
			return nil, 0, fmt.Errorf("the log has no answer to decision %d", d.n)
		}
		next := d.logged[0]
		d.logged = d.logged[1:]
		_, err = read(next.answer)
		return next.answer, next.latency, err
	}
	d.line = message(d.line[:0])
	took, err := d.p.talk.Ask(d.line, func(line []byte) (bool, error) {
		accepted, err := read(line)
		if accepted {
			answer = slices.Clone(line)
		}
		return accepted, err
	})
	if latency = d.p.Latency; latency == Measured {
		latency = took
	}
	return answer, latency, err
}

// begin begins a message for a decision. Capacities that are as before are left out.
func (d *decisions) begin(b []byte, kind string, c *policies.Cluster) []byte {
	b = append(append(append(b, `{"type":"`...), kind...), `","n":`...)
	b = strconv.AppendInt(b, int64(d.n), 10)
	b = number(b, `,"now":`, int64(c.Now))
	if !slices.Equal(d.sent, c.Capacity) {
		d.sent = append(d.sent[:0], c.Capacity...)
		b = append(b, `,"capacity":[`...)
		for _, r := range c.Capacity {
			b = append(strconv.AppendInt(b, int64(r), 10), ',')
		}
		b = closed(b)
	}
	return b
}

// reply is what answers have in common.
type reply struct {
	Type string `json:"type"`
	N    int    `json:"n"`
}

// parse decodes a line of a type into an answer, which includes its reply. It reports whether the line is of that type.
func (d *decisions) parse(line []byte, kind, asked string, into any, r *reply) (bool, error) {
	err := json.Unmarshal(line, into)
	if err != nil || r.Type != kind {
		if is, err := isType(line, kind); err != nil || !is {
			return false, err
		}
		return false, fmt.Errorf("%s: %w", kind, err)
	}
	if r.N != d.n {
		return false, fmt.Errorf("%s: n is %d: must be %d, that of the message %q", kind, r.N, d.n, asked)
	}
	return true, nil
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

// text appends a key and a string, unless that is empty.
func text(b []byte, key, s string) []byte {
	if s == "" {
		return b
	}
	quoted, _ := json.Marshal(s) // strings have no errors
	return append(append(b, key...), quoted...)
}

func flag(set bool) int64 {
	if set {
		return 1
	}
	return 0
}
