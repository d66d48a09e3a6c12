package pcap

import (
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"
)

// A compressed capture is a pcapng file in a zstd stream (RFC 8878): one frame with a content
// checksum. Wireshark 4.0 does not read a second frame.

// compressionWindow is the zstd window of compressed captures, bytes. Packets repeat recent
// packets: a window that fits into a processor's cache compresses best and decodes fastest.
const compressionWindow = 128 << 10

// maxWindow is the largest zstd window that is decoded, bytes: that of zstd -19 --long.
const maxWindow = 128 << 20

// zstdMagic are the first bytes of a zstd stream, little endian.
const zstdMagic = 0xFD2FB528

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

// compressed is the content of a zstd stream.
type compressed struct {
	file *counted
	z    *zstd.Decoder
	err  error // first error of z, which would continue after a checksum that does not match
}

// decompress returns the content of a zstd stream. The caller must close its z.
func decompress(from io.Reader) (*compressed, error) {
	file := &counted{Reader: from}
	// One goroutine per file decodes as fast as captures are analysed.
	z, err := zstd.NewReader(file, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
	if err != nil {
		return nil, err
	}
	return &compressed{file: file, z: z}, nil
}

func (c *compressed) Read(b []byte) (n int, err error) {
	if c.err == nil {
		n, c.err = c.z.Read(b)
	}
	return n, c.err
}

// reason describes the error of a stream that cannot be decoded.
func (c *compressed) reason() string {
	if errors.Is(c.err, zstd.ErrCRCMismatch) {
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
