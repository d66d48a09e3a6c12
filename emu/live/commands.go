package live

import (
	"context"
	"errors"
	"fmt"
	"time"

	"testbed/emu/engine"
	"testbed/hosts"
	"testbed/hosts/wire"
	"testbed/topo"
	"testbed/workloads"
)

// Do is engine.Backend's.
func (b *Backend) Do(ctx context.Context, cmds []engine.Command) error {
	for _, cmd := range cmds {
		var err error
		switch c := cmd.(type) {
		case engine.Mark:
			err = b.mark(c)
		case engine.StartTransfer:
			err = b.send(c)
		case engine.SetCeiling:
			err = b.setCeiling(c)
		case engine.StartChain:
			b.write(c)
		case engine.StopTransfer:
			b.stopTransfer(c)
		case engine.StopChain: // its client has crashed, or has told that it failed
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
	h := c.Host
	switch c.Kind {
	case engine.MarkCoflow:
		return b.agents[h].Mark(wire.KindCoflowMark, c.ID, c.Parts, c.Size)
	case engine.MarkWrite:
		return b.agents[h].MarkWrite(c.ID, c.Parts, c.Size, c.Waited)
	case engine.MarkFlowFailed:
		return b.agents[h].Mark(wire.KindFlowFailed, c.ID, c.Parts, c.Size)
	case engine.MarkBlockFailed:
		return b.agents[h].Mark(wire.KindBlockFailed, c.ID, c.Parts, c.Size)
	}
	return fmt.Errorf("mark of unknown kind %d", c.Kind)
}

func (b *Backend) send(c engine.StartTransfer) error {
	if c.Read != nil && c.Flow.Src == c.Flow.Dst {
		b.readLocal(c)
		return nil
	}
	s, err := b.agents[c.Flow.Src].Prepare(hosts.Transfer{Coflow: c.Coflow, Flow: c.Flow, Hash: c.Hash, Ceiling: c.Ceiling, Read: c.Read})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancelCause(b.sendCtx)
	r := &running{flow: c.Flow.ID, src: c.Flow.Src, dst: c.Flow.Dst, hash: c.Hash, stop: stop}
	r.spine, _ = b.cfg.Fabric.SpineFor(c.Flow.Src, c.Flow.Dst, c.Hash)
	b.running, b.byFlow[c.Flow.ID] = append(b.running, r), r
	jitter := time.Duration(workloads.Stream(b.cfg.Seed, "jitter", int(c.Flow.ID)).Int64N(int64(b.cfg.Settings.Jitter) + 1))
	b.transfer.Go(func() {
		defer stop(nil)
		time.Sleep(jitter)
		err := s.Send(ctx)
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

// readLocal has a host read a block that it stores itself.
func (b *Backend) readLocal(c engine.StartTransfer) {
	b.transfer.Go(func() {
		err := b.agents[c.Flow.Src].ReadLocal(b.sendCtx, c.Flow.ID, *c.Read, c.Flow.Size)
		switch {
		case err == nil:
			b.push(engine.TransferFinished{Flow: c.Flow.ID})
		case ended(err) == nil || errors.Is(err, hosts.ErrStopped) || errors.Is(err, hosts.ErrCrashed): // the engine knows, or will miss the host
		case b.faults.explain(c.Flow.Src):
			b.push(engine.TransferFailed{Flow: c.Flow.ID, Why: err.Error()})
		default:
			b.fail(err)
		}
	})
}

// setCeiling passes over a flow whose sender is done: the engine has not heard
// yet that its receiver is.
func (b *Backend) setCeiling(c engine.SetCeiling) error {
	r := b.byFlow[c.Flow]
	if r == nil {
		return fmt.Errorf("ceiling of flow %d, which is not running", c.Flow)
	}
	err := b.agents[r.src].SetCeiling(c.Flow, c.Ceiling)
	if errors.Is(err, hosts.ErrNotSending) {
		return nil
	}
	return err
}

func (b *Backend) write(c engine.StartChain) {
	b.transfer.Go(func() {
		err := b.agents[c.Block.Client].Write(b.sendCtx, hosts.Chain{Block: c.Block, Targets: c.Targets, Hashes: c.Hashes})
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
