package deploy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"testbed/results/tooltest"
)

// openAs opens a path for reading as a user without privileges.
func openAs(uid uintptr, path string) error {
	result := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if _, _, e := syscall.RawSyscall(syscall.SYS_SETRESUID, uid, uid, uid); e != 0 {
			result <- e
			return
		}
		fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
		if err == nil {
			err = syscall.Close(fd)
		}
		result <- err
	}()
	return <-result
}

// A user who can open a file can lock it. No other user can open what this package locks, also if
// the files are of a version that made them readable.
func TestOthersCannotLock(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("acts as another user, which requires root")
	}
	const nobody = 65534
	root, err := os.MkdirTemp("", "testbed-lock-") // every user can look up names in it
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(root)
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	o := create(t, root, "a", KindUp)
	if err := o.SetReady(); err != nil {
		t.Fatal(err)
	}
	drop(t, o)
	locked := []string{filepath.Join(root, rootLock), filepath.Join(root, "a", lockFile), o.PinDir()}
	if err := openAs(nobody, filepath.Join(root, "a", stateFile)); err != nil {
		t.Errorf("the record, which others may read: %v", err)
	}
	for _, path := range locked {
		if err := openAs(nobody, path); !errors.Is(err, fs.ErrPermission) {
			t.Errorf("another user opens %s: %v", path, err)
		}
	}
	for _, path := range locked[:2] {
		if err := os.Chmod(path, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got := ids(t, root); !slices.Equal(got, []string{"a"}) {
		t.Errorf("testbeds %q", got)
	}
	for _, path := range locked[:2] {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s is %v, %v after it was used", path, info.Mode(), err)
		}
	}
}

// hold locks a file in another process until the end of the test.
func hold(t *testing.T, path string, command ...string) *exec.Cmd {
	t.Helper()
	tooltest.Need(t, "flock")
	c := exec.CommandContext(t.Context(), "flock", append(command, path, "sh", "-c", "echo locked; exec sleep 661")...)
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = syscall.Kill(-c.Process.Pid, syscall.SIGKILL) // it may have ended
		_ = c.Wait()                                      // by the signal
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	for limit := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) { // for its exec
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		if h, ok := findHolder(info); ok && (len(command) == 0 || strings.HasPrefix(h.Command, "sleep 661")) {
			return c
		}
		if time.Now().After(limit) {
			t.Fatalf("%s is not locked", path)
		}
	}
}

// A wait for the root's lock is bounded, states who has the lock, and ends with the context.
func TestWaitForTheRootNamesTheHolder(t *testing.T) {
	root := t.TempDir()
	drop(t, create(t, root, "a", KindUp))
	holder := hold(t, filepath.Join(root, rootLock), "--no-fork")
	name := fmt.Sprintf("sleep 661 (pid %d)", holder.Process.Pid)
	interrupted := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	notices := make(chan string, 10)
	ended := make(chan error)
	go func() {
		_, err := List(OnWait(ctx, func(text string) { notices <- text }), root)
		ended <- err
	}()
	select {
	case text := <-notices:
		if !strings.Contains(text, name) || !strings.Contains(text, rootLock) {
			t.Errorf("it says %q, without %q", text, name)
		}
	case err := <-ended:
		t.Fatalf("it ended with %v", err)
	case <-time.After(lockWait):
		t.Fatal("it says nothing")
	}
	cancel(interrupted)
	select {
	case err := <-ended:
		if !errors.Is(err, interrupted) || !strings.Contains(err.Error(), name) {
			t.Errorf("after the end of the context: %v", err)
		}
	case <-time.After(time.Second):
		t.Error("it goes on after the end of the context")
	}
	f, err := os.Open(filepath.Join(root, rootLock))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := Lock(t.Context(), f, syscall.LOCK_EX, 20*time.Millisecond); !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), name) {
		t.Errorf("after the bound: %v", err)
	}
}

// Others that come all the time do not keep the lock from one who waits.
func TestLockInTurn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	once := func(hold time.Duration) error {
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return err
		}
		err = Lock(t.Context(), f, syscall.LOCK_EX, lockWait)
		time.Sleep(hold)
		return errors.Join(err, f.Close())
	}
	const others, waits, most = 8, 20, 100 // most: a signal costs one who waits its place
	var had atomic.Int64
	stop := make(chan struct{})
	var all sync.WaitGroup
	for range others {
		all.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := once(time.Millisecond); err != nil {
					t.Error(err)
				}
				had.Add(1)
			}
		})
	}
	for had.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	for range waits {
		before := had.Load()
		if err := once(0); err != nil {
			t.Error(err)
		}
		if n := had.Load() - before; n > most {
			t.Errorf("others had the lock %d times meanwhile, want at most %d", n, most)
		}
	}
	close(stop)
	all.Wait()
}

// A process that is not the owner has the lock of a record: it is named, not the owner.
func TestRemoveNamesTheHolder(t *testing.T) {
	root := t.TempDir()
	o := create(t, root, "a", KindUp)
	drop(t, o)
	holder := hold(t, filepath.Join(root, "a", lockFile), "--no-fork")
	_, err := Remove(t.Context(), root, "a", reaper{})
	if name := fmt.Sprintf("held by sleep 661 (pid %d)", holder.Process.Pid); !errors.Is(err, ErrLive) || !strings.Contains(err.Error(), name) {
		t.Errorf("Remove: %v, without %q", err, name)
	}
	if strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("Remove names the owner, which has no lock: %v", err)
	}
}

// The owner was killed and still has its lock: it is not live, and removal waits for it. Here a
// child of the owner keeps the lock for some time.
func TestCollectWaitsForAKilledOwner(t *testing.T) {
	root := t.TempDir()
	drop(t, create(t, root, "a", KindRun))
	path := filepath.Join(root, "a", lockFile)
	holder := hold(t, path)
	e, err := Find(t.Context(), root, "a")
	if err != nil || !e.Live || e.Holder.PID != holder.Process.Pid {
		t.Fatalf("before: %+v, %v", e, err)
	}
	if err := holder.Process.Kill(); err != nil { // and do not wait for it: a zombie remains
		t.Fatal(err)
	}
	for limit := time.Now().Add(10 * time.Second); !isDying(holder.Process.Pid); time.Sleep(time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatal("a killed process is not dying")
		}
	}
	if e, err := Find(t.Context(), root, "a"); err != nil || e.Live || !e.Stale() {
		t.Errorf("a killed owner: %+v, %v", e, err)
	}
	const dies = 200 * time.Millisecond
	start := time.Now()
	time.AfterFunc(dies, func() { _ = syscall.Kill(-holder.Process.Pid, syscall.SIGKILL) })
	if got := collect(t, root, false); !slices.Equal(got, []string{"a"}) || time.Since(start) < dies {
		t.Errorf("collected %q after %v", got, time.Since(start))
	}
	if isDying(os.Getpid()) {
		t.Error("this process is dying")
	}
}
