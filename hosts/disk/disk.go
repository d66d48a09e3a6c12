// Package disk implements the disks of emulated hosts. Each disk is a directory to which replicas
// of blocks are written, bypassing the page cache, at no more than a configured rate. Volumes are
// the disks of one host.
//
// A disk serves the writes of all blocks one packet at a time, in the order of the requests. A
// token bucket limits them. Timers are expensive on a virtual machine, so the bucket is a clock
// that advances with each write, and a write waits only if that clock is ahead by more than
// Options.Slack. With Options.Throttle the kernel throttles the device, and the clock only checks
// the result.
//
// Reads have their own rate and token bucket: see Reading. The kernel does not throttle them.
//
// The package does not make the length of a file durable. On a file system in memory, nothing
// reaches a device.
package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"testbed/topo/units"
	"testbed/workloads"
)

// Options are the settings of a Disk. 0 means the default if there is one.
type Options struct {
	Host string     // named in errors
	Rate units.Rate // of writes; units.MaxRate means only the device limits them
	// ReadRate is the rate of reads, by default Rate. SetRate does not change it.
	ReadRate units.Rate
	// Capacity is the maximum total size of replicas; those being written count with
	// their full size. 0 means only the file system limits it.
	Capacity units.Bytes
	// Burst is the amount that an idle disk accepts at once, by default 2 ms at Rate.
	// It should not exceed a pipeline packet.
	Burst units.Bytes
	// Slack is the time by which a write may return ahead of Rate, by default 1 ms: a
	// shorter wait is left to the next write.
	Slack time.Duration
	// CatchUp is the time by which a busy disk may fall behind Rate and make up for it
	// afterwards, by default 20 ms. The causes are late timers and device stalls.
	// Stats show any further loss.
	CatchUp time.Duration
	// Throttle sets the rate of an external throttle that replaces the token bucket,
	// such as a limit of the kernel on the device. Open calls it with Rate after its own
	// writes, so that they give no credit, and SetRate with changes. Ahead is then the time by which
	// writes may return ahead of Rate before they count as faster than Rate (Stats.Busy), by default 0.
	// Burst, Slack and CatchUp have no effect on writes.
	Throttle func(units.Rate) error
	Ahead    time.Duration
}

// Stats count the operations of a disk since it was opened.
type Stats struct {
	Written units.Bytes // payload; page padding is not counted
	Writes  int         // packets
	// Busy is the time during which the disk had something to write. A write counts from its turn
	// to its end at Rate or its actual end, whichever is later. Written / Busy thus equals Rate on
	// a disk that keeps up, is lower on one that does not, and is never higher. With
	// Options.Throttle it is higher on a disk that was ahead of Rate by more than Options.Ahead.
	Busy time.Duration
	// Allowed is the amount that the configured rates allowed while the disk was busy:
	// Rate times Busy unless SetRate changed it.
	Allowed units.Bytes
	Device  time.Duration // in the write calls alone
	Late    time.Duration // maximum time from a write's end at Rate to its actual end
}

// Achieved returns the rate at which the disk wrote while it was busy, or 0 if it never was.
func (s Stats) Achieved() units.Rate {
	if s.Written == 0 {
		return 0
	}
	return units.RateOf(s.Written, s.Busy)
}

// Configured returns the configured rate while the disk was busy, averaged over
// changes; 0 if it never was busy. Compare Achieved with it.
func (s Stats) Configured() units.Rate {
	if s.Busy <= 0 {
		return 0
	}
	return units.RateOf(s.Allowed, s.Busy)
}

// FullError reports a block that does not fit. errors.Is matches it to syscall.ENOSPC.
type FullError struct {
	Host           string
	Block          workloads.BlockID
	Size           units.Bytes // of the block
	Used, Capacity units.Bytes // Capacity is 0 if the file system was full
	Dir            string
	// Backing is the directory of the disk's image if the file system of that directory is
	// full; Free is the space left on it.
	Backing string
	Free    units.Bytes
}

func (e *FullError) Error() string {
	if e.Capacity > 0 {
		return fmt.Sprintf("disk of %s is full: block %d of %v does not fit, %v of %v are used (raise the capacity of disks, or write less)",
			e.Host, e.Block, e.Size, e.Used, e.Capacity)
	}
	if e.Backing != "" {
		return fmt.Sprintf("disk of %s is full: block %d of %v does not fit: its image is in %s, whose file system has %v left (free space there, or set disk.dir to a directory with more)",
			e.Host, e.Block, e.Size, e.Backing, e.Free)
	}
	return fmt.Sprintf("disk of %s is full: block %d of %v does not fit in the file system of %s, %v of it are this host's (free space there, or set the capacity of disks lower)",
		e.Host, e.Block, e.Size, e.Dir, e.Used)
}

