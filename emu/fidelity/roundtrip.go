package fidelity

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"testbed/results/verdict"
)

// RoundTrip is the minimum round-trip time of one path while it is idle, before the first transfer and after the last: from
// the SYN of a connection to its answer, which may return over another spine.
type RoundTrip struct {
	From, To string   // hosts
	Links    []string // of the path
	// Planned are the delays of the links of the path and back and, if they store and forward, the time on their wires.
	Planned time.Duration
	// Before and After are minima of several connections; 0 if none was answered.
	Before, After time.Duration
}

// ExemptLinks reports whether faults changed any of the links, or an end of one (Samples.Exempt).
func ExemptLinks(exempt map[string]string, links []string) bool {
	var k skips
	return k.path(Samples{Exempt: exempt}, links)
}

// roundTrip judges what paths need above the plan: what all paths of as many links need, and what each needs in addition.
func roundTrip(s Samples, th Thresholds) verdict.Check {
	c := verdict.Check{Name: "round-trip", Level: verdict.Pass, Value: "no path measured",
		Pass: fmt.Sprintf("≤ %v above the plan", th.RoundTripPass), Void: fmt.Sprintf("> %v above", th.RoundTripVoid)}
	var skipped skips
	paths := slices.DeleteFunc(slices.Clone(s.RoundTrips), func(r RoundTrip) bool {
		return skipped.path(s, r.Links)
	})
	worst := time.Duration(0)
	note := func(excess time.Duration, reason func() string) {
		if level := grade(excess <= th.RoundTripPass, excess > th.RoundTripVoid); level > c.Level || level == c.Level && level > verdict.Pass && excess > worst {
			c.Level, c.Reason = level, reason()
		}
		worst = max(worst, excess)
	}
	own := map[int]time.Duration{} // by number of links
	for _, r := range paths {
		for _, rtt := range []time.Duration{r.Before, r.After} {
			if least, ok := own[len(r.Links)]; rtt > 0 && (!ok || rtt-r.Planned < least) {
				own[len(r.Links)] = rtt - r.Planned
			}
		}
	}
	for _, n := range slices.Sorted(maps.Keys(own)) {
		excess := own[n]
		note(excess, func() string {
			return fmt.Sprintf("on idle paths of %d links, round trips took %v longer than planned: the machine is too slow for the delays of this fabric, or all links delay packets", n, excess)
		})
	}
	excess := func(r RoundTrip, i int) (above time.Duration, measured bool) {
		rtt := []time.Duration{r.Before, r.After}[i]
		return rtt - r.Planned - max(0, own[len(r.Links)]), rtt > 0
	}
	for _, r := range paths {
		path := fmt.Sprintf("%s to %s over %s", r.From, r.To, strings.Join(r.Links, ", "))
		for i, when := range []string{"before the first transfer", "after the last transfer"} {
			above, ok := excess(r, i)
			if !ok {
				c.Level, c.Reason = max(c.Level, verdict.Degraded), cmp.Or(c.Reason, fmt.Sprintf("no connection from %s was answered in time %s", path, when))
				continue
			}
			note(above, func() string {
				var slow, others []RoundTrip
				for _, o := range paths {
					if e, ok := excess(o, i); ok && e >= above/2 {
						slow = append(slow, o)
					} else if ok {
						others = append(others, o)
					}
				}
				like := r.Planned + max(0, own[len(r.Links)])
				reason := fmt.Sprintf("%s, a round trip from %s took %v, and %v are needed: a link of this path or of the way back delays packets", when, path, like+above, like)
				if links := suspects(slow, others); len(links) > 0 {
					reason += fmt.Sprintf(" (%s: in each of the %d slow paths, and in no other)", strings.Join(links, " or "), len(slow))
				}
				return reason
			})
		}
	}
	if len(paths) > 0 {
		c.Value = fmt.Sprintf("%v above the plan at the worst of %d idle paths", worst, len(paths))
	}
	if all := s.TCP.nearest(); len(all) > 0 {
		at := all[0]
		c.Value += fmt.Sprintf(", at least %v in transfers over each of %d switches", round(at.Excess), len(all))
		note(at.Excess, func() string {
			var names []string
			for _, n := range all {
				if n.Excess >= at.Excess/2 {
					names = append(names, n.Node)
				}
			}
			return fmt.Sprintf("round trips of the %d transfers over %s took at least %v longer than planned: something at %s delays packets",
				at.Transfers, at.Node, round(at.Excess), strings.Join(names, ", "))
		})
	}
	c.Value += skipped.String()
	return c
}

// suspects returns the directed links that all slow paths contain and no other path does, on the way there, or back if that is
// over the same switches. Only for the links of hosts is it certain that the way back contains them.
func suspects(slow, others []RoundTrip) (links []string) {
	back := func(link string) string {
		from, to, _ := strings.Cut(link, ">")
		return to + ">" + from
	}
	clear := map[string]bool{}
	for _, r := range others {
		for _, l := range r.Links {
			clear[l] = true
		}
		clear[back(r.Links[0])], clear[back(r.Links[len(r.Links)-1])] = true, true
	}
	for _, l := range slow[0].Links {
		for _, l := range []string{l, back(l)} {
			if !clear[l] && !slices.ContainsFunc(slow, func(r RoundTrip) bool {
				return !slices.Contains(r.Links, l) && !slices.Contains(r.Links, back(l))
			}) {
				links = append(links, l)
			}
		}
	}
	return links
}
