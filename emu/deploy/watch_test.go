package deploy

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Most returns the greatest number at any time, without the watching testbed.
func TestWatch(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(root string) []*Owned // that are left, to be removed
		want int
	}{
		{"none", func(string) []*Owned { return nil }, 0},
		{"one from then on", func(root string) []*Owned { return []*Owned{create(t, root, "a", KindRun)} }, 1},
		{"one in between", func(root string) []*Owned { remove1(t, create(t, root, "a", KindRun)); return nil }, 1},
		{"three one after another", func(root string) []*Owned {
			for i := range 3 {
				remove1(t, create(t, root, fmt.Sprint("a", i), KindRun))
			}
			return nil
		}, 1},
		{"three at once and one later", func(root string) []*Owned {
			three := []*Owned{create(t, root, "a", KindRun), create(t, root, "b", KindUp), create(t, root, "c", KindRun)}
			for _, o := range three {
				remove1(t, o)
			}
			return []*Owned{create(t, root, "d", KindRun)}
		}, 3},
		{"the same name again", func(root string) []*Owned {
			remove1(t, create(t, root, "a", KindRun))
			return []*Owned{create(t, root, "a", KindRun), create(t, root, "b", KindRun)}
		}, 2},
		{"files and names of no testbed", func(root string) []*Owned {
			for _, name := range []string{".hidden", "with space"} {
				if err := os.Mkdir(filepath.Join(root, name), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(filepath.Join(root, "file"), nil, 0o644); err != nil {
				t.Fatal(err)
			}
			return nil
		}, 0},
	} {
		for before := range 2 {
			t.Run(fmt.Sprintf("%s, and %d all the time", tt.name, before), func(t *testing.T) {
				root := t.TempDir()
				defer remove1(t, create(t, root, "own", KindRun))
				for i := range before {
					defer remove1(t, create(t, root, fmt.Sprint("before", i), KindUp))
				}
				drop(t, create(t, root, "stale", KindRun))
				w, err := NewWatch(t.Context(), root, "own")
				if err != nil {
					t.Fatal(err)
				}
				for _, o := range tt.do(root) {
					defer remove1(t, o)
				}
				for range 2 { // a second look changes nothing
					if n, incomplete, err := w.Most(t.Context()); n != tt.want+before || incomplete != nil || err != nil {
						t.Errorf("Most() = %d, %v, %v; want %d", n, incomplete, err, tt.want+before)
					}
				}
				if err := errors.Join(w.Close(), w.Close()); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func remove1(t *testing.T, o *Owned) {
	t.Helper()
	if err := o.Remove(t.Context(), reaper{}); err != nil {
		t.Error(err)
	}
}

// Without events, Most counts the testbeds that are up at the start and at the end, and returns the reason.
func TestWatchWithoutEvents(t *testing.T) {
	root := t.TempDir()
	defer remove1(t, create(t, root, "a", KindRun))
	w, err := NewWatch(t.Context(), root, "own")
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	var lost [syscall.SizeofInotifyEvent]byte
	binary.NativeEndian.PutUint32(lost[4:], syscall.IN_Q_OVERFLOW)
	w.events(lost[:])
	n, incomplete, err := w.Most(t.Context())
	if n != 1 || err != nil || incomplete == nil || !strings.Contains(incomplete.Error(), "queue of events was full") {
		t.Errorf("Most() = %d, %v, %v; want 1 and that the queue was full", n, incomplete, err)
	}
}
