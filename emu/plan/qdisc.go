package plan

import (
	"fmt"
	"math"
	"time"

	"testbed/topo"
	"testbed/topo/units"
)

// marks let connections understand ECN, where switches mark.
var marks = []Setting{{"net.ipv4.tcp_ecn", "1"}}

// smallestPacket is that of TCP without data, as the kernel counts it: a header
// each of Ethernet, IPv4 and TCP.
const smallestPacket units.Bytes = 14 + 20 + 20

// delayLimit is how many packets are held at most ahead of a link by its delay
// and in its queue, if all are as small as they can be and arrive as fast as they
// can.
func delayLimit(l topo.Link, arrivals units.Rate) uint32 {
	held := float64(arrivals) / 8 * l.Delay.Seconds()
	packets := (held + float64(l.Queue)) / float64(smallestPacket)
	return uint32(min(math.Ceil(packets)+100, math.MaxInt32)) // the kernel counts what it holds in an int
}

// redPacket is two thirds of a full frame, about the mean of a mixture of full
// frames and acknowledgements: 1000 bytes, the usual choice, at an MTU of 1500.
func redPacket(mtu units.Bytes) units.Bytes { return (mtu + EthernetHeader) * 2 / 3 }

// redBurst is the burst that tc-red(8) recommends: (min + min + max) / (3 · packet).
func redBurst(low, high, packet units.Bytes) int {
	return int((2*low + high + 3*packet - 1) / (3 * packet))
}

// REDWeight is the weight of the newest sample in the average, as the negative
// of its logarithm to base 2: the largest that lets a burst of so many packets
// pass from an empty queue before the average reaches low (section 6 of Floyd and
// Jacobson 1993, as tc computes it). ok is false where there is none.
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

// check tells why the kernel cannot do it.
func (o RED) check() error {
	log, ok := REDWeight(o.Min, o.Burst, o.Packet)
	switch {
	case o.Min < o.Packet || !ok:
		return fmt.Errorf("red: min %v: fewer than one packet of %v: want more", o.Min, o.Packet)
	case o.Max < o.Min:
		return fmt.Errorf("red: max %v below min %v: want more", o.Max, o.Min)
	case float64(o.Max)*math.Exp2(float64(log)) >= 1<<31:
		return fmt.Errorf("red: max %v at an average over 2^%d packets: the kernel counts no further than 2^31: want less", o.Max, log)
	case !(o.Probability > 0 && o.Probability <= 1):
		return fmt.Errorf("red: probability %v: want more than 0 and at most 1", o.Probability)
	}
	return nil
}

func (o Delay) check() error {
	// The kernel takes any delay, tc no less than a microsecond.
	if o.Delay < time.Microsecond || o.Delay > topo.MaxDelay {
		return fmt.Errorf("delay %v: want 1µs to %v", o.Delay, topo.MaxDelay)
	}
	return nil
}

// Need is a kind of qdisc that a plan cannot be built without.
type Need struct {
	Qdisc string // as tc(8) names it: "tbf", "netem" or "red"
	For   string // the first device that needs it, and how many more
	Key   string // what in a fabric asks for it; "" where every fabric does
}

// Needs are the kinds of qdisc that the kernel must have to carry out the plan,
// each once, in the order in which they are needed.
func (p *Plan) Needs() []Need {
	var needs []Need
	count := map[string]int{}
	note := func(qdisc, key, namespace, device string) {
		if count[qdisc]++; count[qdisc] == 1 {
			needs = append(needs, Need{Qdisc: qdisc, For: namespace + "/" + device, Key: key})
		}
	}
	for _, op := range p.Ops() {
		switch op := op.(type) {
		case Delay:
			note("netem", "delay", op.Namespace, op.Device)
		case Shaper:
			note("tbf", "", op.Namespace, op.Device)
		case RED:
			note("red", "red", op.Namespace, op.Device)
		}
	}
	for i, n := range needs {
		if more := count[n.Qdisc] - 1; more > 0 {
			needs[i].For += fmt.Sprintf(" and %d more", more)
		}
	}
	return needs
}
