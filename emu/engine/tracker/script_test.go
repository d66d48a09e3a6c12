package tracker

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// TestScripts runs the scripts testdata/*.txt; -rewrite replaces their outputs. Each of 2 racks has 2
// hosts, so host 2 is the first of the second rack. The directives are:
//
//	run     starts a tracker with the options of scriptConfig and steps it
//	steps   continues with that tracker
//
// A step is a time and events, separated by ";" (scriptEvent). The output of a step is its commands
// (scriptCommand) or its error. The state of the jobs and slots follows.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txt"), func(t *testing.T) {
			var k *Tracker
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
				if d.Cmd == "run" {
					k = must(New(scriptConfig(t, d)))
				}
				return scriptSteps(k, strings.Split(d.Input, "\n"))
			})
		})
	}
}

// scriptConfig returns the configuration of options: slots=(2,1), computing=1, fetches=2, batch=1,
// slowstart=1, attempts=2, barrier, oob, and keep=5s, in which other attempts of a task may make copies of its output; a
// copy without readers is fetched if there is one. A failed fetch is repeated after 2 s, 4 s and so on.
func scriptConfig(t *testing.T, d *datadriven.TestData) Config {
	sched, keep := fifo(), time.Duration(0)
	c := config(fabric(2, 2), nil)
	c.Penalty, c.Growth = time.Second, 2
	c.Blocks = map[workloads.BlockID][]topo.HostID{}
	for _, arg := range d.CmdArgs {
		n := 0
		if len(arg.Vals) > 0 && arg.Key != "slowstart" && arg.Key != "keep" {
			n = must(strconv.Atoi(arg.Vals[0]))
		}
		switch arg.Key {
		case "slots":
			c.Slots = [2]int{n, must(strconv.Atoi(arg.Vals[1]))}
		case "computing":
			sched.computing = n
		case "fetches":
			c.Fetches = n
		case "batch":
			c.Batch = n
		case "attempts":
			c.Attempts = n
		case "slowstart":
			c.Slowstart = must(strconv.ParseFloat(arg.Vals[0], 64))
		case "keep":
			keep = must(time.ParseDuration(arg.Vals[0]))
		case "barrier":
			c.Barrier = true
		case "oob":
			c.OutOfBand = true
		default:
			d.Fatalf(t, "unknown option %s", arg.Key)
		}
	}
	c.Scheduler = sched
	if keep > 0 {
		c.Scheduler = keeper{sched, keep}
	}
	return c
}

// keeper lets attempts make copies for a time, and fetches copies without readers.
type keeper struct {
	order
	time time.Duration
}

func (k keeper) New() policies.TaskInstance { return k }

func (k keeper) Keep(*policies.TaskView, *policies.TaskJob, int) time.Duration { return k.time }

func (keeper) Source(c *policies.CopyChoice) int {
	if i := slices.IndexFunc(c.Copies, func(x policies.OutputCopy) bool { return x.Readers == 0 }); i >= 0 {
		return i
	}
	if c.Now < c.Until {
		return -1
	}
	return 0
}

