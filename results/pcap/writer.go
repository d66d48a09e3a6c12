package pcap

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"
)

// writeBuffer is the size of a Writer's buffer in bytes: some 4,000 packets of
// 160 bytes between system calls. A killed process loses at most this much.
const writeBuffer = 1 << 20

// Interface is a network interface of the captured host. Its link type is
// Ethernet, also on lo, where Linux shows an Ethernet header of zeros.
type Interface struct {
	Name    string // such as "eth0"
	SnapLen int    // bytes kept of each packet; 0 for all
}

// Writer writes one capture. It is for one goroutine.
type Writer struct {
	ng         *pcapgo.NgWriter
	interfaces []Interface
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
	description := func(i Interface) pcapgo.NgInterface {
		return pcapgo.NgInterface{
			Name:       i.Name,
			Comment:    "checksums are unfinished on virtual interfaces: do not verify them",
			OS:         runtime.GOOS,
			LinkType:   layers.LinkTypeEthernet,
			SnapLength: uint32(i.SnapLen),
		}
	}
	// NgWriter's own buffer has 4 KiB, but it adopts a larger one it is given.
	ng, err := pcapgo.NewNgWriterInterface(bufio.NewWriterSize(w, writeBuffer), description(interfaces[0]), pcapgo.NgWriterOptions{
		SectionInfo: pcapgo.NgSectionInfo{Hardware: runtime.GOARCH, OS: runtime.GOOS, Application: m.Tool + " " + m.Version, Comment: comment},
	})
	if err != nil {
		return nil, fmt.Errorf("pcapng: write section header: %w", err)
	}
	for _, i := range interfaces[1:] {
		if _, err := ng.AddInterface(description(i)); err != nil {
			return nil, fmt.Errorf("pcapng: write interface %q: %w", i.Name, err)
		}
	}
	return &Writer{ng: ng, interfaces: append([]Interface(nil), interfaces...)}, nil
}

var errClosed = errors.New("pcapng: write after Close")

// Write appends a packet of the ifIndex-th interface, counted from 0. ts keeps
// its nanoseconds; data are the bytes that were kept of the packet's origLen.
// Write keeps no reference to data.
func (w *Writer) Write(ifIndex int, ts time.Time, data []byte, origLen int) error {
	if w.err != nil {
		return w.err
	}
	if w.closed {
		return errClosed
	}
	ci := gopacket.CaptureInfo{Timestamp: ts, CaptureLength: len(data), Length: origLen, InterfaceIndex: ifIndex}
	if err := w.ng.WritePacket(ci, data); err != nil {
		w.err = fmt.Errorf("pcapng: write packet: %w", err)
	}
	return w.err
}

// Flush hands all that was written to the underlying writer.
func (w *Writer) Flush() error {
	if w.err == nil {
		if err := w.ng.Flush(); err != nil {
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
		block := pcapgo.NgInterfaceStatistics{PacketsReceived: pcapgo.NgNoValue64, PacketsDropped: pcapgo.NgNoValue64}
		if i == 0 {
			block.PacketsReceived, block.PacketsDropped = s.Received, s.Dropped
		}
		if err := w.ng.WriteInterfaceStats(i, block); err != nil {
			w.err = fmt.Errorf("pcapng: write statistics of %q: %w", w.interfaces[i].Name, err)
			return w.err
		}
	}
	return w.Flush()
}
