package runner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"testbed/emu/kernel"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/longtest"
)

// count is how many entries a directory of this process has.
func count(t *testing.T, dir string) int {
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Error(err)
	}
	return len(entries)
}

// The descriptors and threads of runs of 20 and 100 hosts are at most what was predicted, and
// descriptors at least two thirds of that.
func TestResourcesOfRun(t *testing.T) {
	longtest.Skip(t, "compares resources of runs with forecasts, 5 s")
	netnstest.Require(t)
	for _, hosts := range []int{20, 100} {
		t.Run(fmt.Sprintf("hosts=%d", hosts), func(t *testing.T) {
			var trace []string
			for i := range hosts / 10 { // to all hosts: as many connections as hosts
				line := fmt.Sprintf("%d 0 1 %d 10", i+1, (i+1)%hosts)
				for j := range 10 {
					line += fmt.Sprintf(" %d:0.05", 10*i+j)
				}
				trace = append(trace, line)
			}
			s := loadText(t, fmt.Sprintf(`
name: many
fabric: {leaves: %d, spines: 1, hosts_per_leaf: 10, host_link: 5Mbps, oversubscription: "1:1", queue: 50ms}
workload: [{kind: trace, path: trace.txt, mb: MB}]
arms: {coflow: [fair]}
`, hosts/10), trace...)
			f, err := Predict(t.Context(), s, Options{})
			if err != nil {
				t.Fatal(err)
			}
			before := count(t, "/proc/self/fd")
			var files, threads atomic.Int64
			stop, done := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(done)
				for {
					files.Store(max(files.Load(), int64(count(t, "/proc/self/fd")-before)))
					threads.Store(max(threads.Load(), int64(count(t, "/proc/self/task"))))
					select {
					case <-stop:
						return
					case <-time.After(5 * time.Millisecond):
					}
				}
			}()
			_, err = Execute(t.Context(), s, Options{Out: t.TempDir(), StateRoot: filepath.Join(t.TempDir(), "state"), Force: true})
			close(stop)
			<-done
			if err != nil {
				t.Fatal(err)
			}
			got, need := int(files.Load()), f.Resources
			t.Logf("%d files and %d threads, predicted %v", got, threads.Load(), need)
			if got > need.Files || 3*got < 2*need.Files {
				t.Errorf("%d open files, predicted %d", got, need.Files)
			}
			if int(threads.Load()) > need.Threads {
				t.Errorf("%d threads, predicted %d", threads.Load(), need.Threads)
			}
		})
	}
}

// A fabric that needs more than there is refused before anything is made, with the figures.
func TestTooLargeFabricIsRefused(t *testing.T) {
	netnstest.Require(t)
	s := loadText(t, `
name: huge
fabric: {leaves: 250, spines: 1, hosts_per_leaf: 250, host_link: 50Mbps, oversubscription: "1:1", queue: 20ms}
workload: [{kind: trace, path: trace.txt, mb: MB}]
arms: {coflow: [fair]}
`, oneFlow)
	fabric, err := s.Shape().Build()
	if err != nil {
		t.Fatal(err)
	}
	l := kernel.ReadLimits()
	if l.Check("", FabricResources(fabric)) == nil {
		t.Skipf("this machine has room for 62,500 hosts: %+v", l)
	}
	out, state := t.TempDir(), filepath.Join(t.TempDir(), "state")
	_, err = Execute(t.Context(), s, Options{Out: out, StateRoot: state, Force: true})
	var lack *kernel.LackError
	if !errors.As(err, &lack) || !strings.Contains(err.Error(), "of which") {
		t.Fatalf("Execute() = %v", err)
	}
	if _, err := os.Stat(state); err == nil || count(t, out) > 0 {
		t.Errorf("made %v", out)
	}
	if err := CheckFabric(s, fabric, Plan("large", s, fabric, 1, nil)); !errors.As(err, &lack) {
		t.Errorf("CheckFabric() = %v", err)
	}
}
