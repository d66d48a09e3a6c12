package jobs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"testbed/topo/units"
	"testbed/topo/words"
	"testbed/workloads"
)

// A job file is YAML; docs/job-workloads.md describes every key. The example has a sort of two
// blocks, the last of which is smaller, and a scan:
//
//	testbed-jobs: 1
//	jobs:
//	- submit: 0s
//	  user: alice
//	  profile: sort
//	  stages:
//	  - kind: map
//	    tasks: [{input: 128MB, rate: 8MB/s, output_ratio: 1}, {input: 40MB, rate: 8MB/s, output_ratio: 1}]
//	  - {kind: reduce, from: [0], tasks: 2, rate: 8MB/s, write_ratio: 1}
//	- submit: 2.5s
//	  stages:
//	  - {kind: map, tasks: 10, input: 128MB, rate: 8MB/s, write_ratio: 1/200}
const (
	keyVersion  = "testbed-jobs"
	fileVersion = 1
	repeatMark  = "*" // between a count and a size in a list of outputs
)

// Key describes a key of a job file.
type Key struct {
	Name, Values string
	Default      string // "" if the key is required or has no default
	Doc          string
}

// The keys of the mappings of a job file, in order.
var (
	fileKeys = []Key{
		{keyVersion, strconv.Itoa(fileVersion), "", "version of the format; required, and the first key"},
		{"jobs", "list", "", "the jobs, in any order; required"},
	}
	jobKeys = []Key{
		{"submit", "time", "0s", "submission, since the start of the run; jobs are numbered from 1 in its order, ties in the order of the file"},
		{"user", "name", "none", "owner: pool of a fair scheduler, user of DRF and ShuffleWatcher"},
		{"profile", "name", "none", "program; jobs of one profile have similar ratios of shuffle to input"},
		{"priority", "whole number", "0", "higher is sooner"},
		{"stages", "list", "", "the stages, each after those that it fetches from; required"},
	}
	stageKeys = []Key{
		{"kind", "`map` or `reduce`", "", "kind of slot that a task takes; required"},
		{"from", "list of numbers", "none", "earlier stages, counted from 0, whose outputs each task fetches; required for reduces. Without it, each task reads a block"},
		{"tasks", "number or list", "", "number of equal tasks, described by the keys of a task in the stage; or a list of groups of equal tasks, each with these keys and `count`; required"},
	}
	groupKeys = []Key{{"count", "number", "1", "number of tasks of the group"}}
	taskKeys  = []Key{
		{"input", "size", "", "size of the block that a task reads; required without `from`"},
		{"block", "number", "the next", "block that the first task reads, the next task the next block. By default, blocks are numbered from 0 in the order of the file and each is read once"},
		{"rate", "rate", "immediately", "input that an unloaded slot consumes: of a map while it reads, of a reduce after it has sorted"},
		{"sort_rate", "rate", "immediately", "input that an unloaded slot sorts; only with `from`"},
		{"output", "size or list", "", "what a task sends to the tasks that fetch from its stage: in total, in equal parts, or a list with the size for each of them, in order of stages and tasks. `3*4MB` in the list stands for three sizes. It or `output_ratio` is required if a stage fetches from this one"},
		{"output_ratio", "ratio", "", "`output` in total relative to the input of the task, rounded down"},
		{"writes", "size", "0B", "replicated output that a task writes, without replicas"},
		{"write_ratio", "ratio", "", "`writes` relative to the input of the task, rounded down"},
		{"cpu", "number", "0", "cores that a task needs"},
		{"memory", "size", "0B", "memory that a task needs"},
	}
)

// KeyTable is the keys of one mapping of a job file.
type KeyTable struct {
	In   string
	Keys []Key
}

// Keys returns all keys of job files.
func Keys() []KeyTable {
	return []KeyTable{{"the file", fileKeys}, {"a job", jobKeys}, {"a stage", stageKeys}, {"a group of tasks", groupKeys}, {"a task", taskKeys}}
}

// names returns the names of the keys of a mapping.
func names(tables ...[]Key) (list []string) {
	for _, keys := range tables {
		for _, k := range keys {
			list = append(list, k.Name)
		}
	}
	return list
}

