package engine

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"time"

	"testbed/policies"
	"testbed/topo/units"
	"testbed/workloads"
)

// A Log is a stream of JSON lines, one per step:
//
//	{"format":3,"t":1500000000,"events":[{"TransferFinished":{"Flow":3}}],"commands":[…]}
//
// with t in nanoseconds since the start of the run. Only the first line states the format
// (LogFormat). Heartbeats are written in rows. {"Heartbeats":{"From":5,"Rx":[0,120],"Tx":[88,0]}} is about
// host 5 and the host whose heartbeat followed that of host 5 the last time, host 6 at first. It holds the
// increase of their counters in bytes since their previous heartbeats. Hosts report at equal intervals:
// the time between two heartbeats of a host is the same as the last time. Heartbeats with anything else are
// repeated completely in the list Whole, with their places in the row in the list Places. A step without
// events occurs at the engine's NextWake. The log is written during the run and holds everything that Replay
// needs.
type Log struct {
	w     *bufio.Writer
	begun bool
	line  []byte
	beats beats
}

// LogFormat is the version of the format of logs.
const LogFormat = 3

// NewLog writes a log to w. The caller calls Flush at the end.
func NewLog(w io.Writer) *Log { return &Log{w: bufio.NewWriterSize(w, 1<<16)} }

type logLine struct {
	Format   int               `json:"format"` // 0 except on the first line
	T        time.Duration     `json:"t"`
	Events   []json.RawMessage `json:"events"`
	Commands []json.RawMessage `json:"commands,omitempty"`
}

// Observe is an Observer that appends one line.
func (l *Log) Observe(now time.Duration, evs []Event, cmds []Command) error {
	b := append(l.line[:0], '{')
	if !l.begun {
		b = append(strconv.AppendInt(append(b, `"format":`...), LogFormat, 10), ',')
	}
	l.begun = true
	b = append(b, `"t":`...)
	b = strconv.AppendInt(b, int64(now), 10)
	b = append(b, `,"events":[`...)
	var err error
	for i := 0; i < len(evs); i++ {
		if i > 0 {
			b = append(b, ',')
		}
		if hb, ok := evs[i].(Heartbeat); ok && hb.Host >= 0 {
			var n int
			b, n = l.beats.append(b, now, evs[i:])
			i += n - 1
			continue
		}
		if b, err = appendTagged(b, evs[i]); err != nil {
			return err
		}
	}
	b = append(b, ']')
	for i, c := range cmds {
		if i == 0 {
			b = append(b, `,"commands":[`...)
		} else {
			b = append(b, ',')
		}
		if b, err = appendTagged(b, c); err != nil {
			return err
		}
	}
	if len(cmds) > 0 {
		b = append(b, ']')
	}
	l.line = append(b, '}', '\n')
	if _, err := l.w.Write(l.line); err != nil {
		return fmt.Errorf("log of events: %w", err)
	}
	return nil
}

// Flush writes buffered data.
func (l *Log) Flush() error { return l.w.Flush() }

// appendTagged appends the JSON encoding of a message with its name. Messages that occur
// thousands of times in a step are encoded by hand, because the run waits for its log.
func appendTagged(b []byte, v any) ([]byte, error) {
	switch v := v.(type) {
	case SetCeiling:
		b = append(b, `{"SetCeiling":{"Flow":`...)
		b = strconv.AppendInt(b, int64(v.Flow), 10)
		b = append(b, `,"Ceiling":"`...)
		b, _ = v.Ceiling.AppendText(b)
		return append(b, `"}}`...), nil
	case TransferFinished:
		b = append(b, `{"TransferFinished":{"Flow":`...)
		return append(strconv.AppendInt(b, int64(v.Flow), 10), `}}`...), nil
	case Heartbeat:
		return append(appendHeartbeat(append(b, `{"Heartbeat":`...), v), '}'), nil
	case RackReport:
		b = append(b, `{"RackReport":{"Rack":`...)
		b = strconv.AppendInt(b, int64(v.Rack), 10)
		b = appendCounters(b, v.Rx, v.Tx, v.Made, v.At)
		return append(b, `}}`...), nil
	case LinkLoads:
		if v.Rates == nil {
			break // null
		}
		b = appendTexts(append(b, `{"LinkLoads":{"Rates":`...), v.Rates)
		return append(b, `}}`...), nil
	case TransferProgressed:
		if v.Flows == nil || v.Received == nil {
			break // null
		}
		b = appendInts(append(b, `{"TransferProgressed":{"Flows":`...), v.Flows)
		b = appendTexts(append(b, `,"Received":`...), v.Received)
		return append(b, `}}`...), nil
	}
	raw, err := json.Marshal(v)
	if err != nil {
		return b, fmt.Errorf("log of events: %T: %w", v, err)
	}
	b = append(append(append(b, `{"`...), reflect.TypeOf(v).Name()...), `":`...)
	return append(append(b, raw...), '}'), nil
}

