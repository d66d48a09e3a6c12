package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/gopacket/gopacket/afpacket"
	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"testbed/topo/units"
)

// CaptureOptions sets the size of a capture.
type CaptureOptions struct {
	// Snaplen is the number of bytes kept of each frame; 0 means all.
	Snaplen units.Bytes
	// Whole is a port: UDP datagrams to it are kept whole, unless Ports is set; 0 for none.
	Whole uint16
	// Ring is the size of the kernel's buffer for packets that Run has not read, locked in memory
	// while the capture is open; 0 means DefaultRing. It is rounded up to whole blocks of 128 KiB.
	// A single block drops packets until it is read, so use at least four blocks, as scenarios
	// require. A packet takes its kept bytes plus about 80.
	Ring units.Bytes
	// Ports are the devices whose outgoing packets are captured, and nothing else; nil captures all
	// packets of all devices.
	Ports []string
}

// DefaultRing holds about 10,000 packets with 128 bytes kept of each: more than half a second of a
// 100 Mbps link busy in both directions at MTU 1500.
const DefaultRing = 2 * units.MiB

const (
	ringBlock = 128 << 10
	// blockTimeout is the maximum time before the kernel hands over a block that is not full.
	blockTimeout = 64 * time.Millisecond
	// pollInterval is the interval between Run's checks for full blocks. Waiting in the kernel
	// instead would occupy one thread per capture.
	pollInterval = 20 * time.Millisecond
	// yieldAfter is the number of packets after which Run lets others run: some tens of microseconds of work.
	yieldAfter = 32
)

// Capture is a capture of all devices of a namespace (for a host, its link and lo), or of the
// outgoing packets of some of them (CaptureOptions.Ports). The kernel's real-time clock stamps
// packets when they leave their device's queue or arrive. Packets dropped by a queue are not
// captured; the counters of Links include them. Every packet on lo passes twice and is captured
// when it arrives.
type Capture struct {
	name    string
	devices map[int]device
	ring    *afpacket.TPacket
	opened  time.Time
	stop    chan struct{} // closed by Close
	ran     chan struct{} // closed when Run has returned

	mu      sync.Mutex // guards all below
	stats   CaptureStats
	running bool
	closing bool
	closed  bool
}

// CaptureStats count packets since the capture was opened.
type CaptureStats struct {
	Packets uint64 // seen by the kernel, including dropped ones
	Dropped uint64 // because the ring was full
}

// Capture opens a capture. It sees all packets from then on.
func (n *Namespace) Capture(o CaptureOptions) (*Capture, error) {
	fail := func(err error) (*Capture, error) {
		return nil, fmt.Errorf("capture in %q: %w%s", n.name, err, privilege(err))
	}
	if o.Snaplen == 0 {
		o.Snaplen = wholeFrame
	}
	if o.Ring == 0 {
		o.Ring = DefaultRing
	}
	if o.Snaplen < 14 || o.Ring < 0 || o.Ring > units.GiB {
		return fail(fmt.Errorf("snaplen %v, ring %v: snaplen must be 14 bytes or more, and the ring 1 GiB or less", o.Snaplen, o.Ring))
	}
	names, err := n.Devices()
	if err != nil {
		return fail(err)
	}
	program := captureFilter(uint32(o.Snaplen), o.Whole)
	if o.Ports != nil {
		if program, err = portFilter(uint32(o.Snaplen), names, o.Ports); err != nil {
			return fail(err)
		}
	}
	filter, err := bpf.Assemble(program)
	if err != nil {
		return fail(err)
	}
	c := &Capture{name: n.name, stop: make(chan struct{}), ran: make(chan struct{})}
	n.mu.Lock()
	c.devices = n.devices // replaced, never changed
	n.mu.Unlock()
	err = n.do(func() (err error) {
		c.ring, err = afpacket.NewTPacket(
			afpacket.TPacketVersion3,
			afpacket.OptBlockSize(ringBlock),
			afpacket.OptFrameSize(2048), // unused in version 3, but validated
			afpacket.OptNumBlocks((int(o.Ring)+ringBlock-1)/ringBlock),
			afpacket.OptBlockTimeout(blockTimeout),
			afpacket.OptPollTimeout(0),
		)
		return err
	})
	if err != nil {
		return fail(err)
	}
	// Reset the counts: packets captured before the filter was installed are discarded.
	if err := errors.Join(c.ring.SetBPF(filter), c.ring.InitSocketStats()); err != nil {
		c.ring.Close()
		return fail(err)
	}
	c.opened = time.Now()
	return c, nil
}

