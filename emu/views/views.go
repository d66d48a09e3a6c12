// Package views keeps what a policy was shown and what it answered, a line of JSON for each decision, and passes the same
// views to other policies, to compare their answers.
//
// It makes no views: package runner does, from the log of a run.
package views

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"testbed/policies"
	"testbed/policies/catalog"
	"testbed/policies/external"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// Format is the version of the files.
const Format = 2

// Limits bound the files.
type Limits struct {
	File units.Bytes // all lines
	Line units.Bytes // one view with its answer
}

// DefaultLimits returns 1 GB, and 64 MB for a line.
func DefaultLimits() Limits { return Limits{File: units.GB, Line: 64 * units.MB} }

// Header is the first line of a file.
type Header struct {
	Format int    `json:"format"`
	Role   string `json:"role"`
	// Policy is the name in the catalog of the policy that answered.
	Policy string `json:"policy"`
	Run    string `json:"run_id,omitempty"`
	Arm    string `json:"arm,omitempty"`
	Repeat int    `json:"repeat"`
	Seed   uint64 `json:"seed"` // of placement, and of policies outside of the program
	// Needs are the facts that the views show.
	Needs  policies.Facts `json:"needs"`
	Fabric topo.LeafSpine `json:"fabric"`
	// Problem is why the last answer breaks the contract; "" if none does.
	Problem string `json:"problem,omitempty"`
}

// line is a decision.
type line struct {
	N     int              `json:"n"` // from 1
	View  json.RawMessage  `json:"view"`
	Block *workloads.Block `json:"block,omitempty"` // of a placement
	// Answer is in the form of package external, but with no n.
	Answer json.RawMessage `json:"answer"`
}

// The views as JSON: their fields but the fabric, which Header has, and functions.
type (
	coflowView struct {
		*policies.CoflowView
		Fabric any `json:",omitempty"`
	}
	taskView struct {
		*policies.TaskView
		Slots        []slotState
		Fabric, Near any `json:",omitempty"`
	}
	slotState struct {
		policies.SlotState
		Space int64 // bytes; as text they cannot be negative
	}
	placementView struct {
		*policies.PlacementView
		Fabric, Scratch any `json:",omitempty"`
	}
)

// shownTasks returns a view as it is written.
func shownTasks(v *policies.TaskView) taskView {
	shown := taskView{TaskView: v}
	for _, s := range v.Slots {
		shown.Slots = append(shown.Slots, slotState{s, int64(s.Space)})
	}
	return shown
}

// Writer writes a file. It is an engine.Watcher that ignores other roles than that of the header. The first error stays.
type Writer struct {
	role   string
	limits Limits
	to     *bufio.Writer
	size   units.Bytes
	Count  int // decisions
	err    error
	stop   func(error)
}

// NewWriter returns a writer that has written the header. It calls stop with its first error.
func NewWriter(w io.Writer, h Header, l Limits, stop func(error)) *Writer {
	x := &Writer{role: h.Role, limits: l, to: bufio.NewWriterSize(w, 1<<16), stop: stop}
	h.Format = Format
	x.write(h)
	return x
}

// Flush writes what is buffered, and returns the first error.
func (w *Writer) Flush() error {
	if w.err != nil {
		return w.err
	}
	return w.to.Flush()
}

func (w *Writer) fail(err error) {
	if err != nil && w.err == nil {
		w.err = err
		w.stop(err)
	}
}

func (w *Writer) write(v any) {
	if w.err != nil {
		return
	}
	text, err := compact(v)
	if w.size += units.Bytes(len(text) + 1); err == nil && w.size > w.limits.File {
		err = fmt.Errorf("more than %v of views (--file-size): %d decisions before", w.limits.File, w.Count)
	} else if err == nil && units.Bytes(len(text)) > w.limits.Line {
		err = fmt.Errorf("decision %d has %v: more than %v", w.Count+1, units.Bytes(len(text)), w.limits.Line)
	}
	if err == nil {
		_, err = w.to.Write(append(text, '\n'))
	}
	w.fail(err)
}

