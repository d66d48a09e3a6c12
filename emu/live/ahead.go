package live

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"testbed/emu/engine"
	"testbed/workloads"
)

// ahead opens the connections of flows before their coflow arrives, for
// SetupSimultaneous. A flow whose connection does not stand when it comes is set up
// serially, like any other.
type ahead struct {
	b       *Backend
	coflows []workloads.Coflow // in order of arrival; those whose connections are not begun

	mu   sync.Mutex
	open map[workloads.FlowID]net.Conn // that stand and are not taken
	came map[workloads.FlowID]bool     // flows that came before their connection stood
	end  bool                          // no connection is kept any more
}

// openAhead opens the connections of the coflows that arrive first, before the clock runs.
func openAhead(b *Backend) (*ahead, error) {
	a := &ahead{b: b, coflows: slices.Clone(b.cfg.Foreseen), open: map[workloads.FlowID]net.Conn{}, came: map[workloads.FlowID]bool{}}
	slices.SortStableFunc(a.coflows, func(x, y workloads.Coflow) int { return int(min(1, max(-1, x.Arrival-y.Arrival))) })
	return a, a.begin(b.sendCtx, b.cfg.Settings.SetupAhead)
}

// run opens the others until ctx is done, and returns its cause.
func (a *ahead) run(ctx context.Context) error {
	for len(a.coflows) > 0 {
		timer := time.NewTimer(a.coflows[0].Arrival - a.b.cfg.Settings.SetupAhead - time.Since(a.b.zero))
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		}
		if err := a.begin(ctx, time.Since(a.b.zero)+a.b.cfg.Settings.SetupAhead); err != nil {
			if ended(err) != nil {
				a.b.fail(err)
			}
			return err
		}
	}
	return nil
}

// begin opens the connections of the coflows that arrive by a time on the run's clock, and
// waits until they stand.
func (a *ahead) begin(ctx context.Context, by time.Duration) error {
	g, ctx := errgroup.WithContext(ctx)
	for len(a.coflows) > 0 && a.coflows[0].Arrival <= by {
		for _, f := range a.coflows[0].Flows {
			g.Go(func() error { return a.dial(ctx, f) })
		}
		a.coflows = a.coflows[1:]
	}
	return g.Wait()
}

func (a *ahead) dial(ctx context.Context, f workloads.Flow) error {
	conn, err := a.b.agents[f.Src].Open(ctx, f.Dst, workloads.FlowHash(a.b.cfg.Seed, f.ID))
	if err != nil {
		return fmt.Errorf("open the connection of flow %d beforehand: %w", f.ID, err)
	}
	a.b.network.Greeted(conn.LocalAddr()) // its header may be long in coming
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.end || a.came[f.ID] {
		drop(conn)
		return nil
	}
	a.open[f.ID] = conn
	return nil
}

// drop resets a connection whose flow does not use it.
func drop(conn net.Conn) {
	if c, ok := conn.(interface{ SetLinger(int) error }); ok {
		c.SetLinger(0)
	}
	conn.Close()
}

// take hands out the connection of a flow that comes; nil where none stands.
func (a *ahead) take(f workloads.FlowID) net.Conn {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	conn := a.open[f]
	delete(a.open, f)
	if conn == nil {
		a.came[f] = true
	}
	return conn
}

// late is a note on how many of the foreseen flows were set up serially after all; "" for
// none.
func (a *ahead) late() string {
	if a == nil {
		return ""
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, c := range a.b.cfg.Foreseen {
		for _, f := range c.Flows {
			if a.came[f.ID] {
				n++
			}
		}
	}
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("%d flows came before their connections stood, which were begun up to %v earlier: they were set up serially", n, a.b.cfg.Settings.SetupAhead)
}

// close resets the connections that no flow took, and those that are to come.
func (a *ahead) close() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.end = true
	for id, conn := range a.open {
		drop(conn)
		delete(a.open, id)
	}
}

// together counts the flows of a decision that may send at once on a connection that
// stands, and returns where their first segments gather; nil for fewer than two.
func (b *Backend) together(cmds []engine.Command) *gate {
	if b.ahead == nil {
		return nil
	}
	n := 0
	b.ahead.mu.Lock()
	for _, cmd := range cmds {
		if c, ok := cmd.(engine.StartTransfer); ok && c.Ceiling > 0 && b.ahead.open[c.Flow.ID] != nil {
			n++
		}
	}
	b.ahead.mu.Unlock()
	if n < 2 {
		return nil
	}
	return newGate(n, b.cfg.Settings.SetupGather, b.writers)
}
