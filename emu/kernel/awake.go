package kernel

import (
	"encoding/binary"
	"fmt"
	"os"
)

// Awake keeps the machine's processors from states of sleep, until it is closed or the
// process ends, however that does: an idle one looks for work instead. To wake one that
// sleeps takes a microsecond to a hundred, and under a hypervisor that has given it away
// as long as that takes.
type Awake struct{ f *os.File }

// latencyFile takes how many microseconds processors may take to wake, for as long as
// it is open (the kernel's Documentation/power/pm_qos_interface.rst).
const latencyFile = "/dev/cpu_dma_latency"

// StayAwake needs root, and a kernel with idle states that can be told so.
func StayAwake() (*Awake, error) {
	f, err := os.OpenFile(latencyFile, os.O_WRONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("keep processors awake: %w%s", err, privilege(err))
	}
	if _, err := f.Write(binary.NativeEndian.AppendUint32(nil, 0)); err != nil {
		f.Close()
		return nil, fmt.Errorf("keep processors awake: %w%s", err, privilege(err))
	}
	return &Awake{f}, nil
}

// Close lets processors sleep again, if nobody else keeps them awake.
func (a *Awake) Close() error { return a.f.Close() }
