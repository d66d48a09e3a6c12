package plan

import (
	"fmt"
	"math"
	"time"

	"testbed/topo"
	"testbed/topo/units"
)

// MinRate is the lowest rate of a shaped link: below it, a full frame of the usual MTU
// takes more than a second and a half.
const MinRate = 8 * units.Kbps

// CheckRate returns an error, with a valid value, if the kernel cannot shape a link with
// the given MTU to rate with a queue of limit bytes and a bucket of burst bytes.
func CheckRate(rate units.Rate, limit, burst, mtu units.Bytes) error {
	frame := mtu + EthernetHeader
	switch {
	case rate < MinRate:
		return fmt.Errorf("rate %v: the kernel counts whole bytes per second: must be %v or more", rate, MinRate)
	case burst < frame:
		return fmt.Errorf("burst %v at MTU %d: a frame of %d bytes would never fit the bucket and be dropped: must be %d bytes or more", burst, int64(mtu), int64(frame), int64(frame))
	case limit < frame:
		return fmt.Errorf("queue %v at rate %v: smaller than one frame of %d bytes, so nothing would pass: must be %d bytes or %v, or more",
			limit, rate, int64(frame), int64(burst), roundUp(rate.TimeToSend(burst)))
	case limit < burst:
		return fmt.Errorf("queue %v at rate %v: smaller than the shaper's bucket of %d bytes: must be %d bytes or %v, or more",
			limit, rate, int64(burst), int64(burst), roundUp(rate.TimeToSend(burst)))
	case limit > math.MaxUint32:
		return fmt.Errorf("queue %v at rate %v: the kernel accepts at most %d bytes", limit, rate, uint32(math.MaxUint32))
	case burst > math.MaxInt32:
		return fmt.Errorf("burst %v at rate %v: the kernel accepts at most %d bytes", burst, rate, math.MaxInt32)
	case rate.TimeToSend(burst) > maxBucket:
		return fmt.Errorf("burst %v at rate %v: takes %v to fill: the kernel accepts at most %v", burst, rate, rate.TimeToSend(burst), maxBucket)
	}
	return nil
}

// maxBucket is the longest time to fill a bucket that the kernel can represent, with its
// 32-bit count of 64 ns ticks.
const maxBucket = math.MaxUint32 * 64 * time.Nanosecond

func roundUp(d time.Duration) time.Duration {
	if r := d.Round(time.Millisecond); r >= d {
		return max(r, time.Millisecond)
	}
	return d.Round(time.Millisecond) + time.Millisecond
}

// TCPHeaders is the size of the IPv4 and TCP headers of a full segment with timestamps:
// 20 and 32 bytes.
const TCPHeaders units.Bytes = 20 + 32

// Payload returns the TCP payload that a link of the given rate carries in frames
// of mtu: the rate less the Ethernet, IPv4 and TCP headers of full segments.
func Payload(rate units.Rate, mtu units.Bytes) units.Rate {
	return units.Rate(float64(rate) * float64(mtu-TCPHeaders) / float64(mtu+EthernetHeader))
}

// PayloadCapacity returns Payload of every link of a fabric, by LinkID. It is the
// capacity that policies see and that the fluid model shares.
func PayloadCapacity(f *topo.Fabric) []units.Rate {
	out := make([]units.Rate, len(f.Links()))
	for i, l := range f.Links() {
		out[i] = Payload(l.Rate, f.Shape().MTU)
	}
	return out
}

// DefaultBurst returns the bucket of a link: one frame, plus the bytes that the link carries
// in 100 µs, or half a standard frame if that is more. Kernel timers may be up to 100 µs
// late without loss of rate. A larger bucket would carry short flows at no cost in time,
// because it refills whenever the link is idle.
//
// On a quiet 2-core virtual machine with MTU 1500, rates of 10 to 200 Mbps are
// delivered within 0.2 %. 50 KB after an idle time take 1 to 4 % less than the link's
// transmission time; 3 % are due to the one frame that every bucket needs (17 % at MTU
// 9000). While another program keeps a processor busy, rates of 100 Mbps and more are 2 to
// 3 % low. No size suits 1 Gbps: this one loses 3 % of the rate, one of 200 µs still 1 %,
// and short flows deviate by up to 30 % with both.
func DefaultBurst(rate units.Rate, mtu units.Bytes) units.Bytes {
	return mtu + EthernetHeader + max(rate.BytesIn(100*time.Microsecond), 750)
}
