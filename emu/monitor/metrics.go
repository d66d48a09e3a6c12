package monitor

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// Metric describes one metric of /metrics.
type Metric struct {
	Name string // with its unit
	Kind string // gauge or counter
	Doc  string
	// ofLink returns the value for a link; nil for metrics of the testbed.
	ofLink func(link) float64
}

// Metrics of the testbed.
var (
	up   = Metric{"testbed_up", "gauge", "1 while a testbed is read, otherwise 0", nil}
	info = Metric{"testbed_info", "gauge", "1, with the testbed and its scenario", nil}
	when = Metric{"testbed_read_timestamp_seconds", "gauge", "Unix time of the newest reading", nil}
)

// Metrics returns all metrics.
func Metrics() []Metric {
	return []Metric{
		up, info, when,
		{"testbed_link_up", "gauge", "1 if both ends of the link are up, otherwise 0", func(l link) float64 {
			if l.Up {
				return 1
			}
			return 0
		}},
		{"testbed_link_rate_bytes_per_second", "gauge", "current rate of the link's token bucket", func(l link) float64 { return float64(l.Rate) / 8 }},
		{"testbed_link_queue_bytes", "gauge", "length of the link's queue", func(l link) float64 { return float64(l.Backlog) }},
		{"testbed_link_queue_limit_bytes", "gauge", "size of the link's queue", func(l link) float64 { return float64(l.Limit) }},
		{"testbed_link_sent_bytes_total", "counter", "bytes that the link sent, with Ethernet headers", func(l link) float64 { return float64(l.Bytes) }},
		{"testbed_link_sent_packets_total", "counter", "packets that the link sent", func(l link) float64 { return float64(l.Packets) }},
		{"testbed_link_dropped_packets_total", "counter", "packets that the link's full queue dropped", func(l link) float64 { return float64(l.Dropped) }},
	}
}

// labels formats labels; names and values alternate.
func labels(all ...string) string {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
	var b strings.Builder
	for i := 0; i < len(all); i += 2 {
		fmt.Fprintf(&b, `,%s="%s"`, all[i], escape.Replace(all[i+1]))
	}
	return "{" + b.String()[1:] + "}"
}

// text returns a reading in Prometheus' text format, version 0.0.4.
func (r reading) text() []byte {
	var b bytes.Buffer
	head := func(m Metric) { fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %[1]s %[3]s\n", m.Name, m.Doc, m.Kind) }
	row := func(m Metric, of string, value float64) {
		fmt.Fprintf(&b, "%s%s %s\n", m.Name, of, strconv.FormatFloat(value, 'f', -1, 64))
	}
	head(up)
	if len(r.links) == 0 {
		row(up, "", 0)
		return b.Bytes()
	}
	row(up, "", 1)
	head(info)
	row(info, labels("testbed", r.testbed, "scenario", r.scenario), 1)
	head(when)
	row(when, "", float64(r.at.UnixMilli())/1e3)
	names := make([]string, len(r.links))
	for i, l := range r.links {
		names[i] = labels("link", l.name)
	}
	for _, m := range Metrics() {
		if m.ofLink == nil {
			continue
		}
		head(m)
		for i, l := range r.links {
			row(m, names[i], m.ofLink(l))
		}
	}
	return b.Bytes()
}

func (s *Server) metrics(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	now := s.newest
	s.mu.Unlock()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
	_, _ = w.Write(now.text()) // the client is gone
}
