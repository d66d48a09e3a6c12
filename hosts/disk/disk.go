// Package disk is the disks of emulated hosts: each a directory of its own to which
// replicas of blocks are really written, past the page cache, at no more than a
// configured rate. Volumes are those of one host.
//
// The writes of all blocks of a host are served one packet after another in the
// order they were asked for. Above the writes is a token bucket. A timer is dear
// on a virtual machine, so the bucket is a clock that runs ahead with each write,
// and a write waits only when that is ahead by more than Options.Slack. Where the
// kernel throttles the device (Options.Throttle) it is the kernel that makes writes
// wait, and the same clock only tells whether it did.
//
// Reads have a rate and a token bucket of their own, beside writes: see Reading. No
// kernel throttles them.
//
// It does not make the length of a file durable. On a file system in memory nothing reaches a device.
package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"testbed/topo/units"
	"testbed/workloads"
)

// Options are the settings of a Disk. Those that are 0 take their default, where
// they have one.
type Options struct {
	Host string     // named in errors
	Rate units.Rate // of writes; units.MaxRate leaves it to the device
	// ReadRate is the rate of reads, by default Rate. SetRate leaves it.
	ReadRate units.Rate
	// Capacity is the most that replicas may hold together, those being written
	// counted whole. 0 leaves it to the file system.
	Capacity units.Bytes
	// Burst is what an idle disk takes at once, by default what Rate carries in
	// 2 ms. It should not exceed a pipeline packet.
	Burst units.Bytes
	// Slack is how far ahead of Rate a write may return, by default 1 ms: a
	// shorter wait is left to the next write.
	Slack time.Duration
	// CatchUp is how far a busy disk may fall behind Rate, by timers that fire
	// late or a device that stalls, and make up for it afterwards; by default
	// 20 ms. What is lost beyond shows in Stats.
	CatchUp time.Duration
	// Throttle sets what holds writes to a rate in place of the token bucket, such as
	// a limit of the kernel on the device. It is set to Rate already, and called by
	// SetRate. Ahead is then how far ahead of Rate writes may return before that
	// counts as faster than Rate (Stats.Busy), by default 0: at all. Burst, Slack and
	// CatchUp have no effect.
	Throttle func(units.Rate) error
	Ahead    time.Duration
}

// Stats are what a disk has done since it was opened.
type Stats struct {
	Written units.Bytes // payload; page padding is not counted
	Writes  int         // packets
	// Busy is the time the disk had something to write. A write counts from its
	// turn to when Rate has it done or when it really ended, whichever is later,
	// so that Written / Busy is Rate on a disk that keeps up, less on one that
	// does not, and never more; under Options.Throttle, more on one that was ahead of
	// Rate by more than Options.Ahead.
	Busy time.Duration
	// Allowed is what the rates in force let the disk write while it was busy:
	// Rate times Busy unless SetRate changed it.
	Allowed units.Bytes
	Device  time.Duration // of the write calls alone
	Late    time.Duration // the most that a write ended after Rate has it done
}

// Achieved is the rate at which the disk wrote while it was busy, 0 if it never
// was.
func (s Stats) Achieved() units.Rate {
	if s.Written == 0 {
		return 0
	}
	return units.RateOf(s.Written, s.Busy)
}

// Configured is the rate that the disk was to write at while it was busy, on the
// average where that changed; 0 if it never was busy. Achieved is compared with it.
func (s Stats) Configured() units.Rate {
	if s.Busy <= 0 {
		return 0
	}
	return units.RateOf(s.Allowed, s.Busy)
}

// FullError is a block that does not fit. It is syscall.ENOSPC to errors.Is.
type FullError struct {
	Host           string
	Block          workloads.BlockID
	Size           units.Bytes // of the block
	Used, Capacity units.Bytes // Capacity is 0 where the file system was full
	Dir            string
}

func (e *FullError) Error() string {
	if e.Capacity > 0 {
		return fmt.Sprintf("disk of %s is full: block %d of %v does not fit, %v of %v are used (raise the capacity of disks, or write less)",
			e.Host, e.Block, e.Size, e.Used, e.Capacity)
	}
	return fmt.Sprintf("disk of %s is full: block %d of %v does not fit in the file system of %s, %v of it are this host's (free space there, or set the capacity of disks lower)",
		e.Host, e.Block, e.Size, e.Dir, e.Used)
}

// Is says that e is syscall.ENOSPC.
func (e *FullError) Is(target error) bool { return target == syscall.ENOSPC }

// ErrClosed is what the use of a closed disk returns.
var ErrClosed = errors.New("disk is closed")

// ErrWiped is what the use of a replica returns that was wiped while it was
// written.
var ErrWiped = errors.New("the disk was wiped")

