package deploy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"testbed/results/safefile"
	"testbed/topo"
)

// DefaultRoot is the directory with the records of all testbeds of the machine. RootEnv is the
// environment variable that replaces it.
const (
	DefaultRoot = "/run/testbed"
	RootEnv     = "TESTBED_STATE_DIR"
)

// Root returns the value of RootEnv, or DefaultRoot.
func Root() string {
	if dir := os.Getenv(RootEnv); dir != "" {
		return dir
	}
	return DefaultRoot
}

// Kind is the intended lifetime of a testbed.
type Kind string

// The testbed of a run ends with its process. One that was brought up stays after its process has
// ended, until it is removed.
const (
	KindRun Kind = "run"
	KindUp  Kind = "up"
)

// State is the record of one testbed.
type State struct {
	Version int            `json:"version"`
	ID      string         `json:"id"`
	Kind    Kind           `json:"kind"`
	Name    string         `json:"name"` // of the scenario or experiment
	PID     int            `json:"pid"`
	User    string         `json:"user"`
	Created time.Time      `json:"created"`
	Booted  time.Duration  `json:"booted_ns"` // from the machine's boot to Created
	Shape   topo.LeafSpine `json:"shape"`     // builds the fabric, so that hosts can be found by name
	// Namespaces lists all namespaces that the testbed has or is about to have. Each is pinned
	// at the file of its name in Owned.PinDir.
	Namespaces []string `json:"namespaces"`
	// Cgroup is the directory of the cgroup of the testbed's processes, which the first command in
	// it makes; "" if the machine has none.
	Cgroup string `json:"cgroup,omitempty"`
	// Directories lists directories outside the testbed's own, made by Owned.AddDirectory.
	Directories []string `json:"directories,omitempty"`
	// Mounts lists the mount points of file systems on loop devices (Owned.AddDisks).
	Mounts []string `json:"mounts,omitempty"`
	// Loops lists the files of loop devices, and Cgroups the directories of cgroups, that the
	// testbed has or is about to have (Owned.AddLoop, Owned.AddCgroup).
	Loops   []string `json:"loops,omitempty"`
	Cgroups []string `json:"cgroups,omitempty"`
	// Ready reports whether the testbed is complete.
	Ready bool `json:"ready"`
}

const stateVersion = 1

// Age returns the time since the testbed's record was made. It is measured by the machine's uptime,
// which steps of the wall clock do not change, and is never negative.
func (s State) Age() time.Duration {
	if now := uptime(); s.Booted > 0 && now >= s.Booted {
		return now - s.Booted
	}
	return max(0, time.Since(s.Created)) // a record of an older version, or of before the last boot
}

// uptime returns the time since the machine's boot, suspend included, or 0 if the kernel does not
// report it.
func uptime() time.Duration {
	b, err := os.ReadFile("/proc/uptime")
	first, _, _ := strings.Cut(string(b), " ")
	seconds, parseErr := strconv.ParseFloat(first, 64)
	if err != nil || parseErr != nil {
		return 0
	}
	return time.Duration(seconds * float64(time.Second))
}

// Files of a testbed's directory.
const (
	rootLock  = ".lock" // in the root
	lockFile  = "lock"
	stateFile = "state.json"
	pinDir    = "ns"
)

// pinPerm are the permissions of the directory of pins: others can look up a pin by its name.
const pinPerm = 0o711

// marker is the file that marks a directory of AddDirectory. It contains the ID of its testbed.
const marker = ".testbed"

// Errors for errors.Is.
var (
	ErrExists   = errors.New("a testbed of this name exists")
	ErrNotFound = errors.New("no such testbed")
	ErrLive     = errors.New("its lock is held")
)

// maxID is the longest ID, bytes.
const maxID = 100

// validID reports whether id is the name of a directory of letters, digits and, after the first, ".", "_" and "-".
func validID(id string) bool {
	for i, c := range []byte(id) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case i > 0 && strings.IndexByte("._-", c) >= 0:
		default:
			return false
		}
	}
	return id != "" && len(id) <= maxID
}

// Owned is a testbed whose lock this process holds until Release or the end of the process, even if
// nothing refers to it any more.
type Owned struct {
	id    string
	dir   string
	mu    sync.Mutex // guards the fields below
	lock  *os.File
	state State
}

