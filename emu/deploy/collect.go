package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"testbed/results/safefile"
)

// Reaper removes the objects that a record names.
type Reaper interface {
	// Reap ends the processes of a testbed, and removes its namespaces with their pins, and its
	// cgroup. A missing one is not an error. It returns the processes that it ended.
	Reap(ctx context.Context, s Scope) ([]Process, error)
}

// Scope is what contains the processes of a testbed: network namespaces and, because a process can
// leave them, a cgroup.
type Scope struct {
	Pins   string   // the directory in which the namespaces are pinned
	Names  []string // of the namespaces
	Cgroup string   // its directory, or "" if the machine has none that can be written
}

// Entry is a record that was found under a root.
type Entry struct {
	State State
	Dir   string
	// Live reports whether a process that is not ending holds the lock: Holder.
	Live   bool
	Holder Holder
	// Problem is the reason why the state could not be read. State then has the ID only: the
	// process was killed before it wrote the state, or is about to write it.
	Problem error
}

// PinDir is the directory in which the testbed's namespaces are pinned.
func (e Entry) PinDir() string { return filepath.Join(e.Dir, pinDir) }

// Scope returns what contains the testbed's processes.
func (e Entry) Scope() Scope { return Scope{e.PinDir(), e.State.Namespaces, e.State.Cgroup} }

// Stale reports whether the testbed is left over: it has no process, and was not brought up to stay.
func (e Entry) Stale() bool {
	return !e.Live && (e.State.Kind != KindUp || !e.State.Ready)
}

// List returns all records under root, in order of ID. If root does not exist there are none.
func List(ctx context.Context, root string) ([]Entry, error) {
	unlock, err := lockRoot(ctx, root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	defer unlock()
	dirs, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("list testbeds: %w", err)
	}
	var entries []Entry
	for _, d := range dirs {
		if !d.IsDir() || !validID(d.Name()) {
			continue
		}
		e, lock, err := inspect(root, d.Name(), false)
		if errors.Is(err, ErrNotFound) {
			continue // its owner removed it just now
		} else if err != nil {
			return nil, err
		}
		if lock != nil {
			err = lock.Close()
		}
		if err != nil {
			return nil, fmt.Errorf("list testbeds: %w", err)
		}
		entries = append(entries, e)
	}
	return entries, nil
}

// Find returns the record with the given ID. The error wraps ErrNotFound.
func Find(ctx context.Context, root, id string) (Entry, error) {
	entries, err := List(ctx, root)
	if err != nil {
		return Entry{}, err
	}
	for _, e := range entries {
		if e.State.ID == id {
			return e, nil
		}
	}
	return Entry{}, notFound(root, id)
}

func notFound(root, id string) error {
	return fmt.Errorf("testbed %q in %s: %w: \"testbed ps\" lists all testbeds", id, root, ErrNotFound)
}

// inspect reads a record while the root is locked. It returns the record's lock if it could take it.
func inspect(root, id string, write bool) (e Entry, lock *os.File, err error) {
	e = Entry{State: State{ID: id}, Dir: filepath.Join(root, id)}
	path := filepath.Join(e.Dir, lockFile)
	flags := os.O_RDONLY
	if write {
		flags = os.O_RDWR | os.O_CREATE // killed before it made its lock: equivalent to a free one
	}
	lock, err = openLock(path, flags)
	info, statErr := os.Stat(path)
	locked := false
	switch {
	case errors.Is(err, fs.ErrNotExist) && !write:
		lock = nil
	case errors.Is(err, fs.ErrNotExist):
		return e, nil, notFound(root, id)
	case errors.Is(err, fs.ErrPermission) && !write && statErr == nil:
		e.Holder, locked = findHolder(info) // of another user
	case err != nil:
		return e, nil, fmt.Errorf("inspect testbed %q: %w", id, err)
	default:
		free, err := tryLock(lock, syscall.LOCK_EX)
		if err == nil && !free {
			// A process that ends may free the lock before its holder is looked up.
			if e.Holder = holderOf(lock); e.Holder.PID == 0 {
				free, err = tryLock(lock, syscall.LOCK_EX)
			}
		}
		if err != nil || !free {
			locked = true
			err = errors.Join(err, lock.Close())
			lock = nil
			if err != nil {
				return e, nil, fmt.Errorf("inspect testbed %q: %w", id, err)
			}
		}
	}
	e.Live = locked && (e.Holder.PID == 0 || !isDying(e.Holder.PID))
	var s State
	data, err := safefile.Read(filepath.Join(e.Dir, stateFile))
	if err == nil {
		err = json.Unmarshal(data, &s)
	}
	if err == nil && s.Version != stateVersion {
		err = fmt.Errorf("version %d: this program reads version %d: remove the testbed with the program that made it", s.Version, stateVersion)
	} else if err == nil && s.ID != id {
		err = fmt.Errorf("it names testbed %q", s.ID)
	}
	if err != nil {
		e.Problem = fmt.Errorf("record of testbed %q: %w", id, err)
		return e, lock, nil
	}
	e.State = s
	return e, lock, nil
}

