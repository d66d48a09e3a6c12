package netnstest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"testbed/emu/kernel/processors"
)

// Bounds of what the rest of the machine may do while a test judges durations. What an attempt
// measured beyond them says nothing of the program.
const (
	stopBound   = 20 * time.Millisecond // in which a processor ran nothing, not even what has real-time priority
	stolenBound = 0.03                  // share of the processors that the hypervisor took, in all
	burstBound  = 0.10                  // the same, in a window of canaryWindow
	othersBound = 0.15                  // share of the processors that other processes took, as in the verdict of a run
)

// quietBound is the time that all tests of a process together wait for a quiet machine.
const quietBound = 2 * time.Minute

// watch observes the machine from a moment on.
type watch struct {
	began time.Time
	was   processors.Reading
}

// observe begins a watch. Virtual time needs none.
func observe(t testing.TB) watch {
	t.Helper()
	if Virtual() {
		return watch{}
	}
	r, err := processors.Read()
	if err != nil {
		t.Fatal(err)
	}
	theCanary()
	return watch{time.Now(), r}
}

// disturbed returns what disturbed the machine since a watch began; empty if nothing did. Tests
// replace it.
var disturbed = func(t testing.TB, w watch) string {
	t.Helper()
	if Virtual() {
		return ""
	}
	is, err := processors.Read()
	if err != nil {
		t.Fatal(err)
	}
	stopped, burst, err := theCanary().worst(w.began)
	if err != nil {
		t.Fatal(err)
	}
	load, _ := is.Since(w.was)
	return disturbance(stopped, burst, load)
}

func disturbance(stopped time.Duration, burst float64, load processors.Load) string {
	var out []string
	if stopped > stopBound {
		out = append(out, fmt.Sprintf("a processor stopped for %v", stopped.Round(time.Millisecond)))
	}
	if burst > burstBound {
		out = append(out, fmt.Sprintf("%.0f %% of the processors were stolen for %v", 100*burst, canaryWindow))
	}
	if load.Stolen > stolenBound {
		out = append(out, fmt.Sprintf("%.1f %% of the processors were stolen", 100*load.Stolen))
	}
	if load.Others > othersBound {
		out = append(out, fmt.Sprintf("other processes took %.0f %% of the processors", 100*load.Others))
	}
	return strings.Join(out, ", ")
}

var waited time.Duration // of quietBound

// awaitQuiet waits until nothing disturbs the machine for a second.
func awaitQuiet(t testing.TB) {
	t.Helper()
	for waited < quietBound {
		w := observe(t)
		time.Sleep(time.Second)
		quiet := disturbed(t, w) == ""
		waited += time.Since(w.began)
		if quiet {
			return
		}
	}
}
