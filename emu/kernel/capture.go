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

// CaptureOptions size a capture.
type CaptureOptions struct {
	// Snaplen is how much of each frame is kept; 0 is all of it.
	Snaplen units.Bytes
	// Ring is the memory in which the kernel keeps packets until Run takes them,
	// locked for as long as the capture is open; 0 is DefaultRing. It is rounded up
	// to whole blocks of 128 KiB. A single block drops what comes in until it is
	// read, so one wants four or more (scenarios ask for that). A packet takes its kept bytes and
	// about 80 more.
	Ring units.Bytes
	// Ports are the devices of which only what leaves them is kept, and of all
	// others nothing; nil keeps all that passes any device.
	Ports []string
}

// DefaultRing holds about 10,000 packets of which 128 bytes are kept: more than
// half a second of a 100 Mbps link busy both ways at MTU 1500.
const DefaultRing = 2 * units.MiB

const (
	ringBlock = 128 << 10
	// blockTimeout is how long the kernel leaves packets in a block that is not
	// full before it hands it over.
	blockTimeout = 64 * time.Millisecond
	// pollInterval is how often Run looks for full blocks. It looks rather than
	// waits in the kernel, which would hold a thread for each capture.
	pollInterval = 20 * time.Millisecond
)

// Capture is a capture of all devices of a namespace, of a host its link and lo, or
// of what leaves some of them (CaptureOptions.Ports). Packets are stamped by the kernel's real-time clock as they leave their
// device's queue, or as they arrive. What a queue drops is never seen; the
// counters of Links tell. On lo every packet passes twice; it is kept as it
// arrives.
type Capture struct {
	name    string
	devices map[int]device
	ring    *afpacket.TPacket
	opened  time.Time
	stop    chan struct{} // closed by Close
	ran     chan struct{} // closed when Run has returned

	mu      sync.Mutex // guards what follows
	stats   CaptureStats
	running bool
	closing bool
	closed  bool
}

// CaptureStats count packets since the capture was opened.
type CaptureStats struct {
	Packets uint64 // seen by the kernel, dropped ones included
	Dropped uint64 // for want of room in the ring
}

// Capture opens a capture, which sees packets from then on.
func (n *Namespace) Capture(o CaptureOptions) (*Capture, error) {
	fail := func(err error) (*Capture, error) {
		return nil, fmt.Errorf("capture in %q: %w%s", n.name, err, privilege(err))
	}
	if o.Snaplen == 0 {
		o.Snaplen = 1 << 18
	}
	if o.Ring == 0 {
		o.Ring = DefaultRing
	}
	if o.Snaplen < 14 || o.Ring < 0 || o.Ring > units.GiB {
		return fail(fmt.Errorf("snaplen %v, ring %v: want a snaplen of 14 bytes or more and a ring of 1 GiB or less", o.Snaplen, o.Ring))
	}
	names, err := n.Devices()
	if err != nil {
		return fail(err)
	}
	program := captureFilter(uint32(o.Snaplen))
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
			afpacket.OptFrameSize(2048), // of no meaning in version 3, but checked
			afpacket.OptNumBlocks((int(o.Ring)+ringBlock-1)/ringBlock),
			afpacket.OptBlockTimeout(blockTimeout),
			afpacket.OptPollTimeout(0),
		)
		return err
	})
	if err != nil {
		return fail(err)
	}
	// What was captured before the filter was in place is neither counted nor
	// handed out.
	if err := errors.Join(c.ring.SetBPF(filter), c.ring.InitSocketStats()); err != nil {
		c.ring.Close()
		return fail(err)
	}
	c.opened = time.Now()
	return c, nil
}

