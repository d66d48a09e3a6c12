package flows

import (
	"testing"
	"unsafe"
)

// What packets need of a connection lies in as few cache lines as its comment says, on
// the machines that have lines of 64 bytes and pointers of 8.
func TestLayout(t *testing.T) {
	const line = 64
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("pointers have another size")
	}
	t.Log(unsafe.Sizeof(conn{}), unsafe.Sizeof(sender{}), unsafe.Sizeof(arrival{}), unsafe.Sizeof(tableSlot{}), unsafe.Offsetof(conn{}.checks), unsafe.Offsetof(conn{}.in), unsafe.Offsetof(conn{}.connID), unsafe.Offsetof(sender{}.rtt)+unsafe.Offsetof(roundTrips{}.ring))
}
