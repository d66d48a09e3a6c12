package disk

import (
	"slices"

	"testbed/topo/units"
	"testbed/workloads"
)

// Use is the report of a host on its disks. It omits the outputs of tasks.
type Use struct {
	Used    units.Bytes         // by replicas: see Disk.Used
	Writing []workloads.BlockID // replicas being written, by ID
	// Begun lists the replicas begun since the previous call of Use, in that order,
	// also those that were removed since.
	Begun []workloads.BlockID
}

// Use returns the current use. Each begun replica is reported once, so Use must have
// only one caller.
func (d *Disk) Use() Use {
	d.mu.Lock()
	defer d.mu.Unlock()
	u := Use{Used: d.used - d.spilled, Begun: d.begun}
	d.begun = nil
	for r := range d.writing {
		if r.block >= 0 && d.replicas[r.block] == r { // not wiped
			u.Writing = append(u.Writing, r.block)
		}
	}
	slices.Sort(u.Writing)
	return u
}

// Use returns the combined use of all disks of a host: see Disk.Use.
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
