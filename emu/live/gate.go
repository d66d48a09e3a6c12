package live

import (
	"cmp"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"testbed/emu/kernel"
)

// gate gathers the first segments of flows that were let go in one decision, and has
// them written at one moment.
type gate struct {
	writers *writers

	mu      sync.Mutex
	missing int
	opened  bool
	waiting []*segment
	timer   *time.Timer
}

// segment is the first one of a flow.
type segment struct {
	conn   net.Conn
	b      []byte
	uncork func() error  // sends b, which the kernel keeps back; nil where b must be written
	order  time.Duration // a random draw; segments are written in its order
	n      int           // of b that were written
	err    error
	done   chan struct{}
}

// hold hands the segment to the kernel, which keeps it back.
func (s *segment) hold() {
	c, ok := s.conn.(*conn)
	if !ok {
		return
	}
	if s.uncork, s.err = kernel.Cork(c.TCPConn); s.err == nil {
		s.n, s.err = s.conn.Write(s.b)
	}
}

// send lets the segment go.
func (s *segment) send() {
	switch {
	case s.err != nil:
	case s.uncork != nil:
		s.err = s.uncork()
	default:
		s.n, s.err = s.conn.Write(s.b)
	}
}

// newGate returns a gate for n segments that opens after a time at the latest.
func newGate(n int, most time.Duration, w *writers) *gate {
	g := &gate{writers: w, missing: n}
	g.timer = time.AfterFunc(most, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.open()
	})
	return g
}

// first is hosts.Transfer.First of a flow.
func (g *gate) first(order time.Duration) func(net.Conn, []byte) (int, error) {
	return func(conn net.Conn, b []byte) (int, error) {
		s := &segment{conn: conn, b: b, order: order, done: make(chan struct{})}
		s.hold()
		g.mu.Lock()
		if g.opened {
			g.mu.Unlock()
			s.send()
			return s.n, s.err
		}
		g.waiting = append(g.waiting, s)
		if g.missing--; g.missing == 0 {
			g.open()
		}
		g.mu.Unlock()
		<-s.done
		return s.n, s.err
	}
}

// open hands the segments over to the writers. g.mu is held.
func (g *gate) open() {
	if g.opened {
		return
	}
	g.opened = true
	g.timer.Stop()
	slices.SortFunc(g.waiting, func(x, y *segment) int { return cmp.Compare(x.order, y.order) })
	g.writers.write(g.waiting)
}

// writers are threads that write the segments of a gate, one right after the other: one for
// each processor, so that goroutines of flows need not be scheduled between
// two of them.
type writers struct {
	batches []chan *batch
}

// batch is the segments of a gate. Writers take the next one until there is none.
type batch struct {
	at       time.Time
	segments []*segment
	next     atomic.Int64
}

func (b *batch) write() {
	for time.Until(b.at) > 0 {
	}
	var mine []*segment
	for i := int(b.next.Add(1)) - 1; i < len(b.segments); i = int(b.next.Add(1)) - 1 {
		s := b.segments[i]
		s.send()
		mine = append(mine, s)
	}
	for _, s := range mine { // waking them takes as long as writing
		close(s.done)
	}
}

// writersMeet is how long before their common moment writers are given their segments: what
// waking a thread takes. They spin for what is left of it.
const writersMeet = 100 * time.Microsecond

func newWriters() *writers {
	w := &writers{}
	for range runtime.NumCPU() {
		c := make(chan *batch)
		w.batches = append(w.batches, c)
		go func() {
			runtime.LockOSThread() // which ends with the goroutine
			for b := range c {
				b.write()
			}
		}()
	}
	return w
}

// write has all writers write segments, in their order.
func (w *writers) write(all []*segment) {
	b := &batch{at: time.Now().Add(writersMeet), segments: all}
	for _, c := range w.batches {
		c <- b
	}
}

// close ends the threads. No gate may be open then.
func (w *writers) close() {
	for _, c := range w.batches {
		close(c)
	}
	w.batches = nil
}