// Removed is a testbed that Collect removed.
type Removed struct {
	ID         string
	Kind       Kind
	Namespaces int
	// Why is the reason why it was stale, such as "its process 123 is gone".
	Why string
	// Ended lists the processes that were in it.
	Ended []Process
}

// Collect removes every stale testbed under root; if all is true, also those that were brought up to
// stay. It continues after an error and joins all errors.
func Collect(ctx context.Context, root string, r Reaper, all bool) ([]Removed, error) {
	entries, err := List(ctx, root)
	if err != nil {
		return nil, err
	}
	var removed []Removed
	var errs []error
	for _, e := range entries {
		if e.Live || !e.Stale() && !all {
			continue
		}
		if ctx.Err() != nil {
			return removed, errors.Join(append(errs, context.Cause(ctx))...)
		}
		e, lock, err := claim(ctx, root, e.State.ID)
		if errors.Is(err, ErrNotFound) || errors.Is(err, ErrLive) {
			continue // another collector was faster, or a new run took the name
		}
		if err == nil && !e.Stale() && !all {
			err = lock.Close() // a testbed that was brought up has replaced it
			if err == nil {
				continue
			}
		}
		var ended []Process
		if err == nil {
			ended, err = remove(ctx, e, lock, r)
		}
		if err != nil {
			errs = append(errs, err)
			continue
		}
		removed = append(removed, Removed{ID: e.State.ID, Kind: e.State.Kind, Namespaces: len(e.State.Namespaces), Why: e.why(), Ended: append([]Process{}, ended...)})
	}
	return removed, errors.Join(errs...)
}

func (e Entry) why() string {
	switch {
	case e.Problem != nil:
		return "killed before it had a record"
	case e.State.Kind == KindUp && e.State.Ready:
		return "asked for"
	}
	return fmt.Sprintf("its process %d is gone", e.State.PID)
}

// Remove removes one testbed, stale or not, and returns the processes that it ended. The error wraps
// ErrNotFound if there is none, and ErrLive if a process has its lock.
func Remove(ctx context.Context, root, id string, r Reaper) ([]Process, error) {
	if !validID(id) {
		return nil, notFound(root, id)
	}
	e, lock, err := claim(ctx, root, id)
	if err != nil {
		return nil, err
	}
	return remove(ctx, e, lock, r)
}

// claim locks a record for its removal. Records are locked only while the root is locked, so a lock
// that is taken belongs to an owner, not to a process that inspects the record. It waits for an owner
// that was killed.
func claim(ctx context.Context, root, id string) (Entry, *os.File, error) {
	for start := time.Now(); ; {
		e, lock, err := claimNow(ctx, root, id)
		if err != nil || lock != nil {
			return e, lock, err
		}
		if e.Live {
			return e, nil, fmt.Errorf("remove testbed %q: %w", id, e.live())
		}
		if time.Since(start) > dyingWait {
			return e, nil, fmt.Errorf("remove testbed %q: %s was killed and has not ended after %v: repeat the command later",
				id, e.Holder, dyingWait)
		}
		if err := sleep(ctx, dyingPoll); err != nil {
			return e, nil, fmt.Errorf("remove testbed %q: %s was killed and has not ended: %w", id, e.Holder, err)
		}
	}
}

// claimNow returns no lock if another process has it.
func claimNow(ctx context.Context, root, id string) (Entry, *os.File, error) {
	unlock, err := lockRoot(ctx, root)
	if errors.Is(err, fs.ErrNotExist) {
		return Entry{}, nil, notFound(root, id)
	} else if err != nil {
		return Entry{}, nil, err
	}
	defer unlock()
	return inspect(root, id, true)
}

