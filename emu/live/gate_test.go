package live

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"
)

// logged is a connection that notes when it is written to.
type logged struct {
	net.Conn
	name string
	log  *writeLog
}

type writeLog struct {
	mu    sync.Mutex
	order []string
}

func (c logged) Write(b []byte) (int, error) {
	c.log.mu.Lock()
	defer c.log.mu.Unlock()
	c.log.order = append(c.log.order, c.name)
	return len(b) - 1, errWrite
}

func (l *writeLog) so() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.order)
}

var errWrite = errors.New("a connection that cannot be written to")

// A gate has nothing written before its last segment has come, and then each once, with what
// its connection says of it.
func TestGateOpensWhenAllHaveCome(t *testing.T) {
	w := newWriters()
	defer w.close()
	log := &writeLog{}
	g := newGate(3, time.Minute, w)
	var done sync.WaitGroup
	send := func(name string, order time.Duration) {
		done.Go(func() {
			if n, err := g.first(order)(logged{name: name, log: log}, make([]byte, 100)); n != 99 || !errors.Is(err, errWrite) {
				t.Errorf("%s: %d, %v", name, n, err)
			}
		})
	}
	send("b", 2)
	send("c", 3)
	for begin := time.Now(); ; time.Sleep(time.Millisecond) {
		g.mu.Lock()
		missing := g.missing
		g.mu.Unlock()
		if missing == 1 {
			break
		}
		if time.Since(begin) > 10*time.Second {
			t.Fatalf("%d are missing after 10s", missing)
		}
	}
	if n := log.so(); n != 0 {
		t.Fatalf("%d written before the last has come", n)
	}
	send("a", 1)
	done.Wait()
	if n := log.so(); n != 3 {
		t.Errorf("%d of 3 written", n)
	}
	if n, err := g.first(0)(logged{name: "d", log: log}, make([]byte, 10)); n != 9 || !errors.Is(err, errWrite) {
		t.Errorf("after it has opened: %d, %v", n, err)
	}
}

// Segments are written in the order of their draws, and a gate does not wait for ever for one
// that does not come.
func TestGateOpensInTime(t *testing.T) {
	w := newWriters()
	defer func(all []chan *batch) {
		w.batches = all
		w.close()
	}(w.batches)
	w.batches = w.batches[:1] // else several write at once
	log := &writeLog{}
	g := newGate(4, 50*time.Millisecond, w)
	var done sync.WaitGroup
	for name, order := range map[string]time.Duration{"a": 1, "b": 2, "c": 3} {
		done.Go(func() { g.first(order)(logged{name: name, log: log}, make([]byte, 100)) })
	}
	done.Wait()
	if got := log.order; len(got) != 3 || got[0] != "a" || got[1] != "b" || got[2] != "c" {
		t.Errorf("written: %v, want a, b, c", got)
	}
}
