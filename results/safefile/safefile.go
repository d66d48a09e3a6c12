// Package safefile opens and writes the files of users, runs and testbeds.
//
// A file that is read must be a regular file: opening a named pipe, a terminal or
// another device can block or have side effects. A file that is written is complete or
// absent, is never written through a symbolic link, honours the umask, and belongs to
// the user who called sudo.
//
// The package does not know what is in the files.
package safefile

import (
	"bufio"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// Permissions of new files and directories, before the umask.
const (
	filePerm = 0o644
	dirPerm  = 0o755
)

// Staged is a file that has been written but is not yet in its place.
type Staged struct {
	path string
	file *os.File // without a name, until Commit; nil if it has one
	temp string   // its temporary name
}

// unfinished are the temporary files of this process. Sealed is set when the process
// is about to end.
var unfinished = struct {
	sync.Mutex
	temps  map[string]bool
	sealed bool
}{temps: map[string]bool{}}

var errSealed = errors.New("the program is ending")

// temporary begins the names of files that are not in their place yet.
const temporary = ".new-"

// IsTemporary reports whether a file of this name is one that is being written, or that a killed process
// left unfinished.
func IsTemporary(name string) bool { return strings.HasPrefix(name, temporary) }

// Seal removes the temporary files of this process and prevents any file from being
// staged or committed afterwards. A commit that has begun is complete when it returns.
// It is for the end of a process whose goroutines may still be writing.
func Seal() {
	unfinished.Lock()
	defer unfinished.Unlock()
	unfinished.sealed = true
	for temp := range unfinished.temps {
		_ = os.Remove(temp) // the process ends; there is no one to report to
	}
}

// Stage writes the future content of the file path into a file without a name in the same
// directory, of which nothing is left if the process is killed. File systems without such files
// get a temporary name. An existing file stays as it is until Commit, which gives the new file its
// permissions and owner. A symbolic link and anything else that is not a regular file are
// refused. The caller must Commit or Discard it.
func Stage(path string, write func(io.Writer) error) (*Staged, error) {
	return stage(path, write, false)
}

// stage is Stage; with sync the temporary file is on the disk when it returns.
func stage(path string, write func(io.Writer) error, sync bool) (_ *Staged, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	before, err := replaceable(path)
	if err != nil {
		return nil, err
	}
	f, err := createTemp(filepath.Dir(path))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, noDirectory(filepath.Dir(path))
	} else if err != nil {
		return nil, err
	}
	s := &Staged{path: path, temp: f.Name()}
	if !IsTemporary(filepath.Base(s.temp)) {
		s.file, s.temp = f, ""
	}
	w := bufio.NewWriterSize(f, 1<<16)
	if err = write(w); err == nil {
		err = errors.Join(w.Flush(), own(f, before))
	}
	if err == nil && sync {
		err = f.Sync()
	}
	if s.file == nil {
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return nil, errors.Join(err, s.Discard())
	}
	return s, nil
}

// replaceable returns the existing file at path, nil if there is none.
func replaceable(path string) (fs.FileInfo, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, err
	case info.IsDir():
		return nil, errors.New("it is a directory: expected the name of a file")
	case info.Mode().Type() == fs.ModeSymlink:
		if to, err := os.Stat(path); err == nil && !to.Mode().IsRegular() { // /dev/stdout
			return nil, notRegular(to.Mode())
		}
		return nil, errLink
	case !info.Mode().IsRegular():
		return nil, notRegular(info.Mode())
	}
	return info, nil
}

