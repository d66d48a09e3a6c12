package jobs

import (
	"bytes"
	"strings"

	"testbed/topo/magic"
	"testbed/workloads"
)

// Format is a format of text that this program reads, and the command that takes it.
type Format struct{ Name, Command string }

// The formats, by what the files contain.
var (
	FormatScenario = Format{"a scenario", "testbed validate"}
	FormatWorkload = Format{"a workload file", "testbed workload info"}
	FormatJobs     = Format{"a job file", "testbed workload jobs info"}
	FormatSWIM     = Format{"a SWIM trace", "testbed workload jobs derive"}
	FormatTrace    = Format{"a coflow trace", "testbed trace info"}
)

// Recognise returns the format of a file that begins with head; ok is false if that is uncertain.
func Recognise(head []byte) (_ Format, ok bool) {
	head, err := magic.Plain(head)
	switch {
	case err != nil:
		return Format{}, false
	case workloads.IsWorkload(head):
		return FormatWorkload, true
	case IsJobFile(head):
		return FormatJobs, true
	case isScenario(head):
		return FormatScenario, true
	case workloads.IsTrace(head):
		return FormatTrace, true
	case IsSWIM(head) && strings.ContainsAny(strings.ToLower(string(head)), "abcdefghijklmnopqrstuvwxyz"):
		return FormatSWIM, true
	}
	return Format{}, false
}

// isScenario reports whether a line begins with a key that only scenarios have.
func isScenario(head []byte) bool {
	for line := range bytes.Lines(head) {
		line = bytes.TrimLeft(line, "{\"' \t")
		if bytes.HasPrefix(line, []byte("fabric:")) || bytes.HasPrefix(line, []byte(`fabric":`)) {
			return true
		}
	}
	return false
}
