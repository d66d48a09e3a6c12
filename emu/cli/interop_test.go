package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/longtest"
	"testbed/results/conversations"
	"testbed/results/flows"
	"testbed/results/pcap"
	"testbed/results/tooltest"
)

// looked is what testbed pcap --json prints of one capture.
type looked struct {
	Captures      []captureJSON
	Conversations []conversations.Row
}

// pcapOf looks at one capture, in order of the first packets.
func (p place) pcapOf(t *testing.T, path string) (captureJSON, []conversations.Row) {
	t.Helper()
	out, _ := p.testbed(t, 0, "pcap", "--json", "--sort", "start", path)
	var l looked
	if err := json.Unmarshal([]byte(out), &l); err != nil {
		t.Fatal(err)
	}
	if len(l.Captures) != 1 {
		t.Fatalf("%d captures in %s", len(l.Captures), path)
	}
	return l.Captures[0], l.Conversations
}

type streamKey struct {
	protocol string
	number   int
}

// agree compares the output of testbed pcap with tshark and capinfos, and
// returns its conversations by their streams, with tshark's.
func (p place) agree(t *testing.T, path string) (map[streamKey]conversations.Row, map[streamKey]tooltest.Stream) {
	t.Helper()
	c, rows := p.pcapOf(t, path)
	// capinfos prints one line of fields behind one of their names.
	info := strings.Split(strings.Split(tooltest.Output(t, "capinfos", "-T", "-M", "-S", "-c", "-d", "-a", "-e", path), "\n")[1], "\t")
	if len(info) < 5 {
		t.Fatalf("capinfos prints %q", info)
	}
	if c.Of != nil && (c.Dropped == nil || c.Received == nil || c.State != "whole") {
		t.Errorf("%s: a capture of ours is %s, received %v, dropped %v", path, c.State, c.Received, c.Dropped)
	}
	// It prints no drops. It states the nanoseconds of microseconds with six decimals.
	want := []string{strconv.Itoa(c.Packets), strconv.FormatInt(c.Bytes, 10)}
	if diff := cmp.Diff(info[1:3], want); diff != "" {
		t.Errorf("%s: packets and bytes (-capinfos +ours):\n%s", path, diff)
	}
	if c.First == nil || c.Last == nil {
		t.Fatalf("%s: no time of the first and last packet", path)
	}
	if first, last := tooltest.Nanoseconds(t, info[3]), tooltest.Nanoseconds(t, info[4]); first != *c.First || last != *c.Last {
		t.Errorf("%s: from %d to %d, capinfos has %d to %d", path, *c.First, *c.Last, first, last)
	}
	own, theirs := map[streamKey]conversations.Row{}, map[streamKey]tooltest.Stream{}
	for _, r := range rows {
		own[streamKey{r.Protocol, r.Stream}] = r
	}
	for _, s := range tooltest.Streams(t, path) {
		k := streamKey{s.Protocol, s.Number}
		theirs[k] = s
		r, ok := own[k]
		if !ok {
			t.Errorf("%s: no %s stream %d", path, s.Protocol, s.Number)
			continue
		}
		// tshark distinguishes resent and late packets by times: only their
		// sum is the same.
		again := func(i int) int { return s.Retransmissions[i] + s.OutOfOrder[i] }
		got := tooltest.Stream{Protocol: r.Protocol, Number: r.Stream, A: fmt.Sprint(r.Source, " ", r.SourcePort), B: fmt.Sprint(r.Destination, " ", r.DestinationPort),
			First: r.Start, Last: r.End, Packets: [2]int{r.PacketsAB, r.PacketsBA}, Bytes: [2]int64{r.BytesAB, r.BytesBA}, Payload: [2]int64{r.PayloadAB, r.PayloadBA},
			Retransmissions: [2]int{r.RetransmissionsAB + r.OutOfOrderAB, r.RetransmissionsBA + r.OutOfOrderBA}, ZeroWindows: [2]int{r.ZeroWindowsAB, r.ZeroWindowsBA},
			SYN: [2]int{r.SYNAB, r.SYNBA}, FIN: [2]int{r.FINAB, r.FINBA}, RST: [2]int{r.RSTAB, r.RSTBA}, RTT: r.Handshake}
		s.Retransmissions, s.OutOfOrder = [2]int{again(0), again(1)}, [2]int{}
		s.Data, s.FINAgain, s.LoneFINAgain, s.FirstData, s.LastData = [2]int{}, [2]int{}, [2]int{}, [2]int64{}, [2]int64{}
		if diff := cmp.Diff(s, got); diff != "" {
			t.Errorf("%s: %s stream %d (-tshark +ours):\n%s", path, s.Protocol, s.Number, diff)
		}
	}
	if len(own) != len(theirs) || len(theirs) == 0 {
		t.Errorf("%s: %d conversations, tshark has %d", path, len(own), len(theirs))
	}
	return own, theirs
}

