package runner

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"testbed/emu/guest"
	"testbed/emu/scenario"
	"testbed/policies/catalog"
	"testbed/results/rundir"
	"testbed/results/safefile"
	"testbed/results/summary"
	"testbed/topo/units"
)

// Limits of a guest that runs a trial.
const (
	// GuestMemory is the default memory of a guest. It takes from this machine what it has touched.
	GuestMemory = 4 * units.GB
	// leastMemory is the least memory with which a guest starts.
	leastMemory = 500 * units.MB
	// fileShare is the part of a guest's memory that its kernel gives to files.
	fileShare = 0.5
	// mostOutput is the most that a guest may write.
	mostOutput = 16 * units.GB
	// mostSilence is the time of this machine for which a guest may write nothing.
	mostSilence = 10 * time.Minute
	// watchInterval is how often the output of a guest is read, and reportInterval how often it reports its
	// progress, on its own clock.
	watchInterval  = 100 * time.Millisecond
	reportInterval = 250 * time.Millisecond
)

// The costs of virtual time, as measured on small fabrics: the instructions of a guest for a packet at each shaper it
// passes, and the time of a processor of the host to start a guest, more of it for each unit of its speed, and for an
// instruction.
const (
	virtualCost  = 33_000
	virtualBoot  = 6 * time.Second
	virtualTimer = 4 * time.Second
	virtualPace  = 10 * time.Nanosecond
	// Under user-mode Linux, processor time to start a guest, and for a packet at each shaper it passes.
	userBoot = 2 * time.Second
	userCost = 60 * time.Microsecond
)

// VirtualOptions are what trials in virtual time need.
type VirtualOptions struct {
	Kernel string      // as guest.Find takes it
	Memory units.Bytes // of a guest; 0 means GuestMemory
	// Silence is the time for which a guest may write nothing before it is ended; 0 means 10 minutes.
	Silence time.Duration
	// Speed is the number of instructions that a guest of qemu executes in a nanosecond; 0 means guest.DefaultSpeed.
	Speed  int
	kernel guest.Kernel
}

// userMode reports whether guests are those of user-mode Linux, in which processing takes no time.
func (o VirtualOptions) userMode() bool { return guest.UserMode(o.Kernel) }

// speed returns the speed of guests, 0 in user-mode Linux.
func (o VirtualOptions) speed() int {
	if o.userMode() {
		return 0
	}
	return cmp.Or(o.Speed, guest.DefaultSpeed)
}

// check returns an error if guests cannot have the speed.
func (o VirtualOptions) check() error {
	if !o.userMode() && (o.speed() < 1 || o.speed() > guest.MostSpeed) {
		return fmt.Errorf("speed of a guest: %d instructions in a nanosecond (--vm-speed): must be 1 to %d", o.Speed,
			guest.MostSpeed)
	}
	return nil
}

// cost returns the time of a guest for a packet at each shaper it passes.
func (o VirtualOptions) cost() time.Duration {
	if o.userMode() {
		return 0
	}
	return virtualCost * time.Nanosecond / time.Duration(o.speed())
}

// host returns the time of a processor for a trial with a number of packets at shapers.
func (o VirtualOptions) host(packets float64) time.Duration {
	if o.userMode() {
		return userBoot + time.Duration(packets*float64(userCost))
	}
	return virtualBoot + time.Duration(o.speed())*virtualTimer + time.Duration(packets*virtualCost*float64(virtualPace))
}

// megabytes returns the memory of a guest in MiB, as qemu takes it.
func (o VirtualOptions) megabytes() int { return int(cmp.Or(o.Memory, GuestMemory) / units.MiB) }

