package hosts

import (
	"math/bits"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"testbed/topo/units"
)

// A receiver waits for a batch, for what is missing of a flow or packet, or for the end of the connection, and for no
// longer than batchWait: then it reads what has arrived. Waking a goroutine for each segment takes more time of the
// processors than the reads. The wait has a bound because a sender whose window is smaller than the batch waits for
// each acknowledgement, which the kernel puts off for 40 ms if nothing is read.
//
// A batch that fails, as only a part of it has arrived by then, is replaced by the largest power of two that is half
// of that part or less. Batches double after reads in a row that came whole and soon: one at first, and twice as many
// after each failure, up to mostPatience. If nothing has arrived, the sender pauses, and if more than the batch, the
// receiver itself is late: these are no failures.
const (
	firstBatch   = 1 * units.KiB
	readBatch    = 32 * units.KiB
	batchWait    = 20 * time.Millisecond
	mostPatience = 1024
)

// Batched is implemented by connections whose reads can wait for a number of bytes. A read returns fewer at the
// end of the connection, and when the receive buffer is full.
type Batched interface {
	// SetReadBatch sets the number of bytes, 1 or more. The kernel may lower it to what the buffer holds.
	SetReadBatch(n int) error
	// Queued returns the number of bytes that have arrived and were not read, or 0 once the connection is closed.
	Queued() int
}

// batches reads from a connection in batches if it is Batched.
type batches struct {
	net.Conn
	size     units.Bytes // of a batch
	soon     int         // reads in a row that came whole and soon
	patience int         // of them before the batch doubles

	mu     sync.Mutex
	set    int       // at the connection
	since  time.Time // of the read that waits; zero if none does
	failed bool      // it
	timer  *time.Timer
}

func newBatches(conn net.Conn) *batches { return &batches{Conn: conn, size: firstBatch, patience: 1} }

// Read waits for b to be full, for a batch, or for batchWait and a byte.
func (c *batches) Read(b []byte) (int, error) {
	x, ok := c.Conn.(Batched)
	if !ok {
		return c.Conn.Read(b)
	}
	batch := min(len(b), int(c.size))
	began := time.Now()
	if err := c.wait(x, batch, began); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(b)
	took := time.Since(began)
	switch failed := c.end(); {
	case failed && n < batch:
		c.size, c.soon, c.patience = units.Bytes(1)<<max(bits.Len(uint(n))-2, 0), 0, min(2*c.patience, mostPatience)
	case took < batchWait/2 && n >= int(c.size):
		if c.soon++; c.soon >= c.patience {
			c.size, c.soon = min(2*c.size, readBatch), 0
		}
	}
	return n, err
}

// wait begins the wait of a read.
func (c *batches) wait(x Batched, batch int, began time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if batch != c.set {
		if err := x.SetReadBatch(batch); err != nil {
			return err
		}
		c.set = batch
	}
	if batch == 1 {
		return nil
	}
	c.since = began
	if c.timer == nil {
		c.timer = time.AfterFunc(batchWait, func() { c.late(x) })
	} else {
		c.timer.Reset(batchWait)
	}
	return nil
}

// late ends the wait for a batch. The timer of an earlier read may run late.
func (c *batches) late(x Batched) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() || time.Since(c.since) < batchWait {
		return
	}
	c.failed = x.Queued() > 0
	if x.SetReadBatch(1) == nil { // else the connection has ended, and so does the read
		c.set = 1
	}
}

// end ends the wait of a read, and reports whether its batch had come in part only.
func (c *batches) end() (failed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	failed, c.failed, c.since = c.failed, false, time.Time{}
	if c.timer != nil {
		c.timer.Stop()
	}
	return failed
}

// Received counts the payload of a flow that a host has received.
type Received struct {
	read atomic.Int64
	// queue has the rest, for which a read may wait. nil where the payload counts when it is read.
	queue Batched
}

// Read returns the number of bytes that were read.
func (r *Received) Read() units.Bytes { return units.Bytes(r.read.Load()) }

// Arrived returns the number of bytes that were read or can be. It asks the kernel, and may briefly be less than
// before, while a read ends.
func (r *Received) Arrived() units.Bytes {
	n := r.Read() // first: what is read meanwhile would count twice
	if r.queue != nil {
		n += units.Bytes(r.queue.Queued())
	}
	return n
}
