// Package process runs a policy outside of the program as a child process and holds the conversation with it,
// lines over its standard input and output, within bounds. Nothing of it is left after Close.
//
// It does not know what the lines mean: package external does.
package process

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"testbed/topo/units"
)

// mark is the environment variable by which the descendants of a process are found: its value is unique.
const mark = "TESTBED_POLICY"

// exitGrace is the longest wait for the exit status of a process that has closed its output, and killGrace that for its
// descendants to end once they are killed, which take long if there are many.
const (
	exitGrace = time.Second
	killGrace = 10 * time.Second
)

// mostProcesses is the most processes that a policy may have. They are counted each time that an answer takes pause more.
const (
	mostProcesses = 200
	pause         = 100 * time.Millisecond
)

// Config describes a process.
type Config struct {
	Name    string // in errors
	Command []string
	Dir     string        // working directory
	Stderr  io.Writer     // gets the first Output bytes of its standard error; nil drops them
	Timeout time.Duration // bounds each answer, and the end of the process
	Output  units.Bytes   // bounds the output for one answer
}

// Process is a running process.
type Process struct {
	cfg       Config
	pid       int
	mark      string
	in, out   *os.File
	lines     *bufio.Reader
	said      stderr
	asked, at int // lines sent and received
	crowd     int // number of its processes at the latest look
	reap      sync.Mutex
	reaped    bool
	exited    chan struct{} // closed when it has ended and its group is killed
	status    error         // how it ended; read it once exited is closed
	failed    error         // the first error of Ask
	raised    bool          // by follow
}

// Start starts a process in a process group of its own, as the user who called sudo, if any.
func Start(cfg Config) (_ *Process, err error) {
	p := &Process{cfg: cfg, mark: rand.Text(), exited: make(chan struct{})}
	var ends [6]*os.File // read and write ends: input, output, errors
	for i := 0; i < len(ends) && err == nil; i += 2 {
		ends[i], ends[i+1], err = os.Pipe()
	}
	if err != nil {
		closeAll(ends[:])
		return nil, p.blame(err)
	}
	cmd := exec.Command(cfg.Command[0], cfg.Command[1:]...)
	cmd.Dir, cmd.Env = cfg.Dir, append(os.Environ(), mark+"="+p.mark)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = ends[0], ends[3], ends[5]
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL, Credential: caller()}
	if cfg.Dir != "" && strings.Contains(cfg.Command[0], "/") && !filepath.IsAbs(cfg.Command[0]) {
		cmd.Path = filepath.Join(cfg.Dir, cfg.Command[0])
	}
	started := make(chan error)
	go p.watch(cmd, started)
	err = <-started
	closeAll([]*os.File{ends[0], ends[3], ends[5]})
	if err != nil {
		closeAll([]*os.File{ends[1], ends[2], ends[4]})
		return nil, p.blame(fmt.Errorf("%w (commands run in %s; give a path, or a name that PATH has)", err, cfg.Dir))
	}
	p.in, p.out, p.lines = ends[1], ends[2], bufio.NewReaderSize(ends[2], 1<<16)
	p.said.from, p.said.ended = ends[4], make(chan struct{})
	go p.said.copy(cfg.Stderr, int64(cfg.Output))
	return p, nil
}

// caller returns the user who called sudo; nil if none did.
func caller() *syscall.Credential {
	uid, err1 := strconv.ParseUint(os.Getenv("SUDO_UID"), 10, 32)
	gid, err2 := strconv.ParseUint(os.Getenv("SUDO_GID"), 10, 32)
	if err1 != nil || err2 != nil || os.Geteuid() != 0 {
		return nil
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// watch starts the process and waits for its end. The kernel kills the process with the thread that started it
// (Pdeathsig), so that thread stays. The group is killed before its number is free for others.
func (p *Process) watch(cmd *exec.Cmd, started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := cmd.Start()
	if err == nil {
		p.pid = cmd.Process.Pid
	}
	started <- err
	if err != nil {
		return
	}
	var info unix.Siginfo
	for unix.Waitid(unix.P_PID, p.pid, &info, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	_ = unix.Kill(-p.pid, unix.SIGKILL) // the process is a zombie: its group exists
	p.reap.Lock()
	p.reaped, p.status = true, cmd.Wait()
	p.reap.Unlock()
	close(p.exited)
}

func closeAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			_ = f.Close() // pipes: nothing is lost
		}
	}
}

