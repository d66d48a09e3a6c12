package runner

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"testbed/emu/deploy"
	"testbed/emu/kernel"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/longtest"
	"testbed/results/verdict"
)

// points is by how much the check may differ from the truth, as a share of all processors.
const points = 0.02

// meter is the processor time as a test reads it, from other sources than the check.
type meter struct {
	at      time.Time
	idle    time.Duration // of all processors, time stolen by a hypervisor included
	charged time.Duration // to all tasks but ksoftirqd, by the root cgroup; 0 without the cpuacct controller
	own     time.Duration // by the run that is judged
	other   time.Duration // by the other process that the test started
}

func readMeter(own, other time.Duration) (meter, error) {
	m := meter{at: time.Now(), own: own, other: other}
	b, err := os.ReadFile("/proc/stat")
	if err != nil {
		return m, err
	}
	words := strings.Fields(string(b))
	for _, i := range []int{4, 5, 8} { // idle, iowait and steal
		n, err := strconv.Atoi(words[i])
		if err != nil {
			return m, err
		}
		m.idle += time.Duration(n) * tick
	}
	if b, err := os.ReadFile("/sys/fs/cgroup/cpuacct/cpuacct.usage"); err == nil {
		n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64)
		if err != nil {
			return m, err
		}
		softirqd, err := ksoftirqd()
		if err != nil {
			return m, err
		}
		m.charged = time.Duration(n) - softirqd // which the check counts as packets
	}
	return m, nil
}

// tick is the unit of /proc/stat and /proc/*/stat.
const tick = 10 * time.Millisecond

// judgeOthers compares the value of the check with two meters of its interval. The other
// process is a lower bound, since the machine may run more. All that this machine did, less
// the run, is an upper bound.
func judgeOthers(t *testing.T, v verdict.Verdict, from, to meter) (ok bool) {
	t.Helper()
	all := float64(to.at.Sub(from.at)) * float64(runtime.NumCPU())
	least := float64(to.other-from.other) / all
	own := float64(to.own-from.own) / all
	most := 1 - float64(to.idle-from.idle)/all - own
	by := "not idle"
	if to.charged > 0 {
		most, by = float64(to.charged-from.charged)/all-own, "charged to tasks (cpuacct)"
		least = max(least, most)
	}
	got, value := othersOf(t, v)
	t.Logf("check: %s", value)
	t.Logf("truth: the other process took %.1f %%, all others at least %.1f %%, all but the run took %.1f %% (%s), the run %.1f %%", 100*float64(to.other-from.other)/all, 100*least, 100*most, by, 100*own)
	if got < least-points || got > most+points {
		t.Logf("machine is %.1f %% in other processes, want %.1f to %.1f %%, and up to %.0f points more or less", 100*got, 100*least, 100*most, 100*points)
		return false
	}
	return true
}

func othersOf(t *testing.T, v verdict.Verdict) (share float64, value string) {
	t.Helper()
	for _, c := range v.Checks {
		if c.Name == "machine" {
			if _, err := fmt.Sscanf(c.Value, "%f %% in other processes", &share); err != nil {
				t.Fatalf("%q: %v", c.Value, err)
			}
			return share / 100, c.Value
		}
	}
	t.Fatal("the verdict has no check named machine")
	return 0, ""
}

// getrusage is the time of this process (unix.RUSAGE_SELF) or thread.
func getrusage(who int) (time.Duration, error) {
	var u unix.Rusage
	err := unix.Getrusage(who, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), err
}

// burn takes the share BURN_SHARE of all processors until stdin ends. For each line it
// prints the time that it was charged for, in ns.
func burn(t *testing.T) {
	share, err := strconv.ParseFloat(os.Getenv("BURN_SHARE"), 64)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for range runtime.NumCPU() {
		go func() {
			runtime.LockOSThread()
			for {
				took, err := getrusage(unix.RUSAGE_THREAD)
				if err != nil {
					panic(err)
				}
				if took >= time.Duration(share*float64(time.Since(start))) {
					time.Sleep(2 * time.Millisecond)
				}
			}
		}()
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		took, err := getrusage(unix.RUSAGE_SELF)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(int64(took))
	}
}

// askBurner is the time that a process in role "burn" was charged for.
func askBurner(p started, answers *bufio.Scanner) (time.Duration, error) {
	if _, err := io.WriteString(p.stdin, "\n"); err != nil {
		return 0, err
	}
	if !answers.Scan() {
		return 0, fmt.Errorf("the burner has ended: %v", answers.Err())
	}
	n, err := strconv.ParseInt(answers.Text(), 10, 64)
	return time.Duration(n), err
}

