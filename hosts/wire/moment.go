package wire

import "fmt"

// Moment is a moment in the life of a job of tasks or of an attempt.
type Moment uint8

// The moments. JobSubmitted, JobDone and JobFailed are those of a job, the others those of an attempt.
const (
	JobSubmitted     Moment = 1 + iota
	AttemptStarted          // it got a slot
	InputComplete           // it has read its block, or fetched all outputs
	ComputeStarted          // of a stage that fetches: it may sort and process
	Computed                // it has processed its input
	AttemptCommitted        // its output is that of its task
	AttemptKilled           // the scheduler took its slot, or another attempt won
	AttemptFailed           // it failed, or its host is lost
	JobDone
	JobFailed
	AttemptCopied // another attempt has committed before, and the output of this one is a copy
)

var moments = [...]string{"", "submitted", "started", "input complete", "compute started", "computed",
	"committed", "killed", "failed", "done", "failed", "copied"}

func (m Moment) String() string {
	if int(m) < len(moments) && m > 0 {
		return moments[m]
	}
	return fmt.Sprintf("Moment(%d)", uint8(m))
}

// lastMoment is the moment with the largest value.
const lastMoment = AttemptCopied

// Moments is the number of values of Moment, including the invalid 0.
const Moments = int(lastMoment) + 1

// OfJob reports whether m is a moment of a job, not of an attempt.
func (m Moment) OfJob() bool { return m == JobSubmitted || m == JobDone || m == JobFailed }
