package jobs

import (
	"crypto/sha256"
	"encoding/binary"
	"math"
	"slices"

	"testbed/topo/units"
)

// Digest returns a SHA-256 of the work of a job: its stages and tasks, without the identity of their
// input blocks. Jobs with equal digests do the same work, for any user and at any time.
func (j *Job) Digest() [sha256.Size]byte {
	h := sha256.New()
	var buf []byte
	number := func(xs ...int64) {
		buf = buf[:0]
		for _, x := range xs {
			buf = binary.LittleEndian.AppendUint64(buf, uint64(x))
		}
		h.Write(buf)
	}
	number(int64(len(j.Stages)))
	for i := range j.Stages {
		st := &j.Stages[i]
		number(int64(st.Kind), int64(len(st.From)), int64(st.Pattern), int64(len(st.Tasks)))
		for _, from := range st.From {
			number(int64(from))
		}
		var before []units.Bytes // the outputs of the task before, which many tasks share
		for k := range st.Tasks {
			t := &st.Tasks[k]
			number(int64(t.InputSize), int64(t.Rate), int64(t.SortRate), int64(t.Writes), int64(math.Float64bits(t.Need.CPU)), int64(t.Need.Memory), int64(len(t.Output)))
			if len(t.Output) == 0 || len(t.Output) == len(before) && (&t.Output[0] == &before[0] || slices.Equal(t.Output, before)) {
				number(0)
				continue
			}
			before = t.Output
			number(1)
			for _, n := range before {
				number(int64(n))
			}
		}
	}
	return [sha256.Size]byte(h.Sum(nil))
}