// captureFilter keeps the first snaplen bytes of every packet, and all bytes of UDP
// datagrams to the port whole, except outgoing packets on lo, which also arrive there.
func captureFilter(snaplen uint32, whole uint16) []bpf.Instruction {
	const ether, mostIP, udpHead = 14, 60, 8
	return []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtInterfaceIndex},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: loopbackIndex, SkipTrue: 3},
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.PACKET_OUTGOING, SkipTrue: 1},
		bpf.RetConstant{Val: 0},
		// A load beyond the end of a packet would discard it.
		bpf.LoadExtension{Num: bpf.ExtLen},
		bpf.JumpIf{Cond: bpf.JumpLessThan, Val: ether + mostIP + udpHead, SkipTrue: 10},
		bpf.LoadAbsolute{Off: 12, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.ETH_P_IP, SkipTrue: 8},
		bpf.LoadAbsolute{Off: ether + 9, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_UDP, SkipTrue: 6},
		bpf.LoadAbsolute{Off: ether + 6, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x1fff, SkipTrue: 4}, // not the first fragment
		bpf.LoadMemShift{Off: ether},
		bpf.LoadIndirect{Off: ether + 2, Size: 2},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(whole), SkipTrue: 1},
		bpf.RetConstant{Val: max(snaplen, wholeFrame)},
		bpf.RetConstant{Val: snaplen},
	}
}

// wholeFrame is more than the length of any frame.
const wholeFrame = 1 << 18

// portFilter keeps the first snaplen bytes of every packet that leaves one of the ports. devices
// maps indexes to names.
func portFilter(snaplen uint32, devices map[int]string, ports []string) ([]bpf.Instruction, error) {
	index := make(map[string]int, len(devices))
	for i, name := range devices {
		index[name] = i
	}
	out := []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.PACKET_OUTGOING, SkipTrue: 1},
		bpf.RetConstant{Val: 0},
		bpf.LoadExtension{Num: bpf.ExtInterfaceIndex},
	}
	for _, name := range ports {
		i, ok := index[name]
		if !ok || i == loopbackIndex {
			return nil, fmt.Errorf("unknown port %q", name)
		}
		out = append(out, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(i), SkipTrue: 1}, bpf.RetConstant{Val: snaplen})
	}
	out = append(out, bpf.RetConstant{Val: 0})
	// The kernel's BPF_MAXINSNS.
	if len(out) > 4096 {
		return nil, fmt.Errorf("%d ports: too many for one capture filter", len(ports))
	}
	return out, nil
}

// loopbackIndex is the index of lo in every namespace.
const loopbackIndex = 1

// Devices returns the names of the captured devices by index.
func (c *Capture) Devices() map[int]string {
	names := make(map[int]string, len(c.devices))
	for index, d := range c.devices {
		names[index] = d.name
	}
	return names
}