// Create makes the record of a new testbed under root and locks it. It fills in PID, User, Created
// and Version. The error wraps ErrExists if the ID is taken.
func Create(ctx context.Context, root string, s State) (o *Owned, err error) {
	if !validID(s.ID) {
		return nil, fmt.Errorf("testbed name %q: must be letters, digits, dots, dashes and underscores, beginning with a letter or digit", s.ID)
	}
	if s.Kind != KindRun && s.Kind != KindUp {
		return nil, fmt.Errorf("testbed %q: kind %q: must be %q or %q", s.ID, s.Kind, KindRun, KindUp)
	}
	if _, err := s.Shape.Build(); err != nil { // it could not be read back
		return nil, fmt.Errorf("testbed %q: shape: %w", s.ID, err)
	}
	for _, name := range s.Namespaces {
		if !validID(name) {
			return nil, fmt.Errorf("testbed %q: invalid namespace name %q", s.ID, name)
		}
	}
	s.Version, s.PID, s.Created, s.Booted, s.User = stateVersion, os.Getpid(), time.Now().UTC(), uptime(), userName()
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, fmt.Errorf("create the directory of testbeds: %w (needs root, or set %s to a directory of yours)", err, RootEnv)
	}
	unlock, err := lockRoot(ctx, root)
	if err != nil {
		return nil, err
	}
	defer unlock()
	dir := filepath.Join(root, s.ID)
	if err := os.Mkdir(dir, 0o755); errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("create testbed %q: %w: see it with \"testbed ps\", remove it with \"testbed down %s\" or, if it is left over, \"testbed gc\"", s.ID, ErrExists, s.ID)
	} else if err != nil {
		return nil, fmt.Errorf("create testbed %q: %w", s.ID, err)
	}
	o = &Owned{id: s.ID, dir: dir}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
			if o.lock != nil {
				held.Delete(o.lock)
				err = errors.Join(err, o.lock.Close())
			}
			o = nil
		}
	}()
	if o.lock, err = openLock(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR); err != nil {
		return o, fmt.Errorf("create testbed %q: %w", s.ID, err)
	}
	if free, err := tryLock(o.lock, syscall.LOCK_EX); err != nil || !free {
		return o, fmt.Errorf("create testbed %q: lock %s: %w", s.ID, o.lock.Name(), errors.Join(err, ErrLive))
	}
	held.Store(o.lock, s.ID)
	// Commands that enter the testbed lock this directory: no other user may open it.
	if err := os.Mkdir(o.PinDir(), pinPerm); err != nil {
		return o, fmt.Errorf("create testbed %q: %w", s.ID, err)
	}
	return o, o.update(func(state *State) { *state = s })
}

func userName() string {
	if name := os.Getenv("SUDO_USER"); name != "" {
		return name
	}
	if u, err := user.Current(); err == nil {
		return u.Username
	}
	return strconv.Itoa(os.Getuid())
}

// Dir returns the testbed's own directory.
func (o *Owned) Dir() string { return o.dir }

// PinDir is the directory in which the testbed's namespaces are pinned.
func (o *Owned) PinDir() string { return filepath.Join(o.dir, pinDir) }

// State returns a copy of the record.
func (o *Owned) State() State {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.state
	s.Namespaces, s.Directories = slices.Clone(s.Namespaces), slices.Clone(s.Directories)
	return s
}

// SetReady records that the testbed is complete. From then on a testbed of KindUp outlives its
// process.
func (o *Owned) SetReady() error {
	return o.update(func(s *State) { s.Ready = true })
}

// AddDirectory makes a directory outside the testbed's own, such as one for the files of emulated
// disks. It is removed with the testbed. It must not exist, and its parent must.
func (o *Owned) AddDirectory(path string) error {
	path, err := filepath.Abs(path)
	if err != nil {
		return fmt.Errorf("directory of testbed %q: %w", o.id, err)
	}
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("directory %s of testbed %q: %w", path, o.id, fs.ErrExist)
	}
	if err := o.update(func(s *State) { s.Directories = append(s.Directories, path) }); err != nil {
		return err
	}
	if err := os.Mkdir(path, 0o755); err != nil {
		return fmt.Errorf("directory of testbed %q: %w", o.id, err)
	}
	if err := writeNew(filepath.Join(path, marker), []byte(o.id+"\n")); err != nil {
		return fmt.Errorf("directory of testbed %q: %w", o.id, err)
	}
	return nil
}

// update changes the record and replaces the state file atomically: a reader, or the next owner after
// a crash, sees the old record or the new one.
func (o *Owned) update(change func(*State)) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.state
	s.Directories = slices.Clone(s.Directories)
	change(&s)
	data, err := json.MarshalIndent(s, "", "\t")
	if err != nil {
		return fmt.Errorf("record of testbed %q: %w", o.id, err)
	}
	path := filepath.Join(o.dir, stateFile)
	if err := os.Remove(path + ".new"); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a killed process
		return fmt.Errorf("record of testbed %q: %w", o.id, err)
	}
	if err := writeNew(path+".new", append(data, '\n')); err != nil {
		return fmt.Errorf("record of testbed %q: %w", o.id, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("record of testbed %q: %w", o.id, err)
	}
	o.state = s
	return nil
}

// writeNew writes a file that must not exist. It belongs to root, because testbed gc removes what the
// record names.
func writeNew(path string, data []byte) error {
	f, err := safefile.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	return errors.Join(err, f.Close())
}

// held has the locks of this process's testbeds. The garbage collector closes a file that nothing
// refers to, which releases its lock: another process would then take the testbed for left over and
// remove it while it is in use.
var held sync.Map // *os.File to the id

// Release releases the lock and keeps the testbed. A second call does nothing.
func (o *Owned) Release() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lock == nil {
		return nil
	}
	held.Delete(o.lock)
	err := o.lock.Close()
	o.lock = nil
	if err != nil {
		return fmt.Errorf("release testbed %q: %w", o.id, err)
	}
	return nil
}