// traced is what tcptrace counts of a direction.
type traced struct{ packets, dataPackets, dataBytes, unique, againPackets, againBytes int64 }

// tcptrace reads a plain capture, by the conversation's two ends, each as address:port.
func tcptrace(t *testing.T, path string) map[[2]string][2]traced {
	t.Helper()
	out := map[[2]string][2]traced{}
	var ends [2]string
	for line := range strings.Lines(tooltest.Output(t, "tcptrace", "-l", "-n", path)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		if name == "host a" || strings.HasPrefix(name, "host ") && ok {
			i := 1
			if ends[0] == "" || ends[1] != "" {
				i, ends = 0, [2]string{}
			}
			ends[i] = value
			continue
		}
		words := strings.Fields(line)
		at := -1
		for i, w := range words {
			if strings.HasSuffix(w, ":") {
				at = i
				break
			}
		}
		if at < 0 || ends[1] == "" {
			continue
		}
		what := strings.TrimSuffix(strings.Join(words[:at+1], " "), ":")
		var n [2]int64
		k := 0
		for _, w := range words {
			if v, err := strconv.ParseInt(w, 10, 64); err == nil && k < 2 {
				n[k] = v
				k++
			}
		}
		if k < 2 {
			continue
		}
		d := out[ends]
		for i := range d {
			switch what {
			case "total packets":
				d[i].packets = n[i]
			case "unique bytes sent":
				d[i].unique = n[i]
			case "actual data pkts":
				d[i].dataPackets = n[i]
			case "actual data bytes":
				d[i].dataBytes = n[i]
			case "rexmt data pkts":
				d[i].againPackets = n[i]
			case "rexmt data bytes":
				d[i].againBytes = n[i]
			}
		}
		out[ends] = d
	}
	return out
}

