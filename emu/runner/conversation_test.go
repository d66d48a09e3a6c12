package runner

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/fidelity"
)

// takes is a conversation whose answers take the given times.
type takes []time.Duration

func (t *takes) Ask([]byte, func([]byte) (bool, error)) (time.Duration, error) {
	took := (*t)[0]
	*t = (*t)[1:]
	return took, nil
}

// Answers are late by what they take beyond the latency, without that to hello.
func TestLateAnswers(t *testing.T) {
	const ms = time.Millisecond
	var o conversations
	for role, of := range map[string]takes{"tasks": {time.Second, 3 * ms, 50 * ms, 10 * ms}, "coflow": {time.Second}} {
		talk := &timed{Conversation: &of, role: role, latency: 10 * ms}
		o.timed = append(o.timed, talk)
		for len(of) > 0 {
			if took, err := talk.Ask(nil, nil); err != nil || took == 0 {
				t.Fatal(took, err)
			}
		}
	}
	want := []fidelity.Answers{{Role: "tasks", Count: 3, Late: 40 * ms, Most: 40 * ms}}
	if d := cmp.Diff(want, o.answered()); d != "" {
		t.Errorf("answers (-want +got):\n%s", d)
	}
}
