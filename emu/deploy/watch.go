package deploy

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"path/filepath"
	"syscall"
)

// Watch counts the testbeds that are up at the same time as another. It misses none,
// however briefly it was up: the kernel queues the creation and the removal of every
// directory under the root (inotify(7)), and Most reads that queue. Nothing runs in between.
type Watch struct {
	root, id string
	fd       int
	up       map[string]bool
	most     int
	problem  error // why events may be missing
}

// NewWatch begins to count the testbeds under root, except the one named id. The caller
// must call Close.
func NewWatch(ctx context.Context, root, id string) (*Watch, error) {
	w := &Watch{root: root, id: id, up: map[string]bool{}}
	var err error
	if w.fd, err = syscall.InotifyInit1(syscall.IN_CLOEXEC | syscall.IN_NONBLOCK); err == nil {
		_, err = syscall.InotifyAddWatch(w.fd, root, syscall.IN_CREATE|syscall.IN_MOVED_TO|syscall.IN_DELETE|syscall.IN_MOVED_FROM|syscall.IN_ONLYDIR)
	}
	w.problem = err
	return w, w.list(ctx) // after the watch began: a testbed created in between is in both
}

// list adds the testbeds that are up.
func (w *Watch) list(ctx context.Context) error {
	entries, err := List(ctx, w.root)
	if err != nil {
		return errors.Join(err, w.Close())
	}
	for _, e := range entries {
		if e.Dir != "" && e.State.ID != w.id && !e.Stale() {
			w.up[filepath.Base(e.Dir)] = true
		}
	}
	w.most = max(w.most, len(w.up))
	return nil
}

// Most returns the greatest number of other testbeds that were up at once since NewWatch. One
// whose process was killed counts until it is removed. incomplete is the reason, if any, why
// testbeds may be missing that were neither up when the count began nor at a call of Most.
func (w *Watch) Most(ctx context.Context) (most int, incomplete, err error) {
	b := make([]byte, 64<<10)
	for w.fd >= 0 {
		n, err := syscall.Read(w.fd, b)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || n == 0 {
			if err != nil && !errors.Is(err, syscall.EAGAIN) && w.problem == nil {
				w.problem = err
			}
			break
		}
		w.events(b[:n])
	}
	if err := w.list(ctx); err != nil {
		return 0, nil, err
	}
	if w.problem != nil {
		incomplete = fmt.Errorf("watch %s for other testbeds: %w (inotify; see fs.inotify in sysctl(8))", w.root, w.problem)
	}
	return w.most, incomplete, nil
}

// events reads the events that the kernel has queued.
func (w *Watch) events(b []byte) {
	for len(b) >= syscall.SizeofInotifyEvent {
		mask, size := binary.NativeEndian.Uint32(b[4:]), int(binary.NativeEndian.Uint32(b[12:]))
		end := syscall.SizeofInotifyEvent + size
		if end > len(b) {
			break // the kernel queues whole events
		}
		name := string(bytes.TrimRight(b[syscall.SizeofInotifyEvent:end], "\x00"))
		b = b[end:]
		switch {
		case mask&syscall.IN_Q_OVERFLOW != 0:
			w.problem = errors.New("the queue of events was full")
		case mask&syscall.IN_ISDIR == 0 || name == w.id || !validID(name):
		case mask&(syscall.IN_CREATE|syscall.IN_MOVED_TO) != 0:
			w.up[name] = true
			w.most = max(w.most, len(w.up))
		default:
			delete(w.up, name)
		}
	}
}

// Close ends the count. A second call does nothing.
func (w *Watch) Close() error {
	if w.fd < 0 {
		return nil
	}
	err := syscall.Close(w.fd)
	w.fd = -1
	return err
}