// lacks returns why a trial does not fit into the memory of its guest, which also holds its captures and disks, and
// what its kernel and the program use, or "".
func (o VirtualOptions) lacks(files int64, used units.Bytes) string {
	memory := cmp.Or(o.Memory, GuestMemory)
	if memory < leastMemory {
		return fmt.Sprintf("memory of a guest: %v (--vm-memory): must be at least %v", memory, leastMemory)
	}
	room := units.Bytes(fileShare * float64(memory))
	if units.Bytes(files) <= room {
		if used+units.Bytes(files) <= memory {
			return ""
		}
		return fmt.Sprintf("memory of a guest: fabric, connections and buffers of captures take about %s, captures and "+
			"disks %s, and it has %v: raise --vm-memory, or lower capture.ring",
			units.Short(float64(used), "B"), units.Short(float64(files), "B"), memory)
	}
	return fmt.Sprintf("memory of a guest: captures and disks of a trial take about %s, and %s of its %v hold files: "+
		"raise --vm-memory, or write scale: {size: 1/2}",
		units.Short(float64(files), "B"), units.Short(float64(room), "B"), memory)
}

// CheckVirtual returns what runs trials in virtual time, or why nothing does.
func CheckVirtual(ctx context.Context, o VirtualOptions) (guest.Kernel, *rundir.Machine, error) {
	m := &rundir.Machine{Memory: o.megabytes(), Speed: o.speed()}
	if err := o.check(); err != nil {
		return guest.Kernel{}, nil, err
	}
	k, err := guest.Find(ctx, o.Kernel)
	if err == nil && !k.UserMode {
		m.Qemu, err = guest.Version(ctx)
	}
	if err != nil {
		return k, nil, err
	}
	program, err := os.Executable()
	if err != nil {
		return k, nil, err
	}
	for _, x := range []struct {
		path string
		sum  *string
	}{{k.Image, &m.Kernel}, {program, &m.Program}} {
		b, err := safefile.Read(x.path)
		if err != nil {
			return k, nil, fmt.Errorf("virtual time: %w", err)
		}
		sum := sha256.Sum256(b)
		*x.sum = hex.EncodeToString(sum[:])
	}
	return k, m, nil
}

// findVirtual finds what runs the trials, and records it.
func (r *run) findVirtual(ctx context.Context) (err error) {
	for _, a := range r.arms {
		if d := a.s.Spec.Disk; d != nil && d.Throttle == scenario.KernelThrottle {
			return refusal([]scenario.Problem{a.s.Problem("disk.throttle",
				"disks in virtual time are in memory, where the kernel throttles nothing: leave it out")})
		}
	}
	if r.o.Virtual.kernel, r.manifest.Machine, err = CheckVirtual(ctx, r.o.Virtual); err != nil {
		return fmt.Errorf("virtual time: %w", err)
	}
	r.manifest.Kernel = r.o.Virtual.kernel.Release
	return nil
}

// Paths in the guest of a trial.
const (
	guestInput = "/input" // the files of the scenario
	guestTrial = "/trial.json"
	guestFork  = "/fork" // the place of the arm from the fork on, or of the equal arm whose trial it is
	guestRun   = "/tmp/run"
)

// guestJob is what a guest is to do.
type guestJob struct {
	Version  string
	Captures Captures
	Run      string // the name of its run
	Arm      int    // place
	Repeat   int
	Speed    int // as guest.CheckClock takes it
}

// guestLine is a line of what a guest reports.
type guestLine struct {
	Progress *Progress `json:",omitempty"`
	Error    string    `json:",omitempty"`
	Done     bool      `json:",omitempty"`
}

// image returns the image of the guest of a trial.
func (t *trial) image(ctx context.Context) (*guest.Image, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	im, err := guest.NewImage(program)
	if err != nil {
		return nil, err
	}
	if err := im.Modules(ctx, t.of.o.Virtual.kernel, append(guest.PortModules, guest.Modules...)...); err != nil {
		return nil, err
	}
	for _, f := range t.of.s.Files() {
		im.Data(path.Join(guestInput, f.Name), f.Data)
	}
	begins := t.begins()
	im.Text(guestFork, fmt.Sprintf("%04d", t.place))
	key, err := begins.key()
	if err != nil {
		return nil, err
	}
	// The name of the run is in its captures. It is the same whenever the trial runs.
	b, err := json.Marshal(guestJob{Version: t.of.o.Version, Captures: t.of.o.Captures, Run: "virtual-" + key[:12],
		Arm: begins.place, Repeat: t.repeat, Speed: t.of.o.Virtual.speed()})
	im.Data(guestTrial, b)
	return im, err
}

