package monitor

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/inspect"
	"testbed/emu/longtest"
	"testbed/results/tooltest"
	"testbed/topo"
	"testbed/topo/units"
)

// counters returns the counters of a link after n intervals at half its rate.
func counters(n int) inspect.Counters {
	return inspect.Counters{
		Bytes:   units.Bytes(n) * 625_000,
		Packets: uint32(500 * n),
		Dropped: uint32(3 * n),
		Backlog: 1514,
		Rate:    10 * units.Mbps,
		Limit:   25 * units.KB,
		Up:      true,
	}
}

// publish publishes readings of a fabric after n intervals of one second.
func publish(t testing.TB, s *Server, n int) {
	t.Helper()
	f, err := topo.LeafSpine{Leaves: 2, Spines: 1, HostsPerLeaf: 1, HostLink: 10 * units.Mbps, Oversubscription: units.Ratio{Num: 1, Den: 1},
		Queue: topo.Queue{Time: 20 * time.Millisecond}, MTU: 1500}.Build()
	if err != nil {
		t.Fatal(err)
	}
	at := func(n int) inspect.Reading {
		r := inspect.Reading{}
		for _, id := range []topo.LinkID{f.HostUp(0), f.LeafUp(0, 0)} {
			r[id] = inspect.Sample{At: time.Unix(int64(n), 0), Counters: counters(n)}
		}
		return r
	}
	snapshot := inspect.Snapshot{Testbed: "run.1.1", At: time.Unix(int64(n), 5e8), Interval: time.Second, Links: inspect.Links(f, at(n-1), at(n))}
	snapshot.Summary = inspect.Summarize(snapshot.Links)
	if err := s.Publish(`"a\b`+"\n", snapshot, at(n)); err != nil {
		t.Fatal(err)
	}
}

// serve runs a server until the test ends, and returns its address.
func serve(t *testing.T, s *Server) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx, l) }()
	t.Cleanup(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(30 * time.Second):
			t.Error("the server does not end")
		}
	})
	return l.Addr().String()
}

func get(t *testing.T, url string) (*http.Response, string) {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r, string(b)
}

func TestMetrics(t *testing.T) {
	s := New(DefaultLimits())
	at := serve(t, s)
	_, before := get(t, "http://"+at+"/metrics")
	if want := "# HELP testbed_up 1 while a testbed is read, otherwise 0\n# TYPE testbed_up gauge\ntestbed_up 0\n"; before != want {
		t.Errorf("without a testbed:\n%s", before)
	}
	publish(t, s, 4)
	r, text := get(t, "http://"+at+"/metrics")
	if got := r.Header.Get("Content-Type"); got != "text/plain; version=0.0.4; charset=utf-8" {
		t.Errorf("content type %q", got)
	}
	var values, heads []string
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if strings.HasPrefix(line, "#") {
			heads = append(heads, line)
		} else if !strings.Contains(line, `link="leaf0>spine0"`) {
			values = append(values, line)
		}
	}
	want := []string{
		`testbed_up 1`,
		`testbed_info{testbed="run.1.1",scenario="\"a\\b\n"} 1`,
		`testbed_read_timestamp_seconds 4.5`,
		`testbed_link_up{link="h0-00>leaf0"} 1`,
		`testbed_link_rate_bytes_per_second{link="h0-00>leaf0"} 1250000`,
		`testbed_link_queue_bytes{link="h0-00>leaf0"} 1514`,
		`testbed_link_queue_limit_bytes{link="h0-00>leaf0"} 25000`,
		`testbed_link_sent_bytes_total{link="h0-00>leaf0"} 2500000`,
		`testbed_link_sent_packets_total{link="h0-00>leaf0"} 2000`,
		`testbed_link_dropped_packets_total{link="h0-00>leaf0"} 12`,
	}
	if d := cmp.Diff(want, values); d != "" {
		t.Error(d)
	}
	var wantHeads []string
	for _, m := range Metrics() {
		wantHeads = append(wantHeads, "# HELP "+m.Name+" "+m.Doc, "# TYPE "+m.Name+" "+m.Kind)
		if strings.HasSuffix(m.Name, "_total") != (m.Kind == "counter") {
			t.Errorf("%s is a %s", m.Name, m.Kind)
		}
	}
	if d := cmp.Diff(wantHeads, heads); d != "" {
		t.Error(d)
	}
	if got := strings.Count(text, `link="leaf0>spine0"`); got != 7 {
		t.Errorf("%d metrics of an uplink", got)
	}
	if err := s.Wait("gone"); err != nil {
		t.Fatal(err)
	}
	if _, after := get(t, "http://"+at+"/metrics"); after != before {
		t.Errorf("after the testbed:\n%s", after)
	}
}

