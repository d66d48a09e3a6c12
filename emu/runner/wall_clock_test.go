package runner

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"testbed/emu/engine"
	"testbed/emu/kernel/netnstest"
	"testbed/results/verdict"
)

// stepper sets the wall clock once, when the engine sends its first commands.
type stepper struct {
	engine.Backend
	by   time.Duration
	done bool
}

func (s *stepper) Await(ctx context.Context, wake time.Duration) (time.Duration, []engine.Event, error) {
	now, evs, err := s.Backend.Await(ctx, wake)
	if !s.done && err == nil && now > 50*time.Millisecond {
		s.done = true
		err = setClock(s.by)
	}
	return now, evs, err
}

func setClock(by time.Duration) error {
	ts := unix.NsecToTimespec(time.Now().Add(by).UnixNano())
	return unix.ClockSettime(unix.CLOCK_REALTIME, &ts)
}

// A run during which the wall clock is set back is void, its first reason names the
// step, and the manifest ends after it starts.
func TestWallClockSetDuringARun(t *testing.T) {
	netnstest.Require(t)
	if !netnstest.Guest() {
		t.Skip("sets the machine's clock: runs in the virtual machine alone (make test-vm)")
	}
	const back = 10 * time.Second
	o := options(t)
	o.tamper.backends = func(b engine.Backend) engine.Backend { return &stepper{Backend: b, by: -back} }
	out, err := Execute(t.Context(), loadText(t, strings.Replace(twoRacks, "[%s]", "[fair]", 1), acrossRacks), o)
	if err := setClock(back); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	var v verdict.Verdict
	var m Manifest
	for path, into := range map[string]any{filepath.Join(repeatDir(out.Dir, "fair", 0), fidelityFile): &v, filepath.Join(out.Dir, "manifest.json"): &m} {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(b, into); err != nil {
			t.Fatal(err)
		}
	}
	if c := v.Checks[slices.IndexFunc(v.Checks, func(c verdict.Check) bool { return c.Name == "clock" })]; v.Level != verdict.Void || c.Level != verdict.Void || !strings.Contains(c.Reason, "wall clock was set by -") {
		t.Errorf("verdict %v, check %+v: want void, for a clock that was set by %v", v.Level, c, -back)
	}
	// Emulated processors take a while between reading the clock and setting it.
	if k := readSamples(t, repeatDir(out.Dir, "fair", 0)).Clock; len(k) != 1 || (k[0].By+back).Abs() > time.Second {
		t.Errorf("steps %v, want one of %v", k, -back)
	}
	if took := m.Ended.Sub(m.Started); took <= 0 || took > 10*time.Minute {
		t.Errorf("the run took %v by its manifest", took)
	}
}