// readWhole checks that programs read all packets of a plain capture.
func readWhole(t *testing.T, path string, packets int) {
	t.Helper()
	lines := func(name string, args ...string) int {
		return strings.Count(tooltest.Output(t, name, args...), "\n")
	}
	field := func(pattern, text string) int {
		t.Helper()
		m := regexp.MustCompile(pattern).FindStringSubmatch(text)
		if m == nil {
			t.Fatalf("no %s in %s", pattern, text)
		}
		n, err := strconv.Atoi(m[1])
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for name, n := range map[string]int{
		"tshark":   lines("tshark", "-n", "-r", path),
		"capinfos": field(`Number of packets: +(\d+)`, tooltest.Output(t, "capinfos", "-M", "-c", path)),
		"tcpdump":  lines("tcpdump", "-n", "-r", path),
		"tcptrace": field(`(\d+) packets seen`, tooltest.Output(t, "tcptrace", "-n", path)),
	} {
		if n != packets || n == 0 {
			t.Errorf("%s: %s reads %d of %d packets", path, name, n, packets)
		}
	}
}

// The captures of a run, with packets lost in full queues, are to other programs what
// they are to testbed pcap, and its records of flows too.
func TestRunAgreesWithOtherTools(t *testing.T) {
	t.Parallel()
	longtest.Skip(t, "compares captures of a run with other programs, 5 s")
	tooltest.Need(t, "tshark", "capinfos", "tcpdump", "tcptrace")
	p := smallRun(t)
	exported := filepath.Join(t.TempDir(), "plain")
	p.testbed(t, 0, "pcap", p.runDir, "--export", exported)
	dirs, err := filepath.Glob(filepath.Join(p.runDir, "*", "0", "captures"))
	if err != nil || len(dirs) != 2 {
		t.Fatalf("captures in %v, %v", dirs, err)
	}
	again, compared, named, fins := int64(0), 0, 0, 0
	for _, dir := range dirs {
		files, err := filepath.Glob(filepath.Join(dir, "*"+pcap.CompressedSuffix))
		if err != nil || len(files) != 6 {
			t.Fatalf("captures %v, %v", files, err)
		}
		type place struct{ host, transfer string }
		rows, streams := map[place]conversations.Row{}, map[place]tooltest.Stream{}
		for _, path := range files {
			host := strings.TrimSuffix(filepath.Base(path), pcap.CompressedSuffix)
			own, theirs := p.agree(t, path)
			plain := filepath.Join(exported, filepath.Base(filepath.Dir(filepath.Dir(dir))), "0", host+pcap.Suffix)
			c, _ := p.pcapOf(t, path)
			readWhole(t, plain, c.Packets)
			traces := tcptrace(t, plain)
			for k, r := range own {
				if r.Transfer != "" {
					named++
				}
				rows[place{host, r.Transfer}], streams[place{host, r.Transfer}] = r, theirs[k]
				if k.protocol != conversations.TCP {
					continue
				}
				ends := [2]string{fmt.Sprintf("%s:%d", r.Source, r.SourcePort), fmt.Sprintf("%s:%d", r.Destination, r.DestinationPort)}
				// To tcptrace a FIN that is sent again is a byte, and alone a packet of data.
				fin, lone := theirs[k].FINAgain, theirs[k].LoneFINAgain
				fins += fin[0] + fin[1]
				got := [2]traced{
					{packets: int64(r.PacketsAB), dataPackets: int64(theirs[k].Data[0]), dataBytes: r.PayloadAB, unique: r.PayloadAB - r.ResentBytesAB, againPackets: int64(r.RetransmissionsAB + lone[0]), againBytes: r.ResentBytesAB + int64(fin[0])},
					{packets: int64(r.PacketsBA), dataPackets: int64(theirs[k].Data[1]), dataBytes: r.PayloadBA, unique: r.PayloadBA - r.ResentBytesBA, againPackets: int64(r.RetransmissionsBA + lone[1]), againBytes: r.ResentBytesBA + int64(fin[1])},
				}
				if diff := cmp.Diff(traces[ends], got, cmp.AllowUnexported(traced{})); diff != "" {
					t.Errorf("%s %s %v (-tcptrace +ours):\n%s", path, r.Transfer, ends, diff)
				}
				again += r.ResentBytesAB
				compared++
			}
		}
		res, err := flows.Reduce(t.Context(), dir, flows.Options{})
		if err != nil {
			t.Fatal(err)
		}
		if len(res.Flows) == 0 {
			t.Error("no flow")
		}
		for _, f := range res.Flows {
			name := fmt.Sprintf("coflow %d flow %d", f.Coflow, f.Flow)
			sent, received := streams[place{f.Src, name}], streams[place{f.Dst, name}]
			zero := res.Zero.UnixNano()
			start, end := zero+int64(f.Start), zero+int64(f.End)
			resent := sent.Retransmissions[0] + sent.OutOfOrder[0] // at its sender nothing is late
			if f.Packets != sent.Data[0] || f.Resent != resent || int64(f.Wire) != sent.Bytes[0] || start != sent.FirstData[0] {
				t.Errorf("%s: %d packets, %d resent, %d bytes from %d; tshark has %d, %d, %d from %d", name, f.Packets, f.Resent, f.Wire, start,
					sent.Data[0], resent, sent.Bytes[0], sent.FirstData[0])
			}
			// A packet that came once more after all were there ends no flow.
			if last := received.LastData[0]; end > last || received.Retransmissions[0] == 0 && end != last {
				t.Errorf("%s: ends at %d, its last payload is at %d", name, end, last)
			}
		}
	}
	if again == 0 || compared < 20 || named < 20 {
		t.Errorf("%d bytes were sent again, %d connections compared, %d named: the run tests nothing", again, compared, named)
	}
	t.Logf("%d connections, %d bytes and %d FINs sent again", compared, again, fins)
}

// inHost starts a program in a host's namespace of testbed lab, and kills it with the
// test. Its output is in the two buffers, complete after Wait.
func (p place) inHost(t *testing.T, host string, words ...string) (c *exec.Cmd, stdout, stderr *bytes.Buffer) {
	t.Helper()
	c = exec.CommandContext(t.Context(), "nsenter", append([]string{"--net=" + filepath.Join(p.state, "lab", "ns", host)}, words...)...)
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	c.Stdout, c.Stderr, c.WaitDelay = stdout, stderr, time.Second
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	return c, stdout, stderr
}

// until polls until f, for at most ten seconds.
func until(t *testing.T, what string, f func() bool) {
	t.Helper()
	end := time.After(10 * time.Second)
	for !f() {
		select {
		case <-end:
			t.Fatalf("waited 10 s: %s", what)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Captures that tcpdump made of iperf3 on a testbed are to testbed pcap what they are
// to tshark, and iperf3 counted the same bytes and retransmissions.
func TestForeignCapturesOfIperf3(t *testing.T) {
	longtest.Skip(t, "compares captures by other programs, 5 s")
	tooltest.Need(t, "tshark", "capinfos", "tcpdump", "iperf3")
	p := upLab(t)
	const port = 5201
	dumps := []struct {
		name, host, format string
		args               []string
		cmd                *exec.Cmd
		says               *bytes.Buffer
	}{
		{name: "micro", host: "h0-00", format: "pcap"},
		{name: "nano", host: "h0-00", format: "pcap (ns)", args: []string{"--nano"}},
		{name: "snap", host: "h0-00", format: "pcap (ns)", args: []string{"--nano", "-s", "96"}}, // tshark judges no packet whose options of TCP are cut
		{name: "receiver", host: "h1-02", format: "pcap (ns)", args: []string{"--nano"}},
	}
	for i := range dumps {
		d := &dumps[i]
		path := filepath.Join(p.dir, d.name+".pcap")
		d.cmd, _, d.says = p.inHost(t, d.host, append([]string{"tcpdump", "-Z", "root", "-n", "-U", "--immediate-mode", "-i", "eth0", "-w", path}, d.args...)...)
		until(t, "tcpdump to begin", func() bool { info, err := os.Stat(path); return err == nil && info.Size() >= 24 }) // the file's head, written once it listens
	}
	server, _, serverSays := p.inHost(t, "h1-02", "iperf3", "-s", "-1", "-p", strconv.Itoa(port))
	until(t, "iperf3 to listen", func() bool {
		for _, family := range []string{"tcp", "tcp6"} {
			b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", server.Process.Pid, family))
			if err == nil && strings.Contains(string(b), fmt.Sprintf(":%04X ", port)) {
				return true
			}
		}
		return false
	})
	client, result, clientSays := p.inHost(t, "h0-00", "iperf3", "-c", "10.1.2.1", "-p", strconv.Itoa(port), "-n", "3M", "-J")
	if err := client.Wait(); err != nil {
		t.Fatalf("iperf3: %v\n%s%s", err, result, clientSays)
	}
	if err := server.Wait(); err != nil {
		t.Fatalf("iperf3 -s: %v\n%s", err, serverSays)
	}
	for _, d := range dumps {
		// What the kernel holds is written when it is quiet.
		path, size := filepath.Join(p.dir, d.name+".pcap"), int64(-1)
		until(t, "tcpdump to write all", func() bool {
			info, err := os.Stat(path)
			was := size
			if err == nil {
				size = info.Size()
			}
			return size == was
		})
		if err := d.cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		if err := d.cmd.Wait(); err != nil {
			t.Fatalf("tcpdump: %v\n%s", err, d.says)
		}
		if !strings.Contains(d.says.String(), "0 packets dropped by kernel") {
			t.Fatalf("tcpdump lost packets:\n%s", d.says)
		}
	}
	var report struct {
		End struct {
			Streams []struct {
				Sender struct {
					Bytes, Retransmits int64
				}
			}
			Received struct{ Bytes int64 } `json:"sum_received"`
		}
	}
	if err := json.Unmarshal(result.Bytes(), &report); err != nil || len(report.End.Streams) != 1 {
		t.Fatalf("iperf3 reports %v\n%s", err, result)
	}
	sender := report.End.Streams[0].Sender
	const cookie = 37 // bytes that begin each connection of iperf3
	var payload []int64
	for _, d := range dumps {
		path := filepath.Join(p.dir, d.name+".pcap")
		c, _ := p.pcapOf(t, path)
		if c.Format != d.format || c.State != "whole" || c.Dropped != nil {
			t.Errorf("%s: %s, %s, drops %v, want %s, whole, unknown", d.name, c.Format, c.State, c.Dropped, d.format)
		}
		own, _ := p.agree(t, path)
		// The control connection is the first, data the second.
		r := own[streamKey{conversations.TCP, 1}]
		unique := r.PayloadAB - r.ResentBytesAB
		payload = append(payload, r.PayloadAB)
		// iperf3 ends when the sender has handed over its bytes, and counts those that it has
		// read. The receiver's kernel answers the others with RST: a packet for the closed socket
		// with one each, all that the socket has not read at its end with one together.
		received, most := report.End.Received.Bytes, report.End.Received.Bytes
		if r.RSTBA > 0 {
			most = sender.Bytes
		}
		if unique < received+cookie || unique > most+cookie {
			t.Errorf("%s: %d bytes of payload and %d RST, iperf3 sent %d and received %d", d.name, unique, r.RSTBA, sender.Bytes, received)
		}
		if d.host == "h0-00" && int64(r.RetransmissionsAB) != sender.Retransmits {
			t.Errorf("%s: %d retransmissions, iperf3 has %d", d.name, r.RetransmissionsAB, sender.Retransmits)
		}
		if d.host == "h0-00" && r.OutOfOrderAB != 0 {
			t.Errorf("%s: %d packets late at their sender", d.name, r.OutOfOrderAB)
		}
		// Each byte that was lost was sent again, so what arrives is late or again.
		if d.host != "h0-00" && int64(r.OutOfOrderAB+r.RetransmissionsAB) > sender.Retransmits {
			t.Errorf("%s: %d late and %d again of %d that were sent again", d.name, r.OutOfOrderAB, r.RetransmissionsAB, sender.Retransmits)
		}
	}
	if payload[0] != payload[1] || payload[0] != payload[2] {
		t.Errorf("payload of the same traffic: %v", payload)
	}
	if sender.Retransmits == 0 {
		t.Error("nothing was sent again: the test has no retransmissions to compare")
	}
	t.Logf("iperf3 sent %d bytes and received %d, %d retransmissions; payload on the wire %v", sender.Bytes, report.End.Received.Bytes, sender.Retransmits, payload)
}
