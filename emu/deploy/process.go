package deploy

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode"

	"testbed/results/safefile"
)

const (
	// maxCommandLine is the number of bytes read of a command line.
	maxCommandLine = 4096
	// clockTicks is the unit of start times in /proc, in ticks per second (USER_HZ).
	clockTicks = 100
)

// Process is a process in a testbed.
type Process struct {
	PID     int       `json:"pid"`
	Host    string    `json:"host"`    // the host or switch that it is in
	Command string    `json:"command"` // with its arguments, on one line; [name] if it has no command line
	Started time.Time `json:"started"` // within 20 ms
}

// Short returns the command in at most 60 characters.
func (p Process) Short() string {
	const most = 60
	if r := []rune(p.Command); len(r) > most {
		return string(r[:most-1]) + "…"
	}
	return p.Command
}

// String returns text such as "sleep 60 (pid 123, h0-00)".
func (p Process) String() string {
	in := ""
	if p.Host != "" {
		in = ", " + p.Host
	}
	return strings.TrimSpace(fmt.Sprintf("%s (pid %d%s)", p.Short(), p.PID, in))
}

// Describe reads the command line and the start time of a process. They stay empty if it has ended.
func Describe(pid int, host string) Process {
	p := Process{PID: pid, Host: host}
	dir := fmt.Sprintf("/proc/%d", pid)
	comm, fields, err := procStat(dir)
	if err != nil {
		return p
	}
	if ticks, err := strconv.ParseInt(fields[statStarted], 10, 64); err == nil {
		p.Started = time.Now().Add(time.Duration(ticks)*time.Second/clockTicks - uptime()).UTC()
	}
	line, err := safefile.Read(dir + "/cmdline")
	if line = bytes.TrimRight(line[:min(len(line), maxCommandLine)], "\x00"); err != nil || len(line) == 0 {
		line = []byte("[" + comm + "]")
	}
	p.Command = strings.Map(func(r rune) rune { // no control characters for the terminal
		if unicode.IsPrint(r) {
			return r
		}
		return ' '
	}, string(line))
	return p
}

// Indices of fields of proc_pid_stat(5) after the name: its number there, less 3.
const (
	statState   = 0
	statFlags   = 6
	statStarted = 19
)

// procStat reads the stat file of a process or thread in /proc.
func procStat(dir string) (comm string, fields []string, err error) {
	stat, err := safefile.Read(dir + "/stat") // pid (comm) state ppid …
	if err != nil {
		return "", nil, err
	}
	open, end := bytes.IndexByte(stat, '('), bytes.LastIndexByte(stat, ')')
	if open < 0 || end < open {
		return "", nil, fmt.Errorf("%s/stat: no name in %q", dir, stat)
	}
	fields = strings.Fields(string(stat[end+1:]))
	if len(fields) <= statStarted {
		return "", nil, fmt.Errorf("%s/stat: %d fields", dir, len(fields))
	}
	return string(stat[open+1 : end]), fields, nil
}

// SignalMask returns a set of signals, such as SigIgn, of the status of a process or thread in /proc:
// signal n is bit n-1. It is 0 if the process has ended.
func SignalMask(dir, set string) uint64 {
	status, err := safefile.Read(dir + "/status")
	if err != nil {
		return 0
	}
	_, after, _ := strings.Cut(string(status), "\n"+set+":")
	mask, _, _ := strings.Cut(after, "\n")
	bits, err := strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
	if err != nil {
		return 0
	}
	return bits
}

// Ignores reports whether a process ignores a signal.
func Ignores(pid int, s syscall.Signal) bool {
	return SignalMask(fmt.Sprintf("/proc/%d", pid), "SigIgn")>>(s-1)&1 == 1
}
