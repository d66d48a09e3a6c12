package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"testbed/emu/inspect"
	"testbed/emu/kernel"
	"testbed/emu/kernel/netnstest"
	tables "testbed/results/table"
	"testbed/results/tooltest"
	"testbed/topo"
	"testbed/topo/units"
)

// The widest figures there can be still fit the width that is promised.
func TestInspectFitsItsWidth(t *testing.T) {
	f, err := topo.LeafSpine{Leaves: 250, Spines: 64, HostsPerLeaf: 250, HostLink: 16_666_666, Oversubscription: units.Ratio{Num: 2, Den: 1},
		Queue: topo.Queue{Time: 20 * time.Millisecond}, MTU: 1500}.Build()
	if err != nil {
		t.Fatal(err)
	}
	was, now := inspect.Reading{}, inspect.Reading{}
	for _, id := range []topo.LinkID{f.HostUp(topo.HostID(f.Hosts() - 1)), f.LeafUp(249, 63), f.LeafDown(249, 63)} {
		was[id] = inspect.Sample{At: time.Unix(0, 0)}
		now[id] = inspect.Sample{At: time.Unix(1, 0), Counters: inspect.Counters{Bytes: 1_222_222, Packets: 88_888_888, Dropped: 2_000_000_000, Backlog: 1_234_567,
			Rate: 8_333_333, Limit: 1_234_567}}
	}
	s := inspect.Snapshot{Testbed: strings.Repeat("x", 40), Links: inspect.Links(f, was, now), Interval: time.Second}
	s.Summary, s.Switches = inspect.Summarize(s.Links), inspect.Switches(f, s.Links)
	var b bytes.Buffer
	if err := drawSnapshot(&b, s, plainStyle(0)); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(b.String()) {
		if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > tables.DefaultWidth {
			t.Errorf("%d columns, want at most %d: %s", n, tables.DefaultWidth, line)
		}
	}
	for _, want := range []string{"h249-249>leaf249", "8.33Mbps (plan 16.7Mbps)", "117.3 %", "1.23MB 1.19s", "2G +2G", "down", "3 not at the plan's rate"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, &b)
		}
	}
}

// A frame never scrolls a terminal, and names the omitted rows.
func TestFrameFitsATerminal(t *testing.T) {
	got := frame("aé\nb\nc\nd\ne\n", 2, 4)
	if want := "\x1b[Haé\x1b[K\r\nb\x1b[K\r\n… \x1b[K\r\n\x1b[J"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := frame("a\nb\n", 80, 24); strings.Contains(got, "more") || strings.Count(got, "\n") != 2 {
		t.Errorf("got %q", got)
	}
}

