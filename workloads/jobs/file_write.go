package jobs

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"testbed/topo/units"
	"testbed/workloads"
)

// Write writes jobs as a job file, with remarks as comments at its beginning. Equal tasks that
// follow one another are one group. The jobs must be valid, as those of Read, Derive and the
// generators are: see Check.
func Write(to io.Writer, list []Job, remarks ...string) error {
	if err := Check(list, Limits{Jobs: maxNumber, Stages: maxNumber, Tasks: maxNumber, Outputs: maxNumber}); err != nil {
		return fmt.Errorf("write jobs: %w", err)
	}
	w := bufio.NewWriter(to)
	for _, r := range remarks {
		fmt.Fprintf(w, "# %s\n", strings.Join(strings.Fields(r), " "))
	}
	fmt.Fprintf(w, "%s: %d\njobs:\n", keyVersion, fileVersion)
	var next workloads.BlockID
	for i := range list {
		j := &list[i]
		if j.After > 0 {
			fmt.Fprintf(w, "- submit: %v\n  after: %d\n", j.Submit-list[j.After-1].Submit, j.After)
		} else {
			fmt.Fprintf(w, "- submit: %v\n", j.Submit)
		}
		for _, x := range []struct{ key, text string }{{"user", j.User}, {"profile", j.Profile}} {
			if x.text != "" {
				fmt.Fprintf(w, "  %s: %s\n", x.key, quote(x.text))
			}
		}
		if j.Priority != 0 {
			fmt.Fprintf(w, "  priority: %d\n", j.Priority)
		}
		fmt.Fprint(w, "  stages:\n")
		for s := range j.Stages {
			stage := &j.Stages[s]
			fmt.Fprintf(w, "  - kind: %s\n", kindNames[stage.Kind])
			if len(stage.From) > 0 {
				fmt.Fprintf(w, "    from: [%s]\n", strings.Join(texts(stage.From), ", "))
			}
			if stage.Pattern != AllToAll {
				fmt.Fprintf(w, "    pattern: %v\n", stage.Pattern)
			}
			fmt.Fprint(w, "    tasks:\n")
			for at := 0; at < len(stage.Tasks); {
				n := 1
				for at+n < len(stage.Tasks) && j.follows(s, at+n) {
					n++
				}
				fmt.Fprintf(w, "    - {%s}\n", strings.Join(j.groupFields(s, at, n, next), ", "))
				if len(stage.From) == 0 {
					next = max(next, stage.Tasks[at].Input+workloads.BlockID(n))
				}
				at += n
			}
		}
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write jobs: %w", err)
	}
	return nil
}

var kindNames = [TaskKinds]string{Map: "map", Reduce: "reduce"}

func texts(list []int) []string {
	var out []string
	for _, x := range list {
		out = append(out, strconv.Itoa(x))
	}
	return out
}

// quote returns a name as YAML. Without quotes, some names are no text.
func quote(name string) string {
	if slices.Contains([]string{"null", "Null", "NULL"}, name) {
		return strconv.Quote(name)
	}
	return name
}

// follows reports whether a task of a stage and the one before are of one group: equal, and with the next block.
func (j *Job) follows(s, i int) bool {
	stage := &j.Stages[s]
	a, b := &stage.Tasks[i-1], &stage.Tasks[i]
	return a.InputSize == b.InputSize && a.Rate == b.Rate && a.SortRate == b.SortRate && a.Writes == b.Writes && a.Need == b.Need &&
		(len(stage.From) > 0 || b.Input == a.Input+1) &&
		(shared(a.Output, b.Output) || slices.Equal(a.Output, b.Output) || j.patterned(s) && j.outputText(s, i-1) == j.outputText(s, i))
}

// outputText returns the output of a task in a file. Equal parts for the tasks that a pattern selects are a total.
func (j *Job) outputText(s, i int) string {
	out := j.Stages[s].Tasks[i].Output
	if len(out) > 0 && j.patterned(s) {
		var total units.Bytes
		for _, n := range out {
			total += n
		}
		if slices.Equal(out, j.even(s, i, total)) {
			return total.String()
		}
	}
	return "[" + strings.Join(outputTexts(out), ", ") + "]"
}

// groupFields returns the keys and values of n equal tasks, the first of which is task i of a stage. Keys with
// the default value are left out.
func (j *Job) groupFields(s, i, n int, next workloads.BlockID) []string {
	t, reads := &j.Stages[s].Tasks[i], len(j.Stages[s].From) == 0
	var out []string
	add := func(key string, value any) { out = append(out, fmt.Sprintf("%s: %v", key, value)) }
	add("count", n)
	if reads {
		add("input", t.InputSize)
		if t.Input != next {
			add("block", int(t.Input))
		}
	}
	if t.Rate != 0 {
		add("rate", t.Rate)
	}
	if t.SortRate != 0 {
		add("sort_rate", t.SortRate)
	}
	if len(t.Output) > 0 {
		add("output", j.outputText(s, i))
	}
	if t.Writes != 0 {
		add("writes", t.Writes)
	}
	if t.Need.CPU != 0 {
		add("cpu", strconv.FormatFloat(t.Need.CPU, 'f', -1, 64))
	}
	if t.Need.Memory != 0 {
		add("memory", t.Need.Memory)
	}
	return out
}

// outputTexts returns sizes, with a count before equal sizes that follow one another.
func outputTexts(list []units.Bytes) []string {
	var out []string
	for i := 0; i < len(list); {
		n := 1
		for i+n < len(list) && list[i+n] == list[i] {
			n++
		}
		text := list[i].String()
		if n > 1 {
			text = fmt.Sprintf("%d%s%s", n, repeatMark, text)
		}
		out = append(out, text)
		i += n
	}
	return out
}
