package processors

import (
	"testing"
	"time"
)

func TestSince(t *testing.T) {
	at := time.Now()
	was := Reading{Times{At: at, Count: 2, HasWaiting: true}, nil}
	is := Reading{Times{At: at.Add(10 * time.Second), Count: 2, Tasks: 10 * time.Second, Own: 4 * time.Second, Softirq: time.Second, Irq: time.Second,
		Stolen: 2 * time.Second, Waiting: 5 * time.Second, HasWaiting: true}, nil}
	want := Load{Others: 0.3, Own: 0.2, Softirq: 0.1, Stolen: 0.1, Waiting: 0.5}
	if got, ok := is.Since(was); !ok || got != want {
		t.Errorf("processes are hidden: got %+v, %t, want %+v", got, ok, want)
	}
	is.HasWaiting, is.Own = false, 15*time.Second // packets are charged to this process
	if got, ok := is.Since(was); !ok || got.Others != 0 || got.Waiting != -1 {
		t.Errorf("got %+v, %t", got, ok)
	}
	if got, ok := was.Since(was); ok {
		t.Errorf("nothing passed: %+v", got)
	}
}
