package hosts

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"testbed/hosts/wire"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// maxPacket bounds the buffer of a block server for a packet.
const maxPacket = 64 * units.MiB

// Chain is one block write by the agent of Block.Client: the client sends to
// Targets[0], which may be its own host, that forwards to Targets[1] and so on.
//
// A hop is a connection that carries a wire.Header (Group the block, Member the
// hop from 0, Parts the replicas of this pipeline), wire.TargetsSize bytes that list
// the targets further down, and the payload from Offset to Size in packets of
// Block.Packet bytes; the last packet may be shorter. In the opposite direction it
// carries acknowledgements of wire.AckSize bytes: one when all further hops are
// connected, then one for each packet that this and all further hosts have written,
// numbered from the start of the block. A host forwards a packet before it writes
// it. A host with nothing to acknowledge for a quarter of Options.PeerTimeout sends
// a keep-alive. A failed acknowledgement (wire.Ack) ends the stream and names the
// host at fault.
type Chain struct {
	Block   workloads.Block
	Targets []topo.HostID
	Hashes  []uint32 // one per hop; selects its path
}

// ErrNoReplica is the error of a block that has lost all its targets.
var ErrNoReplica = errors.New("all targets were lost")

// WriteError reports a block that was not written because all its targets were
// lost. It wraps ErrNoReplica.
type WriteError struct {
	Block  workloads.BlockID
	Host   topo.HostID // lost last, as far as the pipeline knows
	Name   string      // of the host
	Reason string      // of its loss
	// Full reports whether at least one of the targets had no space for the block.
	Full bool
}

func (e *WriteError) Error() string {
	return fmt.Sprintf("write block %d: %v; the last one, %s: %s", e.Block, ErrNoReplica, e.Name, e.Reason)
}

func (e *WriteError) Unwrap() error { return ErrNoReplica }

// failure is the reason that a pipeline broke. It travels to the client.
type failure struct {
	host   topo.HostID // at fault
	full   bool        // its disks have no space
	reason string
}

func (f *failure) Error() string { return fmt.Sprintf("host %d: %s", f.host, f.reason) }

// Write writes a block and returns when it is durable, that is, when the last packet is
// acknowledged. At most Block.Window packets are unacknowledged.
//
// A pipeline breaks when a host is lost or silent, or cannot store the block, for example because
// its disks are full. As in HDFS, the client then drops that host, reports it to its Sink, and
// builds a pipeline of the next generation from the remaining hosts. That pipeline resumes after
// the last packet that all hosts had acknowledged, and the block has fewer replicas. When no target
// is left, Write returns a *WriteError; when ctx ends, its cause; when the host crashed,
// ErrCrashed.
func (a *Agent) Write(ctx context.Context, c Chain) error {
	h, targets, err := a.checkChain(c)
	if err == nil {
		l := a.current()
		within, release := l.within(ctx)
		defer release()
		ctx = within
		err = a.write(ctx, l, c.Block, h, targets)
	}
	var w *WriteError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("%s: write block %d: %w", a.name(), c.Block.ID, context.Cause(ctx))
	case errors.As(err, &w):
		return err
	}
	return fmt.Errorf("%s: write block %d: %w", a.name(), c.Block.ID, err)
}

// checkChain validates c and returns the header of the first hop and the targets in
// the form of wire.
func (a *Agent) checkChain(c Chain) (wire.Header, []wire.Target, error) {
	b := c.Block
	var errs []error
	reject := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if b.Client != a.o.Host {
		reject("client is %s, not this host", a.o.Name(b.Client))
	}
	if b.Size < 1 {
		reject("size %d: must be at least 1 byte", b.Size)
	}
	if b.Packet < 1 || b.Packet > maxPacket {
		reject("packet %d: must be 1 to %d bytes", b.Packet, maxPacket)
	} else if wire.Packets(uint64(b.Size), uint64(b.Packet)) > 1<<32-1 {
		reject("size %v in packets of %v: too many packets", b.Size, b.Packet)
	}
	if b.Window < 1 {
		reject("window %d: must be at least 1 packet", b.Window)
	}
	if len(c.Targets) < 1 || len(c.Targets) > 1+wire.MaxTargets {
		reject("%d targets: must be 1 to %d", len(c.Targets), 1+wire.MaxTargets)
	}
	if len(c.Hashes) != len(c.Targets) {
		reject("%d hashes for %d hops: must be one per hop", len(c.Hashes), len(c.Targets))
	}
	group, err := toUint32("block", int(b.ID))
	if err != nil {
		errs = append(errs, err)
	}
	if len(errs) > 0 {
		return wire.Header{}, nil, errors.Join(errs...)
	}
	targets := make([]wire.Target, len(c.Targets))
	for i, t := range c.Targets {
		host, err := toUint32("host", int(t))
		if err != nil {
			return wire.Header{}, nil, err
		}
		if slices.ContainsFunc(targets[:i], func(o wire.Target) bool { return o.Host == host }) {
			return wire.Header{}, nil, fmt.Errorf("%s is a target twice: each host may be a target once", a.o.Name(t))
		}
		targets[i] = wire.Target{Host: host, Hash: c.Hashes[i]}
	}
	return wire.Header{
		Kind: wire.KindBlock, Run: a.o.Run, Group: group,
		Parts: uint32(len(targets)), Size: uint64(b.Size), Packet: uint32(b.Packet),
	}, targets, nil
}