// IsJobFile reports whether the first bytes of a file are those of a job file, of any version:
// the first line that is not blank or a comment has its first key.
func IsJobFile(head []byte) bool {
	for line := range strings.Lines(strings.TrimPrefix(string(head), "\ufeff")) {
		if t := strings.TrimSpace(line); t != "" && t[0] != '#' {
			return strings.HasPrefix(t, keyVersion+":")
		}
	}
	return false
}

// Read reads a job file. It sorts the jobs by submission and numbers them. Errors of the content
// are a *workloads.TraceErrors with all errors; the other errors are those of reading r. name is
// the name of the file in them.
func Read(name string, r io.Reader, l Limits) ([]Job, error) {
	l = l.WithDefaults()
	data, err := io.ReadAll(io.LimitReader(r, int64(l.File)+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	d := &decoder{name: name, usage: usage{limits: l}, sizes: map[workloads.BlockID]units.Bytes{}}
	var list []Job
	if root := d.parse(data); root != nil {
		d.refuse(root, "")
		if d.failed == 0 {
			list = d.file(root)
		}
	}
	if d.failed > 0 {
		slices.SortStableFunc(d.errs, func(a, b workloads.TraceError) int { return cmp.Or(a.Line-b.Line, a.Col-b.Col) })
		all := &workloads.TraceErrors{}
		for _, e := range d.errs {
			all.Add(e)
		}
		all.Total = d.failed
		return nil, all
	}
	slices.SortStableFunc(list, func(a, b Job) int { return cmp.Compare(a.Submit, b.Submit) })
	for i := range list {
		list[i].ID = JobID(i + 1)
	}
	return list, nil
}

// maxErrors is the number of errors of a file that are kept before they are sorted.
const maxErrors = 10_000

// decoder turns a tree of YAML nodes into jobs, and continues after an error.
type decoder struct {
	name   string
	errs   []workloads.TraceError // the first maxErrors
	failed int                    // number of errors
	usage
	full  bool // a limit is exceeded: the rest is checked and dropped
	next  workloads.BlockID
	sizes map[workloads.BlockID]units.Bytes
}

func (d *decoder) fail(n *yaml.Node, path, format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if path != "" {
		text = path + ": " + text
	}
	if d.failed++; d.failed > maxErrors {
		return
	}
	d.errs = append(d.errs, workloads.TraceError{Name: d.name, Line: max(1, n.Line), Col: max(1, n.Column), Text: text})
}

// parse returns the root of the one document of a file, nil after an error.
func (d *decoder) parse(data []byte) *yaml.Node {
	start := &yaml.Node{}
	if int64(len(data)) > int64(d.limits.File) {
		d.fail(start, "", "larger than %v: the limit of a job file", d.limits.File)
		return nil
	}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	n := 0
	for line := range bytes.Lines(data) {
		n++
		at := &yaml.Node{Line: n}
		// The message of the YAML package names neither the tab nor its place.
		if rest := bytes.TrimLeft(line, " "); len(rest) > 0 && rest[0] == '\t' && len(bytes.TrimSpace(rest)) > 0 {
			at.Column = len(line) - len(rest) + 1
			d.fail(at, "", "tab in the indentation: use spaces")
			return nil
		}
		for i := 0; i < len(line); {
			r, size := utf8.DecodeRune(line[i:])
			if r == utf8.RuneError && size == 1 || r < ' ' && r != '\t' && r != '\r' && r != '\n' || r == 0x7f {
				at.Column = utf8.RuneCount(line[:i]) + 1
				d.fail(at, "", "byte %#x: expected UTF-8 text without control characters", line[i])
				return nil
			}
			i += size
		}
	}
	var docs []yaml.Node
	if err := yaml.Load(data, &docs, yaml.WithAllDocuments(), yaml.WithUniqueKeys(false)); err != nil {
		text := err.Error()
		var one *yaml.LoadError
		if errors.As(err, &one) {
			start, text = &yaml.Node{Line: one.Mark.Line, Column: one.Mark.Column}, one.Message
		}
		d.fail(start, "", "not YAML: %s", units.ClipQuoted(strings.Join(strings.Fields(text), " ")))
		return nil
	}
	if len(docs) != 1 {
		d.fail(start, "", "%d documents: expected one with the keys %s", len(docs), strings.Join(names(fileKeys), ", "))
		return nil
	}
	root := &docs[0]
	if root.Kind == yaml.DocumentNode && len(root.Content) == 1 {
		root = root.Content[0]
	}
	return root
}

// refuse reports anchors, aliases and tags. Without aliases, a file cannot expand to more than its
// size.
func (d *decoder) refuse(n *yaml.Node, path string) {
	switch {
	case n.Kind == yaml.AliasNode:
		d.fail(n, path, "alias *%s: not supported in job files: write the value out", units.Clip(n.Value))
	case n.Anchor != "":
		d.fail(n, path, "anchor &%s: not supported in job files: leave it out", units.Clip(n.Anchor))
	case n.Style&yaml.TaggedStyle != 0:
		d.fail(n, path, "tag %s: not supported in job files: leave it out", units.Clip(n.Tag))
	}
	if n.Kind == yaml.AliasNode {
		return
	}
	for i, c := range n.Content {
		at := path
		switch {
		case n.Kind == yaml.SequenceNode:
			at = fmt.Sprintf("%s[%d]", path, i)
		case n.Kind == yaml.MappingNode && i%2 == 1 && n.Content[i-1].Kind == yaml.ScalarNode:
			at = join(path, n.Content[i-1].Value)
		}
		d.refuse(c, at)
	}
}

func join(path, key string) string {
	key = units.Clip(strings.Join(strings.Fields(key), " "))
	if path == "" {
		return key
	}
	return path + "." + key
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

func kindOf(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case isNull(n):
		return "no value"
	}
	return strconv.Quote(units.Clip(n.Value))
}

// mapping is a mapping of known keys.
type mapping struct {
	*decoder
	node   *yaml.Node
	path   string
	values map[string]*yaml.Node
}

// mapping reads a mapping, and reports keys that are unknown, duplicate or have no value.
func (d *decoder) mapping(n *yaml.Node, path string, keys []string) mapping {
	m := mapping{d, n, path, map[string]*yaml.Node{}}
	if n.Kind != yaml.MappingNode {
		d.fail(n, path, "%s: expected a mapping with the keys %s", kindOf(n), strings.Join(keys, ", "))
		return m
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], n.Content[i+1]
		switch {
		case k.Kind != yaml.ScalarNode || isNull(k):
			d.fail(k, path, "%s as a key: expected a name", kindOf(k))
		case !slices.Contains(keys, k.Value):
			hint := ": expected one of " + strings.Join(keys, ", ")
			if best := words.Closest(k.Value, keys); best != "" {
				hint = fmt.Sprintf(" (did you mean %q?)", best)
			}
			d.fail(k, join(path, k.Value), "unknown key%s", hint)
		case m.values[k.Value] != nil:
			d.fail(k, join(path, k.Value), "duplicate key: keep one of them")
		default:
			m.values[k.Value] = v
			if isNull(v) {
				d.fail(v, join(path, k.Value), "no value: expected one, or leave the key out")
			}
		}
	}
	return m
}

// scalar returns the text of a key; ok is false if it is absent or invalid.
func (m mapping) scalar(key, expected string) (text string, n *yaml.Node, ok bool) {
	n = m.values[key]
	if n == nil || isNull(n) {
		return "", n, false
	}
	if n.Kind != yaml.ScalarNode {
		m.fail(n, join(m.path, key), "%s: expected %s", kindOf(n), expected)
		return "", n, false
	}
	return n.Value, n, true
}

func (m mapping) missing(key, expected string) {
	if m.node.Kind == yaml.MappingNode && m.values[key] == nil {
		m.fail(m.node, join(m.path, key), "missing: expected %s", expected)
	}
}

var (
	wholeNumber = regexp.MustCompile(`^-?[0-9]+$`)
	decimal     = regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)
)

