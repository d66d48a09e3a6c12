package safefile

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// Hold makes the caller the only holder of a directory until the file that it returns is closed, or the process ends.
// It does not wait for another holder.
func Hold(dir string) (*os.File, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close() // nothing was written
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = errors.New("another process is writing it: wait for its end")
		}
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return f, nil
}
