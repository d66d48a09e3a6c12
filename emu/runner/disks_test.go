package runner

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"testbed/emu/kernel"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/longtest"
	"testbed/results/tooltest"
	"testbed/results/verdict"
)

// onKernelDisks is a scenario whose disks are under DIR.
const onKernelDisks = `
name: kernel
fabric: {leaves: 2, spines: 1, hosts_per_leaf: 2, host_link: 50Mbps, oversubscription: "2:1", queue: 20ms}
disk: {write: 1.6MB/s, size: 16MB, count: 2, throttle: kernel, dir: "DIR"}
workload:
  - {kind: writers, hosts: [h0-00], blocks: 2, block: 2MB, replicas: 2, packet: 32KB, window: 6}
arms: {coflow: [fair], placement: [hdfs]}
`

// On two disks per host that the kernel throttles, block writes take the time that the fluid model
// predicts, except for the time slices that the kernel allows in excess. The verdict judges
// each disk, and nothing of the disks is left.
func TestDisksOfTheKernel(t *testing.T) {
	longtest.Skip(t, "runs blocks on disks of the kernel, 10 s")
	netnstest.Require(t)
	tooltest.Need(t, "mkfs.ext4")
	_, err := kernel.DiskThrottle()
	netnstest.Feature(t, err)
	netnstest.Timing(t, func(t *testing.T) bool {
		dir := t.TempDir()
		out, arms := onPackets(t, loadText(t, strings.Replace(onKernelDisks, "DIR", dir, 1)))
		rep := arms["fair+hdfs"]
		ok := out.Level() == verdict.Pass
		for i, b := range rep.Records.Blocks {
			want := rep.Fluid.Blocks[i].WriteTime()
			t.Logf("block %d: measured %v, fluid %v", b.Block, b.WriteTime(), want)
			ok = ok && b.WriteTime() > want-kernel.ThrottleAhead && b.WriteTime() < want+want/10
		}
		if len(rep.Records.Blocks) != 2 {
			t.Errorf("%d blocks, want 2", len(rep.Records.Blocks))
		}
		for _, c := range rep.Verdict.Checks {
			if c.Name == "disk" || c.Name == "scheduling-lateness" || c.Level != verdict.Pass {
				t.Logf("%+v", c)
			}
			if c.Name == "disk" {
				if !strings.Contains(c.Value, "on 4 busy disks") {
					t.Errorf("the verdict says %q of the disks, want 4 busy ones", c.Value)
				}
			}
		}
		nothingLeft(t, dir)
		return ok
	})
}

// nothingLeft fails the test if a file, mount or cgroup of the disks under dir is left.
func nothingLeft(t *testing.T, dir string) {
	t.Helper()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("%v are left in %s, %v", entries, dir, err)
	}
	mounts, err := os.ReadFile("/proc/thread-self/mountinfo")
	if err != nil || strings.Contains(string(mounts), dir) {
		t.Errorf("mounts are left, %v:\n%s", err, mounts)
	}
	if left, err := filepath.Glob("/sys/fs/cgroup/*/testbed-*kernel*"); err != nil || len(left) > 0 {
		t.Errorf("cgroups are left: %v, %v", left, err)
	}
}

// A run that is interrupted while its disks are written leaves nothing of them.
func TestInterruptedWithDisksOfTheKernel(t *testing.T) {
	t.Parallel()
	netnstest.Require(t)
	tooltest.Need(t, "mkfs.ext4")
	_, err := kernel.DiskThrottle()
	netnstest.Feature(t, err)
	dir := t.TempDir()
	s := loadText(t, strings.NewReplacer("DIR", dir, "blocks: 2", "blocks: 6").Replace(onKernelDisks))
	interrupt := errors.New("interrupted")
	ctx, cancel := context.WithCancelCause(t.Context())
	o := options(t)
	written := false
	o.Progress = func(p Progress) {
		if p.Phase == PhaseRun && p.Blocks.Done > 0 {
			written = true
			cancel(interrupt)
		}
	}
	if _, err := Execute(ctx, s, o); !errors.Is(err, interrupt) || !written {
		t.Errorf("Execute = %v, a block was written: %v", err, written)
	}
	nothingLeft(t, dir)
}