func (m mapping) number(key string, least, most int) (int, bool) {
	text, n, ok := m.scalar(key, "a whole number")
	if !ok {
		return 0, false
	}
	return m.whole(n, join(m.path, key), text, least, most)
}

func (d *decoder) whole(n *yaml.Node, path, text string, least, most int) (int, bool) {
	x, err := strconv.Atoi(text)
	if err != nil || !wholeNumber.MatchString(text) || x < least || x > most {
		d.fail(n, path, "%q: expected a whole number, %d to %d", units.Clip(text), least, most)
		return 0, false
	}
	return x, true
}

func (m mapping) size(key string, least units.Bytes) (units.Bytes, bool) {
	text, n, ok := m.scalar(key, `a size such as "128MB"`)
	if !ok {
		return 0, false
	}
	return m.bytes(n, join(m.path, key), text, least)
}

func (d *decoder) bytes(n *yaml.Node, path, text string, least units.Bytes) (units.Bytes, bool) {
	b, err := units.ParseBytes(text)
	switch {
	case strings.HasPrefix(text, "-"):
		d.fail(n, path, "size %q: must be %v to %v, not negative", units.Clip(text), least, maxSize)
	case err != nil:
		d.fail(n, path, "%v", err)
	case b < least || b > maxSize:
		d.fail(n, path, "%v: must be %v to %v", b, least, maxSize)
	default:
		return b, true
	}
	return 0, false
}

