package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"testbed/emu/deploy"
	"testbed/topo"
)

const (
	// guardVerb is the hidden verb of the guard of a fault.
	guardVerb = "guard-fault"
	// guardSlack is the time after the end of a fault in which the command must undo it: after that,
	// as when the command is stopped, the guard does.
	guardSlack = 2 * time.Second
	// guardWait bounds each wait of a command for its guard.
	guardWait = 5 * time.Second
	// upPoll is the interval at which a waiting command checks that its testbed is still up.
	upPoll = 100 * time.Millisecond
)

// repair is what the guard of a fault needs to undo it if the command is killed.
type repair struct {
	Fault   string
	Created time.Time // of the testbed, since another may get its name
	Lasts   time.Duration
	Undo    string
	Links   []topo.LinkID
}

// guard starts the guard of a fault: a process with a session of its own, which waits for release or
// for the end of this process.
func (a *app) guard(testbed string, r repair) (release func(), err error) {
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c := exec.Command("/proc/self/exe", "--state-dir", a.state, guardVerb, testbed)
	c.Args[0], c.Stdin, c.Stderr, c.SysProcAttr = os.Args[0], read, os.Stderr, &syscall.SysProcAttr{Setsid: true}
	err = errors.Join(c.Start(), read.Close())
	say := json.NewEncoder(write)
	if err == nil {
		err = errors.Join(write.SetWriteDeadline(time.Now().Add(guardWait)), say.Encode(r))
	}
	release = func() {
		// The fault is undone: a guard that was killed, or is stopped, is no error any more.
		_ = errors.Join(write.SetWriteDeadline(time.Now().Add(guardWait)), say.Encode(true), write.Close())
		if c.Process != nil {
			late := time.AfterFunc(guardWait, func() { _ = c.Process.Kill() })
			_ = c.Wait()
			late.Stop()
		}
	}
	if err != nil {
		release()
		return nil, fmt.Errorf("start the process that undoes the fault if this one is killed: %w", err)
	}
	return release, nil
}

func (a *app) guardCmd() *cobra.Command {
	return &cobra.Command{
		Use: guardVerb + " TESTBED", Hidden: true, Args: exactly(1),
		Short: "Undo a fault if the command that waits for its end is killed",
		RunE: func(cmd *cobra.Command, args []string) error {
			// A signal for all processes of a user ends the command, which undoes its fault.
			return a.watchFault(context.WithoutCancel(cmd.Context()), args[0])
		},
	}
}

// watchFault is the guard of a fault.
func (a *app) watchFault(ctx context.Context, testbed string) (err error) {
	if err := a.needRoot(guardVerb, changesLinks); err != nil {
		return err
	}
	var r repair
	in := json.NewDecoder(a.stdin)
	if err := in.Decode(&r); err != nil {
		return fmt.Errorf("%s: what to undo: %w (testbed fault starts this command)", guardVerb, err)
	}
	ended, end := context.WithCancel(ctx)
	defer end()
	var released atomic.Bool
	go func() {
		var done bool
		released.Store(in.Decode(&done) == nil)
		end()
	}()
	e, err := a.find(ctx, given(testbed))
	switch {
	case errors.Is(err, deploy.ErrNotFound), err == nil && !e.State.Created.Equal(r.Created):
		return nil
	case err != nil:
		return err
	}
	b, err := a.breakable(e)
	if err != nil {
		return err
	}
	if !b.wait(ended, r.Lasts+guardSlack) || released.Load() {
		return nil
	}
	err = errors.Join(b.change(ctx, r.Undo, r.Links, 0), b.close())
	if err != nil && a.removed(ctx, e) {
		return nil
	}
	said := "undone"
	if err != nil {
		said = fmt.Sprintf("not undone on all links: see testbed inspect, and undo it with testbed fault %s", r.Undo)
	}
	fmt.Fprintf(a.stderr, "note: fault %s: its command was killed or stopped: %s\n", r.Fault, said)
	return err
}
