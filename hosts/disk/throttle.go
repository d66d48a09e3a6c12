package disk

import (
	"time"

	"testbed/topo/units"
)

// throttle is a token bucket in the form of a clock: due is the time at which a disk of the
// configured rate would have written all admitted bytes. It reads no clock itself. Times are
// relative to the opening of the disk.
type throttle struct {
	rate     units.Rate
	burst    time.Duration // credit that an idle disk may save
	bucket   units.Bytes   // burst in bytes, independent of the rate; 0 if burst is fixed
	catchUp  time.Duration // lag that a busy disk may make up for
	external bool          // an external throttle determines when writes return
	ahead    time.Duration // if external, the maximum lead of a returning write over due

	start    time.Duration // the turn of the write in progress
	writing  bool          // a write is in progress
	due      time.Duration // see throttle
	returned time.Duration // when the latest write ended
	busyEnd  time.Duration // the end of the latest busy period
	stats    Stats         // without Allowed: see account
	busyRate time.Duration // the part of stats.Busy at the current rate
}

// farAway bounds times, so that their sums do not overflow.
const farAway = time.Duration(1 << 60)

// setRate changes the rate. Debt and credit stay the same in bytes.
func (t *throttle) setRate(now time.Duration, rate units.Rate) {
	old := t.rate
	if rate == old {
		return
	}
	if t.writing { // account for the busy time until now at the old rate
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
	t.start = max(now, scale(t.start)) // used only by a write in progress
	ahead := max(0, t.busyEnd-now)     // already accounted for; takes a different time at the new rate
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

// account returns the statistics, including Allowed.
func (t *throttle) account() Stats {
	s := t.stats
	s.Allowed += t.rate.BytesIn(t.busyRate)
	return s
}

// admit admits a write of n bytes that starts now, and sets due to its end at the
// configured rate. The caller must call finish before the next admit.
func (t *throttle) admit(now time.Duration, n units.Bytes) {
	saved := t.burst
	if now-t.returned <= t.burst {
		// The disk was continuously in use. t.due is in the past only because the previous writer
		// woke up late.
		saved += t.catchUp
	}
	t.start, t.writing = max(t.due, now-saved), true
	t.due = t.start + min(t.rate.TimeToSend(n), 1<<62-t.start)
}

// finish accounts for a write of n bytes that ended at now and spent device in the
// write call.
func (t *throttle) finish(now time.Duration, n units.Bytes, device time.Duration) {
	if t.external {
		t.due = min(t.due, now+t.ahead) // a greater lead shortens the busy time
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