func (m mapping) rate(key string) units.Rate {
	text, n, ok := m.scalar(key, `a rate such as "8MB/s"`)
	if !ok {
		return 0
	}
	r, err := units.ParseRate(text)
	if err != nil {
		m.fail(n, join(m.path, key), "%v", err)
	} else if r < 1 || r > maxRate {
		m.fail(n, join(m.path, key), "%v: must be 1bps to %v; leave the key out for immediately", r, maxRate)
	}
	return r
}

func (m mapping) ratio(key string) *workloads.Factor {
	text, n, ok := m.scalar(key, `a quotient such as "1/200" or a decimal`)
	if !ok {
		return nil
	}
	f, err := workloads.ParseFactor(text)
	if err != nil {
		m.fail(n, join(m.path, key), "%v", err)
		return nil
	}
	return &f
}

const nameRule = "expected letters, digits and . _ -, at most 64, first a letter or digit"

var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

func validName(s string) bool { return len(s) <= maxName && namePattern.MatchString(s) }

func (m mapping) text(key string) string {
	text, n, ok := m.scalar(key, "a name")
	if ok && !validName(text) {
		m.fail(n, join(m.path, key), "%q: %s", units.Clip(text), nameRule)
	}
	return text
}

// list returns the elements of a key that is a list.
func (m mapping) list(key, expected string) []*yaml.Node {
	n := m.values[key]
	if n == nil || isNull(n) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		m.fail(n, join(m.path, key), "%s: expected a list of %s", kindOf(n), expected)
		return nil
	}
	if len(n.Content) == 0 {
		m.fail(n, join(m.path, key), "empty: expected %s", expected)
	}
	return n.Content
}

func (d *decoder) file(root *yaml.Node) []Job {
	m := d.mapping(root, "", names(fileKeys))
	m.missing(keyVersion, fmt.Sprintf("the version of the format, %d", fileVersion))
	if v, ok := m.number(keyVersion, 1, maxNumber); ok && v != fileVersion {
		d.errs, d.failed = nil, 0 // the meaning of the other keys is unknown
		d.fail(m.values[keyVersion], keyVersion, "%d: this testbed reads version %d", v, fileVersion)
		return nil
	}
	m.missing("jobs", "a list of jobs")
	var list []Job
	for i, n := range m.list("jobs", "jobs") {
		if i >= d.limits.Jobs {
			d.fail(n, "jobs", "more than %d jobs: the limit of a workload; the rest is not read", d.limits.Jobs)
			break
		}
		if j, ok := d.job(n, fmt.Sprintf("jobs[%d]", i)); ok {
			list = append(list, j)
		}
	}
	return list
}

// stageLines are a stage before its tasks are built.
type stageLines struct {
	mapping
	kind   TaskKind
	from   []int
	fromAt []int // index of each in the list of the file
	groups []group
	tasks  int
}

// group is equal tasks.
type group struct {
	mapping
	count           int
	task            Task              // without Input and Output
	block           int               // of the first task; -1 for the next number
	output          []run             // nil if it is absent; a single size if total is set
	total           bool              // output is the total of a task
	outputs, writes *workloads.Factor // ratios to the input; nil for none
}

// run is a number of equal sizes.
type run struct {
	n    int
	size units.Bytes
}