// sender sends datagrams with a frame size from h0-00 to h1-02. It reports whether the queue
// of the host's link had room.
func (p place) sender(t *testing.T) func(frame units.Bytes) bool {
	t.Helper()
	n, err := kernel.OpenNamespace(filepath.Join(p.state, "lab", "ns", "h0-00"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	payload := make([]byte, 1500)
	return func(frame units.Bytes) bool {
		err := n.SendUDP(payload[:frame-42], netip.MustParseAddrPort("10.1.2.1:9"))
		if err != nil && !errors.Is(err, kernel.ErrQueueFull) {
			t.Error(err)
		}
		return err == nil
	}
}

func (p place) inspect(t *testing.T, args ...string) map[string]inspect.Link {
	t.Helper()
	out, _ := p.run(t, 0, append([]string{"inspect", "lab", "--json"}, args...)...)
	return links(t, []byte(out))
}

func links(t *testing.T, b []byte) map[string]inspect.Link {
	t.Helper()
	var s inspect.Snapshot
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatalf("%v in\n%s", err, b)
	}
	all := map[string]inspect.Link{}
	for _, l := range s.Links {
		all[l.Name] = l
	}
	return all
}

// Known bytes give known figures, on the links they cross and on no others.
func TestInspectCountsKnownBytes(t *testing.T) {
	t.Parallel()
	p := upLab(t)
	send := p.sender(t)
	before := p.inspect(t, "--interval", "0")
	const packets, frame = 20, 1014 // fewer than the queue holds
	for i := range packets {
		if !send(frame) {
			t.Fatalf("no room for packet %d of %d in the queue", i+1, packets)
		}
	}
	<-time.After(200 * time.Millisecond) // 20 kB take 16 ms of an uplink of 10 Mbps
	after := p.inspect(t, "--interval", "0")
	crossed := 0
	for name, l := range after {
		sent, n := l.Sent-before[name].Sent, l.Packets-before[name].Packets
		switch {
		case name == "h0-00>leaf0" || name == "leaf1>h1-02" || strings.HasPrefix(name, "leaf0>spine") && sent > 0 || strings.HasSuffix(name, ">leaf1") && strings.HasPrefix(name, "spine") && sent > 0:
			crossed++
			if sent != packets*frame || n != packets {
				t.Errorf("%s sent %d bytes in %d packets, want %d in %d", name, sent, n, packets*frame, packets)
			}
		case strings.HasSuffix(name, ">leaf0") || strings.HasPrefix(name, "leaf1>spine") || name == "leaf0>h0-00" || name == "h1-02>leaf1":
			// "port unreachable" comes back
		case sent != 0:
			t.Errorf("%s sent %d bytes, want none", name, sent)
		}
	}
	if crossed != 4 {
		t.Errorf("%d links were crossed, want 4", crossed)
	}
	if l := after["h0-00>leaf0"]; !l.Up || l.OffPlan() || l.Rate != 20*units.Mbps || l.Limit != 50*units.KB || l.Limit != l.PlanLimit || l.Dropped != 0 {
		t.Errorf("host link: %+v", l)
	}
}

// Half the rate shows as half, and twice the rate as all of it, with a backlog
// and drops.
func TestInspectSeesLoad(t *testing.T) {
	p := upLab(t)
	send := p.sender(t)
	const frame = 1014
	const uplink = 10 * units.Mbps
	load := func(rate units.Rate) (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			start, sent := time.Now(), units.Bytes(0)
			for tick := time.NewTicker(time.Millisecond); ; {
				select {
				case <-ctx.Done():
					tick.Stop()
					return
				case <-tick.C:
				}
				for due := rate.BytesIn(time.Since(start)); sent < due; sent += frame {
					send(frame) // after a late tick, the queue may overflow
				}
			}
		}()
		return func() { cancel(); <-done }
	}
	busiest := func(all map[string]inspect.Link) (l inspect.Link) {
		for _, x := range all {
			if x.Kind = topo.LeafUp; strings.HasPrefix(x.Name, "leaf0>spine") && x.Utilisation >= l.Utilisation {
				l = x
			}
		}
		return l
	}
	netnstest.Timing(t, func(t *testing.T) bool {
		stop := load(uplink / 2)
		defer stop()
		all := p.inspect(t, "--interval", "2s")
		host, up := all["h0-00>leaf0"], busiest(all)
		t.Logf("5 Mbps: host link %.3f, uplink %.3f", host.Utilisation, up.Utilisation)
		return math.Abs(host.Utilisation-0.25) < 0.01 && math.Abs(up.Utilisation-0.5) < 0.02 && up.Dropped == 0
	})
	netnstest.Timing(t, func(t *testing.T) bool {
		stop := load(2 * uplink)
		defer stop()
		<-time.After(200 * time.Millisecond) // the queue fills
		up := busiest(p.inspect(t, "--interval", "1s"))
		t.Logf("20 Mbps: uplink %.3f, backlog %v or %v of %v, %d drops", up.Utilisation, up.Backlog, up.Wait, up.Limit, up.Dropped)
		if up.Backlog > up.Limit {
			t.Errorf("backlog %v of at most %v", up.Backlog, up.Limit)
		}
		return math.Abs(up.Utilisation-1) < 0.03 && up.Backlog > up.Limit/2 && up.Wait > 8*time.Millisecond && up.Dropped > 300 && up.DroppedAll >= up.Dropped
	})
}

