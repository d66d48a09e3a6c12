package pcap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
	"time"

	"testbed/topo/units"
)

// writeBuffer is the size of a Writer's buffer in bytes: some 4,000 packets of
// 160 bytes between system calls. A killed process loses at most this much.
const writeBuffer = 1 << 20

// Interface is a network interface of the captured host or switch. Its link type
// is Ethernet, also on lo, where Linux shows an Ethernet header of zeros.
type Interface struct {
	Name    string // such as "eth0"
	SnapLen int    // bytes kept of each packet; 0 for all
	// Description says what the interface is the end of. That of a switch's port
	// begins with the name of the link that leaves it, as LinkOf finds it.
	Description string
	Speed       units.Rate // of the link; 0 where it is not stated
	// Comment is what whoever looks at the packets must know; "" for nothing.
	Comment string
}

// LinkOf is the name of the link whose packets an interface shows as they leave a
// switch, such as "leaf0>spine1": what its description has before ": ". ok is false
// for any other interface, as those of hosts, which show links both ways.
func LinkOf(i Interface) (name string, ok bool) {
	name, _, _ = strings.Cut(i.Description, ": ")
	from, to, ok := strings.Cut(name, ">")
	if !ok || from == "" || to == "" || strings.ContainsAny(name, " <") || strings.Contains(to, ">") {
		return "", false
	}
	return name, true
}

// Flags of a packet, as the format has them (epb_flags).
type Flags uint32

// The flags that are written. Neither Inbound nor Outbound says that the direction
// is not known.
const (
	Inbound            Flags = 1
	Outbound           Flags = 2
	ChecksumUnfinished Flags = 1 << 9 // of TCP or UDP: left to a device that has not filled it in
)

// Writer writes one capture. It is for one goroutine.
type Writer struct {
	w          io.Writer
	buf        []byte // what has not reached w; its capacity is writeBuffer
	interfaces []Interface
	last       int64 // the highest stamp
	closed     bool
	err        error // the first; later calls return it
}

// NewWriter writes the head of a capture to w: what it is of, and its
// interfaces, of which there must be at least one. Nothing reaches w for sure
// before Flush or Close. The caller closes w.
func NewWriter(w io.Writer, m Meta, interfaces []Interface) (*Writer, error) {
	if len(interfaces) == 0 {
		return nil, errors.New("pcapng: a capture needs at least one interface")
	}
	comment, err := m.comment()
	if err != nil {
		return nil, err
	}
	out := &Writer{w: w, buf: make([]byte, 0, writeBuffer), interfaces: append([]Interface(nil), interfaces...)}
	out.begin(sectionHeader)
	out.uint32(byteOrderMagic)
	out.uint32(1)              // version 1.0
	out.uint64(math.MaxUint64) // length of the section: not known
	out.option(optHardware, runtime.GOARCH)
	out.option(optOS, runtime.GOOS)
	out.option(optApplication, m.Tool+" "+m.Version)
	out.option(optComment, comment)
	out.finish(0)
	for _, i := range interfaces {
		if n := len(i.Name) + len(i.Description) + len(i.Comment); n > math.MaxUint16 {
			return nil, fmt.Errorf("pcapng: interface %.20q: name, description and comment of %d bytes: want at most %d", i.Name, n, math.MaxUint16)
		}
		if err := out.room(len(i.Name) + len(i.Description) + len(i.Comment) + 128); err != nil {
			return nil, fmt.Errorf("pcapng: write interface %q: %w", i.Name, err)
		}
		start := len(out.buf)
		out.begin(interfaceBlock)
		out.uint32(linkEthernet)
		out.uint32(uint32(i.SnapLen))
		out.option(optName, i.Name)
		out.option(optDescription, i.Description)
		if i.Speed > 0 && i.Speed != units.MaxRate {
			out.buf = binary.LittleEndian.AppendUint32(out.buf, optSpeed|8<<16)
			out.uint64(uint64(i.Speed))
		}
		out.option(optResolution, "\x09")
		out.option(optSystem, runtime.GOOS)
		out.option(optComment, i.Comment)
		out.finish(start)
	}
	return out, nil
}

// Blocks are built at the end of the buffer, little endian.

func (w *Writer) begin(kind uint32) {
	w.uint32(kind)
	w.uint32(0) // its length, which finish fills in
}

func (w *Writer) uint32(v uint32) { w.buf = binary.LittleEndian.AppendUint32(w.buf, v) }
func (w *Writer) uint64(v uint64) { w.buf = binary.LittleEndian.AppendUint64(w.buf, v) }

// option appends an option, unless it says nothing.
func (w *Writer) option(code uint16, value string) {
	if value == "" {
		return
	}
	w.uint32(uint32(code) | uint32(len(value))<<16)
	w.buf = append(w.buf, value...)
	w.buf = append(w.buf, "\x00\x00\x00"[:-len(value)&3]...)
}

// finish ends the block that begins at start, with the mark of the end of its
// options.
func (w *Writer) finish(start int) {
	w.uint32(optEnd)
	w.length(start)
}

