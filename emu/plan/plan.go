// Package plan compiles a fabric into the ordered list of operations that builds it in a
// kernel. A Plan is a value that can be printed, compared and tested without root. Each
// operation prints as the equivalent ip, tc, sysctl or ethtool command, so a plan is also
// a readable script.
//
// Each host, leaf and spine is a network namespace with its name in package topo. A
// link is a veth pair whose ends are created in their two namespaces: eth0 in a
// host, "h3-07" in a leaf for the port to that host, "spine0" in a leaf and
// "leaf3" in a spine. A token bucket (TBF) shapes every direction of every link at its
// sending end: in the host for traffic from the host, in the switch otherwise. Rates
// therefore count Ethernet frames: the IP packet and 14 bytes. A link with a propagation
// delay has netem at that end, ahead of the token bucket. A switch port with early
// detection has RED in place of the bucket's queue.
//
// The package does not access a kernel (see emu/kernel) and does not decide in which
// order failed operations are undone (see emu/deploy).
package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"testbed/topo"
	"testbed/topo/units"
)

// Plan is the ordered list of operations that builds a fabric.
type Plan struct {
	Name   string
	Shape  topo.LeafSpine
	Seed   uint64
	Stages []Stage

	counts *Counts // of the complete plan if this is a shortened one, otherwise nil
}

// Stage is a group of operations that do not depend on one another but may
// depend on those of earlier stages.
type Stage struct {
	Name string
	Ops  []Op
}

// Ops returns all operations in order.
func (p *Plan) Ops() []Op {
	var n int
	for _, s := range p.Stages {
		n += len(s.Ops)
	}
	ops := make([]Op, 0, n)
	for _, s := range p.Stages {
		ops = append(ops, s.Ops...)
	}
	return ops
}

// Namespaces returns the names of the namespaces that the plan creates, in order.
func (p *Plan) Namespaces() []string {
	var names []string
	for _, op := range p.Ops() {
		if ns, ok := op.(Namespace); ok {
			names = append(names, ns.Name)
		}
	}
	return names
}

// Links returns the links that the plan creates, in order.
func (p *Plan) Links() []Veth {
	var links []Veth
	for _, op := range p.Ops() {
		if l, ok := op.(Veth); ok {
			links = append(links, l)
		}
	}
	return links
}

// Counts contains the numbers of the main objects that a plan creates.
type Counts struct {
	Namespaces, Hosts, Switches int
	Links                       int // veth pairs
	Shapers, Routes, Ops        int
}

// Counts returns the numbers of objects and operations of the complete plan.
func (p *Plan) Counts() Counts {
	if p.counts != nil {
		return *p.counts
	}
	hosts := p.Shape.Leaves * p.Shape.HostsPerLeaf
	c := Counts{Hosts: hosts, Switches: p.Shape.Leaves + p.Shape.Spines}
	for _, op := range p.Ops() {
		c.Ops++
		switch op.(type) {
		case Namespace:
			c.Namespaces++
		case Veth:
			c.Links++
		case Shaper:
			c.Shapers++
		case Route:
			c.Routes++
		}
	}
	return c
}

func (c Counts) String() string {
	return fmt.Sprintf("%d hosts and %d switches in %d namespaces, %d links, %d shapers, %d routes: %d operations",
		c.Hosts, c.Switches, c.Namespaces, c.Links, c.Shapers, c.Routes, c.Ops)
}

// DefaultPrinted is the default number of operations up to which a plan is printed in full:
// those of about 400 hosts.
const DefaultPrinted = 10_000

// printedPerStage is the number of operations printed of each stage of a longer plan.
const printedPerStage = 3

// Text returns the plan as a script: one command per line, and a comment before each
// stage. It ends in a newline.
func (p *Plan) Text() string { return p.TextOf(-1) }

// TextOf returns Text if the plan has at most most operations or most is negative.
// Otherwise it prints the first operations of each stage and the number of the others.
func (p *Plan) TextOf(most int) string {
	var b strings.Builder
	c := p.Counts()
	fmt.Fprintf(&b, "# %s: %s\n", p.Name, c)
	fmt.Fprintf(&b, "# %v, seed %d\n", p.Shape, p.Seed)
	for _, st := range p.Stages {
		fmt.Fprintf(&b, "\n# %s (%d)\n", st.Name, len(st.Ops))
		ops := st.Ops
		if most >= 0 && c.Ops > most {
			ops = ops[:min(printedPerStage, len(ops))]
		}
		for _, op := range ops {
			b.WriteString(op.String())
			b.WriteByte('\n')
		}
		if left := len(st.Ops) - len(ops); left > 0 {
			fmt.Fprintf(&b, "# and %d more\n", left)
		}
	}
	return b.String()
}

