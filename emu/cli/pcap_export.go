package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"testbed/results/pcap"
	"testbed/results/safefile"
	"testbed/topo/units"
)

// exported is a capture that was written uncompressed.
type exported struct {
	Capture string `json:"capture"`
	File    string `json:"file"`
	Bytes   int64  `json:"bytes"`
}

// exportAll writes captures uncompressed, or nothing if a target exists and l.force is off: one to the file l.export, or into it where it is a
// directory; several into the directory, with the directories of their names.
func (l *looker) exportAll(ctx context.Context, paths []string) error {
	info, err := os.Stat(l.export)
	into := err == nil && info.IsDir() || len(paths) > 1
	names := captureNames(paths)
	var errs []error
	targets, taken := make([]string, len(paths)), map[string]bool{}
	for i, path := range paths {
		if path == stdio {
			return usageError{errors.New("pcap: --export of standard input: name the file of the capture")}
		}
		to := l.export
		if into {
			suffix, _ := pcap.HasSuffix(path)
			suffix, _, _ = strings.Cut(strings.TrimPrefix(suffix, "."), ".")
			to = filepath.Join(l.export, filepath.FromSlash(names[i])+"."+cmp.Or(suffix, "pcapng"))
		}
		_, err := os.Lstat(to)
		switch {
		case taken[to]:
			errs = append(errs, fmt.Errorf("pcap: --export: two captures would be written to %s: export them one by one", to))
		case same(path, to):
			errs = append(errs, fmt.Errorf("pcap: --export %s: it is the capture itself", to))
		case err == nil && !l.force:
			errs = append(errs, fmt.Errorf("pcap: --export: %s exists: choose another path, or replace it with --force", to))
		}
		targets[i], taken[to] = to, true
	}
	if err := errors.Join(errs...); err != nil { // before anything is written
		return usageError{err}
	}
	out := []exported{}
	for i, path := range paths {
		if into {
			if err := safefile.MkdirAll(filepath.Dir(targets[i])); err != nil {
				return err
			}
		}
		n, err := exportOne(ctx, path, targets[i])
		if err != nil {
			return err
		}
		out = append(out, exported{path, targets[i], n})
	}
	return l.print(out, func(w io.Writer) error {
		for _, e := range out {
			if _, err := fmt.Fprintf(w, "%s: %s\n", e.File, units.Compact(float64(e.Bytes), "B")); err != nil {
				return err
			}
		}
		return nil
	})
}

// same reports whether two paths are of one file.
func same(a, b string) bool {
	x, err := os.Stat(a)
	if err != nil {
		return false
	}
	y, err := os.Stat(b)
	return err == nil && os.SameFile(x, y)
}

func exportOne(ctx context.Context, path, to string) (n int64, err error) {
	from, err := pcap.OpenPlain(path)
	if err != nil {
		return 0, withPipeHint(err)
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	err = safefile.Write(to, func(w io.Writer) error {
		buf := make([]byte, 1<<20)
		for {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			got, err := from.Read(buf)
			n += int64(got)
			if _, err := w.Write(buf[:got]); err != nil {
				return err
			}
			if err == io.EOF {
				return nil
			}
			if err != nil {
				return fmt.Errorf("capture %s: %w", path, err)
			}
		}
	})
	return n, err
}
