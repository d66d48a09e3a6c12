package hosts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"testbed/hosts/disk"
	"testbed/topo/units"
	"testbed/workloads"
)

// readAhead is the number of chunks of a replica that are read ahead of sending, so that disk and
// network work in parallel. A DataNode of HDFS reads 4 MB ahead.
const readAhead = 4

// replicaStream reads a replica from the disk ahead of its use. skip may be called on nil.
type replicaStream struct {
	r      *disk.Reading
	free   chan []byte // buffers to read into
	filled chan []byte // closed at the end of the replica, or once err is set
	err    error       // valid once filled is closed
	cancel context.CancelFunc

	chunk []byte // the current buffer from filled
	rest  []byte // the part of chunk that has not been skipped
}

// readReplica begins to read a replica, which must have the given size.
func (a *Agent) readReplica(ctx context.Context, block workloads.BlockID, size units.Bytes) (*replicaStream, error) {
	if a.o.Disk == nil {
		return nil, fmt.Errorf("read block %d: %s has no disk", block, a.name())
	}
	r, err := a.o.Disk.Read(block)
	if err != nil {
		return nil, err
	}
	if r.Size() != size {
		return nil, errors.Join(fmt.Errorf("read block %d at %s: replica has %v, expected %v", block, a.name(), r.Size(), size), r.Close())
	}
	s := &replicaStream{r: r, free: make(chan []byte, readAhead), filled: make(chan []byte, readAhead)}
	for range readAhead {
		s.free <- disk.Buffer()
	}
	ctx, s.cancel = context.WithCancel(ctx)
	go s.run(ctx)
	return s, nil
}

func (s *replicaStream) run(ctx context.Context) {
	defer close(s.filled)
	for {
		select {
		case buf := <-s.free:
			n, err := s.r.Next(ctx, buf)
			if err != nil {
				if !errors.Is(err, io.EOF) {
					s.err = err
				}
				return
			}
			s.filled <- buf[:n] // never blocks: there are only readAhead buffers
		case <-ctx.Done():
			s.err = context.Cause(ctx)
			return
		}
	}
}

// peek returns at least 1 byte of data that has been read and not skipped, or io.ErrUnexpectedEOF
// after the end.
func (s *replicaStream) peek(ctx context.Context) ([]byte, error) {
	if len(s.rest) > 0 {
		return s.rest, nil
	}
	if s.chunk != nil {
		s.free <- s.chunk[:cap(s.chunk)]
		s.chunk = nil
	}
	select {
	case chunk, more := <-s.filled:
		switch {
		case more:
			s.chunk, s.rest = chunk, chunk
			return chunk, nil
		case s.err != nil:
			return nil, s.err
		}
		return nil, io.ErrUnexpectedEOF
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (s *replicaStream) skip(n int) {
	if s != nil {
		s.rest = s.rest[n:]
	}
}

// close stops the reader, waits for its end and closes the file.
func (s *replicaStream) close() error {
	s.cancel()
	for range s.filled {
	}
	return s.r.Close()
}

// ReadLocal reads a replica of the given size that this host stores, and sends nothing. It consumes
// it at the rate of Expect, and Received counts it. Stop of flow ends it. It returns ErrStopped and ErrCrashed as Sender.Send does.
func (a *Agent) ReadLocal(ctx context.Context, flow workloads.FlowID, block workloads.BlockID, size units.Bytes) error {
	l := a.current()
	ctx, release := l.within(ctx)
	defer release()
	ctx, release = withEnd(ctx, a.stopperOf(flow).ctx)
	defer release()
	received := new(Received)
	err := a.registerIncoming(flow, received)
	if err == nil {
		c := a.consumerOf(flow)
		if err = a.readLocal(ctx, block, size, c, received); err == nil {
			err = a.markConsumed(c, size, time.Now())
		}
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s: read block %d: %w", a.name(), block, err)
	}
	return nil
}

func (a *Agent) readLocal(ctx context.Context, block workloads.BlockID, size units.Bytes, c *consumer, received *Received) (err error) {
	s, err := a.readReplica(ctx, block, size)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	for left := size; left > 0; {
		if err := a.cpu.turn(ctx); err != nil {
			return err
		}
		b, err := s.peek(ctx)
		if err != nil {
			return err
		}
		s.skip(len(b))
		left -= units.Bytes(len(b))
		if err := c.consume(ctx, units.Bytes(len(b)), left == 0); err != nil {
			return err
		}
		received.read.Add(int64(len(b)))
	}
	return nil
}
