package jobs

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"testbed/topo/magic"
	"testbed/topo/units"
	"testbed/topo/words"
	"testbed/topo/yamltree"
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
		{"after", "number", "none", "an earlier job of the file, counted from 1, as of a user who waits for it: this one is submitted the time `submit` after its end"},
		{"user", "name", "none", "owner: pool of a fair scheduler, user of DRF and ShuffleWatcher"},
		{"profile", "name", "none", "program; jobs of one profile have similar ratios of shuffle to input"},
		{"priority", "whole number", "0", "higher is sooner"},
		{"stages", "list", "", "the stages, each after those that it fetches from; required"},
	}
	stageKeys = []Key{
		{"kind", "`map` or `reduce`", "", "kind of slot that a task takes; required"},
		{"from", "list of numbers", "none", "earlier stages, counted from 0, whose outputs each task fetches; required for reduces. Without it, each task reads a block"},
		{"pattern", words.Or(quoted(Patterns())), "all-to-all", "which tasks of these stages each task fetches from: all; tasks of its own, next to each other, so that each output is fetched once; or the one with its index, of equally many"},
		{"tasks", "number or list", "", "number of equal tasks, described by the keys of a task in the stage; or a list of groups of equal tasks, each with these keys and `count`; required"},
	}
	groupKeys = []Key{{"count", "number", "1", "number of tasks of the group"}}
	taskKeys  = []Key{
		{"input", "size", "", "size of the block that a task reads; required without `from`"},
		{"block", "number", "the next", "block that the first task reads, the next task the next block. By default, blocks are numbered from 0 in the order of the file and each is read once"},
		{"rate", "rate", "immediately", "input that an unloaded slot consumes: of a map while it reads, of a reduce after it has sorted"},
		{"sort_rate", "rate", "immediately", "input that an unloaded slot sorts; only with `from`"},
		{"output", "size or list", "", "what a task sends to the tasks that fetch from its stage: in total, in equal parts, or a list with the size for each task of these stages, in order, which is 0B for those that a `pattern` leaves out. `3*4MB` in the list stands for three sizes. It or `output_ratio` is required if a stage fetches from this one"},
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

// quoted returns names as code.
func quoted(names []string) (out []string) {
	for _, n := range names {
		out = append(out, "`"+n+"`")
	}
	return out
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
	for line := range strings.Lines(string(head)) {
		t := strings.TrimLeft(line, "{\"' \t\r\n") // JSON is YAML
		if t != "" && t[0] != '#' {
			return strings.HasPrefix(t, keyVersion)
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
	if data, err = magic.Plain(data); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	d := &decoder{name: name, usage: usage{limits: l}, sizes: map[workloads.BlockID]units.Bytes{}}
	var list []Job
	if root := d.parse(data); root != nil {
		yamltree.Refuse(root, "", "job files", "", d.fail)
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
	Order(list)
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
	return yamltree.Parse(data, "job file", names(fileKeys), d.fail)
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
	return mapping{d, n, path, yamltree.Mapping(n, path, keys, d.fail)}
}

// scalar returns the text of a key; ok is false if it is absent or invalid.
func (m mapping) scalar(key, expected string) (text string, n *yaml.Node, ok bool) {
	n = m.values[key]
	if n == nil || yamltree.IsNull(n) {
		return "", n, false
	}
	if n.Kind != yaml.ScalarNode {
		m.fail(n, yamltree.Join(m.path, key), "%s: expected %s", yamltree.Describe(n), expected)
		return "", n, false
	}
	return n.Value, n, true
}

func (m mapping) missing(key, expected string) {
	if m.node.Kind == yaml.MappingNode && m.values[key] == nil {
		m.fail(m.node, yamltree.Join(m.path, key), "missing: expected %s", expected)
	}
}

func (m mapping) number(key string, least, most int) (int, bool) {
	text, n, ok := m.scalar(key, "a whole number")
	if !ok {
		return 0, false
	}
	return m.whole(n, yamltree.Join(m.path, key), text, least, most)
}

func (d *decoder) whole(n *yaml.Node, path, text string, least, most int) (int, bool) {
	x, err := strconv.Atoi(text)
	if err != nil || !yamltree.WholeNumber.MatchString(text) || x < least || x > most {
		d.fail(n, path, "%q: expected a whole number, %d to %d%s", units.Clip(text), least, most, yamltree.LeadingZero(text))
		return 0, false
	}
	return x, true
}

func (m mapping) size(key string, least units.Bytes) (units.Bytes, bool) {
	text, n, ok := m.scalar(key, `a size such as "128MB"`)
	if !ok {
		return 0, false
	}
	return m.bytes(n, yamltree.Join(m.path, key), text, least)
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
		m.fail(n, yamltree.Join(m.path, key), "%v", err)
	} else if r < 1 || r > maxRate {
		m.fail(n, yamltree.Join(m.path, key), "%v: must be 1bps to %v; leave the key out for immediately", r, maxRate)
	}
	return r
}

func (m mapping) ratio(key string) *workloads.Factor {
	text, n, ok := m.scalar(key, `a quotient such as "1/200" or a decimal`)
	if !ok {
		return nil
	}
	f, err := workloads.ParseFactor(text)
	if zero := yamltree.LeadingZero(text); zero != "" {
		err = fmt.Errorf("%q: expected a number%s", units.Clip(text), zero)
	}
	if err != nil {
		m.fail(n, yamltree.Join(m.path, key), "%v", err)
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
		m.fail(n, yamltree.Join(m.path, key), "%q: %s", units.Clip(text), nameRule)
	}
	return text
}

// list returns the elements of a key that is a list.
func (m mapping) list(key, expected string) []*yaml.Node {
	n := m.values[key]
	if n == nil || yamltree.IsNull(n) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		m.fail(n, yamltree.Join(m.path, key), "%s: expected a list of %s", yamltree.Describe(n), expected)
		return nil
	}
	if len(n.Content) == 0 {
		m.fail(n, yamltree.Join(m.path, key), "empty: expected %s", expected)
	}
	return n.Content
}
