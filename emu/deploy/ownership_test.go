package deploy

import (
	"errors"
	"runtime"
	"testing"
)

// A testbed stays owned after nothing refers to its Owned any more, until it is released or removed.
func TestForgottenOwnerKeepsItsLock(t *testing.T) {
	root := t.TempDir()
	create(t, root, "forgotten", KindRun)
	released, removed := create(t, root, "released", KindRun), create(t, root, "removed", KindRun)
	if err := released.Release(); err != nil {
		t.Fatal(err)
	}
	if err := removed.Remove(t.Context(), reaper{}); err != nil {
		t.Fatal(err)
	}
	for range 5 { // finalizers and cleanups run after a collection
		ran := make(chan struct{})
		runtime.AddCleanup(new([64]byte), func(ran chan struct{}) { close(ran) }, ran)
		runtime.GC()
		<-ran
	}
	entries, err := List(t.Context(), root)
	if err != nil || len(entries) != 2 {
		t.Fatalf("List() = %+v, %v", entries, err)
	}
	for _, e := range entries {
		if want := e.State.ID == "forgotten"; e.Live != want {
			t.Errorf("%s: live %v, want %v", e.State.ID, e.Live, want)
		}
	}
	if _, err := Remove(t.Context(), root, "forgotten", reaper{}); !errors.Is(err, ErrLive) {
		t.Errorf("Remove() of one that has an owner = %v", err)
	}
	left := 0
	held.Range(func(_, id any) bool {
		if id == "released" || id == "removed" {
			left++
		}
		return true
	})
	if left > 0 {
		t.Errorf("%d locks are kept of testbeds that were given up", left)
	}
}
