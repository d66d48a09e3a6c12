package deploy

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
)

// Releaser is a Reaper that also removes what disks are throttled with.
type Releaser interface {
	// Release detaches the loop devices over the given files and removes the given
	// cgroups. What is not there is not an error.
	Release(ctx context.Context, loops, cgroups []string) error
}

// AddLoop records the file of a loop device that is about to be made. It should
// lie in a directory of AddDirectory, which removes it.
func (o *Owned) AddLoop(file string) error {
	path, err := filepath.Abs(file)
	if err == nil {
		var dir string // as the kernel tells it
		dir, err = filepath.EvalSymlinks(filepath.Dir(path))
		path = filepath.Join(dir, filepath.Base(path))
	}
	if err != nil {
		return fmt.Errorf("loop device of testbed %q: %w", o.id, err)
	}
	return o.update(func(s *State) { s.Loops = append(append([]string(nil), s.Loops...), path) })
}

// AddCgroup records the directory of a cgroup that is about to be made.
func (o *Owned) AddCgroup(path string) error {
	if !filepath.IsAbs(path) {
		return fmt.Errorf("cgroup %q of testbed %q: want an absolute path", path, o.id)
	}
	return o.update(func(s *State) { s.Cgroups = append(append([]string(nil), s.Cgroups...), path) })
}

// release removes the loop devices and cgroups of a record.
func release(ctx context.Context, s State, r Reaper) error {
	if len(s.Loops)+len(s.Cgroups) == 0 {
		return nil
	}
	x, ok := r.(Releaser)
	if !ok {
		return errors.New("its loop devices and cgroups cannot be removed by this program")
	}
	return x.Release(ctx, s.Loops, s.Cgroups)
}
