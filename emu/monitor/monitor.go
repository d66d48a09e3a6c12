// Package monitor serves the newest reading of a testbed's links over HTTP while the testbed works: metrics for
// Prometheus at /metrics, server-sent events at /events, and at / a page that draws them.
//
// It reads no counters and finds no testbed (emu/cli), and keeps no history: the page and Prometheus do.
package monitor

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"sync"
	"time"

	"golang.org/x/net/netutil"

	"testbed/emu/inspect"
	"testbed/topo/palette"
	"testbed/topo/units"
)

// Limits bound what clients can take.
type Limits struct {
	Connections int           // at a time; more wait in the kernel
	Streams     int           // of events at a time; more are answered with status 503
	Queue       int           // events that wait for a client; a client with more is dropped
	Write       time.Duration // of an answer or an event; a slower client is dropped
	Header      time.Duration // until a request is read
	Idle        time.Duration // of a connection between requests
	HeaderSize  units.Bytes   // of a request
	Stop        time.Duration // for answers under way at the end
}

// DefaultLimits returns the limits of testbed inspect --serve.
func DefaultLimits() Limits {
	return Limits{
		Connections: 64,
		Streams:     16,
		Queue:       8,
		Write:       5 * time.Second,
		Header:      5 * time.Second,
		Idle:        time.Minute,
		HeaderSize:  16 * units.KiB,
		Stop:        time.Second,
	}
}

// Server serves the newest reading.
type Server struct {
	limits Limits

	mu      sync.Mutex
	newest  reading
	event   []byte // of newest; nil before the first
	streams map[*stream]struct{}
}

// reading is what was read of a testbed; without links there is none.
type reading struct {
	testbed, scenario string
	at                time.Time
	links             []link
}

type link struct {
	name string
	inspect.Counters
}

// stream is a client of events. Its channel is closed when the client is dropped.
type stream struct{ events chan []byte }

// New returns a server that has read nothing.
func New(l Limits) *Server { return &Server{limits: l, streams: map[*stream]struct{}{}} }

// Publish replaces the newest reading, and sends the snapshot to the clients of events. The reading has the links of
// the snapshot.
func (s *Server) Publish(scenario string, snapshot inspect.Snapshot, r inspect.Reading) error {
	var data bytes.Buffer
	e := json.NewEncoder(&data)
	e.SetEscapeHTML(false) // names of links have a >
	if err := e.Encode(snapshot); err != nil {
		return err
	}
	now := reading{testbed: snapshot.Testbed, scenario: scenario, at: snapshot.At}
	for _, l := range snapshot.Links {
		now.links = append(now.links, link{l.Name, r[l.ID].Counters})
	}
	s.send(now, "snapshot", bytes.TrimSpace(data.Bytes()))
	return nil
}

// Wait states that no testbed can be read, and why.
func (s *Server) Wait(reason string) error {
	data, err := json.Marshal(reason)
	if err == nil {
		s.send(reading{}, "waiting", data)
	}
	return err
}

// send never waits for a client.
func (s *Server) send(now reading, kind string, data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest, s.event = now, fmt.Appendf(nil, "event: %s\ndata: %s\n\n", kind, data)
	for c := range s.streams {
		select {
		case c.events <- s.event:
		default:
			delete(s.streams, c)
			close(c.events)
		}
	}
}

// Run serves on a listener until ctx ends, and closes it.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	h := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: s.limits.Header,
		ReadTimeout:       s.limits.Header,
		WriteTimeout:      s.limits.Write,
		IdleTimeout:       s.limits.Idle,
		MaxHeaderBytes:    int(s.limits.HeaderSize),
		BaseContext:       func(net.Listener) context.Context { return ctx },
		ErrorLog:          log.New(io.Discard, "", 0), // errors of clients
	}
	done := make(chan error, 1)
	go func() { done <- h.Serve(netutil.LimitListener(l, s.limits.Connections)) }()
	select {
	case err := <-done:
		return fmt.Errorf("serve %v: %w", l.Addr(), err)
	case <-ctx.Done():
	}
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.limits.Stop)
	defer cancel()
	err := h.Shutdown(limited)
	if errors.Is(err, context.DeadlineExceeded) {
		err = h.Close() // ends answers to slow clients
	}
	<-done // has returned http.ErrServerClosed
	return err
}

//go:embed assets/page.html
var pageHTML string

//go:embed assets/page.css
var pageCSS string

//go:embed assets/page.js
var pageJS string

// policy lets the page load and reach nothing but this server.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'"

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", s.metrics)
	mux.HandleFunc("GET /events", s.events)
	for path, file := range map[string]struct{ kind, text string }{
		"/{$}":      {"text/html; charset=utf-8", pageHTML},
		"/page.css": {"text/css; charset=utf-8", palette.CSS() + pageCSS},
		"/page.js":  {"text/javascript; charset=utf-8", pageJS},
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", file.kind)
			_, _ = io.WriteString(w, file.text) // the client is gone
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		mux.ServeHTTP(w, r)
	})
}

// events sends the newest event, and then each until the client or the server ends, or the client is dropped.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	c := &stream{make(chan []byte, s.limits.Queue)}
	s.mu.Lock()
	full := len(s.streams) >= s.limits.Streams
	if !full {
		s.streams[c] = struct{}{}
		if s.event != nil {
			c.events <- s.event
		}
	}
	s.mu.Unlock()
	if full {
		http.Error(w, fmt.Sprintf("%d clients receive events: no more are served", s.limits.Streams), http.StatusServiceUnavailable)
		return
	}
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.streams, c)
	}()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Connection", "close") // the end of a dropped client is that of its connection
	out := http.NewResponseController(w)
	if out.SetReadDeadline(time.Time{}) != nil { // that of the request, which would end the stream
		return
	}
	write := func(event []byte) error {
		if err := out.SetWriteDeadline(time.Now().Add(s.limits.Write)); err != nil {
			return err
		}
		if _, err := w.Write(event); err != nil {
			return err
		}
		return out.Flush()
	}
	if write([]byte("retry: 1000\n\n")) != nil { // ms until the page connects again
		return
	}
	for {
		select {
		case <-r.Context().Done():
			return
		case event, ok := <-c.events:
			if !ok || write(event) != nil {
				return
			}
		}
	}
}
