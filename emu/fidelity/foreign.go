package fidelity

import (
	"fmt"
	"strings"
	"time"

	"testbed/results/verdict"
	"testbed/topo/units"
)

// Foreign is the traffic in one captured direction of a host's link that belongs to
// neither a transfer nor a mark of the run.
type Foreign struct {
	Host, Link string
	Packets    int
	Errors     int         `json:",omitempty"` // of them ICMP errors, which can change what TCP does
	Bytes      units.Bytes // of their frames
	// Window are the bytes of the worst window, At its start since the zero of the records,
	// Length the length of each window, and Could the bytes that the link can carry in it.
	Window, Could units.Bytes
	At, Length    time.Duration
	// Largest is the conversation with the most bytes, such as
	// "tcp 10.0.0.1:5201 > 10.0.3.1:44012", and LargestBytes its bytes.
	Largest      string
	LargestBytes units.Bytes
}

// share returns the share of the link that foreign traffic took in the worst window.
func (f Foreign) share() float64 { return float64(f.Window) / max(float64(f.Could), 1) }

// SwitchPackets counts the IPv4 packets of a leaf or spine during the run. A switch forwards
// packets: those that it creates, or that are addressed to it, are none of the run.
type SwitchPackets struct {
	Switch             string
	Created, Delivered uint64 // sent by the switch, and received by it for itself
	Forwarded          uint64
}

func (p SwitchPackets) own() uint64 { return p.Created + p.Delivered }

// Crossing compares the packets that all ports of a leaf toward spines sent (Up) or received
// during the run with those that the captures of its hosts have to and from other racks.
type Crossing struct {
	Leaf              string
	Up                bool
	Counted, Captured uint64
	// Dropped are the packets that full queues between the captures and these ports dropped.
	// Toward hosts, these may include packets from hosts of the same rack.
	Dropped uint64
	Frame   units.Bytes // the longest
	// Could are the bytes that the links of these ports can carry in Length.
	Could  units.Bytes
	Length time.Duration
}

// foreign returns the packets at the ports that no host of the rack sent or received. Toward
// hosts it is a lower bound. Packets that the ports lack are lost, not foreign.
func (x Crossing) foreign() uint64 {
	counted, known := x.Counted, x.Captured
	if x.Up {
		counted += x.Dropped
	} else {
		known += x.Dropped
	}
	return max(counted, known) - known
}

// share returns the share of their links that the foreign packets would take if they were of
// full length and in one window. The counters know neither.
func (x Crossing) share() float64 {
	return float64(x.foreign()) * float64(x.Frame) / max(float64(x.Could), 1)
}

func (x Crossing) String() string {
	if x.Up {
		return fmt.Sprintf("%s sent %d packets to spines that none of its hosts sent", x.Leaf, x.foreign())
	}
	return fmt.Sprintf("%s received %d packets from spines that none of its hosts received", x.Leaf, x.foreign())
}

// mostSwitches is the maximum number of switches that a reason names.
const mostSwitches = 3

// foreignCheck is the name of the check for traffic that is not of the run.
const foreignCheck = "foreign"

func foreign(s Samples, th Thresholds) verdict.Check {
	c := foreignAtHosts(s.Foreign, th)
	var skipped skips
	own, between, names := uint64(0), uint64(0), []string{}
	for _, p := range s.Switches {
		if p.own() == 0 || skipped.lossy(s, p.Switch) {
			continue
		}
		own += p.own()
		c.Level = max(c.Level, grade(false, float64(p.own()) > th.SwitchVoid*float64(p.Forwarded)))
		names = append(names, fmt.Sprintf("%s created %d packets and received %d", p.Switch, p.Created, p.Delivered))
	}
	for _, x := range s.Crossings {
		if x.foreign() == 0 || skipped.lossy(s, x.Leaf) {
			continue
		}
		between += x.foreign()
		c.Level = max(c.Level, grade(x.share() <= th.ForeignPass, x.share() > th.ForeignVoid))
		names = append(names, x.String())
	}
	if between > 0 {
		c.Value += fmt.Sprintf(", %d packets between switches", between)
	}
	if own > 0 {
		c.Value += fmt.Sprintf(", %d own packets of switches", own)
	}
	if len(names) > 0 {
		if c.Reason != "" {
			c.Reason += "; "
		}
		if more := len(names) - mostSwitches; more > 0 {
			names = append(names[:mostSwitches], fmt.Sprintf("%d other switches did the same", more))
		}
		c.Reason += strings.Join(names, ", ")
	}
	if c.Reason != "" {
		c.Reason += " (stop what sends it and run again)"
	}
	c.Value += skipped.String()
	return c
}

// foreignAtHosts returns the check without switches and without remedy.
func foreignAtHosts(all []Foreign, th Thresholds) verdict.Check {
	c := verdict.Check{Name: foreignCheck, Level: verdict.Pass, Value: "none at hosts",
		Pass: fmt.Sprintf("≤ %g %% of what a link can carry, in every window; no ICMP error; none at switches", 100*th.ForeignPass),
		Void: fmt.Sprintf("> %g %%, or > %g %% of the packets of a switch", 100*th.ForeignVoid, 100*th.SwitchVoid)}
	var worst, misled Foreign
	for _, f := range all {
		if f.Packets > 0 && (worst.Packets == 0 || f.share() > worst.share()) {
			worst = f
		}
		if f.Errors > misled.Errors {
			misled = f
		}
	}
	if worst.Packets == 0 {
		return c
	}
	c.Level = grade(worst.share() <= th.ForeignPass, worst.share() > th.ForeignVoid)
	c.Value = fmt.Sprintf("%.2g %% of %s at worst", 100*worst.share(), worst.Link)
	if c.Level != verdict.Pass {
		c.Reason = fmt.Sprintf("%s carried %s of foreign traffic, most %s (%s), up to %.2g %% of what %s can carry in %v, at %v", worst.Host, size(worst.Bytes),
			worst.Largest, size(worst.LargestBytes), 100*worst.share(), worst.Link, worst.Length, round(worst.At))
	}
	if misled.Errors > 0 {
		c.Level = max(c.Level, verdict.Degraded)
		c.Value += fmt.Sprintf(", %d ICMP errors on %s", misled.Errors, misled.Link)
		c.Reason = strings.TrimPrefix(c.Reason+fmt.Sprintf("; %s carried %d ICMP errors that the run did not cause, most traffic %s", misled.Link, misled.Errors, misled.Largest), "; ")
	}
	return c
}

// DoubtForeign adds the check for foreign traffic at hosts to a verdict without it, such as
// that of captures alone, if the check does not pass.
func DoubtForeign(v verdict.Verdict, all []Foreign) verdict.Verdict {
	c := foreign(Samples{Foreign: all}, Default())
	if c.Level == verdict.Pass {
		return v
	}
	return withCheck(v, c)
}

// size returns b with three digits, such as "1.23MB".
func size(b units.Bytes) string {
	switch x := float64(b); {
	case x >= 1e6:
		return fmt.Sprintf("%.3gMB", x/1e6)
	case x >= 1e3:
		return fmt.Sprintf("%.3gKB", x/1e3)
	}
	return b.String()
}
