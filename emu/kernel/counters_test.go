package kernel

import (
	"bytes"
	"errors"
	"testing"

	"github.com/vishvananda/netlink/nl"
)

func TestAttributes(t *testing.T) {
	message := append(nl.NewRtAttr(3, []byte("odd")).Serialize(), nl.NewRtAttr(7|1<<15, []byte{1, 2, 3, 4}).Serialize()...)
	var kinds []uint16
	var values []string
	err := attributes(message, func(kind uint16, v []byte) error {
		kinds, values = append(kinds, kind), append(values, string(v))
		return nil
	})
	if err != nil || len(kinds) != 2 || kinds[0] != 3 || kinds[1] != 7 || values[0] != "odd" || values[1] != "\x01\x02\x03\x04" {
		t.Errorf("attributes = %v %q, %v", kinds, values, err)
	}
	for _, bad := range [][]byte{{3, 0, 1, 0}, {200, 0, 1, 0}} {
		if err := attributes(bad, func(uint16, []byte) error { return nil }); !errors.Is(err, errShort) {
			t.Errorf("attributes(%v) = %v", bad, err)
		}
	}
	stop := errors.New("stop")
	if err := attributes(message, func(uint16, []byte) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("attributes = %v, want the callback's error", err)
	}
}

// For any input, attributes terminates and returns only values inside the message.
func FuzzAttributes(f *testing.F) {
	f.Add(nl.NewRtAttr(3, []byte("odd")).Serialize())
	f.Add([]byte{4, 0, 1, 0, 5, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		total := 0
		err := attributes(b, func(_ uint16, v []byte) error {
			total += 4 + len(v)
			if !bytes.Contains(b, v) {
				t.Fatal("a value that is not in the message")
			}
			return nil
		})
		if total > len(b) || err != nil && !errors.Is(err, errShort) {
			t.Fatalf("%d bytes of attributes in %d, %v", total, len(b), err)
		}
	})
}