// Short returns p if p has at most most operations or most is negative. Otherwise it returns
// a plan with the first operations of each stage. The JSON of that plan contains the counts
// of p, so that readers can detect that it is shortened.
func (p *Plan) Short(most int) *Plan {
	if c := p.Counts(); most >= 0 && c.Ops > most {
		short := *p
		short.counts = &c
		short.Stages = nil
		for _, st := range p.Stages {
			short.Stages = append(short.Stages, Stage{st.Name, st.Ops[:min(printedPerStage, len(st.Ops))]})
		}
		return &short
	}
	return p
}

// MarshalJSON writes the plan with each operation's kind, fields and command.
func (p *Plan) MarshalJSON() ([]byte, error) {
	type op struct {
		Op      string `json:"op"`
		Fields  Op     `json:"fields"`
		Command string `json:"command"`
	}
	type stage struct {
		Name string `json:"name"`
		Ops  []op   `json:"ops"`
	}
	stages := make([]stage, 0, len(p.Stages))
	for _, s := range p.Stages {
		out := stage{Name: s.Name, Ops: make([]op, 0, len(s.Ops))}
		for _, o := range s.Ops {
			kind := strings.ToLower(strings.TrimPrefix(fmt.Sprintf("%T", o), "plan."))
			out.Ops = append(out.Ops, op{Op: kind, Fields: o, Command: o.String()})
		}
		stages = append(stages, out)
	}
	return json.Marshal(struct {
		Name   string         `json:"name"`
		Shape  topo.LeafSpine `json:"shape"`
		Seed   uint64         `json:"seed"`
		Counts Counts         `json:"counts"`
		Stages []stage        `json:"stages"`
	}{p.Name, p.Shape, p.Seed, p.Counts(), stages})
}

// Check returns the errors of the plan, joined: shapers that the kernel does not support,
// and operations on a namespace or device that no earlier operation creates. Equal errors
// of shapers are reported once.
func (p *Plan) Check() error {
	var errs []error
	made := map[string]bool{}
	seen := map[string]bool{}
	need := func(op Op, namespace, device string) {
		if !made[namespace] {
			errs = append(errs, fmt.Errorf("plan %s: %q uses namespace %q before it is created", p.Name, op, namespace))
		} else if device != "" && !made[namespace+"/"+device] {
			errs = append(errs, fmt.Errorf("plan %s: %q uses device %q before it is created in %q", p.Name, op, device, namespace))
		}
	}
	create := func(op Op, name string) {
		if made[name] {
			errs = append(errs, fmt.Errorf("plan %s: %q creates %q a second time", p.Name, op, name))
		}
		made[name] = true
	}
	delayed, shaped := map[string]bool{}, map[string]bool{} // by device; of shapers, whether they are delayed
	report := func(namespace, device string, err error) {
		if err != nil && !seen[err.Error()] {
			seen[err.Error()] = true
			errs = append(errs, fmt.Errorf("plan %s: shaper of %s in %s: %w", p.Name, device, namespace, err))
		}
	}
	for _, op := range p.Ops() {
		switch op := op.(type) {
		case Namespace:
			create(op, op.Name)
			made[op.Name+"/lo"] = true
		case Sysctl:
			need(op, op.Namespace, "")
		case Veth:
			for _, e := range []End{op.A, op.B} {
				need(op, e.Namespace, "")
				create(op, e.Namespace+"/"+e.Device)
			}
		case Offloads:
			need(op, op.Namespace, op.Device)
		case Delay:
			need(op, op.Namespace, op.Device)
			report(op.Namespace, op.Device, op.check())
			delayed[op.Namespace+"/"+op.Device] = true
		case RED:
			need(op, op.Namespace, op.Device)
			report(op.Namespace, op.Device, op.check())
			if d, ok := shaped[op.Namespace+"/"+op.Device]; !ok || d != op.Delayed {
				errs = append(errs, fmt.Errorf("plan %s: %q: no matching shaper whose queue it could replace", p.Name, op))
			}
		case Shaper:
			need(op, op.Namespace, op.Device)
			if op.Delayed != delayed[op.Namespace+"/"+op.Device] {
				errs = append(errs, fmt.Errorf("plan %s: %q: delayed is %v, but the device has a delay before it: %v", p.Name, op, op.Delayed, !op.Delayed))
			}
			shaped[op.Namespace+"/"+op.Device] = op.Delayed
			report(op.Namespace, op.Device, CheckRate(op.Rate, op.Limit, op.Burst, op.MTU))
		case Address:
			need(op, op.Namespace, op.Device)
		case Up:
			need(op, op.Namespace, op.Device)
		case Ready:
			need(op, op.Namespace, op.Device)
		case Neighbour:
			need(op, op.Namespace, op.Device)
		case Route:
			need(op, op.Namespace, "")
			for _, h := range op.Via {
				need(op, op.Namespace, h.Device)
			}
		default:
			errs = append(errs, fmt.Errorf("plan %s: unknown operation %T", p.Name, op))
		}
	}
	return errors.Join(errs...)
}

// EthernetHeader is the size that a frame adds to its IP packet, as the kernel's shapers
// and captures count it: addresses and type, without checksum and preamble.
const EthernetHeader units.Bytes = 14
