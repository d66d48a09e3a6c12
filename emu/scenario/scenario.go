// Package scenario reads scenario files: one YAML file that states a fabric, a
// workload and the policies to compare under it. Reading is strict and tells all
// mistakes at once, each with its place, the key, what is wrong and what to do.
//
// A scenario is a value: the same file, variables and traces give the same
// workload on every machine. Luck depends on the seed and the repeat alone, so
// all arms of an experiment meet the same.
//
// The package runs nothing, and does not know which policies there are: whoever
// loads a scenario hands it a check of their names and parameters.
package scenario

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"testbed/topo"
	"testbed/workloads"
)

// Options are what a scenario file does not say itself.
type Options struct {
	// Set overrides variables by name. A name that the file does not declare or
	// does not use is a mistake.
	Set map[string]string
	// CheckPolicy tells what is wrong with a policy of the role "coflow" or
	// "placement"; nil accepts every one. Params holds int, float64, bool and
	// string, or []any and map[string]any of them. Of joined errors each is told
	// by itself, and one about a parameter, as in "alpha: …", "…: alpha: …" or
	// "… parameter "alpha" …", at that parameter.
	CheckPolicy func(role, name string, params map[string]any) error
	// ScalePolicy is the parameters of a policy in a scenario whose rates and sizes
	// are divided by a factor, for Scaled; nil leaves parameters as they are.
	ScalePolicy func(role, name string, params map[string]any, by workloads.Factor) (map[string]any, error)
	// Open opens a trace; nil is os.Open.
	Open func(name string) (fs.File, error)
}

// Scenario is a scenario that was read and found good.
type Scenario struct {
	// Spec is the file with variables replaced and defaults filled in. It must
	// not be changed.
	Spec   Spec
	source []byte
	traces []loadedTrace // by index of Spec.Workload; of other items empty
	rate   workloads.Factor
}

// loadedTrace is a trace that an item of the workload replays, or the workload file
// that it takes.
type loadedTrace struct {
	*workloads.Trace
	work    *workloads.WorkloadFile
	remarks []string // what of the file the trace does not hold
	file    File
	sum     string // SHA-256 of the file, in hex
}

// held tells whether the item has a file.
func (t loadedTrace) held() bool { return t.Trace != nil || t.work != nil }

// path is that of an item's file, to be read or changed; nil where it has none.
func (i *Item) path() *string {
	switch {
	case i.Trace != nil:
		return &i.Trace.Path
	case i.File != nil:
		return &i.File.Path
	}
	return nil
}

// withPaths is the scenario with other paths of the files of its items.
func (s *Scenario) withPaths(path func(loadedTrace) string) *Scenario {
	copied := *s
	copied.Spec.Workload = make([]Item, len(s.Spec.Workload))
	for i, item := range s.Spec.Workload {
		switch {
		case item.Trace != nil:
			trace := *item.Trace
			item.Trace = &trace
		case item.File != nil:
			file := *item.File
			item.File = &file
		}
		if p := item.path(); p != nil {
			*p = path(s.traces[i])
		}
		copied.Spec.Workload[i] = item
	}
	return &copied
}

// File is one file of a scenario.
type File struct {
	Name string // relative, with slashes
	Data []byte
}

// maxFile is the largest scenario file, in bytes.
const maxFile = 1 << 20

// Load reads the scenario file at path. The error is an *Errors with all
// mistakes, or that of reading the file.
func Load(path string, o Options) (*Scenario, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read scenario: %w", err)
	}
	defer f.Close() // only read from: closing has nothing to lose
	data, err := readAll(f, maxFile)
	if err != nil {
		return nil, fmt.Errorf("read scenario: %s: %w", path, err)
	}
	return Parse(path, data, o)
}

// readAll reads a regular file of at most so many bytes.
func readAll(f fs.File, most int64) ([]byte, error) {
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("not a regular file")
	}
	data, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("larger than %d bytes", most)
	}
	return data, nil
}

