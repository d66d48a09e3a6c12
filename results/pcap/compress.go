package pcap

import (
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"testbed/topo/magic"
)

// A compressed capture is a pcapng file in a zstd stream (RFC 8878): one frame with a content
// checksum. Wireshark 4.0 does not read a second frame.

// compressionWindow is the zstd window of compressed captures, bytes. Packets repeat recent
// packets: a window that fits into a processor's cache compresses best and decodes fastest.
const compressionWindow = 128 << 10

// maxWindow is the largest zstd window that is decoded, bytes: that of zstd -19 --long.
const maxWindow = 128 << 20

// Compress writes the compressed form of a capture, which may be truncated or damaged: any
// sequence of bytes is restored.
func Compress(to io.Writer, from io.Reader) error {
	z, err := zstd.NewWriter(to,
		zstd.WithEncoderLevel(zstd.SpeedDefault),
		zstd.WithEncoderConcurrency(1), // captures are compressed side by side
		zstd.WithWindowSize(compressionWindow))
	if err != nil {
		return err
	}
	_, err = io.Copy(z, from)
	return errors.Join(err, z.Close())
}

// compressed is the content of a zstd or gzip stream.
type compressed struct {
	file  *counted
	z     io.Reader
	close func()
	err   error // first error of z, which would continue after a checksum that does not match
}

// decompress returns the content of a stream that is compressed in a form that Open reads;
// nil if head, its beginning, is that of no such stream. The caller must call its close.
func decompress(head []byte, from io.Reader) (*compressed, error) {
	c := &compressed{file: &counted{Reader: from}, close: func() {}}
	switch magic.Of(head) {
	case magic.Gzip:
		c.z = &gunzip{from: c.file}
	case magic.Zstd:
		// One goroutine per file decodes as fast as captures are analysed.
		z, err := zstd.NewReader(c.file, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			return nil, err
		}
		c.z, c.close = z, z.Close
	default:
		return nil, nil
	}
	return c, nil
}

// gunzip is a gzip.Reader that reads the header with the first byte.
type gunzip struct {
	from io.Reader
	z    *gzip.Reader
}

func (g *gunzip) Read(b []byte) (n int, err error) {
	if g.z == nil {
		if g.z, err = gzip.NewReader(g.from); err != nil {
			g.z = nil
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return 0, err
		}
	}
	return g.z.Read(b)
}

func (c *compressed) Read(b []byte) (n int, err error) {
	if c.err == nil {
		n, c.err = c.z.Read(b)
	}
	return n, c.err
}

// reason describes the error of a stream that cannot be decoded.
func (c *compressed) reason() string {
	if errors.Is(c.err, zstd.ErrCRCMismatch) || errors.Is(c.err, gzip.ErrChecksum) {
		return "what it contains does not match its checksum, so any packet may be wrong"
	}
	return c.err.Error()
}

// counted counts the bytes read from a file and records the file's read error.
type counted struct {
	io.Reader
	n   int64
	err error // other than io.EOF
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Reader.Read(b)
	c.n += int64(n)
	if err != nil && err != io.EOF {
		c.err = err
	}
	return n, err
}
