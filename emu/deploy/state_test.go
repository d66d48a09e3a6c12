package deploy

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/plan"
)

// fakeKernel is a kernel whose namespaces are files in the directory of pins. The files that a killed
// run leaves stand for its namespaces.
type fakeKernel struct{ pins string }

func (f fakeKernel) Do(_ context.Context, op plan.Op) error {
	if ns, ok := op.(plan.Namespace); ok {
		return os.WriteFile(filepath.Join(f.pins, ns.Name), nil, 0o644)
	}
	return nil
}

func (f fakeKernel) Undo(ctx context.Context, op plan.Op) error {
	if ns, ok := op.(plan.Namespace); ok {
		_, err := reaper{}.Reap(ctx, Scope{Pins: f.pins, Names: []string{ns.Name}})
		return err
	}
	return nil
}

type reaper struct{ err error }

func (r reaper) Reap(_ context.Context, s Scope) ([]Process, error) {
	for _, name := range s.Names {
		if err := os.Remove(filepath.Join(s.Pins, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	return []Process{{PID: len(s.Names)}}, r.err
}

func create(t testing.TB, root, id string, kind Kind) *Owned {
	t.Helper()
	o, err := Create(t.Context(), root, State{ID: id, Kind: kind, Shape: small, Name: "test", Namespaces: smallPlan(t).Namespaces()})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

// drop releases the lock as the end of the process does.
func drop(t testing.TB, o *Owned) {
	t.Helper()
	if err := o.Release(); err != nil {
		t.Fatal(err)
	}
}

func ids(t testing.TB, root string) []string {
	t.Helper()
	entries, err := List(t.Context(), root)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, e := range entries {
		ids = append(ids, e.State.ID)
	}
	return ids
}

// left returns the files under root, except the root's lock.
func left(t testing.TB, root string) []string {
	t.Helper()
	dirs, err := os.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range dirs {
		if d.Name() != ".lock" {
			names = append(names, d.Name())
		}
	}
	return names
}

func collect(t testing.TB, root string, all bool) []string {
	t.Helper()
	removed, err := Collect(t.Context(), root, reaper{}, all)
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, r := range removed {
		ids = append(ids, r.ID)
	}
	return ids
}

func TestCreateListRemove(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	if got := ids(t, root); len(got) != 0 {
		t.Fatalf("without a root there are %v", got)
	}
	o := create(t, root, "a", KindRun)
	if _, err := Create(t.Context(), root, State{ID: "a", Kind: KindRun, Shape: small}); !errors.Is(err, ErrExists) {
		t.Errorf("Create of a second \"a\": %v, want ErrExists", err)
	}
	e, err := Find(t.Context(), root, "a")
	if err != nil || !e.Live || e.Stale() || e.State.PID != os.Getpid() || e.State.Ready || e.PinDir() != o.PinDir() {
		t.Errorf("Find = %+v, %v", e, err)
	}
	if err := o.SetReady(); err != nil {
		t.Fatal(err)
	}
	if e, _ = Find(t.Context(), root, "a"); !e.State.Ready || len(e.State.Namespaces) != 6 {
		t.Errorf("after SetReady: %+v", e.State)
	}
	if _, err := Remove(t.Context(), root, "a", reaper{}); !errors.Is(err, ErrLive) {
		t.Errorf("Remove of a live testbed: %v, want ErrLive", err)
	}
	for range 2 {
		if err := o.Remove(t.Context(), reaper{}); err != nil {
			t.Fatal(err)
		}
	}
	if got := left(t, root); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
	if _, err := Remove(t.Context(), root, "a", reaper{}); !errors.Is(err, ErrNotFound) {
		t.Errorf("Remove of nothing: %v, want ErrNotFound", err)
	}
	if _, err := Find(t.Context(), root, "a"); !errors.Is(err, ErrNotFound) {
		t.Errorf("Find of nothing: %v, want ErrNotFound", err)
	}
}

func TestCreateRefusesBadNames(t *testing.T) {
	root := t.TempDir()
	for _, id := range []string{"", ".", "..", ".lock", "a/b", "-a", "a b", strings.Repeat("x", 101)} {
		if _, err := Create(t.Context(), root, State{ID: id, Kind: KindRun, Shape: small}); err == nil {
			t.Errorf("Create(%q) is allowed", id)
		}
		if _, err := Remove(t.Context(), root, id, reaper{}); !errors.Is(err, ErrNotFound) {
			t.Errorf("Remove(%q) = %v, want ErrNotFound", id, err)
		}
	}
	if _, err := Create(t.Context(), root, State{ID: "a", Kind: KindRun, Shape: small, Namespaces: []string{"../x"}}); err == nil {
		t.Error("a namespace called ../x is allowed")
	}
	if _, err := Create(t.Context(), root, State{ID: "a", Kind: KindRun}); err == nil {
		t.Error("a testbed without a shape is allowed")
	}
	if got := left(t, root); len(got) != 0 {
		t.Errorf("left: %v", got)
	}
}

// A record is read back unchanged.
func TestStateRoundTrip(t *testing.T) {
	root := t.TempDir()
	o := create(t, root, "a", KindUp)
	if err := o.AddDirectory(filepath.Join(t.TempDir(), "d")); err != nil {
		t.Fatal(err)
	}
	e, err := Find(t.Context(), root, "a")
	if diff := cmp.Diff(o.State(), e.State); err != nil || diff != "" {
		t.Errorf("Find: %v, state (-recorded +read):\n%s", err, diff)
	}
	drop(t, o)
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestDirectories(t *testing.T) {
	root, data := t.TempDir(), t.TempDir()
	o := create(t, root, "a", KindRun)
	disks := filepath.Join(data, "disks")
	if err := o.AddDirectory(disks); err != nil {
		t.Fatal(err)
	}
	if err := o.AddDirectory(disks); !errors.Is(err, fs.ErrExist) {
		t.Errorf("AddDirectory of what exists: %v", err)
	}
	write(t, filepath.Join(disks, "h0-00"), "block")
	drop(t, o)
	collect(t, root, false)
	if got := left(t, data); len(got) != 0 {
		t.Errorf("left of directories: %v", got)
	}
}

// A name can be taken once, and again after it was freed.
func TestCreateOneName(t *testing.T) {
	root := t.TempDir()
	var wg sync.WaitGroup
	var mu sync.Mutex
	holders := 0
	for range 4 {
		wg.Go(func() {
			for range 50 {
				o, err := Create(t.Context(), root, State{ID: "a", Kind: KindRun, Shape: small})
				if errors.Is(err, ErrExists) {
					continue
				} else if err != nil {
					t.Errorf("Create: %v", err)
					return
				}
				mu.Lock()
				if holders++; holders > 1 {
					t.Error("two own one name")
				}
				holders--
				mu.Unlock()
				if err := o.Remove(context.Background(), reaper{}); err != nil {
					t.Errorf("Remove: %v", err)
				}
			}
		})
	}
	wg.Wait()
}

// The lock belongs to the process: its children do not keep it.
func TestLockIsNotInherited(t *testing.T) {
	root := t.TempDir()
	o := create(t, root, "a", KindRun)
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { child.Process.Kill(); child.Wait() }()
	drop(t, o)
	if got := collect(t, root, false); len(got) != 1 {
		t.Errorf("collected %v while a child process lives", got)
	}
}

func TestRoot(t *testing.T) {
	t.Setenv(RootEnv, "")
	if got := Root(); got != DefaultRoot {
		t.Errorf("Root() = %q, want %q", got, DefaultRoot)
	}
	t.Setenv(RootEnv, "/x")
	if got := Root(); got != "/x" {
		t.Errorf("Root() = %q, want /x", got)
	}
}

// The age of a testbed is measured by the machine's uptime: setting the wall clock back by an hour
// does not change it.
func TestAgeIgnoresTheWallClock(t *testing.T) {
	o := create(t, t.TempDir(), "a", KindUp)
	defer drop(t, o)
	for _, by := range []time.Duration{-time.Hour, 0, time.Hour} {
		s := o.state
		s.Created = s.Created.Add(by)
		if age := s.Age(); age < 0 || age > time.Minute {
			t.Errorf("age %v of a testbed just made, on a clock set by %v since", age, -by)
		}
		s.Booted = 0 // the record of an older version
		if age := s.Age(); age < 0 || by < 0 && age < time.Hour {
			t.Errorf("age %v of an older record, on a clock set by %v since", age, -by)
		}
	}
}
