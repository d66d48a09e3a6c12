package live

import (
	"net/netip"
	"slices"
	"sync"
	"time"
)

// setup delays new connections while others are being set up. Starting a connection, accepting it,
// sending on it and reading its first bytes take about the same processor time for all, and a coflow
// starts hundreds at once. If all started at the same time, every goroutine that waits for a packet
// would wait behind all of them, and completions would be reported late.
//
// What is held back is time on the clock of the run like any other, as if a host
// opened its connections one after the other: completion times count it.
type setup struct {
	most    int           // connections being set up at once
	longest time.Duration // for which each counts: the network may keep one for longer

	mu    sync.Mutex
	begun []beginning   // in order of time
	less  chan struct{} // capacity 1: receives when an element of begun is removed
}

type beginning struct {
	at    time.Time
	local netip.AddrPort
}

func newSetup(most int, longest time.Duration) *setup {
	return &setup{most: most, longest: longest, less: make(chan struct{}, 1)}
}

// begin counts a connection that is begun from local.
func (s *setup) begin(local netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.begun = append(s.begun, beginning{time.Now(), local})
}

// end records that a connection from local has been set up.
func (s *setup) end(local netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := slices.IndexFunc(s.begun, func(b beginning) bool { return b.local == local })
	if at < 0 {
		return
	}
	s.begun = slices.Delete(s.begun, at, at+1)
	select {
	case s.less <- struct{}{}:
	default:
	}
}

// wait is how long another connection is to wait unless one ends before; 0 is not
// at all.
func (s *setup) wait() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.begun) >= s.most {
		if left := s.longest - time.Since(s.begun[0].at); left > 0 {
			return left
		}
		s.begun = slices.Delete(s.begun, 0, 1)
	}
	return 0
}
