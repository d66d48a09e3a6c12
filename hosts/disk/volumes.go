package disk

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"testbed/topo/units"
	"testbed/workloads"
)

// Volumes are the disks of one host. Blocks are assigned to them in round-robin order,
// like volumes of an HDFS DataNode (RoundRobinVolumeChoosingPolicy): a disk without
// space for a block is skipped. Its methods may be called from any goroutine.
type Volumes struct {
	disks []*Disk

	mu     sync.Mutex
	next   int // index of the next disk
	spills int // that were begun
}

// NewVolumes returns the volumes of a host with the given disks, at least one. The
// caller closes the disks.
func NewVolumes(disks ...*Disk) *Volumes { return &Volumes{disks: disks} }

// Disks returns the disks of the host, in order. The caller must not change the slice.
func (v *Volumes) Disks() []*Disk { return v.disks }

// Create begins a replica on the next disk, like Disk.Create. It returns a *FullError
// if no disk has space.
func (v *Volumes) Create(block workloads.BlockID, size units.Bytes) (*Replica, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var r *Replica
	return r, v.place(block, func(d *Disk) (err error) {
		r, err = d.Create(block, size)
		return err
	})
}

// Store adds a complete replica on the next disk, like Disk.Store.
func (v *Volumes) Store(block workloads.BlockID, size units.Bytes, cached bool) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.place(block, func(d *Disk) error { return d.Store(block, size, cached) })
}

// Spill begins the output of a task on the next disk. It is written and counts like a replica, but no
// block has its number, and Use does not report it.
func (v *Volumes) Spill(size units.Bytes) (*Replica, error) {
	v.mu.Lock()
	v.spills++
	id := workloads.BlockID(-v.spills)
	v.mu.Unlock()
	return v.Create(id, size)
}

// Remove deletes the replica of a block from the disk that has it: see Disk.Remove.
func (v *Volumes) Remove(block workloads.BlockID) error {
	for _, d := range v.disks {
		if err := d.Remove(block); err != nil {
			return err
		}
	}
	return nil
}

// place calls begin with the next disk, and with the others in turn while it returns that a disk is
// full. The caller holds v.mu.
func (v *Volumes) place(block workloads.BlockID, begin func(*Disk) error) error {
	for _, d := range v.disks {
		if d.hasReplica(block) {
			return fmt.Errorf("create block %d on the disks of %s: %w (a host holds one replica of a block)", block, d.o.Host, os.ErrExist)
		}
	}
	var full error
	for range v.disks {
		d := v.disks[v.next]
		v.next = (v.next + 1) % len(v.disks)
		err := begin(d)
		if err == nil || !errors.Is(err, syscall.ENOSPC) {
			return err
		}
		full = err
	}
	return full
}

// Used returns the size of all replicas on all disks.
func (v *Volumes) Used() units.Bytes {
	var n units.Bytes
	for _, d := range v.disks {
		n += d.Used()
	}
	return n
}

// SetRate changes the rate of every disk: see Disk.SetRate.
func (v *Volumes) SetRate(rate units.Rate) error {
	var errs []error
	for _, d := range v.disks {
		errs = append(errs, d.SetRate(rate))
	}
	return errors.Join(errs...)
}

// Wipe deletes the contents of every disk: see Disk.Wipe.
func (v *Volumes) Wipe() error {
	var errs []error
	for _, d := range v.disks {
		errs = append(errs, d.Wipe())
	}
	return errors.Join(errs...)
}

// hasReplica reports whether the disk has a replica of a block, complete or not.
func (d *Disk) hasReplica(block workloads.BlockID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.replicas[block] != nil
}
