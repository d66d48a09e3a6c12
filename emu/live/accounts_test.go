package live

import (
	"testing"

	"testbed/emu/fidelity"
	"testbed/emu/kernel"
)

// A leaf that took in 1,000 packets, of which 10 were marks, passed on 990; of those
// its queues dropped 40.
func TestLoss(t *testing.T) {
	was := account{received: 100, sent: 90, dropped: 5, ip: kernel.IPStats{Received: 100, Forwarded: 95, Sent: 96, Delivered: 1}}
	clean := account{received: 1100, sent: 1040, dropped: 45, ip: kernel.IPStats{Received: 1100, Forwarded: 1085, Sent: 1086, Delivered: 1}}
	for _, tt := range []struct {
		name                  string
		change                func(*account)
		before, inside, after uint64
	}{
		{"clean", func(*account) {}, 0, 0, 0},
		{"a filter before IP", func(a *account) { a.received += 7 }, 7, 0, 0},
		{"a filter in IP", func(a *account) { a.received += 7; a.ip.Received += 7 }, 0, 7, 0},
		{"a filter after IP", func(a *account) { a.sent -= 7 }, 0, 0, 7},
		{"still in a queue", func(a *account) { a.sent -= 7; a.waiting = 10_000 }, 0, 0, 0},
		{"sent between two readings", func(a *account) { a.sent += 2 }, 0, 0, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			is := clean
			tt.change(&is)
			got := is.loss("leaf0", was, 10)
			if got.Before != tt.before || got.Inside != tt.inside || got.After != tt.after {
				t.Errorf("%+v, want %d before, %d inside and %d after IP", got, tt.before, tt.inside, tt.after)
			}
			if got.Packets < 1000 || got.Packets > 1010 {
				t.Errorf("%d packets", got.Packets)
			}
		})
	}
}

// A switch that forwarded 990 packets created three, of which it received two itself.
func TestOwnPackets(t *testing.T) {
	was := account{ip: kernel.IPStats{Forwarded: 95, Sent: 96, Delivered: 1}}
	is := account{ip: kernel.IPStats{Forwarded: 1085, Sent: 1089, Delivered: 3}}
	if got, want := is.ownPackets("leaf0", was), (fidelity.SwitchPackets{Switch: "leaf0", Created: 3, Delivered: 2, Forwarded: 990}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
