package hosts

import (
	"context"
	"fmt"
	"net"
	"time"

	"testbed/hosts/wire"
	"testbed/topo/units"
	"testbed/workloads"
)

const (
	// consumeStep is the time in which an attempt consumes what it reads at once.
	consumeStep = 20 * time.Millisecond
	// consumeAhead is the time by which a read may return ahead of the rate: a shorter wait is left
	// to the next one.
	consumeAhead = 2 * time.Millisecond
	// consumeCatchUp is the time by which an attempt may fall behind its rate and make up for it
	// afterwards. The cause are late timers.
	consumeCatchUp = 20 * time.Millisecond
	// bufferTime is the time in which an attempt consumes what the kernel holds ahead of it.
	bufferTime = 50 * time.Millisecond
	// leastBuffer is the minimum size of a receive buffer, in which the kernel holds about 140 KB of
	// payload. It offers a window of 64 KB with its SYN-ACK, and drops data within that window for
	// which the buffer has no room.
	leastBuffer = 56 * units.KiB
	leastChunk  = 2 * units.KiB
	// mostHeld is the largest ratio of the payload that the kernel holds in a receive buffer to the size
	// of the buffer with its overhead. 140 KB in a buffer of 112 KiB were observed.
	mostHeld = 2
)

// Consumption is the rate at which an attempt consumes a flow or local read, 0 for no limit. An attempt that slows down
// has consumed Onset bytes, above 0, at Rate, and consumes the others at Slow.
type Consumption struct {
	Rate, Slow units.Rate
	Onset      units.Bytes
}

// Expect sets the rate at which an attempt consumes a flow to this host, or a ReadLocal, before it
// begins: the host reads no faster, and Sink.FlowReceived means that the last byte is consumed. The
// share of SetCPU applies to the rate. The host marks the end (wire.KindConsumed) for attempt. Without a
// limit there is no mark.
func (a *Agent) Expect(flow workloads.FlowID, c Consumption, attempt wire.Task) {
	if c.Rate <= 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.expected[flow] = &consumer{cpu: a.cpu, Consumption: c, attempt: attempt, flow: flow, slowest: 1}
}

// consumer limits the rate at which an attempt consumes its input. The nil consumer has no limit.
type consumer struct {
	cpu *cpu
	Consumption
	done units.Bytes   // input so far
	due  time.Duration // on the clock of cpu: when all input so far is consumed

	flow    workloads.FlowID
	attempt wire.Task
	held    units.Bytes // that the kernel may hold; 0 if the input is not received
	slowest float64     // least speed of cpu so far
}

// consumerOf returns the consumer of a flow that begins.
func (a *Agent) consumerOf(flow workloads.FlowID) *consumer {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := a.expected[flow]
	delete(a.expected, flow)
	if c != nil {
		c.due = a.cpu.worked()
	}
	return c
}

// chunk returns the maximum number of bytes to read at once.
func (c *consumer) chunk() uint64 {
	if c == nil {
		return 1 << 62
	}
	n := max(leastChunk, c.Rate.BytesIn(consumeStep))
	switch {
	case c.done < c.Onset:
		n = min(n, c.Onset-c.done)
	case c.Onset > 0:
		n = max(leastChunk, c.Slow.BytesIn(consumeStep))
	}
	return uint64(n)
}

// takes returns the time in which the part of the input from one byte to another is consumed.
func (c *consumer) takes(from, to units.Bytes) time.Duration {
	turn := to
	if c.Onset > 0 {
		turn = max(from, min(to, c.Onset))
	}
	return min(c.Rate.TimeToSend(turn-from), 1<<60) + min(c.Slow.TimeToSend(to-turn), 1<<60)
}

// consume waits until n more bytes are consumed, less consumeAhead unless they are the last ones.
func (c *consumer) consume(ctx context.Context, n units.Bytes, last bool) error {
	if c == nil {
		return nil
	}
	c.slowest = min(c.slowest, c.cpu.speed())
	// Time in which there was no input is lost, as for a real program.
	c.due = max(c.due, c.cpu.worked()-consumeCatchUp) + c.takes(c.done, c.done+n)
	c.done += n
	if last {
		return c.cpu.work(ctx, c.due)
	}
	if c.due-c.cpu.worked() < consumeAhead {
		return nil
	}
	return c.cpu.work(ctx, c.due-consumeAhead*7/8)
}

// Carrier is a connection that is notified of the flow that it sends.
type Carrier interface{ Carries(flow workloads.FlowID) }

// Limited is implemented by connections that are notified if their reader is slower than the network,
// because an attempt consumes its input at a rate (Expect).
type Limited interface{ ReaderLimits() }

// bound makes the receive buffer of a connection small, so that its sender is not far ahead. current
// is the size of the buffer, with the kernel's overhead.
func (c *consumer) bound(conn net.Conn, current units.Bytes) error {
	if c == nil {
		return nil
	}
	if l, ok := conn.(Limited); ok {
		l.ReaderLimits()
	}
	// The kernel doubles the size for its overhead, which is small once segments are merged.
	size := max(leastBuffer, c.Rate.BytesIn(bufferTime)/2)
	c.held = 2 * size * mostHeld
	if current > 0 {
		c.held = min(c.held, current*mostHeld)
	}
	b, ok := conn.(interface{ SetReadBuffer(int) error })
	if !ok || current > 0 && 2*size >= current || size > 1<<30 {
		return nil
	}
	if err := b.SetReadBuffer(int(size)); err != nil {
		return fmt.Errorf("receive buffer of %v: %w", size, err)
	}
	return nil
}

// markConsumed marks the end of a read of size bytes at a time.
func (a *Agent) markConsumed(c *consumer, size units.Bytes, at time.Time) error {
	if c == nil {
		return nil
	}
	flow, err := toUint32("flow", int(c.flow))
	if err != nil {
		return fmt.Errorf("%s: mark of an input: %w", a.name(), err)
	}
	h := wire.Header{Kind: wire.KindConsumed, Group: c.attempt.Job, Member: flow, Size: uint64(size), Read: true, Sent: at, Task: c.attempt}
	if c.held > 0 {
		ahead := min(size, c.held+units.Bytes(c.chunk()))
		h.SetLag(time.Duration(float64(c.takes(size-ahead, size)) / c.slowest))
	}
	return a.mark(h, wire.Note{Host: a.name()})
}
