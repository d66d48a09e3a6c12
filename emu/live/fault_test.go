package live

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/engine"
	"testbed/emu/kernel/netnstest"
	"testbed/emu/longtest"
	"testbed/results/tooltest"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// A datanode whose link goes down in the middle of a block is dropped within about PeerTimeout. The
// block continues with the other, and the captures show it.
func TestLinkDownUnderABlock(t *testing.T) {
	longtest.Skip(t, "waits for timeouts of connections, 6 s")
	tooltest.Need(t, "ip")
	judge := t // a test alone; its two testbeds wait at the same time
	t.Run("hosts", func(t *testing.T) {
		for _, dead := range []topo.HostID{1, 4} {
			t.Run(fmt.Sprint(dead), func(t *testing.T) {
				t.Parallel()
				r := newRig(t, 50*units.Mbps, slices.Repeat([]units.Rate{20 * units.Mbps}, 6))
				b := workloads.Block{ID: 3, Client: 0, Size: 3 * units.MB, Replicas: 2, Packet: 64 * units.KB, Window: 8}
				r.do(t, engine.Mark{Kind: engine.MarkWrite, ID: 3, Host: 0, Parts: 2, Size: b.Size},
					engine.StartChain{Block: b, Targets: []topo.HostID{1, 4}, Hashes: []uint32{1, 2}})
				for until := time.Now().Add(netnstest.Patience(5 * time.Second)); r.disks[dead].Stats().Written < 500*units.KB; time.Sleep(5 * time.Millisecond) {
					if time.Now().After(until) {
						t.Fatal("the block does not get on")
					}
				}
				down := time.Now()
				if out, err := exec.Command("nsenter", "--net="+filepath.Join(r.cfg.Pins, r.fabric.HostName(dead)), "ip", "link", "set", "eth0", "down").CombinedOutput(); err != nil {
					t.Fatalf("%v: %s", err, out)
				}
				r.agents[dead].Crash()
				r.until(t, engine.BlockDurable{Block: 3})
				took, bound := time.Since(down), r.cfg.Settings.PeerTimeout
				t.Logf("durable %v after the link went down, with a bound of %v on silence", took, bound)
				if took < bound/2 || took > bound+4*time.Second && !netnstest.NotJudged(judge) {
					t.Errorf("durable %v after the link of %s went down, want about %v and the second that is left of the block", took, r.fabric.HostName(dead), bound)
				}
				left := topo.HostID(1 + 4 - int(dead))
				if got := r.disks[left].Stats().Written; got != b.Size {
					t.Errorf("the other host wrote %d bytes for a block of %d", got, b.Size)
				}
				_, res := r.finish(t)
				if len(res.Blocks) != 1 || len(res.Problems) > 0 {
					t.Fatalf("blocks %+v, problems %v", res.Blocks, res.Problems)
				}
				got := res.Blocks[0]
				if diff := cmp.Diff([][]string{{r.fabric.HostName(left)}, {r.fabric.HostName(dead)}}, [][]string{got.Hosts, got.Lost}); diff != "" || got.Pipelines != 2 {
					t.Errorf("%d pipelines, hosts and lost (-want +got):\n%s", got.Pipelines, diff)
				}
				if got.WriteTime() < bound/2 || len(res.Failed) != 1 {
					t.Errorf("write time %v, failures %+v", got.WriteTime(), res.Failed)
				}
			})
		}
	})
}
