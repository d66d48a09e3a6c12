// Package files writes files so that whoever reads one sees all of it or what was
// there before.
//
// It does not know what is in them.
package files

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// Staged is a file that is written and not yet in its place.
type Staged struct{ path, temp string }

// Stage writes what is to become the file path beside it. A file that is there stays
// as it is until Commit. Links are followed; what is there and no regular file, such
// as a device, is refused.
func Stage(path string, write func(io.Writer) error) (*Staged, error) {
	asked := path
	fail := func(err error) (*Staged, error) { return nil, fmt.Errorf("write %s: %w", asked, err) }
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	mode := fs.FileMode(0o644)
	switch info, err := os.Stat(path); {
	case err == nil && info.IsDir():
		return fail(errors.New("it is a directory: want the name of a file"))
	case err == nil && !info.Mode().IsRegular():
		return fail(fmt.Errorf("it is no regular file (%v)", info.Mode().Type()))
	case err == nil:
		mode = info.Mode().Perm()
	case !errors.Is(err, fs.ErrNotExist):
		return fail(err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if errors.Is(err, fs.ErrNotExist) {
		return fail(noDirectory(filepath.Dir(path)))
	} else if err != nil {
		return fail(err)
	}
	w := bufio.NewWriterSize(f, 1<<16)
	err = write(w)
	if err == nil {
		err = errors.Join(w.Flush(), f.Chmod(mode))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fail(errors.Join(err, os.Remove(f.Name())))
	}
	return &Staged{path, f.Name()}, nil
}

// noDirectory is the path of a directory that is not there, as an error.
type noDirectory string

func (e noDirectory) Error() string { return "there is no directory " + string(e) }
func (e noDirectory) Unwrap() error { return fs.ErrNotExist }

// Commit puts the file into its place.
func (s *Staged) Commit() error {
	if err := os.Rename(s.temp, s.path); err != nil {
		return fmt.Errorf("write %s: %w", s.path, err)
	}
	return nil
}

// Discard removes what was staged. After Commit there is nothing to remove, which is
// no error.
func (s *Staged) Discard() error {
	if err := os.Remove(s.temp); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Write makes or replaces a file with what write writes, all at once; see Stage.
func Write(path string, write func(io.Writer) error) error {
	s, err := Stage(path, write)
	if err != nil {
		return err
	}
	return errors.Join(s.Commit(), s.Discard())
}