// Changes by hand, and links that are down, are shown next to the plan.
func TestInspectShowsWhatIsOffThePlan(t *testing.T) {
	t.Parallel()
	tooltest.Need(t, "ip", "tc")
	p := upLab(t)
	p.run(t, 0, "exec", "leaf0", "--", "tc", "qdisc", "change", "dev", "h0-01", "root", "tbf", "rate", "5mbit", "burst", "3000", "limit", "30000")
	p.run(t, 0, "exec", "h0-02", "--", "ip", "link", "set", "eth0", "down")
	out, _ := p.run(t, 0, "inspect", "lab", "--interval", "100ms", "--links", "leaf0>h0-*")
	for _, want := range []string{"3 links", "5Mbps (plan 20Mbps)", "30KB", "1 down (restore them: testbed fault link-up LINK): leaf0>h0-02", "1 not at the plan's rate (restore it: testbed fault link-rate LINK RATE): leaf0>h0-01"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(out, "Uplinks") {
		t.Errorf("uplinks in\n%s", out)
	}
	if out, _ := p.run(t, 0, "__complete", "inspect", "lab", "--links", ""); !strings.Contains(out, "spine1>leaf1\n") {
		t.Errorf("links complete to %q", out)
	}
	if out, _ := p.run(t, 0, "__complete", "inspect", ""); !strings.Contains(out, "lab\n") {
		t.Errorf("testbeds complete to %q", out)
	}
	_, errs := p.run(t, exitUsage, "inspect", "--links", "leaf7>h0-00")
	if !strings.Contains(errs, `--links: link "leaf7>h0-00"`) {
		t.Errorf("a strange link says %q", errs)
	}
}

// A watch prints a line of JSON each time, ends with 0 on Ctrl-C, and with 0 when
// the testbed goes, which it does not keep.
func TestInspectWatch(t *testing.T) {
	t.Parallel()
	p := upLab(t)
	before := look(t)
	watch := func() (*bufio.Scanner, func(what os.Signal) (int, string)) {
		c := p.command(t, "inspect", "lab", "--watch", "--json", "--interval", "100ms", "--top", "1")
		var errs bytes.Buffer
		c.Stderr = &errs
		r, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, 1<<20)
		for range 3 {
			if !lines.Scan() {
				t.Fatalf("the watch ended: %v %s", lines.Err(), &errs)
			}
			if got := links(t, lines.Bytes()); len(got) != 2 {
				t.Errorf("%d links, want one of hosts and one of uplinks", len(got))
			}
		}
		return lines, func(what os.Signal) (int, string) {
			if what != nil {
				if err := c.Process.Signal(what); err != nil {
					t.Fatal(err)
				}
			}
			for lines.Scan() {
			}
			_ = c.Wait() // its exit code is looked at next
			return c.ProcessState.ExitCode(), errs.String()
		}
	}
	_, end := watch()
	if code, errs := end(os.Interrupt); code != 0 || errs != "" {
		t.Errorf("Ctrl-C: exit code %d, %q", code, errs)
	}
	if after := look(t); after != before {
		t.Errorf("the machine was\n%+v\nand is\n%+v", before, after)
	}
	_, end = watch()
	p.run(t, 0, "down", "lab")
	if code, errs := end(nil); code != 0 || !strings.Contains(errs, "testbed lab is gone") {
		t.Errorf("down: exit code %d, %q", code, errs)
	}
}

// A server shows a testbed that comes, goes and comes again, and ends with 0 on Ctrl-C.
func TestInspectServes(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	c := p.command(t, "inspect", "lab", "--serve", "127.0.0.1:0", "--interval", "100ms")
	r, err := c.StderrPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(r)
	said.Scan()
	var url string
	if _, err := fmt.Sscanf(said.Text(), "serving %s until Ctrl-C", &url); err != nil {
		t.Fatalf("it says %q: %v", said.Text(), err)
	}
	await := func(want string) string {
		t.Helper()
		for begun := time.Now(); ; <-time.After(20 * time.Millisecond) {
			answer, err := http.Get(url + "metrics")
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(answer.Body)
			if err := errors.Join(err, answer.Body.Close()); err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), want) {
				return string(text)
			}
			if time.Since(begun) > time.Minute {
				t.Fatalf("no %q in\n%s", want, text)
			}
		}
	}
	await("testbed_up 0\n")
	p.upHere(t)
	text := await("testbed_up 1\n")
	for _, want := range []string{`testbed_info{testbed="lab",scenario="small"} 1`, `testbed_link_rate_bytes_per_second{link="h0-00>leaf0"} 2500000`,
		`testbed_link_queue_limit_bytes{link="h0-00>leaf0"} 50000`} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	const packets, frame = 20, 1014 // fewer than the queue holds
	send := p.sender(t)
	before := await("testbed_link_sent_packets_total")
	sent := regexp.MustCompile(`testbed_link_sent_bytes_total\{link="h0-00>leaf0"\} (\d+)`)
	count := func(text string) (n int) {
		if found := sent.FindStringSubmatch(text); found != nil {
			n, _ = strconv.Atoi(found[1])
		}
		return n
	}
	for range packets {
		send(frame)
	}
	await(fmt.Sprintf("testbed_link_sent_bytes_total{link=\"h0-00>leaf0\"} %d\n", count(before)+packets*frame))
	p.run(t, 0, "down", "lab")
	await("testbed_up 0\n")
	p.run(t, 0, "up", "scenario.yaml", "--name", "lab")
	await("testbed_up 1\n")
	if err := c.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	for said.Scan() {
	}
	if err := c.Wait(); err != nil {
		t.Errorf("Ctrl-C: %v", err)
	}
}

func TestServeNeedsAnAddress(t *testing.T) {
	for _, args := range [][]string{{"--serve", ":9464"}, {"--serve", "localhost:9464"}, {"--serve", "127.0.0.1"},
		{"--serve", "127.0.0.1:0", "--watch"}, {"--serve", "127.0.0.1:0", "--json"}, {"--serve", "127.0.0.1:0", "--interval", "0"}} {
		var errs bytes.Buffer
		if code := Main(t.Context(), append([]string{"inspect"}, args...), strings.NewReader(""), io.Discard, &errs); code != exitUsage {
			t.Errorf("%v: exit code %d, %s", args, code, &errs)
		}
	}
}
