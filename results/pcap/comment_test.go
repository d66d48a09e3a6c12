package pcap

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"

	"testbed/emu/longtest"
	"testbed/hosts/wire"
	"testbed/results/tooltest"
	"testbed/topo"
	"testbed/topo/units"
)

// framed is a frame as hosts send it: TCP, or UDP to the address of marks. Its
// checksum is left out where unfinished.
func framed(t testing.TB, mark bool, port uint16, payload []byte, finished bool) []byte {
	t.Helper()
	eth := &layers.Ethernet{SrcMAC: []byte{2, 0, 0, 0, 3, 1}, DstMAC: []byte{2, 0, 0, 0, 3, 0}, EthernetType: layers.EthernetTypeIPv4}
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: []byte{10, 0, 3, 1}, DstIP: []byte{10, 2, 1, 1}}
	var l4 gopacket.SerializableLayer
	if mark {
		ip.Protocol, ip.DstIP = layers.IPProtocolUDP, topo.MarkAddr().AsSlice()
		udp := &layers.UDP{SrcPort: 40000, DstPort: layers.UDPPort(port)}
		l4 = udp
		if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
			t.Fatal(err)
		}
	} else {
		tcp := &layers.TCP{SrcPort: 40000, DstPort: layers.TCPPort(port), Seq: 1, Ack: 1, ACK: true, Window: 100,
			Options: []layers.TCPOption{{OptionType: layers.TCPOptionKindNop}, {OptionType: layers.TCPOptionKindNop}, {OptionType: layers.TCPOptionKindTimestamps, OptionLength: 10, OptionData: make([]byte, 8)}}}
		l4 = tcp
		if err := tcp.SetNetworkLayerForChecksum(ip); err != nil {
			t.Fatal(err)
		}
	}
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, eth, ip, l4, gopacket.Payload(payload)); err != nil {
		t.Fatal(err)
	}
	b := bytes.Clone(buf.Bytes())
	if !finished { // the sum of the pseudo-header, as Linux leaves it
		at, seg := 34+16, b[34:14+int(binary.BigEndian.Uint16(b[16:]))] // short frames are padded
		if mark {
			at = 34 + 6
		}
		sum := uint32(b[23]) + uint32(len(seg))
		for i := 26; i < 34; i += 2 {
			sum += uint32(binary.BigEndian.Uint16(b[i:]))
		}
		for sum > 0xffff {
			sum = sum>>16 + sum&0xffff
		}
		binary.BigEndian.PutUint16(b[at:], uint16(sum))
	}
	return b
}

func header(kind wire.Kind) wire.Header {
	return wire.Header{Kind: kind, Run: 7, Group: 3, Member: 17, Parts: 24, Size: 1_200_000, Packet: 65536, Sent: time.Unix(1, 0)}
}

