package runner

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"unsafe"

	"testbed/emu/live"
	"testbed/emu/plan"
	"testbed/topo/units"
)

// offloads turns the offloads of h0-00 on, with a bucket that lets what they make
// pass whole.
func offloads() tamper {
	bucket := shapers("h0-00", plan.Uplink, func(s *plan.Shaper) { s.Burst = 70 * units.KB })
	return tamper{start: func(cfg *live.Config, pins string) error {
		if err := bucket.start(cfg, pins); err != nil {
			return err
		}
		c := exec.Command("nsenter", "--net="+filepath.Join(pins, "h0-00"), os.Args[0], "-test.run=^TestOffloadsOn$")
		c.Env = append(os.Environ(), offloadsEnv+"="+plan.Uplink)
		if b, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("turn offloads on: %w: %s", err, b)
		}
		return within(pins, "h0-00", "ip", "link", "set", "dev", plan.Uplink, "gso_max_segs", "65535", "gso_max_size", "65536")
	}}
}

const offloadsEnv = "SENSITIVITY_OFFLOADS"

// TestOffloadsOn is not a test but what offloads runs in a host's namespace.
func TestOffloadsOn(t *testing.T) {
	device := os.Getenv(offloadsEnv)
	if device == "" {
		return
	}
	socket, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_DGRAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(socket)
	const siocEthtool = 0x8946
	// Requests of linux/ethtool.h that set checksums, scatter-gather, TSO and GSO.
	for _, request := range []uint32{0x17, 0x19, 0x1f, 0x24} {
		value := &[2]uint32{request, 1}
		var ifreq struct {
			name [syscall.IFNAMSIZ]byte
			data unsafe.Pointer
			_    [16]byte
		}
		copy(ifreq.name[:syscall.IFNAMSIZ-1], device)
		ifreq.data = unsafe.Pointer(value)
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(socket), siocEthtool, uintptr(unsafe.Pointer(&ifreq))); errno != 0 {
			t.Fatalf("ethtool request %#x of %s: %v", request, device, errno)
		}
	}
}
