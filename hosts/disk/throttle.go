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
	bucket  units.Bytes   // the same in bytes, whatever the rate; 0 where burst is fixed
	catchUp time.Duration // how far a busy disk may lag and make up for it
	led     bool          // by something else: writes return when that lets them
	ahead   time.Duration // where led, how far before due they may

	start    time.Duration // the turn of the write in progress
	writing  bool          // there is one
	due      time.Duration // see above
	returned time.Duration // when the latest write ended
	busyEnd  time.Duration // the end of the latest busy period
	stats    Stats         // but for Allowed: see account
	busyRate time.Duration // of stats.Busy, what was at this rate
}

// farAway bounds moments, so that sums of them do not wrap.
const farAway = time.Duration(1 << 60)

// setRate changes the rate. What is owed or saved stays the same in bytes.
func (t *throttle) setRate(now time.Duration, rate units.Rate) {
	old := t.rate
	if rate == old {
		return
	}
	if t.writing { // what it was busy until now was at the old rate
		if from := max(t.start, t.busyEnd); now > from {
			t.busy(now - from)
			t.busyEnd = now
		}
	}
	scale := func(at time.Duration) time.Duration {
		if at > now {
			return now + min(rate.TimeToSend(old.BytesIn(at-now)), farAway-min(now, farAway))
		}
		return now - min(rate.TimeToSend(old.BytesIn(now-at)), farAway)
	}
	t.due = scale(t.due)
	t.start = max(now, scale(t.start)) // used by a write in progress only
	ahead := max(0, t.busyEnd-now)     // accounted for already; the same bytes take another time now
	t.stats.Allowed += old.BytesIn(t.busyRate - ahead)
	if end := scale(t.busyEnd); ahead > 0 {
		t.stats.Busy += end - t.busyEnd
		t.busyEnd, t.busyRate = end, end-now
	} else {
		t.busyEnd, t.busyRate = end, 0
	}
	t.rate = rate
	if t.bucket > 0 {
		t.burst = rate.TimeToSend(t.bucket)
	}
}

func (t *throttle) busy(d time.Duration) {
	t.stats.Busy += d
	t.busyRate += d
}

// account is the statistics with all that was allowed.
func (t *throttle) account() Stats {
	s := t.stats
	s.Allowed += t.rate.BytesIn(t.busyRate)
	return s
}

// admit takes n bytes that are to be written now. finish must follow before the
// next; due is when the rate has them done.
func (t *throttle) admit(now time.Duration, n units.Bytes) {
	saved := t.burst
	if now-t.returned <= t.burst {
		// The disk was in use all the time, and t.due lies back because the writer
		// before woke up late.
		saved += t.catchUp
	}
	t.start, t.writing = max(t.due, now-saved), true
	t.due = t.start + min(t.rate.TimeToSend(n), 1<<62-t.start)
}

// finish accounts for a write of n bytes that ended at the given time, after
// device in the write itself.
func (t *throttle) finish(now time.Duration, n units.Bytes, device time.Duration) {
	if t.led {
		t.due = min(t.due, now+t.ahead) // what is beyond shows as a shorter time
	}
	end := max(t.due, now)
	t.busy(end - max(t.start, t.busyEnd))
	t.busyEnd, t.writing = end, false
	t.returned = now
	t.stats.Written += n
	t.stats.Writes++
	t.stats.Device += device
	t.stats.Late = max(t.stats.Late, now-t.due)
}