// captureFilter keeps the first snaplen bytes of every packet but those that go
// out on lo, which come in on it next.
func captureFilter(snaplen uint32) []bpf.Instruction {
	return []bpf.Instruction{
		bpf.LoadExtension{Num: bpf.ExtInterfaceIndex},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: loopbackIndex, SkipTrue: 2},
		bpf.LoadExtension{Num: bpf.ExtType},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.PACKET_OUTGOING, SkipTrue: 1},
		bpf.RetConstant{Val: snaplen},
		bpf.RetConstant{Val: 0},
	}
}

// portFilter keeps the first snaplen bytes of every packet that leaves one of the
// ports, which are among devices, names by index.
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
			return nil, fmt.Errorf("no port %q to capture", name)
		}
		out = append(out, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(i), SkipTrue: 1}, bpf.RetConstant{Val: snaplen})
	}
	out = append(out, bpf.RetConstant{Val: 0})
	// The kernel's BPF_MAXINSNS.
	if len(out) > 4096 {
		return nil, fmt.Errorf("%d ports: too many for one filter", len(ports))
	}
	return out, nil
}

// loopbackIndex is the index of lo in every namespace.
const loopbackIndex = 1

// Devices are the names of the captured devices by index.
func (c *Capture) Devices() map[int]string {
	names := make(map[int]string, len(c.devices))
	for index, d := range c.devices {
		names[index] = d.name
	}
	return names
}

// Run calls each for every packet, in the order in which the kernel took them
// in, until Close is called and all that was seen before is handed out. Packets
// that two processors handle at once may be out of the order of their time
// stamps, by nanoseconds mostly. data is the
// kept part of the frame and is overwritten when each returns; origLen is the
// length of all of it. outgoing tells that the frame left through the device; on
// lo it is never set. Run stops at the first error of each and returns it, or
// abandons the capture when ctx is done and returns its cause. It may be called
// once.
func (c *Capture) Run(ctx context.Context, each func(ts time.Time, ifindex int, outgoing bool, data []byte, origLen int) error) error {
	c.mu.Lock()
	if c.running || c.closing {
		c.mu.Unlock()
		return fmt.Errorf("capture in %q: %w: it runs once", c.name, os.ErrClosed)
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
	taken uint64 // packets handed out
	early uint64 // packets from before the capture was open
}

// read hands out what is in the ring now.
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
		if i%1024 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
}

// outgoing tells a frame's direction by its source address, which is the
// device's own on what it sends.
func (r *reader) outgoing(index int, data []byte) bool {
	return index != loopbackIndex && len(data) >= 12 && [6]byte(data[6:12]) == r.devices[index].mac
}

// drain takes in no more packets and hands out those the kernel still has, most
// of them in a block that it hands over when its timeout is up.
func (r *reader) drain(ctx context.Context, tick <-chan time.Time) error {
	none, err := bpf.Assemble([]bpf.Instruction{bpf.RetConstant{Val: 0}})
	if err == nil {
		err = r.ring.SetBPF(none)
	}
	if err != nil {
		return err
	}
	const patience = 2 * time.Second
	for start := time.Now(); ; {
		if err := r.read(ctx); err != nil {
			return err
		}
		s, err := r.Stats()
		if err != nil {
			return err
		}
		kept := s.Packets - s.Dropped
		switch late := time.Since(start); {
		case late < pollInterval: // a packet that passed the filter before may still be on its way in
		case r.taken == kept && r.early == 0:
			return nil
		case r.taken+r.early >= kept && late > 4*blockTimeout:
			return nil // whether an early packet was counted cannot be told
		case late > patience:
			return fmt.Errorf("the kernel kept back %d of %d packets", kept-r.taken, kept)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick:
		}
	}
}

// Stats are the kernel's counts, also after Close.
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
		return c.stats, fmt.Errorf("counts of the capture in %q: %w", c.name, err)
	}
	c.stats = CaptureStats{Packets: uint64(s.Packets()), Dropped: uint64(s.Drops())}
	return c.stats, nil
}

// Close ends the capture: it waits for Run to hand out what was captured so far,
// then frees the ring. A second call waits too, and does nothing else.
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
