package magic

import (
	"bufio"
	"bytes"
	"cmp"
	"io"
	"unicode"
	"unicode/utf8"
)

// NotTextError is the error of a file that should be text in UTF-8.
type NotTextError struct {
	Kind    Kind
	Command string // a remedy that is known better than that of the kind
}

func (e *NotTextError) Error() string {
	remedy := cmp.Or(e.Command, e.Kind.Remedy(), "expected text in UTF-8")
	return "it is " + e.Kind.String() + ": " + remedy
}

// peeked is the number of first bytes of a text that are judged.
const peeked = 4096

// byteOrderMark may begin a text in UTF-8 and is ignored.
const byteOrderMark = "\ufeff"

// Plain returns a text without its byte order mark. The error is a *NotTextError, or nil.
func Plain(data []byte) ([]byte, error) {
	if err := check(data[:min(len(data), peeked)]); err != nil {
		return nil, err
	}
	return bytes.TrimPrefix(data, []byte(byteOrderMark)), nil
}

// Text is Plain for a stream. The reader returns errors of reading r.
func Text(r io.Reader) (*bufio.Reader, error) {
	b := bufio.NewReaderSize(r, peeked)
	head, _ := b.Peek(peeked) // the next read returns the error again
	if err := check(head); err != nil {
		return nil, err
	}
	if bytes.HasPrefix(head, []byte(byteOrderMark)) {
		_, err := b.Discard(len(byteOrderMark))
		return b, err
	}
	return b, nil
}

// check returns a *NotTextError for the beginning of a file that is no text. A few wrong bytes are
// left to the readers, which report their places.
func check(head []byte) error {
	k := Of(head)
	switch {
	case k != Unknown:
	case wide(head):
		k = UTF16
	case binaryData(head):
		k = Binary
	default:
		return nil
	}
	return &NotTextError{Kind: k}
}

// wide reports whether head is text in UTF-16 without a byte order mark that does not begin in
// ASCII: many of the upper bytes are 0, as of blanks and digits, and none of the lower ones.
func wide(head []byte) bool {
	pairs := len(head) / 2
	for _, upper := range []int{0, 1} {
		zeros, wrong := 0, 0
		for i := range pairs {
			low := head[2*i+1-upper]
			switch {
			case head[2*i+upper] == 0 && low < ' ' && !bytes.ContainsRune([]byte("\t\r\n"), rune(low)):
				wrong++
			case head[2*i+upper] == 0:
				zeros++
			}
		}
		if wrong == 0 && zeros >= 4 && zeros > pairs/8 {
			return true
		}
	}
	return false
}

// binaryData reports whether more than three in ten bytes of head are control characters or no UTF-8.
func binaryData(head []byte) bool {
	wrong := 0
	for rest := head; len(rest) > 0; {
		c, size := utf8.DecodeRune(rest)
		if c == utf8.RuneError && size == 1 || c < ' ' && !unicode.IsSpace(c) {
			wrong++
		}
		rest = rest[size:]
	}
	return 10*wrong > 3*len(head)
}
