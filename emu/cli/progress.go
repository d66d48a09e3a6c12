package cli

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
	"golang.org/x/term"

	"testbed/emu/runner"
	tables "testbed/results/table"
	"testbed/results/verdict"
)

// defaultProgressEvery is the default of --progress-every.
const defaultProgressEvery = 5 * time.Second

// progressFlags holds the progress flags, which all commands have.
type progressFlags struct {
	quiet bool
	every time.Duration
}

func (f *progressFlags) add(root *cobra.Command) {
	root.PersistentFlags().BoolVarP(&f.quiet, "quiet", "q", false, "show no progress")
	root.PersistentFlags().DurationVar(&f.every, "progress-every", defaultProgressEvery, "`interval` of progress lines if standard error is not a terminal")
}

// check rejects an invalid interval.
func (f progressFlags) check() error {
	if f.every <= 0 {
		return usageError{fmt.Errorf("--progress-every %v: must be positive", f.every)}
	}
	return nil
}

// state is the progress of long work.
type state struct {
	stage string // such as "arm 1/4 fair+hdfs: run": a line is written when it changes
	text  string // the rest
	// share of the work that is done, from 0 to 1; below 0 if unknown.
	share float64
	level verdict.Level // of the last repeat that ended; 0 if none
}

// display shows progress on standard error: a bar on a terminal, elsewhere a line at each
// change of stage and every few seconds.
type display struct {
	w      io.Writer
	live   bool
	quiet  bool
	colour bool
	every  time.Duration
	now    func() time.Time
	// options are further ones of the bar, for tests.
	options []mpb.ContainerOption

	begun time.Time
	share float64 // the last that is known, and when it was
	at    time.Time
	last  time.Time // a line was written
	pool  *mpb.Progress
	bar   *mpb.Bar
	rate  rate

	mu    sync.Mutex // the bar is drawn from a goroutine of its own
	line  string     // the stage of the last line without a terminal
	lines []string   // of the bar, the longest first
}

func (a *app) progress() *display {
	d := &display{w: a.stderr, quiet: a.shown.quiet, every: cmp.Or(a.shown.every, defaultProgressEvery), now: time.Now}
	if f, ok := a.screen.(*os.File); ok {
		d.live = term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb"
	}
	if d.live {
		d.w = a.screen
	}
	d.colour = d.live && os.Getenv("NO_COLOR") == ""
	return d
}

// barSteps is the number of steps of a bar.
const barSteps = 1000

// show updates the display. It is called often and does not block.
func (d *display) show(s state) {
	if d.quiet {
		return
	}
	now := d.now()
	if d.begun.IsZero() {
		d.begun = now
	}
	if s.share >= 0 {
		if s.share < d.share { // an attempt is repeated: its time is lost, but the pace is as it was
			took := float64(d.at.Sub(d.begun))
			d.begun = now.Add(-time.Duration(took * s.share / d.share))
		}
		d.share, d.at = s.share, now
	}
	left := ""
	if eta, ok := remaining(now.Sub(d.begun), s.share); ok {
		left = fmt.Sprintf("about %s left", eta)
	}
	lines := d.forms(s, left)
	if !d.live {
		d.mu.Lock()
		changed := d.line != s.stage
		d.line = s.stage
		d.mu.Unlock()
		if changed || now.Sub(d.last) >= d.every {
			d.last = now
			fmt.Fprintln(d.w, lines[0])
		}
		return
	}
	d.mu.Lock()
	d.lines = lines
	d.mu.Unlock()
	if d.bar == nil {
		options := append([]mpb.ContainerOption{mpb.WithOutput(d.w), mpb.WithWidth(24), mpb.WithRefreshRate(200 * time.Millisecond)}, d.options...)
		d.pool = mpb.New(options...)
		d.bar = d.pool.AddBar(barSteps, mpb.AppendDecorators(decor.Any(func(s decor.Statistics) string {
			d.mu.Lock()
			defer d.mu.Unlock()
			return " " + longest(d.lines, s.AvailableWidth-leastBar)
		})))
	}
	if s.share >= 0 {
		// A full bar would suggest that the work has ended.
		d.bar.SetCurrent(min(int64(barSteps*s.share), barSteps-1))
	}
}

// leastBar is the room for a bar, with what is around it.
const leastBar = 16

