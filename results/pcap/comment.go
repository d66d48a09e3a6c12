package pcap

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"testbed/hosts/wire"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/topo/words"
)

// Commenter describes the first packet of each transfer and of each mark, at each
// interface. It recognizes them by the header of hosts/wire at the start of their payload.
// It is for use by one goroutine.
type Commenter struct {
	run  uint64
	seen map[beginning]struct{}
}

// beginning identifies a packet that gets a comment once.
type beginning struct {
	at                        int
	kind                      wire.Kind
	group, member, generation uint32
	task                      wire.Task
}

// NewCommenter returns a Commenter for the transfers and marks of one run (Meta.Run).
func NewCommenter(run uint64) *Commenter {
	return &Commenter{run: run, seen: map[beginning]struct{}{}}
}

// Comment returns the comment on a frame at interface number at, such as
// "coflow 3, flow 17: 1.2MB, h0-03 → h2-01", or "" for most frames. A transfer whose
// header is split over several segments has no comment. It allocates only for comments.
func (c *Commenter) Comment(at int, frame []byte) string {
	if !mayBegin(frame) {
		return ""
	}
	f, ok := parse(frame)
	if !ok || len(f.payload) < wire.Size {
		return ""
	}
	if f.udp != (f.dstPort == wire.MarkPort) || !f.udp && f.dstPort != wire.ShufflePort && f.dstPort != wire.BlockPort {
		return ""
	}
	h, err := wire.Parse(f.payload)
	if err != nil || h.Run != c.run || h.Kind.Mark() != f.udp {
		return ""
	}
	b := beginning{at, h.Kind, h.Group, h.Member, h.Generation, h.Task}
	if _, again := c.seen[b]; again {
		return ""
	}
	c.seen[b] = struct{}{}
	var note wire.Note
	if f.udp {
		note, _ = wire.ParseNote(f.payload) // one that is cut off is left out
	}
	return describe(h, name(f.src), name(f.dst), note)
}

// wireMagic is the first bytes of every transfer header.
var wireMagic = [4]byte(wire.Header{Sent: time.Unix(0, 0)}.Append(nil))

// mayBegin reports whether a payload may begin with a transfer header. Four bytes exclude
// most packets.
func mayBegin(b []byte) bool {
	const ether, udpHead = 14, 8
	if len(b) < ether+20+udpHead+wire.Size {
		return false
	}
	at := ether + int(b[ether]&0x0f)*4
	if b[ether+9] == protoTCP && at+12 < len(b) {
		at += int(b[at+12]>>4) * 4
	} else {
		at += udpHead
	}
	return at+wire.Size <= len(b) && [4]byte(b[at:at+4]) == wireMagic
}

func describe(h wire.Header, src, dst string, note wire.Note) string {
	size := units.Bytes(h.Size)
	because := ""
	if note.Why != "" {
		because = ": " + strings.ToValidUTF8(note.Why, "?")
	}
	switch h.Kind {
	case wire.KindFlow:
		text := fmt.Sprintf("coflow %d, flow %d: %v, %s → %s", h.Group, h.Member, size, src, dst)
		switch t := h.Task; {
		case t.Job == 0:
		case t.Outputs == 0:
			text += fmt.Sprintf(", input of %s", attempt(t.Job, t.Stage, t.Index, t.Attempt))
		default:
			text += fmt.Sprintf(", %s of %s for %s", words.Plural(t.Outputs, "output", "outputs"),
				attempt(t.Job, t.FromStage, t.FromIndex, t.FromAttempt), attempt(t.Job, t.Stage, t.Index, t.Attempt))
		}
		return text
	case wire.KindBlock:
		text := fmt.Sprintf("block %d, hop %d: %v, %s → %s, pipeline packet %v", h.Group, h.Member, size, src, dst, units.Bytes(h.Packet))
		if h.Generation > 0 {
			text += fmt.Sprintf(", pipeline %d goes on at byte %d", h.Generation, h.Offset)
		}
		return text
	case wire.KindCoflowMark:
		if h.Parts == 0 {
			return fmt.Sprintf("coflow %d opens", h.Group)
		}
		return fmt.Sprintf("coflow %d arrives: %s, %v", h.Group, words.Plural(h.Parts, "flow", "flows"), size) + ofJob(note)
	case wire.KindCoflowClosed:
		return fmt.Sprintf("coflow %d closes: %s, %v", h.Group, words.Plural(h.Parts, "flow", "flows"), size)
	case wire.KindWriteMark:
		text := fmt.Sprintf("block %d is requested: %s, %v", h.Group, words.Plural(h.Parts, "replica", "replicas"), size)
		if w := h.Waited(); w > 0 {
			text += fmt.Sprintf(", after it waited %v to be placed", w)
		}
		if note.Job > 0 && note.Blocks == 0 {
			text += ", by " + attempt(note.Job, uint16(note.Stage), note.Index, uint16(note.Attempt))
		}
		if note.Blocks > 0 {
			text += fmt.Sprintf(", block %d of %d of writer %d", note.Place+1, note.Blocks, note.Writer) + ofJob(note)
		}
		return text
	case wire.KindFlowFailed:
		return fmt.Sprintf("coflow %d, flow %d: failed", h.Group, h.Member) + because
	case wire.KindBlockFailed:
		return fmt.Sprintf("block %d failed", h.Group) + because
	case wire.KindFlowStopped:
		return fmt.Sprintf("coflow %d, flow %d: stopped, no attempt needs it", h.Group, h.Member)
	case wire.KindBlockStopped:
		return fmt.Sprintf("block %d stopped: no attempt needs it", h.Group)
	case wire.KindTaskMark:
		return taskMark(h, note) + because
	case wire.KindConsumed:
		t := h.Task
		return fmt.Sprintf("%s: has consumed its input, read %d", attempt(t.Job, t.Stage, t.Index, t.Attempt), h.Member)
	case wire.KindReplicaLost:
		return fmt.Sprintf("block %d lost its replica on %q from pipeline %d", h.Group, note.Host, h.Generation) + because
	}
	return ""
}

