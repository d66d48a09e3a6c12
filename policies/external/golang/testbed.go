// Command golang is a policy of testbed in Go, for one or several roles: a process or, built for wasip1, a WebAssembly
// module. Package messages has the messages; process.go and module.go hold the conversation. An init function of another file
// sets the policy of its role.
package main

import (
	"encoding/json"
	"fmt"

	"testbed/policies/external/messages"
)

// The policies, by role.
var (
	coflows    CoflowPolicy
	tasks      TaskPolicy
	placements PlacementPolicy

	before []int64 // the capacity of the latest message that had it
)

// CoflowPolicy shares the network among coflows. What it must remember is in its fields.
type CoflowPolicy interface {
	Start(h *messages.Hello) (needs []string, when messages.Triggers)
	Decide(v *messages.View, s *messages.Schedule)
}

// TaskPolicy gives slots to tasks.
type TaskPolicy interface {
	Start(h *messages.Hello) (needs []string)
	Assign(v *messages.TaskView, a *messages.Assignment)
}

// PlacementPolicy chooses the hosts of the replicas of a block. An error is the reason why there are none.
type PlacementPolicy interface {
	Start(h *messages.Hello) (needs []string)
	Place(v *messages.PlacementView) (hosts []int, err error)
}

// answer returns the answer to a message; nil for none.
func answer(line []byte) ([]byte, error) {
	var message struct {
		Type string `json:"type"`
	}
	if err := json.Unmarshal(line, &message); err != nil {
		return nil, err
	}
	switch message.Type {
	case "hello":
		return greet(line)
	case "decide":
		v := messages.View{Moment: messages.Moment{Capacity: before}}
		if err := json.Unmarshal(line, &v); err != nil {
			return nil, err
		}
		before = v.Capacity
		s := messages.Schedule{Steps: []messages.Step{}}
		coflows.Decide(&v, &s)
		return json.Marshal(struct {
			Type string `json:"type"`
			N    int    `json:"n"`
			messages.Schedule
		}{"schedule", v.N, s})
	case "assign":
		v := messages.TaskView{Moment: messages.Moment{Capacity: before}}
		if err := json.Unmarshal(line, &v); err != nil {
			return nil, err
		}
		before = v.Capacity
		var a messages.Assignment
		tasks.Assign(&v, &a)
		return json.Marshal(struct {
			Type string `json:"type"`
			N    int    `json:"n"`
			messages.Assignment
		}{"assignment", v.N, a})
	case "place":
		v := messages.PlacementView{Moment: messages.Moment{Capacity: before}}
		if err := json.Unmarshal(line, &v); err != nil {
			return nil, err
		}
		before = v.Capacity
		hosts, err := placements.Place(&v)
		said := map[string]any{"type": "placement", "n": v.N, "hosts": hosts}
		if err != nil {
			said["error"] = err.Error()
		}
		return json.Marshal(said)
	}
	return nil, nil
}

// greet answers the first message.
func greet(line []byte) ([]byte, error) {
	var h messages.Hello
	if err := json.Unmarshal(line, &h); err != nil {
		return nil, err
	}
	said := messages.Greeting{Type: "hello", Version: messages.Version}
	switch {
	case h.Role == "coflow" && coflows != nil:
		said.Needs, said.Triggers = coflows.Start(&h)
	case h.Role == "tasks" && tasks != nil:
		said.Needs = tasks.Start(&h)
	case h.Role == "placement" && placements != nil:
		said.Needs = placements.Start(&h)
	default:
		return nil, fmt.Errorf("this program has no policy of role %q", h.Role)
	}
	return json.Marshal(said)
}
