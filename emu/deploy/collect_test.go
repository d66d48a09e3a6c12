package deploy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"testbed/emu/plan"
)

func TestCollect(t *testing.T) {
	tests := []struct {
		name             string
		kind             Kind
		ready, dead, all bool
		want             bool
	}{
		{"running", KindRun, true, false, false, false},
		{"running, all", KindRun, true, false, true, false},
		{"killed", KindRun, true, true, false, true},
		{"killed while building", KindRun, false, true, false, true},
		{"brought up", KindUp, true, true, false, false},
		{"brought up, all", KindUp, true, true, true, true},
		{"bringing up", KindUp, false, false, false, false},
		{"bringing up, killed", KindUp, false, true, false, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			o := create(t, root, "a", tt.kind)
			if tt.ready {
				if err := o.SetReady(); err != nil {
					t.Fatal(err)
				}
			}
			if tt.dead {
				drop(t, o)
			}
			got := len(collect(t, root, tt.all)) == 1
			if got != tt.want || (len(left(t, root)) == 0) != tt.want {
				t.Errorf("collected %v, want %v; left %v", got, tt.want, left(t, root))
			}
			drop(t, o)
		})
	}
}

// A run that was killed at any step of its build is collected completely.
func TestKillAtEveryOperationThenCollect(t *testing.T) {
	p := smallPlan(t)
	killed := errors.New("killed")
	for n := 0; n <= len(p.Ops()); n++ {
		root := t.TempDir()
		o := create(t, root, "a", KindRun)
		x := fakeKernel{o.PinDir()}
		func() {
			defer func() {
				if r := recover(); r != nil && r != killed {
					panic(r)
				}
			}()
			if _, err := Apply(t.Context(), p, dying{x, n, killed, new(int)}); err != nil {
				t.Fatal(err)
			}
		}()
		drop(t, o)
		if got := collect(t, root, false); !slices.Equal(got, []string{"a"}) || len(left(t, root)) != 0 {
			t.Fatalf("killed after %d operations: collected %v, left %v", n, got, left(t, root))
		}
	}
}

// dying is a kernel that dies after some operations, without cleaning up.
type dying struct {
	fakeKernel
	after int
	how   error
	done  *int
}

func (d dying) Do(ctx context.Context, op plan.Op) error {
	if *d.done == d.after {
		panic(d.how)
	}
	*d.done++
	return d.fakeKernel.Do(ctx, op)
}

// The rest of a record is collected if its process was killed while it created or removed the record:
// the steps leave these directories.
func TestCollectLeftoversOfRecords(t *testing.T) {
	steps := []struct {
		name string
		do   func(t *testing.T, dir string)
	}{
		{"empty", func(*testing.T, string) {}},
		{"lock", func(t *testing.T, dir string) { write(t, filepath.Join(dir, lockFile), "") }},
		{"pins", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, lockFile), "")
			if err := os.Mkdir(filepath.Join(dir, pinDir), 0o755); err != nil {
				t.Fatal(err)
			}
		}},
		{"new state", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, lockFile), "")
			write(t, filepath.Join(dir, stateFile+".new"), `{"id":`)
		}},
		{"state without pins", func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, lockFile), "")
			write(t, filepath.Join(dir, stateFile), `{"version":1,"id":"a","kind":"run","namespaces":["leaf0"]}`)
		}},
	}
	for _, tt := range steps {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			dir := filepath.Join(root, "a")
			if err := os.Mkdir(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			tt.do(t, dir)
			if got := collect(t, root, false); !slices.Equal(got, []string{"a"}) || len(left(t, root)) != 0 {
				t.Errorf("collected %v, left %v", got, left(t, root))
			}
		})
	}
}

// A record that has no state yet is live while its lock is held.
func TestLockWithoutStateIsLive(t *testing.T) {
	root := t.TempDir()
	o := create(t, root, "a", KindRun)
	if err := os.Remove(filepath.Join(o.Dir(), stateFile)); err != nil {
		t.Fatal(err)
	}
	if got := collect(t, root, true); len(got) != 0 {
		t.Errorf("collected %v", got)
	}
	e, err := Find(t.Context(), root, "a")
	if err != nil || !e.Live || e.Problem == nil {
		t.Errorf("Find = %+v, %v: want it live, with a problem", e, err)
	}
}

