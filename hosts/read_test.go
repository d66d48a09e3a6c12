package hosts

import (
	"bytes"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"testbed/hosts/disk"
	"testbed/hosts/pace"
	"testbed/hosts/wire"
	"testbed/topo/units"
	"testbed/workloads"
)

var three workloads.BlockID = 3

func readOf(size units.Bytes, ceiling units.Rate) Transfer {
	return Transfer{Coflow: 8, Flow: workloads.Flow{ID: 9, Src: 1, Dst: 0, Size: size}, Hash: 5, Ceiling: ceiling, Read: &three}
}

// A reader receives the stored file after a header with Read set.
func TestReadCarriesTheStoredFile(t *testing.T) {
	for _, size := range []units.Bytes{1, 1000, 70_000, 500_000} {
		inMemory(t, hosts(2), func(t *testing.T, n *memNet, c *cluster) {
			if err := c.agents[0].Write(t.Context(), chain(size, 1000, 4, 1)); err != nil {
				t.Fatal(err)
			}
			content := make([]byte, size)
			for i := range content {
				content[i] = byte(i/3 + 1)
			}
			if err := os.WriteFile(c.disks[1].Path(3), content, 0o644); err != nil {
				t.Fatal(err)
			}
			n.keep = true
			if err := c.agents[1].Send(t.Context(), readOf(size, pace.NoLimit)); err != nil {
				t.Fatal(err)
			}
			hop := n.hop(t, 1, 0)
			h, err := wire.Parse(hop.start)
			if want := (wire.Header{Kind: wire.KindFlow, Run: testRun, Group: 8, Member: 9, Parts: 5, Size: uint64(size), Read: true, Offset: 1, Sent: h.Sent}); err != nil || h != want {
				t.Errorf("header %+v, %v, want %+v", h, err, want)
			}
			if got := hop.content(); !bytes.Equal(got, content) {
				t.Errorf("%d bytes: %d went over the wire, equal to the stored ones: %v", size, len(got), bytes.Equal(got, content))
			}
			synctest.Wait()
			if _, problems := c.notes.get(); len(problems) > 0 {
				t.Error(problems)
			}
		})
	}
}

// A read runs at the lower of the rate of its disk and its ceiling, and a local read
// sends nothing.
func TestReadRate(t *testing.T) {
	const size = 2_000_000
	for name, x := range map[string]struct {
		disk, ceiling units.Rate
	}{"disk": {8 * units.Mbps, pace.NoLimit}, "ceiling": {80 * units.Mbps, 8 * units.Mbps}} {
		o := hosts(2)
		o[1] = disk.Options{Rate: units.MaxRate, ReadRate: x.disk}
		inMemory(t, o, func(t *testing.T, n *memNet, c *cluster) {
			if err := c.agents[0].Write(t.Context(), chain(size, 16_000, 4, 1)); err != nil {
				t.Fatal(err)
			}
			began, dials := time.Now(), len(n.all())
			if err := c.agents[1].Send(t.Context(), readOf(size, x.ceiling)); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took < 1980*time.Millisecond || took > 2080*time.Millisecond {
				t.Errorf("%s: 2 MB at 1 MB/s took %v", name, took)
			}
			if name != "disk" {
				return
			}
			began = time.Now()
			if err := c.agents[1].ReadLocal(t.Context(), 10, 3, size); err != nil {
				t.Fatal(err)
			}
			if took := time.Since(began); took < 1980*time.Millisecond || took > 2020*time.Millisecond {
				t.Errorf("2 MB of its own disk at 1 MB/s took %v", took)
			}
			if got := len(n.all()) - dials; got != 1 {
				t.Errorf("%d connections, want that of the read over the network", got)
			}
		})
	}
}

// An impossible read returns an error, and a stop or a crash ends a read.
func TestReadsEnd(t *testing.T) {
	o := hosts(3)
	o[1].ReadRate = 8 * units.Kbps
	o[2].Rate = 0 // no disk
	inMemory(t, o, func(t *testing.T, n *memNet, c *cluster) {
		a := c.agents[1]
		if err := a.ReadLocal(t.Context(), 20, 3, 1000); !errors.Is(err, disk.ErrNoReplica) {
			t.Errorf("a block that is not stored: %v", err)
		}
		if err := c.agents[2].ReadLocal(t.Context(), 20, 3, 1000); err == nil {
			t.Error("a host without a disk reads")
		}
		if err := c.agents[0].Write(t.Context(), chain(100_000, 1000, 4, 1)); err != nil {
			t.Fatal(err)
		}
		if err := a.ReadLocal(t.Context(), 20, 3, 1000); err == nil {
			t.Error("a block of another size is read")
		}
		done := make(chan error, 2)
		go func() { done <- a.ReadLocal(t.Context(), 21, 3, 100_000) }()
		synctest.Wait()
		a.Stop(21)
		if err := <-done; !errors.Is(err, ErrStopped) {
			t.Errorf("ReadLocal = %v, want %v", err, ErrStopped)
		}
		go func() { done <- a.ReadLocal(t.Context(), 22, 3, 100_000) }()
		go func() { done <- a.Send(t.Context(), readOf(100_000, pace.NoLimit)) }()
		synctest.Wait()
		a.Crash()
		for range 2 {
			if err := <-done; !errors.Is(err, ErrCrashed) {
				t.Errorf("on a host that crashed: %v, want %v", err, ErrCrashed)
			}
		}
	})
}
