package live

import (
	"fmt"
	"path/filepath"
	"strconv"

	"testbed/emu/fidelity"
	"testbed/emu/kernel"
	"testbed/hosts/disk"
	"testbed/topo"
	"testbed/topo/units"
)

// openDisks opens the disks of a host: where it has one, the directory of its name,
// else directories of that by their number, or file systems that there are.
func (b *Backend) openDisks(h topo.HostID) (*disk.Volumes, error) {
	name, count := b.cfg.Fabric.HostName(h), max(b.cfg.DiskCount, 1)
	var disks []*disk.Disk
	for i := range count {
		o := disk.Options{Host: name, Rate: b.cfg.DiskRates[h], ReadRate: b.cfg.DiskRead, Capacity: b.cfg.DiskSize}
		dir := filepath.Join(b.cfg.Disks, name)
		switch number := int(h)*count + i; {
		case b.cfg.Kernel != nil:
			dir = b.cfg.Kernel.Dir(number)
			o.Throttle, o.Ahead = func(r units.Rate) error { return b.cfg.Kernel.SetRate(number, r) }, kernel.ThrottleAhead
		case count > 1:
			dir = filepath.Join(dir, strconv.Itoa(i))
		}
		d, err := disk.Open(dir, o)
		if err != nil {
			return nil, err
		}
		disks = append(disks, d)
		b.disks = append(b.disks, d) // to be closed, whatever becomes of the others
	}
	v := disk.NewVolumes(disks...)
	b.volumes = append(b.volumes, v)
	return v, nil
}

// store puts the blocks of Config.Stored on the disks of their hosts.
func (b *Backend) store() error {
	for _, s := range b.cfg.Stored {
		for _, h := range s.Hosts {
			if int(h) < 0 || int(h) >= len(b.volumes) {
				return fmt.Errorf("store block %d on host %d: no such host has a disk: configure disks of all hosts", s.Block, h)
			}
			if err := b.volumes[h].Store(s.Block, s.Size, s.Cached); err != nil {
				return fmt.Errorf("store the input of tasks: %w", err)
			}
		}
	}
	return nil
}

// wrote is what each disk wrote, and read if it was, for the verdict.
func (b *Backend) wrote() (out []fidelity.Disk) {
	for h, v := range b.volumes {
		for i, d := range v.Disks() {
			did := func(s disk.Stats, reads bool) {
				out = append(out, fidelity.Disk{Host: b.cfg.Fabric.HostName(topo.HostID(h)), Number: i, Of: len(v.Disks()), Rate: s.Configured(), Written: s.Written, Busy: s.Busy, Reads: reads})
			}
			did(d.Stats(), false)
			if s := d.ReadStats(); s.Written > 0 {
				did(s, true)
			}
		}
	}
	return out
}
