package engine

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"time"
)

// A Log is a stream of JSON lines, one a step:
//
//	{"t":1500000000,"events":[{"TransferFinished":{"Flow":3}}],"commands":[…]}
//
// with t in nanoseconds since the start of the run. It is written as the run
// goes and holds all that Replay needs.
type Log struct {
	w *bufio.Writer
}

// NewLog writes a log to w. The caller calls Flush at the end.
func NewLog(w io.Writer) *Log { return &Log{bufio.NewWriterSize(w, 1<<16)} }

type logLine struct {
	T        time.Duration     `json:"t"`
	Events   []json.RawMessage `json:"events"`
	Commands []json.RawMessage `json:"commands,omitempty"`
}

// Observe is an Observer that appends one line.
func (l *Log) Observe(now time.Duration, evs []Event, cmds []Command) error {
	line := logLine{T: now}
	for _, ev := range evs {
		raw, err := tagged(ev)
		if err != nil {
			return err
		}
		line.Events = append(line.Events, raw)
	}
	for _, c := range cmds {
		raw, err := tagged(c)
		if err != nil {
			return err
		}
		line.Commands = append(line.Commands, raw)
	}
	b, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("log of events: %w", err)
	}
	if _, err := l.w.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("log of events: %w", err)
	}
	return nil
}

// Flush writes what is buffered.
func (l *Log) Flush() error { return l.w.Flush() }

func tagged(v any) (json.RawMessage, error) {
	b, err := json.Marshal(map[string]any{reflect.TypeOf(v).Name(): v})
	if err != nil {
		return nil, fmt.Errorf("log of events: %T: %w", v, err)
	}
	return b, nil
}

// untag decodes an event by its name.
func untag(raw json.RawMessage) (Event, error) {
	var m map[string]json.RawMessage
	if err := json.Unmarshal(raw, &m); err != nil {
		return nil, err
	}
	for name, body := range m {
		switch name {
		case "CoflowArrived":
			return decode[CoflowArrived](body)
		case "WriterArrived":
			return decode[WriterArrived](body)
		case "TransferProgressed":
			return decode[TransferProgressed](body)
		case "TransferFinished":
			return decode[TransferFinished](body)
		case "BlockDurable":
			return decode[BlockDurable](body)
		case "Heartbeat":
			return decode[Heartbeat](body)
		case "LinkChanged":
			return decode[LinkChanged](body)
		case "PathChanged":
			return decode[PathChanged](body)
		case "HostLost":
			return decode[HostLost](body)
		case "HostBack":
			return decode[HostBack](body)
		case "TransferFailed":
			return decode[TransferFailed](body)
		case "ReplicaLost":
			return decode[ReplicaLost](body)
		case "BlockFailed":
			return decode[BlockFailed](body)
		default:
			return nil, fmt.Errorf("unknown event %q", name)
		}
	}
	return nil, fmt.Errorf("empty event")
}

func decode[E Event](body json.RawMessage) (Event, error) {
	var ev E
	err := json.Unmarshal(body, &ev)
	return ev, err
}

// Replay steps e through the events of a log and compares its commands with the
// logged ones. The error names the first line that differs.
func Replay(r io.Reader, e *Engine) (steps int, err error) {
	dec := json.NewDecoder(r)
	for {
		var line logLine
		if err := dec.Decode(&line); err == io.EOF {
			return steps, nil
		} else if err != nil {
			return steps, fmt.Errorf("log line %d: %w", steps+1, err)
		}
		steps++
		evs := make([]Event, 0, len(line.Events))
		for _, raw := range line.Events {
			ev, err := untag(raw)
			if err != nil {
				return steps, fmt.Errorf("log line %d: %w", steps, err)
			}
			evs = append(evs, ev)
		}
		cmds, err := e.Step(line.T, evs...)
		if err != nil {
			return steps, fmt.Errorf("log line %d: %w", steps, err)
		}
		if len(cmds) != len(line.Commands) {
			return steps, fmt.Errorf("log line %d: %d commands, logged %d", steps, len(cmds), len(line.Commands))
		}
		for i, c := range cmds {
			got, err := tagged(c)
			if err != nil {
				return steps, err
			}
			if string(got) != string(line.Commands[i]) {
				return steps, fmt.Errorf("log line %d, command %d: %s, logged %s", steps, i+1, got, line.Commands[i])
			}
		}
	}
}