func TestComments(t *testing.T) {
	broken := header(wire.KindBlock)
	broken.Generation, broken.Offset = 2, 131072
	one := header(wire.KindCoflowMark)
	one.Parts = 1
	open := one
	open.Parts = 0
	fetch, input := header(wire.KindFlow), header(wire.KindFlow)
	fetch.Task = wire.Task{Job: 4, Stage: 1, Index: 2, Attempt: 3, FromStage: 5, FromIndex: 6, FromAttempt: 7, Outputs: 2}
	input.Task = wire.Task{Job: 4, Index: 2}
	moment := func(m wire.Moment, locality uint8, read bool) wire.Header {
		h := header(wire.KindTaskMark)
		h.Read, h.Task = read, wire.Task{Job: 4, Stage: 1, Index: 2, Attempt: 3, Moment: m, Locality: locality}
		return h
	}
	consumed := moment(0, 0, true)
	consumed.Kind = wire.KindConsumed
	noted := map[string]wire.Note{} // by what follows the header of a mark
	note := func(n wire.Note) string {
		key := fmt.Sprintf("%+v", n)
		noted[key] = n
		return key
	}
	for _, tt := range []struct {
		h    wire.Header
		rest string // payload after the header, a host's name or a note
		port uint16
		want string
	}{
		{header(wire.KindFlow), "data", wire.ShufflePort, "coflow 3, flow 17: 1.2MB, h0-03 → h2-01"},
		{header(wire.KindBlock), "", wire.BlockPort, "block 3, hop 17: 1.2MB, h0-03 → h2-01, pipeline packet 65.536KB"},
		{broken, "", wire.BlockPort, "block 3, hop 17: 1.2MB, h0-03 → h2-01, pipeline packet 65.536KB, pipeline 2 goes on at byte 131072"},
		{header(wire.KindCoflowMark), "", wire.MarkPort, "coflow 3 arrives: 24 flows, 1.2MB"},
		{one, "", wire.MarkPort, "coflow 3 arrives: 1 flow, 1.2MB"},
		{header(wire.KindWriteMark), "", wire.MarkPort, "block 3 is requested: 24 replicas, 1.2MB"},
		{header(wire.KindFlowFailed), "", wire.MarkPort, "coflow 3, flow 17: failed"},
		{header(wire.KindBlockFailed), "", wire.MarkPort, "block 3 failed"},
		{fetch, "data", wire.ShufflePort, "coflow 3, flow 17: 1.2MB, h0-03 → h2-01, 2 outputs of job 4, stage 5, task 6, attempt 7 for job 4, stage 1, task 2, attempt 3"},
		{input, "data", wire.ShufflePort, "coflow 3, flow 17: 1.2MB, h0-03 → h2-01, input of job 4, stage 0, task 2, attempt 0"},
		{open, "", wire.MarkPort, "coflow 3 opens"},
		{header(wire.KindCoflowClosed), "", wire.MarkPort, "coflow 3 closes: 24 flows, 1.2MB"},
		{header(wire.KindFlowStopped), "", wire.MarkPort, "coflow 3, flow 17: stopped, no attempt needs it"},
		{header(wire.KindBlockStopped), "", wire.MarkPort, "block 3 stopped: no attempt needs it"},
		{moment(wire.JobSubmitted, 0, false), "", wire.MarkPort, "job 4: submitted, 24 tasks, 1.2MB"},
		{moment(wire.JobFailed, 0, false), "", wire.MarkPort, "job 4: failed"},
		{moment(wire.AttemptStarted, wire.RackLocal, true), "", wire.MarkPort, "job 4, stage 1, task 2, attempt 3: started, block in its rack"},
		{moment(wire.AttemptStarted, wire.NodeLocal, false), "", wire.MarkPort, "job 4, stage 1, task 2, attempt 3: started"},
		{moment(wire.AttemptKilled, wire.OffRack, true), "", wire.MarkPort, "job 4, stage 1, task 2, attempt 3: killed"},
		{header(wire.KindReplicaLost), "h1-00", wire.MarkPort, `block 3 lost its replica on "h1-00" from pipeline 0`},
		{header(wire.KindCoflowMark), note(wire.Note{Job: 2, Bin: 1}), wire.MarkPort, "coflow 3 arrives: 24 flows, 1.2MB, of job 2"},
		{header(wire.KindCoflowMark), note(wire.Note{Background: true}), wire.MarkPort, "coflow 3 arrives: 24 flows, 1.2MB, background"},
		{header(wire.KindWriteMark), note(wire.Note{Writer: 5, Place: 1, Blocks: 2, Job: 2}), wire.MarkPort, "block 3 is requested: 24 replicas, 1.2MB, block 2 of 2 of writer 5, of job 2"},
		{header(wire.KindWriteMark), note(wire.Note{Job: 2, Stage: 1, Index: 4, Attempt: 3}), wire.MarkPort, "block 3 is requested: 24 replicas, 1.2MB, by job 2, stage 1, task 4, attempt 3"},
		{header(wire.KindFlowFailed), note(wire.Note{Why: "no path for 3s"}), wire.MarkPort, "coflow 3, flow 17: failed: no path for 3s"},
		{header(wire.KindBlockFailed), note(wire.Note{Why: "h1-02 is lost"}), wire.MarkPort, "block 3 failed: h1-02 is lost"},
		{header(wire.KindReplicaLost), note(wire.Note{Host: "h1-00", Why: wire.WhyFull}), wire.MarkPort, `block 3 lost its replica on "h1-00" from pipeline 0: its disks are full`},
		{moment(wire.JobSubmitted, 0, false), note(wire.Note{Host: "h0-03", User: "ann", Profile: "sort"}), wire.MarkPort, "job 4: submitted, 24 tasks, 1.2MB, user ann, profile sort"},
		{moment(wire.AttemptKilled, 0, true), note(wire.Note{Host: "h0-03", Why: "late"}), wire.MarkPort, "job 4, stage 1, task 2, attempt 3: killed: late"},
		{consumed, "", wire.MarkPort, "job 4, stage 1, task 2, attempt 3: has consumed its input, read 17"},
	} {
		mark := tt.port == wire.MarkPort
		payload := append(tt.h.Append(nil), tt.rest...)
		if n, ok := noted[tt.rest]; ok {
			payload = tt.h.AppendMark(nil, n)
		}
		b := framed(t, mark, tt.port, payload, true)
		c := NewCommenter(7)
		if got := c.Comment(1, b); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.h.Kind, got, tt.want)
		}
		if got := c.Comment(1, b); got != "" {
			t.Errorf("%v again: %q", tt.h.Kind, got)
		}
		if got := c.Comment(0, b); got != tt.want {
			t.Errorf("%v at another interface: %q", tt.h.Kind, got)
		}
		if got := NewCommenter(8).Comment(1, b); got != "" {
			t.Errorf("%v of another run: %q", tt.h.Kind, got)
		}
		for cut := range len(b) {
			if got := NewCommenter(7).Comment(1, b[:cut]); got != "" && cut < len(b)-len(tt.rest) {
				t.Errorf("%v cut at %d: %q", tt.h.Kind, cut, got)
			}
		}
		if got := NewCommenter(7).Comment(1, framed(t, mark, 4, tt.h.Append(nil), true)); got != "" {
			t.Errorf("%v at port 4: %q", tt.h.Kind, got)
		}
	}
	h := header(wire.KindFlow).Append(nil)
	h[20]++
	if got := NewCommenter(7).Comment(0, framed(t, false, wire.ShufflePort, h, true)); got != "" {
		t.Errorf("damaged header: %q", got)
	}
	if got := NewCommenter(7).Comment(0, framed(t, true, wire.MarkPort, header(wire.KindFlow).Append(nil), true)); got != "" {
		t.Errorf("a flow in a datagram: %q", got)
	}
}

