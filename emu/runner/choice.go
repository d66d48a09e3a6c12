package runner

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"testbed/emu/scenario"
	"testbed/topo/words"
)

// Choice chooses trials of a scenario; the zero value chooses all.
type Choice struct {
	Arms    []string          // by name; none is all
	Repeats Span              // from 0; zero is all
	Points  map[string]string // values of swept variables; none is all
	// Shard is a part of the trials, from 1 to Shards; 0 is all. All arms of a point and repeat are in one part, so
	// that each part has pairs, and so are all repeats of a point if looks decide their number.
	Shard, Shards int
	only          map[string]bool // directories of trials; nil is all
}

// Span is a range of repeats, From to To - 1.
type Span struct{ From, To int }

// ParseRepeats reads a range of repeats, such as 3 or 3..5, both included.
func ParseRepeats(text string) (Span, error) {
	first, last, ok := strings.Cut(text, "..")
	if !ok {
		last = first
	}
	from, err := strconv.ParseUint(first, 10, 31)
	to, err2 := strconv.ParseUint(last, 10, 31)
	if err != nil || err2 != nil || to < from {
		return Span{}, fmt.Errorf("%q: must be a repeat, counted from 0, or a range such as 3..5", text)
	}
	return Span{int(from), int(to) + 1}, nil
}

// ParseShard reads a part, such as 1/4, of which the first is 1.
func ParseShard(text string) (shard, shards int, err error) {
	first, last, _ := strings.Cut(text, "/")
	i, err := strconv.ParseUint(first, 10, 31)
	n, err2 := strconv.ParseUint(last, 10, 31)
	if err != nil || err2 != nil || i < 1 || i > n {
		return 0, 0, fmt.Errorf("%q: must be I/N with I from 1 to N, such as 1/4", text)
	}
	return int(i), int(n), nil
}

// check returns an error if an experiment does not have what is chosen.
func (c Choice) check(x *experiment) error {
	var names []string
	repeats := 0
	for _, r := range x.runs {
		repeats = max(repeats, r.s.Spec.Repeat.AtMost)
		if r.looks != nil && (len(c.Arms) > 0 || c.Repeats != Span{}) {
			return fmt.Errorf("%s: looks decide the number of repeats, and need all arms and repeats of a point: "+
				"choose with --point or --shard, or write a number of repeats", c)
		}
		for _, a := range r.arms {
			if !slices.Contains(names, a.Name) {
				names = append(names, a.Name)
			}
		}
	}
	for _, name := range c.Arms {
		if !slices.Contains(names, name) {
			return fmt.Errorf("unknown arm %q (available: %s)", name, strings.Join(names, ", "))
		}
	}
	if c.Repeats.To > repeats {
		return fmt.Errorf("no repeat %d: expected 0 to %d", c.Repeats.To-1, repeats-1)
	}
	if _, err := x.s.Choose(c.Points); err != nil {
		return err
	}
	all := 0
	for r := range x.all() {
		all += len(r.trials())
	}
	if len(x.order()) == 0 {
		return fmt.Errorf("none of the %s is chosen: %s", words.Plural(all, "trial", "trials"), c)
	}
	return nil
}

// has reports whether a trial is chosen.
func (c Choice) has(t *trial) bool {
	for _, v := range t.of.point.Values {
		if value, stated := c.Points[v.Name]; stated && value != v.Value {
			return false
		}
	}
	unit := unitOf(t.of.s, t.repeat, t.of.place, t.of.places)
	return (c.only == nil || c.only[t.in()]) && (len(c.Arms) == 0 || slices.Contains(c.Arms, t.Name)) &&
		(c.Repeats == Span{} || t.repeat >= c.Repeats.From && t.repeat < c.Repeats.To) &&
		(c.Shards == 0 || unit%c.Shards == c.Shard-1)
}

// unitOf numbers what one part has whole.
func unitOf(s *scenario.Scenario, repeat, place, places int) int {
	if s.Spec.Repeat.Adaptive() {
		return place
	}
	return repeat*places + place
}

// String returns the flags that choose the trials.
func (c Choice) String() string {
	var out []string
	if len(c.Arms) > 0 {
		out = append(out, "--arm "+strings.Join(c.Arms, ","))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Points)) {
		out = append(out, fmt.Sprintf("--point %s=%s", name, c.Points[name]))
	}
	if c.Repeats != (Span{}) {
		out = append(out, fmt.Sprintf("--repeats %d..%d", c.Repeats.From, c.Repeats.To-1))
	}
	if c.Shards > 0 {
		out = append(out, fmt.Sprintf("--shard %d/%d", c.Shard, c.Shards))
	}
	return strings.Join(out, " ")
}

// Part is a part of a scenario's trials.
type Part struct {
	Shard  string `json:"shard"`  // as Choice takes it, such as 1/4
	Trials int    `json:"trials"` // at most, if looks decide the number of repeats
}

// Shards returns the parts into which the trials of a scenario can be split; a count of 0 stands for the most.
func Shards(s *scenario.Scenario, count int) ([]Part, error) {
	points, trials := s.Points(), map[int]int{} // by unit
	for i, p := range points {
		for repeat := range p.Scenario.Spec.Repeat.AtMost {
			trials[unitOf(p.Scenario, repeat, i, len(points))] += len(p.Scenario.ArmList())
		}
	}
	if count < 0 || count > len(trials) {
		return nil, fmt.Errorf("%d: must be 1 to %d, the number of points and repeats (of points, if looks decide their repeats)",
			count, len(trials))
	}
	count = cmp.Or(count, len(trials))
	out := make([]Part, count)
	for i := range out {
		out[i].Shard = fmt.Sprintf("%d/%d", i+1, count)
	}
	for unit, n := range trials {
		out[unit%count].Trials += n
	}
	return out, nil
}
