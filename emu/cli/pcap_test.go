package cli

import (
	"bytes"
	"compress/gzip"
	"encoding/csv"
	"encoding/json"
	"errors"
	"io/fs"
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

	"testbed/results/pcap"
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

// datagrams writes a pcap file of n datagrams between a number of pairs of ports of long
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
	t.Parallel()
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
		var indented bytes.Buffer
		if err := json.Indent(&indented, []byte(out), "", "  "); err != nil || indented.String() != out {
			t.Errorf("--json does not print as other commands do: %v\n%s", err, out)
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
		{nil, exitUsage, "expected captures or run directories"},
		{[]string{two, "--sort", "size"}, exitUsage, `--sort: order "size": must be one of bytes, packets, duration, retransmissions, start`},
		{[]string{two, "--limit", "-1"}, exitUsage, "--limit -1: must be 0 (all) or more"},
		{[]string{two, "--csv", "--json"}, exitUsage, "--csv and --json exclude each other"},
		{[]string{filepath.Join(p.dir, "none")}, exitFailure, "no such file"},
		{[]string{t.TempDir()}, exitFailure, "no capture below"},
	} {
		if _, errs := p.testbed(t, tt.code, append([]string{"pcap"}, tt.args...)...); !strings.Contains(errs, tt.want) {
			t.Errorf("pcap %v says %q, want %q", tt.args, errs, tt.want)
		}
	}
	if out, _ := p.testbed(t, 0, "__complete", "pcap", ""); !strings.Contains(out, "pcapng\npcap\nzst\ngz\n") {
		t.Errorf("completion offers %q", out)
	}
}