func TestUnfinished(t *testing.T) {
	for _, mark := range []bool{false, true} {
		for _, finished := range []bool{false, true} {
			b := framed(t, mark, wire.MarkPort, []byte("payload"), finished)
			if got := Unfinished(b); got == finished {
				t.Errorf("mark %v, finished %v: Unfinished = %v", mark, finished, got)
			}
		}
	}
	if Unfinished(nil) || Unfinished(make([]byte, 60)) {
		t.Error("no packet has an unfinished checksum")
	}
}

func TestLinkOf(t *testing.T) {
	for _, tt := range []struct {
		description, want string
	}{
		{"leaf0>spine1: 50Mbps", "leaf0>spine1"},
		{"leaf0>h0-03", "leaf0>h0-03"},
		{"h0-03 eth0: links h0-03>leaf0 and leaf0>h0-03, 50Mbps", ""},
		{"", ""}, {">", ""}, {"a>", ""}, {"a>b>c", ""}, {"leaf0<>spine1", ""}, {"lo: a>b", ""},
	} {
		if got, ok := LinkOf(Interface{Description: tt.description}); got != tt.want || ok != (tt.want != "") {
			t.Errorf("LinkOf(%q) = %q, %v, want %q", tt.description, got, ok, tt.want)
		}
	}
}

