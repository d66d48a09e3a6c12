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
	SnapLen int    // bytes kept of each packet; 0 for all. Equal for all interfaces of a file that is written
	// Description names the link of the interface. For a switch's port it begins with the
	// name of the link that starts there (see LinkOf).
	Description string
	Speed       units.Rate // of the link; 0 if not stated
	// Comment is a remark for the reader of the packets; "" for none.
	Comment string
}

// LinkOf returns the name of the link that starts at a switch's port, such as
// "leaf0>spine1": the part of the description before ": ". ok is false for other
// interfaces, such as those of hosts, which capture both directions of a link.
func LinkOf(i Interface) (name string, ok bool) {
	name, _, _ = strings.Cut(i.Description, ": ")
	from, to, ok := strings.Cut(name, ">")
	if !ok || from == "" || to == "" || strings.ContainsAny(name, " <") || strings.Contains(to, ">") {
		return "", false
	}
	return name, true
}

// Flags are the flags of a packet in pcapng (epb_flags).
type Flags uint32

// The flags that are written. Without Inbound and Outbound the direction is unknown.
const (
	Inbound            Flags = 1
	Outbound           Flags = 2
	ChecksumUnfinished Flags = 1 << 9 // of TCP or UDP: left to a device that has not filled it in
)

// Writer writes one capture. It is for use by one goroutine.
type Writer struct {
	w          io.Writer
	buf        []byte // bytes not yet written to w; its capacity is writeBuffer
	interfaces []Interface
	last       int64 // latest timestamp
	closed     bool
	err        error // first error, which later calls return
}

// NewWriter starts a capture with its description and at least one interface. Output is
// buffered: it reaches w at the latest with Flush or Close. The caller closes w.
func NewWriter(w io.Writer, m Meta, interfaces []Interface) (*Writer, error) {
	if len(interfaces) == 0 {
		return nil, errors.New("pcapng: a capture needs at least one interface")
	}
	out := &Writer{w: w, buf: make([]byte, 0, writeBuffer), interfaces: append([]Interface(nil), interfaces...)}
	if err := out.section(m); err != nil {
		return nil, err
	}
	for _, i := range interfaces {
		if first := interfaces[0].SnapLen; i.SnapLen != first { // libpcap does not read such a file
			return nil, fmt.Errorf("pcapng: interface %q keeps %d bytes of a packet and the first one %d: must be equal", i.Name, i.SnapLen, first)
		}
		if n := len(i.Name) + len(i.Description) + len(i.Comment); n > math.MaxUint16 {
			return nil, fmt.Errorf("pcapng: interface %.20q: name, description and comment of %d bytes: must be at most %d", i.Name, n, math.MaxUint16)
		}
		if err := out.room(len(i.Name) + len(i.Description) + len(i.Comment) + 128); err != nil {
			return nil, fmt.Errorf("pcapng: write interface %q: %w", i.Name, err)
		}
		start := len(out.buf)
		out.begin(interfaceBlock)
		out.uint32(uint32(LinkEthernet))
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

// section begins a capture with its description.
func (w *Writer) section(m Meta) error {
	comment, err := m.comment()
	if err != nil {
		return err
	}
	w.begin(sectionHeader)
	w.uint32(byteOrderMagic)
	w.uint32(1)              // version 1.0
	w.uint64(math.MaxUint64) // length of the section: unknown
	w.option(optHardware, runtime.GOARCH)
	w.option(optOS, runtime.GOOS)
	w.option(optApplication, m.Tool+" "+m.Version)
	w.option(optComment, comment)
	w.finish(0)
	return nil
}

// Blocks are built at the end of the buffer, little endian.

func (w *Writer) begin(kind uint32) {
	w.uint32(kind)
	w.uint32(0) // its length, which finish fills in
}

func (w *Writer) uint32(v uint32) { w.buf = binary.LittleEndian.AppendUint32(w.buf, v) }
func (w *Writer) uint64(v uint64) { w.buf = binary.LittleEndian.AppendUint64(w.buf, v) }

// option appends an option, unless its value is empty.
func (w *Writer) option(code uint16, value string) {
	if value == "" {
		return
	}
	w.uint32(uint32(code) | uint32(len(value))<<16)
	w.buf = append(w.buf, value...)
	w.buf = append(w.buf, "\x00\x00\x00"[:-len(value)&3]...)
}

// finish ends the block that begins at start, after an end-of-options marker.
func (w *Writer) finish(start int) {
	w.uint32(optEnd)
	w.length(start)
}

// length fills in both length fields of the block that begins at start.
func (w *Writer) length(start int) {
	size := uint32(len(w.buf) - start + 4)
	w.uint32(size)
	binary.LittleEndian.PutUint32(w.buf[start+4:], size)
}

// room flushes the buffer if it has no room for n more bytes.
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

// Write appends a packet of interface ifIndex, counted from 0. data is the captured part of
// the packet's origLen bytes. ts is written in nanoseconds. Write keeps no reference to data.
func (w *Writer) Write(ifIndex int, ts time.Time, data []byte, origLen int) error {
	return w.WriteNoted(Packet{Interface: ifIndex, Stamp: ts.UnixNano(), Data: data, Len: origLen}, 0, "")
}

// WriteNoted appends a packet with flags and a comment ("" for none). It keeps no
// reference to the packet's data and does not allocate.
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
		return fmt.Errorf("%d captured bytes and a comment of %d: a block must have at most %d bytes, and a comment at most %d", len(p.Data), len(comment), maxBlock, math.MaxUint16)
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

// Flush writes all buffered data to the underlying writer.
func (w *Writer) Flush() error {
	if w.err == nil {
		if err := w.flush(); err != nil {
			w.err = fmt.Errorf("pcapng: flush: %w", err)
		}
	}
	return w.err
}

// Close writes the statistics blocks, which mark the capture as complete, and flushes.
// The block of the first interface has the counts, because a capture ring that serves
// several interfaces does not count their losses separately; the other blocks have none.
// Close can be called again and then returns the first error.
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
