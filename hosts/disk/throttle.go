package disk

import (
	"time"

	"testbed/topo/units"
)

// throttle is a token bucket kept as a clock: due is the moment at which all that
// was written would be on a disk of the configured rate. It reads no clock
// itself. Times count from when the disk was opened.
type throttle struct {
	rate    units.Rate
	burst   time.Duration // what an idle disk may save up
	catchUp time.Duration // how far a busy disk may lag and make up for it

	due      time.Duration // see above
	returned time.Duration // when the latest write ended
	busyEnd  time.Duration // the end of the latest busy period
	stats    Stats
}

// admit takes n bytes that are to be written now, and returns the turn they get.
func (t *throttle) admit(now time.Duration, n units.Bytes) (start, due time.Duration) {
	saved := t.burst
	if now-t.returned <= t.burst {
		// The disk was in use all the time, and t.due lies back because the writer
		// before woke up late.
		saved += t.catchUp
	}
	start = max(t.due, now-saved)
	t.due = start + min(t.rate.TimeToSend(n), 1<<62-start)
	return start, t.due
}

// finish accounts for a write of n bytes that ended at the given time, after
// device in the write itself.
func (t *throttle) finish(start, due, now time.Duration, n units.Bytes, device time.Duration) {
	end := max(due, now)
	t.stats.Busy += end - max(start, t.busyEnd)
	t.busyEnd = end
	t.returned = now
	t.stats.Written += n
	t.stats.Writes++
	t.stats.Device += device
	t.stats.Late = max(t.stats.Late, now-due)
}
