package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"testbed/emu/guest"
	"testbed/emu/longtest"
)

// Paths in the guest.
const (
	jobPath     = "/job.json"
	sourcePath  = "/src"      // the module's files except Go code
	diskPath    = "/dev/vda"  // formatted by the host, in real time
	markerStart = "##testvm " // no other output begins with it
)

// job is the host's request to init.
type job struct {
	Runs []run `json:"runs"`
	// Speed is the number of instructions in a nanosecond of virtual time; 0 in real time.
	Speed int `json:"speed,omitempty"`
}

// run is one test binary.
type run struct {
	Package string        `json:"package"` // path relative to the module's root
	Binary  string        `json:"binary"`  // file name
	Args    []string      `json:"args"`
	Limit   time.Duration `json:"limit"` // timeout, after which it is killed
}

// mark is a line of the report that begins with markerStart.
type mark struct {
	What    string        `json:"what"` // boot, begin, end, done, broken
	Package string        `json:"package,omitempty"`
	Exit    int           `json:"exit,omitempty"`
	Took    time.Duration `json:"took,omitempty"`
	Text    string        `json:"text,omitempty"`
}

// guestMain runs the host's job in the guest, and reports the results.
func guestMain() {
	console := os.Stderr
	report := io.Writer(console)
	err := guest.Setup()
	if port, err2 := guest.Port(0); err2 == nil {
		report = port
	} else {
		err = errors.Join(err, err2)
	}
	say := func(m mark) {
		b, _ := json.Marshal(m) // strings and numbers only
		fmt.Fprintf(report, "%s%s\n", markerStart, b)
	}
	if err == nil {
		err = perform(report, say)
	}
	if err != nil {
		fmt.Fprintln(console, "init:", err)
		say(mark{What: "broken", Text: err.Error()})
	} else {
		say(mark{What: "done"})
	}
}

func perform(report io.Writer, say func(mark)) error {
	b, err := os.ReadFile(jobPath)
	if err != nil {
		return err
	}
	var j job
	if err := json.Unmarshal(b, &j); err != nil {
		return fmt.Errorf("%s: %w", jobPath, err)
	}
	if j.Speed > 0 {
		err = errors.Join(
			guest.ServePacketsFirst(),
			guest.CheckClock(j.Speed),
			syscall.Mount("tmpfs", "/tmp", "tmpfs", 0, ""),
		)
	} else {
		err = mountDisk()
	}
	if err != nil {
		return err
	}
	if err := os.Chmod("/tmp", 0o1777); err != nil {
		return err
	}
	release, err := guest.Release()
	if err != nil {
		return err
	}
	if j.Speed > 0 {
		release += " in virtual time"
	}
	say(mark{What: "boot", Text: release})
	for _, r := range j.Runs {
		say(mark{What: "begin", Package: r.Package})
		start := time.Now()
		exit, err := test(r, j.Speed, report)
		m := mark{What: "end", Package: r.Package, Exit: exit, Took: time.Since(start)}
		if err != nil {
			m.Text = err.Error()
		}
		say(m)
	}
	return nil
}

// mountDisk mounts the disk on /tmp.
func mountDisk() error {
	if err := guest.AwaitFile(diskPath, 10*time.Second); err != nil {
		return err
	}
	if err := syscall.Mount(diskPath, "/tmp", "ext4", 0, ""); err != nil {
		return fmt.Errorf("mount the disk: %w", err)
	}
	return nil
}

// test runs one binary in its package's directory and returns its exit code, or -1 and the
// reason why it has none.
func test(r run, speed int, report io.Writer) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), r.Limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, guest.BinaryPath+"/"+r.Binary, r.Args...)
	cmd.Dir = sourcePath + "/" + r.Package
	kind := longtest.EmulatedTime
	if speed > 0 {
		kind = longtest.VirtualTime
	}
	cmd.Env = append(os.Environ(), "TESTBED_PRIVILEGED=1", longtest.VMEnv+"="+kind)
	// Not the serial line itself: programs behave differently on a terminal.
	out := struct{ io.Writer }{report}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.WaitDelay = 5 * time.Second // for processes that a test left running
	err := cmd.Run()
	// The output of a crash may end within a line.
	fmt.Fprintln(report)
	switch {
	case ctx.Err() != nil:
		return -1, fmt.Errorf("killed after %v", r.Limit)
	case cmd.ProcessState == nil:
		return -1, err
	case !cmd.ProcessState.Exited():
		return -1, errors.New(cmd.ProcessState.String())
	case errors.Is(err, exec.ErrWaitDelay):
		return -1, errors.New("exited, but left processes running")
	}
	return cmd.ProcessState.ExitCode(), nil
}
