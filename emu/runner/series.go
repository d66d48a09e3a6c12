package runner

import (
	"cmp"
	"math"
	"time"

	"testbed/results/samples"
	"testbed/topo"
)

// modelSamples samples what links carry on the fluid model, which has no queues and connections.
type modelSamples struct {
	*samples.Writer
	head  samples.Head
	last  []int64 // bytes that links have carried, by LinkID
	ticks int64
}

// defaultModelSamples is the default of limits.samples in a simulation.
const defaultModelSamples = 2 << 20

func newModelSamples(path string, f *topo.Fabric, rows int) *modelSamples {
	m := &modelSamples{Writer: samples.Create(path, int64(cmp.Or(rows, defaultModelSamples))), last: make([]int64, len(f.Links())),
		head: samples.Head{Sample: time.Second, RatesOnly: true}}
	for id, l := range f.Links() {
		m.head.Links = append(m.head.Links, samples.Link{Name: f.LinkName(topo.LinkID(id)), Rate: l.Rate})
	}
	return m
}

// sent is fluid.Config.Sent.
func (m *modelSamples) sent(now time.Duration, bytes []float64) {
	m.ticks++
	if (m.ticks-1)%m.Every() != 0 {
		return
	}
	m.Add(samples.Sample{At: now, Object: samples.Links, Metric: samples.Look})
	for id, b := range bytes {
		if is := int64(math.Round(b)); is != m.last[id] || m.ticks == 1 {
			m.last[id] = is
			m.Add(samples.Sample{At: now, Object: m.head.Links[id].Name, Metric: samples.SentBytes, Value: is})
		}
	}
}
