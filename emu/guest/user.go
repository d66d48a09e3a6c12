package guest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// UserMode reports whether Find takes what is asked for as a kernel of user-mode Linux: a file that is no package. In
// virtual time, its processor is infinitely fast: time passes only while the kernel is idle.
func UserMode(ask string) bool {
	ask = cmp.Or(ask, os.Getenv(Env))
	info, err := os.Stat(ask)
	return err == nil && info.Mode().IsRegular() && !strings.HasSuffix(ask, ".deb")
}

// openUserMode opens a kernel of user-mode Linux, which is a program of this machine.
func openUserMode(ctx context.Context, file string) (Kernel, error) {
	full, err := filepath.Abs(file)
	if err != nil {
		return Kernel{}, err
	}
	release, err := output(ctx, full, "--version")
	help, err2 := output(ctx, full, "--help")
	if err := errors.Join(err, err2); err != nil {
		return Kernel{}, Unavailable{fmt.Errorf("%s is no kernel of user-mode Linux: %w", file, err)}
	}
	if !strings.Contains(help, infinitelyFast) {
		return Kernel{}, Unavailable{fmt.Errorf("the kernel %s has no %s: build one with make uml-kernel", file, infinitelyFast)}
	}
	return Kernel{Release: strings.TrimSpace(release), Image: full, UserMode: true}, nil
}

const (
	infinitelyFast = "time-travel=inf-cpu"
	// portsArgument is the argument of the kernel that names the files of ports, in portsPath of the guest.
	portsArgument = "testbed.ports="
	portsPath     = "/ports"
)

// userModeArguments returns the arguments of a kernel of user-mode Linux, which has the image as file 3 and runs in the
// directory of the files of its ports.
func (m Machine) userModeArguments() []string {
	args := []string{
		fmt.Sprintf("mem=%dM", m.Memory), "initrd=/proc/self/fd/3", "rdinit=" + initPath, "loglevel=3", "panic=-1",
		"con=null", "con0=null,fd:1", "ssl=null", "random.trust_cpu=off", infinitelyFast,
		fmt.Sprintf("time-travel-start=%d", time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC).UnixNano()),
	}
	if len(m.Ports) == 0 {
		return append(args, m.Args...)
	}
	var names []string
	for _, f := range m.Ports {
		names = append(names, filepath.Base(f.Name()))
	}
	return append(append(args, "hostfs=/proc/self/cwd", portsArgument+strings.Join(names, ",")), m.Args...)
}

// userModePort opens the file of a port in a guest of user-mode Linux. found is false in others.
func userModePort(place int) (f *os.File, found bool, err error) {
	b, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return nil, false, err
	}
	words := strings.Fields(string(b))
	at := slices.IndexFunc(words, func(w string) bool { return strings.HasPrefix(w, portsArgument) })
	if at < 0 {
		return nil, false, nil
	}
	names := strings.Split(strings.TrimPrefix(words[at], portsArgument), ",")
	if place >= len(names) {
		return nil, true, fmt.Errorf("the guest has %d ports", len(names))
	}
	if err := os.MkdirAll(portsPath, 0o755); err != nil {
		return nil, true, err
	}
	if err := unix.Mount("none", portsPath, "hostfs", unix.MS_SYNCHRONOUS, ""); err != nil && !errors.Is(err, unix.EBUSY) {
		return nil, true, fmt.Errorf("files of the host: %w", err)
	}
	f, err = os.OpenFile(filepath.Join(portsPath, names[place]), os.O_WRONLY|os.O_APPEND|os.O_SYNC, 0)
	return f, true, err
}

// Computing for busyRounds takes tens of milliseconds on a processor.
const (
	busyRounds = 20_000_000
	busyMost   = time.Millisecond
)

// checkInfinitelyFast returns an error if time passes in a guest of user-mode Linux while it computes, or if sleeps end
// late.
func checkInfinitelyFast() error {
	start, x := time.Now(), uint64(1)
	for range busyRounds {
		x = x*6364136223846793005 + 1
	}
	if took := time.Since(start); took > busyMost || x == 0 {
		return fmt.Errorf("the kernel of the guest lets %v pass while it computes: build one with make uml-kernel", took)
	}
	if late := sleepLate(); late > clockLate {
		return fmt.Errorf("timers of the guest's kernel fire %v late: build one with make uml-kernel", late)
	}
	return nil
}

// sleepLate returns the median of how late sleeps end.
func sleepLate() time.Duration {
	var late []time.Duration
	for range clockSleeps {
		start := time.Now()
		time.Sleep(clockSleep)
		late = append(late, time.Since(start)-clockSleep)
	}
	slices.Sort(late)
	return late[len(late)/2]
}
