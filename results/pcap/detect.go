package pcap

import (
	"errors"
	"io"

	"testbed/topo/magic"
)

// Detect returns what the file at path is by its content, after decompression if it is
// compressed in a form that Open reads.
func Detect(path string) (kind magic.Kind, err error) {
	p, err := OpenPlain(path)
	if err != nil {
		return magic.Unknown, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	head := make([]byte, magic.Len)
	n, err := io.ReadFull(p, head)
	if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return magic.Of(head[:n]), err
}