func (d *decoder) job(n *yaml.Node, path string) (j Job, ok bool) {
	before := d.failed
	m := d.mapping(n, path, names(jobKeys))
	if text, n, ok := m.scalar("submit", `a time such as "1.5s"`); ok {
		at, err := time.ParseDuration(text)
		if err != nil || at < 0 || at > maxTime {
			d.fail(n, join(path, "submit"), "%q: expected a time such as \"1.5s\", 0s to %v", units.Clip(text), maxTime)
		}
		j.Submit = at
	}
	j.User, j.Profile = m.text("user"), m.text("profile")
	j.Priority, _ = m.number("priority", -maxNumber, maxNumber)
	m.missing("stages", "a list of stages")
	nodes := m.list("stages", "stages")
	if len(nodes) > d.limits.Stages {
		d.fail(nodes[d.limits.Stages], join(path, "stages"), "%d stages: must be at most %d", len(nodes), d.limits.Stages)
		return j, false
	}
	stages := make([]stageLines, len(nodes))
	for s, n := range nodes {
		stages[s] = d.stage(n, fmt.Sprintf("%s.stages[%d]", path, s), len(nodes))
	}
	for s := range stages {
		d.order(stages, s)
	}
	for s := range stages {
		d.tasks += stages[s].tasks
		if !d.full && d.tasks > d.limits.Tasks {
			d.fail(stages[s].node, join(stages[s].path, "tasks"), "more than %d tasks up to here: the limit of a workload", d.limits.Tasks)
			d.full = true
		}
	}
	if d.failed > before || d.full {
		return j, false
	}
	// Outputs depend on the number of tasks of later stages, and ratios on the outputs of earlier
	// ones.
	for s := range stages {
		j.Stages = append(j.Stages, Stage{Kind: stages[s].kind, From: stages[s].from, Tasks: make([]Task, stages[s].tasks)})
	}
	for s := range stages {
		if d.build(&j, s, &stages[s]); d.full || d.failed > before {
			return j, false
		}
	}
	return j, true
}

// stage reads a stage of a job that has n of them.
func (d *decoder) stage(node *yaml.Node, path string, n int) stageLines {
	s := stageLines{mapping: d.mapping(node, path, names(stageKeys, taskKeys))}
	s.missing("kind", "map or reduce")
	if text, n, ok := s.scalar("kind", "map or reduce"); ok {
		switch text {
		case kindNames[Map]:
		case kindNames[Reduce]:
			s.kind = Reduce
			s.missing("from", "the stages that the reduces fetch from, such as [0]")
		default:
			d.fail(n, join(path, "kind"), "%q: expected map or reduce", units.Clip(text))
		}
	}
	for i, c := range s.list("from", "one or more numbers of stages, counted from 0") {
		at := fmt.Sprintf("%s.from[%d]", path, i)
		if c.Kind != yaml.ScalarNode {
			d.fail(c, at, "%s: expected the number of a stage", kindOf(c))
			continue
		}
		if x, ok := d.whole(c, at, c.Value, 0, n-1); ok {
			if slices.Contains(s.from, x) {
				d.fail(c, at, "stage %d again: expected each stage once", x)
				continue
			}
			s.from, s.fromAt = append(s.from, x), append(s.fromAt, i)
		}
	}
	s.missing("tasks", "the number of tasks, or a list of groups of equal tasks")
	tasks := s.values["tasks"]
	if tasks == nil {
		return s
	}
	if tasks.Kind == yaml.SequenceNode {
		for _, key := range names(taskKeys) {
			if v := s.values[key]; v != nil {
				d.fail(v, join(path, key), "the tasks are a list: expected this key in its groups")
			}
		}
		for i, c := range s.list("tasks", "groups of tasks") {
			g := group{mapping: d.mapping(c, fmt.Sprintf("%s.tasks[%d]", path, i), names(groupKeys, taskKeys)), count: 1}
			if x, ok := g.number("count", 1, maxNumber); ok {
				g.count = x
			}
			s.groups = append(s.groups, g)
		}
	} else if x, ok := s.number("tasks", 1, maxNumber); ok {
		s.groups = []group{{mapping: s.mapping, count: x}}
	}
	for i := range s.groups {
		s.tasks = min(s.tasks+s.groups[i].count, maxNumber)
		s.groups[i].read(s.kind == Reduce || s.values["from"] != nil)
	}
	return s
}

