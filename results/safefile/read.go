package safefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// ErrNotRegular is wrapped by the error for a path that is not a regular file, and ErrPipe
// by that for a pipe.
var (
	ErrNotRegular = errors.New("must be a regular file")
	ErrPipe       = errors.New("it is a pipe")
)

// errLink is the reason why a symbolic link is not written.
var errLink = errors.New("it is a symbolic link: name the file that it leads to, or remove the link")

// notRegular returns an error that names the kind of a file that is not regular.
func notRegular(mode fs.FileMode) error {
	kind := "special file"
	switch {
	case mode.IsDir():
		kind = "directory"
	case mode&fs.ModeNamedPipe != 0:
		return fmt.Errorf("%w: %w", ErrPipe, ErrNotRegular)
	case mode&fs.ModeSocket != 0:
		kind = "socket"
	case mode&fs.ModeDevice != 0:
		kind = "device"
	}
	return fmt.Errorf("it is a %s: %w", kind, ErrNotRegular)
}

// Open opens the regular file at path for reading. It never waits for another process, as
// opening a named pipe would. The error is a *fs.PathError; it wraps ErrNotRegular if path
// is not a regular file.
func Open(path string) (*os.File, error) { return OpenFile(path, os.O_RDONLY) }

// OpenFile is Open with the flags of os.OpenFile. It does not follow a symbolic link
// at path when the flags allow writing.
func OpenFile(path string, flags int) (*os.File, error) { return openFile(path, flags, filePerm) }

// OpenPrivate is OpenFile; a file that it creates can be opened by its owner alone.
func OpenPrivate(path string, flags int) (*os.File, error) { return openFile(path, flags, 0o600) }

func openFile(path string, flags int, perm fs.FileMode) (*os.File, error) {
	fail := func(err error) (*os.File, error) { return nil, &fs.PathError{Op: "open", Path: path, Err: err} }
	flags |= syscall.O_NONBLOCK | syscall.O_NOCTTY
	if flags&(os.O_WRONLY|os.O_RDWR) != 0 {
		flags |= syscall.O_NOFOLLOW
	}
	f, err := os.OpenFile(path, flags, perm)
	switch {
	case errors.Is(err, syscall.ENXIO): // a socket, or a pipe without a reader
		if info, statErr := os.Stat(path); statErr == nil && !info.Mode().IsRegular() {
			return fail(notRegular(info.Mode()))
		}
		return nil, err
	case errors.Is(err, syscall.EISDIR):
		return fail(notRegular(fs.ModeDir))
	case errors.Is(err, syscall.ELOOP) && flags&syscall.O_NOFOLLOW != 0:
		return fail(errLink)
	case err != nil:
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = notRegular(info.Mode())
	}
	if err == nil {
		err = clearNonblock(f)
	}
	if err != nil {
		return fail(errors.Join(err, f.Close()))
	}
	return f, nil
}

// clearNonblock removes O_NONBLOCK, which could affect file systems in user space and
// programs that inherit the file.
func clearNonblock(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	if err := raw.Control(func(fd uintptr) { set = syscall.SetNonblock(int(fd), false) }); err != nil {
		return err
	}
	return set
}

// Read returns the content of the regular file at path; see Open.
func Read(path string) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(f)
	return data, errors.Join(err, f.Close())
}

// Reason returns the reason of a *fs.PathError, without the operation and the path, and any
// other error unchanged.
func Reason(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}