func (w *Writer) decision(view any, block *workloads.Block, answer []byte) {
	text, err := json.Marshal(view)
	if w.fail(err); w.err == nil {
		w.write(line{w.Count + 1, text, block, answer})
		w.Count++
	}
}

// Coflow implements engine.Watcher.
func (w *Writer) Coflow(v *policies.CoflowView, s *policies.Schedule) {
	if w.role == catalog.RoleCoflow {
		w.decision(coflowView{CoflowView: v}, nil, external.FormatSchedule(s))
	}
}

// Tasks implements engine.Watcher.
func (w *Writer) Tasks(v *policies.TaskView, a *policies.Assignment) {
	if w.role != catalog.RoleTask {
		return
	}
	w.decision(shownTasks(v), nil, external.FormatAssignment(v, a))
}

// Placement implements engine.Watcher.
func (w *Writer) Placement(v *policies.PlacementView, b workloads.Block, hosts []topo.HostID, failed error) {
	if w.role == catalog.RolePlacement {
		w.decision(placementView{PlacementView: v}, &b, external.FormatPlacement(hosts, failed))
	}
}

// compact returns a value as JSON without the keys of objects whose values are zero.
func compact(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	in := json.NewDecoder(bytes.NewReader(text))
	in.UseNumber()
	var parsed any
	if err := in.Decode(&parsed); err != nil {
		return nil, err
	}
	strip(parsed)
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	err = enc.Encode(parsed)
	return bytes.TrimSpace(out.Bytes()), err
}

// strip removes zero values of objects, and reports whether nothing of v is left.
func strip(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case bool:
		return !v
	case json.Number:
		return v == "0"
	case string:
		return v == "" || v == "0B" || v == "0bps"
	case []any:
		for _, x := range v {
			strip(x)
		}
		return len(v) == 0
	case map[string]any:
		for key, x := range v {
			if strip(x) {
				delete(v, key)
			}
		}
		return len(v) == 0
	}
	return false
}

// Decision is a line of a file: the view of one role.
type Decision struct {
	N         int
	Coflow    *policies.CoflowView
	Tasks     *policies.TaskView
	Placement *policies.PlacementView
	Block     workloads.Block
	Answer    []byte
}

// cluster returns the part that the views of all roles have.
func (d *Decision) cluster() *policies.Cluster {
	switch {
	case d.Coflow != nil:
		return d.Coflow.Cluster
	case d.Tasks != nil:
		return d.Tasks.Cluster
	}
	return d.Placement.Cluster
}

// Message returns the view as the message that a process gets.
func (d *Decision) Message(seed uint64) []byte {
	switch {
	case d.Coflow != nil:
		return external.CoflowMessage(d.N, d.Coflow)
	case d.Tasks != nil:
		return external.TasksMessage(d.N, d.Tasks)
	}
	return external.PlacementMessage(d.N, d.Placement, d.Block, placementStream(seed, d.Block))
}

// Reader reads a file.
type Reader struct {
	Header
	fabric *topo.Fabric
	lines  *bufio.Scanner
	number int // of lines
}

// NewReader reads the header.
func NewReader(r io.Reader, l Limits) (*Reader, error) {
	x := &Reader{lines: bufio.NewScanner(io.LimitReader(r, int64(l.File)+1))}
	x.lines.Buffer(nil, int(l.Line))
	text, err := x.next()
	if err != nil {
		return nil, err
	}
	if text == nil {
		return nil, errors.New("the file is empty: expected views (testbed policy record makes them)")
	}
	if err := json.Unmarshal(text, &x.Header); err != nil || x.Format != Format {
		return nil, errors.Join(fmt.Errorf(`line 1: no header of views of format %d: testbed policy record makes them`, Format), err)
	}
	if x.fabric, err = x.Header.Fabric.Build(); err != nil {
		return nil, fmt.Errorf("line 1: fabric: %w", err)
	}
	return x, nil
}

