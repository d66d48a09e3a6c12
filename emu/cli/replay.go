package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"testbed/emu/runner"
	"testbed/topo/words"
)

func (a *app) replayCmd() *cobra.Command {
	var arm, out string
	var virtual runner.VirtualOptions
	var repeat int
	var packets bool
	cmd := &cobra.Command{
		Use: "replay RUN", Short: "Check that policies repeat the decisions of a run",
		Long: `Replay passes the events that a run logged (events.jsonl) to the engine, with the run's
own scenario, and compares each command with the logged one. It prints the first
difference with the events that preceded it. Use it to check a changed policy against
the events of a real run.

With --packets it runs a run in virtual time again instead, and compares every file of its
trials. What decides them besides the scenario, and is not the same here, is named first.

It does not require root. Exit code 1 means that a command or a file differs, or that a log cannot
be read.`,
		Example: `  testbed replay runs/quickstart-20260102-150405-ab12
  testbed replay runs/quickstart-20260102-150405-ab12 --arm sebf+hdfs --repeat 0
  testbed replay runs/quickstart-20260102-150405-ab12 --json | jq '.repeats[].differs'
  testbed replay runs/latest --packets`,
		Args: exactly(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if packets {
				if arm != "" || cmd.Flags().Changed("repeat") {
					return usageError{errors.New("--packets with --arm or --repeat: it runs all trials again: leave them out")}
				}
				return a.replayPackets(cmd.Context(), args[0], runner.Options{Out: out, StateRoot: a.state, Version: version,
					Virtual: virtual})
			}
			o := runner.ReplayOptions{Arm: arm, Repeat: runner.AllRepeats, Version: version}
			if cmd.Flags().Changed("repeat") {
				if repeat < 0 {
					return usageError{fmt.Errorf("--repeat %d: must be 0 or more", repeat)}
				}
				o.Repeat = repeat
			}
			done, err := runner.Replay(cmd.Context(), args[0], o)
			if done == nil {
				return err
			}
			view := replayView(done)
			if printErr := a.print(view, func(w io.Writer) error { return view.text(w) }); printErr != nil {
				return printErr
			}
			if err != nil {
				return err
			}
			if view.Differs {
				return exitCode(exitFailure)
			}
			return nil
		},
		ValidArgsFunction: completeDirs,
	}
	addArm(cmd, &arm, "default: all")
	addRepeat(cmd, &repeat, "default: all")
	cmd.Flags().BoolVar(&packets, "packets", false, "run a run in virtual time again, and compare its files")
	addOut(cmd, &out)
	cmd.Flags().StringVar(&virtual.Kernel, "vm-kernel", "", vmKernelUsage)
	return cmd
}

// replayPackets runs a run in virtual time again.
func (a *app) replayPackets(ctx context.Context, dir string, o runner.Options) error {
	if err := a.effects(); err != nil {
		return err
	}
	show := a.progress()
	o.Progress = show.update
	r, err := runner.ReplayPackets(ctx, dir, o)
	show.done()
	if err != nil {
		return err
	}
	err = a.print(r, func(w io.Writer) error {
		var b strings.Builder
		fmt.Fprintf(&b, "Run %s again: %s\n", r.Run, r.Dir)
		for _, text := range r.Machines {
			fmt.Fprintf(&b, "note: %s\n", text)
		}
		if len(r.Differ) == 0 {
			fmt.Fprintf(&b, "identical: %s of trials\n", words.Plural(r.Files, "file", "files"))
		}
		for _, name := range r.Differ {
			fmt.Fprintf(&b, "DIFFERS: %s\n", name)
		}
		_, err := io.WriteString(w, b.String())
		return err
	})
	if err == nil && len(r.Differ) > 0 {
		err = exitCode(exitFailure)
	}
	return err
}

// replays is the JSON of a replay.
type replays struct {
	Run     string           `json:"run_id"`
	Backend string           `json:"backend"`
	Differs bool             `json:"differs"` // in any repeat
	Notes   []string         `json:"notes"`
	Repeats []replayedRepeat `json:"repeats"`
}

