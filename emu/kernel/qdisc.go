package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"testbed/emu/deploy"
	"testbed/emu/plan"
)

// qdisc returns a request for a qdisc on a device. A parent of 0 means the root, otherwise class 1
// of the qdisc with that handle.
func (b *builder) qdisc(index int, kind string, handle, parent uint16) *nl.NetlinkRequest {
	req := b.request(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK)
	msg := &nl.TcMsg{Family: unix.AF_UNSPEC, Ifindex: int32(index), Handle: uint32(handle) << 16, Parent: netlink.HANDLE_ROOT}
	if parent > 0 {
		msg.Parent = uint32(parent)<<16 | 1
	}
	req.AddData(msg)
	req.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(kind)))
	return req
}

// addQdisc executes a request for a qdisc of a kind that the kernel may not support.
func addQdisc(req *nl.NetlinkRequest, kind string) error {
	err := change(req)
	if errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("qdisc %s: %w", kind, deploy.ErrUnsupported)
	}
	return err
}

// shape adds a token bucket to a device. The size of the bucket is passed in bytes (TCA_TBF_BURST).
// The older form, the time to fill the bucket, is rounded to ticks and, by common libraries, to
// microseconds.
func (b *builder) shape(index int, op plan.Shaper) error {
	if op.Packets > 0 {
		return b.netem(index, op.Delay, op.Packets, uint64(op.Rate.BytesPerSecond()))
	}
	handle, parent := op.Handle()
	req := b.qdisc(index, "tbf", handle, parent)
	bytesPerSecond := uint64(op.Rate.BytesPerSecond())
	params := nl.TcTbfQopt{Limit: uint32(op.Limit)}
	params.Rate.Rate = uint32(min(bytesPerSecond, 1<<32-1))
	params.Rate.Linklayer = nl.LINKLAYER_ETHERNET
	options := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
	options.AddRtAttr(nl.TCA_TBF_PARMS, params.Serialize())
	options.AddRtAttr(nl.TCA_TBF_BURST, nl.Uint32Attr(uint32(op.Burst)))
	if bytesPerSecond >= 1<<32 {
		options.AddRtAttr(nl.TCA_TBF_RATE64, nl.Uint64Attr(bytesPerSecond))
	}
	req.AddData(options)
	return change(req)
}

func (b *builder) delay(index int, op plan.Delay) error {
	return b.netem(index, op.Delay, op.Packets, 0)
}

// netem adds netem at the root of a device. Its options are a struct followed by attributes. The
// latency of the struct is in ticks; the attribute, in nanoseconds, overrides it. A rate of 0 bytes per
// second holds no packet for its own length.
func (b *builder) netem(index int, delay time.Duration, limit uint32, rate uint64) error {
	req := b.qdisc(index, "netem", plan.RootHandle, 0)
	head := make([]byte, 24) // struct tc_netem_qopt
	binary.NativeEndian.PutUint32(head[4:], limit)
	options := nl.NewRtAttr(nl.TCA_OPTIONS, head)
	options.AddRtAttr(tcaNetemLatency64, nl.Uint64Attr(uint64(delay)))
	if rate > 0 {
		if rate >= minRate64 {
			options.AddRtAttr(tcaNetemRate64, nl.Uint64Attr(rate))
		}
		spec := make([]byte, 16) // struct tc_netem_rate: rate, overhead, cells
		binary.NativeEndian.PutUint32(spec, uint32(min(rate, minRate64-1)))
		options.AddRtAttr(nl.TCA_NETEM_RATE, spec)
	}
	req.AddData(options)
	return addQdisc(req, "netem")
}

// red adds RED as the queue of a token bucket.
func (b *builder) red(index int, op plan.RED) error {
	log, ok := plan.REDWeight(op.Min, op.Burst, op.Packet)
	if !ok {
		return errors.New("no weight of the average admits this burst") // plan.Check refuses it earlier
	}
	req := b.qdisc(index, "red", plan.REDHandle, op.Parent())
	params := make([]byte, 16) // struct tc_red_qopt
	binary.NativeEndian.PutUint32(params[0:], uint32(op.Limit))
	binary.NativeEndian.PutUint32(params[4:], uint32(op.Min))
	binary.NativeEndian.PutUint32(params[8:], uint32(op.Max))
	decay, cell := redDecay(log, op.Rate.TimeToSend(op.Packet).Seconds()*1e6)
	params[12], params[13], params[14] = log, redSlope(op), cell
	if op.ECN {
		params[15] = tcRedECN
	}
	options := nl.NewRtAttr(nl.TCA_OPTIONS, nil)
	options.AddRtAttr(tcaRedParms, params)
	options.AddRtAttr(tcaRedStab, decay[:])
	options.AddRtAttr(tcaRedMaxP, nl.Uint32Attr(uint32(min(op.Probability*(1<<32), math.MaxUint32))))
	req.AddData(options)
	return addQdisc(req, "red")
}

// redSlope returns the negative logarithm to base 2, rounded up, of the probability divided by the
// range of the average. Kernels since 3.3 use the probability itself but still require this value.
func redSlope(op plan.RED) uint8 {
	per := op.Probability / float64(op.Max-op.Min)
	return uint8(min(math.Ceil(-math.Log2(per)), 31))
}

// redDecay returns the table with which the kernel decays the average while the queue is idle.
// Entry i is the shift of the average after i cells of 2^cell µs, as if a packet had left an empty
// queue every packet µs.
func redDecay(log uint8, packet float64) (decay [256]byte, cell uint8) {
	perMicrosecond := -math.Log2(1-math.Exp2(-float64(log))) / packet
	const maxShift = 31
	for cell < 31 && maxShift/perMicrosecond/math.Exp2(float64(cell)) >= 512 {
		cell++
	}
	for i := 1; i < len(decay); i++ {
		decay[i] = byte(min(math.Exp2(float64(cell))*float64(i)*perMicrosecond, maxShift))
	}
	decay[255] = maxShift
	return decay, cell
}

// CheckPlan returns an error if this kernel or machine lacks the features or resources to carry out
// p: see CheckNeeds and CheckResources. deploy.Apply calls it first.
func (x *Executor) CheckPlan(p *plan.Plan) error {
	c := p.Counts()
	if err := CheckResources("a fabric of "+c.String(), ResourcesOf(c.Namespaces, c.Links)); err != nil {
		return err
	}
	return CheckNeeds(p)
}

// From linux/pkt_sched.h.
const (
	tcaNetemLatency64 = 10
	tcaRedParms       = 1
	tcaRedStab        = 2
	tcaRedMaxP        = 3
	tcRedECN          = 1
)
