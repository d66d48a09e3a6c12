package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"testbed/emu/runner"
	"testbed/emu/scenario"
	"testbed/results/flows"
	"testbed/topo/units"
)

// longestAnswer bounds a line of an environment, in bytes.
const longestAnswer = 16 << 20

// longestThought is the default bound of the wait for a line of an environment, which may train between two decisions.
const longestThought = 24 * time.Hour

func (a *app) gymCmd() *cobra.Command {
	var f scenarioFlags
	var arm string
	var timeout time.Duration
	cmd := &cobra.Command{
		Use: "gym SCENARIO", Short: "Run trials in which a learning environment decides over standard input",
		Long: `Gym is the process behind the environments of testbed_gym.py (docs/learning.md). It waits for
lines of JSON on standard input. {"type":"reset","seed":7} begins a trial on the fluid model, also
in place of an answer; "set" of it are variables of the scenario. In the trial the environment
answers the messages of a coflow policy (testbed schema --messages), in place of that of the arm.
{"type":"end"} with the times of all coflows follows. Gym ends with its standard input.`,
		Example: `  testbed gym scripts/quickstart/scenario.yaml --arm sebf+hdfs`,
		Args:    exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] == stdio {
				return usageError{errors.New("gym -: standard input has the answers: expected a scenario file")}
			}
			if timeout <= 0 {
				return usageError{fmt.Errorf("--timeout %v: must be positive", timeout)}
			}
			ctx, cancel := context.WithCancelCause(cmd.Context())
			defer cancel(nil)
			e := learner{out: exact{a.stdout}, timeout: timeout, ctx: ctx, expire: cancel, lines: bufio.NewScanner(newWaiting(ctx, a.stdin))}
			e.lines.Buffer(nil, longestAnswer)
			return e.serve(func(r *reset) (*scenario.Scenario, error) {
				of := f
				of.set = slices.Clone(f.set)
				for name, value := range r.Set {
					of.set = append(of.set, name+"="+value)
				}
				if r.Seed != nil {
					of.seed = *r.Seed
					cmd.Flags().Lookup("seed").Changed = true
				}
				return of.one(args[0])
			}, arm)
		},
	}
	f.add(cmd)
	f.addPoint(cmd)
	addArm(cmd, &arm, "whose coflow policy is replaced; default: the first")
	cmd.Flags().DurationVar(&timeout, "timeout", longestThought, "longest wait for a line of the environment")
	return cmd
}

// reset is the message of an environment that begins a trial.
type reset struct {
	Type string            `json:"type"`
	Seed *uint64           `json:"seed"` // nil is that of the scenario, or as before
	Set  map[string]string `json:"set"`
}

// learner is an environment, which decides in place of a policy. It is an external.Conversation.
type learner struct {
	lines   *bufio.Scanner
	at      int // lines read
	out     io.Writer
	ctx     context.Context
	timeout time.Duration
	expire  context.CancelCauseFunc
	next    *reset // that came in place of an answer
}

// Errors that end a trial, but not the conversation.
var (
	errReset  = errors.New("the environment was reset")
	errClosed = errors.New("the environment was closed")
)

// serve runs trials until the environment is closed.
func (e *learner) serve(load func(*reset) (*scenario.Scenario, error), arm string) error {
	for {
		for e.next == nil {
			line, err := e.read()
			if errors.Is(err, errClosed) {
				return nil
			}
			if err == nil {
				err = e.isReset(line)
			}
			if err != nil && !errors.Is(err, errReset) {
				return err
			}
		}
		s, err := load(e.next)
		if err != nil {
			return err
		}
		e.next = nil
		rec, err := runner.Episode{Arm: arm, Talk: e}.Run(e.ctx, s)
		if errors.Is(err, errReset) || errors.Is(err, errClosed) {
			continue
		}
		if err == nil {
			err = e.end(rec)
		}
		if err != nil {
			return err
		}
	}
}

// Ask implements external.Conversation.
func (e *learner) Ask(line []byte, use func([]byte) (bool, error)) (time.Duration, error) {
	began := time.Now()
	if _, err := e.out.Write(line); err != nil {
		return 0, err
	}
	for {
		got, err := e.read()
		if err != nil {
			return 0, err
		}
		accepted, err := use(got)
		if err == nil && accepted {
			return time.Since(began), nil
		}
		if err != nil {
			return 0, e.wrong(got, err)
		}
		if err = e.isReset(got); err != nil {
			return 0, err
		}
	}
}

// read returns the next line.
func (e *learner) read() ([]byte, error) {
	late := time.AfterFunc(e.timeout, func() { e.expire(fmt.Errorf("no line within %v (--timeout)", e.timeout)) })
	defer late.Stop()
	if e.lines.Scan() {
		e.at++
		return e.lines.Bytes(), nil
	}
	if err := e.lines.Err(); err != nil {
		return nil, fmt.Errorf("line %d of standard input: %w", e.at+1, err)
	}
	return nil, errClosed
}

// wrong returns the error of the newest line.
func (e *learner) wrong(line []byte, err error) error {
	return fmt.Errorf("line %d of standard input: %w: %s", e.at, err, units.Clip(string(line)))
}

// isReset keeps a message that begins a trial, and then returns errReset. Others are ignored.
func (e *learner) isReset(line []byte) error {
	var r reset
	if err := json.Unmarshal(line, &r); err != nil {
		return e.wrong(line, fmt.Errorf("no message: %w", err))
	}
	if r.Type != "reset" {
		return nil
	}
	e.next = &r
	return errReset
}

// end writes the message after a trial: rows of id, arrival, end and 1 for background, and the number of failures.
func (e *learner) end(rec flows.Records) error {
	b := []byte(`{"type":"end","failed":`)
	b = append(strconv.AppendInt(b, int64(len(rec.Failed)), 10), `,"coflows":[`...)
	for i, c := range rec.Coflows {
		if i > 0 {
			b = append(b, ',')
		}
		background := 0
		if c.Background {
			background = 1
		}
		b = fmt.Appendf(b, "[%d,%d,%d,%d]", c.Coflow, c.Arrival, c.End, background)
	}
	_, err := e.out.Write(append(b, "]}\n"...))
	return err
}
