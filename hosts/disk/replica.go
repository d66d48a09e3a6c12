package disk

import (
	"context"
	"fmt"
	"os"
	"time"
	"unsafe"

	"testbed/topo/units"
	"testbed/workloads"
)

// page is the alignment of direct writes, in memory and in the file. It is a
// multiple of the block size of the devices in use.
const page = 4096

// aligned returns a buffer of n bytes that begins at a multiple of page.
func aligned(n int) []byte {
	b := make([]byte, n+page)
	skip := 0
	if off := int(uintptr(unsafe.Pointer(&b[0])) % page); off > 0 {
		skip = page - off
	}
	return b[skip : skip+n : skip+n]
}

// Replica is one copy of a block that is being written, or the output of a task (Volumes.Spill). One
// goroutine writes it.
type Replica struct {
	d     *Disk
	f     file              // nil once closed; guarded by d.mu, changed only with the turn held
	block workloads.BlockID // negative for the output of a task
	size  units.Bytes

	written units.Bytes
	tail    []byte // the written bytes beyond the last whole page
	whole   bool   // committed; guarded by d.mu
	wiped   bool   // guarded by d.mu
	cached  bool   // see Disk.Store; guarded by d.mu
}

// Written returns the number of bytes of the block on the disk. Only the writer may
// call it.
func (r *Replica) Written() units.Bytes { return r.written }

// Whole reports whether the replica has been committed.
func (r *Replica) Whole() bool {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	return r.whole
}

// Err returns ErrWiped if the replica was wiped, otherwise nil.
func (r *Replica) Err() error {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	if r.wiped {
		return ErrWiped
	}
	return nil
}

// Write writes the next packet of the block and returns when the packet is
// written and the rate of the disk allows it. After an error, Written shows whether
// the packet was written; a writer that takes over the replica continues from there.
func (r *Replica) Write(ctx context.Context, p []byte) error {
	d := r.d
	if err := d.acquireWrite(ctx); err != nil {
		return fmt.Errorf("disk of %s: write block %d at %d: %w", d.o.Host, r.block, r.written, err)
	}
	defer func() { d.turn <- struct{}{} }()
	n := units.Bytes(len(p))
	if n > r.size-r.written {
		return fmt.Errorf("disk of %s: write block %d: %d bytes at %d go beyond its size of %d", d.o.Host, r.block, n, r.written, r.size)
	}
	f, err := r.open()
	if err != nil {
		return err
	}
	before := time.Since(d.opened)
	d.mu.Lock()
	d.throttle.admit(before, n)
	d.mu.Unlock()
	err = r.put(f, p)
	after := time.Since(d.opened)
	var waited error
	if err == nil {
		r.written += n
		waited = d.waitWrite(ctx)
	}
	d.mu.Lock()
	if err == nil {
		d.throttle.finish(time.Since(d.opened), n, after-before)
	} else {
		d.throttle.writing = false
	}
	d.mu.Unlock()
	if err != nil {
		return d.failed(err, fmt.Sprintf("write at %d of", r.written), r.block, r.size, d.Used())
	}
	if waited != nil {
		return fmt.Errorf("disk of %s: write block %d at %v: %w", d.o.Host, r.block, d.o.Rate, waited)
	}
	return nil
}

func (r *Replica) open() (file, error) {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	if r.wiped {
		return nil, fmt.Errorf("disk of %s: write block %d: %w", r.d.o.Host, r.block, ErrWiped)
	}
	if r.f == nil {
		return nil, fmt.Errorf("disk of %s: write block %d: %w", r.d.o.Host, r.block, os.ErrClosed)
	}
	return r.f, nil
}

// put writes p in whole pages. It pads the last page and writes it again with the
// next packet. Under Options.Throttle that page would count twice, an eighth more for
// packets of 32 kB: there an incomplete last page waits for the next packet, except at
// the end of the block. The caller holds the turn.
func (r *Replica) put(f file, p []byte) error {
	d := r.d
	from := int64(r.written) - int64(len(r.tail))
	filled := len(r.tail) + len(p)
	padded := (filled + page - 1) / page * page
	if len(d.buf) < padded {
		d.buf = aligned(padded)
	}
	buf := d.buf[:padded]
	copy(buf, r.tail)
	copy(buf[len(r.tail):], p)
	clear(buf[filled:])
	if d.o.Throttle != nil && r.written+units.Bytes(len(p)) < r.size {
		padded = filled / page * page
	}
	if padded > 0 {
		if _, err := f.WriteAt(buf[:padded], from); err != nil {
			return err
		}
	}
	r.tail = append(r.tail[:0], buf[filled/page*page:filled]...)
	return nil
}

// Commit completes a replica that has all its bytes. Committing twice is not an error.
func (r *Replica) Commit() error {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	if r.wiped {
		return fmt.Errorf("disk of %s: commit block %d: %w", r.d.o.Host, r.block, ErrWiped)
	}
	if r.whole {
		return nil
	}
	if r.written < r.size {
		return fmt.Errorf("disk of %s: commit block %d: has %d of its %d bytes", r.d.o.Host, r.block, r.written, r.size)
	}
	if r.f == nil {
		return fmt.Errorf("disk of %s: commit block %d: %w", r.d.o.Host, r.block, os.ErrClosed)
	}
	err := r.f.Truncate(int64(r.size)) // cuts the padding
	if err2 := r.f.Close(); err == nil {
		err = err2
	}
	r.f, r.tail = nil, nil
	delete(r.d.writing, r)
	if err != nil {
		return r.d.failed(err, "commit", r.block, r.size, r.d.used)
	}
	r.whole = true
	return nil
}

// Abort deletes a replica that has not been committed and frees its space; after
// Commit it does nothing. Only the writer may call it.
func (r *Replica) Abort() error {
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	if r.whole {
		return nil
	}
	delete(r.d.writing, r)
	if r.f != nil {
		if err := r.f.Close(); err != nil {
			return fmt.Errorf("disk of %s: abort block %d: %w", r.d.o.Host, r.block, err)
		}
		r.f = nil
	}
	if r.d.replicas[r.block] != r { // wiped, or aborted before
		return nil
	}
	return r.d.forget(r)
}

// Remove deletes the replica, complete or not, and frees its space. Its writer must have ended. A
// replica that was wiped or removed before is not an error.
func (r *Replica) Remove() error {
	if err := r.Abort(); err != nil {
		return err
	}
	r.d.mu.Lock()
	defer r.d.mu.Unlock()
	if r.d.replicas[r.block] != r {
		return nil
	}
	return r.d.forget(r)
}
