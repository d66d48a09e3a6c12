package kernel

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"testbed/emu/deploy"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/longtest"
	"testbed/emu/plan"
	"testbed/topo/units"
)

// Building a fabric takes the predicted number of descriptors. The machine's free memory decreases
// by at most half more than predicted.
func TestResourcesOfFabric(t *testing.T) {
	netnstest.Require(t)
	free := func() units.Bytes {
		n, _, err := availableMemory("/proc/meminfo", nil)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, leaves := range []int{2, 10} {
		t.Run(fmt.Sprintf("hosts=%d", 10*leaves), func(t *testing.T) {
			f, err := shape(leaves, 10, 2, 20*units.Mbps, 1500).Build()
			if err != nil {
				t.Fatal(err)
			}
			p := plan.Compile("resources", f, plan.Options{})
			s, err := routeSocket()
			if err != nil {
				t.Fatal(err)
			}
			s.Close() // the files of the runtime's poller, which the first socket opens, stay open
			files, before := openFiles(), free()
			d, err := deploy.Apply(t.Context(), p, NewExecutor(t.TempDir()))
			if err != nil {
				t.Fatal(err)
			}
			files, took := openFiles()-files, before-free()
			if err := d.Destroy(t.Context()); err != nil {
				t.Error(err)
			}
			c := p.Counts()
			need := ResourcesOf(c.Namespaces, c.Links)
			t.Logf("%d namespaces, %d links: %d files, %v less memory, predicted %v", c.Namespaces, c.Links, files, took, need)
			if got := need.Files - filesOfProcess - filesOfProbe*c.Namespaces; got != files {
				t.Errorf("predicted %d open files, took %d", got, files)
			}
			if took > need.Memory*3/2 && !longtest.Instrumented { // other packages take memory meanwhile
				t.Errorf("predicted %v of memory, took %v", need.Memory, took)
			}
		})
	}
}

// Each insufficient limit is listed with the need, the free amount and the remedy. An unknown limit
// refuses nothing.
func TestLimits(t *testing.T) {
	l := ReadLimits()
	for _, x := range []Limit{l.Files, l.Namespaces, l.Mounts, l.Threads, l.Loops, l.Memory} {
		if x.Reason != "" || x.Free <= 0 || x.Free > x.Max || x.Name == "" || x.Raise == "" {
			t.Errorf("%+v", x)
		}
	}
	need := ResourcesOf(26, 28)
	if err := l.Check("26 namespaces", need); err != nil {
		t.Errorf("26 namespaces are refused: %v", err)
	}
	l = Limits{Files: Limit{Name: "open files", Free: 100, Max: 1024, Raise: "ulimit -n"}, Namespaces: Limit{Name: "namespaces", Free: 25, Max: 25, Raise: "sysctl"},
		Mounts: Limit{Name: "mounts", Free: 26, Max: 26}, Threads: Limit{Name: "threads", Reason: "no /proc"}, Loops: Limit{Name: "loop devices"},
		Memory: Limit{Name: "memory", Free: 1e6, Max: 2e6, Bytes: true, Raise: "add some"}}
	err := l.Check("this", need)
	var lack *LackError
	if !errors.As(err, &lack) || len(lack.Lack) != 3 {
		t.Fatalf("%v", err)
	}
	for i, want := range []string{
		"open files: about 111, of which 100 are free (limit 1024: ulimit -n)", "namespaces: about 26, of which 25 are free", "memory: about 0.1 GB, of which 0.0 GB are free (limit 0.0 GB: add some)",
	} {
		if !strings.Contains(lack.Lack[i], want) {
			t.Errorf("%q: want %q", lack.Lack[i], want)
		}
	}
}

// The soft limit of open files is raised to the hard limit if more are needed, and no further.
func TestOpenFilesAreRaised(t *testing.T) {
	var had unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &had); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &had); err != nil {
			t.Error(err)
		}
	})
	low := had
	low.Cur = min(had.Max, 64)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	if err := CheckResources("this", Resources{Files: 100}); err != nil {
		t.Fatal(err)
	}
	var files []*os.File
	for range 100 {
		f, err := os.Open(os.DevNull)
		if err != nil {
			t.Fatalf("after %d files: %v", len(files), err)
		}
		files = append(files, f)
	}
	for _, f := range files {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	var lack *LackError
	if err := CheckResources("this", Resources{Files: 1 << 40}); !errors.As(err, &lack) || !strings.Contains(err.Error(), "open files: about 1099511627776") {
		t.Errorf("2⁴⁰ files: %v", err)
	}
}

// The lower of the machine's available memory and the remainder of cgroup limits counts.
// Reclaimable pages of files count as free.
func TestAvailableMemory(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	info := write("meminfo", "MemTotal:       24000000 kB\nMemAvailable:   20000000 kB\n")
	write("v1/memory.limit_in_bytes", "9223372036854771712\n")
	write("v1/memory.usage_in_bytes", "100\n")
	write("v2/memory.max", "max\n")
	write("v2/memory.current", "100\n")
	write("v2/a/memory.max", "4000000000\n")
	write("v2/a/memory.current", "3000000000\n")
	write("v2/a/memory.stat", "anon 5\ninactive_file 500000000\n")
	at := func(names ...string) (dirs []string) {
		for _, n := range names {
			dirs = append(dirs, filepath.Join(dir, n))
		}
		return dirs
	}
	for _, tt := range []struct {
		dirs  []string
		want  units.Bytes
		where string
	}{
		{nil, 20000000 * units.KiB, "MemAvailable"},
		{at("v1", "v2", "none"), 20000000 * units.KiB, "MemAvailable"},
		{at("v2/a", "v2"), 1500 * units.MB, filepath.Join(dir, "v2/a/memory.max")},
	} {
		got, where, err := availableMemory(info, tt.dirs)
		if err != nil || got != tt.want || where != tt.where {
			t.Errorf("%v: %v by %s, %v, want %v by %s", tt.dirs, got, where, err, tt.want, tt.where)
		}
	}
	if _, _, err := availableMemory(write("empty", ""), nil); err == nil {
		t.Error("a file without MemAvailable is accepted")
	}
}
