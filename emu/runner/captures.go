package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sync/errgroup"

	"testbed/results/pcap"
	"testbed/results/rundir"
)

// capturesDir is the directory of a repeat's captures.
const capturesDir = rundir.CapturesDir

// Captures is what happens to the captures of a repeat after its figures were computed.
type Captures string

// The values of Captures. The zero value stands for CompressCaptures.
const (
	KeepCaptures     Captures = "keep"     // as plain pcapng
	CompressCaptures Captures = "compress" // see pcap.Compress
	DropCaptures     Captures = "drop"     // the run cannot be reported on again
)

// AllCaptures are the values of Captures.
var AllCaptures = []Captures{CompressCaptures, KeepCaptures, DropCaptures}

// ParseCaptures returns the value of a name.
func ParseCaptures(s string) (Captures, error) {
	for _, c := range AllCaptures {
		if string(c) == s {
			return c, nil
		}
	}
	return "", fmt.Errorf("%q: must be %s, %s or %s", s, CompressCaptures, KeepCaptures, DropCaptures)
}

// storeCaptures compresses or removes the captures of a repeat that is judged. No repeat runs
// meanwhile. Where it is interrupted or fails, plain captures stay, which serves as well: it
// warns of a failure and returns no error.
func storeCaptures(ctx context.Context, dir string, o Options) {
	var err error
	captures := filepath.Join(dir, capturesDir)
	switch o.Captures {
	case KeepCaptures:
		return
	case DropCaptures:
		err = os.RemoveAll(captures)
	default:
		err = compressAll(ctx, captures)
	}
	if err != nil && ctx.Err() == nil && o.Warn != nil {
		o.Warn(fmt.Sprintf("captures stay uncompressed in %s: %v", captures, err))
	}
}

// compressAll compresses the captures in a directory.
func compressAll(ctx context.Context, dir string) error {
	list, err := pcap.List(dir)
	if err != nil {
		return err
	}
	var g errgroup.Group
	g.SetLimit(runtime.NumCPU())
	errs := make([]error, len(list))
	for i, file := range list {
		if !strings.HasSuffix(file.Path, pcap.Suffix) {
			continue
		}
		g.Go(func() error {
			if ctx.Err() == nil {
				_, errs[i] = pcap.CompressFile(ctx, file.Path)
			}
			return nil
		})
	}
	_ = g.Wait() // errors are kept in order
	return errors.Join(errs...)
}