// forms returns the line of a state, the longest form first: shorter ones have less of the text, and the verdict's name
// alone.
func (d *display) forms(s state, left string) (out []string) {
	join := func(light string, text []string) {
		parts := append([]string{s.stage, light}, text...)
		parts = slices.DeleteFunc(append(parts, left), func(part string) bool { return part == "" })
		out = append(out, strings.Join(parts, ", "))
	}
	text := strings.Split(strings.TrimPrefix(s.text, ", "), ", ")
	light, short := "", ""
	if s.level != 0 {
		light, short = d.light(s.level, "last verdict "+s.level.String()), d.light(s.level, s.level.String())
	}
	join(light, text)
	for n := len(text); n >= 0; n-- {
		join(short, text[:n])
	}
	return out
}

// longest returns the first line that has a width, or the last one.
func longest(lines []string, width int) string {
	for _, line := range lines {
		if tables.Width(line) <= width {
			return line
		}
	}
	return lines[len(lines)-1]
}

// light returns the text of a verdict after a coloured dot.
func (d *display) light(l verdict.Level, text string) string {
	if !d.colour {
		return text
	}
	colour := map[verdict.Level]string{verdict.Pass: "32", verdict.Unverified: "33", verdict.Degraded: "33", verdict.Void: "31"}[l]
	return "\x1b[" + colour + "m●\x1b[0m " + text
}

// leastShare is the share that must be done before the remaining time is estimated.
const leastShare = 0.02

// remaining returns the rounded time that remains after a share of the work took a time.
func remaining(took time.Duration, share float64) (time.Duration, bool) {
	if share < leastShare || share > 1 || took < time.Second {
		return 0, false
	}
	left := time.Duration(float64(took) * (1 - share) / share)
	if left > time.Minute {
		return left.Round(10 * time.Second), true
	}
	return left.Round(time.Second), true
}

// rate measures how fast a count grows, in wall-clock time.
type rate struct {
	stage string
	from  time.Time
	first float64
}

// of returns the rate of a count since the start of its stage, 0 at first.
func (r *rate) of(stage string, now time.Time, count float64) float64 {
	if r.stage != stage || count < r.first {
		r.stage, r.from, r.first = stage, now, count
	}
	took := now.Sub(r.from).Seconds()
	if took < 0.2 {
		return 0
	}
	return (count - r.first) / took
}

// update is an runner.Options.Progress.
func (d *display) update(p runner.Progress) {
	if d.quiet {
		return
	}
	arm := fmt.Sprintf("arm %d/%d %s", p.Arm, p.Arms, p.Name)
	if p.Repeats > 1 {
		arm = fmt.Sprintf("repeat %d/%d %s", p.Repeat, p.Repeats, arm)
	}
	s := state{stage: arm + ": " + p.Phase, share: p.Share(), level: p.Verdict}
	var parts []string
	if p.Coflows.All > 0 {
		parts = append(parts, fmt.Sprintf("coflows %d/%d", p.Coflows.Done, p.Coflows.All))
	}
	if p.Tasks.All > 0 {
		parts = append(parts, fmt.Sprintf("tasks %d/%d", p.Tasks.Done, p.Tasks.All))
	}
	if p.Blocks.All > 0 {
		parts = append(parts, fmt.Sprintf("blocks %d/%d", p.Blocks.Done, p.Blocks.All))
	}
	if p.Elapsed > 0 && p.ReadAll == 0 {
		at := fmt.Sprintf("%.1f s", p.Elapsed.Seconds())
		if p.Expected > 0 {
			at += fmt.Sprintf(" of about %.0f s", p.Expected.Seconds())
		}
		parts = append(parts, at)
	}
	switch {
	case p.ReadAll > 0:
		text := fmt.Sprintf("%.1f of %.1f MB", float64(p.Read)/1e6, float64(p.ReadAll)/1e6)
		if r := d.rate.of(s.stage, d.now(), float64(p.Read)); r > 0 {
			text += fmt.Sprintf(", %.0f MB/s", r/1e6)
		}
		parts = append(parts, text)
	case p.Events > 0:
		if r := d.rate.of(s.stage, d.now(), float64(p.Events)); r > 0 {
			parts = append(parts, fmt.Sprintf("%.0f events/s", r))
		}
	}
	s.text = strings.Join(parts, ", ")
	d.show(s)
}

// done removes the bar.
func (d *display) done() {
	if d.bar == nil {
		return
	}
	d.bar.Abort(true)
	d.pool.Wait()
	d.bar = nil
}