// Run calls each for every packet, in the order in which the kernel received them, until Close has
// been called and all packets seen before are delivered. Packets that two processors handle at the
// same time may be out of order by time stamp, mostly by nanoseconds. data is the kept part of the
// frame, and is overwritten after each returns; origLen is the length of the whole frame. outgoing
// reports whether the frame left through the device; it is never set on lo. Run returns the first
// error of each. When ctx is done, it abandons the capture and returns the cause. It may be called
// once.
func (c *Capture) Run(ctx context.Context, each func(ts time.Time, ifindex int, outgoing bool, data []byte, origLen int) error) error {
	c.mu.Lock()
	if c.running || c.closing {
		c.mu.Unlock()
		return fmt.Errorf("capture in %q: %w: Run may be called once", c.name, os.ErrClosed)
	}
	c.running = true
	c.mu.Unlock()
	defer close(c.ran)
	r := reader{Capture: c, each: each}
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		if err := r.read(ctx); err != nil {
			return fmt.Errorf("capture in %q: %w", c.name, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("capture in %q abandoned: %w", c.name, context.Cause(ctx))
		case <-c.stop:
			if err := r.drain(ctx, tick.C); err != nil {
				return fmt.Errorf("capture in %q: %w", c.name, err)
			}
			return nil
		case <-tick.C:
		}
	}
}

// reader is the state of a Run.
type reader struct {
	*Capture
	each  func(ts time.Time, ifindex int, outgoing bool, data []byte, origLen int) error
	taken uint64 // packets delivered
	early uint64 // discarded packets from before the capture was open
}

// read delivers the packets that are in the ring.
func (r *reader) read(ctx context.Context) error {
	for i := 1; ; i++ {
		data, ci, err := r.ring.ZeroCopyReadPacketData()
		if errors.Is(err, afpacket.ErrTimeout) {
			return nil
		}
		if err != nil {
			return err
		}
		if ci.Timestamp.Before(r.opened) {
			r.early++
			continue
		}
		r.taken++
		if err := r.each(ci.Timestamp, ci.InterfaceIndex, r.outgoing(ci.InterfaceIndex, data), data, ci.Length); err != nil {
			return err
		}
		if i%yieldAfter == 0 {
			Yield()
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
	}
}

// outgoing reports whether a device sent the frame: the source address is then the device's.
func (r *reader) outgoing(index int, data []byte) bool {
	return index != loopbackIndex && len(data) >= 12 && [6]byte(data[6:12]) == r.devices[index].mac
}

// drain stops the intake and delivers the packets that the kernel still has, most of them in a
// block whose timeout has not expired.
func (r *reader) drain(ctx context.Context, tick <-chan time.Time) error {
	dropAll, err := bpf.Assemble([]bpf.Instruction{bpf.RetConstant{Val: 0}})
	if err == nil {
		err = r.ring.SetBPF(dropAll)
	}
	if err != nil {
		return err
	}
	const timeout = 2 * time.Second
	for start := time.Now(); ; {
		if err := r.read(ctx); err != nil {
			return err
		}
		s, err := r.Stats()
		if err != nil {
			return err
		}
		kept := s.Packets - s.Dropped
		switch elapsed := time.Since(start); {
		case elapsed < pollInterval: // a packet that passed the old filter may still arrive
		case r.taken == kept && r.early == 0:
			return nil
		case r.taken+r.early >= kept && elapsed > 4*blockTimeout:
			return nil // whether the kernel counted early packets is unknown
		case elapsed > timeout:
			return fmt.Errorf("the kernel did not deliver %d of %d packets", kept-r.taken, kept)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick:
		}
	}
}

// Stats returns the kernel's counts. It may be called after Close.
func (c *Capture) Stats() (CaptureStats, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count()
}

func (c *Capture) count() (CaptureStats, error) {
	if c.closed {
		return c.stats, nil
	}
	_, s, err := c.ring.SocketStats()
	if err != nil {
		return c.stats, fmt.Errorf("read the counts of the capture in %q: %w", c.name, err)
	}
	c.stats = CaptureStats{Packets: uint64(s.Packets()), Dropped: uint64(s.Drops())}
	return c.stats, nil
}

// Close ends the capture: it waits until Run has delivered all packets captured so far, then frees
// the ring. A second call only waits too.
func (c *Capture) Close() error {
	c.mu.Lock()
	if !c.closing {
		c.closing = true
		close(c.stop)
	}
	running := c.running
	c.mu.Unlock()
	if running {
		<-c.ran
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil
	}
	_, err := c.count()
	c.closed = true
	c.ring.Close()
	return err
}
