package disk

import "testbed/topo/units"

// What faults need of a disk, as thin as it compiles: it is replaced as a whole.

// SetRate changes the rate of writes from now on.
func (d *Disk) SetRate(r units.Rate) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.throttle.rate = r
}

// Wipe loses what is stored.
func (d *Disk) Wipe() error { return nil }