// Parse reads a scenario from data. name stands for the file in errors, and
// paths of traces are relative to the directory it is in.
func Parse(name string, data []byte, o Options) (*Scenario, error) {
	d := &decoder{problems: problems{file: name}, at: map[string]*yaml.Node{}, bad: map[string]bool{}, checkPolicy: o.CheckPolicy}
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	root := d.parse(data)
	if root == nil {
		return nil, d.err()
	}
	s := &Scenario{}
	sub := &substituter{
		decoder: d, set: o.Set, used: map[string]bool{}, isSet: map[*yaml.Node]bool{},
		text: string(data), starts: lineStarts(string(data)), edits: map[*yaml.Node]*edit{},
	}
	d.refuse(root, "")
	sub.readVars(root)
	sub.substitute(root, "")
	sub.unused(root)
	d.at[""] = root
	d.mapping(root, "", reflect.ValueOf(&s.Spec).Elem())
	s.Spec.Vars = sub.vars
	c := checker{decoder: d, spec: &s.Spec}
	s.rate = c.scaleRates()
	c.check()
	s.traces = make([]loadedTrace, len(s.Spec.Workload))
	for i, item := range s.Spec.Workload {
		if p := item.path(); p != nil {
			s.traces[i] = s.readTrace(sub, i, *p, item.File != nil, o)
		}
	}
	if len(d.all) == 0 {
		c.workload(s)
	}
	if err := d.err(); err != nil {
		return nil, err
	}
	s.source = sub.edited()
	return s, nil
}

// parse reads the one document of a file.
func (d *decoder) parse(data []byte) *yaml.Node {
	start := &yaml.Node{Line: 1, Column: 1}
	if len(data) > maxFile {
		d.fail(start, "", "larger than %d bytes: want a scenario file", maxFile)
		return nil
	}
	for n, line := range bytes.Split(data, []byte("\n")) {
		// Where it matters, YAML's own message names neither tabs nor the place.
		at := &yaml.Node{Line: n + 1}
		if rest := bytes.TrimLeft(line, " "); len(rest) > 0 && rest[0] == '\t' && len(bytes.TrimSpace(rest)) > 0 {
			at.Column = len(line) - len(rest) + 1
			d.fail(at, "", "tab in the indentation: want spaces")
			return nil
		}
		for i := 0; i < len(line); {
			r, size := utf8.DecodeRune(line[i:])
			if r == utf8.RuneError && size == 1 || r < ' ' && r != '\t' && r != '\r' || r == 0x7f {
				at.Column = utf8.RuneCount(line[:i]) + 1
				d.fail(at, "", "byte %#x: want text in UTF-8, without control characters", line[i])
				return nil
			}
			i += size
		}
	}
	var docs []yaml.Node
	err := yaml.Load(data, &docs, yaml.WithAllDocuments(), yaml.WithUniqueKeys(false))
	if err != nil {
		at, text := start, err.Error()
		var one *yaml.LoadError
		if errors.As(err, &one) {
			at = &yaml.Node{Line: one.Mark.Line, Column: one.Mark.Column}
			text = one.Message
			if one.ContextMsg != "" && one.ContextMark.Line > 0 {
				text += fmt.Sprintf(" %s that starts at %d:%d", one.ContextMsg, one.ContextMark.Line, one.ContextMark.Column)
			}
		}
		d.fail(at, "", "not YAML: %s", text)
		return nil
	}
	if len(docs) == 0 {
		d.fail(start, "", "empty file: want a scenario with the keys %s", strings.Join(keysOf(fieldsOf(reflect.TypeFor[Spec]())), ", "))
		return nil
	}
	if len(docs) > 1 {
		d.fail(&docs[1], "", "another document: want one scenario a file")
		return nil
	}
	root := &docs[0]
	if root.Kind == yaml.DocumentNode && len(root.Content) == 1 {
		root = root.Content[0]
	}
	return root
}

