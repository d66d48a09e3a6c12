//go:build wasip1

package main

import "unsafe"

// The memory of messages.
var (
	message []uint64
	said    []byte
)

//go:wasmexport alloc
func alloc(size uint32) unsafe.Pointer {
	if n := int(size)/8 + 1; n > len(message) {
		message = make([]uint64, n+n/2)
	}
	return unsafe.Pointer(&message[0])
}

//go:wasmexport hello
func hello(at unsafe.Pointer, size uint32) uint64 { return decide(at, size) }

//go:wasmexport decide
func decide(at unsafe.Pointer, size uint32) uint64 {
	var err error
	if said, err = answer(unsafe.Slice((*byte)(at), size)); err != nil {
		panic(err)
	}
	return uint64(uintptr(unsafe.Pointer(&said[0])))<<32 | uint64(len(said))
}

func main() {} // of a library: it is not called
