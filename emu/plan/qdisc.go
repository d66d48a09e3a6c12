package plan

import (
	"fmt"
	"math"
	"time"

	"testbed/topo"
	"testbed/topo/units"
)

// ecnSettings enable ECN on hosts; they are used if switches mark packets.
var ecnSettings = []Setting{{"net.ipv4.tcp_ecn", "1"}}

// smallestPacket is the size of a TCP packet without data, as the kernel counts it: the
// headers of Ethernet, IPv4 and TCP.
const smallestPacket units.Bytes = 14 + 20 + 20

// delayLimit returns the maximum number of packets in a link's delay and queue together,
// if all packets have the smallest size and arrive at the given rate.
func delayLimit(l topo.Link, arrivals units.Rate) uint32 {
	held := float64(arrivals) / 8 * l.Delay.Seconds()
	packets := (held + float64(l.Queue)) / float64(smallestPacket)
	return uint32(min(math.Ceil(packets)+100, math.MaxInt32)) // the kernel counts these packets in an int
}

// redPacket returns two thirds of a full frame, about the mean of a mixture of full
// frames and acknowledgements: 1000 bytes, the usual choice, at an MTU of 1500.
func redPacket(mtu units.Bytes) units.Bytes { return (mtu + EthernetHeader) * 2 / 3 }

// redBurst returns the burst that tc-red(8) recommends: (min + min + max) / (3 · packet).
func redBurst(low, high, packet units.Bytes) int {
	return int((2*low + high + 3*packet - 1) / (3 * packet))
}

// REDWeight returns the weight of the newest sample in the average, as the negative of its
// logarithm to base 2. It is the largest weight at which burst packets can arrive at an
// empty queue before the average reaches low (section 6 of Floyd and Jacobson 1993, as tc
// computes it). ok is false if there is no such weight.
func REDWeight(low units.Bytes, burst int, packet units.Bytes) (log uint8, ok bool) {
	a := float64(burst) + 1 - float64(low)/float64(packet)
	if a < 1 {
		return 0, false
	}
	w := 0.5
	for log = 1; log < 32; log++ {
		if a <= (1-math.Pow(1-w, float64(burst)))/w {
			return log, true
		}
		w /= 2
	}
	return 0, false
}

// check returns an error if the kernel does not support o.
func (o RED) check() error {
	log, ok := REDWeight(o.Min, o.Burst, o.Packet)
	switch {
	case o.Min < o.Packet || !ok:
		return fmt.Errorf("red: min %v: fewer than one packet of %v: must be larger", o.Min, o.Packet)
	case o.Max < o.Min:
		return fmt.Errorf("red: max %v below min %v: must be larger", o.Max, o.Min)
	case float64(o.Max)*math.Exp2(float64(log)) >= 1<<31:
		return fmt.Errorf("red: max %v at an average over 2^%d packets: the kernel counts no further than 2^31: must be smaller", o.Max, log)
	case !(o.Probability > 0 && o.Probability <= 1):
		return fmt.Errorf("red: probability %v: must be more than 0 and at most 1", o.Probability)
	}
	return nil
}

func (o Delay) check() error {
	// The kernel accepts any delay, but tc none below a microsecond.
	if o.Delay < time.Microsecond || o.Delay > topo.MaxDelay {
		return fmt.Errorf("delay %v: must be 1µs to %v", o.Delay, topo.MaxDelay)
	}
	return nil
}
