package runner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"

	"testbed/results/rundir"
	"testbed/topo/units"
)

// PacketReplay compares a run in virtual time with the same run again.
type PacketReplay struct {
	Run string `json:"run_id"`
	Dir string `json:"directory"` // of the same run again
	// Machines names what decides the bytes besides the scenario, and is no longer the same.
	Machines []string `json:"machines"`
	Files    int      `json:"files"` // that were compared: all of the trials
	// Differ are those that are not the same, or that one of the two lacks.
	Differ []string `json:"differ"`
}

// ReplayPackets runs the trials of a run in virtual time again, in a directory of Options.Out, and compares each of
// their files by its SHA-256 sum.
func ReplayPackets(ctx context.Context, dir string, o Options) (*PacketReplay, error) {
	fail := func(err error) (*PacketReplay, error) { return nil, fmt.Errorf("replay packets of %s: %w", dir, err) }
	m, changes, s, err := openRun(dir)
	if err != nil {
		return fail(err)
	}
	if m.ScaledBy != "" || m.CheckScale != "" {
		return fail(errors.New("it has a scaled half: run it again, and compare the files"))
	}
	if m.Backend != rundir.Virtual || m.Machine == nil {
		return fail(fmt.Errorf("backend %s: only a run in virtual time (testbed run --time virtual) has packets that can be repeated", m.Backend))
	}
	for _, c := range changes {
		if c.OfRepeat() {
			return fail(fmt.Errorf("%s: restore it", c))
		}
	}
	o.Virtual.Memory, o.Virtual.Speed = units.Bytes(m.Machine.Memory)*units.MiB, m.Machine.Speed
	_, now, err := CheckVirtual(ctx, o.Virtual)
	if err != nil {
		return fail(err)
	}
	o.Captures, o.Choice.only = Captures(m.Captures), map[string]bool{}
	for name := range m.Files {
		if path.Base(name) == rundir.TrialFile {
			o.Choice.only[path.Dir(name)] = true
		}
	}
	if len(o.Choice.only) == 0 {
		return fail(errors.New("no trial has ended"))
	}
	again, err := Execute(ctx, s, o)
	if err != nil {
		return fail(err)
	}
	n, err := rundir.ReadManifest(again.Dir)
	if err != nil {
		return fail(err)
	}
	out := comparePackets(m, n)
	out.Dir, out.Machines = again.Dir, machinesDiffer(m, n.Tool, now)
	return out, nil
}

// comparePackets compares the files of the trials of two runs by their sums.
func comparePackets(was, now *Manifest) *PacketReplay {
	out := &PacketReplay{Run: was.Run, Machines: []string{}, Differ: []string{}}
	names := maps.Clone(was.Files)
	maps.Copy(names, now.Files)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if !ofTrial(name, was.Files) && !ofTrial(name, now.Files) {
			continue
		}
		if out.Files++; was.Files[name] != now.Files[name] {
			out.Differ = append(out.Differ, name)
		}
	}
	return out
}

// ofTrial reports whether a file is one of a trial that has ended, by the sums of its run.
func ofTrial(name string, of rundir.Sums) bool {
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		if of[dir+"/"+rundir.TrialFile] != "" {
			return true
		}
	}
	return false
}

// machinesDiffer names what decides the bytes of trials and differs.
func machinesDiffer(was *Manifest, tool string, now *rundir.Machine) []string {
	all := []string{}
	for _, x := range []struct{ what, was, now string }{
		{"testbed", was.Tool, tool}, {"program_sha256", was.Machine.Program, now.Program}, {"qemu", was.Machine.Qemu, now.Qemu},
		{"kernel_sha256", was.Machine.Kernel, now.Kernel}, {"memory_mb", fmt.Sprint(was.Machine.Memory), fmt.Sprint(now.Memory)},
		{"instructions_per_ns", fmt.Sprint(was.Machine.Speed), fmt.Sprint(now.Speed)},
	} {
		if x.was != x.now {
			all = append(all, fmt.Sprintf("%s was %s, and is %s", x.what, x.was, x.now))
		}
	}
	return all
}
