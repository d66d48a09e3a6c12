package tracker

import (
	"slices"

	"testbed/policies"
	"testbed/topo"
	"testbed/topo/units"
	"testbed/workloads/jobs"
)

// shuffleOf returns what a scheduler with these needs sees of the places of a job's data at its submission.
func (t *Tracker) shuffleOf(j *job, needs policies.Facts) *policies.ShuffleState {
	if !needs.Has(policies.Shuffle) {
		return nil
	}
	racks := t.cfg.Fabric.Racks()
	s := &policies.ShuffleState{Intermediate: make([]units.Bytes, racks), Maps: make([]int, racks), Reduces: make([]int, racks)}
	var input, output units.Bytes
	for _, st := range j.stages {
		if st.fetches() {
			continue
		}
		for i := range st.Tasks {
			spec := &st.Tasks[i]
			input, output = input+spec.InputSize, output+outputOf(spec)
			if spec.InputSize > 0 {
				s.Blocks = append(s.Blocks, policies.PlacedBlock{Size: spec.InputSize, Racks: t.racksOf(st.replicas[i])})
			}
		}
	}
	if needs.Has(policies.OracleRatio) && input > 0 {
		s.Ratio = float64(output) / float64(input)
	}
	return s
}

// racksOf returns the racks of live hosts, each once.
func (t *Tracker) racksOf(hosts []topo.HostID) (racks []topo.RackID) {
	for _, h := range hosts {
		if r := t.cfg.Fabric.RackOf(h); t.live(h) && !slices.Contains(racks, r) {
			racks = append(racks, r)
		}
	}
	return racks
}

// holds adds the output of a task on a host to what schedulers see, or removes it.
func (t *Tracker) holds(st *stage, i int32, h topo.HostID, sign int) {
	if s := st.job.shuffle; s != nil && len(st.to) > 0 {
		s.Intermediate[t.cfg.Fabric.RackOf(h)] += units.Bytes(sign) * outputOf(&st.Tasks[i])
	}
}

// places counts a task on a host that runs or is done, or ceases to.
func (t *Tracker) places(st *stage, h topo.HostID, sign int) {
	s, rack := st.job.shuffle, t.cfg.Fabric.RackOf(h)
	switch {
	case s == nil:
	case st.Kind == jobs.Reduce:
		s.Reduces[rack] += sign
	case !st.fetches():
		s.Maps[rack] += sign
	}
}