// live is the error for the removal of a testbed whose lock is held.
func (e Entry) live() error {
	if e.Problem == nil && e.Holder.PID == e.State.PID {
		return fmt.Errorf("%w by its process, %s: stop it first", ErrLive, e.Holder)
	}
	return fmt.Errorf("%w by %s: wait for it, or end it", ErrLive, e.Holder)
}

// Remove removes the testbed that this process owns, with its lock. A second call does nothing.
func (o *Owned) Remove(ctx context.Context, r Reaper) error {
	o.mu.Lock()
	lock := o.lock
	o.lock = nil
	e := Entry{State: o.state, Dir: o.dir}
	o.mu.Unlock()
	if lock == nil {
		return nil
	}
	held.Delete(lock) // remove refers to it
	_, err := remove(ctx, e, lock, r)
	return err
}

// remove removes everything that a record names, then the record. It holds the record's lock and
// closes it. The state is removed just before the lock, so that the next removal continues one that
// was killed.
func remove(ctx context.Context, e Entry, lock *os.File, r Reaper) (ended []Process, err error) {
	defer func() {
		if cerr := lock.Close(); cerr != nil {
			err = errors.Join(err, cerr)
		}
		if err != nil {
			err = fmt.Errorf("remove testbed %q: %w", e.State.ID, err)
		}
	}()
	if e.Problem != nil && !errors.Is(e.Problem, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w: its namespaces are pinned in %s: unmount and remove them by hand", e.Problem, e.PinDir())
	}
	if ended, err = r.Reap(ctx, e.Scope()); err != nil {
		return ended, err
	}
	if err := release(ctx, e.State, r); err != nil {
		return ended, err
	}
	var errs []error
	for _, dir := range e.State.Directories {
		errs = append(errs, removeMarked(dir, e.State.ID))
	}
	if err := errors.Join(errs...); err != nil {
		return ended, err
	}
	// The root is locked so that no process takes the name, or locks the rest of the record,
	// before the directory is gone.
	unlock, err := lockRoot(ctx, filepath.Dir(e.Dir))
	if err != nil {
		return ended, err
	}
	defer unlock()
	for _, name := range []string{pinDir, stateFile + ".new", stateFile, lockFile, "."} {
		path := filepath.Join(e.Dir, name)
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return ended, err
		}
	}
	return ended, nil
}

// removeMarked removes a directory that AddDirectory made.
func removeMarked(dir, id string) error {
	info, err := os.Lstat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	mark, err := safefile.Read(filepath.Join(dir, marker))
	switch {
	case !info.IsDir() || !filepath.IsAbs(dir):
		err = errors.New("not a directory")
	case errors.Is(err, fs.ErrNotExist) && os.Remove(dir) == nil:
		return nil // killed between making the directory and marking it: it was empty
	case err == nil && strings.TrimSpace(string(mark)) != id:
		err = fmt.Errorf("it belongs to testbed %q", strings.TrimSpace(string(mark)))
	case err == nil:
		return removeAround(dir)
	}
	return fmt.Errorf("directory %s is not marked as this testbed's, so it was not removed: %w: move it away and repeat the command", dir, err)
}

// removeAround removes the mark last, so that the rest of a killed removal is still marked.
func removeAround(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == marker {
			continue
		}
		if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	if err := os.Remove(filepath.Join(dir, marker)); err != nil {
		return err
	}
	return os.Remove(dir)
}

// lockRoot serialises access to the locks of records. It is held for moments only. A user who cannot
// lock the root, because it is another user's, can only inspect it, and does so without the lock.
func lockRoot(ctx context.Context, root string) (unlock func(), err error) {
	f, err := openLock(filepath.Join(root, rootLock), os.O_RDWR|os.O_CREATE)
	if errors.Is(err, fs.ErrPermission) {
		return func() {}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("lock the directory of testbeds: %w", err)
	}
	err = Lock(ctx, f, syscall.LOCK_EX, lockWait)
	if errors.Is(err, ErrLocked) {
		err = fmt.Errorf("%w: end that process and repeat the command", err)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock the directory of testbeds: %w", err), f.Close())
	}
	return func() { _ = f.Close() }, nil // closing releases; there is nothing to flush
}