func TestOnlyKnownRequests(t *testing.T) {
	at := serve(t, New(DefaultLimits()))
	for path, want := range map[string]int{"/": 200, "/page.js": 200, "/page.css": 200, "/assets/page.js": 404, "/other": 404} {
		r, _ := get(t, "http://"+at+path)
		if r.StatusCode != want || r.Header.Get("Content-Security-Policy") != policy || r.Header.Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %s %v", path, r.Status, r.Header)
		}
	}
	r, err := http.Post("http://"+at+"/metrics", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Body.Close(); err != nil || r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %s, %v", r.Status, err)
	}
}

// listen requests events.
func listen(t *testing.T, at string) (*net.TCPConn, *bufio.Reader) {
	t.Helper()
	c, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintf(c, "GET /events HTTP/1.1\r\nHost: %s\r\n\r\n", at); err != nil {
		t.Fatal(err)
	}
	return c.(*net.TCPConn), bufio.NewReader(c)
}

// next returns the next line that begins as wanted.
func next(t *testing.T, r *bufio.Reader, prefix string) string {
	t.Helper()
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatalf("no line %s…: %v", prefix, err)
		}
		if rest, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), prefix); ok {
			return rest
		}
	}
}

// A client gets the newest event at once, and then all, for longer than a request may take.
func TestEvents(t *testing.T) {
	limits := DefaultLimits()
	limits.Header, limits.Write = 100*time.Millisecond, time.Second
	s := New(limits)
	at := serve(t, s)
	publish(t, s, 1)
	publish(t, s, 2)
	_, r := listen(t, at)
	next(t, r, "retry: ")
	<-time.After(2 * limits.Header)
	for n := 2; n < 5; n++ {
		if kind := next(t, r, "event: "); kind != "snapshot" {
			t.Errorf("event %s", kind)
		}
		var got inspect.Snapshot
		if err := json.Unmarshal([]byte(next(t, r, "data: ")), &got); err != nil {
			t.Fatal(err)
		}
		if !got.At.Equal(time.Unix(int64(n), 5e8)) || len(got.Links) != 2 || got.Links[0].Utilisation != 0.5 || got.Links[0].Dropped != 3 {
			t.Errorf("snapshot %d is %+v", n, got)
		}
		publish(t, s, n+1)
	}
	if err := s.Wait("gone > away"); err != nil {
		t.Fatal(err)
	}
	next(t, r, "event: waiting")
	var reason string
	if err := json.Unmarshal([]byte(next(t, r, "data: ")), &reason); err != nil || reason != "gone > away" {
		t.Errorf("reason %q, %v", reason, err)
	}
}

// A client that does not read is dropped, and disturbs neither other clients nor the caller of Publish.
func TestSlowClientIsDropped(t *testing.T) {
	limits := DefaultLimits()
	limits.Write = 200 * time.Millisecond
	s := New(limits)
	at := serve(t, s)
	big, err := json.Marshal(strings.Repeat("x", 1<<19))
	if err != nil {
		t.Fatal(err)
	}
	_, unread := listen(t, at)
	next(t, unread, "retry: ")
	_, fast := listen(t, at)
	next(t, fast, "retry: ")
	clients := func() int {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.streams)
	}
	if n := clients(); n != 2 {
		t.Fatalf("%d clients, want 2", n)
	}
	for n := 0; clients() == 2; n++ {
		if n == 200 {
			t.Fatal("a client that read nothing of 100 MB is still served")
		}
		s.send(reading{}, "waiting", big)
		next(t, fast, "data: ")
	}
	s.send(reading{}, "waiting", []byte("1"))
	for next(t, fast, "data: ") != "1" {
	}
	if _, err := io.Copy(io.Discard, unread); err != nil && !strings.Contains(err.Error(), "reset") {
		t.Errorf("the slow client's connection ends with %v", err)
	}
}

