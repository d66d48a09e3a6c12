package runner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"testbed/emu/deploy"
	"testbed/emu/kernel"
	"testbed/emu/scenario"
	"testbed/topo"
)

// kernelDisks creates the disks of all hosts, by host and number, under a directory of the
// testbed. The record of the testbed names them before they are created.
func kernelDisks(ctx context.Context, owned *deploy.Owned, id, dir string, f *topo.Fabric, d scenario.Disk) (*kernel.Disks, error) {
	fail := func(err error) (*kernel.Disks, error) { return nil, fmt.Errorf("disks: %w", err) }
	throttle, err := kernel.DiskThrottle()
	if err != nil {
		return fail(err)
	}
	name := "testbed-" + id
	cgroup, err := throttle.CgroupPath(name)
	if err != nil {
		return fail(err)
	}
	if dir, err = filepath.Abs(dir); err != nil {
		return fail(err)
	}
	var specs []kernel.DiskSpec
	var files, mounts []string
	for h := range topo.HostID(f.Hosts()) {
		host := filepath.Join(dir, f.HostName(h))
		if err := os.Mkdir(host, 0o755); err != nil {
			return fail(err)
		}
		for i := range d.Count {
			s := kernel.DiskSpec{File: filepath.Join(host, fmt.Sprintf("disk%d.img", i)), Dir: filepath.Join(host, fmt.Sprintf("disk%d", i)), Size: d.Size, Rate: d.Write}
			specs, files, mounts = append(specs, s), append(files, s.File), append(mounts, s.Dir)
		}
	}
	if err := owned.AddCgroup(cgroup); err != nil {
		return fail(err)
	}
	if err := owned.AddDisks(files, mounts); err != nil {
		return fail(err)
	}
	disks, err := throttle.MakeDisks(ctx, name, specs)
	if err != nil {
		return fail(err)
	}
	return disks, nil
}