// file is what a replica needs of its file.
type file interface {
	WriteAt(p []byte, off int64) (int, error)
	Truncate(size int64) error
	Close() error
}

// Disk is the disk of one host. Its methods may be called from any goroutine.
type Disk struct {
	o      Options
	dir    string
	flags  int // how files are opened past the page cache
	create func(path string) (file, error)
	opened time.Time
	closed chan struct{}

	turn chan struct{} // holds one; channels serve who waits in order
	// Guarded by turn:
	buf   []byte // aligned
	timer *time.Timer

	readTurn  chan struct{} // as turn, of reads
	readTimer *time.Timer   // guarded by readTurn

	mu       sync.Mutex // guards all below
	throttle throttle
	reads    throttle
	changed  chan struct{} // closed when the rate changes
	replicas map[workloads.BlockID]*Replica
	writing  map[*Replica]struct{} // whose files are open, wiped ones too
	used     units.Bytes
	begun    []workloads.BlockID // since Use was asked
	isClosed bool
	closeErr error
}

// Open makes a disk of dir, which is created if need be and must be empty.
func Open(dir string, o Options) (*Disk, error) {
	wrap := func(err error) error { return fmt.Errorf("disk of %s: %w", o.Host, err) }
	if o.Rate <= 0 {
		return nil, wrap(fmt.Errorf("rate %v: want a positive rate", o.Rate))
	}
	if o.ReadRate == 0 {
		o.ReadRate = o.Rate
	}
	if o.ReadRate < 0 {
		return nil, wrap(fmt.Errorf("rate of reads %v: want a positive rate, or 0 for that of writes", o.ReadRate))
	}
	if o.Capacity < 0 || o.Burst < 0 || o.Slack < 0 || o.CatchUp < 0 || o.Ahead < 0 {
		return nil, wrap(fmt.Errorf("capacity %v, burst %v, slack %v, catch-up %v, ahead %v: want none below 0", o.Capacity, o.Burst, o.Slack, o.CatchUp, o.Ahead))
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
		return nil, wrap(fmt.Errorf("directory %s holds %s: want an empty one, for this disk alone", dir, entries[0].Name()))
	}
	d := &Disk{
		o: o, dir: dir, opened: time.Now(), closed: make(chan struct{}), turn: make(chan struct{}, 1), readTurn: make(chan struct{}, 1),
		reads:    reads,
		throttle: throttle{rate: o.Rate, burst: burst, bucket: o.Burst, catchUp: o.CatchUp, led: o.Throttle != nil, ahead: o.Ahead}, changed: make(chan struct{}),
		replicas: make(map[workloads.BlockID]*Replica), writing: make(map[*Replica]struct{}),
	}
	d.create = func(path string) (file, error) {
		return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL|d.flags, 0o644)
	}
	if err := d.probe(); err != nil {
		return nil, wrap(err)
	}
	d.turn <- struct{}{}
	d.readTurn <- struct{}{}
	return d, nil
}

// probe finds out how the file system can be written past the page cache.
func (d *Disk) probe() error {
	var errs []error
	for _, flags := range []int{syscall.O_DIRECT, syscall.O_DSYNC} {
		d.flags = flags
		err := d.tryWrite(filepath.Join(d.dir, "probe"))
		if err == nil {
			return nil
		}
		errs = append(errs, fmt.Errorf("with %s: %w", d.Mode(), err))
	}
	return errors.Join(errs...)
}

func (d *Disk) tryWrite(path string) (err error) {
	f, err := d.create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(path)) }()
	_, err = f.WriteAt(aligned(page), 0)
	return err
}

// Mode is how the page cache is passed: "O_DIRECT", or "O_DSYNC" where the file
// system refuses that.
func (d *Disk) Mode() string {
	if d.flags == syscall.O_DSYNC {
		return "O_DSYNC"
	}
	return "O_DIRECT"
}

// Stats are counted up to the last write that has ended.
func (d *Disk) Stats() Stats {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.throttle.account()
}

// Used is the size of all replicas, those being written counted whole.
func (d *Disk) Used() units.Bytes {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.used
}

// Path is the file of a replica.
func (d *Disk) Path(block workloads.BlockID) string {
	return filepath.Join(d.dir, fmt.Sprintf("blk_%d", block))
}