func appendHeartbeat(b []byte, hb Heartbeat) []byte {
	b = append(b, `{"Host":`...)
	b = strconv.AppendInt(b, int64(hb.Host), 10)
	b = appendCounters(b, hb.Rx, hb.Tx, hb.Made, hb.At)
	if d := hb.Disk; d != nil {
		b = append(b, `,"Disk":{"Used":"`...)
		b, _ = d.Used.AppendText(b)
		b = append(b, '"')
		b = appendBlocks(b, `,"Writing":`, d.Writing)
		b = appendBlocks(b, `,"Ended":`, d.Ended)
		b = append(b, '}')
	}
	return append(b, '}')
}

// appendCounters appends the common fields of the reports of hosts and leaves.
func appendCounters(b []byte, rx, tx units.Bytes, made, at time.Duration) []byte {
	b = append(b, `,"Rx":"`...)
	b, _ = rx.AppendText(b)
	b = append(b, `","Tx":"`...)
	b, _ = tx.AppendText(b)
	b = append(b, '"')
	if made != 0 {
		b = append(b, `,"Made":`...)
		b = strconv.AppendInt(b, int64(made), 10)
	}
	if at != 0 {
		b = append(b, `,"At":`...)
		b = strconv.AppendInt(b, int64(at), 10)
	}
	return b
}

func appendBlocks(b []byte, key string, ids []workloads.BlockID) []byte {
	if len(ids) == 0 {
		return b
	}
	return appendInts(append(b, key...), ids)
}

// appendList appends a list, each element by a function.
func appendList[E any](b []byte, all []E, each func([]byte, E) []byte) []byte {
	b = append(b, '[')
	for i, x := range all {
		if i > 0 {
			b = append(b, ',')
		}
		b = each(b, x)
	}
	return append(b, ']')
}

func appendInts[N ~int | ~int64](b []byte, all []N) []byte {
	return appendList(b, all, func(b []byte, n N) []byte { return strconv.AppendInt(b, int64(n), 10) })
}

// appendTexts appends a list of strings.
func appendTexts[T encoding.TextAppender](b []byte, all []T) []byte {
	return appendList(b, all, func(b []byte, x T) []byte {
		b, _ = x.AppendText(append(b, '"'))
		return append(b, '"')
	})
}

// untag decodes an event of a step at the time now by its name, or a row of heartbeats.
func untag(evs []Event, raw json.RawMessage, now time.Duration, latest *beats, hosts int) ([]Event, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, err
	}
	if len(m) > 1 {
		return nil, fmt.Errorf("event with %d names: must have one", len(m))
	}
	if body, ok := m["Heartbeats"]; ok {
		return latest.read(evs, body, now, hosts)
	}
	ev, err := untagOne(m)
	if hb, ok := ev.(Heartbeat); ok && hb.Host >= 0 && int(hb.Host) < hosts { // the engine reports an unknown host
		latest.note(&hb, cmp.Or(hb.At, now))
	}
	return append(evs, ev), err
}

// untagOne decodes the only event of a map by name.
func untagOne(m map[string]json.RawMessage) (Event, error) {
	known := events()
	for name, body := range m {
		at := slices.IndexFunc(known, func(ev Event) bool { return reflect.TypeOf(ev).Name() == name })
		if at < 0 {
			return nil, fmt.Errorf("unknown event %q", name)
		}
		ev := reflect.New(reflect.TypeOf(known[at]))
		err := json.Unmarshal(body, ev.Interface())
		return ev.Elem().Interface().(Event), err
	}
	return nil, fmt.Errorf("empty event")
}

// events returns an event of each type.
func events() []Event {
	return []Event{
		CoflowArrived{}, WriterArrived{}, ReaderArrived{}, JobArrived{}, TaskComputed{},
		TaskProgressed{}, OutputSpilled{}, TaskFailed{}, TransferProgressed{}, TransferFinished{},
		BlockDurable{}, Heartbeat{}, RackReport{}, LinkLoads{}, LinkChanged{},
		PathChanged{}, HostLost{}, HostBack{}, TransferFailed{}, ReplicaLost{},
		BlockFailed{},
	}
}

// Replayed is the result of a replay.
type Replayed struct {
	Steps    int // number of compared steps without a difference
	Commands int // number of their commands
	// Differs is the first step with a difference; nil if there is none.
	Differs *Difference
	// Unfinished describes the unfinished work at the end of the log; "" if there is none.
	Unfinished string
}

// Difference is a step at which the engine's decision differs from the log.
type Difference struct {
	Step    int           // from 1; also the line of the log
	Now     time.Duration // since the start of the run
	Events  []json.RawMessage
	Command int // index in the step, from 1
	// Logged and Replayed are the command in the log and in the replay, nil if missing.
	Logged, Replayed json.RawMessage
	// Numbers of commands in the step.
	LoggedCommands, ReplayedCommands int
}