func (p *Process) blame(err error) error { return fmt.Errorf("%s: %w", p.cfg.Name, err) }

// Ask implements external.Conversation. After an error it returns the same error.
func (p *Process) Ask(line []byte, use func([]byte) (bool, error)) (time.Duration, error) {
	if p.failed != nil {
		return 0, p.failed
	}
	p.follow()
	began := time.Now()
	p.asked++
	if err := p.ask(line, began.Add(p.cfg.Timeout), use); err != nil {
		p.failed = p.blame(fmt.Errorf("line %d to it: %w%s", p.asked, err, p.said.last(p.over())))
	}
	return time.Since(began), p.failed
}

// follow gives the process a real-time priority while this thread has one, as while packets are timed: its answers would
// wait for all packets, and decisions for its answers. What it starts has none. Without the right to do so it has none
// either, and the check policy-late judges the answers.
func (p *Process) follow() {
	is, err := unix.SchedGetAttr(0, 0)
	if err != nil || (is.Policy == unix.SCHED_RR || is.Policy == unix.SCHED_FIFO) == p.raised {
		return
	}
	p.raised = !p.raised
	is.Flags |= unix.SCHED_FLAG_RESET_ON_FORK
	p.reap.Lock()
	defer p.reap.Unlock()
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", p.pid))
	if err != nil || p.reaped {
		return
	}
	for _, t := range threads {
		if id, err := strconv.Atoi(t.Name()); err == nil {
			_ = unix.SchedSetAttr(id, is, 0)
		}
	}
}

func (p *Process) ask(line []byte, until time.Time, use func([]byte) (bool, error)) error {
	_ = p.in.SetWriteDeadline(until) // pipes have deadlines
	n, err := p.in.Write(line)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("it has read %d of %d bytes within %v (timeout)", n, len(line), p.cfg.Timeout)
	}
	ended := err != nil // it does not read any more; what it has written may explain why
	left := int(p.cfg.Output)
	for {
		got, err := p.readLine(&left, until)
		switch {
		case p.crowd > mostProcesses:
			return fmt.Errorf("it has %d processes: must be at most %d", p.crowd, mostProcesses)
		case errors.Is(err, os.ErrDeadlineExceeded) && (ended || p.over()): // a descendant has its output
			return p.end()
		case errors.Is(err, os.ErrDeadlineExceeded):
			return fmt.Errorf("no answer within %v (timeout)", p.cfg.Timeout)
		case errors.Is(err, io.EOF) && len(got) > 0:
			return fmt.Errorf("line %d of its output is cut off after %d bytes: %w", p.at+1, len(got), p.end())
		case errors.Is(err, io.EOF):
			return p.end()
		case err != nil:
			return fmt.Errorf("line %d of its output: %w", p.at+1, err)
		}
		p.at++
		accepted, err := use(got)
		if err != nil {
			return fmt.Errorf("line %d of its output: %w: %s", p.at, err, units.Clip(string(bytes.TrimSpace(got))))
		}
		if accepted && !ended {
			return nil
		}
		if accepted {
			return p.end()
		}
	}
}

// readLine reads a line, of at most left bytes, from which it subtracts. At each pause it looks at the processes.
func (p *Process) readLine(left *int, until time.Time) ([]byte, error) {
	var line []byte
	for {
		now := time.Now()
		_ = p.out.SetReadDeadline(now.Add(min(pause, until.Sub(now))))
		part, err := p.lines.ReadSlice('\n')
		if *left -= len(part); *left < 0 {
			return nil, fmt.Errorf("more than %v of output for one answer (output)", p.cfg.Output)
		}
		if err == nil && line == nil {
			return part, nil
		}
		line = append(line, part...)
		pausing := errors.Is(err, os.ErrDeadlineExceeded) && time.Now().Before(until) && !p.over()
		if err != bufio.ErrBufferFull && !pausing {
			return line, err
		}
		if pausing {
			if p.crowd = len(p.processes()); p.crowd > mostProcesses {
				return nil, err
			}
		}
	}
}

// over reports whether the process has ended.
func (p *Process) over() bool {
	select {
	case <-p.exited:
		return true
	default:
		return false
	}
}

