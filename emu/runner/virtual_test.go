package runner

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"testbed/emu/calibration"
	"testbed/emu/guest"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/longtest"
	"testbed/emu/scenario"
	"testbed/policies/catalog"
	"testbed/results/flows"
	"testbed/results/pcap"
	"testbed/results/rundir"
	"testbed/results/safefile"
	"testbed/results/verdict"
	"testbed/topo/units"
)

// The binary of the tests is the program of the guests that they start.
func TestMain(m *testing.M) {
	guest.First()
	if guest.Inside() {
		if err := Guest(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		return
	}
	os.Exit(m.Run())
}

// virtualScenario is a small scenario in virtual time.
func virtualScenario(t *testing.T, seed uint64) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Load("testdata/virtual.yaml", scenario.Options{Catalog: catalog.All(), Seed: &seed, Time: scenario.VirtualTime})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// forkScenario is a small scenario with a fork.
func forkScenario(t *testing.T, time string, seed uint64) *scenario.Scenario {
	t.Helper()
	s, err := scenario.Load("testdata/fork.yaml", scenario.Options{Catalog: catalog.All(), Time: time, Seed: &seed})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A guest that writes nothing any more is ended.
func TestSilentGuest(t *testing.T) {
	tr := &trial{arm: &arm{of: &run{o: Options{Virtual: VirtualOptions{Silence: time.Millisecond}}}}}
	var ports []*os.File
	for range 2 {
		f, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		ports = append(ports, f)
	}
	if _, err := ports[1].WriteString("x"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	ended := make(chan error, 1)
	context.AfterFunc(ctx, func() { ended <- context.Cause(ctx) })
	if _, err := tr.watchGuest(ports, ended, cancel, nil); err == nil || !strings.Contains(err.Error(), "the guest wrote nothing for 1ms") {
		t.Error(err)
	}
}

// needsGuests skips a test where no guest can run, which continuous integration does not allow.
func needsGuests(t *testing.T) VirtualOptions {
	t.Helper()
	if netnstest.Guest() {
		t.Skip("a guest in a guest would take minutes")
	}
	_, _, err := CheckVirtual(t.Context(), VirtualOptions{})
	none := guest.Unavailable{}
	if required := os.Getenv("TESTBED_TOOLS") == "required"; errors.As(err, &none) && !required {
		t.Skip(err)
	} else if errors.As(err, &none) {
		cache, err2 := guest.CacheDir()
		_, err3 := guest.Fetch(t.Context(), "", cache, t.Logf)
		_, _, err = CheckVirtual(t.Context(), VirtualOptions{})
		err = errors.Join(err, err2, err3)
	}
	if err != nil {
		t.Fatal(err)
	}
	return VirtualOptions{}
}

// files returns the content of all files of a trial, by name.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || info.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		all[strings.TrimPrefix(path, dir)] = string(b)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// In virtual time, the same scenario and seed leave the same bytes in every file of a trial, and another seed leaves
// others. The guests run side by side on processors of which other tests have a part, so that they run at different
// paces. The three arms have one past: two of them differ in their names only, the third one in nothing before the fork.
func TestEqualTrialsHaveEqualBytes(t *testing.T) {
	longtest.Skip(t, "boots four guests, 50 s of a processor")
	o := needsGuests(t)
	var dirs [2]string
	var all sync.WaitGroup
	for i, only := range []map[string]bool{nil, {"same/0": true}} {
		s, out := forkScenario(t, scenario.VirtualTime, uint64(1+i)), t.TempDir()
		all.Go(func() {
			done, err := Execute(t.Context(), s, Options{Out: out, Version: "test", Virtual: o, Captures: KeepCaptures, Choice: Choice{only: only}})
			if err != nil {
				t.Error(err)
				return
			}
			dirs[i] = done.Dir
			m, err := rundir.ReadManifest(done.Dir)
			if err != nil || m.Backend != rundir.Virtual || m.Machine == nil || len(m.Machine.Kernel) != 64 || len(m.Machine.Program) != 64 {
				t.Errorf("manifest: %+v, %v", m, err)
			}
			if done.Report.Summary.Source != rundir.Virtual {
				t.Errorf("source %q, want %q", done.Report.Summary.Source, rundir.Virtual)
			}
			if done.Level() != verdict.Pass {
				t.Errorf("verdict %v", done.Level())
			}
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	first, same := files(t, filepath.Join(dirs[0], "fair", "0")), files(t, filepath.Join(dirs[0], "same", "0"))
	if len(first) < 10 || len(first["/"+rundir.TrialFile]) == 0 || len(same) != len(first) {
		t.Errorf("%d files of the first arm, and %d of the same one", len(first), len(same))
	}
	named := map[string]bool{"/" + rundir.TrialFile: true, "/" + figuresFile: true}
	for name, content := range first {
		if !named[name] && !strings.HasSuffix(name, pcap.Suffix) && same[name] != content {
			t.Errorf("%s differs between two equal arms", name)
		}
	}
	at := forkScenario(t, scenario.VirtualTime, 1).Spec.ForkAt
	for arm, other := range map[string]string{"same": dirs[0], "sebf": dirs[0], "another seed": dirs[1]} {
		dir := filepath.Join(other, arm, "0", capturesDir)
		if other == dirs[1] {
			dir = filepath.Join(other, "same", "0", capturesDir)
		}
		equal, differ := commonPast(t, filepath.Join(dirs[0], "fair", "0", capturesDir), dir)
		switch arm {
		case "same":
			if differ != pcapNever {
				t.Errorf("same: packets differ %v after the start", differ)
			}
		case "sebf":
			if differ < at || differ > at+100*time.Millisecond || equal < 100 {
				t.Errorf("sebf: packets differ %v after the start, after %d equal ones, want soon after %v", differ, equal, at)
			}
		default:
			if differ >= at {
				t.Errorf("another seed: the same packets for %v", differ)
			}
		}
	}
}

// pcapNever is the time at which equal captures differ.
const pcapNever = time.Duration(math.MaxInt64)

// commonPast returns how many packets of two trials are equal, host by host, before those that differ, and when, after
// the start, the first one differs.
func commonPast(t *testing.T, a, b string) (equal int, differ time.Duration) {
	t.Helper()
	res, err := flows.Reduce(t.Context(), a, flows.Options{})
	if err != nil {
		t.Fatal(err)
	}
	list, err := pcap.List(a)
	if err != nil {
		t.Fatal(err)
	}
	differ = pcapNever
	for _, f := range list {
		of := [2][]pcap.Packet{packetsOf(t, f.Path), packetsOf(t, filepath.Join(b, filepath.Base(f.Path)))}
		n := 0
		for n < min(len(of[0]), len(of[1])) && of[0][n].Stamp == of[1][n].Stamp && bytes.Equal(of[0][n].Data, of[1][n].Data) {
			n++
		}
		equal += n
		for _, packets := range of {
			if n < len(packets) {
				differ = min(differ, time.Duration(packets[n].Stamp-res.Zero.UnixNano()))
			}
		}
	}
	return equal, differ
}

// packetsOf returns the packets of a capture.
func packetsOf(t *testing.T, path string) (all []pcap.Packet) {
	t.Helper()
	r, err := pcap.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		p, err := r.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		p.Data = bytes.Clone(p.Data)
		all = append(all, p)
	}
}

// In virtual time there is one attempt: nothing outside can have disturbed it.
func TestOneAttemptInVirtualTime(t *testing.T) {
	for backend, want := range map[string]int{rundir.Virtual: 1, rundir.Packets: 3} {
		r, err := newRun(virtualScenario(t, 1), Options{}, backend)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.trials()[0].attempts(); got != want {
			t.Errorf("%s: %d attempts, want %d", backend, got, want)
		}
	}
}

// What a guest sends is taken only if it is of the trial.
func TestUnpackTakesFilesOfTheTrial(t *testing.T) {
	r, err := newRun(virtualScenario(t, 1), Options{}, rundir.Virtual)
	if err != nil {
		t.Fatal(err)
	}
	for name, ok := range map[string]bool{
		"fair/0/x.json": true, "fair/0/captures/h0-00.pcapng.zst": true,
		"fair/1/x": false, "manifest.json": false, "/etc/passwd": false, "fair/0/../../../x": false, "tries/fair/0.1/x": false,
	} {
		r.path = t.TempDir()
		archive := filepath.Join(t.TempDir(), "a.tar")
		f, err := safefile.Create(archive)
		if err != nil {
			t.Fatal(err)
		}
		w := tar.NewWriter(f)
		if err := errors.Join(w.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg, Size: 4, Mode: 0o644}), func() error { _, err := w.Write([]byte("text")); return err }(), w.Close(), f.Close()); err != nil {
			t.Fatal(err)
		}
		err = (&trial{arm: r.arms[0]}).unpack(archive)
		if got, _ := os.ReadFile(filepath.Join(r.path, name)); (err == nil) != ok || (string(got) == "text") != ok {
			t.Errorf("%s: %v, content %q, want it taken: %v", name, err, got, ok)
		}
	}
}

// Without qemu nothing runs in virtual time, and the error says what to install.
func TestVirtualTimeWithoutQemu(t *testing.T) {
	t.Setenv(guest.Env, "")
	t.Setenv("PATH", t.TempDir())
	_, err := Execute(t.Context(), virtualScenario(t, 1), Options{Out: t.TempDir()})
	if none := (guest.Unavailable{}); !errors.As(err, &none) || !strings.Contains(err.Error(), "apt-get install") {
		t.Errorf("error %v, want an unavailable guest and the command that installs it", err)
	}
}

// The forecast of virtual time is that of the one processor of a guest, whatever this machine and its calibration
// are. What does not fit is refused, with the scale that does.
func TestForecastOfVirtualTime(t *testing.T) {
	t.Setenv(guest.Env, "") // of qemu
	c := &calibration.Calibration{Capacity: []calibration.Capacity{{MTU: 1500, Packets: 1, Links: 1, Cost: time.Hour}}}
	f, err := Predict(t.Context(), virtualScenario(t, 1), Options{Calibration: c})
	if err != nil {
		t.Fatal(err)
	}
	l := f.Load[0]
	if want := l.PeakPackets * (VirtualOptions{}).cost().Seconds(); l.Share != want || want <= 0 || f.Decision.Action != Start || f.Host < virtualBoot || f.Refusal(false) != nil {
		t.Errorf("load %+v, host %v, decision %v, want a share of %v", l, f.Host, f.Decision, want)
	}
	s, err := scenario.Load("testdata/virtual.yaml", scenario.Options{Catalog: catalog.All(), Time: scenario.VirtualTime, Set: map[string]string{"link": "2Gbps", "size": "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	if f, err = Predict(t.Context(), s, Options{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"of a guest in virtual time", "write scale: {rate: 1/", VirtualOptions{}.cost().String()} {
		if err := f.Refusal(false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("refusal %v, want %q", err, want)
		}
	}
	if err := f.Refusal(false); strings.Contains(fmt.Sprint(err), "calibrate") {
		t.Errorf("refusal %v: a guest has no calibration", err)
	}
}

// A trial whose captures and disks do not fit into the memory of its guest is refused.
func TestMemoryOfGuests(t *testing.T) {
	for _, tt := range []struct {
		memory units.Bytes
		files  int64
		used   units.Bytes
		want   string
	}{
		{0, 2e9, 2e9, ""}, {0, 1e9, 3e9 + 1, "connections and buffers of captures take about 3.00 GB, captures and disks 1.00 GB, and it has 4GB"},
		{0, 2e9 + 1, 0, "captures and disks of a trial take about 2.00 GB, and 2.00 GB of its 4GB hold files: raise --vm-memory"},
		{8 * units.GB, 2e9 + 1, 0, ""}, {units.MB, 0, 0, "must be at least 500MB"},
	} {
		if got := (VirtualOptions{Memory: tt.memory}).lacks(tt.files, tt.used); (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
			t.Errorf("%d bytes in %v: %q, want %q", tt.files, tt.memory, got, tt.want)
		}
	}
	f, err := Predict(t.Context(), virtualScenario(t, 1), Options{Virtual: VirtualOptions{Memory: units.MB}})
	if err != nil || f.Refusal(true) == nil || !strings.Contains(f.Refusal(true).Error(), "--vm-memory") {
		t.Errorf("a guest of 1 MB: %v, %v", f.Refusal(true), err)
	}
}

// A replay compares the files of all trials, and no others, and names what else is not the same.
func TestPacketsAreCompared(t *testing.T) {
	m := &rundir.Machine{Qemu: "7", Kernel: "k", Program: "p", Memory: 1}
	was := &Manifest{Run: "x", Tool: "v1", Machine: m, Files: rundir.Sums{
		"fair/0/trial.json": "a", "fair/0/captures/h0-00.pcapng.zst": "b", "fair/0/gone": "c", "report.md": "e",
	}}
	now := &Manifest{Files: rundir.Sums{
		"fair/0/trial.json": "a", "fair/0/captures/h0-00.pcapng.zst": "B", "fair/0/new": "c", "report.md": "E",
	}}
	got := comparePackets(was, now)
	if want := []string{"fair/0/captures/h0-00.pcapng.zst", "fair/0/gone", "fair/0/new"}; !slices.Equal(got.Differ, want) || got.Files != 4 {
		t.Errorf("%d files, of which differ %q, want 4 and %q", got.Files, got.Differ, want)
	}
	if got := comparePackets(was, was); len(got.Differ) != 0 || got.Files != 3 {
		t.Errorf("with itself: %+v", got)
	}
	other := *m
	other.Qemu, other.Program = "8", "q"
	if got, want := machinesDiffer(was, "v1", &other), []string{"program_sha256 was p, and is q", "qemu was 7, and is 8"}; !slices.Equal(got, want) {
		t.Errorf("machines differ in %q, want %q", got, want)
	}
	if got := machinesDiffer(was, "v1", m); len(got) != 0 {
		t.Errorf("the same machine differs in %q", got)
	}
}

// Only packets in virtual time can be repeated.
func TestReplayOfOtherPacketsIsRefused(t *testing.T) {
	s := virtualScenario(t, 1)
	done, err := Simulate(t.Context(), s, Options{Out: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ReplayPackets(t.Context(), done.Dir, Options{Out: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "virtual time") {
		t.Errorf("of a simulation: %v", err)
	}
}