// LogError is a log that cannot be read or that no engine can have written: truncated,
// damaged, or with an event that the engine rejects.
type LogError struct {
	Line int // from 1
	Err  error
}

func (e *LogError) Error() string { return fmt.Sprintf("log line %d: %v", e.Line, e.Err) }

func (e *LogError) Unwrap() error { return e.Err }

// Replay steps e through the events of a log and compares its commands with the logged ones,
// up to the first difference. The error is a *LogError, a read error, or that of the
// context. The result of the comparison so far is returned with it.
func Replay(ctx context.Context, r io.Reader, e *Engine) (Replayed, error) {
	var out Replayed
	lines := bufio.NewReaderSize(r, 1<<16)
	var latest beats
	for number := 1; ; number++ {
		if ctx.Err() != nil {
			return out, fmt.Errorf("log line %d: %w", number, context.Cause(ctx))
		}
		text, err := lines.ReadBytes('\n')
		if err == io.EOF && len(text) == 0 {
			if !e.Idle() {
				out.Unfinished = e.Unfinished()
			}
			return out, nil
		}
		if err == io.EOF {
			return out, &LogError{number, fmt.Errorf("cut off after %d bytes, the lines before it are whole: what wrote it was killed, or the file was not copied to its end", len(text))}
		}
		if err != nil {
			return out, fmt.Errorf("log line %d: %w", number, err)
		}
		d, n, err := replayLine(text, number, e, &latest)
		if err != nil {
			return out, &LogError{number, err}
		}
		if d != nil {
			d.Step = number
			out.Differs = d
			return out, nil
		}
		out.Steps++
		out.Commands += n
	}
}

// answered passes the answers of processes outside of the program to their policies.
func (e *Engine) answered(cmds []json.RawMessage) error {
	by := map[Role]policies.Replayer{}
	for role, policy := range map[Role]any{CoflowRole: e.control.Policy, PlacementRole: e.cfg.Placement, TaskRole: e.tasks.instance()} {
		if p, ok := policy.(policies.Replayer); ok {
			by[role] = p
		}
	}
	if len(by) == 0 {
		return nil
	}
	for i, raw := range cmds {
		var c struct{ Decided *Decided }
		if err := json.Unmarshal(raw, &c); err != nil {
			return fmt.Errorf("command %d: %w", i+1, err)
		}
		if c.Decided == nil {
			continue
		}
		if by[c.Decided.Role] == nil {
			return fmt.Errorf("command %d: decision of a process for role %q, which has none", i+1, c.Decided.Role)
		}
		by[c.Decided.Role].Replay(c.Decided.Answer, c.Decided.Latency)
	}
	return nil
}

// replayLine replays one step and returns its number of commands.
func replayLine(text []byte, number int, e *Engine, latest *beats) (*Difference, int, error) {
	var line logLine
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&line); err != nil {
		return nil, 0, fmt.Errorf("not a step: %w", err)
	}
	if rest, err := io.ReadAll(dec.Buffered()); err != nil || len(bytes.TrimSpace(rest)) > 0 {
		return nil, 0, fmt.Errorf("not a step: more after it, from byte %d of the line", dec.InputOffset()+1)
	}
	if want := LogFormat; number > 1 && line.Format != 0 || number == 1 && line.Format != want {
		return nil, 0, fmt.Errorf("format %d: this version replays logs of format %d, which only the first line states (use the version that made the run)", line.Format, want)
	}
	if len(line.Events) == 0 && line.T < e.NextWake() {
		return nil, 0, errors.New("not a step: it has no events, and nothing is due")
	}
	evs := make([]Event, 0, len(line.Events))
	for i, raw := range line.Events {
		var err error
		if evs, err = untag(evs, raw, line.T, latest, len(e.hosts)); err != nil {
			return nil, 0, fmt.Errorf("event %d: %w", i+1, err)
		}
	}
	if err := e.answered(line.Commands); err != nil {
		return nil, 0, err
	}
	cmds, err := e.Step(line.T, evs...)
	if err != nil {
		return nil, 0, fmt.Errorf("the engine refuses the step: %w", err)
	}
	for i := range max(len(cmds), len(line.Commands)) {
		d := &Difference{Now: line.T, Events: line.Events, Command: i + 1, LoggedCommands: len(line.Commands), ReplayedCommands: len(cmds)}
		if i < len(cmds) {
			if d.Replayed, err = appendTagged(nil, cmds[i]); err != nil {
				return nil, 0, err
			}
		}
		if i < len(line.Commands) {
			d.Logged = line.Commands[i]
		}
		if !bytes.Equal(d.Logged, d.Replayed) {
			return d, 0, nil
		}
	}
	return nil, len(cmds), nil
}
