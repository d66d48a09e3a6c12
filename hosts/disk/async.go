package disk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// async writes to files without a thread that waits: the kernel reports the end of a write on an
// eventfd, which the network poller watches (io_submit(2)). A thread that waits in pwrite keeps its
// place among those that run goroutines (GOMAXPROCS) until the runtime notices, up to 20 ms later.
// If it was the only thread awake, all timers and connections of the program wait as long.
//
// One write may be in progress at a time. Its buffer must stay as it is until then.
type async struct {
	context uintptr // aio_context_t
	eventfd int
	ended   *os.File // over eventfd
}

// The structures of io_submit and io_getevents (linux/aio_abi.h).
type (
	iocb struct {
		_       uint64
		_       [2]uint32 // the kernel's, and flags of pwritev2
		opcode  uint16
		_       int16 // priority
		file    uint32
		buf, n  uint64
		offset  int64
		_       uint64
		flags   uint32
		eventfd uint32
	}
	ioEvent struct {
		data, iocb   uint64
		result, more int64
	}
)

const (
	iocbWrite   = 1 // IOCB_CMD_PWRITE
	iocbEventFD = 1 // IOCB_FLAG_RESFD
)

func newAsync() (*async, error) {
	wrap := func(err error) error {
		return fmt.Errorf("asynchronous writes: %w (raise fs.aio-max-nr of sysctl or permit io_setup, or set disk.throttle: bucket)", err)
	}
	a := new(async)
	if _, _, errno := unix.Syscall(unix.SYS_IO_SETUP, 1, uintptr(unsafe.Pointer(&a.context)), 0); errno != 0 {
		return nil, wrap(errno)
	}
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, errors.Join(wrap(err), a.destroy())
	}
	a.eventfd, a.ended = fd, os.NewFile(uintptr(fd), "eventfd")
	return a, nil
}

func (a *async) destroy() error {
	if _, _, errno := unix.Syscall(unix.SYS_IO_DESTROY, a.context, 0, 0); errno != 0 {
		return fmt.Errorf("asynchronous writes: destroy: %w", errno)
	}
	return nil
}

// Close must not be called during a write.
func (a *async) Close() error { return errors.Join(a.destroy(), a.ended.Close()) }

// asyncFile is a file of which writes are asynchronous, except those that extend it: for these, ext4 makes
// io_submit wait.
type asyncFile struct {
	*os.File
	a *async
}

// WriteAt writes all of p, like os.File.WriteAt.
func (f asyncFile) WriteAt(p []byte, off int64) (n int, err error) {
	for n < len(p) && err == nil {
		var wrote int
		if wrote, err = f.a.write(f.File, p[n:], off+int64(n)); err == nil && wrote == 0 {
			err = io.ErrShortWrite
		}
		n += wrote
	}
	if err != nil {
		return n, &os.PathError{Op: "write", Path: f.Name(), Err: err}
	}
	return n, nil
}

// write writes a part of p, which must not be empty, and returns its size.
func (a *async) write(f *os.File, p []byte, off int64) (int, error) {
	request := &iocb{
		opcode:  iocbWrite,
		file:    uint32(f.Fd()),
		buf:     uint64(uintptr(unsafe.Pointer(&p[0]))),
		n:       uint64(len(p)),
		offset:  off,
		flags:   iocbEventFD,
		eventfd: uint32(a.eventfd),
	}
	_, _, errno := unix.Syscall(unix.SYS_IO_SUBMIT, a.context, 1, uintptr(unsafe.Pointer(&request)))
	runtime.KeepAlive(f)
	if errno != 0 {
		return 0, errno
	}
	var count [8]byte
	if _, err := a.ended.Read(count[:]); err != nil {
		return 0, err
	}
	runtime.KeepAlive(p)
	var e ioEvent
	got, _, errno := unix.Syscall6(unix.SYS_IO_GETEVENTS, a.context, 1, 1, uintptr(unsafe.Pointer(&e)), 0, 0)
	switch {
	case errno != 0:
		return 0, errno
	case got != 1:
		return 0, fmt.Errorf("io_getevents: %d events, expected 1", got)
	case e.result < 0:
		return 0, unix.Errno(-e.result)
	}
	return int(e.result), nil
}