// end returns how the process ended, as an error.
func (p *Process) end() error {
	select {
	case <-p.exited:
	case <-time.After(min(p.cfg.Timeout, exitGrace)):
		return errors.New("it has closed its standard input or output")
	}
	if p.status == nil {
		return errors.New("it ended (exit status 0)")
	}
	return fmt.Errorf("it ended (%w)", p.status)
}

// Close sends a last line, waits for the end of the process, kills what is left of it and its descendants, and
// returns an error if it did not end by itself with status 0. After an error of Ask it only kills.
func (p *Process) Close(last []byte) error {
	var err error
	if p.failed == nil {
		_ = p.in.SetWriteDeadline(time.Now().Add(p.cfg.Timeout))
		_, _ = p.in.Write(last) // a process that has ended has a status
		_ = p.in.Close()
		select {
		case <-p.exited:
			if p.status != nil {
				err = p.blame(fmt.Errorf("after the last line: it ended (%w)%s", p.status, p.said.last(p.over())))
			}
		case <-time.After(p.cfg.Timeout):
			err = p.blame(fmt.Errorf("it has not ended within %v after the last line (timeout)%s", p.cfg.Timeout, p.said.last(p.over())))
		}
	}
	p.reap.Lock()
	if !p.reaped { // its number is its own
		_ = unix.Kill(-p.pid, unix.SIGKILL)
	}
	p.reap.Unlock()
	<-p.exited
	if left := p.killDescendants(); left != nil {
		err = errors.Join(err, p.blame(left))
	}
	_ = p.said.from.SetReadDeadline(time.Now().Add(exitGrace)) // no process writes any more, unless one hides
	<-p.said.ended
	closeAll([]*os.File{p.in, p.out, p.said.from})
	return err
}

// killDescendants kills processes that have left the group. All are stopped before any is killed: one that notices the end
// of another would start more.
func (p *Process) killDescendants() error {
	const calm = 3 // looks that find no other process; one that replaces its program is not seen for a moment
	until := time.Now().Add(killGrace)
	stopped := map[int]bool{}
	for looks := 0; looks < calm && time.Now().Before(until); looks++ {
		for _, pid := range p.processes() {
			if !stopped[pid] {
				stopped[pid], looks = true, -1
				_ = unix.Kill(pid, unix.SIGSTOP)
			}
		}
	}
	for {
		left := p.processes()
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(until) {
			return fmt.Errorf("processes %v are left: end them", left)
		}
		for _, pid := range left {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
		time.Sleep(time.Millisecond)
	}
}

// processes returns the processes that have the mark in their environment, without zombies.
func (p *Process) processes() (pids []int) {
	want := []byte(mark + "=" + p.mark)
	dirs, _ := os.ReadDir("/proc")
	for _, dir := range dirs {
		pid, err := strconv.Atoi(dir.Name())
		if err != nil {
			continue
		}
		if env, err := os.ReadFile("/proc/" + dir.Name() + "/environ"); err == nil && bytes.Contains(env, want) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// stderr is what a process has written to its standard error.
type stderr struct {
	from  *os.File
	ended chan struct{} // closed at its end
	mu    sync.Mutex
	tail  []byte // the last bytes
}

// copy reads until the end and keeps the first bytes in w.
func (s *stderr) copy(w io.Writer, most int64) {
	const tail = 400 // bytes in messages
	defer close(s.ended)
	b := make([]byte, 1<<12)
	for {
		n, err := s.from.Read(b)
		if n > 0 {
			s.mu.Lock()
			s.tail = append(s.tail, b[:n]...)
			s.tail = s.tail[max(0, len(s.tail)-tail):]
			s.mu.Unlock()
			if kept := min(int64(n), most); w != nil && kept > 0 {
				_, _ = w.Write(b[:kept]) // a full disk does not end the run
				most -= kept
			}
		}
		if err != nil {
			return
		}
	}
}

// last returns the last line of it for a message. If the process has ended, that is the last that it wrote.
func (s *stderr) last(over bool) string {
	if over {
		select {
		case <-s.ended:
		case <-time.After(exitGrace / 10): // a descendant has it
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := strings.Split(strings.TrimSpace(string(s.tail)), "\n")
	if line := lines[len(lines)-1]; line != "" {
		return "; its standard error ends with: " + units.Clip(line)
	}
	return ""
}
