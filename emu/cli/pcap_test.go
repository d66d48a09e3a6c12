package cli

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
	"github.com/google/gopacket/pcapgo"

	tables "testbed/results/table"
)

// testbed runs a command line in this process.
func (p place) testbed(t *testing.T, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	if got := Main(t.Context(), args, strings.NewReader(""), &out, &errs); got != want {
		t.Fatalf("testbed %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, want, &out, &errs)
	}
	return out.String(), errs.String()
}

// datagrams writes a pcap file of n datagrams between so many pairs of ports of long
// addresses, pair i with i+1 times as many bytes as the first.
func datagrams(t *testing.T, path string, pairs, n int) {
	t.Helper()
	var b bytes.Buffer
	w := pcapgo.NewWriter(&b)
	if err := w.WriteFileHeader(1<<16, layers.LinkTypeEthernet); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		pair := i % pairs
		ip := &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolUDP, HopLimit: 1,
			SrcIP: []byte{0xfd, 1, 0x11, 0x11, 0x22, 0x22, 0x33, 0x33, 0x44, 0x44, 0x55, 0x55, 0x66, 0x66, 0x77, 1}, DstIP: []byte{0xfd, 2, 0x11, 0x11, 0x22, 0x22, 0x33, 0x33, 0x44, 0x44, 0x55, 0x55, 0x66, 0x66, 0x77, 2}}
		udp := &layers.UDP{SrcPort: layers.UDPPort(50000 + pair), DstPort: 60000}
		if err := udp.SetNetworkLayerForChecksum(ip); err != nil {
			t.Fatal(err)
		}
		buf := gopacket.NewSerializeBuffer()
		if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
			&layers.Ethernet{SrcMAC: make([]byte, 6), DstMAC: make([]byte, 6), EthernetType: layers.EthernetTypeIPv6}, ip, udp, gopacket.Payload(make([]byte, 100*(pair+1)))); err != nil {
			t.Fatal(err)
		}
		ci := gopacket.CaptureInfo{Timestamp: time.Unix(1_800_000_000+int64(i), 0), CaptureLength: len(buf.Bytes()), Length: len(buf.Bytes())}
		if err := w.WritePacket(ci, buf.Bytes()); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestPcap(t *testing.T) {
	p := place{dir: t.TempDir()}
	long := filepath.Join(p.dir, "an-arm-with-a-long-name+and-a-placement", "0", "captures")
	if err := os.MkdirAll(long, 0o755); err != nil {
		t.Fatal(err)
	}
	one, two := filepath.Join(long, "h0-00.pcap"), filepath.Join(p.dir, "two.pcap")
	datagrams(t, one, 30, 300)
	datagrams(t, two, 3, 9)

	for _, args := range [][]string{{one}, {one, two}, {p.dir}} {
		out, _ := p.testbed(t, 0, append([]string{"pcap"}, args...)...)
		for line := range strings.Lines(out) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > tables.DefaultWidth {
				t.Errorf("%d columns, want at most %d: %s", n, tables.DefaultWidth, line)
			}
		}
		if !strings.Contains(out, "0000") || !strings.Contains(out, " more: --limit 0 shows all\n") || strings.Count(out, "udp ") != defaultLimit {
			t.Errorf("pcap %v prints\n%s", args, out)
		}
	}
	out, _ := p.testbed(t, 0, "pcap", two)
	for _, want := range []string{"two", "pcap, whole", "packets     9, 2358 bytes of frames", "2027-01-15 08:00:00.000000000 UTC", "8.000000000 s later",
		"does not say what was dropped", "unnamed (Ethernet)", "3 conversations, by bytes", "total: 9 packets, 2358 bytes; payload 1800 bytes, of which 0 again in 0 packets; 0 late"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}

	type answer struct {
		Captures []struct {
			Path, Format, State, Error string
			Packets                    int
			Dropped                    *int
		}
		Conversations []map[string]any
	}
	ask := func(code int, args ...string) (a answer) {
		out, _ := p.testbed(t, code, append([]string{"pcap", "--json"}, args...)...)
		if err := json.Unmarshal([]byte(out), &a); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return a
	}
	if a := ask(0, one); len(a.Conversations) != 30 || a.Conversations[0]["bytes_ab"] != 10.0*(62+3000) || a.Conversations[0]["payload_ab"] != 30000.0 || a.Captures[0].Packets != 300 || a.Captures[0].Dropped != nil {
		t.Errorf("%+v", a)
	}
	if a := ask(0, one, two, "--limit", "2", "--sort", "start"); len(a.Captures) != 2 || len(a.Conversations) != 2 || a.Conversations[0]["source_port"] != 50000.0 || a.Conversations[0]["stream"] != 0.0 {
		t.Errorf("%+v", a)
	}
	if a := ask(0, one, "--filter", ":50004", "--filter", "udp"); len(a.Conversations) != 1 || a.Conversations[0]["stream"] != 4.0 {
		t.Errorf("%+v", a)
	}
	if a := ask(0, one, "--filter", "tcp"); a.Conversations == nil || len(a.Conversations) != 0 {
		t.Errorf("%+v", a)
	}
	out, _ = p.testbed(t, 0, "pcap", "--csv", two, "--sort", "packets")
	rows, err := csv.NewReader(strings.NewReader(out)).ReadAll()
	if err != nil || len(rows) != 4 || rows[1][0] != two || rows[1][1] != "udp" {
		t.Errorf("%v, %v", err, rows)
	}

	// What could be read of a damaged capture is shown, and the others whole.
	b, err := os.ReadFile(one)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(one, b[:len(b)-1], 0o644); err != nil {
		t.Fatal(err)
	}
	out, errs := p.testbed(t, exitFailure, "pcap", one, two)
	if !strings.Contains(out, "cut off") || !strings.Contains(out, "whole") || !strings.Contains(out, "33 conversations") || !strings.Contains(errs, "testbed: "+one) || !strings.Contains(errs, "at byte ") {
		t.Errorf("a cut capture prints\n%s%s", out, errs)
	}
	if a := ask(exitFailure, one, two); a.Captures[0].State != "cut off" || !strings.Contains(a.Captures[0].Error, one) || a.Captures[0].Packets != 299 || a.Captures[1].State != "whole" {
		t.Errorf("%+v", a.Captures)
	}
	text := filepath.Join(p.dir, "text.pcap")
	if err := os.WriteFile(text, []byte("no capture"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, errs := p.testbed(t, exitFailure, "pcap", text); out != "" || !strings.Contains(errs, text) || !strings.Contains(errs, "at byte 0") {
		t.Errorf("a text prints %q %q", out, errs)
	}

	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{nil, exitUsage, "want the path of a capture or of a run"},
		{[]string{two, "--sort", "size"}, exitUsage, `--sort: order "size": want bytes, packets, duration, retransmissions, start`},
		{[]string{two, "--limit", "-1"}, exitUsage, "--limit -1: want 0, which is all, or more"},
		{[]string{two, "--csv", "--json"}, exitUsage, "--csv with --json"},
		{[]string{filepath.Join(p.dir, "none")}, exitFailure, "no such file"},
		{[]string{t.TempDir()}, exitFailure, "no capture below"},
	} {
		if _, errs := p.testbed(t, tt.code, append([]string{"pcap"}, tt.args...)...); !strings.Contains(errs, tt.want) {
			t.Errorf("pcap %v says %q, want %q", tt.args, errs, tt.want)
		}
	}
	if out, _ := p.testbed(t, 0, "__complete", "pcap", ""); !strings.Contains(out, "pcapng\npcap\n") {
		t.Errorf("completion offers %q", out)
	}
}

func TestCaptureNames(t *testing.T) {
	for _, tt := range []struct{ paths, want []string }{
		{[]string{"/a/b/x.pcap"}, []string{"x"}},
		{[]string{"r/fair/0/captures/h0.pcapng", "r/sebf/0/captures/h0.pcapng"}, []string{"fair/0/h0", "sebf/0/h0"}},
		{[]string{"x.pcap", "x.pcapng", "d/y.cap"}, []string{"x", "x", "d/y.cap"}},
		{[]string{"a/b/c/x.pcap", "a/y.pcap"}, []string{"b/c/x", "y"}},
	} {
		if diff := cmp.Diff(tt.want, captureNames(tt.paths)); diff != "" {
			t.Errorf("captureNames(%v) (-want +got):\n%s", tt.paths, diff)
		}
	}
}
