package views

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Compared compares the answers of a policy with the recorded ones.
type Compared struct {
	Recorded Header `json:"recorded"`
	Views    int    `json:"views"`
	Equal    int    `json:"equal"`
	Times
	// First is the first difference; nil if there is none.
	First *Difference `json:"first_difference,omitempty"`
}

// Difference is a view with two answers.
type Difference struct {
	N        int             `json:"n"`
	Now      time.Duration   `json:"t_ns"`
	Recorded json.RawMessage `json:"recorded"`
	Answer   json.RawMessage `json:"answer"`
	View     json.RawMessage `json:"view"` // as the message of a process
}

// Compare passes all views of a file to a policy. An error of the policy is returned with the results before it.
func Compare(ctx context.Context, r *Reader, p Policy) (out *Compared, err error) {
	if p.Role = r.Role; p.Name == "" {
		return nil, errors.New("no policy to compare with")
	}
	s, err := p.Start(ctx, r.fabric, r.Seed)
	if err != nil {
		return nil, err
	}
	defer func() {
		if closing := s.Close(); err == nil {
			err = closing
		}
	}()
	if names := r.Needs.Lacks(s.Needs); len(names) > 0 {
		return nil, fmt.Errorf("the policy needs %s, which views of %s do not show: record an arm whose policy needs the same",
			strings.Join(names, ", "), r.Policy)
	}
	out = &Compared{Recorded: r.Header}
	var times []time.Duration
	defer func() { out.Times = timesOf(times) }()
	for {
		d, err := r.Next(ctx)
		if d == nil || err != nil {
			return out, err
		}
		answer, took, err := s.Answer(d, r.Seed)
		if err != nil {
			return out, fmt.Errorf("view %d: %w", d.N, err)
		}
		if answer, err = compact(json.RawMessage(answer)); err != nil {
			return out, fmt.Errorf("view %d: %w", d.N, err)
		}
		times = append(times, took)
		if out.Views++; bytes.Equal(answer, d.Answer) {
			out.Equal++
		} else if out.First == nil {
			out.First = &Difference{d.N, d.cluster().Now, d.Answer, answer, d.Message(r.Seed)}
		}
	}
}

// Times are those of decisions, each with its conversation.
type Times struct {
	P50  time.Duration `json:"p50_ns"`
	P99  time.Duration `json:"p99_ns"`
	Most time.Duration `json:"max_ns"`
}

func timesOf(all []time.Duration) (t Times) {
	if slices.Sort(all); len(all) == 0 {
		return t
	}
	at := func(percent int) time.Duration { return all[(percent*len(all)+99)/100-1] }
	return Times{at(50), at(99), at(100)}
}
