package cli

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vbauerster/mpb/v8"

	"testbed/emu/runner"
	"testbed/results/tooltest"
	"testbed/results/verdict"
)

// plainDisplay is a display without a terminal, on a clock that the test moves.
func plainDisplay(w *bytes.Buffer, every time.Duration) (*display, func(time.Duration)) {
	now := time.Unix(1767000000, 0)
	return &display{w: w, every: every, now: func() time.Time { return now }}, func(d time.Duration) { now = now.Add(d) }
}

func TestProgressLines(t *testing.T) {
	var b bytes.Buffer
	d, pass := plainDisplay(&b, 5*time.Second)
	p := runner.Progress{Trial: 1, Trials: 2, Arm: 1, Arms: 2, Repeat: 1, Repeats: 1, Name: "fair", Phase: runner.PhaseBuild, Expected: 20 * time.Second,
		Coflows: runner.Count{All: 22}, Blocks: runner.Count{All: 4}}
	d.update(p)
	p.Phase = runner.PhaseRun
	d.update(p)
	for range 40 { // 20 seconds, updated twice a second
		pass(500 * time.Millisecond)
		p.Elapsed += 500 * time.Millisecond
		p.Events += 50
		d.update(p)
	}
	p.Phase, p.Coflows.Done, p.Blocks.Done, p.ReadAll = runner.PhaseRead, 22, 4, 8_000_000
	d.update(p)
	pass(time.Second)
	p.Read = 4_000_000
	d.update(p) // within 5 s of the last line
	pass(5 * time.Second)
	d.update(p)
	p.Phase, p.Verdict = runner.PhaseEnd, verdict.Degraded
	p.Read, p.ReadAll = 0, 0
	d.update(p)
	d.done()
	// At 5 s a quarter of the run is done, which is from 0.05 to 0.8 of the first of
	// two arms: (0.05 + 0.75/4)/2 = 0.119 of all in 5 s leaves 37 s.
	want := `arm 1/2 fair: build, coflows 0/22, blocks 0/4
arm 1/2 fair: run, coflows 0/22, blocks 0/4
arm 1/2 fair: run, coflows 0/22, blocks 0/4, 5.0 s of about 20 s, 100 events/s, about 37s left
arm 1/2 fair: run, coflows 0/22, blocks 0/4, 10.0 s of about 20 s, 100 events/s, about 37s left
arm 1/2 fair: run, coflows 0/22, blocks 0/4, 15.0 s of about 20 s, 100 events/s, about 34s left
arm 1/2 fair: run, coflows 0/22, blocks 0/4, 20.0 s of about 20 s, 100 events/s, about 30s left
arm 1/2 fair: read captures, coflows 22/22, blocks 4/4, 0.0 of 8.0 MB, about 30s left
arm 1/2 fair: read captures, coflows 22/22, blocks 4/4, 4.0 of 8.0 MB, 1 MB/s, about 32s left
arm 1/2 fair: ended, last verdict degraded, coflows 22/22, blocks 4/4, 20.0 s of about 20 s, about 26s left
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

// The time that remains grows only by the work of an attempt that is repeated.
func TestProgressOfRepeatedAttempt(t *testing.T) {
	var b bytes.Buffer
	now := time.Unix(0, 0)
	d := &display{w: &b, every: time.Second, now: func() time.Time { return now }}
	for i, share := range []float64{0, 0.25, 0.5, 0.25, 0.5, 1} {
		now = time.Unix(int64(10*i), 0)
		d.show(state{stage: "run", share: share})
	}
	if want := "run\nrun, about 30s left\nrun, about 20s left\nrun, about 30s left\nrun, about 20s left\nrun, about 0s left\n"; b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

func TestProgressIsQuiet(t *testing.T) {
	var b bytes.Buffer
	d, pass := plainDisplay(&b, time.Second)
	d.quiet = true
	for range 10 {
		d.update(runner.Progress{Trial: 1, Trials: 1, Arm: 1, Arms: 1, Repeat: 1, Repeats: 1, Phase: runner.PhaseRun})
		d.show(state{stage: "x"})
		pass(time.Minute)
	}
	d.done()
	if b.Len() > 0 {
		t.Errorf("said %q", b.String())
	}
}

// The share never goes back, and ends at 1.
func TestProgressShare(t *testing.T) {
	last := -1.0
	for repeat := 1; repeat <= 2; repeat++ {
		for arm := 1; arm <= 3; arm++ {
			p := runner.Progress{Trial: 3*(repeat-1) + arm, Trials: 6, Arm: arm, Arms: 3, Repeat: repeat, Repeats: 2, Expected: 10 * time.Second, Coflows: runner.Count{All: 4}}
			step := func(phase string) {
				t.Helper()
				p.Phase = phase
				if got := p.Share(); got < last || got > 1 {
					t.Errorf("repeat %d, arm %d, %s: share %v after %v", repeat, arm, phase, got, last)
				} else {
					last = got
				}
			}
			step(runner.PhasePredict)
			step(runner.PhaseBuild)
			for range 15 { // longer than was expected
				p.Elapsed += time.Second
				step(runner.PhaseRun)
			}
			p.Coflows.Done = 4
			step(runner.PhaseRun)
			step(runner.PhaseSettle)
			for p.ReadAll = 1000; p.Read < 1000; p.Read += 250 {
				step(runner.PhaseRead)
			}
			step(runner.PhaseEnd)
		}
	}
	if last != 1 {
		t.Errorf("the share ends at %v", last)
	}
	if got := (runner.Progress{}).Share(); got != 0 {
		t.Errorf("share of nothing %v", got)
	}
}

// safe is a buffer that a bar's goroutine may write to.
type safe struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safe) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safe) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// A bar has the same content, and a coloured light where colours are wanted.
func TestProgressBar(t *testing.T) {
	for _, colour := range []bool{true, false} {
		var out safe
		refresh := make(chan any)
		d := &display{w: &out, live: true, colour: colour, every: time.Second, now: time.Now, options: []mpb.ContainerOption{mpb.WithManualRefresh(refresh), mpb.WithWidth(200)}}
		d.update(runner.Progress{Trial: 2, Trials: 4, Arm: 2, Arms: 4, Repeat: 1, Repeats: 1, Name: "sebf", Phase: runner.PhaseRun, Elapsed: 3 * time.Second, Expected: 12 * time.Second,
			Coflows: runner.Count{Done: 3, All: 9}, Verdict: verdict.Void})
		refresh <- time.Now()
		refresh <- time.Now() // the first was drawn
		d.done()
		got := out.String()
		for _, want := range []string{"arm 2/4 sebf: run", "coflows 3/9", "3.0 s of about 12 s", "last verdict void", "[="} {
			if !strings.Contains(got, want) {
				t.Errorf("colour %v: no %q in %q", colour, want, got)
			}
		}
		if strings.Contains(got, "\x1b[31m●\x1b[0m") != colour {
			t.Errorf("colour %v: %q", colour, got)
		}
	}
}

// On a terminal there is a bar on standard error and nothing of it on standard
// output; NO_COLOR is kept to.
func TestProgressOnATerminal(t *testing.T) {
	t.Parallel()
	tooltest.Need(t, "script") // makes a terminal
	dir := t.TempDir()
	text, err := os.ReadFile("../../scripts/quickstart/scenario.yaml")
	if err != nil {
		t.Fatal(err)
	}
	// Long enough for a bar to be drawn.
	long := bytes.Replace(text, []byte("repeat: 1"), []byte("repeat: 6"), 1)
	if bytes.Equal(text, long) {
		t.Fatal("the quickstart says nothing of repeats")
	}
	if err := errors.Join(os.CopyFS(dir, os.DirFS("../../scripts/quickstart")), os.WriteFile(filepath.Join(dir, "long.yaml"), long, 0o644)); err != nil {
		t.Fatal(err)
	}
	for _, quiet := range []bool{false, true} {
		flag := ""
		if quiet {
			flag = "-q "
		}
		cmd := exec.Command("script", "-qec", "stty cols 120 rows 40; testbed sim "+flag+"--json --out "+dir+"/runs "+dir+"/long.yaml >"+dir+"/out", "/dev/null")
		cmd.Env = append(cmd.Environ(), "TERM=xterm")
		got, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, got)
		}
		if quiet {
			if s := strings.TrimSpace(string(got)); s != "" {
				t.Errorf("quiet: %q", s)
			}
			continue
		}
		if !regexp.MustCompile(`repeat \d+/6 arm [1-4]/4 \S+: simulate`).Match(got) || !bytes.Contains(got, []byte("\x1b[")) {
			t.Errorf("no bar on the terminal: %q", got)
		}
	}
}

// On a terminal of 110 columns, a line with a verdict leaves room for the bar and ends with the remaining time.
func TestProgressBarFits(t *testing.T) {
	for _, width := range []int{110, 80} {
		var out safe
		refresh := make(chan any)
		now := time.Now()
		d := &display{w: &out, live: true, colour: true, every: time.Second, now: func() time.Time { return now },
			options: []mpb.ContainerOption{mpb.WithManualRefresh(refresh), mpb.WithWidth(width)}}
		p := runner.Progress{Trial: 3, Trials: 4, Arm: 3, Arms: 4, Repeat: 2, Repeats: 5, Name: "sebf+sinbad", Phase: runner.PhaseRun,
			Elapsed: 3 * time.Second, Expected: 12 * time.Second, Coflows: runner.Count{Done: 3, All: 22}, Blocks: runner.Count{Done: 1, All: 24}, Verdict: verdict.Degraded}
		d.update(p)
		now = now.Add(20 * time.Second)
		p.Elapsed = 6 * time.Second
		d.update(p)
		refresh <- time.Now()
		refresh <- time.Now() // the first was drawn
		d.done()
		got := out.String()
		for _, want := range []string{"[=", "degraded", "repeat 2/5 arm 3/4 sebf+sinbad", " left"} {
			if !strings.Contains(got, want) {
				t.Errorf("%d columns: no %q in %q", width, want, got)
			}
		}
	}
}