// Is reports whether target is syscall.ENOSPC.
func (e *FullError) Is(target error) bool { return target == syscall.ENOSPC }

// ErrClosed is the error of operations on a closed disk.
var ErrClosed = errors.New("disk is closed")

// ErrWiped is the error of operations on a replica that was wiped while it was
// written.
var ErrWiped = errors.New("the disk was wiped")

// file is the part of os.File that a replica uses.
type file interface {
	WriteAt(p []byte, off int64) (int, error)
	Truncate(size int64) error
	Close() error
}

// Disk is the disk of one host. Its methods may be called from any goroutine.
type Disk struct {
	o      Options
	dir    string
	flags  int    // open flags that bypass the page cache
	async  *async // of writes; nil without Options.Throttle
	create func(path string) (file, error)
	opened time.Time
	closed chan struct{}

	turn chan struct{} // a token: waiting goroutines receive it in order
	// Guarded by turn:
	buf   []byte // aligned
	timer *time.Timer

	readTurn  chan struct{} // the token of reads
	readTimer *time.Timer   // guarded by readTurn

	mu       sync.Mutex // guards all below
	throttle throttle
	reads    throttle
	changed  chan struct{} // closed when the rate changes
	replicas map[workloads.BlockID]*Replica
	writing  map[*Replica]struct{} // replicas with open files, including wiped ones
	used     units.Bytes
	spilled  units.Bytes         // of used: outputs of tasks
	begun    []workloads.BlockID // since the last call of Use
	isClosed bool
	closeErr error
}

// Open returns a disk in dir, which must be empty; Open creates it if it is missing.
func Open(dir string, o Options) (*Disk, error) {
	wrap := func(err error) error { return fmt.Errorf("disk of %s: %w", o.Host, err) }
	if o.Rate <= 0 {
		return nil, wrap(fmt.Errorf("rate %v: must be positive", o.Rate))
	}
	if o.ReadRate == 0 {
		o.ReadRate = o.Rate
	}
	if o.ReadRate < 0 {
		return nil, wrap(fmt.Errorf("read rate %v: must be positive, or 0 for the rate of writes", o.ReadRate))
	}
	if o.Capacity < 0 || o.Burst < 0 || o.Slack < 0 || o.CatchUp < 0 || o.Ahead < 0 {
		return nil, wrap(fmt.Errorf("capacity %v, burst %v, slack %v, catch-up %v, ahead %v: none may be negative", o.Capacity, o.Burst, o.Slack, o.CatchUp, o.Ahead))
	}
	burst := 2 * time.Millisecond
	if o.Burst > 0 {
		burst = o.Rate.TimeToSend(o.Burst)
	}
	if o.Slack == 0 {
		o.Slack = time.Millisecond
	}
	if o.CatchUp == 0 {
		o.CatchUp = 20 * time.Millisecond
	}
	reads := throttle{rate: o.ReadRate, burst: burst, bucket: o.Burst, catchUp: o.CatchUp}
	if o.Throttle != nil {
		burst, o.Burst, o.CatchUp = 0, 0, 0
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, wrap(err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, wrap(err)
	}
	if len(entries) > 0 {
		return nil, wrap(fmt.Errorf("directory %s contains %s: must be empty and used by this disk only", dir, entries[0].Name()))
	}
	d := &Disk{
		o: o, dir: dir, opened: time.Now(), closed: make(chan struct{}), turn: make(chan struct{}, 1), readTurn: make(chan struct{}, 1),
		reads:    reads,
		throttle: throttle{rate: o.Rate, burst: burst, bucket: o.Burst, catchUp: o.CatchUp, external: o.Throttle != nil, ahead: o.Ahead}, changed: make(chan struct{}),
		replicas: make(map[workloads.BlockID]*Replica), writing: make(map[*Replica]struct{}),
	}
	d.create = func(path string) (file, error) {
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|d.flags, 0o644)
		if d.async == nil || err != nil {
			return f, err
		}
		return asyncFile{f, d.async}, nil
	}
	if o.Throttle != nil {
		if d.async, err = newAsync(); err != nil {
			return nil, wrap(err)
		}
	}
	err = d.probe()
	if err == nil && o.Throttle != nil {
		err = o.Throttle(o.Rate)
	}
	if err != nil {
		return nil, wrap(errors.Join(err, d.closeAsync()))
	}
	d.turn <- struct{}{}
	d.readTurn <- struct{}{}
	return d, nil
}

