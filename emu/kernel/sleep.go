package kernel

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Sleep waits for d, or until ctx is done and then returns its cause. On an idle machine it is
// accurate to about 0.1 ms. time.Sleep is not: while a program is otherwise idle, the Go runtime
// waits in whole milliseconds, so that any shorter wait takes 1 ms.
func Sleep(ctx context.Context, d time.Duration) error {
	if err := context.Cause(ctx); err != nil || d <= 0 {
		return err
	}
	fail := func(err error) error { return fmt.Errorf("wait for %v on a timer: %w", d, err) }
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC)
	if err != nil {
		return fail(err)
	}
	f := os.NewFile(uintptr(fd), "timer") // non-blocking: the runtime's poller waits for it
	defer f.Close()                       // no data to lose
	if err := unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}, nil); err != nil {
		return fail(err)
	}
	stop := context.AfterFunc(ctx, func() {
		_ = f.SetReadDeadline(time.Unix(1, 0)) // fails only on a closed file, which has no reader
	})
	defer stop()
	var expirations [8]byte
	if _, err = f.Read(expirations[:]); err == nil {
		return nil
	}
	if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fail(err)
}
