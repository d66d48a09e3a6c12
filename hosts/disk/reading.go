package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"testbed/topo/units"
	"testbed/workloads"
)

// ReadChunk is the size of one read: several Readings share a disk chunk by chunk. It
// is a multiple of the page size.
const ReadChunk = 64 * units.KiB

// Reading reads a complete replica from its beginning. One goroutine may use it. A
// disk serves reads one chunk after another in the order of the requests, at no more
// than Options.ReadRate. They bypass the page cache if writes use O_DIRECT. Reads of a
// cached replica do neither: see Disk.Store.
type Reading struct {
	d      *Disk
	f      *os.File
	block  workloads.BlockID
	size   units.Bytes
	at     units.Bytes
	cached bool
}

// ErrNoReplica is the error of reading a block without a complete replica on the host.
var ErrNoReplica = errors.New("host has no complete replica of the block")

// Read opens a replica for reading. The caller closes it.
func (d *Disk) Read(block workloads.BlockID) (*Reading, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	wrap := func(err error) error { return fmt.Errorf("disk of %s: read block %d: %w", d.o.Host, block, err) }
	r := d.replicas[block]
	switch {
	case d.isClosed:
		return nil, wrap(ErrClosed)
	case r == nil || !r.whole:
		return nil, wrap(ErrNoReplica)
	}
	flags := os.O_RDONLY
	if d.flags == syscall.O_DIRECT && !r.cached {
		flags |= syscall.O_DIRECT
	}
	f, err := os.OpenFile(d.Path(block), flags, 0)
	if err != nil {
		return nil, wrap(err)
	}
	return &Reading{d: d, f: f, block: block, size: r.size, cached: r.cached}, nil
}

// Read calls Disk.Read of the disk that has the block.
func (v *Volumes) Read(block workloads.BlockID) (*Reading, error) {
	for _, d := range v.disks {
		if d.hasReplica(block) {
			return d.Read(block)
		}
	}
	return v.disks[0].Read(block) // returns ErrNoReplica
}

// Size returns the size of the block.
func (r *Reading) Size() units.Bytes { return r.size }

// Buffer returns an aligned buffer of ReadChunk bytes for Next.
func Buffer() []byte { return aligned(int(ReadChunk)) }

// Next reads the next chunk into buf, which must come from Buffer; the last chunk of
// the block may be shorter. It returns when the rate of the disk allows it, and io.EOF
// at the end.
func (r *Reading) Next(ctx context.Context, buf []byte) (n int, err error) {
	d := r.d
	if r.at == r.size {
		return 0, io.EOF
	}
	wrap := func(err error) error {
		return fmt.Errorf("disk of %s: read block %d at %d: %w", d.o.Host, r.block, r.at, err)
	}
	want := min(ReadChunk, r.size-r.at)
	if r.cached {
		if err := ctx.Err(); err != nil {
			return 0, wrap(context.Cause(ctx))
		}
		if n, err = r.f.ReadAt(buf[:want], int64(r.at)); units.Bytes(n) < want {
			return 0, wrap(short(n, want, err))
		}
		r.at += want
		return n, nil
	}
	if err := d.acquire(ctx, d.readTurn); err != nil {
		return 0, wrap(err)
	}
	defer func() { d.readTurn <- struct{}{} }()
	before := time.Since(d.opened)
	d.mu.Lock()
	d.reads.admit(before, want)
	d.mu.Unlock()
	// Read into all of the buffer: a direct read must be of whole pages. At the end of
	// the file it returns less.
	n, err = r.f.ReadAt(buf[:ReadChunk], int64(r.at))
	after := time.Since(d.opened)
	if units.Bytes(n) >= want {
		n, err = int(want), d.waitDue(ctx, &d.reads, &d.readTimer)
	} else {
		err = short(n, want, err)
	}
	d.mu.Lock()
	if err == nil {
		d.reads.finish(time.Since(d.opened), want, after-before)
	} else {
		d.reads.writing = false
	}
	d.mu.Unlock()
	if err != nil {
		return 0, wrap(err)
	}
	r.at += want
	return n, nil
}

// short returns the error of a read of too few bytes.
func short(n int, want units.Bytes, err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return fmt.Errorf("%d of %d bytes: %w", n, want, io.ErrUnexpectedEOF)
	}
	return err
}

// Close closes the file.
func (r *Reading) Close() error { return r.f.Close() }

// ReadStats returns the statistics of reads: Written counts bytes read, Writes chunks.
func (d *Disk) ReadStats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reads.account()
}