// Create begins a replica and sets its whole size aside. A block that does not
// fit is a *FullError.
func (d *Disk) Create(block workloads.BlockID, size units.Bytes) (*Replica, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.isClosed:
		return nil, fmt.Errorf("create block %d on the disk of %s: %w", block, d.o.Host, ErrClosed)
	case size < 0:
		return nil, fmt.Errorf("create block %d on the disk of %s: size %d: want 0 or more", block, d.o.Host, size)
	case d.replicas[block] != nil:
		return nil, fmt.Errorf("create block %d on the disk of %s: %w (a host holds one replica of a block)", block, d.o.Host, os.ErrExist)
	case d.o.Capacity > 0 && size > d.o.Capacity-d.used:
		return nil, &FullError{Host: d.o.Host, Block: block, Size: size, Used: d.used, Capacity: d.o.Capacity, Dir: d.dir}
	}
	f, err := d.create(d.Path(block))
	if err != nil {
		return nil, d.failed(err, "create", block, size, d.used)
	}
	r := &Replica{d: d, f: f, block: block, size: size}
	d.replicas[block] = r
	d.writing[r] = struct{}{}
	d.begun = append(d.begun, block)
	d.used += size
	return r, nil
}

// failed tells a full file system from other failures.
func (d *Disk) failed(err error, what string, block workloads.BlockID, size, used units.Bytes) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return &FullError{Host: d.o.Host, Block: block, Size: size, Used: used, Dir: d.dir}
	}
	return fmt.Errorf("disk of %s: %s block %d: %w", d.o.Host, what, block, err)
}

// Remove deletes a replica and gives its space back. One that is not there is no
// error; one that is being written is.
func (d *Disk) Remove(block workloads.BlockID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.replicas[block]
	if r == nil {
		return nil
	}
	if r.f != nil {
		return fmt.Errorf("remove block %d from the disk of %s: it is being written", block, d.o.Host)
	}
	return d.forget(r)
}

// forget deletes a replica. d.mu is held.
func (d *Disk) forget(r *Replica) error {
	if err := os.Remove(d.Path(r.block)); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("disk of %s: remove block %d: %w", d.o.Host, r.block, err)
	}
	delete(d.replicas, r.block)
	d.used -= r.size
	return nil
}

// Close ends all waits with ErrClosed and closes the files that are open. What
// was written stays: the directory is its owner's to delete.
func (d *Disk) Close() error {
	d.mu.Lock()
	if d.isClosed {
		defer d.mu.Unlock()
		return d.closeErr
	}
	d.isClosed = true
	close(d.closed)
	d.mu.Unlock()

	<-d.turn // whoever writes, ends
	defer func() { d.turn <- struct{}{} }()
	d.mu.Lock()
	defer d.mu.Unlock()
	for r := range d.writing {
		if r.f != nil {
			d.closeErr = errors.Join(d.closeErr, r.f.Close())
			r.f = nil
		}
	}
	return d.closeErr
}

// take waits for the disk to be free, in the order of asking.
func (d *Disk) take(ctx context.Context) error { return d.takeOf(ctx, d.turn) }

func (d *Disk) takeOf(ctx context.Context, turn chan struct{}) error {
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

// rest waits until the write in progress is due, less Slack, however the rate
// changes meanwhile; where something else throttles the disk the write has waited
// already. The turn is held.
func (d *Disk) rest(ctx context.Context) error {
	if d.o.Throttle != nil {
		return nil
	}
	return d.restOf(ctx, &d.throttle, &d.timer)
}

// restOf waits until what a throttle has admitted last is due, less Slack. It sets the
// timer to half of Slack before that, since timers fire late: a disk that is idle
// between packets cannot make up for it, as a busy one does. The turn of the timer is
// held.
func (d *Disk) restOf(ctx context.Context, t *throttle, timer **time.Timer) error {
	for {
		d.mu.Lock()
		wait, changed := t.due-time.Since(d.opened), d.changed
		d.mu.Unlock()
		if wait <= 0 || wait < d.o.Slack {
			return nil
		}
		wait -= d.o.Slack / 2
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

// SetRate changes the rate of writes from now on, also of one that waits. What
// the disk is ahead of its rate or has saved up stays the same in bytes. A rate
// that is not positive is taken for the lowest there is: no disk stops for good. An
// error is one of Options.Throttle, and leaves the rate as it was.
func (d *Disk) SetRate(rate units.Rate) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	rate = max(rate, 1)
	if d.o.Throttle != nil {
		rate = max(rate, 8*units.Bps)
		if err := d.o.Throttle(rate); err != nil {
			return fmt.Errorf("disk of %s: change its rate to %v: %w", d.o.Host, rate, err)
		}
	}
	d.throttle.setRate(time.Since(d.opened), rate)
	close(d.changed)
	d.changed = make(chan struct{})
	return nil
}

// Wipe loses all contents, as when a disk is replaced: replicas are gone and
// their space is free. One that is being written fails with ErrWiped, and gives
// the space of its file back when its writer ends it.
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
