package live

import (
	"net/netip"
	"testing"
	"testing/synctest"
	"time"
)

func TestSetup(t *testing.T) {
	at := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), port) }
	synctest.Test(t, func(t *testing.T) {
		s := newSetup(2, time.Millisecond)
		want := func(when string, d time.Duration) {
			t.Helper()
			if got := s.wait(); got != d {
				t.Errorf("%s: wait() = %v, want %v", when, got, d)
			}
		}
		told := func(when string, want bool) {
			t.Helper()
			select {
			case <-s.less:
				if !want {
					t.Errorf("%s: told that there are fewer", when)
				}
			default:
				if want {
					t.Errorf("%s: not told that there are fewer", when)
				}
			}
		}
		want("at first", 0)
		s.begin(at(1))
		want("with one of two", 0)
		time.Sleep(300 * time.Microsecond)
		s.begin(at(2))
		want("with two of two", 700*time.Microsecond)
		s.end(at(9))
		told("after the end of one that never began", false)
		want("after the end of one that never began", 700*time.Microsecond)
		s.end(at(2))
		told("after an end", true)
		want("after an end", 0)
		s.begin(at(3))
		time.Sleep(700 * time.Microsecond)
		want("once the first has had its time", 0)
		s.end(at(1))
		told("after the end of one that no longer counts", false)
		s.begin(at(4))
		want("with two again", 300*time.Microsecond)
	})
}
