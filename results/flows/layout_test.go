package flows

import (
	"testing"
	"unsafe"
)

// What packets need of a connection lies in as few cache lines as its comments say, on
// machines with lines of 64 bytes and pointers of 8.
func TestLayout(t *testing.T) {
	const line = 64
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("pointers have another size")
	}
	var c conn
	var s sender
	for _, tt := range []struct {
		name string
		size uintptr
	}{{"conn", unsafe.Sizeof(c)}, {"sender", unsafe.Sizeof(s)}, {"four slots of table", 4 * unsafe.Sizeof(tableSlot{})}} {
		if tt.size%line != 0 {
			t.Errorf("size of %s = %d, want a multiple of %d", tt.name, tt.size, line)
		}
	}
	for _, tt := range []struct {
		name string
		end  uintptr
		most uintptr
	}{
		{"what has been seen", unsafe.Offsetof(c.sent) + unsafe.Sizeof(c.sent), line},
		{"the next checkpoint", unsafe.Offsetof(c.checks) + unsafe.Offsetof(c.checks.total) + 8, 2 * line},
		{"the receiver", unsafe.Offsetof(c.in) + unsafe.Sizeof(c.in), 3 * line},
		{"what a sender's packets need", unsafe.Offsetof(s.rtt) + unsafe.Offsetof(s.rtt.ring), line},
	} {
		if tt.end > tt.most {
			t.Errorf("%s ends at byte %d, want at most %d", tt.name, tt.end, tt.most)
		}
	}
	// An array that has pages of its own begins with a cache line.
	var slabs slabs
	if at := uintptr(unsafe.Pointer(slabs.conns.take())); at%line != 0 {
		t.Errorf("the first connection is at %#x", at)
	}
	if at := uintptr(unsafe.Pointer(slabs.senders.take())); at%line != 0 {
		t.Errorf("the first sender is at %#x", at)
	}
}