// What another process takes is in the verdict, while this process handles packets, whose
// softirq is charged to it.
func TestOtherProcessesAreCounted(t *testing.T) {
	longtest.Skip(t, "runs next to other processes, 14 s")
	netnstest.Require(t)
	netnstest.OnlyTiming(t)
	for _, share := range []float64{0.1, 0.25, 0.5} {
		t.Run(fmt.Sprint(share), func(t *testing.T) {
			netnstest.Timing(t, func(t *testing.T) bool {
				burner := child(t, "burn", []string{fmt.Sprintf("BURN_SHARE=%g", share)})
				answers := bufio.NewScanner(burner.stdout)
				text, trace := at100()
				o := options(t)
				var from, to meter
				var failed error
				o.Progress = func(p Progress) {
					var m *meter
					switch {
					case p.Phase == PhaseRun && from.at.IsZero():
						m = &from
					case p.Phase == PhaseSettle && to.at.IsZero():
						m = &to
					default:
						return
					}
					own, err1 := getrusage(unix.RUSAGE_SELF)
					other, err2 := askBurner(burner, answers)
					read, err3 := readMeter(own, other)
					*m, failed = read, errors.Join(failed, err1, err2, err3)
				}
				out, err := Execute(t.Context(), loadText(t, text, trace...), o)
				if err := errors.Join(err, failed); err != nil {
					t.Fatal(err)
				}
				return judgeOthers(t, out.Report.Summary.Arms[0].Verdicts[0], from, to)
			})
		})
	}
}

// A testbed that is up only for a moment in the middle of a run is counted.
func TestTestbedUpDuringARunIsCounted(t *testing.T) {
	longtest.Skip(t, "runs next to a busy testbed, 4 s")
	netnstest.Require(t)
	for _, n := range []int{0, 1, 2} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			s := loadText(t, fmt.Sprintf(twoRacks, "fair"), "1 0 1 0 1 1:1.0")
			o := options(t)
			done := false
			o.Progress = func(p Progress) {
				if p.Phase != PhaseRun || done {
					return
				}
				done = true
				var others []*deploy.Owned
				for i := range n {
					other, err := deploy.Create(t.Context(), o.StateRoot, deploy.State{ID: fmt.Sprint("other", i), Kind: deploy.KindRun, Name: "other", Shape: s.Shape()})
					if err != nil {
						t.Error(err)
						continue
					}
					others = append(others, other)
				}
				for _, other := range others {
					if err := other.Remove(t.Context(), kernel.Reaper{}); err != nil {
						t.Error(err)
					}
				}
			}
			out, err := Execute(t.Context(), s, o)
			if err != nil {
				t.Fatal(err)
			}
			_, value := othersOf(t, out.Report.Summary.Arms[0].Verdicts[0])
			want := []string{"", "another testbed was up", "up to 2 other testbeds were up at the same time"}[n]
			if !strings.Contains(value, want) || n == 0 && strings.Contains(value, "testbed") || !done {
				t.Errorf("machine says %q of %d other testbeds, want %q", value, n, want)
			}
		})
	}
}

// chargedTo is the time of a process that the test started and has not waited for.
func chargedTo(p started) (time.Duration, error) { return chargedToPID(p.cmd.Process.Pid) }

// ksoftirqd returns the time of the kernel threads of that name.
func ksoftirqd() (sum time.Duration, err error) {
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	for _, name := range names {
		b, readErr := os.ReadFile(name)
		if readErr != nil || !strings.HasPrefix(string(b), "ksoftirqd/") {
			continue // it has ended, or is another
		}
		pid, badPID := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		took, badStat := chargedToPID(pid)
		sum, err = sum+took, errors.Join(err, badPID, badStat)
	}
	return sum, err
}

func chargedToPID(pid int) (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, err
	}
	words := strings.Fields(string(b[strings.LastIndexByte(string(b), ')'):]))
	user, err1 := strconv.Atoi(words[12])
	system, err2 := strconv.Atoi(words[13])
	return time.Duration(user+system) * tick, errors.Join(err1, err2)
}

// Of two runs at once each counts the other.
func TestRunsCountOneAnother(t *testing.T) {
	longtest.Skip(t, "runs next to another run, 5 s")
	netnstest.Require(t)
	netnstest.OnlyTiming(t)
	netnstest.Timing(t, func(t *testing.T) bool {
		var runs [2]started
		var dirs [2]string
		for i := range runs {
			dirs[i] = t.TempDir()
			runs[i] = child(t, "judge", []string{"SENSITIVITY_DIR=" + dirs[i]})
		}
		var from, to [2]meter
		ended := make(chan error)
		for i := range runs {
			go func() {
				var failed error
				defer func() { ended <- failed }()
				lines := bufio.NewScanner(runs[i].stdout)
				for lines.Scan() {
					if lines.Text() != PhaseRun && lines.Text() != PhaseSettle {
						continue
					}
					own, err1 := chargedTo(runs[i])
					other, err2 := chargedTo(runs[1-i])
					m, err3 := readMeter(own, other)
					failed = errors.Join(failed, err1, err2, err3)
					if lines.Text() == PhaseRun {
						from[i] = m
					} else {
						to[i] = m
					}
				}
			}()
		}
		for range runs {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		ok := true
		for i := range runs {
			ok = judgeOthers(t, judgedBy(t, runs[i], dirs[i]), from[i], to[i]) && ok
		}
		return ok
	})
}