func (x *Reader) next() ([]byte, error) {
	x.number++
	if x.lines.Scan() {
		return x.lines.Bytes(), nil
	}
	if err := x.lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", x.number, err)
	}
	return nil, nil
}

// Next returns the next decision; nil at the end.
func (x *Reader) Next(ctx context.Context) (*Decision, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	text, err := x.next()
	if text == nil || err != nil {
		return nil, err
	}
	d, err := x.decision(text)
	if err != nil {
		return nil, fmt.Errorf("line %d: %w", x.number, err)
	}
	return d, nil
}

func (x *Reader) decision(text []byte) (*Decision, error) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return nil, fmt.Errorf("no view: %w", err)
	}
	if l.N != x.number-1 {
		return nil, fmt.Errorf("decision %d: must be %d", l.N, x.number-1)
	}
	d := &Decision{N: l.N, Answer: bytes.Clone(l.Answer)}
	cluster := policies.Cluster{Fabric: x.fabric, Hosts: make([]policies.HostState, 0), Racks: make([]policies.RackState, 0)}
	var into any
	switch x.Role {
	case catalog.RoleCoflow:
		d.Coflow = &policies.CoflowView{Cluster: &cluster}
		into = &coflowView{CoflowView: d.Coflow}
	case catalog.RoleTask:
		d.Tasks = &policies.TaskView{Cluster: &cluster}
		into = &taskView{TaskView: d.Tasks}
	case catalog.RolePlacement:
		if l.Block == nil {
			return nil, errors.New("the block is missing")
		}
		d.Placement, d.Block = &policies.PlacementView{Cluster: &cluster}, *l.Block
		into = &placementView{PlacementView: d.Placement}
	default:
		return nil, fmt.Errorf("views of role %q: must be %s", x.Role, strings.Join(catalog.All().Roles(), ", "))
	}
	if err := json.Unmarshal(l.View, into); err != nil {
		return nil, fmt.Errorf("view: %w", err)
	}
	if shown, ok := into.(*taskView); ok {
		for _, s := range shown.Slots {
			s.SlotState.Space = units.Bytes(s.Space)
			d.Tasks.Slots = append(d.Tasks.Slots, s.SlotState)
		}
	}
	return d, x.check(d)
}

// check rejects views whose numbers are not those of the fabric, since policies index by them.
func (x *Reader) check(d *Decision) error {
	c := d.cluster()
	for _, n := range []struct {
		what      string
		got, want int
		optional  bool
	}{
		{"capacities", len(c.Capacity), len(x.fabric.Links()), false},
		{"hosts", len(c.Hosts), x.fabric.Hosts(), true},
		{"racks", len(c.Racks), x.fabric.Racks(), true},
		{"zones", len(c.Zone), x.fabric.Racks(), true},
		{"loads", len(c.Load), len(x.fabric.Links()), true},
	} {
		if n.got != n.want && !(n.optional && n.got == 0) {
			return fmt.Errorf("view: %d %s: the fabric has %d", n.got, n.what, n.want)
		}
	}
	host := func(h topo.HostID) bool { return h >= 0 && int(h) < x.fabric.Hosts() }
	switch {
	case d.Tasks != nil:
		v := d.Tasks
		if len(v.Slots) != x.fabric.Hosts() || !host(v.Host) {
			return fmt.Errorf("view: host %d of %d with slots: the fabric has %d", v.Host, len(v.Slots), x.fabric.Hosts())
		}
		v.Count()
	case d.Placement != nil:
		if !host(d.Block.Client) {
			return fmt.Errorf("block: client %d: the fabric has %d hosts", d.Block.Client, x.fabric.Hosts())
		}
		d.Placement.Scratch = make([]topo.HostID, x.fabric.Hosts())
	default:
		for i := range d.Coflow.Coflows {
			for _, l := range d.Coflow.Coflows[i].Links {
				if l.Link < 0 || int(l.Link) >= len(c.Capacity) {
					return fmt.Errorf("view: coflow %d: link %d: the fabric has %d", i, l.Link, len(c.Capacity))
				}
			}
		}
	}
	return nil
}
