package metrics

import (
	"errors"
	"fmt"

	"testbed/results/flows"
)

// Queues is the kernel's counts of packets dropped by the queues of links in one repeat. It
// is stored in a file next to the captures (report.QueuesFile).
type Queues struct {
	Links []QueueDrops `json:"links"` // of all links of the fabric, in order of their IDs
}

// QueueDrops is the count of one directed link.
type QueueDrops struct {
	Link    string `json:"link"`            // such as leaf0>spine1
	Dropped int    `json:"dropped_packets"` // of all kinds, by the queue ahead of the link
}

// Count replaces the estimates of drops in links by the kernel's counts. links are all
// links of the fabric, or none if the captures do not state it. If the counts are not of
// the same links or are negative, it changes nothing and returns an error.
func (q Queues) Count(links []flows.LinkSeries) error {
	if len(links) == 0 {
		return nil
	}
	var errs []error
	if len(q.Links) != len(links) {
		errs = append(errs, fmt.Errorf("counts of %d links, but the fabric has %d", len(q.Links), len(links)))
	}
	for i := range min(len(q.Links), len(links)) {
		switch x := q.Links[i]; {
		case x.Link != links[i].Name:
			errs = append(errs, fmt.Errorf("links[%d]: %q: must be %q", i, x.Link, links[i].Name))
		case x.Dropped < 0:
			errs = append(errs, fmt.Errorf("links[%d]: %s: dropped_packets %d: must be 0 or more", i, x.Link, x.Dropped))
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	for i, x := range q.Links {
		links[i].Drops, links[i].Counted = x.Dropped, true
	}
	return nil
}