// read reads the keys of tasks.
func (g *group) read(fetches bool) {
	t := &g.task
	if g.block = -1; fetches {
		for _, key := range []string{"input", "block"} {
			if v := g.values[key]; v != nil {
				g.fail(v, join(g.path, key), "a task that fetches from other stages reads no block: leave it out")
			}
		}
	} else {
		g.missing("input", `the size of the block that a task reads, such as "128MB"`)
		t.InputSize, _ = g.size("input", 1)
		if x, ok := g.number("block", 0, maxNumber-g.count); ok {
			g.block = x
		}
		if v := g.values["sort_rate"]; v != nil {
			g.fail(v, join(g.path, "sort_rate"), "only a task that fetches from other stages sorts: leave it out")
		}
	}
	for _, x := range [][2]string{{"output", "output_ratio"}, {"writes", "write_ratio"}} {
		if v := g.values[x[1]]; v != nil && g.values[x[0]] != nil {
			g.fail(v, join(g.path, x[1]), "mutually exclusive with %s: keep one of them", x[0])
		}
	}
	t.Rate, t.SortRate = g.rate("rate"), g.rate("sort_rate")
	t.Writes, _ = g.size("writes", 0)
	t.Need.Memory, _ = g.size("memory", 0)
	if text, n, ok := g.scalar("cpu", "a number of cores"); ok {
		x, err := strconv.ParseFloat(text, 64)
		if err != nil || !decimal.MatchString(text) || x > maxCPU {
			g.fail(n, join(g.path, "cpu"), "%q: expected a number of cores, 0 to %d", units.Clip(text), maxCPU)
		}
		t.Need.CPU = x
	}
	g.outputs, g.writes = g.ratio("output_ratio"), g.ratio("write_ratio")
	path := join(g.path, "output")
	n := g.values["output"]
	switch {
	case n == nil || isNull(n):
	case n.Kind == yaml.ScalarNode:
		if size, ok := g.bytes(n, path, n.Value, 0); ok {
			g.output, g.total = []run{{1, size}}, true
		}
	default:
		for i, c := range g.list("output", `sizes such as "4MB" or "3*4MB"`) {
			at := fmt.Sprintf("%s[%d]", path, i)
			if c.Kind != yaml.ScalarNode {
				g.fail(c, at, "%s: expected a size such as \"4MB\" or \"3*4MB\"", kindOf(c))
				continue
			}
			r := run{n: 1}
			text := c.Value
			if count, size, ok := strings.Cut(text, repeatMark); ok {
				if r.n, ok = g.whole(c, at, count, 1, maxNumber); !ok {
					continue
				}
				text = size
			}
			r.size, _ = g.bytes(c, at, text, 0)
			g.output = append(g.output, r)
		}
	}
}

// order reports stages that fetch from themselves or from later ones.
func (d *decoder) order(stages []stageLines, s int) {
	for i, from := range stages[s].from {
		if from < s {
			continue
		}
		at := stages[s].fromAt[i]
		n, path := stages[s].values["from"].Content[at], fmt.Sprintf("%s.from[%d]", stages[s].path, at)
		if from == s {
			d.fail(n, path, "cycle: stage %d fetches from itself: expected an earlier stage", s)
		} else if way := route(stages, from, s); way != nil {
			d.fail(n, path, "cycle of stages %s: expected an earlier stage", strings.Join(texts(append([]int{s}, way...)), " → "))
		} else {
			d.fail(n, path, "stage %d is later: put it before stage %d, since a stage fetches from earlier ones only", from, s)
		}
	}
}

// route returns the stages from one to another, following what they fetch from; nil if there is
// no way.
func route(stages []stageLines, from, to int) []int {
	seen := make([]bool, len(stages))
	var walk func(at int) []int
	walk = func(at int) []int {
		if at == to {
			return []int{at}
		}
		if seen[at] {
			return nil
		}
		seen[at] = true
		for _, next := range stages[at].from {
			if rest := walk(next); rest != nil {
				return append([]int{at}, rest...)
			}
		}
		return nil
	}
	return walk(from)
}