func scriptSteps(k *Tracker, steps []string) (out string) {
	for _, text := range steps {
		at, events, _ := strings.Cut(strings.TrimSpace(text), " ")
		var evs []Event
		for text := range strings.SplitSeq(events, ";") {
			text = strings.TrimSpace(text)
			if a, h, ok := strings.Cut(strings.TrimPrefix(text, "copy "), " on "); ok && strings.HasPrefix(text, "copy ") {
				id := scriptAttempt(a + "#0")
				k.cmds, k.now = nil, must(time.ParseDuration(at))
				free := [jobs.TaskKinds]int{1, 1}
				if err := k.backup(id.Task, topo.HostID(must(strconv.Atoi(h))), &free); err != nil {
					out += err.Error() + "\n"
				}
				out += scriptLine(at, k.cmds)
			} else if text != "" {
				evs = append(evs, scriptEvents(k, text)...)
			}
		}
		cmds, err := k.Step(must(time.ParseDuration(at)), evs...)
		if err != nil {
			return out + at + ": " + err.Error() + "\n"
		}
		out += scriptLine(at, cmds)
	}
	var state []string
	for _, j := range k.order {
		for _, st := range j.stages {
			state = append(state, fmt.Sprintf("%d.%d: %d waiting (%d now) %d running %d done", j.ID, st.index, st.count[pending], st.shown, st.count[running], st.count[done]))
		}
	}
	used := ""
	for h, s := range k.slots {
		if s.Used != [2]int{} || s.Lost {
			used += fmt.Sprintf(", host %d runs %d+%d", h, s.Used[0], s.Used[1])
			if s.Lost {
				used += " (lost)"
			}
		}
	}
	if k.NextWake() < Never {
		used += fmt.Sprintf(", wake at %v", k.NextWake())
	}
	if len(state) == 0 {
		state = []string{"no jobs"}
	}
	return out + "= " + strings.Join(state, "; ") + used + "\n"
}

func scriptLine(at string, cmds []Command) string {
	var texts []string
	for _, c := range cmds {
		texts = append(texts, scriptCommand(c))
	}
	if len(texts) == 0 {
		return ""
	}
	return at + ": " + strings.Join(texts, " | ") + "\n"
}

// scriptAttempt parses an attempt: 1.0.2#3 is attempt 3 of task 2 of stage 0 of job 1.
func scriptAttempt(text string) (id jobs.AttemptID) {
	must(fmt.Sscanf(text, "%d.%d.%d#%d", &id.Task.Job, &id.Task.Stage, &id.Task.Index, &id.N))
	return id
}

// scriptEvents parses an event:
//
//	job 1 maps=0,1+2 reduces=2 out=100B writes=1KB   maps with replicas on host 0, and on 1 and 2
//	beat 0 1.0.0#0=0.5 / read, reread, begun, computed, spilled, written, stopped 1.0.0#0
//	done 1.0.0#0             computed and spilled
//	fail 1.0.0#0 why / fetched 1 2 / unfetched 1 why / lost 0 / back 0 [empty]
//	copy 1.0.0 on 2          another attempt of a task, as for a speculative copy
func scriptEvents(k *Tracker, text string) []Event {
	words := strings.Fields(text)
	switch words[0] {
	case "job":
		return []Event{scriptJob(k, words[1:])}
	case "beat":
		ev := Heartbeat{Host: topo.HostID(must(strconv.Atoi(words[1])))}
		for _, w := range words[2:] {
			a, p, _ := strings.Cut(w, "=")
			ev.Progress = append(ev.Progress, Progress{scriptAttempt(a), must(strconv.ParseFloat(p, 64))})
		}
		return []Event{ev}
	case "fetched":
		var evs []Event
		for _, w := range words[1:] {
			evs = append(evs, FetchEnded{FetchID(must(strconv.Atoi(w)))})
		}
		return evs
	case "unfetched":
		return []Event{FetchFailed{FetchID(must(strconv.Atoi(words[1]))), "reset"}}
	case "lost":
		return []Event{HostLost{topo.HostID(must(strconv.Atoi(words[1])))}}
	case "back":
		return []Event{HostBack{topo.HostID(must(strconv.Atoi(words[1]))), len(words) > 2}}
	}
	a := scriptAttempt(words[1])
	switch words[0] {
	case "read":
		return []Event{InputRead{a}}
	case "reread":
		return []Event{ReadFailed{a, "reset"}}
	case "begun":
		return []Event{OutputBegun{a}}
	case "computed":
		return []Event{ComputeDone{a}}
	case "spilled":
		return []Event{OutputSpilled{a}}
	case "written":
		return []Event{OutputWritten{a}}
	case "stopped":
		return []Event{AttemptStopped{a}}
	case "done":
		return []Event{ComputeDone{a}, OutputSpilled{a}}
	case "fail":
		return []Event{AttemptFailed{a, strings.Join(words[2:], " ")}}
	}
	panic("unknown event " + text)
}

