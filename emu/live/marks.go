package live

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"time"

	"testbed/emu/kernel"
	"testbed/hosts/wire"
	"testbed/topo"
)

// marks are the marks of the hosts. One that its host's full queue drops waits for room, and those after it from the same host wait
// behind it. The engine does not wait: the end of a transfer would be reported late because the queue of another host is full. A
// mark states its time, so that it may leave later.
type marks struct {
	mu      sync.Mutex
	sent    map[string]uint64             // marks that left for each leaf, by its name
	waiting map[topo.HostID][]waitingMark // by host, in order
	more    chan struct{}                 // capacity 1: receives when a mark begins to wait
}

type waitingMark struct {
	payload []byte
	since   time.Time
}

func newMarks() marks {
	return marks{sent: map[string]uint64{}, waiting: map[topo.HostID][]waitingMark{}, more: make(chan struct{}, 1)}
}

// markPause is the time between attempts to send the marks that wait, and markPatience how long one may wait.
const (
	markPause    = 500 * time.Microsecond
	markPatience = 2 * time.Second
)

// Mark sends a mark to the address that every leaf discards. The mark of a host that is cut off is sent from another host, so
// that the captures have it. It does not wait for room in a queue: resend does.
func (n *network) Mark(h topo.HostID, payload []byte) error {
	m := &n.marks
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.waiting[h]) == 0 {
		if sent, err := n.sendMark(h, payload); sent || err != nil {
			return err
		}
	}
	m.waiting[h] = append(m.waiting[h], waitingMark{payload, time.Now()})
	select {
	case m.more <- struct{}{}:
	default:
	}
	return nil
}

// resend sends the marks that wait, until ctx is done, and returns its cause, or the error of a mark.
func (n *network) resend(ctx context.Context) error {
	for {
		select {
		case <-n.marks.more:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		for {
			if err := kernel.Sleep(ctx, markPause); err != nil {
				return err
			}
			left, err := n.sendWaiting()
			if err != nil {
				return err
			}
			if left == 0 {
				break
			}
		}
	}
}

// sendWaiting sends the marks for which queues have room, and returns how many wait on.
func (n *network) sendWaiting() (left int, err error) {
	m := &n.marks
	m.mu.Lock()
	defer m.mu.Unlock()
	for h, list := range m.waiting {
		for len(list) > 0 {
			sent, err := n.sendMark(h, list[0].payload)
			if err == nil && !sent && time.Since(list[0].since) > markPatience {
				err = fmt.Errorf("%s: %w for %v: a mark could not be sent", n.fabric.HostName(h), kernel.ErrQueueFull, markPatience)
			}
			if err != nil {
				return 0, err
			}
			if !sent {
				break
			}
			list = list[1:]
		}
		if m.waiting[h] = list; len(list) == 0 {
			delete(m.waiting, h)
		}
		left += len(list)
	}
	return left, nil
}

// waitingMarks returns how many marks wait.
func (n *network) waitingMarks() (all int) {
	n.marks.mu.Lock()
	defer n.marks.mu.Unlock()
	for _, list := range n.marks.waiting {
		all += len(list)
	}
	return all
}

// sendMark sends a mark, or notes that no host can; false if the queue is full.
func (n *network) sendMark(h topo.HostID, payload []byte) (sent bool, err error) {
	by, ok := n.routes.marker(h)
	for ok {
		err := n.of(by).SendUDP(payload, netip.AddrPortFrom(topo.MarkAddr(), wire.MarkPort))
		switch {
		case err == nil:
			n.marks.sent[topo.LeafName(n.fabric.RackOf(by))]++
			return true, nil
		case errors.Is(err, kernel.ErrQueueFull):
			return false, nil
		}
		was := by
		if by, ok = n.routes.marker(h); ok && by == was {
			return false, err // it was not cut off meanwhile
		}
	}
	what := "a mark"
	if m, err := wire.Parse(payload); err == nil {
		what = fmt.Sprintf("the %v of %d", m.Kind, m.Group)
	}
	n.routes.note(fmt.Sprintf("%s: no host could send %s: all are cut off", n.fabric.HostName(h), what))
	return true, nil
}

// discards are the marks so far that each leaf was to discard.
func (n *network) discards() map[string]uint64 {
	n.marks.mu.Lock()
	defer n.marks.mu.Unlock()
	return maps.Clone(n.marks.sent)
}
