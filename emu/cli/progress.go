package cli

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"

	"testbed/emu/experiment"
)

// display shows progress on standard error: a live line an arm on a terminal, a
// line at the start of each elsewhere.
type display struct {
	w    io.Writer
	live bool
	arm  string // being shown
	pool *mpb.Progress
	bar  *mpb.Bar

	mu  sync.Mutex // the bar is drawn from a goroutine of its own
	now experiment.Progress
}

func (a *app) progress() *display {
	d := &display{w: a.stderr}
	if f, ok := a.stderr.(*os.File); ok {
		d.live = isatty.IsTerminal(f.Fd())
	}
	return d
}

// update is an experiment.Options.Progress.
func (d *display) update(p experiment.Progress) {
	arm := fmt.Sprintf("arm %d/%d %s", p.Arm, p.Arms, p.Name)
	if p.Repeats > 1 {
		arm = fmt.Sprintf("repeat %d/%d %s", p.Repeat, p.Repeats, arm)
	}
	d.mu.Lock()
	d.now = p
	d.mu.Unlock()
	if arm != d.arm {
		d.done()
		d.arm = arm
		if !d.live {
			fmt.Fprintln(d.w, arm)
			return
		}
		d.pool = mpb.New(mpb.WithOutput(d.w), mpb.WithWidth(24), mpb.WithRefreshRate(200*time.Millisecond))
		d.bar = d.pool.AddBar(int64(max(p.Coflows.All+p.Blocks.All, 1)), mpb.BarFillerClearOnComplete(),
			mpb.PrependDecorators(decor.Name(arm+" ", decor.WC{W: 28, C: decor.DindentRight})),
			mpb.AppendDecorators(decor.Any(func(decor.Statistics) string {
				d.mu.Lock()
				defer d.mu.Unlock()
				return status(d.now)
			})))
	}
	if d.bar != nil {
		d.bar.SetCurrent(int64(p.Coflows.Done + p.Blocks.Done))
	}
}

// status is the changing part of a line.
func status(p experiment.Progress) string {
	s := fmt.Sprintf(" %s, coflows %d/%d, blocks %d/%d", p.Phase, p.Coflows.Done, p.Coflows.All, p.Blocks.Done, p.Blocks.All)
	if p.Expected > 0 {
		s += fmt.Sprintf(", %.1f s of about %.0f s", p.Elapsed.Seconds(), p.Expected.Seconds())
	}
	return s
}

// done leaves the line as it is.
func (d *display) done() {
	if d.bar == nil {
		return
	}
	d.bar.Abort(false)
	d.pool.Wait()
	d.bar = nil
}