// noted is a capture as a run leaves it, with all that it may hold.
func noted(t testing.TB) ([]byte, []Interface) {
	t.Helper()
	nics := []Interface{{Name: "eth0", SnapLen: 160, Description: "h0-03 eth0: links h0-03>leaf0 and leaf0>h0-03", Speed: 50 * units.Mbps},
		{Name: "lo", SnapLen: 160, Description: "h0-03 lo: traffic of the host with itself", Comment: "checksums are unfinished here"}}
	var out bytes.Buffer
	w, err := NewWriter(&out, sampleMeta(), nics)
	if err != nil {
		t.Fatal(err)
	}
	c := NewCommenter(7)
	for i, p := range []struct {
		nic   int
		flags Flags
		frame []byte
	}{
		{0, Outbound, framed(t, true, wire.MarkPort, header(wire.KindCoflowMark).Append(nil), true)},
		{0, Outbound, framed(t, false, wire.ShufflePort, header(wire.KindFlow).Append(nil), true)},
		{0, Inbound, framed(t, false, wire.ShufflePort, []byte("more"), true)},
		{1, Inbound | ChecksumUnfinished, framed(t, false, wire.ShufflePort, header(wire.KindFlow).Append(nil), false)},
		{1, 0, framed(t, false, wire.ShufflePort, []byte("odd"), true)},
	} {
		kept := p.frame[:min(len(p.frame), 160)]
		if err := w.WriteNoted(Packet{Interface: p.nic, Stamp: second + int64(i), Data: kept, Len: len(p.frame)}, p.flags, c.Comment(p.nic, kept)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(Stats{Received: 6, Dropped: 1}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), nics
}

func TestNotedRoundTrip(t *testing.T) {
	file, nics := noted(t)
	r, err := NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	got, err := readAll(r)
	if len(got) != 5 || !strings.HasSuffix(got[2].Data, "more") {
		t.Errorf("%d packets, %v", len(got), err)
	}
	if diff := cmp.Diff(nics, r.Interfaces()); diff != "" {
		t.Errorf("Interfaces() (-want +got):\n%s", diff)
	}
	// gopacket sees the same packets.
	o, err := ng(file)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range got {
		if p, err := o.next(); err != nil || p != want {
			t.Errorf("gopacket at %d: %+v, %v", i, p, err)
		}
	}
}

// Wireshark accepts the files and shows who is who.
func TestWiresharkShowsComments(t *testing.T) {
	longtest.Skip(t, "starts tshark many times, 10 s")
	tooltest.Need(t, "tshark", "capinfos")
	file, _ := noted(t)
	path := filepath.Join(t.TempDir(), "h0-03.pcapng")
	if err := os.WriteFile(path, file, 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(name string, args ...string) string {
		t.Helper()
		var stderr bytes.Buffer
		c := exec.Command(name, args...)
		c.Stderr = &stderr
		out, err := c.Output()
		if err != nil || strings.Contains(stderr.String(), path) {
			t.Fatalf("%s %q: %v\n%s", name, args, err, &stderr)
		}
		return string(out)
	}
	got := run("tshark", "-r", path, "-T", "fields", "-E", "separator=|", "-e", "frame.interface_name", "-e", "frame.packet_flags", "-e", "frame.packet_flags_direction", "-e", "frame.comment")
	want := `eth0|0x00000002|0x00000002|coflow 3 arrives: 24 flows, 1.2MB
eth0|0x00000002|0x00000002|coflow 3, flow 17: 1.2MB, h0-03 → h2-01
eth0|0x00000001|0x00000001|
lo|0x00000201|0x00000001|coflow 3, flow 17: 1.2MB, h0-03 → h2-01
lo|||
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("tshark (-want +got):\n%s", diff)
	}
	for filter, want := range map[string]string{
		`frame.comment contains "coflow 3,"`:        "2\n4\n",
		`frame.comment matches "arrives|requested"`: "1\n",
		`frame.interface_name == "lo"`:              "4\n5\n",
		`frame.packet_flags_direction == 2`:         "1\n2\n",
		`frame.comment`:                             "1\n2\n4\n",
	} {
		if got := run("tshark", "-r", path, "-Y", filter, "-T", "fields", "-e", "frame.number"); got != want {
			t.Errorf("packets of %s: %q, want %q", filter, got, want)
		}
	}
	info := run("capinfos", path)
	for _, want := range []string{"Name = eth0", "Description = h0-03 eth0: links", "Speed = 50000000", "Time precision = nanoseconds (9)", "Number of stat entries = 1", "Number of packets = 3", "Number of packets = 2"} {
		if !strings.Contains(info, want) {
			t.Errorf("no %q in\n%s", want, info)
		}
	}
}

// What other programs make of our files has the same packets: the older format in
// both resolutions, and two captures in one file. All but the
// one that still says it is ours are whole.
func TestReadsWhatOthersWrite(t *testing.T) {
	tooltest.Need(t, "editcap", "mergecap", "tcpdump")
	dir := t.TempDir()
	file, _ := captureOf(t, 300, 200)
	in := filepath.Join(dir, "in.pcapng")
	if err := os.WriteFile(in, file, 0o644); err != nil {
		t.Fatal(err)
	}
	r, err := Open(in)
	if err != nil {
		t.Fatal(err)
	}
	want, err := readAll(r)
	if err != io.EOF || r.Close() != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name    string
		command []string
		unit    int64 // of its stamps, ns
		times   int
		nics    int
	}{
		{"pcap", []string{"editcap", "-F", "pcap", in, "OUT"}, 1000, 1, 1},
		{"nsecpcap", []string{"editcap", "-F", "nsecpcap", in, "OUT"}, 1, 1, 1},
		{"pcapng", []string{"editcap", "-F", "pcapng", in, "OUT"}, 1, 1, 2},
		{"merged", []string{"mergecap", "-a", "-w", "OUT", in, in}, 1, 2, 2},
		{"tcpdump", []string{"tcpdump", "--time-stamp-precision=nano", "-r", in, "-w", "OUT"}, 1, 1, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(dir, tt.name)
			args := append([]string(nil), tt.command...)
			for i := range args {
				if args[i] == "OUT" {
					args[i] = path
				}
			}
			if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
				t.Fatalf("%q: %v\n%s", args, err, out)
			}
			r, err := Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			got, err := readAll(r)
			if tt.name == "pcapng" { // editcap copies Meta, and no statistics
				if _, ok := r.Meta(); !ok || !errors.Is(err, ErrTruncated) || !strings.Contains(err.Error(), "another program copied it") {
					t.Errorf("ends with %v, Meta %v", err, ok)
				}
			} else if err != io.EOF {
				t.Fatal(err)
			}
			if len(got) != tt.times*len(want) || len(r.Interfaces()) < tt.nics {
				t.Fatalf("%d packets of %d interfaces, want %d of %d or more", len(got), len(r.Interfaces()), tt.times*len(want), tt.nics)
			}
			for i, p := range got {
				x := want[i%len(want)]
				if p.Time != x.Time/tt.unit*tt.unit || p.Data != x.Data || p.Len != x.Len || tt.times == 1 && tt.nics == 2 && p.Interface != x.Interface {
					t.Fatalf("packet %d is %+v, want %+v", i, p, x)
				}
			}
		})
	}
}

func TestWriterRefuses(t *testing.T) {
	for _, tt := range []struct {
		name    string
		p       Packet
		comment string
		want    string
	}{
		{"interface", Packet{Interface: 1}, "", "interface 1 of 1"},
		{"interface below 0", Packet{Interface: -1}, "", "interface -1 of 1"},
		{"length", Packet{Data: []byte("ab"), Len: 1}, "", "2 captured bytes and a length of 1"},
		{"stamp", Packet{Stamp: -1}, "", "before 1970"},
		{"comment", Packet{}, strings.Repeat("x", 1<<16), "a comment at most 65535"},
		{"block", Packet{Data: make([]byte, maxBlock), Len: maxBlock}, "", "a block must have at most"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out bytes.Buffer
			w, err := NewWriter(&out, sampleMeta(), []Interface{{Name: "eth0"}})
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Write(0, time.Unix(1, 0), []byte("kept"), 4); err != nil {
				t.Fatal(err)
			}
			if err := w.WriteNoted(tt.p, Inbound, tt.comment); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error %v, want %q", err, tt.want)
			}
		})
	}
	long := []Interface{{Name: "eth0", Description: strings.Repeat("x", 1<<16)}}
	if _, err := NewWriter(&bytes.Buffer{}, sampleMeta(), long); err == nil || !strings.Contains(err.Error(), "65536") && !strings.Contains(err.Error(), "65540") {
		t.Errorf("long description: %v", err)
	}
	// The longest packet that is written can be read.
	data := bytes.Repeat([]byte{1}, maxBlock-200)
	var out bytes.Buffer
	w, err := NewWriter(&out, sampleMeta(), []Interface{{Name: "eth0"}})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := w.WriteNoted(Packet{Data: data, Len: len(data)}, Inbound, strings.Repeat("x", 100)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(Stats{}); err != nil {
		t.Fatal(err)
	}
	r, err := NewReader(&out)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := readAll(r); len(got) != 3 || got[2].Data != string(data) {
		t.Errorf("%d packets, %v", len(got), err)
	}
}

func FuzzCommenter(f *testing.F) {
	f.Add(framed(f, false, wire.ShufflePort, header(wire.KindFlow).Append(nil), true))
	f.Add(framed(f, true, wire.MarkPort, append(header(wire.KindReplicaLost).Append(nil), "h1-00"...), false))
	f.Fuzz(func(t *testing.T, b []byte) {
		NewCommenter(7).Comment(0, b)
		Unfinished(b)
	})
}

// Most packets of a capture have no comment. The cost of this case relative to Write.
func BenchmarkComment(b *testing.B) {
	c := NewCommenter(7)
	data := framed(b, false, wire.ShufflePort, make([]byte, 1448), true)[:160]
	b.ReportAllocs()
	for b.Loop() {
		if c.Comment(0, data) != "" {
			b.Fatal("a comment")
		}
	}
}
