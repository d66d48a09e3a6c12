package processors

import "time"

// Reading is the processor time that the machine and each of its processes have used up to a moment.
type Reading struct {
	Times
	processes usage
}

// Read reads /proc/stat, /proc/pressure/cpu, /proc/*/stat and the usage of this process.
func Read() (Reading, error) {
	t, err := ReadTimes()
	if err != nil {
		return Reading{}, err
	}
	processes, err := readUsage()
	return Reading{t, processes}, err
}

// Load is what the processors did between two readings, as shares of the time of all of them.
type Load struct {
	Others  float64 // in other processes
	Own     float64 // in this one; most kernels charge it for packets and timers that it handles
	Softirq float64 // for packets and timers
	Stolen  float64 // by the hypervisor
	Waiting float64 // share of the time in which some task waited for a processor; < 0 if the kernel does not report it
}

// Since returns the load since an earlier reading. ok is false if no time has passed.
//
// Others is the sum of what the other processes were charged for. "All tasks less this
// process" would be too little: this process is charged for the packets and timers (softirq)
// that are handled while it runs, which can be half of its time, and /proc/stat counts
// them apart from tasks. That difference is still a lower bound, and the only one for
// processes that /proc does not show, such as those outside a container.
func (r Reading) Since(was Reading) (l Load, ok bool) {
	passed := r.At.Sub(was.At)
	if passed <= 0 {
		return Load{}, false
	}
	share := func(d time.Duration) float64 { return r.share(d, was.Times) }
	own := r.Own - was.Own
	l = Load{Own: share(own), Softirq: share(r.Softirq - was.Softirq + r.Irq - was.Irq), Stolen: r.StolenSince(was.Times),
		Others: share(max(r.processes.othersSince(was.processes), r.Tasks-was.Tasks-own)), Waiting: -1}
	if r.HasWaiting && was.HasWaiting {
		l.Waiting = min(1, float64(r.Waiting-was.Waiting)/float64(passed))
	}
	return l, true
}

// StolenSince returns the share of the processors that the hypervisor took since an earlier reading.
func (t Times) StolenSince(was Times) float64 { return t.share(t.Stolen-was.Stolen, was) }

// share returns d as a share of the time of all processors since an earlier reading, 0 if none has
// passed.
func (t Times) share(d time.Duration, was Times) float64 {
	all := t.At.Sub(was.At) * time.Duration(t.Count)
	if all <= 0 {
		return 0
	}
	return min(1, max(0, float64(d)/float64(all)))
}
