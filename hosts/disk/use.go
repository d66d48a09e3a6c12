package disk

import (
	"slices"

	"testbed/topo/units"
	"testbed/workloads"
)

// Use is what a host reports of its disk.
type Use struct {
	Used    units.Bytes         // as of Disk.Used
	Writing []workloads.BlockID // replicas being written, by ID
	// Begun are the replicas that were begun since Use was asked before, whatever
	// became of them, in that order.
	Begun []workloads.BlockID
}

// Use is for one caller, which hears of each replica that begins once.
func (d *Disk) Use() Use {
	d.mu.Lock()
	defer d.mu.Unlock()
	u := Use{Used: d.used, Begun: d.begun}
	d.begun = nil
	for r := range d.writing {
		if d.replicas[r.block] == r { // not wiped
			u.Writing = append(u.Writing, r.block)
		}
	}
	slices.Sort(u.Writing)
	return u
}

// Use is that of all disks of a host together.
func (v *Volumes) Use() Use {
	var all Use
	for _, d := range v.disks {
		u := d.Use()
		all.Used += u.Used
		all.Writing = append(all.Writing, u.Writing...)
		all.Begun = append(all.Begun, u.Begun...)
	}
	slices.Sort(all.Writing)
	return all
}
