package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"testbed/results/safefile"
)

// checkOutput refuses an output file that a verb cannot write, before it reads anything. verb names
// it in errors, as in "trace convert".
func checkOutput(verb, path string, force bool) error {
	switch {
	case path == "":
		return usageError{fmt.Errorf("%s: no output: give -o FILE, or -o - for standard output", verb)}
	case path == stdio || force:
		return nil
	}
	if _, err := os.Lstat(path); err == nil {
		return hinted{fmt.Errorf("%s: %s exists", verb, path), "use --force to replace it"}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", verb, err)
	}
	return nil
}

// writeOutput writes a file or standard output, all of it or nothing. what is the content, in errors.
func (a *app) writeOutput(what, path string, write func(io.Writer) error) error {
	if path != stdio {
		return safefile.Write(path, write)
	}
	var b bytes.Buffer
	if err := write(&b); err != nil {
		return err
	}
	if _, err := a.stdout.Write(b.Bytes()); err != nil {
		return fmt.Errorf("write %s: %w", what, err)
	}
	return nil
}
