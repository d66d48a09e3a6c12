package kernel

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Processors is how all processors of the machine together have spent their time
// since it was started. The kernel counts in ticks of 10 ms.
type Processors struct {
	Count   int
	All     time.Duration // Count times the time that passed
	Tasks   time.Duration // in processes, the kernel's work for them included
	Softirq time.Duration // of Softirq and Irq: mostly packets and their timers
	Irq     time.Duration
	Stolen  time.Duration // a hypervisor gave it to other machines
	Own     time.Duration // of Tasks and Softirq, in this process and children it waited for
	// Waiting is how long at least one task had to wait for a processor, where the
	// kernel says (PSI).
	Waiting    time.Duration
	HasWaiting bool
}

// ProcessorTimes reads /proc/stat, /proc/pressure/cpu and what this process used.
func ProcessorTimes() (Processors, error) {
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return Processors{}, fmt.Errorf("processor times: %w", err)
	}
	p, err := parseStat(string(b))
	if err != nil {
		return Processors{}, fmt.Errorf("processor times: %w", err)
	}
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if err := unix.Getrusage(who, &u); err != nil {
			return Processors{}, fmt.Errorf("processor times of this process: %w", err)
		}
		p.Own += time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	if b, err := os.ReadFile("/proc/pressure/cpu"); err == nil {
		p.Waiting, p.HasWaiting = parsePressure(string(b))
	}
	return p, nil
}

// userTick is the unit of /proc/stat, USER_HZ, which is 100 on all of Linux.
const userTick = 10 * time.Millisecond

func parseStat(text string) (Processors, error) {
	var p Processors
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
			return p, fmt.Errorf("/proc/stat: %d times of processors, want 8", len(words)-1)
		}
		var at [8]time.Duration // user nice system idle iowait irq softirq steal
		for i := range at {
			n, err := strconv.ParseUint(words[i+1], 10, 63)
			if err != nil {
				return p, fmt.Errorf("/proc/stat: %w", err)
			}
			at[i] = time.Duration(n) * userTick
			p.All += at[i]
		}
		p.Tasks, p.Irq, p.Softirq, p.Stolen = at[0]+at[1]+at[2], at[5], at[6], at[7]
	}
	if p.All == 0 || p.Count == 0 {
		return p, fmt.Errorf("/proc/stat has no times of processors")
	}
	return p, nil
}

// parsePressure finds the total, in µs, of the line that begins with "some".
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