type replayedRepeat struct {
	Arm        string      `json:"arm"`
	Repeat     int         `json:"repeat"`   // from 0
	Steps      int         `json:"steps"`    // that do not differ
	Commands   int         `json:"commands"` // of these
	Unfinished string      `json:"unfinished,omitempty"`
	Differs    *difference `json:"differs,omitempty"`
}

type difference struct {
	Step             int               `json:"step"` // from 1, also the log's line
	NowNS            int64             `json:"t_ns"` // since the start of the run
	Events           []json.RawMessage `json:"events"`
	Command          int               `json:"command"` // of the step, from 1
	Logged           json.RawMessage   `json:"logged"`  // null where there is none
	Replayed         json.RawMessage   `json:"replayed"`
	LoggedCommands   int               `json:"logged_commands"` // of the step
	ReplayedCommands int               `json:"replayed_commands"`
}

func replayView(r *runner.Replays) replays {
	v := replays{Run: r.Run, Backend: r.Backend, Notes: append([]string{}, r.Notes...), Repeats: []replayedRepeat{}}
	for _, x := range r.Repeats {
		one := replayedRepeat{Arm: x.Arm, Repeat: x.Repeat, Steps: x.Steps, Commands: x.Commands, Unfinished: x.Unfinished}
		if d := x.Differs; d != nil {
			v.Differs = true
			one.Differs = &difference{Step: d.Step, NowNS: int64(d.Now), Events: d.Events, Command: d.Command, Logged: orNull(d.Logged), Replayed: orNull(d.Replayed),
				LoggedCommands: d.LoggedCommands, ReplayedCommands: d.ReplayedCommands}
		}
		v.Repeats = append(v.Repeats, one)
	}
	return v
}

func orNull(raw json.RawMessage) json.RawMessage {
	if raw == nil {
		return json.RawMessage("null")
	}
	return raw
}

// Limits of the output of replay: bytes of a message, and events with the same name.
const (
	mostMessage = 200
	mostEvents  = 3
)

func (v replays) text(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Run %s (%s)\n", v.Run, v.Backend)
	for _, n := range v.Notes {
		fmt.Fprintf(&b, "note: %s\n", n)
	}
	for _, r := range v.Repeats {
		name := fmt.Sprintf("%s, repeat %d", r.Arm, r.Repeat)
		d := r.Differs
		if d == nil {
			fmt.Fprintf(&b, "%s: identical: %d steps, %d commands\n", name, r.Steps, r.Commands)
			if r.Unfinished != "" {
				fmt.Fprintf(&b, "  the log ends with %s unfinished\n", r.Unfinished)
			}
			continue
		}
		fmt.Fprintf(&b, "%s: DIFFERS at step %d (line %d of the log), %.6f s, command %d, after %d identical steps and %d commands\n",
			name, d.Step, d.Step, float64(d.NowNS)/1e9, d.Command, r.Steps, r.Commands)
		b.WriteString("  preceding events:\n")
		count := map[string]int{}
		for _, ev := range d.Events {
			n, text := message(ev)
			if count[n]++; count[n] <= mostEvents {
				fmt.Fprintf(&b, "    %s\n", text)
			}
		}
		for _, ev := range d.Events { // in an order that does not change
			n, _ := message(ev)
			if more := count[n] - mostEvents; more > 0 {
				fmt.Fprintf(&b, "    and %d more %s\n", more, n)
			}
			count[n] = 0
		}
		fmt.Fprintf(&b, "  logged:   %s\n  replayed: %s\n", command(d.Logged), command(d.Replayed))
		if d.LoggedCommands != d.ReplayedCommands {
			fmt.Fprintf(&b, "  the step has %d commands in the log, %d replayed\n", d.LoggedCommands, d.ReplayedCommands)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func command(raw json.RawMessage) string {
	if bytes.Equal(raw, []byte("null")) {
		return "no command"
	}
	_, text := message(raw)
	return text
}

// message returns the name of a logged event or command, and its text.
func message(raw json.RawMessage) (name, text string) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil || len(m) != 1 {
		return "message", clip(string(raw), mostMessage) // of an edited log
	}
	for n, body := range m {
		name, text = n, n+" "+clip(string(body), mostMessage)
	}
	return name, text
}

// clip cuts a text to a number of bytes, at a rune boundary.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + fmt.Sprintf("… (%d bytes)", len(s))
}