// Captures in a directory are found by content, whatever their names. Other files are named,
// but not those of a run.
func TestPcapDirectory(t *testing.T) {
	p := place{dir: t.TempDir()}
	captures := []string{"trace.pcap", "trace.pcap1", "trace.pcap2", "a.cap", "B.PCAP", "none", "sub/x.dmp"}
	if err := os.Mkdir(filepath.Join(p.dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range captures {
		datagrams(t, filepath.Join(p.dir, name), 1, 3)
	}
	var z bytes.Buffer
	gz := gzip.NewWriter(&z)
	if b, err := os.ReadFile(filepath.Join(p.dir, "a.cap")); err != nil {
		t.Fatal(err)
	} else if _, err := gz.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := gz.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"x.pcap.gz", "packed"} {
		if err := os.WriteFile(filepath.Join(p.dir, name), z.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		captures = append(captures, name)
	}
	_, errs := p.testbed(t, 0, "pcap", p.dir)
	if errs != "" {
		t.Errorf("captures alone: %q", errs)
	}
	for name, content := range map[string]string{"notes.txt": "notes", "old.snoop": "snoop\x00\x00\x00\x00\x00\x00\x02", "x.xz": "\xfd7zXZ\x00", "nothing": ""} {
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, errs := p.testbed(t, 0, "pcap", p.dir, "--json")
	for _, name := range captures {
		if !strings.Contains(out, filepath.Join(p.dir, name)+`"`) {
			t.Errorf("%s was not read", name)
		}
	}
	for _, want := range []string{"notes.txt: not a capture\n", "nothing: not a capture\n", "old.snoop: it is a capture in the format of snoop: convert it with editcap", "x.xz: it is an xz file: decompress"} {
		if !strings.Contains(errs, "testbed: not read: "+filepath.Join(p.dir, want)) {
			t.Errorf("no %q in %q", want, errs)
		}
	}
	// A file with the name of a capture is an error if it is none.
	if err := os.WriteFile(filepath.Join(p.dir, "empty.pcap"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, errs := p.testbed(t, exitFailure, "pcap", p.dir); !strings.Contains(errs, "empty.pcap: ") {
		t.Errorf("an empty file: %q", errs)
	}
	// Tables of a run are not named, other files among its captures are.
	run := t.TempDir()
	inside := filepath.Join(run, "fair", "0", "captures")
	if err := os.MkdirAll(inside, 0o755); err != nil {
		t.Fatal(err)
	}
	datagrams(t, filepath.Join(inside, "h0-00.pcap"), 1, 3)
	for _, name := range []string{"manifest.json", "flows.csv", "fair/0/captures/notes"} {
		if err := os.WriteFile(filepath.Join(run, name), []byte("{}"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if _, errs := p.testbed(t, 0, "pcap", run); errs != "testbed: not read: "+filepath.Join(inside, "notes")+": not a capture\n" {
		t.Errorf("files of a run: %q", errs)
	}
}

// A capture of which no packet was read is no success; an empty one has no times.
func TestPcapReadsNothing(t *testing.T) {
	p := place{dir: t.TempDir()}
	path := filepath.Join(p.dir, "wlan.pcap")
	for _, packets := range []int{0, 2} {
		var b bytes.Buffer
		w := pcapgo.NewWriter(&b)
		if err := w.WriteFileHeader(1<<16, layers.LinkTypeIEEE80211Radio); err != nil {
			t.Fatal(err)
		}
		for range packets {
			if err := w.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(1, 0), CaptureLength: 60, Length: 60}, make([]byte, 60)); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		if packets == 0 {
			out, errs := p.testbed(t, 0, "pcap", path, "--json")
			if !strings.Contains(out, `"first_ns": null`) || !strings.Contains(out, `"last_ns": null`) || errs != "" {
				t.Errorf("an empty capture: %s%s", out, errs)
			}
			continue
		}
		for _, args := range [][]string{nil, {"--json"}, {"--csv"}} {
			_, errs := p.testbed(t, exitFailure, append([]string{"pcap", path}, args...)...)
			if !strings.Contains(errs, path+": no packet was read: 2 packets of link type 127 (IEEE 802.11 with radiotap header)\n") || !strings.Contains(errs, "hint: pcap reads Ethernet, ") {
				t.Errorf("pcap %v: %q", args, errs)
			}
		}
	}
}

func TestCaptureNames(t *testing.T) {
	for _, tt := range []struct{ paths, want []string }{
		{[]string{"/a/b/x.pcap"}, []string{"x"}},
		{[]string{"r/fair/0/captures/h0.pcapng", "r/sebf/0/captures/h0.pcapng"}, []string{"fair/0/h0", "sebf/0/h0"}},
		{[]string{"x.pcap", "x.pcapng", "d/y.cap"}, []string{"x.pcap", "x.pcapng", "d/y.cap"}},
		{[]string{"a/b/c/x.pcap", "a/y.pcap"}, []string{"b/c/x", "y"}},
	} {
		if diff := cmp.Diff(tt.want, captureNames(tt.paths)); diff != "" {
			t.Errorf("captureNames(%v) (-want +got):\n%s", tt.paths, diff)
		}
	}
}

// --export restores captures byte for byte, all or none, and replaces a file only with --force.
func TestPcapExport(t *testing.T) {
	p := place{dir: t.TempDir()}
	captures := filepath.Join(p.dir, "run", "fair", "0", "captures")
	if err := os.MkdirAll(captures, 0o755); err != nil {
		t.Fatal(err)
	}
	plain := map[string][]byte{}
	for _, host := range []string{"h0-00", "h1-00"} {
		path := filepath.Join(captures, host+pcap.Suffix)
		w, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		ng, err := pcapgo.NewNgWriter(w, layers.LinkTypeEthernet)
		if err != nil {
			t.Fatal(err)
		}
		frame := bytes.Repeat([]byte(host), 20)
		if err := errors.Join(ng.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(1_800_000_000, 0), CaptureLength: len(frame), Length: len(frame)}, frame), ng.Flush(), w.Close()); err != nil {
			t.Fatal(err)
		}
		if plain[host], err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
	}
	compressed, err := pcap.CompressFile(t.Context(), filepath.Join(captures, "h0-00"+pcap.Suffix)) // one of each form
	if err != nil {
		t.Fatal(err)
	}
	run, to := filepath.Join(p.dir, "run"), filepath.Join(p.dir, "plain")
	exported := func() {
		t.Helper()
		for host, want := range plain {
			if got, err := os.ReadFile(filepath.Join(to, host+pcap.Suffix)); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s exported: %d bytes, %v; want the %d bytes of the capture", host, len(got), err, len(want))
			}
		}
	}
	p.testbed(t, 0, "pcap", run, "--export", to)
	exported()

	// Of two targets one exists: neither is written.
	if err := os.Remove(filepath.Join(to, "h0-00"+pcap.Suffix)); err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(to, "h1-00"+pcap.Suffix)
	if err := os.WriteFile(kept, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, errs := p.testbed(t, exitUsage, "pcap", run, "--export", to); !strings.Contains(errs, kept+" exists: choose another path, or replace it with --force") {
		t.Errorf("an existing target: %q", errs)
	}
	if b, err := os.ReadFile(kept); err != nil || string(b) != "mine" {
		t.Errorf("the existing file is now %q, %v", b, err)
	}
	if _, err := os.Stat(filepath.Join(to, "h0-00"+pcap.Suffix)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the other target was written: %v", err)
	}
	p.testbed(t, 0, "pcap", run, "--export", to, "--force")
	exported()

	// A capture is never replaced by itself.
	if _, errs := p.testbed(t, exitUsage, "pcap", compressed, "--export", compressed, "--force"); !strings.Contains(errs, "it is the capture itself") {
		t.Errorf("export of a capture to itself: %q", errs)
	}
	if _, errs := p.testbed(t, exitUsage, "pcap", compressed, compressed, "--export", filepath.Join(p.dir, "twice")); !strings.Contains(errs, "two captures would be written to") {
		t.Errorf("export of one capture twice: %q", errs)
	}
}
