package deploy

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
)

// Releaser is a Reaper that also removes the loop devices and cgroups of throttled disks.
type Releaser interface {
	// Release unmounts the file systems at the given directories, detaches the loop devices of
	// the given files and removes the given cgroups. Missing ones are not an error.
	Release(ctx context.Context, mounts, loops, cgroups []string) error
}

// AddLoop records the file of a loop device that is about to be made. It should be in a directory of
// AddDirectory, with which it is removed.
func (o *Owned) AddLoop(file string) error {
	path, err := filepath.Abs(file)
	if err == nil {
		var dir string // the path that the kernel reports
		dir, err = filepath.EvalSymlinks(filepath.Dir(path))
		path = filepath.Join(dir, filepath.Base(path))
	}
	if err != nil {
		return fmt.Errorf("loop device of testbed %q: %w", o.id, err)
	}
	return o.update(func(s *State) { s.Loops = append(append([]string(nil), s.Loops...), path) })
}

// AddDisks records file systems on loop devices that are about to be made: the images and the mount
// points, both as absolute paths. They should be in a directory of AddDirectory.
func (o *Owned) AddDisks(files, mounts []string) error {
	loops := make([]string, len(files))
	for i, file := range files {
		dir, err := filepath.EvalSymlinks(filepath.Dir(file)) // the path that the kernel reports
		if err == nil && !filepath.IsAbs(file) {
			err = errors.New("must be an absolute path")
		}
		if err != nil {
			return fmt.Errorf("disk %s of testbed %q: %w", file, o.id, err)
		}
		loops[i] = filepath.Join(dir, filepath.Base(file))
	}
	for _, dir := range mounts {
		if !filepath.IsAbs(dir) {
			return fmt.Errorf("disk at %s of testbed %q: must be an absolute path", dir, o.id)
		}
	}
	return o.update(func(s *State) {
		s.Loops = append(append([]string(nil), s.Loops...), loops...)
		s.Mounts = append(append([]string(nil), s.Mounts...), mounts...)
	})
}

// AddCgroup records the directory of a cgroup that is about to be made.
func (o *Owned) AddCgroup(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("cgroup %q of testbed %q: must be an absolute path", path, o.id)
	}
	return o.update(func(s *State) { s.Cgroups = append(append([]string(nil), s.Cgroups...), path) })
}

// release removes the file systems, loop devices and cgroups of a record.
func release(ctx context.Context, s State, r Reaper) error {
	if len(s.Mounts)+len(s.Loops)+len(s.Cgroups) == 0 {
		return nil
	}
	x, ok := r.(Releaser)
	if !ok {
		return errors.New("its file systems, loop devices and cgroups cannot be removed by this program")
	}
	return x.Release(ctx, s.Mounts, s.Loops, s.Cgroups)
}
