package scenario

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads"
)

// One key scales every rate and every size: links, disks, blocks and
// packets. Transfer times stay the same.
func TestScaleRate(t *testing.T) {
	good := goodScenario(t)
	plain, err := Parse("s.yaml", []byte(good), options(nil))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(good, "scale: {size: 1/100, time: 0.1}", "scale: {rate: 1/5, size: 1/500, time: 0.1}", 1)
	s, err := Parse("s.yaml", []byte(text), options(nil))
	if err != nil {
		t.Fatal(err)
	}
	if got := s.RateScale(); got != (workloads.Factor{Num: 1, Den: 5}) {
		t.Errorf("RateScale() = %v", got)
	}
	if got := plain.RateScale(); got.Float() != 1 {
		t.Errorf("RateScale() without one = %v", got)
	}
	if got := s.Shape(); got.HostLink != 10*units.Mbps || got.Queue != (topo.Queue{Time: 20 * time.Millisecond}) || got.MTU != 1500 {
		t.Errorf("shape %+v", got)
	}
	if d := s.Spec.Disk; d.Write != plain.Spec.Disk.Write/5 || d.Size != plain.Spec.Disk.Size/5 {
		t.Errorf("disk %+v", d)
	}
	if !reflect.DeepEqual(s.Spec.Capture, plain.Spec.Capture) || s.Spec.Limits != plain.Spec.Limits || s.Spec.Fabric.ShortFlow != plain.Spec.Fabric.ShortFlow {
		t.Errorf("what belongs to the machine was scaled: %+v %+v %+v", s.Spec.Capture, s.Spec.Limits, s.Spec.Fabric)
	}
	for i, item := range plain.Spec.Workload {
		if item.Writers == nil {
			continue
		}
		if w := s.Spec.Workload[i].Writers; w.Block != item.Writers.Block/5 || w.Packet != item.Writers.Packet/5 || w.Window != item.Writers.Window || w.Start != item.Writers.Start {
			t.Errorf("workload[%d]: %+v", i, w)
		}
	}
	work := func(s *Scenario) workloads.Workload {
		f, err := s.Shape().Build()
		if err != nil {
			t.Fatal(err)
		}
		w, _, err := s.Workload(f, 0)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	before, after := work(plain), work(s)
	for i, c := range before.Coflows {
		for j, fl := range c.Flows {
			if got := after.Coflows[i].Flows[j].Size; (got-1)*5 >= fl.Size || (got+1)*5 <= fl.Size { // both rounded up
				t.Errorf("flow %d.%d: %v, before %v", i, j, got, fl.Size)
			}
		}
	}
	// The resolved scenario is not scaled again.
	resolved, err := s.Resolved()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("s.yaml", resolved, options(nil))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(s.Shape(), again.Shape()); diff != "" || *again.Spec.Disk != *s.Spec.Disk {
		t.Errorf("read again: %+v, shape (-want +got):\n%s", again.Spec.Disk, diff)
	}
}

func TestScaleRateInBytes(t *testing.T) {
	text := strings.Replace(goodScenario(t), "queue: 20ms", "queue: 100KB", 1)
	text = strings.Replace(text, "scale: {size: 1/100", "scale: {rate: 0.5, size: 1/100", 1)
	s, err := Parse("s.yaml", []byte(text), options(nil))
	if err != nil || s.Shape().Queue.Bytes != 50*units.KB {
		t.Errorf("queue %v, %v; want 50KB", s.Shape().Queue, err)
	}
}

func TestScaleRateOutOfBounds(t *testing.T) {
	for factor, want := range map[string]string{
		"1/1000":              `s.yaml:11:15: scale.rate: 1/1000: makes fabric.host_link 50Kbps: use a factor with which it is 100Kbps to 100Gbps`,
		"4000":                `s.yaml:11:15: scale.rate: 4000: makes fabric.host_link 200Gbps: use a factor with which it is 100Kbps to 100Gbps`,
		"9223372036854775807": `scale.rate: 9223372036854775807: fabric.host_link overflows: use a smaller factor`,
		"0":                   `scale.rate: factor "0": zero`,
	} {
		text := strings.Replace(goodScenario(t), "scale: {size: 1/100", "scale: {rate: "+factor+", size: 1/100", 1)
		if _, err := Parse("s.yaml", []byte(text), options(nil)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("rate: %s: %v, want %s", factor, err, want)
		}
	}
}