// ofJob names the job of a coflow or block, or states that the coflow only loads the network.
func ofJob(n wire.Note) string {
	switch {
	case n.Background:
		return ", background"
	case n.Job > 0:
		return fmt.Sprintf(", of job %d", n.Job)
	}
	return ""
}

// attempt returns the name of an attempt of a task.
func attempt(job uint32, stage uint16, index uint32, attempt uint16) string {
	return fmt.Sprintf("job %d, stage %d, task %d, attempt %d", job, stage, index, attempt)
}

func taskMark(h wire.Header, note wire.Note) string {
	t := h.Task
	if t.Moment.OfJob() {
		text := fmt.Sprintf("job %d: %v", t.Job, t.Moment)
		if t.Moment == wire.JobSubmitted {
			text += fmt.Sprintf(", %s, %v", words.Plural(h.Parts, "task", "tasks"), units.Bytes(h.Size))
			for _, x := range []struct{ what, name string }{{"user", note.User}, {"profile", note.Profile}} {
				if x.name != "" {
					text += fmt.Sprintf(", %s %s", x.what, strings.ToValidUTF8(x.name, "?"))
				}
			}
		}
		return text
	}
	text := fmt.Sprintf("%s: %v", attempt(t.Job, t.Stage, t.Index, t.Attempt), t.Moment)
	if t.Moment == wire.AttemptStarted && h.Read {
		text += [...]string{", block on its host", ", block in its rack", ", block in another rack"}[t.Locality]
	}
	return text
}

// name returns the name of the host with an address, or the address if there is none.
func name(addr [4]byte) string {
	a := netip.AddrFrom4(addr)
	if name, ok := topo.HostNameOf(a); ok {
		return name
	}
	return a.String()
}

// Protocols of IPv4.
const (
	protoTCP = 6
	protoUDP = 17
)

// frame is a TCP segment or UDP datagram in one IPv4 packet over Ethernet.
type frame struct {
	udp      bool
	src, dst [4]byte
	dstPort  uint16
	segment  []byte // header and captured payload
	length   int    // of header and payload on the wire
	payload  []byte // captured payload
	padding  int    // bytes after the IP packet
}

// stream returns the connection and direction of a TCP segment.
func (f *frame) stream() (s stream) {
	copy(s[:], f.src[:])
	copy(s[4:], f.dst[:])
	copy(s[8:], f.segment[:4])
	return s
}

// parse decodes a frame without trusting its length fields. ok is false if its headers are
// incomplete.
func parse(b []byte) (f frame, ok bool) {
	const ether, ipLeast, udpHead, tcpLeast = 14, 20, 8, 20
	if len(b) < ether+ipLeast+udpHead || binary.BigEndian.Uint16(b[12:]) != 0x0800 || b[ether]>>4 != 4 {
		return frame{}, false
	}
	ip := b[ether:]
	head, total := int(ip[0]&0x0f)*4, int(binary.BigEndian.Uint16(ip[2:]))
	fragment := binary.BigEndian.Uint16(ip[6:])&0x3fff != 0
	if head < ipLeast || total < head || fragment {
		return frame{}, false
	}
	f.padding = max(0, len(ip)-total)
	ip = ip[:min(len(ip), total)]
	f.udp = ip[9] == protoUDP
	if !f.udp && ip[9] != protoTCP || len(ip) < head+udpHead {
		return frame{}, false
	}
	f.src, f.dst = [4]byte(ip[12:16]), [4]byte(ip[16:20])
	f.segment, f.length = ip[head:], total-head
	f.dstPort = binary.BigEndian.Uint16(f.segment[2:])
	start := udpHead
	if !f.udp {
		if len(f.segment) < tcpLeast {
			return frame{}, false
		}
		start = int(f.segment[12]>>4) * 4
		if start < tcpLeast || len(f.segment) < start {
			return frame{}, false
		}
	}
	f.payload = f.segment[start:]
	return f, true
}

// Unfinished reports whether the TCP or UDP checksum of a frame was left to a device, as
// Linux does on lo: the field then has only the uncomplemented sum over the
// pseudo-header (RFC 9293, 3.1). One of 65,536 finished checksums has the same value.
func Unfinished(b []byte) bool {
	f, ok := parse(b)
	if !ok {
		return false
	}
	at, proto := 16, uint32(protoTCP)
	if f.udp {
		at, proto = 6, protoUDP
	}
	sum := proto + uint32(f.length)
	for _, a := range [][4]byte{f.src, f.dst} {
		sum += uint32(a[0])<<8 + uint32(a[1]) + uint32(a[2])<<8 + uint32(a[3])
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return uint32(binary.BigEndian.Uint16(f.segment[at:])) == sum
}
