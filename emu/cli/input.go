package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"testbed/emu/scenario"
	"testbed/results/safefile"
	"testbed/topo/magic"
	"testbed/workloads"
	"testbed/workloads/jobs"
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

// textFile is an input that should be text in one of some formats.
type textFile struct {
	*bufio.Reader
	io.Closer
	name string // in messages
	head []byte // the first bytes, by which other formats are recognised
}

// text opens an input for text; see input.
func (a *app) text(ctx context.Context, what, path string) (*textFile, error) {
	in, name, err := a.input(ctx, what, path)
	if err != nil {
		return nil, err
	}
	r := bufio.NewReader(in)
	head, _ := r.Peek(r.Size()) // the reader of the format returns the error
	return &textFile{r, in, name, bytes.Clone(head)}, nil
}

// refuse returns err, the error of reading the file in the format read, or an error that names the
// format if it certainly is another one.
func (f *textFile) refuse(err error, read jobs.Format) error {
	return refuse(err, f.name, f.head, read)
}

func refuse(err error, name string, head []byte, read jobs.Format) error {
	var invalid *workloads.TraceErrors
	var inScenario *scenario.Errors
	if !errors.As(err, &invalid) && !errors.As(err, &inScenario) {
		return err
	}
	if is, ok := jobs.Recognise(head); ok && is != read {
		return fmt.Errorf("%s: it is %s: expected %s (for this file: %s)", name, is.Name, read.Name, is.Command)
	}
	return err
}

// pipeline returns the command line that decompresses the compressed file among the arguments of a
// verb, and passes it to the verb's standard input; "" if there is none.
func pipeline(args []string, kind magic.Kind) string {
	at := slices.IndexFunc(args, func(arg string) bool {
		f, err := safefile.Open(arg)
		if err != nil {
			return false
		}
		defer f.Close() // only read from
		head := make([]byte, magic.Len)
		n, _ := io.ReadFull(f, head)
		return magic.Of(head[:n]) == kind
	})
	if at < 0 || kind.Filter() == "" {
		return ""
	}
	to := slices.Clone(args)
	to[at] = stdio
	return fmt.Sprintf("%s %s | testbed %s", kind.Filter(), args[at], strings.Join(to, " "))
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
