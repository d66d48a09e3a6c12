package flows

import (
	"maps"
	"slices"
	"time"
)

// stampResolution is the difference that two stamps of one moment may have. The kernel stamps the packets
// of all captures with one clock.
const stampResolution = 10 * time.Microsecond

// ahead returns by how much, at most, a part of the transfer was received before it was sent, and an
// acknowledgement likewise; 0 or less if none was.
func (t *Trail) ahead() (by time.Duration) {
	for i := range min(len(t.Sent), len(t.Received)) {
		by = max(by, t.Sent[i].At-t.Received[i].At)
	}
	for _, a := range t.Acks {
		by = max(by, a.Sent-a.Received, a.Acked-a.Back)
	}
	return by
}

// causality reports the hosts that received data before they were sent: stamps of a capture are wrong.
func (a *assembly) causality() {
	type early struct {
		transfers int
		by        time.Duration // of the worst
		worst     string
		from      string
	}
	hosts := map[string]early{}
	for i := range a.Trails {
		t := &a.Trails[i]
		by := t.ahead()
		if by <= stampResolution {
			continue
		}
		h := hosts[t.DstName]
		if h.transfers++; by > h.by {
			h.by, h.worst, h.from = by, a.carried[i].what(), t.SrcName
		}
		hosts[t.DstName] = h
	}
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		h := hosts[name]
		a.problemf("%s: data of %d transfers was received before it was sent, by up to %v (%s from %s): the stamps of a capture are wrong",
			name, h.transfers, h.by, h.worst, h.from)
	}
}