// length states the length of the block that begins at start, on both sides.
func (w *Writer) length(start int) {
	size := uint32(len(w.buf) - start + 4)
	w.uint32(size)
	binary.LittleEndian.PutUint32(w.buf[start+4:], size)
}

// room empties the buffer where it could not take n bytes more.
func (w *Writer) room(n int) error {
	if len(w.buf)+n <= cap(w.buf) {
		return nil
	}
	return w.flush()
}

func (w *Writer) flush() error {
	n, err := w.w.Write(w.buf)
	if err == nil && n < len(w.buf) {
		err = io.ErrShortWrite
	}
	w.buf = w.buf[:0]
	return err
}

var errClosed = errors.New("pcapng: write after Close")

// Write appends a packet of the ifIndex-th interface, counted from 0. ts keeps
// its nanoseconds; data are the bytes that were kept of the packet's origLen.
// Write keeps no reference to data.
func (w *Writer) Write(ifIndex int, ts time.Time, data []byte, origLen int) error {
	return w.WriteNoted(Packet{Interface: ifIndex, Stamp: ts.UnixNano(), Data: data, Len: origLen}, 0, "")
}

// WriteNoted appends a packet with flags and a comment, "" for none. It keeps no
// reference to the packet's data, and allocates nothing.
func (w *Writer) WriteNoted(p Packet, f Flags, comment string) error {
	if w.err != nil {
		return w.err
	}
	if w.closed {
		return errClosed
	}
	if err := w.packet(p, f, comment); err != nil {
		w.err = fmt.Errorf("pcapng: write packet: %w", err)
	}
	return w.err
}

func (w *Writer) packet(p Packet, f Flags, comment string) error {
	const overhead = minPacketBlock + 8 + 4 + 4 + 3 + 3 // flags, head of the comment, end of options, padding
	switch size := len(p.Data) + len(comment) + overhead; {
	case p.Interface < 0 || p.Interface >= len(w.interfaces):
		return fmt.Errorf("interface %d of %d", p.Interface, len(w.interfaces))
	case len(p.Data) > p.Len || p.Len > maxLength:
		return fmt.Errorf("%d captured bytes and a length of %d", len(p.Data), p.Len)
	case p.Stamp < 0:
		return fmt.Errorf("stamp of %d ns, before 1970", p.Stamp)
	case size > maxBlock || len(comment) > math.MaxUint16:
		return fmt.Errorf("%d captured bytes and a comment of %d: want a block of at most %d bytes, and a comment of at most %d", len(p.Data), len(comment), maxBlock, math.MaxUint16)
	default:
		if err := w.room(size); err != nil {
			return err
		}
	}
	w.last = max(w.last, p.Stamp)
	start := len(w.buf)
	b := w.buf[start : start+28]
	binary.LittleEndian.PutUint32(b, enhancedPacket)
	binary.LittleEndian.PutUint32(b[8:], uint32(p.Interface))
	binary.LittleEndian.PutUint32(b[12:], uint32(p.Stamp>>32))
	binary.LittleEndian.PutUint32(b[16:], uint32(p.Stamp))
	binary.LittleEndian.PutUint32(b[20:], uint32(len(p.Data)))
	binary.LittleEndian.PutUint32(b[24:], uint32(p.Len))
	w.buf = append(w.buf[:start+28], p.Data...)
	w.buf = append(w.buf, "\x00\x00\x00"[:-len(p.Data)&3]...)
	if f != 0 {
		w.uint32(optFlags | 4<<16)
		w.uint32(uint32(f))
	}
	if comment != "" {
		w.option(optComment, comment)
	}
	if f != 0 || comment != "" {
		w.uint32(optEnd)
	}
	w.length(start)
	return nil
}

// Flush hands all that was written to the underlying writer.
func (w *Writer) Flush() error {
	if w.err == nil {
		if err := w.flush(); err != nil {
			w.err = fmt.Errorf("pcapng: flush: %w", err)
		}
	}
	return w.err
}

// Close writes the statistics blocks, which tell a reader that the capture is
// whole, and flushes. The numbers go into the block of the first interface,
// since a capture ring that serves several does not tell their losses apart;
// the blocks of the others carry none. Close can be called again and then
// returns the first error.
func (w *Writer) Close(s Stats) error {
	if w.closed || w.err != nil {
		w.closed = true
		return w.err
	}
	w.closed = true
	for i := range w.interfaces {
		if err := w.room(64); err != nil {
			w.err = fmt.Errorf("pcapng: write statistics of %q: %w", w.interfaces[i].Name, err)
			return w.err
		}
		start := len(w.buf)
		w.begin(statistics)
		w.uint32(uint32(i))
		w.uint32(uint32(w.last >> 32))
		w.uint32(uint32(w.last))
		if i == 0 {
			w.uint32(optReceived | 8<<16)
			w.uint64(s.Received)
			w.uint32(optDropped | 8<<16)
			w.uint64(s.Dropped)
		}
		w.finish(start)
	}
	return w.Flush()
}