// write builds pipelines until one completes the block or no target is left. Each
// broken pipeline costs a target, so there are at most len(targets) pipelines.
func (a *Agent) write(ctx context.Context, l *life, b workloads.Block, h wire.Header, targets []wire.Target) error {
	full := false
	for {
		acked, err := a.writeGeneration(ctx, l, b, h, targets)
		var f *failure
		if err == nil || ctx.Err() != nil || !errors.As(err, &f) {
			return err
		}
		bad := slices.IndexFunc(targets, func(t wire.Target) bool { return topo.HostID(t.Host) == f.host })
		if bad < 0 { // the first target blamed a host outside the pipeline
			bad = 0
		}
		host := topo.HostID(targets[bad].Host)
		targets = slices.Delete(targets, bad, bad+1)
		full = full || f.full
		a.dropped(b, h.Generation, host, f.full, err)
		if len(targets) == 0 {
			return &WriteError{Block: b.ID, Host: host, Name: a.o.Name(host), Reason: f.reason, Full: full}
		}
		h.Generation++
		h.Parts = uint32(len(targets))
		h.Offset += uint64(acked) * uint64(h.Packet)
	}
}

// dropped reports a dropped host to the Sink and sends a mark: captures may have no
// packet of a host that was lost before it was connected.
func (a *Agent) dropped(b workloads.Block, generation uint32, host topo.HostID, full bool, err error) {
	h := wire.Header{Kind: wire.KindReplicaLost, Group: uint32(b.ID), Member: uint32(host), Parts: 1, Size: uint64(b.Size), Generation: generation}
	note := wire.Note{Host: a.o.Name(host)}
	if full {
		note.Why = wire.WhyFull
	}
	if err := a.mark(h, note); err != nil {
		a.o.Sink.Problem(err)
	}
	a.o.Sink.ReplicaLost(ReplicaLost{Block: b.ID, Host: host, Full: full, Err: err})
}

// writeGeneration runs the client's end of one pipeline. acked is the number of packets that all
// its hosts have.
func (a *Agent) writeGeneration(ctx context.Context, l *life, b workloads.Block, h wire.Header, targets []wire.Target) (acked int, err error) {
	next, err := a.connect(ctx, l, h, targets)
	if err != nil {
		return 0, err
	}
	defer l.untrack(next.conn)
	window := make(chan struct{}, b.Window)
	g, gctx := errgroup.WithContext(ctx)
	stop := onDone(gctx, func() { next.conn.SetDeadline(past) })
	g.Go(func() error {
		for left := b.Size - units.Bytes(h.Offset); left > 0; {
			select {
			case window <- struct{}{}:
			case <-gctx.Done():
				return context.Cause(gctx)
			}
			n := min(left, b.Packet)
			if !next.sendZeros(gctx, n) {
				return nil // await returns the reason
			}
			left -= n
		}
		return nil
	})
	g.Go(func() error {
		first, last := packets(h)
		for seq := first; ; seq++ {
			if err := next.await(gctx, seq); err != nil {
				return err
			}
			acked++
			if seq == last {
				return nil
			}
			<-window
		}
	})
	err = g.Wait()
	stop()
	if err != nil {
		reset(next.conn)
		return acked, err
	}
	return acked, next.conn.Close()
}

// packets returns the numbers of the first and the last packet that a hop carries.
func packets(h wire.Header) (first, last uint32) {
	return uint32(h.Offset/uint64(h.Packet)) + 1, uint32(wire.Packets(h.Size, uint64(h.Packet)))
}