// build fills the tasks of a stage. The stages before it are complete.
func (d *decoder) build(j *Job, s int, lines *stageLines) {
	stage := &j.Stages[s]
	consumers := j.consumers(s)
	fetched := j.Fetched(s)
	fetches := len(stage.From) > 0
	made := 0 // outputs
	at := 0
	for i := range lines.groups {
		g := &lines.groups[i]
		tasks, in := stage.Tasks[at:at+g.count], fetched[at:at+g.count]
		at += g.count
		if !fetches {
			d.blocks(g, tasks)
		}
		if !g.fits(consumers) {
			continue
		}
		t := g.task
		for i := range tasks {
			t.Input = tasks[i].Input
			size := t.InputSize
			if fetches {
				size = in[i]
			}
			// Tasks with equal input share their output.
			equal := i > 0 && (!fetches || in[i] == in[i-1])
			if consumers > 0 && !equal && (i == 0 || g.outputs != nil) {
				if made += consumers; d.outputs+made > d.limits.Outputs {
					d.fail(g.node, g.path, "more than %d outputs of tasks up to here: the limit of a workload", d.limits.Outputs)
					d.full = true
					return
				}
				var ok bool
				if t.Output, ok = g.outputOf(size, consumers); !ok {
					break
				}
			}
			if g.writes != nil && !equal {
				var ok bool
				if t.Writes, ok = g.product(size, g.writes, "write_ratio"); !ok {
					break
				}
			}
			tasks[i] = t
		}
	}
	d.tasks -= len(stage.Tasks) // which job has counted
	d.usage.stage(stage)
	if d.volume > maxTotal {
		d.fail(lines.node, lines.path, "more than %v up to here: the limit of a workload", maxTotal)
		d.full = true
	}
}

// fits reports whether the output of a group is given exactly if there are tasks that fetch it.
func (g *group) fits(consumers int) bool {
	if consumers == 0 {
		for _, key := range []string{"output", "output_ratio"} {
			if v := g.values[key]; v != nil {
				g.fail(v, join(g.path, key), "no stage fetches from this one: expected writes or write_ratio, or a stage with it in from")
				return false
			}
		}
		return true
	}
	if g.outputs == nil && g.output == nil {
		g.missing("output", fmt.Sprintf("it or output_ratio, since %s from this stage", words.Plural(consumers, "task fetches", "tasks fetch")))
		return false
	}
	n := 0
	for _, r := range g.output {
		n = min(n+r.n, maxNumber)
	}
	if g.outputs == nil && !g.total && n != consumers {
		g.fail(g.values["output"], join(g.path, "output"), "%s: expected %d, one for each task that fetches from this stage", words.Plural(n, "size", "sizes"), consumers)
		return false
	}
	return true
}

// outputOf returns the outputs of a task that reads or fetches a size.
func (g *group) outputOf(size units.Bytes, consumers int) ([]units.Bytes, bool) {
	if g.outputs != nil {
		n, ok := g.product(size, g.outputs, "output_ratio")
		return splitEven(n, consumers), ok
	}
	if g.total {
		return splitEven(g.output[0].size, consumers), true
	}
	out := make([]units.Bytes, 0, consumers)
	for _, r := range g.output {
		for range r.n {
			out = append(out, r.size)
		}
	}
	return out, true
}

// blocks numbers the blocks that tasks read.
func (d *decoder) blocks(g *group, tasks []Task) {
	first := d.next
	if g.block >= 0 {
		first = workloads.BlockID(g.block)
	}
	if int(first)+len(tasks) > maxNumber {
		d.fail(g.node, join(g.path, "block"), "block %d: must be at most %d", int(first)+len(tasks), maxNumber)
		return
	}
	d.next = max(d.next, first+workloads.BlockID(len(tasks)))
	for i := range tasks {
		id := first + workloads.BlockID(i)
		tasks[i].Input = id
		if size, known := d.sizes[id]; known && size != g.task.InputSize {
			d.fail(g.node, join(g.path, "input"), "block %d of %v: an earlier task reads %v of it", id, g.task.InputSize, size)
			return
		}
		d.sizes[id] = g.task.InputSize
	}
}

// product returns a size times a ratio, rounded down.
func (g *group) product(size units.Bytes, by *workloads.Factor, key string) (units.Bytes, bool) {
	n, _, ok := mulDiv(int64(size), by.Num, by.Den)
	if !ok || units.Bytes(n) > maxSize {
		g.fail(g.values[key], join(g.path, key), "%v times %v: must be at most %v", size, by, maxSize)
		return 0, false
	}
	return units.Bytes(n), true
}
