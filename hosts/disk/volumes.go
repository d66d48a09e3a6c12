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

// Volumes are the disks of one host. Blocks go to them in turn, as a DataNode of HDFS
// chooses volumes (RoundRobinVolumeChoosingPolicy): one that has no room for a block is
// passed over. Its methods may be called from any goroutine.
type Volumes struct {
	disks []*Disk

	mu   sync.Mutex
	next int // whose turn it is
}

// NewVolumes makes one host's of its disks, at least one. They stay their owner's to
// close.
func NewVolumes(disks ...*Disk) *Volumes { return &Volumes{disks: disks} }

// Disks are the host's, in order; not to be written to.
func (v *Volumes) Disks() []*Disk { return v.disks }

// Create begins a replica on the disk whose turn it is, as Disk.Create does. It is a
// *FullError where no disk has room.
func (v *Volumes) Create(block workloads.BlockID, size units.Bytes) (*Replica, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, d := range v.disks {
		if d.holds(block) {
			return nil, fmt.Errorf("create block %d on the disks of %s: %w (a host holds one replica of a block)", block, d.o.Host, os.ErrExist)
		}
	}
	var full error
	for range v.disks {
		d := v.disks[v.next]
		v.next = (v.next + 1) % len(v.disks)
		r, err := d.Create(block, size)
		if err == nil || !errors.Is(err, syscall.ENOSPC) {
			return r, err
		}
		full = err
	}
	return nil, full
}

// Used is the size of all replicas on all disks.
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

// Wipe loses the contents of every disk: see Disk.Wipe.
func (v *Volumes) Wipe() error {
	var errs []error
	for _, d := range v.disks {
		errs = append(errs, d.Wipe())
	}
	return errors.Join(errs...)
}

// holds tells whether a replica of a block is here, whole or not.
func (d *Disk) holds(block workloads.BlockID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.replicas[block] != nil
}