func scriptJob(k *Tracker, words []string) Event {
	j := &jobs.Job{ID: jobs.JobID(must(strconv.Atoi(words[0]))), Stages: []jobs.Stage{{Kind: jobs.Map}}}
	var maps []string
	var reduces int
	var pattern jobs.Pattern
	var size, writes units.Bytes
	for _, w := range words[1:] {
		switch key, value, _ := strings.Cut(w, "="); key {
		case "maps":
			maps = strings.Split(value, ",")
		case "reduces":
			reduces = must(strconv.Atoi(value))
		case "pattern":
			pattern = jobs.Pattern(slices.Index(jobs.Patterns(), value))
		case "out":
			size = must(units.ParseBytes(value))
		case "writes":
			writes = must(units.ParseBytes(value))
		}
	}
	for i, hosts := range maps {
		block := workloads.BlockID(int(j.ID)*100 + i)
		m := jobs.Task{Input: block, InputSize: 1000}
		for to := range reduces {
			m.Output = append(m.Output, 0)
			if pattern.Fetches(i, len(maps), to, reduces) {
				m.Output[to] = size
			}
		}
		j.Stages[0].Tasks = append(j.Stages[0].Tasks, m)
		for h := range strings.SplitSeq(hosts, "+") {
			k.cfg.Blocks[block] = append(k.cfg.Blocks[block], topo.HostID(must(strconv.Atoi(h))))
		}
	}
	if reduces > 0 {
		j.Stages = append(j.Stages, jobs.Stage{Kind: jobs.Reduce, From: []int{0}, Pattern: pattern, Tasks: make([]jobs.Task, reduces)})
	}
	last := j.Stages[len(j.Stages)-1]
	for i := range last.Tasks {
		last.Tasks[i].Writes = writes
	}
	return JobSubmitted{j}
}

func scriptName(id jobs.AttemptID) string {
	return fmt.Sprintf("%d.%d.%d#%d", id.Task.Job, id.Task.Stage, id.Task.Index, id.N)
}

func scriptCommand(c Command) string {
	switch c := c.(type) {
	case StartAttempt:
		out := fmt.Sprintf("start %s on %d", scriptName(c.Attempt), c.Host)
		if c.Source >= 0 {
			out += fmt.Sprintf(" from %d", c.Source)
		}
		return out + []string{", node", ", rack", ""}[c.Locality]
	case ReadFrom:
		return fmt.Sprintf("%s reads from %d", scriptName(c.Attempt), c.Source)
	case StartFetch:
		var from []string
		for _, o := range c.Outputs {
			from = append(from, scriptName(o.Attempt))
		}
		return fmt.Sprintf("fetch %d: %s on %d < %d: %s, %v", c.ID, scriptName(c.Attempt), c.Host, c.Source, strings.Join(from, " "), c.Size)
	case StopFetch:
		return fmt.Sprintf("stop fetch %d, %d < %d", c.ID, c.Host, c.Source)
	case InputFetched:
		return fmt.Sprintf("%s on %d has all its input, %v", scriptName(c.Attempt), c.Host, c.Size)
	case Compute:
		return fmt.Sprintf("compute %s on %d", scriptName(c.Attempt), c.Host)
	case WriteOutput:
		return fmt.Sprintf("write %s, %v", scriptName(c.Attempt), c.Size)
	case Commit:
		return fmt.Sprintf("commit %s", scriptName(c.Attempt))
	case Copied:
		return fmt.Sprintf("copy %s", scriptName(c.Attempt))
	case StopAttempt:
		return fmt.Sprintf("stop %s on %d", scriptName(c.Attempt), c.Host)
	case JobDone:
		return fmt.Sprintf("job %d is done", c.Job)
	case JobFailed:
		return fmt.Sprintf("job %d failed: %s", c.Job, c.Why)
	}
	panic(fmt.Sprintf("unknown command %T", c))
}