func TestStreamsAreBounded(t *testing.T) {
	limits := DefaultLimits()
	limits.Streams = 1
	at := serve(t, New(limits))
	c, r := listen(t, at)
	next(t, r, "retry: ")
	if r, text := get(t, "http://"+at+"/events"); r.StatusCode != http.StatusServiceUnavailable || !strings.Contains(text, "1 clients receive events") {
		t.Errorf("the second client gets %s %q", r.Status, text)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	for begun := time.Now(); ; { // the server notices the end of the first
		_, r := listen(t, at)
		status, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(status, "200") {
			return
		}
		if time.Since(begun) > 20*time.Second {
			t.Fatalf("after the first client has gone, another one gets %q", status)
		}
	}
}

// The end of the context ends streams too.
func TestEndOfStreams(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- New(DefaultLimits()).Run(ctx, l) }()
	_, r := listen(t, l.Addr().String())
	next(t, r, "retry: ")
	cancel()
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Error(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The dashboard names no metric that does not exist.
func TestDashboard(t *testing.T) {
	b, err := os.ReadFile("../../scripts/grafana/testbed.json")
	if err != nil {
		t.Fatal(err)
	}
	type query struct{ Expr string }
	var d struct {
		Panels      []struct{ Targets []query }
		Annotations struct{ List []query }
	}
	if err := json.Unmarshal(b, &d); err != nil {
		t.Fatal(err)
	}
	queries := d.Annotations.List
	for _, p := range d.Panels {
		queries = append(queries, p.Targets...)
	}
	var unused []string
	for _, m := range Metrics() {
		unused = append(unused, m.Name)
	}
	known := slices.Clone(unused)
	for _, q := range queries {
		found := regexp.MustCompile(`testbed_\w+`).FindAllString(q.Expr, -1)
		if len(found) == 0 {
			t.Errorf("query %q has no metric", q.Expr)
		}
		for _, name := range found {
			if !slices.Contains(known, name) {
				t.Errorf("query %q: no metric %s", q.Expr, name)
			}
			unused = slices.DeleteFunc(unused, func(u string) bool { return u == name })
		}
	}
	if len(unused) > 0 {
		t.Errorf("the dashboard lacks %v", unused)
	}
}

func TestMetricsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/inspect.md")
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	for _, m := range Metrics() {
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", m.Name, m.Kind, m.Doc)
	}
	if !bytes.Contains(doc, []byte(table.String())) {
		t.Errorf("docs/inspect.md lacks the table\n%s", &table)
	}
	l := DefaultLimits()
	for _, want := range []string{fmt.Sprintf("%d connections", l.Connections), fmt.Sprintf("%d of them with events", l.Streams),
		fmt.Sprintf("than %.0f s for", l.Write.Seconds()), fmt.Sprintf("leaves %d events", l.Queue)} {
		if !strings.Contains(strings.Join(strings.Fields(string(doc)), " "), want) {
			t.Errorf("docs/inspect.md lacks %q", want)
		}
	}
}

// opened returns a page and the browser's log. Meanwhile it calls publish every 50 ms, with 0, 1, ….
func opened(t *testing.T, url string, publish func(n int)) (document, log string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for n := 0; ; n++ {
			publish(n)
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}()
	document, log = tooltest.Browse(t, url)
	cancel()
	<-ended
	return document, log
}

// Links that a chart of the page shows at the same time differ in colour, also after others appear. A link has one
// colour on all charts.
func TestLinksOfAChartDifferInColour(t *testing.T) {
	longtest.Skip(t, "opens a page in chromium, 3 s")
	tooltest.Need(t, "chromium")
	s := New(DefaultLimits())
	at := serve(t, s)
	f, err := topo.LeafSpine{Leaves: 4, Spines: 1, HostsPerLeaf: 2, HostLink: 10 * units.Mbps, Oversubscription: units.Ratio{Num: 1, Den: 1},
		Queue: topo.Queue{Time: 20 * time.Millisecond}, MTU: 1500}.Build()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0 // events since the page is open
	document, _ := opened(t, "http://"+at+"/?events=9", func(n int) {
		s.mu.Lock()
		open := len(s.streams) > 0
		s.mu.Unlock()
		if open {
			seen++
		}
		was, now := inspect.Reading{}, inspect.Reading{}
		for id := range topo.LinkID(len(f.Links())) {
			a, b := counters(n), counters(n+1)
			if busy := id < 8 && seen < 3 || seen >= 3 && (id == 0 || id >= 8); busy && seen >= 3 {
				b.Bytes += 600_000
			} else if !busy {
				b.Bytes = a.Bytes
			}
			if id == 0 {
				b.Bytes = a.Bytes + 1_246_000 // 99.7 %
			}
			if id%2 == 0 { // the longest queues and the most drops are of other links
				b.Backlog, b.Dropped = 0, a.Dropped
			}
			was[id], now[id] = inspect.Sample{At: time.Unix(int64(n), 0), Counters: a}, inspect.Sample{At: time.Unix(int64(n+1), 0), Counters: b}
		}
		snapshot := inspect.Snapshot{Testbed: "run", At: time.Unix(int64(n+1), 0), Interval: time.Second, Links: inspect.Links(f, was, now)}
		snapshot.Summary = inspect.Summarize(snapshot.Links)
		if err := s.Publish("", snapshot, now); err != nil {
			t.Error(err)
		}
	})
	colour := map[string]string{} // by link
	for _, m := range regexp.MustCompile(`<li class="(c\d)">(\S+)`).FindAllStringSubmatch(document, -1) {
		if other := colour[m[2]]; other != "" && other != m[1] {
			t.Errorf("%s has the colours %s and %s", m[2], other, m[1])
		}
		colour[m[2]] = m[1]
	}
	_, chart, _ := strings.Cut(document, `data-chart="utilisation"`)
	chart, _, _ = strings.Cut(chart, "</figure>")
	links := map[string]string{} // by colour
	for _, m := range regexp.MustCompile(`<li class="(c\d)">(\S+)`).FindAllStringSubmatch(chart, -1) {
		if other := links[m[1]]; other != "" {
			t.Errorf("%s and %s have the same colour", m[2], other)
		}
		links[m[1]] = m[2]
	}
	if len(links) != 8 || !strings.Contains(chart, "leaf3") {
		t.Errorf("links %v, want eight with those that began later", links)
	}
	if !regexp.MustCompile(`<li class="c\d">\S+ 100 %</li>`).MatchString(chart) {
		t.Errorf("99.7 %% is not shown as 100 %%: %s", chart)
	}
}

// The page draws what is published while it is open.
func TestPageInABrowser(t *testing.T) {
	longtest.Skip(t, "opens a page in chromium, 3 s")
	tooltest.Need(t, "chromium")
	s := New(DefaultLimits())
	at := serve(t, s)
	document, log := opened(t, "http://"+at+"/?events=3", func(n int) { publish(t, s, n+1) })
	for _, line := range regexp.MustCompile(`.*(CONSOLE|Uncaught|Refused to).*`).FindAllString(log, -1) {
		t.Errorf("the browser's console: %s", line)
	}
	for _, want := range []string{`data-events="3"`, `<h1 id="testbed">run.1.1</h1>`, "2 links, busiest h0-00&gt;leaf0 at 50 %",
		`data-chart="utilisation" data-unit="%" data-drawn="2"`, `data-chart="queue" data-unit="B" data-drawn="2"`, `data-chart="drops" data-unit="/s" data-drawn="2"`,
		`<li class="c0">h0-00&gt;leaf0 50 %</li>`, `<li class="c1">leaf0&gt;spine0 3 /s</li>`, `<td>leaf0&gt;spine0</td><td>10 Mbps</td><td>50.0 %</td><td>1.5 KB</td>`} {
		if !strings.Contains(document, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if points := regexp.MustCompile(`<polyline class="c0" points="(\S+ ){2}\S+"`); !points.MatchString(document) || strings.Contains(document, "data-problems") {
		t.Errorf("the page has no curve of three points, or problems:\n%s", document)
	}
}