// probe determines the open flags that bypass the page cache of the file system.
func (d *Disk) probe() error {
	var errs []error
	for _, flags := range []int{syscall.O_DIRECT, syscall.O_DSYNC} {
		d.flags = flags
		err := d.probeWrite(filepath.Join(d.dir, "probe"))
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("with %s: %w", d.Mode(), err))
	}
	return errors.Join(errs...)
}

func (d *Disk) probeWrite(path string) (err error) {
	f, err := d.create(path)
	if err != nil {
		// A file system without O_DIRECT refuses it after it has created the file.
		if removed := os.Remove(path); !errors.Is(removed, os.ErrNotExist) {
			err = errors.Join(err, removed)
		}
		return err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(path)) }()
	_, err = f.WriteAt(aligned(page), 0)
	return err
}

// Mode returns the open flag that bypasses the page cache: "O_DIRECT", or "O_DSYNC"
// if the file system refuses O_DIRECT.
func (d *Disk) Mode() string {
	if d.flags == syscall.O_DSYNC {
		return "O_DSYNC"
	}
	return "O_DIRECT"
}

// Stats returns the statistics up to the last finished write.
func (d *Disk) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.throttle.account()
}

// Used returns the size of all replicas; those being written count with their full
// size.
func (d *Disk) Used() units.Bytes {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.used
}

// Path returns the path of the file of a replica.
func (d *Disk) Path(block workloads.BlockID) string {
	return filepath.Join(d.dir, fmt.Sprintf("blk_%d", block))
}

// Create begins a replica and reserves its full size. It returns a *FullError if the
// block does not fit.
func (d *Disk) Create(block workloads.BlockID, size units.Bytes) (*Replica, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.isClosed:
		return nil, fmt.Errorf("create block %d on the disk of %s: %w", block, d.o.Host, ErrClosed)
	case size < 0:
		return nil, fmt.Errorf("create block %d on the disk of %s: size %d: must not be negative", block, d.o.Host, size)
	case d.replicas[block] != nil:
		return nil, fmt.Errorf("create block %d on the disk of %s: %w (a host holds one replica of a block)", block, d.o.Host, os.ErrExist)
	case d.o.Capacity > 0 && size > d.o.Capacity-d.used:
		return nil, &FullError{Host: d.o.Host, Block: block, Size: size, Used: d.used, Capacity: d.o.Capacity, Dir: d.dir}
	}
	f, err := d.create(d.Path(block))
	if err != nil {
		return nil, d.failed(err, "create", block, size, d.used)
	}
	if d.async != nil { // no write extends the file: see asyncFile
		if err := f.Truncate(int64((size + page - 1) / page * page)); err != nil {
			err = errors.Join(err, f.Close(), os.Remove(d.Path(block)))
			return nil, d.failed(err, "create", block, size, d.used)
		}
	}
	r := &Replica{d: d, f: f, block: block, size: size}
	d.replicas[block] = r
	d.writing[r] = struct{}{}
	d.used += size
	if block < 0 {
		d.spilled += size
	} else {
		d.begun = append(d.begun, block)
	}
	return r, nil
}

// Store adds a complete replica of zeros that takes no space of the file system, as if it had been
// written before the disk was opened. Capacity and Used count it. Reads of a cached replica use the page
// cache: no rate limits them, and ReadStats does not count them.
func (d *Disk) Store(block workloads.BlockID, size units.Bytes, cached bool) error {
	r, err := d.Create(block, size)
	if err != nil {
		return err
	}
	d.mu.Lock()
	d.begun = slices.DeleteFunc(d.begun, func(b workloads.BlockID) bool { return b == block })
	r.written, r.cached = size, cached
	d.mu.Unlock()
	if err := r.Commit(); err != nil { // sets the size of the file
		return errors.Join(err, r.Abort())
	}
	return nil
}

// failed returns a FullError if err means a full file system, otherwise wraps err.
func (d *Disk) failed(err error, what string, block workloads.BlockID, size, used units.Bytes) error {
	if backing, free, full := fullBacking(d.dir, err); full {
		return &FullError{Host: d.o.Host, Block: block, Size: size, Used: used, Dir: d.dir, Backing: backing, Free: free}
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return &FullError{Host: d.o.Host, Block: block, Size: size, Used: used, Dir: d.dir}
	}
	return fmt.Errorf("disk of %s: %s block %d: %w", d.o.Host, what, block, err)
}

