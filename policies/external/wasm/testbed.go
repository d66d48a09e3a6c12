//go:build wasip1

// Command wasm is a coflow policy of testbed as a WebAssembly module. Copy this file next to yours, whose init sets policy,
// and build both:
//
//	GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o mine.wasm
//
// Times are in nanoseconds, sizes in bytes, rates in bit/s. docs/writing-a-policy.md describes the fields.
package main

import (
	"slices"
	"strconv"
	"unsafe"
)

// Policy decides, as CoflowScheduler of testbed does. What an instance must remember is in its fields.
type Policy interface {
	// Start receives the message "hello", which has the parameters, the seed and the fabric, as JSON.
	Start(hello []byte)
	Decide(v *View, s *Schedule)
}

// An init function sets the policy and its needs and triggers, as the answer to "hello" states them.
var (
	policy   Policy
	needs    = `[]`
	triggers = `{"coflows":true,"flows":true}`
)

// View is the state that a decision sees. It is valid until Decide returns.
type View struct {
	N, Now   int64
	Capacity []int64  // by link; 0 if it is down
	Changed  bool     // Capacity differs from that of the decision before
	Coflows  []Coflow // by arrival, ties by ID
}

// Coflow is an unfinished coflow. What needs does not declare is 0.
type Coflow struct {
	*Numbers
	Links, LinkFlows []int32
	LinkRemaining    []int64 // parallel to Links
	LinkPilots       []int64 // parallel to them, nil without pilot flows
	IdleLinks        []int64 // no flow on them has delivered bytes
	Flows            []Flow
}

// Numbers are the numbers of a coflow, in the order of the message.
type Numbers struct {
	ID, Arrival, Width, Senders, Receivers, Left, Sent, MostSent, Queue, Since, Finished, Median, Pilots, PilotsLeft,
	PilotSent, Size, Largest, Remaining, Bound, links, idle, flows int64
}

// Flow is an unfinished flow.
type Flow struct {
	ID, Src, Dst, Pilot, Sent, Size, Remaining int64
	Links                                      []int64
}

// Schedule is a decision. Coflows are indices into View.Coflows.
type Schedule struct {
	steps, rest []byte
}

// Step serves coflows, in order, by a rule. Options are keys and values of JSON such as "part", `"pilots"`.
func (s *Schedule) Step(rule string, coflows []int, options ...string) {
	if len(s.steps) > 0 {
		s.steps = append(s.steps, ',')
	}
	s.steps = append(append(append(s.steps, `{"rule":"`...), rule...), `","coflows":`...)
	s.steps = list(s.steps, coflows)
	for i := 0; i+1 < len(options); i += 2 {
		s.steps = append(append(append(append(s.steps, `,"`...), options[i]...), `":`...), options[i+1]...)
	}
	s.steps = append(s.steps, '}')
}

// Queues sets the queue of each coflow, and Watch its threshold of bytes sent.
func (s *Schedule) Queues(queues []int) { s.rest = list(append(s.rest, `,"queues":`...), queues) }
func (s *Schedule) Watch(bytes []int)   { s.rest = list(append(s.rest, `,"watch":`...), bytes) }

// Pilots makes flows pilot flows, and Wake asks for one more decision.
func (s *Schedule) Pilots(flows []int) { s.rest = list(append(s.rest, `,"pilots":`...), flows) }
func (s *Schedule) Wake(at int64)      { s.rest = strconv.AppendInt(append(s.rest, `,"wake":`...), at, 10) }

func list(b []byte, numbers []int) []byte {
	b = append(b, '[')
	for i, n := range numbers {
		if i > 0 {
			b = append(b, ',')
		}
		if n < 10 && n >= 0 {
			b = append(b, '0'+byte(n))
		} else {
			b = strconv.AppendInt(b, int64(n), 10)
		}
	}
	return append(b, ']')
}

// The memory of messages.
var (
	message  []int64
	answer   []byte
	view     View
	schedule Schedule
)

//go:wasmexport alloc
func alloc(size uint32) unsafe.Pointer {
	message = make([]int64, size/8+1)
	return unsafe.Pointer(&message[0])
}

// answered returns the place and the size of the answer, as testbed reads them.
func answered() uint64 {
	return uint64(uintptr(unsafe.Pointer(&answer[0])))<<32 | uint64(len(answer))
}

//go:wasmexport hello
func hello(at unsafe.Pointer, size uint32) uint64 {
	policy.Start(unsafe.Slice((*byte)(at), size))
	answer = []byte(`{"type":"hello","version":2,"views":"binary","needs":` + needs + `,"triggers":` + triggers + `}`)
	return answered()
}

//go:wasmexport decide
func decide(unsafe.Pointer, uint32) uint64 {
	view.read(message)
	schedule.steps, schedule.rest = schedule.steps[:0], schedule.rest[:0]
	policy.Decide(&view, &schedule)
	answer = strconv.AppendInt(append(answer[:0], `{"type":"schedule","n":`...), view.N, 10)
	answer = append(append(append(answer, `,"steps":[`...), schedule.steps...), ']')
	answer = append(append(answer, schedule.rest...), '}')
	return answered()
}

// read points a view to the numbers of a message. Capacities that it leaves out are as before.
func (v *View) read(m []int64) {
	v.N, v.Now, v.Changed = m[0], m[1], m[2] > 0
	at := 3 + m[2]
	if v.Changed {
		v.Capacity = append(v.Capacity[:0], m[3:at]...)
	}
	n := int(m[at])
	m = m[at+1:]
	v.Coflows = slices.Grow(v.Coflows[:0], n)[:n]
	for i := range v.Coflows {
		m = v.Coflows[i].read(m)
	}
}

// read points a coflow to the numbers of a message, and returns those after it.
func (c *Coflow) read(m []int64) []int64 {
	c.Numbers = (*Numbers)(unsafe.Pointer(&m[0]))
	m = m[unsafe.Sizeof(Numbers{})/8:]
	n := c.links
	half := (n + 1) / 2
	c.Links, c.LinkFlows, c.LinkRemaining, c.LinkPilots = narrow(m[:half], n), narrow(m[half:2*half], n), m[2*half:2*half+n], nil
	if m = m[2*half+n:]; c.PilotsLeft > 0 {
		c.LinkPilots, m = m[:n], m[n:]
	}
	c.IdleLinks, m = m[:c.idle], m[c.idle:]
	c.Flows = c.Flows[:0]
	for range c.flows {
		end := 8 + m[7]
		c.Flows = append(c.Flows, Flow{m[0], m[1], m[2], m[3], m[4], m[5], m[6], m[8:end]})
		m = m[end:]
	}
	return m
}

// narrow returns n numbers of 32 bits.
func narrow(m []int64, n int64) []int32 {
	return unsafe.Slice((*int32)(unsafe.Pointer(unsafe.SliceData(m))), n)
}

func main() {} // of a library: it is not called
