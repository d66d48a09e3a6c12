package pcap

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"testbed/results/safefile"
)

// Suffixes of the captures of a run, after the name of the host or switch.
const (
	Suffix           = ".pcapng"
	CompressedSuffix = ".pcapng.zst" // see Compress
)

// Suffixes returns the suffixes of files that Open reads, longer ones first.
func Suffixes() []string {
	return []string{CompressedSuffix, ".pcap.zst", ".pcapng.gz", ".pcap.gz", Suffix, ".pcap"}
}

// HasSuffix returns the suffix of a capture's name; ok is false if it has none.
func HasSuffix(name string) (suffix string, ok bool) {
	for _, s := range Suffixes() {
		if strings.HasSuffix(name, s) {
			return s, true
		}
	}
	return "", false
}

// File is the capture of a host or switch in a directory.
type File struct{ Name, Path string }

// Find returns the path of the capture of a host or switch in a directory: the compressed file
// if only that exists, else the plain file, which may not exist.
func Find(dir, name string) string {
	plain, compressed := filepath.Join(dir, name+Suffix), filepath.Join(dir, name+CompressedSuffix)
	if _, err := os.Lstat(plain); errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(compressed); err == nil {
			return compressed
		}
	}
	return plain
}

// List returns the captures in a directory, sorted by name. If both the compressed and the
// plain file of a capture exist, because the program was killed before it removed the plain
// one, it returns the plain file.
func List(dir string) ([]File, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	var out []File
	for _, suffix := range []string{Suffix, CompressedSuffix} {
		for _, e := range entries {
			if name, ok := strings.CutSuffix(e.Name(), suffix); ok && !e.IsDir() && !found[name] {
				found[name] = true
				out = append(out, File{name, filepath.Join(dir, e.Name())})
			}
		}
	}
	slices.SortFunc(out, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// CompressFile replaces a plain capture by its compressed form and returns the path of the
// compressed file. It removes the plain file only after it has synced and read back the
// compressed one: the plain file remains if CompressFile fails, is cancelled through ctx, or
// is killed.
func CompressFile(ctx context.Context, path string) (compressed string, err error) {
	name, ok := strings.CutSuffix(path, Suffix)
	if !ok {
		return "", fmt.Errorf("compress %s: its name must end in %s", path, Suffix)
	}
	compressed = name + CompressedSuffix
	from, err := safefile.Open(path)
	if err != nil {
		return "", fmt.Errorf("compress capture: %w", err)
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	before := newHash()
	err = safefile.WriteSynced(compressed, func(w io.Writer) error {
		return Compress(w, io.TeeReader(withContext{ctx, from}, before))
	})
	if err != nil {
		return "", fmt.Errorf("compress capture %s: %w", path, err)
	}
	if err := readBack(ctx, compressed, before); err != nil {
		return "", errors.Join(fmt.Errorf("compress capture %s: %w", path, err), os.Remove(compressed))
	}
	if err := os.Remove(path); err != nil {
		return "", fmt.Errorf("compress capture: %w", err)
	}
	return compressed, nil
}

// Relabel changes the description of a capture that Writer wrote and that is not compressed. All else stays as it is.
func Relabel(path string, change func(*Meta)) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("describe capture %s: %w", path, err)
		}
	}()
	r, err := Open(path)
	if err != nil {
		return err
	}
	m, ok := r.Meta()
	if err := r.Close(); err != nil {
		return err
	}
	from, err := safefile.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	var head [8]byte // type and size of the first block
	if _, err := io.ReadFull(from, head[:]); err != nil {
		return err
	}
	if !ok || binary.LittleEndian.Uint32(head[:]) != sectionHeader {
		return errors.New("it has no description, or is compressed")
	}
	if _, err := from.Seek(int64(binary.LittleEndian.Uint32(head[4:])), io.SeekStart); err != nil {
		return err
	}
	change(&m)
	return safefile.Write(path, func(to io.Writer) error {
		w := &Writer{w: to}
		if err := w.section(m); err != nil {
			return err
		}
		if err := w.flush(); err != nil {
			return err
		}
		_, err := io.Copy(to, from)
		return err
	})
}

// readBack compares a compressed capture with the hash of the plain one.
func readBack(ctx context.Context, compressed string, before hash.Hash) (err error) {
	r, err := OpenPlain(compressed)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	after := newHash()
	if _, err := io.Copy(after, withContext{ctx, r}); err != nil {
		return err
	}
	if !bytes.Equal(before.Sum(nil), after.Sum(nil)) {
		return fmt.Errorf("%s differs from the plain file when it is read back; the plain file is kept", compressed)
	}
	return nil
}

// withContext is a reader that fails once its context is done.
type withContext struct {
	ctx context.Context
	io.Reader
}

func (r withContext) Read(b []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.Reader.Read(b)
}

// Plain is the content of a capture file, uncompressed.
type Plain struct {
	io.Reader
	file   *os.File
	packed *compressed // nil if the file is not compressed
}

// OpenPlain opens a capture and decompresses it if necessary. It does not check the
// content. The caller must call Close.
func OpenPlain(path string) (*Plain, error) {
	f, err := safefile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open capture: %w", err)
	}
	in := bufio.NewReaderSize(f, readBuffer)
	head, err := in.Peek(4)
	if err != nil && err != io.EOF {
		return nil, errors.Join(fmt.Errorf("open capture %s: %w", path, err), f.Close())
	}
	p := &Plain{Reader: in, file: f}
	if p.packed, err = decompress(head, in); err != nil {
		return nil, errors.Join(fmt.Errorf("open capture %s: %w", path, err), f.Close())
	}
	if p.packed != nil {
		p.Reader = p.packed
	}
	return p, nil
}

// Close closes the file.
func (p *Plain) Close() error {
	if p.packed != nil {
		p.packed.close()
	}
	return p.file.Close()
}

// newHash returns the hash by which plain and compressed captures are compared.
func newHash() hash.Hash { return sha256.New() }