// createTemp creates a file without a name, or with a temporary one where the file system has no
// others, or /proc, through which they get their names, is missing.
func createTemp(dir string) (*os.File, error) {
	unfinished.Lock()
	defer unfinished.Unlock()
	if unfinished.sealed {
		return nil, errSealed
	}
	fd, err := unix.Open(dir, unix.O_TMPFILE|unix.O_WRONLY|unix.O_CLOEXEC, filePerm)
	if err == nil {
		f := os.NewFile(uintptr(fd), dir)
		if _, err := os.Lstat(descriptor(f)); err == nil {
			return f, nil
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
	f, err := OpenFile(filepath.Join(dir, temporary+rand.Text()), os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err == nil {
		unfinished.temps[f.Name()] = true
	}
	return f, err
}

// descriptor returns a path of an open file that works without its name.
func descriptor(f *os.File) string { return fmt.Sprintf("/proc/self/fd/%d", f.Fd()) }

// own gives f the permissions and owner of the file that it replaces, or, if it replaces
// none, the user who called sudo as owner.
func own(f *os.File, before fs.FileInfo) error {
	if before == nil {
		return give(f.Chown)
	}
	if st, ok := before.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		if err := f.Chown(int(st.Uid), int(st.Gid)); err != nil {
			return err
		}
	}
	return f.Chmod(before.Mode().Perm())
}

// give calls chown with the user and group that called sudo, if any.
func give(chown func(uid, gid int) error) error {
	uid, err1 := strconv.Atoi(os.Getenv("SUDO_UID"))
	gid, err2 := strconv.Atoi(os.Getenv("SUDO_GID"))
	if err1 != nil || err2 != nil || os.Geteuid() != 0 {
		return nil
	}
	return chown(uid, gid)
}

// noDirectory is the error of a missing directory, whose path it is.
type noDirectory string

func (e noDirectory) Error() string { return "there is no directory " + string(e) }
func (e noDirectory) Unwrap() error { return fs.ErrNotExist }

// Commit moves the files into their places.
func Commit(staged ...*Staged) error {
	unfinished.Lock()
	defer unfinished.Unlock()
	for _, s := range staged {
		if unfinished.sealed {
			return fmt.Errorf("write %s: %w", s.path, errSealed)
		}
		if err := s.commit(); err != nil {
			return fmt.Errorf("write %s: %w", s.path, err)
		}
	}
	return nil
}

func (s *Staged) commit() error {
	if s.file != nil {
		// A link cannot replace a file, so the name is temporary until the rename.
		s.temp = filepath.Join(filepath.Dir(s.path), temporary+rand.Text())
		err := unix.Linkat(unix.AT_FDCWD, descriptor(s.file), unix.AT_FDCWD, s.temp, unix.AT_SYMLINK_FOLLOW)
		if err != nil {
			return err
		}
		unfinished.temps[s.temp] = true
		err = s.file.Close()
		s.file = nil
		if err != nil {
			return err
		}
	}
	if err := os.Rename(s.temp, s.path); err != nil {
		return err
	}
	delete(unfinished.temps, s.temp)
	return nil
}

// Discard removes the temporary file. After Commit it does nothing.
func (s *Staged) Discard() error {
	unfinished.Lock()
	defer unfinished.Unlock()
	if s.file != nil {
		f := s.file
		s.file = nil
		return f.Close()
	}
	if !unfinished.temps[s.temp] {
		return nil
	}
	delete(unfinished.temps, s.temp)
	if err := os.Remove(s.temp); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Write creates or replaces the file at path with the output of write, atomically; see Stage.
func Write(path string, write func(io.Writer) error) error {
	s, err := Stage(path, write)
	if err != nil {
		return err
	}
	return errors.Join(Commit(s), s.Discard())
}

// WriteSynced is Write of a file that replaces another copy of its content: the file and its
// name are on the disk when it returns without an error.
func WriteSynced(path string, write func(io.Writer) error) error {
	s, err := stage(path, write, true)
	if err != nil {
		return err
	}
	if err := errors.Join(Commit(s), s.Discard()); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// WriteData creates or replaces the file at path with data, atomically; see Stage.
func WriteData(path string, data []byte) error {
	return Write(path, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// Create creates a file that is written during a run, such as a log. The path must be free;
// the error for an existing file wraps fs.ErrExist.
func Create(path string) (*os.File, error) {
	f, err := OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return nil, err
	}
	if err := give(f.Chown); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Symlink makes a symbolic link, or replaces one, as one step. It replaces any other file as well.
func Symlink(target, path string) error {
	temp := filepath.Join(filepath.Dir(path), temporary+rand.Text())
	if err := os.Symlink(target, temp); err != nil {
		return err
	}
	err := give(func(uid, gid int) error { return os.Lchown(temp, uid, gid) })
	if err == nil {
		err = os.Rename(temp, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp))
	}
	return nil
}

// Mkdir creates a directory; the error for an existing path wraps fs.ErrExist.
func Mkdir(path string) error {
	if err := os.Mkdir(path, dirPerm); err != nil {
		return err
	}
	return give(func(uid, gid int) error { return os.Lchown(path, uid, gid) })
}

// MkdirAll creates a directory and its missing parents.
func MkdirAll(path string) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil
	}
	if parent := filepath.Dir(path); parent != path {
		if err := MkdirAll(parent); err != nil {
			return err
		}
	}
	err := Mkdir(path)
	if errors.Is(err, fs.ErrExist) { // another process may have created it
		if info, statErr := os.Stat(path); statErr == nil && info.IsDir() {
			return nil
		}
		return &fs.PathError{Op: "mkdir", Path: path, Err: syscall.ENOTDIR}
	}
	return err
}