// readTrace reads the trace or workload file of an item of the workload and points
// the edited text at where Files puts it.
func (s *Scenario) readTrace(sub *substituter, i int, name string, work bool, o Options) loadedTrace {
	what := "coflow trace"
	if work {
		what = "workload file"
	}
	at := fmt.Sprintf("workload[%d].path", i)
	n := sub.at[at]
	if name == "" || !sub.sound(at, "limits.trace") || n == nil {
		return loadedTrace{}
	}
	file := filepath.FromSlash(name)
	if !filepath.IsAbs(file) && !sub.isSet[n] {
		file = filepath.Join(filepath.Dir(sub.file), file)
	}
	open := o.Open
	if open == nil {
		open = func(name string) (fs.File, error) { return os.Open(name) }
	}
	f, err := open(file)
	if err != nil {
		// The system's own words, without the operation and the path again.
		if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
			err = pathErr.Err
		}
		sub.fail(n, at, "%s: %v: want a %s; paths are relative to the scenario file", clip(file), err, what)
		return loadedTrace{}
	}
	defer f.Close() // only read from: closing has nothing to lose
	data, err := readAll(f, int64(s.Spec.Limits.Trace))
	if err != nil {
		sub.fail(n, at, "%s: %v: want a %s of at most %v, or a larger limits.trace", clip(file), err, strings.TrimPrefix(what, "coflow "), s.Spec.Limits.Trace)
		return loadedTrace{}
	}
	var t loadedTrace
	format := workloads.TraceFormat("workload")
	switch isWork := workloads.IsWorkload(data); {
	case work:
		t.work, err = workloads.ReadWorkload(file, bytes.NewReader(data))
	case isWork:
		sub.fail(n, at, "%s: a workload file: want a trace here, or kind: workload", clip(file))
		return loadedTrace{}
	default:
		t.Trace, format, t.remarks, err = workloads.ReadTrace(file, bytes.NewReader(data), "")
	}
	if err != nil {
		var bad *workloads.TraceErrors
		if !errors.As(err, &bad) {
			sub.fail(n, at, "%v", err)
			return loadedTrace{}
		}
		for _, e := range bad.First {
			sub.all = append(sub.all, Problem{File: e.Name, Line: e.Line, Col: e.Col, Text: e.Text})
		}
		more := ""
		if bad.Total > len(bad.First) {
			more = fmt.Sprintf(", the first %d of them below", len(bad.First))
		}
		sub.fail(n, at, "%s: %d bad lines%s: want a %s in the %s format", clip(file), bad.Total, more, strings.TrimSuffix(strings.TrimPrefix(what, "coflow "), " file"), format)
		return loadedTrace{}
	}
	t.file = File{Name: s.traceName(filepath.Base(file)), Data: data}
	sum := sha256.Sum256(data)
	t.sum = hex.EncodeToString(sum[:])
	if e, ok := sub.edits[n]; ok {
		e.text = render(t.file.Name, true)
	} else if start, end, ok := sub.span(n); ok {
		sub.edits[n] = &edit{start, end, render(t.file.Name, true)}
	} else {
		sub.fail(n, at, "path over several lines or with escapes: write it on one line")
	}
	return t
}

// traceName is where Files puts a trace, different from where it puts others.
func (s *Scenario) traceName(base string) string {
	for i := 0; ; i++ {
		name := path.Join("traces", base)
		if i > 0 {
			name = path.Join("traces", fmt.Sprintf("%d-%s", i, base))
		}
		taken := false
		for _, t := range s.traces {
			taken = taken || t.held() && t.file.Name == name
		}
		if !taken {
			return name
		}
	}
}

// Source is the scenario file as it was read, but for the values that contain
// variables, which are replaced, and the paths of traces and workload files, which
// are those of Files. Loading it needs no --set and gives the same scenario.
func (s *Scenario) Source() []byte { return bytes.Clone(s.source) }

// Files are what to keep of a scenario to be able to load it again:
// scenario.yaml, which is Source, and the traces and workload files it names.
func (s *Scenario) Files() []File {
	files := []File{{Name: "scenario.yaml", Data: s.Source()}}
	for _, t := range s.traces {
		if t.held() {
			files = append(files, t.file)
		}
	}
	return files
}

// Resolved is the scenario as YAML with variables replaced and every default
// written out.
func (s *Scenario) Resolved() ([]byte, error) {
	spec := s.Spec
	spec.Vars = nil
	out, err := yaml.Dump(spec, yaml.WithLineWidth(-1))
	if err != nil {
		return nil, fmt.Errorf("write scenario %s: %w", spec.Name, err)
	}
	return out, nil
}

// Fingerprint is a SHA-256, in hex, of what the scenario says: its resolved
// values and the bytes of its traces, wherever they lie. Two scenarios that
// differ in comments, order of keys or use of variables have the same.
func (s *Scenario) Fingerprint() (string, error) {
	resolved, err := s.withPaths(func(t loadedTrace) string { return "sha256:" + t.sum }).Resolved()
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(resolved)
	return hex.EncodeToString(sum[:]), nil
}

// Shape is the fabric's.
func (s *Scenario) Shape() topo.LeafSpine { return s.Spec.Fabric.shape() }

// ArmList is the arms in order.
func (s *Scenario) ArmList() []Arm { return append([]Arm(nil), s.Spec.Arms...) }

// RepeatSeed keys all luck of a repeat, from 0: of its workload and, by other
// purposes, of whatever runs it.
func (s *Scenario) RepeatSeed(repeat int) uint64 {
	return workloads.RepeatSeed(s.Spec.Seed, repeat)
}
