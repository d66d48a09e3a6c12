package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"testbed/results/safefile"
)

// stdio is the name of standard input and output among files.
const stdio = "-"

// input opens a file that the user named, or standard input, and returns its name in
// messages. Reads fail once ctx is cancelled.
func (a *app) input(ctx context.Context, what, path string) (_ io.ReadCloser, name string, err error) {
	if path == stdio {
		return io.NopCloser(newWaiting(ctx, a.stdin)), "standard input", nil
	}
	f, err := safefile.Open(path)
	if err != nil {
		return nil, path, withPipeHint(fmt.Errorf("read %s %s: %w", what, path, safefile.Reason(err)))
	}
	return ctxFile{ctx, f}, path, nil
}

// withPipeHint adds to the error of a path that is a pipe how to read one.
func withPipeHint(err error) error {
	if !errors.Is(err, safefile.ErrPipe) {
		return err
	}
	return hinted{err, fmt.Sprintf("to read a pipe, name standard input, %s: COMMAND | testbed …", stdio)}
}

// ctxFile is a file whose reads fail with the cause of ctx once it is cancelled.
type ctxFile struct {
	ctx context.Context
	io.ReadCloser
}

func (r ctxFile) Read(p []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.ReadCloser.Read(p)
}

// waiting is a stream whose reads can block, and return at once when ctx is cancelled.
// A goroutine that then still waits for the stream ends with the process: a read of
// standard input cannot be interrupted.
type waiting struct {
	ctx    context.Context
	blocks chan block
	rest   []byte
	err    error
}

// block is the result of one read.
type block struct {
	data []byte
	err  error
}

func newWaiting(ctx context.Context, r io.Reader) *waiting {
	w := &waiting{ctx: ctx, blocks: make(chan block)}
	go func() {
		for {
			data := make([]byte, 1<<16)
			n, err := r.Read(data)
			select {
			case w.blocks <- block{data[:n], err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return w
}

func (w *waiting) Read(p []byte) (int, error) {
	if err := context.Cause(w.ctx); err != nil {
		return 0, err
	}
	for len(w.rest) == 0 {
		if w.err != nil {
			return 0, w.err
		}
		select {
		case b := <-w.blocks:
			w.rest, w.err = b.data, b.err
		case <-w.ctx.Done():
			return 0, context.Cause(w.ctx)
		}
	}
	n := copy(p, w.rest)
	w.rest = w.rest[n:]
	return n, nil
}
