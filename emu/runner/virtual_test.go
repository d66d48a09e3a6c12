package runner

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
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
	"testbed/results/rundir"
	"testbed/results/safefile"
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
	if netnstest.Emulated() {
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

// In virtual time, the same scenario and seed leave the same bytes in every file of a trial, with no exception, and
// another seed leaves others. The guests run side by side on processors of which other tests have a part, so
// that they run at different paces.
func TestEqualTrialsHaveEqualBytes(t *testing.T) {
	t.Parallel()
	longtest.Skip(t, "boots three guests, 30 s of a processor")
	o := needsGuests(t)
	var trials [3]map[string]string
	var all sync.WaitGroup
	for i, seed := range []uint64{1, 1, 2} {
		s, out := virtualScenario(t, seed), t.TempDir()
		all.Go(func() {
			done, err := Execute(t.Context(), s, Options{Out: out, Version: "test", Virtual: o})
			if err != nil {
				t.Error(err)
				return
			}
			m, err := rundir.ReadManifest(done.Dir)
			if err != nil || m.Backend != rundir.Virtual || m.Machine == nil || len(m.Machine.Kernel) != 64 || len(m.Machine.Program) != 64 {
				t.Errorf("manifest: %+v, %v", m, err)
			}
			if done.Report.Summary.Source != rundir.Virtual {
				t.Errorf("source %q, want %q", done.Report.Summary.Source, rundir.Virtual)
			}
			trials[i] = files(t, filepath.Join(done.Dir, "fair", "0"))
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	if len(trials[0]) < 10 || len(trials[0]["/"+rundir.TrialFile]) == 0 {
		t.Errorf("files of the trial: %d", len(trials[0]))
	}
	for name, content := range trials[0] {
		if trials[1][name] != content {
			t.Errorf("%s differs between two runs", name)
		}
	}
	if len(trials[1]) != len(trials[0]) {
		t.Errorf("%d files, and %d again", len(trials[0]), len(trials[1]))
	}
	if trials[2]["/events.jsonl"] == trials[0]["/events.jsonl"] || trials[2]["/captures/h0-00.pcapng.zst"] == trials[0]["/captures/h0-00.pcapng.zst"] {
		t.Error("another seed leaves the same events or packets")
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
	t.Setenv("PATH", t.TempDir())
	_, err := Execute(t.Context(), virtualScenario(t, 1), Options{Out: t.TempDir()})
	if none := (guest.Unavailable{}); !errors.As(err, &none) || !strings.Contains(err.Error(), "apt-get install") {
		t.Errorf("error %v, want an unavailable guest and the command that installs it", err)
	}
}

// The forecast of virtual time is that of the one processor of a guest, whatever this machine and its calibration
// are. What does not fit is refused, with the scale that does.
func TestForecastOfVirtualTime(t *testing.T) {
	c := &calibration.Calibration{Capacity: []calibration.Capacity{{MTU: 1500, Packets: 1, Links: 1, Cost: time.Hour}}}
	f, err := Predict(t.Context(), virtualScenario(t, 1), Options{Calibration: c})
	if err != nil {
		t.Fatal(err)
	}
	l := f.Load[0]
	if want := l.PeakPackets * virtualCost.Seconds(); l.Share != want || want <= 0 || f.Decision.Action != Start || f.Host < virtualBoot || f.Refusal(false) != nil {
		t.Errorf("load %+v, host %v, decision %v, want a share of %v", l, f.Host, f.Decision, want)
	}
	s, err := scenario.Load("testdata/virtual.yaml", scenario.Options{Catalog: catalog.All(), Time: scenario.VirtualTime, Set: map[string]string{"link": "2Gbps", "size": "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	if f, err = Predict(t.Context(), s, Options{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"of a guest in virtual time", "write scale: {rate: 1/", virtualCost.String()} {
		if err := f.Refusal(false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("refusal %v, want %q", err, want)
		}
	}
	if err := f.Refusal(false); strings.Contains(fmt.Sprint(err), "calibrate") {
		t.Errorf("refusal %v: a guest has no calibration", err)
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
