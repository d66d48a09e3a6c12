package live

import (
	"context"
	"errors"
	"fmt"
	"time"

	"testbed/emu/engine"
	"testbed/emu/kernel"
	"testbed/emu/plan"
	"testbed/hosts"
	"testbed/hosts/wire"
	"testbed/policies"
	"testbed/topo"
	"testbed/workloads"
)

// Do is engine.Backend's.
func (b *Backend) Do(ctx context.Context, cmds []engine.Command) error {
	b.decided, b.gate = time.Now(), b.together(cmds)
	for _, cmd := range cmds {
		var err error
		switch c := cmd.(type) {
		case engine.Decided:
		case engine.Mark:
			err = b.mark(c)
		case engine.StartTransfer:
			err = b.send(c)
		case engine.ReadDisk:
			err = b.readDisk(c)
		case engine.SetCeiling:
			err = b.setCeiling(c)
		case engine.StartChain:
			b.write(c)
		case engine.StopTransfer:
			b.stopTransfer(c)
		case engine.StopRead:
			delete(b.byFlow, c.ID)
			b.agents[c.Host].Stop(c.ID)
		case engine.StopChain:
			b.stopChain(c)
		case engine.DropBlock:
			b.dropBlock(c)
		case engine.Compute:
			b.compute(c)
		case engine.SpillOutput:
			b.spill(c)
		case engine.StopTask:
			b.agents[c.Host].StopAttempt(c.Attempt)
		case engine.DropOutputs:
			b.dropOutputs(c)
		case engine.MarkTask:
			err = b.markTask(c)
		default:
			err = fmt.Errorf("unknown command %T", cmd)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *Backend) mark(c engine.Mark) error {
	a := b.agents[c.Host]
	if c.Kind == engine.MarkWrite {
		note := b.cfg.Notes.Blocks[uint32(c.ID)]
		if t := c.Attempt.Task; t.Job > 0 {
			note.Job, note.Stage, note.Index, note.Attempt = uint32(t.Job), uint32(t.Stage), uint32(t.Index), uint32(c.Attempt.N)
		}
		return a.MarkWrite(c.ID, c.Parts, c.Size, c.Waited, note)
	}
	kind, ok := markKinds[c.Kind]
	if !ok {
		return fmt.Errorf("mark of unknown kind %d", c.Kind)
	}
	note := wire.Note{Why: c.Why}
	if c.Kind == engine.MarkCoflow {
		note = b.cfg.Notes.Coflows[uint32(c.ID)]
	}
	return a.Mark(kind, c.ID, c.Parts, c.Size, note)
}

var markKinds = map[engine.MarkKind]wire.Kind{
	engine.MarkCoflow:       wire.KindCoflowMark,
	engine.MarkFlowFailed:   wire.KindFlowFailed,
	engine.MarkBlockFailed:  wire.KindBlockFailed,
	engine.MarkFlowStopped:  wire.KindFlowStopped,
	engine.MarkBlockStopped: wire.KindBlockStopped,
	engine.MarkCoflowClosed: wire.KindCoflowClosed,
}

func (b *Backend) send(c engine.StartTransfer) error {
	jitter := time.Duration(workloads.Stream(b.cfg.Seed, "jitter", int(c.Hash)).Int64N(int64(b.cfg.Settings.Jitter) + 1))
	at := b.decided.Add(jitter)
	r := &running{flow: c.Flow.ID, src: c.Flow.Src, dst: c.Flow.Dst, hash: c.Hash, served: policies.NoLimit}
	t := hosts.Transfer{Coflow: c.Coflow, Flow: c.Flow, Hash: c.Hash, Decided: b.decided, Read: c.Read, Conn: b.ahead.take(c.Flow.ID)}
	if t.Conn != nil {
		at = b.decided
		if b.gate != nil && c.Ceiling > 0 {
			t.First, t.FirstMost = b.gate.first(jitter), b.cfg.Fabric.Shape().MTU-plan.TCPHeaders-1 // less than a full segment, which no cork holds
		}
	}
	if c.Task != nil {
		var err error
		if t.Task, err = taskOf(*c.Task); err != nil {
			return fmt.Errorf("flow %d: %w", c.Flow.ID, err)
		}
		b.agents[c.Flow.Dst].Expect(c.Flow.ID, paceOf(c.Task), t.Task)
		if c.Task.Served > 0 {
			r.served = c.Task.Served
		}
	}
	t.Ceiling = min(c.Ceiling, r.served)
	s, err := b.agents[c.Flow.Src].Prepare(t)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(b.sendCtx)
	r.stop = stop
	r.spine, _ = b.cfg.Fabric.SpineFor(c.Flow.Src, c.Flow.Dst, c.Hash)
	b.running, b.byFlow[c.Flow.ID] = append(b.running, r), r
	b.transfer.Go(func() {
		defer stop(nil)
		err := kernel.Sleep(ctx, time.Until(at))
		if err == nil || ctx.Err() != nil { // Send ends what Prepare began
			err = s.Send(ctx)
		}
		switch {
		case ended(err) == nil || errors.Is(err, hosts.ErrStopped) || errors.Is(err, hosts.ErrCrashed): // the engine knows, or will miss the host
		case b.faults.explain(c.Flow.Src, c.Flow.Dst):
			b.push(engine.TransferFailed{Flow: c.Flow.ID, Why: err.Error()})
		default:
			b.fail(err)
		}
	})
	return nil
}

// readDisk has a host read a block that it stores itself. The progress of those of tasks is reported.
func (b *Backend) readDisk(c engine.ReadDisk) error {
	if c.Task != nil {
		t, err := taskOf(*c.Task)
		if err != nil {
			return fmt.Errorf("read %d: %w", c.ID, err)
		}
		r := &running{flow: c.ID, src: c.Host, dst: c.Host}
		b.running, b.byFlow[c.ID] = append(b.running, r), r
		b.agents[c.Host].Expect(c.ID, paceOf(c.Task), t)
	}
	b.transfer.Go(func() {
		err := b.agents[c.Host].ReadLocal(b.sendCtx, c.ID, c.Block, c.Size)
		switch {
		case err == nil:
			b.push(engine.TransferFinished{Flow: c.ID})
		case ended(err) == nil || errors.Is(err, hosts.ErrStopped) || errors.Is(err, hosts.ErrCrashed): // the engine knows, or will miss the host
		case b.faults.explain(c.Host):
			b.push(engine.TransferFailed{Flow: c.ID, Why: err.Error()})
		default:
			b.fail(err)
		}
	})
	return nil
}

// setCeiling passes over a flow whose sender is done: the engine has not heard
// yet that its receiver is.
func (b *Backend) setCeiling(c engine.SetCeiling) error {
	r := b.byFlow[c.Flow]
	if r == nil {
		return fmt.Errorf("ceiling of flow %d, which is not running", c.Flow)
	}
	err := b.agents[r.src].SetCeiling(c.Flow, min(c.Ceiling, r.served))
	if errors.Is(err, hosts.ErrNotSending) {
		return nil
	}
	return err
}

func (b *Backend) write(c engine.StartChain) {
	ctx, stop := context.WithCancelCause(b.sendCtx)
	b.chains[c.Block.ID] = chain{stop, c.Targets}
	b.transfer.Go(func() {
		defer stop(nil)
		err := b.agents[c.Block.Client].Write(ctx, hosts.Chain{Block: c.Block, Targets: c.Targets, Hashes: c.Hashes})
		var w *hosts.WriteError
		switch {
		case err == nil:
			b.push(engine.BlockDurable{Block: c.Block.ID})
		case errors.Is(err, hosts.ErrCrashed) || errors.Is(err, hosts.ErrStopped): // the engine will miss the client, or has
		case errors.As(err, &w) && w.Full || ended(err) != nil && b.faults.explain(append([]topo.HostID{c.Block.Client}, c.Targets...)...):
			b.push(engine.BlockFailed{Block: c.Block.ID, Why: err.Error()})
		case ended(err) != nil:
			b.fail(err)
		}
	})
}

// dropBlock deletes the replicas of a block.
func (b *Backend) dropBlock(c engine.DropBlock) {
	for _, h := range c.Hosts {
		b.agents[h].Drop(c.Block)
	}
}

// stopChain ends a block write at its client, if it is still in progress, and at its targets.
func (b *Backend) stopChain(c engine.StopChain) {
	chain, ok := b.chains[c.Block]
	if !ok {
		return // it failed before it began
	}
	delete(b.chains, c.Block)
	chain.stop(hosts.ErrStopped)
	for _, h := range chain.targets {
		b.agents[h].Drop(c.Block)
	}
}
