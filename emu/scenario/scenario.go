// Package scenario reads scenario files: one YAML file that states a fabric, a
// workload and the policies to compare. Reading is strict and reports all
// errors at once, each with its place, the key, the reason and a remedy.
//
// A scenario is a value: the same file, variables and traces give the same
// workload on every machine. Random draws depend only on the seed and the repeat, so
// all arms of an experiment have the same draws.
//
// The package runs nothing and does not know the policies and their roles: the caller of Load
// passes a catalog of them.
package scenario

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"testbed/policies/catalog"
	"testbed/results/safefile"
	"testbed/topo"
	"testbed/topo/magic"
	"testbed/topo/yamltree"
	"testbed/workloads"
	"testbed/workloads/jobs"
)

// Options are the inputs of Load besides the scenario file.
type Options struct {
	// Set overrides variables by name. A name that the file does not declare or
	// does not use is an error.
	Set map[string]string
	// Seed replaces that of the file, if it is not nil.
	Seed *uint64
	// Time replaces that of the file, if it is not "".
	Time string
	// ForkAt replaces that of the file, if it is not 0.
	ForkAt time.Duration
	// Catalog lists the roles, which are keys of arms, and their policies.
	Catalog catalog.Catalog
	// Open opens a trace; nil is files.Open, which accepts only regular files.
	Open func(name string) (fs.File, error)
	// read are the files that other points of a sweep have read, by kind, path and limits.
	read map[string]loadedTrace
}

// Scenario is a valid scenario.
type Scenario struct {
	// Spec is the file with variables replaced and defaults filled in. It is read-only.
	Spec    Spec
	catalog catalog.Catalog
	source  []byte
	traces  []loadedTrace // by index of Spec.Workload; empty for items without a file
	// policies are the files of policies outside of the program, by their paths in the scenario.
	policies map[string]loadedTrace
	rate     workloads.Factor
	decoded  *decoder // of the file, for places of keys
	// changedArms are the scenarios of the arms that set keys; nil for others.
	changedArms []*Scenario
	// base is the scenario without the changes of an arm, which has the index; nil if s is that.
	base  *Scenario
	index int
	// points are those of the sweep; none if the file has no sweep.
	points []Point
}

// loadedTrace is the trace or the workload file of an item of the workload.
type loadedTrace struct {
	*workloads.Trace
	work    *workloads.WorkloadFile
	jobs    []jobs.Job
	remarks []string // parts of the file that the trace does not contain
	file    File
	sum     string // SHA-256 of the file, in hex
}

// held reports whether the item has a file.
func (t loadedTrace) held() bool { return t.Trace != nil || t.work != nil || t.jobs != nil }

// path returns a pointer to the path of the item's file, or nil if it has none.
func (i *Item) path() *string {
	switch {
	case i.Trace != nil:
		return &i.Trace.Path
	case i.File != nil:
		return &i.File.Path
	case i.Tasks != nil && i.Tasks.Path != "":
		return &i.Tasks.Path
	}
	return nil
}

// withPaths returns a copy of the scenario with other paths of its files.
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
		case item.Tasks != nil:
			tasks := *item.Tasks
			item.Tasks = &tasks
		}
		if p := item.path(); p != nil {
			*p = path(s.traces[i])
		}
		copied.Spec.Workload[i] = item
	}
	copied.Spec.Arms = s.withPolicyPaths(s.Spec.Arms, path)
	return &copied
}

// File is one file of a scenario.
type File struct {
	Name string // relative, with slashes
	Data []byte
}

// maxFile is the largest scenario file, in bytes.
const maxFile = 1 << 20

// Load reads the scenario file at path. The error is an *Errors with all errors of the
// scenario, or the error of reading the file.
func Load(path string, o Options) (*Scenario, error) {
	f, err := safefile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read scenario: %w", err)
	}
	defer f.Close() // only read from: closing loses no data
	return Read(path, f, o)
}

// Read reads a scenario; see Parse. The error is an *Errors, or the error of reading r.
func Read(name string, r io.Reader, o Options) (*Scenario, error) {
	data, err := readAll(r, maxFile)
	if err != nil {
		return nil, fmt.Errorf("read scenario: %s: %w", name, err)
	}
	s, err := Parse(name, data, o)
	var invalid *Errors
	if is, ok := jobs.Recognise(data); ok && is != jobs.FormatScenario && errors.As(err, &invalid) {
		return nil, fmt.Errorf("read scenario: %s: it is %s: expected %s (for this file: %s)", name, is.Name, jobs.FormatScenario.Name, is.Command)
	}
	return s, err
}

