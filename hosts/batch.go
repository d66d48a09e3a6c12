package hosts

import (
	"net"
	"sync/atomic"
	"time"

	"testbed/topo/units"
)

// readBatch is the amount of payload for which a receiver is woken at most: a read waits for a batch, for what is
// missing of a flow or packet, or for the end of the connection. Waking a goroutine for each segment takes more time
// of the processors than the reads. A batch that takes longer than batchWait is halved, so that a slow sender's bytes
// are read, and acknowledged, soon: the kernel puts off the acknowledgement of a single segment that is not read for 40 ms.
// It is not if more than the batch has arrived: then the receiver ran late, and shorter batches would make it later.
const (
	readBatch  = 32 * units.KiB
	leastBatch = 1 * units.KiB
	batchWait  = 20 * time.Millisecond
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
	size units.Bytes // of a batch
	set  int         // at the connection
}

func newBatches(conn net.Conn) *batches { return &batches{Conn: conn, size: readBatch} }

// Read waits for b to be full, or for a batch.
func (c *batches) Read(b []byte) (int, error) {
	x, ok := c.Conn.(Batched)
	if !ok {
		return c.Conn.Read(b)
	}
	if n := min(len(b), int(c.size)); n != c.set {
		if err := x.SetReadBatch(n); err != nil {
			return 0, err
		}
		c.set = n
	}
	began := time.Now()
	n, err := c.Conn.Read(b)
	switch took := time.Since(began); {
	case took > batchWait && n <= int(c.size):
		c.size = max(c.size/2, leastBatch)
	case took < batchWait/4:
		c.size = min(2*c.size, readBatch)
	}
	return n, err
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