// inGuest runs a trial in a guest, and takes its files.
func (t *trial) inGuest(ctx context.Context, p *progress) (rep *summary.Repeat, err error) {
	p.phase(PhaseBuild)
	im, err := t.image(ctx)
	if err != nil {
		return nil, fmt.Errorf("virtual time: %w", err)
	}
	console, output := t.file("console"), t.file("guest.tar")
	var ports []*os.File
	defer func() {
		for _, f := range ports {
			err = errors.Join(err, f.Close())
		}
	}()
	for _, name := range []string{t.file("guest.jsonl"), output} {
		f, err := safefile.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
		if err != nil {
			return nil, err
		}
		ports = append(ports, f)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ended := make(chan error, 1)
	m := guest.Machine{Kernel: t.of.o.Virtual.kernel, Image: im, Memory: t.of.o.Virtual.megabytes(), Virtual: true,
		Speed: t.of.o.Virtual.speed(), Console: console, Ports: ports}
	go func() { ended <- m.Run(ctx) }()
	last, err := t.watchGuest(ports, ended, cancel, p)
	switch {
	case err != nil:
	case last.Error != "":
		err = errors.New(last.Error)
	case !last.Done:
		err = errors.New("the guest ended before the trial")
		if b, err2 := safefile.Read(console); err2 == nil && len(b) > 0 {
			err = fmt.Errorf("%w: its kernel said: %s", err, bytes.TrimSpace(b[max(0, len(b)-2000):]))
		}
	}
	if err != nil {
		return nil, err
	}
	if err := t.unpack(output); err != nil {
		return nil, fmt.Errorf("results of the guest: %w", err)
	}
	for _, name := range []string{console, output, t.file("guest.jsonl")} {
		if err := os.Remove(name); err != nil {
			return nil, err
		}
	}
	one, err := readFigures(t.file(figuresFile))
	if err != nil {
		return nil, err
	}
	t.of.last = one.Verdict.Level
	p.phase(PhaseEnd)
	return &one, nil
}

// errDone ends a guest that has sent all, before it powers off: qemu 7.2 with a record can fail an assertion then.
var errDone = errors.New("the guest has sent all")

// watchGuest reports the progress of a guest until it ends, and returns the last line that it wrote. It ends a guest
// that has sent all, that writes too much, or nothing for too long.
func (t *trial) watchGuest(ports []*os.File, ended <-chan error, cancel context.CancelCauseFunc,
	p *progress) (last guestLine, err error) {
	tick := time.NewTicker(watchInterval)
	defer tick.Stop()
	lines := bufio.NewReader(io.NewSectionReader(ports[0], 0, math.MaxInt64))
	partial := ""
	var before int64
	changed, silence := time.Now(), cmp.Or(t.of.o.Virtual.Silence, mostSilence)
	for running := true; running; {
		select {
		case err = <-ended:
			running = false
		case <-tick.C:
		}
		for {
			text, eof := lines.ReadString('\n')
			if partial += text; eof != nil {
				break
			}
			last = guestLine{}
			if err := json.Unmarshal([]byte(partial), &last); err != nil {
				cancel(fmt.Errorf("report of the guest: %w", err))
			}
			partial = ""
			if now := last.Progress; now != nil {
				now.Trial, now.Trials, now.Repeats, now.Verdict = p.now.Trial, p.now.Trials, p.now.Repeats,
					p.now.Verdict
				now.Arm, now.Name = p.now.Arm, p.now.Name // those of the first arm, with a fork
				p.now = *now
				p.phase(now.Phase)
			}
		}
		var written int64
		for _, f := range ports {
			if info, err := f.Stat(); err == nil {
				written += info.Size()
			}
		}
		if written != before {
			before, changed = written, time.Now()
		}
		switch {
		case written > int64(mostOutput):
			cancel(fmt.Errorf("the guest wrote more than %v", mostOutput))
		case last.Done || last.Error != "":
			cancel(errDone)
		case time.Since(changed) > silence:
			cancel(fmt.Errorf("the guest wrote nothing for %v: it hangs, or this machine gives it no time", silence))
		}
	}
	if last.Done || last.Error != "" {
		err = nil
	}
	return last, err
}

// owns reports whether a file of a run is one of the trial.
func (t *trial) owns(name string) bool {
	return strings.HasPrefix(name, t.in()+"/")
}

// unpack takes the files of a trial from the archive that its guest wrote.
func (t *trial) unpack(archive string) (err error) {
	f, err := safefile.Open(archive)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	r := tar.NewReader(bufio.NewReader(f))
	for {
		h, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if !t.owns(h.Name) || !filepath.IsLocal(h.Name) || h.Typeflag != tar.TypeReg {
			return fmt.Errorf("%q is no file of the trial", h.Name)
		}
		name := filepath.Join(t.of.path, filepath.FromSlash(h.Name))
		if err := safefile.MkdirAll(filepath.Dir(name)); err != nil {
			return err
		}
		to, err := safefile.Create(name)
		if err != nil {
			return err
		}
		if _, err := io.Copy(to, r); err != nil {
			return errors.Join(err, to.Close())
		}
		if err := to.Close(); err != nil {
			return err
		}
	}
}

// Guest runs the trial of a guest, and reports it to the host.
func Guest(ctx context.Context) (err error) {
	if err := errors.Join(guest.Setup(), guest.ServePacketsFirst()); err != nil {
		return err
	}
	lines, err := guest.Port(0)
	if err != nil {
		return err
	}
	output, err := guest.Port(1)
	if err != nil {
		return err
	}
	say := func(l guestLine) error {
		b, err := json.Marshal(l)
		if err == nil {
			_, err = lines.Write(append(b, '\n'))
		}
		return err
	}
	var said time.Time
	var phase string
	show := func(p Progress) {
		if now := time.Now(); p.Phase != phase || now.Sub(said) >= reportInterval {
			said, phase = now, p.Phase
			err = errors.Join(err, say(guestLine{Progress: &p}))
		}
	}
	if err := guestRunTrial(ctx, output, show); err != nil {
		return say(guestLine{Error: err.Error()})
	}
	return errors.Join(err, say(guestLine{Done: true}))
}

// guestRunTrial runs the trial, and writes an archive of its files.
func guestRunTrial(ctx context.Context, out io.Writer, show func(Progress)) error {
	var job guestJob
	if _, err := readJSON(guestTrial, &job); err != nil {
		return err
	}
	if err := guest.CheckClock(job.Speed); err != nil {
		return err
	}
	s, err := scenario.Load(path.Join(guestInput, "scenario.yaml"), scenario.Options{Catalog: catalog.All()})
	if err != nil {
		return err
	}
	o := Options{StateRoot: "/run/testbed", Version: job.Version, Captures: job.Captures, Out: "/tmp", forked: readForked,
		timeless: job.Speed == 0}
	r, err := newRun(s, o, rundir.Virtual)
	if err != nil {
		return err
	}
	a := r.arms[job.Arm]
	if err := refusal(machineOfRun(a.s, a.plan(job.Repeat)).Missing); err != nil {
		return err
	}
	if err := r.describe(ctx); err != nil {
		return err
	}
	r.manifest.Run = job.Run
	if err := r.create(guestRun); err != nil {
		return err
	}
	t := &trial{arm: a, repeat: job.Repeat}
	if err := t.execute(ctx, Progress{Trial: 1, Trials: 1}, show); err != nil {
		return err
	}
	place, err := t.after()
	if err != nil {
		return err
	}
	t.arm = r.arms[place]
	if err := r.manifest.Seal(r.path, ""); err != nil {
		return err
	}
	w := tar.NewWriter(out)
	for _, name := range slices.Sorted(maps.Keys(r.manifest.Files)) {
		if t.owns(name) {
			if err := addToArchive(w, name); err != nil {
				return fmt.Errorf("send %s: %w", name, err)
			}
		}
	}
	return w.Close()
}

// addToArchive adds a file of the run of a guest to an archive.
func addToArchive(w *tar.Writer, name string) (err error) {
	f, err := safefile.Open(path.Join(guestRun, name))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	h := &tar.Header{Name: name, Typeflag: tar.TypeReg, Size: info.Size(), Mode: 0o644}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err = io.Copy(w, f)
	return err
}