// readAll reads at most most bytes, from a regular file if it is a file.
func readAll(r io.Reader, most int64) ([]byte, error) {
	if f, ok := r.(fs.File); ok {
		info, err := f.Stat()
		if err != nil {
			return nil, err
		}
		if !info.Mode().IsRegular() {
			return nil, errors.New("not a regular file")
		}
	}
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > most {
		return nil, fmt.Errorf("larger than %d bytes", most)
	}
	return data, nil
}

// Parse reads a scenario from data. name is the name of the file in errors, and
// paths of traces are relative to its directory. The error is an *Errors, or a
// *magic.NotTextError.
func Parse(name string, data []byte, o Options) (*Scenario, error) {
	data, err := magic.Plain(data)
	if err != nil {
		return nil, fmt.Errorf("read scenario: %s: %w", name, err)
	}
	d := newDecoder(name, o.Catalog)
	root := d.parse(data)
	if n := valueOf(root, "sweep"); n != nil {
		d.refuse(root, "")
		if d.newer(root) {
			return nil, d.err()
		}
		sw := d.sweep(n, valueOf(root, "vars"), o.Set)
		if err := d.err(); err != nil {
			return nil, err
		}
		o.read = map[string]loadedTrace{}
		return parsePoints(name, data, o, sw)
	}
	s, _, err := parse(name, data, o, nil)
	return s, err
}

// parse reads a scenario without a sweep, or the point of a sweep. whole is then the Source of all points.
func parse(name string, data []byte, o Options, point []Assignment) (_ *Scenario, whole []byte, err error) {
	d := newDecoder(name, o.Catalog)
	root := d.parse(data)
	if root == nil {
		return nil, nil, d.err()
	}
	set, sweeps := maps.Clone(o.Set), map[string]bool{}
	if set == nil {
		set = map[string]string{}
	}
	for _, a := range point {
		set[a.Name], sweeps[a.Name] = a.Value, true
	}
	s := &Scenario{catalog: o.Catalog, decoded: d}
	sub := &substituter{
		decoder: d, set: set, swept: sweeps, used: map[string]bool{}, isSet: map[*yaml.Node]bool{},
		text: string(data), starts: lineStarts(string(data)), edits: map[*yaml.Node]*edit{},
		sweptIn: map[*yaml.Node]bool{}, paths: map[*yaml.Node]string{},
	}
	d.refuse(root, "")
	for i := 0; point != nil && i < len(root.Content); i += 2 {
		if root.Content[i].Value == "sweep" {
			root.Content = slices.Delete(root.Content, i, i+2)
			break
		}
	}
	sub.readVars(root)
	sub.substitute(root, "")
	if o.Seed != nil {
		sub.state(root, "seed", "!!int", strconv.FormatUint(*o.Seed, 10))
	}
	if o.Time != "" {
		sub.state(root, "time", "!!str", o.Time)
	}
	if o.ForkAt != 0 {
		sub.state(root, "fork_at", "!!str", o.ForkAt.String())
	}
	sub.unused(root)
	d.at[""] = root
	if d.newer(root) {
		return nil, nil, d.err()
	}
	d.mapping(root, "", reflect.ValueOf(&s.Spec).Elem())
	s.Spec.Vars = sub.vars
	c := checker{decoder: d, spec: &s.Spec}
	c.taskDefaults()
	s.rate = c.scaleRates()
	c.check()
	c.repeats()
	s.traces = make([]loadedTrace, len(s.Spec.Workload))
	for i, item := range s.Spec.Workload {
		if p := item.path(); p != nil {
			s.traces[i] = s.readTrace(sub, i, *p, item, o)
		}
	}
	s.readPolicies(sub, o)
	if len(d.all) == 0 {
		c.workload(s)
	}
	s.changedArms = make([]*Scenario, len(s.Spec.Arms))
	for i, changes := range d.armChanges {
		if len(changes.all) > 0 {
			s.changedArms[i] = s.changed(root, i)
		}
	}
	if err := d.err(); err != nil {
		return nil, nil, err
	}
	s.source = sub.edited()
	if point != nil {
		whole = s.source
		if s.source, err = sub.pointSource(root); err != nil {
			return nil, nil, fmt.Errorf("write point %s of %s: %w", pointName(point), name, err)
		}
	}
	for _, arm := range s.changedArms {
		if arm != nil {
			arm.source = s.source
		}
	}
	return s, whole, nil
}

// newestVersion is the newest version of scenario files that Load reads.
const newestVersion = 1