// Remove deletes a replica and frees its space. A missing replica is not an error; a
// replica that is being written is.
func (d *Disk) Remove(block workloads.BlockID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.replicas[block]
	if r == nil {
		return nil
	}
	if r.f != nil {
		return fmt.Errorf("remove block %d from the disk of %s: block is being written", block, d.o.Host)
	}
	return d.forget(r)
}

// forget deletes a replica. The caller holds d.mu.
func (d *Disk) forget(r *Replica) error {
	if err := os.Remove(d.Path(r.block)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("disk of %s: remove block %d: %w", d.o.Host, r.block, err)
	}
	delete(d.replicas, r.block)
	d.used -= r.size
	if r.block < 0 {
		d.spilled -= r.size
	}
	return nil
}

// Close ends all waits with ErrClosed and closes open files. The written data stays:
// the caller deletes the directory.
func (d *Disk) Close() error {
	d.mu.Lock()
	if d.isClosed {
		defer d.mu.Unlock()
		return d.closeErr
	}
	d.isClosed = true
	close(d.closed)
	d.mu.Unlock()

	<-d.turn // waits for the write in progress
	defer func() { d.turn <- struct{}{} }()
	d.mu.Lock()
	defer d.mu.Unlock()
	for r := range d.writing {
		if r.f != nil {
			d.closeErr = errors.Join(d.closeErr, r.f.Close())
			r.f = nil
		}
	}
	d.closeErr = errors.Join(d.closeErr, d.closeAsync())
	return d.closeErr
}

func (d *Disk) closeAsync() error {
	if d.async == nil {
		return nil
	}
	return d.async.Close()
}

// acquireWrite waits for the turn to write, in the order of the calls.
func (d *Disk) acquireWrite(ctx context.Context) error { return d.acquire(ctx, d.turn) }

func (d *Disk) acquire(ctx context.Context, turn chan struct{}) error {
	select {
	case <-d.closed:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	default:
	}
	select {
	case <-turn:
		return nil
	case <-d.closed:
		return ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// waitWrite waits until the write in progress is due, minus Slack, and follows changes of the rate.
// With Options.Throttle it returns at once: the write itself has waited. The caller holds turn.
func (d *Disk) waitWrite(ctx context.Context) error {
	if d.o.Throttle != nil {
		return nil
	}
	return d.waitDue(ctx, &d.throttle, &d.timer)
}

// waitDue waits until the last admitted operation of t is due, minus Slack. Timers fire late, by up
// to a millisecond in an idle program, so it sets the timer most of Slack earlier. A disk that is
// idle between packets cannot make up for lateness; a busy disk can. The caller holds the turn of
// the timer.
func (d *Disk) waitDue(ctx context.Context, t *throttle, timer **time.Timer) error {
	for {
		d.mu.Lock()
		wait, changed := t.due-time.Since(d.opened), d.changed
		d.mu.Unlock()
		if wait <= 0 || wait < d.o.Slack {
			return nil
		}
		wait -= d.o.Slack * 7 / 8
		if *timer == nil {
			*timer = time.NewTimer(wait)
		} else {
			(*timer).Reset(wait)
		}
		select {
		case <-(*timer).C:
		case <-changed:
			(*timer).Stop()
		case <-d.closed:
			(*timer).Stop()
			return ErrClosed
		case <-ctx.Done():
			(*timer).Stop()
			return context.Cause(ctx)
		}
	}
}

// SetRate changes the rate of writes from now on, also of a waiting write. The lead
// over the rate and the saved burst stay the same in bytes. A rate that is not
// positive becomes the lowest rate, so that every disk makes progress. An error comes
// from Options.Throttle and leaves the rate unchanged.
func (d *Disk) SetRate(rate units.Rate) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	rate = max(rate, 1)
	if d.o.Throttle != nil {
		rate = max(rate, 8*units.Bps)
		if err := d.o.Throttle(rate); err != nil {
			return fmt.Errorf("disk of %s: set rate %v: %w", d.o.Host, rate, err)
		}
	}
	d.throttle.setRate(time.Since(d.opened), rate)
	close(d.changed)
	d.changed = make(chan struct{})
	return nil
}

// Wipe deletes all contents, as when a disk is replaced, and frees their space. A
// replica that is being written fails with ErrWiped; its file frees its space when the
// writer ends it.
func (d *Disk) Wipe() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isClosed {
		return fmt.Errorf("wipe the disk of %s: %w", d.o.Host, ErrClosed)
	}
	var errs []error
	for _, r := range d.replicas {
		if err := d.forget(r); err != nil {
			errs = append(errs, err)
			continue
		}
		r.wiped = true
	}
	return errors.Join(errs...)
}
