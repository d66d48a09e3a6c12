// Package files writes a file so that whoever reads it sees all of it or what was
// there before.
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

// Write makes or replaces a file with what write writes, all at once. A file that is
// there is kept as it was where write fails. Links are followed; what is there and no
// regular file, such as a device, is refused.
func Write(path string, write func(io.Writer) error) error {
	mode := fs.FileMode(0o644)
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	switch info, err := os.Stat(path); {
	case err == nil && info.IsDir():
		return fmt.Errorf("write %s: it is a directory: want the name of a file", path)
	case err == nil && !info.Mode().IsRegular():
		return fmt.Errorf("write %s: it is no regular file (%v)", path, info.Mode().Type())
	case err == nil:
		mode = info.Mode().Perm()
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("write %s: %w", path, err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("write %s: there is no directory %s", path, filepath.Dir(path))
		}
		return fmt.Errorf("write %s: %w", path, err)
	}
	w := bufio.NewWriterSize(f, 1<<16)
	err = write(w)
	if err == nil {
		if err = errors.Join(w.Flush(), f.Chmod(mode)); err != nil {
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}
	if e := f.Close(); e != nil && err == nil {
		err = fmt.Errorf("write %s: %w", path, e)
	}
	if err == nil {
		if err = os.Rename(f.Name(), path); err == nil {
			return nil
		}
		err = fmt.Errorf("write %s: %w", path, err)
	}
	return errors.Join(err, os.Remove(f.Name()))
}