// newer reports whether the file has a version above newestVersion. That is then its only
// error: the meaning of the other keys is unknown.
func (d *decoder) newer(root *yaml.Node) bool {
	v := valueOf(root, "version")
	if v == nil || v.Kind != yaml.ScalarNode || !plain(v) || !yamltree.WholeNumber.MatchString(v.Value) {
		return false
	}
	if n, err := strconv.ParseInt(v.Value, 10, 64); err == nil && n <= newestVersion {
		return false
	}
	d.all = nil
	d.fail(v, "version", "%s: this testbed reads scenario files up to version %d: use a newer testbed, or write the file for version %d", clip(v.Value), newestVersion, newestVersion)
	return true
}

// parse reads the one document of a file.
func (d *decoder) parse(data []byte) *yaml.Node {
	start := &yaml.Node{Line: 1, Column: 1}
	if len(data) > maxFile {
		d.fail(start, "", "larger than %d bytes: expected a scenario file", maxFile)
		return nil
	}
	return yamltree.Parse(data, "scenario", keysOf(fieldsOf(reflect.TypeFor[Spec]())), d.fail)
}

// readTrace reads the trace, the workload file or the job file of an item of the workload. In the
// edited text it sets the path to the name that Files gives the file.
func (s *Scenario) readTrace(sub *substituter, i int, name string, item Item, o Options) loadedTrace {
	what := "coflow trace"
	switch {
	case item.File != nil:
		what = "workload file"
	case item.Tasks != nil:
		what = "job file"
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
	key := fmt.Sprint(what, " ", file, " ", s.Spec.Limits)
	if t, ok := o.read[key]; ok {
		return s.stored(sub, n, at, name, file, t)
	}
	open := o.Open
	if open == nil {
		open = func(name string) (fs.File, error) { return safefile.Open(name) }
	}
	f, err := open(file)
	if err != nil {
		// Only the system's message: the operation and the path are in the text already.
		if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
			err = pathErr.Err
		}
		sub.fail(n, at, "%s: %v: expected a %s; paths are relative to the scenario file", clip(file), err, what)
		return loadedTrace{}
	}
	defer f.Close() // only read from: closing loses no data
	data, err := readAll(f, int64(s.Spec.Limits.Trace))
	text := data
	if err == nil {
		text, err = magic.Plain(data)
	}
	var notText *magic.NotTextError
	if errors.As(err, &notText) {
		sub.fail(n, at, "%s: %v", clip(file), err)
		return loadedTrace{}
	}
	if err != nil {
		sub.fail(n, at, "%s: %v: expected a %s of at most %v, or raise limits.trace", clip(file), err, strings.TrimPrefix(what, "coflow "), s.Spec.Limits.Trace)
		return loadedTrace{}
	}
	var t loadedTrace
	format := workloads.TraceFormat("workload")
	is, _ := jobs.Recognise(text)
	switch {
	case item.Tasks != nil && is == jobs.FormatSWIM:
		sub.fail(n, at, "%s: a SWIM trace: derive a job file with \"testbed workload jobs derive\"", clip(file))
		return loadedTrace{}
	case item.Tasks != nil:
		t.jobs, err = jobs.Read(file, bytes.NewReader(data), s.taskLimits())
	case is == jobs.FormatJobs:
		sub.fail(n, at, "%s: a job file: use kind: tasks", clip(file))
		return loadedTrace{}
	case item.File != nil:
		t.work, err = workloads.ReadWorkload(file, bytes.NewReader(data))
	case is == jobs.FormatWorkload:
		sub.fail(n, at, "%s: a workload file: use a trace, or kind: workload", clip(file))
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
		expected := fmt.Sprintf("%s in the %s format", strings.TrimSuffix(strings.TrimPrefix(what, "coflow "), " file"), format)
		if item.Tasks != nil {
			expected = fmt.Sprintf("%s of at most %d tasks (limits.tasks)", what, s.taskLimits().WithDefaults().Tasks)
		}
		sub.fail(n, at, "%s: %d invalid lines%s: expected a %s", clip(file), bad.Total, more, expected)
		return loadedTrace{}
	}
	t.file.Data = data
	sum := sha256.Sum256(data)
	t.sum = hex.EncodeToString(sum[:])
	if o.read != nil {
		o.read[key] = t
	}
	return s.stored(sub, n, at, name, file, t)
}

// stored gives a file that was read its name in Files, and sets its path to that in the edited text.
func (s *Scenario) stored(sub *substituter, n *yaml.Node, at, name, file string, t loadedTrace) loadedTrace {
	var err error
	t.file.Name = s.traceName(filepath.Base(file))
	if sub.sweptIn[n] {
		if t.file.Name, err = sweptName(name); err != nil {
			sub.fail(n, at, "%v", err)
		}
	}
	sub.place(n, at, t.file.Name)
	return t
}

