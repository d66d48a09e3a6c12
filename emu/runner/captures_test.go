package runner

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"testbed/emu/kernel"
	"testbed/emu/kernel/netnstest"
	"testbed/results/pcap"
	"testbed/topo/units"
)

// Captures are compressed unless they are to be kept or dropped; a report on a run that dropped
// them has the figures of the run.
func TestCapturesAreKeptOrDropped(t *testing.T) {
	t.Parallel()
	netnstest.Require(t)
	s := loadText(t, strings.Replace(twoRacks, "[%s]", "[fair]", 1), acrossRacks)
	suffixes := map[Captures]string{"": pcap.CompressedSuffix, CompressCaptures: pcap.CompressedSuffix, KeepCaptures: pcap.Suffix, DropCaptures: ""}
	predicted := map[string]float64{pcap.CompressedSuffix: compressedPacket, pcap.Suffix: blockOverhead + keptHeaders}
	for mode, want := range suffixes {
		o := options(t)
		o.Captures = mode
		out, err := Execute(t.Context(), s, o)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(repeatDir(out.Dir, "fair", 0), capturesDir)
		list, err := os.ReadDir(dir)
		if want == "" {
			if !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s: %d captures, %v", mode, len(list), err)
			}
			sameReport(t, out.Dir)
			continue
		}
		if err != nil || len(list) != 10 {
			t.Errorf("%q: %d captures, %v", mode, len(list), err)
		}
		if each := bytesPerPacket(t, dir); math.Abs(each/predicted[want]-1) > 0.3 {
			t.Errorf("%q: %.1f bytes a packet, expected about the %v of the prediction of disk space", mode, each, predicted[want])
		}
		for _, e := range list {
			if !strings.HasSuffix(e.Name(), want) {
				t.Errorf("%q: %s, expected the suffix %s", mode, e.Name(), want)
			}
		}
		if _, err := Report(t.Context(), out.Dir, ReportOptions{}); err != nil {
			t.Errorf("%q: %v", mode, err)
		}
	}
}

// bytesPerPacket returns the size of the captures in a directory, for each packet in them.
func bytesPerPacket(t *testing.T, dir string) float64 {
	t.Helper()
	list, err := pcap.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	bytes, packets := int64(0), 0
	for _, file := range list {
		info, err := os.Stat(file.Path)
		if err != nil {
			t.Fatal(err)
		}
		bytes += info.Size()
		r, err := pcap.Open(file.Path)
		if err != nil {
			t.Fatal(err)
		}
		for {
			if _, err = r.Next(); err != nil {
				break
			}
			packets++
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
	return float64(bytes) / float64(packets)
}

// On a full disk plain captures stay as they are, with a warning.
func TestFullDiskKeepsPlainCaptures(t *testing.T) {
	netnstest.Require(t)
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	}()
	captures := filepath.Join(dir, capturesDir)
	if err := os.Mkdir(captures, 0o755); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(captures, "h0-00"+pcap.Suffix)
	content := make([]byte, 700<<10)
	for i := range content { // that does not compress
		content[i] = byte(i * i >> 7 * 0x9e3779b1 >> 13)
	}
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "fill"), make([]byte, 320<<10), 0o644); err != nil {
		t.Fatal(err)
	}
	var warned string
	storeCaptures(t.Context(), dir, Options{Warn: func(text string) { warned = text }})
	if !strings.Contains(warned, "no space left on device") {
		t.Errorf("warning %q", warned)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != string(content) {
		t.Errorf("the plain capture is not what it was: %d bytes, %v", len(got), err)
	}
	if list, err := os.ReadDir(captures); err != nil || len(list) != 1 {
		t.Errorf("%d other files next to it, %v", len(list)-1, err)
	}
}

// An interrupt leaves plain captures without a word, for what reads captures reads these.
func TestInterruptKeepsPlainCaptures(t *testing.T) {
	dir := t.TempDir()
	captures := filepath.Join(dir, capturesDir)
	if err := os.Mkdir(captures, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(captures, "h0-00"+pcap.Suffix), []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	storeCaptures(ctx, dir, Options{Warn: func(text string) { t.Error(text) }})
	if list, err := pcap.List(captures); err != nil || len(list) != 1 || !strings.HasSuffix(list[0].Path, pcap.Suffix) {
		t.Errorf("captures %v, %v", list, err)
	}
}

// A run that needs more disk space than is free is refused before anything is made.
func TestTooLittleDiskSpace(t *testing.T) {
	s := loadText(t, strings.Replace(twoRacks, "[%s]", "[fair]", 1), acrossRacks)
	out := filepath.Join(t.TempDir(), "runs")
	o := Options{Out: out, StateRoot: filepath.Join(t.TempDir(), "state"), Captures: KeepCaptures}
	f, err := Predict(t.Context(), s, o)
	if err != nil || len(f.Lack) > 0 || f.Disk.Free <= 0 {
		t.Fatalf("%v, lacks %q, disk %+v", err, f.Lack, f.Disk)
	}
	if d := f.Disk; d.Left <= int64(tablesOfRepeat) || d.Peak <= d.Left || d.Captures != KeepCaptures {
		t.Errorf("disk %+v: expected more than the tables after the run, and more during it", d)
	}
	compressed, err := Predict(t.Context(), s, Options{Out: out})
	if err != nil || compressed.Disk.Left >= f.Disk.Left || compressed.Disk.Captures != CompressCaptures {
		t.Errorf("compressed: %v, %+v, expected less than %d bytes", err, compressed.Disk, f.Disk.Left)
	}
	for _, free := range []int64{f.Disk.Peak, f.Disk.Peak - 1} {
		o.tamper.free = func(string) (units.Bytes, error) { return units.Bytes(free), nil }
		again, err := Predict(t.Context(), s, o)
		if err != nil || (len(again.Lack) > 0) != (free < f.Disk.Peak) {
			t.Errorf("%d bytes free: lacks %q, %v", free, again.Lack, err)
		}
	}
	_, err = Execute(t.Context(), s, o)
	var lack *kernel.LackError
	if !errors.As(err, &lack) || !strings.Contains(err.Error(), "disk space in "+out) || !strings.Contains(err.Error(), "--captures compress") {
		t.Errorf("Execute() = %v, expected that disk space is missing", err)
	}
	if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the run made %s: %v", out, err)
	}
}
