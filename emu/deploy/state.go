package deploy

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"testbed/topo"
)

// DefaultRoot holds the directories of all testbeds of the machine, and RootEnv
// names the environment variable that replaces it.
const (
	DefaultRoot = "/run/testbed"
	RootEnv     = "TESTBED_STATE_DIR"
)

// Root is the value of RootEnv, or DefaultRoot.
func Root() string {
	if dir := os.Getenv(RootEnv); dir != "" {
		return dir
	}
	return DefaultRoot
}

// Kind tells how long a testbed is meant to last.
type Kind string

// A run's testbed ends with its process. One that was brought up stays when
// its process is done, until it is asked to go.
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
	Shape   topo.LeafSpine `json:"shape"` // builds the fabric, so that hosts can be found by name
	// Namespaces are the names of all namespaces the testbed has or is about to
	// have, each pinned at the file of its name in Owned.PinDir.
	Namespaces []string `json:"namespaces"`
	// Directories outside the testbed's own, made by Owned.AddDirectory.
	Directories []string `json:"directories,omitempty"`
	// Mounts are where the file systems of loop devices are mounted (Owned.AddDisks).
	Mounts []string `json:"mounts,omitempty"`
	// Loops are the files of loop devices, and Cgroups the directories of cgroups,
	// that the testbed has or is about to have (Owned.AddLoop, Owned.AddCgroup).
	Loops   []string `json:"loops,omitempty"`
	Cgroups []string `json:"cgroups,omitempty"`
	// Ready tells that the testbed is complete.
	Ready bool `json:"ready"`
}

const stateVersion = 1

// Files of a testbed's directory.
const (
	lockFile  = "lock"
	stateFile = "state.json"
	pinDir    = "ns"
)

// marker is the file by which a directory of AddDirectory is known as ours; it
// holds the ID of its testbed.
const marker = ".testbed"

// Errors that callers branch on.
var (
	ErrExists   = errors.New("a testbed of this name exists")
	ErrNotFound = errors.New("no such testbed")
	ErrLive     = errors.New("its process is running")
)

var validID = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// Owned is a testbed whose lock this process holds, until Release or the
// process's end: also one that is no longer referred to.
type Owned struct {
	id    string
	dir   string
	mu    sync.Mutex // guards what follows
	lock  *os.File
	state State
}

// Create makes the record of a new testbed under root and locks it. PID, User,
// Created and Version are filled in. It wraps ErrExists where the ID is taken.
func Create(root string, s State) (o *Owned, err error) {
	if !validID.MatchString(s.ID) {
		return nil, fmt.Errorf("testbed name %q: want letters, digits, dots, dashes and underscores, and a letter or digit first", s.ID)
	}
	if s.Kind != KindRun && s.Kind != KindUp {
		return nil, fmt.Errorf("testbed %q: kind %q: want %q or %q", s.ID, s.Kind, KindRun, KindUp)
	}
	if _, err := s.Shape.Build(); err != nil { // could not be read back
		return nil, fmt.Errorf("testbed %q: shape: %w", s.ID, err)
	}
	for _, name := range s.Namespaces {
		if !validID.MatchString(name) {
			return nil, fmt.Errorf("testbed %q: bad namespace name %q", s.ID, name)
		}
	}
	s.Version, s.PID, s.Created, s.User = stateVersion, os.Getpid(), time.Now().UTC(), userName()
	if err := os.MkdirAll(root, 0o755); err != nil {
		return nil, fmt.Errorf("create the directory of testbeds: %w (needs root, or set %s to a directory of yours)", err, RootEnv)
	}
	unlock, err := lockRoot(root)
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
	if o.lock, err = os.OpenFile(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR, 0o644); err != nil {
		return o, fmt.Errorf("create testbed %q: %w", s.ID, err)
	}
	if free, err := tryLock(o.lock); err != nil || !free {
		return o, fmt.Errorf("create testbed %q: lock %s: %w", s.ID, o.lock.Name(), errors.Join(err, ErrLive))
	}
	held.Store(o.lock, s.ID)
	if err := os.Mkdir(o.PinDir(), 0o755); err != nil {
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

// Dir is the testbed's own directory.
func (o *Owned) Dir() string { return o.dir }

// PinDir is where the testbed's namespaces are pinned.
func (o *Owned) PinDir() string { return filepath.Join(o.dir, pinDir) }

// State is a copy of the record.
func (o *Owned) State() State {
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.state
	s.Namespaces, s.Directories = slices.Clone(s.Namespaces), slices.Clone(s.Directories)
	return s
}

// SetReady records that the testbed is complete. From then on one of KindUp
// outlives its process.
func (o *Owned) SetReady() error {
	return o.update(func(s *State) { s.Ready = true })
}

// AddDirectory makes a directory outside the testbed's own, such as one for the
// files of emulated disks, that is removed with the testbed. It must not exist;
// its parent must.
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
	if err := os.WriteFile(filepath.Join(path, marker), []byte(o.id+"\n"), 0o644); err != nil {
		return fmt.Errorf("directory of testbed %q: %w", o.id, err)
	}
	return nil
}

// update changes the record and replaces the state file as one step: a reader,
// or the next owner after a crash, sees the old record or the new.
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
	if err := os.WriteFile(path+".new", append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("record of testbed %q: %w", o.id, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("record of testbed %q: %w", o.id, err)
	}
	o.state = s
	return nil
}

// held are the locks of this process's testbeds. A file that nothing refers to
// is closed by the garbage collector, and its lock with it: another process
// would take the testbed for left over and remove it while it runs.
var held sync.Map // *os.File to the id

// Release gives up the lock and leaves the testbed as it is. A second call does
// nothing.
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
