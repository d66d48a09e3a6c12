package fidelity

import (
	"fmt"
	"math"
	"time"

	"testbed/results/verdict"
	"testbed/topo/units"
)

// Conformance compares the packets of one captured direction of a link with its token
// bucket.
type Conformance struct {
	Link    string
	Rate    units.Rate
	Bucket  units.Bytes // as built
	Packets int
	// Level is the 90th percentile, over packets, of the bucket size that the packets
	// need at the link's rate; Most is the maximum.
	Level, Most units.Bytes
	// Frame is the longest frame that the link may carry, Longest the longest captured
	// one, and Long the number of those longer than Frame.
	Frame, Longest units.Bytes
	Long           int
}

// Loss counts the packets that one namespace received during a run and did not pass on,
// read after everything has settled.
type Loss struct {
	Namespace string
	Packets   uint64 // that arrived or were created there
	// Before counts packets that arrived on devices and never reached IP. Inside counts
	// those that IP received and neither delivered, forwarded nor discarded on purpose.
	// After counts those that IP sent and that neither left on a device nor were dropped
	// by a full queue.
	Before, Inside, After uint64
}

func (l Loss) lost() uint64 { return l.Before + l.Inside + l.After }

func (l Loss) where() string {
	switch max(l.Before, l.Inside, l.After) {
	case l.Before:
		return "between its devices and IP, as by a filter on ingress"
	case l.Inside:
		return "inside IP, as by a filter or a route"
	}
	return "between IP and its links, as by a filter on egress"
}

func burst(s Samples, th Thresholds) verdict.Check {
	c := verdict.Check{Name: "burst", Level: verdict.Pass, Value: "no link carried enough",
		Pass: fmt.Sprintf("p90 ≤ the bucket and %v of the link, each ≤ the bucket and %v", th.BurstPass, th.BurstMost), Void: fmt.Sprintf("p90 > the bucket and %v", th.BurstVoid)}
	n, worst := 0, math.Inf(-1)
	var at, once Conformance
	var skipped skips
	for _, l := range s.Bursts {
		if l.Packets < minPackets || l.Rate <= 0 || skipped.link(s, l.Link) {
			continue
		}
		n++
		if over := over(l, l.Level).Seconds(); over > worst {
			worst, at = over, l
		}
		if once.Rate == 0 || over(l, l.Most) > over(once, once.Most) {
			once = l
		}
	}
	if n == 0 {
		c.Value += skipped.String()
		return c
	}
	often, most := over(at, at.Level), over(once, once.Most)
	c.Level = grade(often <= th.BurstPass, often > th.BurstVoid)
	c.Value = fmt.Sprintf("p90 %v with a bucket of %v, and once %v with %v, at worst of %d links", at.Level, at.Bucket, once.Most, once.Bucket, n) + skipped.String()
	exceeds := func(l Conformance, level units.Bytes, by time.Duration) string {
		return fmt.Sprintf("%s passed %v at once, which exceeds its bucket of %v by %v at its rate: its shaper differs from the scenario", l.Link, level, l.Bucket, round(by))
	}
	if c.Level != verdict.Pass {
		c.Reason = exceeds(at, at.Level, often)
	} else if most > th.BurstMost {
		c.Level, c.Reason = verdict.Degraded, exceeds(once, once.Most, most)+", or its packets were stamped late"
	}
	return c
}

// over returns the time that the link needs to send the excess of a level above the
// bucket.
func over(l Conformance, level units.Bytes) time.Duration {
	return l.Rate.TimeToSend(max(0, level-l.Bucket))
}

func frames(s Samples, _ Thresholds) verdict.Check {
	c := verdict.Check{Name: "frames", Level: verdict.Pass, Value: "none too long", Pass: "none longer than the MTU and its header", Void: "any"}
	total := 0
	var worst Conformance
	for _, l := range s.Bursts {
		total += l.Long
		if l.Long > worst.Long {
			worst = l
		}
	}
	if total > 0 {
		c.Level = verdict.Void
		c.Value = fmt.Sprintf("%d, up to %d bytes", total, int64(worst.Longest))
		c.Reason = fmt.Sprintf("%s carried %d frames longer than %d bytes: segmentation or receive offloads are on, so queues and packets are not those of a wire", worst.Link, worst.Long, int64(worst.Frame))
	}
	return c
}

func loss(s Samples, th Thresholds) verdict.Check {
	c := verdict.Check{Name: "loss", Level: verdict.Pass, Value: "every packet accounted for", Pass: "0 unexplained", Void: fmt.Sprintf("> %g %% of a namespace's packets", 100*th.LossVoid)}
	var total uint64
	worst := Loss{}
	var skipped skips
	for _, l := range s.Losses {
		if l.lost() == 0 || skipped.lossy(s, l.Namespace) {
			continue
		}
		total += l.lost()
		if l.lost() > worst.lost() {
			worst = l
		}
	}
	if total > 0 {
		of := float64(worst.lost()) / float64(max(worst.Packets, 1))
		c.Level = grade(false, of > th.LossVoid)
		c.Value = fmt.Sprintf("%d packets unexplained", total)
		c.Reason = fmt.Sprintf("%s lost %d of %d packets (%.2g %%) that no full queue dropped, most %s", worst.Namespace, worst.lost(), worst.Packets, 100*of, worst.where())
	}
	c.Value += skipped.String()
	return c
}
