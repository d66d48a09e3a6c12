// Package plan turns a fabric into the ordered list of operations that builds
// it in a kernel. A Plan is a value: it is printed, compared and tested without
// root, and each operation prints as the ip, tc, sysctl or ethtool command it
// stands for, so that a plan is also a script that a reader can follow.
//
// Each host, leaf and spine is a network namespace named as topo names it. A
// link is a veth pair whose ends are born in their two namespaces: eth0 in a
// host, "h3-07" in a leaf for the port to that host, "spine0" in a leaf and
// "leaf3" in a spine. Every direction of every link is shaped by a token bucket
// (TBF) where it enters the link, the host's in the host, all others in the
// switch. Rates therefore count Ethernet frames: the IP packet and 14 bytes. A link
// with a propagation delay has netem there, ahead of the token bucket, and a switch
// port with early detection has RED in the place of the bucket's queue.
//
// The package does not touch a kernel (emu/kernel) and does not decide in which
// order failures are undone (emu/deploy).
package plan

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"testbed/topo"
	"testbed/topo/units"
)

// Plan is what has to be done, in order, to have a fabric.
type Plan struct {
	Name   string
	Shape  topo.LeafSpine
	Seed   uint64
	Stages []Stage
}

// Stage is a group of operations that do not depend on one another but may
// depend on those of earlier stages.
type Stage struct {
	Name string
	Ops  []Op
}

// Ops are all operations in order.
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

// Namespaces are the names of the namespaces the plan creates, in order.
func (p *Plan) Namespaces() []string {
	var names []string
	for _, op := range p.Ops() {
		if ns, ok := op.(Namespace); ok {
			names = append(names, ns.Name)
		}
	}
	return names
}

// Links are the links the plan creates, in order.
func (p *Plan) Links() []Veth {
	var links []Veth
	for _, op := range p.Ops() {
		if l, ok := op.(Veth); ok {
			links = append(links, l)
		}
	}
	return links
}

// Counts tells how many of the main things a plan makes.
type Counts struct {
	Namespaces, Hosts, Switches int
	Links                       int // veth pairs
	Shapers, Routes, Ops        int
}

// Counts counts.
func (p *Plan) Counts() Counts {
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

// Text is the plan as a script: one command a line, a comment before each
// stage. It ends in a newline.
func (p *Plan) Text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s: %s\n", p.Name, p.Counts())
	fmt.Fprintf(&b, "# %v, seed %d\n", p.Shape, p.Seed)
	for _, st := range p.Stages {
		fmt.Fprintf(&b, "\n# %s (%d)\n", st.Name, len(st.Ops))
		for _, op := range st.Ops {
			b.WriteString(op.String())
			b.WriteByte('\n')
		}
	}
	return b.String()
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

// Check tells what in the plan cannot work: shapers that the kernel cannot
// honour, and operations on a namespace or device that no earlier operation
// made. It joins all it finds; equal shapers are reported once.
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
	make1 := func(op Op, name string) {
		if made[name] {
			errs = append(errs, fmt.Errorf("plan %s: %q creates %q a second time", p.Name, op, name))
		}
		made[name] = true
	}
	delayed, shaped := map[string]bool{}, map[string]bool{} // by device; of shapers, whether they are delayed
	bad := func(namespace, device string, err error) {
		if err != nil && !seen[err.Error()] {
			seen[err.Error()] = true
			errs = append(errs, fmt.Errorf("plan %s: shaper of %s in %s: %w", p.Name, device, namespace, err))
		}
	}
	for _, op := range p.Ops() {
		switch op := op.(type) {
		case Namespace:
			make1(op, op.Name)
			made[op.Name+"/lo"] = true
		case Sysctl:
			need(op, op.Namespace, "")
		case Veth:
			for _, e := range []End{op.A, op.B} {
				need(op, e.Namespace, "")
				make1(op, e.Namespace+"/"+e.Device)
			}
		case Offloads:
			need(op, op.Namespace, op.Device)
		case Delay:
			need(op, op.Namespace, op.Device)
			bad(op.Namespace, op.Device, op.check())
			delayed[op.Namespace+"/"+op.Device] = true
		case RED:
			need(op, op.Namespace, op.Device)
			bad(op.Namespace, op.Device, op.check())
			if d, ok := shaped[op.Namespace+"/"+op.Device]; !ok || d != op.Delayed {
				errs = append(errs, fmt.Errorf("plan %s: %q has no such shaper to replace the queue of", p.Name, op))
			}
		case Shaper:
			need(op, op.Namespace, op.Device)
			if op.Delayed != delayed[op.Namespace+"/"+op.Device] {
				errs = append(errs, fmt.Errorf("plan %s: %q: delayed %v, but delayed before it is %v", p.Name, op, op.Delayed, !op.Delayed))
			}
			shaped[op.Namespace+"/"+op.Device] = op.Delayed
			bad(op.Namespace, op.Device, CheckRate(op.Rate, op.Limit, op.Burst, op.MTU))
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

// EthernetHeader is what a frame adds to its IP packet where the kernel's
// shapers and captures count it: addresses and type, no checksum, no preamble.
const EthernetHeader units.Bytes = 14
