package external

import (
	"fmt"
	"slices"
	"strconv"

	"testbed/policies"
	"testbed/policies/external/messages"
	"testbed/topo/words"
	"testbed/workloads"
)

// Scheduler is a coflow policy that a process implements.
type Scheduler struct{ Policy }

// Coflow returns a coflow policy before its conversation.
func Coflow(s Settings) *Scheduler {
	return &Scheduler{Policy{Settings: s, role: "coflow"}}
}

// Triggers returns those of the process; none before Open.
func (s *Scheduler) Triggers() policies.Triggers { return policies.Triggers(s.greeting.Triggers) }

// New returns the instance that holds the conversation or, without one, answers from a log.
func (s *Scheduler) New() policies.CoflowInstance {
	return &instance{decisions: decisions{p: &s.Policy}}
}

type instance struct {
	decisions
	views binaryViews
}

// Decide implements policies.CoflowInstance.
func (x *instance) Decide(v *policies.CoflowView, s *policies.Schedule) {
	s.Answer, s.Latency, s.Err = x.decide(
		func(b []byte) []byte {
			if x.p.greeting.Views == Binary {
				return x.views.append(b, x.n, v, x.p.needs)
			}
			return append(x.appendView(b, v), '}', '\n')
		},
		func(line []byte) (bool, error) { return x.read(line, s) })
}

// answer is a schedule of a process.
type answer struct {
	reply
	messages.Schedule
}

// The names of rules, parts and selections, by value.
var (
	Rules = []string{"free", "max_min", "equal_split", "greedy", "madd", "slowest_rate", "exclusive_ports", "proportional", "explicit"}
	Parts = []string{"all", "pilots", "others", "chosen"}
	Onlys = []string{"everyone", "skipped", "served"}
)

// read fills a schedule from a line. It reports whether the line is an answer.
func (x *instance) read(line []byte, s *policies.Schedule) (bool, error) {
	var a answer
	if !a.scan(line) || a.Type != "schedule" || a.N != x.n {
		a = answer{}
		if is, err := x.parse(line, "schedule", "decide", &a, &a.reply); err != nil || !is {
			return false, err
		}
	}
	for i, st := range a.Steps {
		out := policies.Step{Coflows: st.Coflows, Budget: st.Budget, Within: st.Within}
		var err error
		named := func(key, name string, names []string) uint8 {
			at := slices.Index(names, name)
			if name == "" && key != "rule" {
				at = 0
			}
			if at < 0 && err == nil {
				err = fmt.Errorf("schedule: step %d: %s %q: must be %s", i, key, name, words.Or(names))
			}
			return uint8(at)
		}
		out.Rule = policies.Rule(named("rule", st.Rule, Rules))
		out.Part = policies.Part(named("part", st.Part, Parts))
		if out.Only = policies.Only(named("only", st.Only, Onlys)); err != nil {
			return false, err
		}
		for _, r := range st.Rates {
			out.Rates = append(out.Rates, policies.FlowRate{Flow: workloads.FlowID(r.Flow), Rate: r.Rate})
		}
		s.Steps = append(s.Steps, out)
	}
	s.Budgets, s.Queues, s.Watch = append(s.Budgets, a.Budgets...), append(s.Queues, a.Queues...), append(s.Watch, a.Watch...)
	for _, f := range a.Pilots {
		s.Pilots = append(s.Pilots, workloads.FlowID(f))
	}
	s.WatchMost, s.Wake = append(s.WatchMost, a.WatchMost...), a.Wake
	return true, nil
}

// appendView appends the message "decide" but its last brace. Numbers that are 0 are left out of coflows.
func (x *instance) appendView(b []byte, v *policies.CoflowView) []byte {
	b = append(x.begin(b, "decide", v.Cluster), `,"coflows":[`...)
	for i := range v.Coflows {
		b = append(x.appendCoflow(b, &v.Coflows[i]), ',')
	}
	return closed(b)
}

// numbersOfCoflow returns the numbers of a coflow, in the order in which messages have them.
func numbersOfCoflow(c *policies.CoflowState) [19]int64 {
	return [...]int64{
		int64(c.ID), int64(c.Arrival), int64(c.Width), int64(c.Senders), int64(c.Receivers), int64(c.Left), int64(c.Sent),
		int64(c.MostSent), int64(c.Queue), int64(c.Since), int64(c.Finished), int64(c.Median), int64(c.Pilots),
		int64(c.PilotsLeft), int64(c.PilotSent), int64(c.Size), int64(c.Largest), int64(c.Remaining), int64(c.Bound),
	}
}

func (x *instance) appendCoflow(b []byte, c *policies.CoflowState) []byte {
	keys := [...]string{
		`{"id":`, `,"arrival":`, `,"width":`, `,"senders":`, `,"receivers":`, `,"left":`, `,"sent":`, `,"most_sent":`, `,"queue":`,
		`,"since":`, `,"finished":`, `,"median":`, `,"pilots":`, `,"pilots_left":`, `,"pilot_sent":`, `,"size":`, `,"largest":`,
		`,"remaining":`, `,"bound":`,
	}
	for i, n := range numbersOfCoflow(c) {
		if i == 0 || n != 0 {
			b = strconv.AppendInt(append(b, keys[i]...), n, 10)
		}
	}
	b = column(b, `,"links":[`, c.Links, func(l *policies.LinkState) (int64, bool) { return int64(l.Link), true })
	b = column(b, `,"link_flows":[`, c.Links, func(l *policies.LinkState) (int64, bool) { return int64(l.Flows), true })
	if x.p.needs.Has(policies.Sizes) {
		b = column(b, `,"link_remaining":[`, c.Links, func(l *policies.LinkState) (int64, bool) { return int64(l.Remaining), true })
	}
	if c.PilotsLeft > 0 {
		b = column(b, `,"link_pilots":[`, c.Links, func(l *policies.LinkState) (int64, bool) { return int64(l.Pilots), true })
	}
	if x.p.needs.Has(policies.Progress) {
		b = column(b, `,"idle_links":[`, c.Links, func(l *policies.LinkState) (int64, bool) { return int64(l.Link), !l.Begun })
	}
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
