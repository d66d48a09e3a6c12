// Package processors reads what the processors of the machine did: all together, by process, and for
// the hypervisor.
package processors

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Times is the use of all processors of the machine together since boot. The kernel counts in
// ticks of 10 ms.
type Times struct {
	At      time.Time // time of the reading
	Count   int
	Tasks   time.Duration // in processes, including system calls, excluding softirq
	Softirq time.Duration // mostly packets and their timers
	Irq     time.Duration
	Stolen  time.Duration // taken by the hypervisor for other machines
	// Own is the time charged to this process and to the children that it waited for. Unless the
	// kernel has CONFIG_IRQ_TIME_ACCOUNTING, it includes softirq handled while they run, which
	// Tasks excludes.
	Own time.Duration
	// Waiting is the time during which at least one task waited for a processor (PSI). HasWaiting
	// reports whether the kernel provides it.
	Waiting    time.Duration
	HasWaiting bool
}

// ReadTimes reads /proc/stat, /proc/pressure/cpu and the usage of this process.
func ReadTimes() (Times, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return Times{}, fmt.Errorf("processor times: %w", err)
	}
	at := time.Now()
	p, err := parseStat(string(b))
	if err != nil {
		return Times{}, fmt.Errorf("processor times: %w", err)
	}
	p.At = at
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if err := unix.Getrusage(who, &u); err != nil {
			return Times{}, fmt.Errorf("processor times of this process: %w", err)
		}
		p.Own += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	if b, err := os.ReadFile("/proc/pressure/cpu"); err == nil {
		p.Waiting, p.HasWaiting = parsePressure(string(b))
	}
	return p, nil
}

// userTick is the unit of /proc/stat, USER_HZ: 100 per second on all Linux systems.
const userTick = 10 * time.Millisecond

func parseStat(text string) (Times, error) {
	var p Times
	var all time.Duration
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) == 0 || !strings.HasPrefix(words[0], "cpu") {
			continue
		}
		if words[0] != "cpu" {
			p.Count++
			continue
		}
		if len(words) < 9 {
			return p, fmt.Errorf("/proc/stat: %d processor times, expected 8", len(words)-1)
		}
		var at [8]time.Duration // user nice system idle iowait irq softirq steal
		for i := range at {
			n, err := strconv.ParseUint(words[i+1], 10, 63)
			if err != nil {
				return p, fmt.Errorf("/proc/stat: %w", err)
			}
			at[i] = time.Duration(n) * userTick
			all += at[i]
		}
		p.Tasks, p.Irq, p.Softirq, p.Stolen = at[0]+at[1]+at[2], at[5], at[6], at[7]
	}
	if all == 0 || p.Count == 0 {
		return p, fmt.Errorf("/proc/stat has no processor times")
	}
	return p, nil
}

// parsePressure returns the total of the line "some", which is in µs.
func parsePressure(text string) (time.Duration, bool) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "some ") {
			continue
		}
		if _, total, ok := strings.Cut(strings.TrimSpace(line), " total="); ok {
			us, err := strconv.ParseInt(total, 10, 64)
			return time.Duration(us) * time.Microsecond, err == nil
		}
	}
	return 0, false
}