// A record that this program cannot read may name namespaces that it does not know.
func TestUnreadableRecordsAreLeftAlone(t *testing.T) {
	for _, text := range []string{`{"version":2,"id":"a"}`, `not JSON`, `{"version":1,"id":"b"}`} {
		root := t.TempDir()
		o := create(t, root, "a", KindRun)
		write(t, filepath.Join(o.Dir(), stateFile), text)
		drop(t, o)
		if removed, err := Collect(t.Context(), root, reaper{}, true); err == nil || len(removed) != 0 || len(left(t, root)) != 1 {
			t.Errorf("%s: Collect = %v, %v; left %v", text, removed, err, left(t, root))
		}
	}
}

// If the reaper fails, the record stays for the next removal.
func TestFailedRemovalKeepsTheRecord(t *testing.T) {
	root := t.TempDir()
	o := create(t, root, "a", KindRun)
	drop(t, o)
	if _, err := Collect(t.Context(), root, reaper{errInjected}, false); !errors.Is(err, errInjected) {
		t.Fatalf("Collect = %v", err)
	}
	if got := collect(t, root, false); !slices.Equal(got, []string{"a"}) {
		t.Errorf("second Collect removed %v", got)
	}
}

// A directory without the mark is not removed, even if a state file names it.
func TestUnmarkedDirectoriesAreRefused(t *testing.T) {
	tests := []struct {
		name   string
		mark   func(t *testing.T, dir string)
		refuse bool
	}{
		{"killed before it was marked", func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, marker)) }, false},
		{"no mark", func(t *testing.T, dir string) {
			os.Remove(filepath.Join(dir, marker))
			write(t, filepath.Join(dir, "thesis"), "")
		}, true},
		{"another's mark", func(t *testing.T, dir string) { write(t, filepath.Join(dir, marker), "b\n") }, true},
		{"a link", func(t *testing.T, dir string) {
			os.RemoveAll(dir)
			if err := os.Symlink(t.TempDir(), dir); err != nil {
				t.Fatal(err)
			}
		}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root, dir := t.TempDir(), filepath.Join(t.TempDir(), "d")
			o := create(t, root, "a", KindRun)
			if err := o.AddDirectory(dir); err != nil {
				t.Fatal(err)
			}
			tt.mark(t, dir)
			drop(t, o)
			_, err := Collect(t.Context(), root, reaper{}, false)
			_, stat := os.Lstat(dir)
			if refused := err != nil && stat == nil; refused != tt.refuse || refused != (len(left(t, root)) == 1) {
				t.Errorf("Collect = %v, directory: %v, records: %v; want refused %v", err, stat, left(t, root), tt.refuse)
			}
		})
	}
}

// Runs that start and end while collectors are at work are never collected, and each left-over
// testbed is collected once.
func TestCollectBesideRuns(t *testing.T) {
	root := t.TempDir()
	names := smallPlan(t).Namespaces()
	stop := make(chan struct{})
	var collectors, runs sync.WaitGroup
	var mu sync.Mutex
	collected := map[string]int{}
	for range 2 {
		collectors.Go(func() {
			for {
				removed, err := Collect(context.Background(), root, reaper{}, false)
				if err != nil {
					t.Errorf("Collect: %v", err)
				}
				mu.Lock()
				for _, r := range removed {
					collected[r.ID]++
				}
				mu.Unlock()
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond): // without a pause, two collectors leave the lock to no one else
				}
			}
		})
	}
	dropped := map[string]bool{}
	for w := range 3 {
		runs.Go(func() {
			for i := range 40 {
				id := fmt.Sprintf("w%d-%d", w, i)
				o, err := Create(t.Context(), root, State{ID: id, Kind: KindRun, Shape: small, Namespaces: names})
				if err != nil {
					t.Errorf("Create: %v", err)
					return
				}
				write(t, filepath.Join(o.PinDir(), names[0]), "")
				if i%3 == 0 {
					mu.Lock()
					dropped[id] = true
					mu.Unlock()
					drop(t, o)
					continue
				}
				if _, err := os.Stat(filepath.Join(o.PinDir(), names[0])); err != nil {
					t.Errorf("a live run lost its namespace: %v", err)
				}
				if err := o.Remove(context.Background(), reaper{}); err != nil {
					t.Errorf("Remove: %v", err)
				}
			}
		})
	}
	runs.Wait()
	close(stop)
	collectors.Wait()
	for _, id := range collect(t, root, false) {
		collected[id]++
	}
	for id := range dropped {
		if collected[id] != 1 {
			t.Errorf("%s was dropped and collected %d times", id, collected[id])
		}
	}
	if len(collected) != len(dropped) || len(left(t, root)) != 0 {
		t.Errorf("%d dropped, %d collected, left %v", len(dropped), len(collected), left(t, root))
	}
}