// place sets the path of a file in the edited text.
func (sub *substituter) place(n *yaml.Node, at, name string) {
	sub.paths[n] = name
	if sub.sweptIn[n] {
		return
	}
	if e, ok := sub.edits[n]; ok {
		e.text = render(name, true)
	} else if start, end, ok := sub.span(n); ok {
		sub.edits[n] = &edit{start, end, render(name, true)}
	} else {
		sub.fail(n, at, "path over several lines or with escapes: write it on one line")
	}
}

// traceName returns the unique name under which Files stores a trace.
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

// Dir returns the directory of the scenario file, in which commands run.
func (s *Scenario) Dir() string { return filepath.Dir(s.decoded.file) }

// Source returns the text of the scenario file, with variables replaced and with the paths of
// traces, workload files, job files and files of policies changed to those of Files. Loading it needs no --set and gives the
// same scenario.
func (s *Scenario) Source() []byte { return bytes.Clone(s.source) }

// Problem returns a problem of the value at a path such as "fabric.delay". Its place is that of the
// value or, if the file does not state it, of the nearest parent that it states.
func (s *Scenario) Problem(path, text string) Problem {
	n := s.decoded.nearest(path)
	return Problem{s.decoded.file, max(1, n.Line), max(1, n.Column), path, text}
}

// Files returns the files from which the scenario can be loaded again:
// scenario.yaml, which is Source, and its traces, workload files, job files and files of policies.
func (s *Scenario) Files() []File {
	files := []File{{Name: "scenario.yaml", Data: s.Source()}}
	for _, p := range s.Points() {
		for _, t := range p.Scenario.traces {
			if t.held() && !slices.ContainsFunc(files, func(f File) bool { return f.Name == t.file.Name }) {
				files = append(files, t.file)
			}
		}
		for _, name := range sortedKeys(p.Scenario.policies) {
			t := p.Scenario.policies[name]
			if !slices.ContainsFunc(files, func(f File) bool { return f.Name == t.file.Name }) {
				files = append(files, t.file)
			}
		}
	}
	return files
}

// Resolved returns the scenario as YAML with variables replaced and every default
// written out; of a scenario with a sweep, a document for each point.
func (s *Scenario) Resolved() ([]byte, error) {
	if len(s.points) > 0 {
		return s.resolvedPoints()
	}
	spec := s.Spec
	spec.Vars = nil
	out, err := yaml.Dump(spec, yaml.WithLineWidth(-1))
	if err != nil {
		return nil, fmt.Errorf("write scenario %s: %w", spec.Name, err)
	}
	return out, nil
}

// Recorded returns Resolved with the paths of Files.
func (s *Scenario) Recorded() ([]byte, error) {
	return s.withPaths(func(t loadedTrace) string { return t.file.Name }).Resolved()
}

// Fingerprint returns a SHA-256, in hex, of the scenario's resolved values and the bytes
// of its traces and policies outside of the program, independent of their paths; of a scenario that OfArm returns, also of its Base. Scenarios that differ
// only in comments, order of keys or use of variables have the same fingerprint.
func (s *Scenario) Fingerprint() (string, error) {
	if len(s.points) > 0 {
		return s.fingerprintOfPoints()
	}
	copied := s.withPaths(func(t loadedTrace) string { return "sha256:" + t.sum })
	copied.Spec.Version, copied.Spec.Time = 0, "" // left out: they are not part of the work
	resolved, err := copied.Resolved()
	if err != nil {
		return "", err
	}
	if s.base != nil { // the workload of an arm depends on the scenario without its changes
		base := *s.base
		base.Spec.Arms, base.Spec.Repeat = nil, Repeats{}
		of, err := base.Fingerprint()
		if err != nil {
			return "", err
		}
		resolved = append(resolved, of...)
	}
	sum := sha256.Sum256(resolved)
	return hex.EncodeToString(sum[:]), nil
}

// Shape returns the shape of the fabric.
func (s *Scenario) Shape() topo.LeafSpine { return s.Spec.Fabric.shape() }

// ArmList returns the arms in order.
func (s *Scenario) ArmList() []Arm { return append([]Arm(nil), s.Spec.Arms...) }

// RepeatSeed returns the seed of a repeat, counted from 0. It keys all random draws of the
// workload and, with other purposes, those of the runner.
func (s *Scenario) RepeatSeed(repeat int) uint64 {
	return workloads.RepeatSeed(s.Spec.Seed, repeat)
}
