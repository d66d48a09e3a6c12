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

// ReadChunk is what a Reading reads at a time: several of one disk share it chunk by
// chunk. It is whole pages.
const ReadChunk = 64 * units.KiB

// Reading reads a replica that is whole, from its beginning. It is for one goroutine.
// Reads of a disk are served one chunk after another in the order they were asked for,
// past the page cache where writes are with O_DIRECT, and at no more than
// Options.ReadRate.
type Reading struct {
	d     *Disk
	f     *os.File
	block workloads.BlockID
	size  units.Bytes
	at    units.Bytes
}

// ErrNoReplica is a block of which a host has no whole replica.
var ErrNoReplica = errors.New("no whole replica of it is here")

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
	if d.flags == syscall.O_DIRECT {
		flags |= syscall.O_DIRECT
	}
	f, err := os.OpenFile(d.Path(block), flags, 0)
	if err != nil {
		return nil, wrap(err)
	}
	return &Reading{d: d, f: f, block: block, size: r.size}, nil
}

// Read is Disk.Read of the disk that has the block.
func (v *Volumes) Read(block workloads.BlockID) (*Reading, error) {
	for _, d := range v.disks {
		if d.holds(block) {
			return d.Read(block)
		}
	}
	return v.disks[0].Read(block) // which says that it is not there
}

// Size is that of the block.
func (r *Reading) Size() units.Bytes { return r.size }

// Buffer is one for Next: aligned, of a ReadChunk.
func Buffer() []byte { return aligned(int(ReadChunk)) }

// Next reads the next chunk into a Buffer, less of it at the end of the block, and
// returns when the rate of the disk has it read; io.EOF is the end.
func (r *Reading) Next(ctx context.Context, buf []byte) (n int, err error) {
	d := r.d
	if r.at == r.size {
		return 0, io.EOF
	}
	wrap := func(err error) error {
		return fmt.Errorf("disk of %s: read block %d at %d: %w", d.o.Host, r.block, r.at, err)
	}
	if err := d.takeOf(ctx, d.readTurn); err != nil {
		return 0, wrap(err)
	}
	defer func() { d.readTurn <- struct{}{} }()
	want := min(ReadChunk, r.size-r.at)
	before := time.Since(d.opened)
	d.mu.Lock()
	d.reads.admit(before, want)
	d.mu.Unlock()
	// All of the buffer, for a direct read wants whole pages; at the end of the file
	// there is less.
	n, err = r.f.ReadAt(buf[:ReadChunk], int64(r.at))
	after := time.Since(d.opened)
	if units.Bytes(n) >= want {
		n, err = int(want), d.restOf(ctx, &d.reads, &d.readTimer)
	} else if err == nil || errors.Is(err, io.EOF) {
		err = fmt.Errorf("%d of %d bytes: %w", n, want, io.ErrUnexpectedEOF)
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

// Close frees the file.
func (r *Reading) Close() error { return r.f.Close() }

// ReadStats are as Stats, of reads: Written counts what was read, and Writes chunks.
func (d *Disk) ReadStats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.reads.account()
}
