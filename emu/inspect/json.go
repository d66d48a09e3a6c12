package inspect

import (
	"bytes"
	"encoding/json"

	"testbed/topo/units"
)

// plainLink and plainSwitch have no methods, in particular no JSON methods.
type (
	plainLink   Link
	plainSwitch Switch
)

// linkJSON replaces text by numbers: rates in bit/s, sizes in bytes.
type linkJSON struct {
	plainLink
	Rate       int64 `json:"rate_bps"`
	Plan       int64 `json:"plan_bps"`
	Sent       int64 `json:"sent_bytes"`
	Throughput int64 `json:"throughput_bps"`
	Backlog    int64 `json:"backlog_bytes"`
	Limit      int64 `json:"queue_limit_bytes"`
	PlanLimit  int64 `json:"queue_plan_bytes"`
}

type switchJSON struct {
	plainSwitch
	In      int64 `json:"in_bps"`
	Out     int64 `json:"out_bps"`
	Backlog int64 `json:"backlog_bytes"`
}

// MarshalJSON writes rates in bit/s and sizes in bytes, as numbers.
func (l Link) MarshalJSON() ([]byte, error) {
	return marshal(linkJSON{plainLink(l), int64(l.Rate), int64(l.Plan), int64(l.Sent), int64(l.Throughput), int64(l.Backlog), int64(l.Limit), int64(l.PlanLimit)})
}

// UnmarshalJSON is the inverse of MarshalJSON, except that ID and Kind stay unset.
func (l *Link) UnmarshalJSON(b []byte) error {
	var j linkJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*l = Link(j.plainLink)
	l.Rate, l.Plan, l.Throughput = units.Rate(j.Rate), units.Rate(j.Plan), units.Rate(j.Throughput)
	l.Sent, l.Backlog, l.Limit, l.PlanLimit = units.Bytes(j.Sent), units.Bytes(j.Backlog), units.Bytes(j.Limit), units.Bytes(j.PlanLimit)
	return nil
}

// MarshalJSON writes rates in bit/s and sizes in bytes, as numbers.
func (s Switch) MarshalJSON() ([]byte, error) {
	return marshal(switchJSON{plainSwitch(s), int64(s.In), int64(s.Out), int64(s.Backlog)})
}

// UnmarshalJSON is the inverse of MarshalJSON.
func (s *Switch) UnmarshalJSON(b []byte) error {
	var j switchJSON
	if err := json.Unmarshal(b, &j); err != nil {
		return err
	}
	*s = Switch(j.plainSwitch)
	s.In, s.Out, s.Backlog = units.Rate(j.In), units.Rate(j.Out), units.Bytes(j.Backlog)
	return nil
}

// marshal does not escape the > in names of links.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return b.Bytes(), err
}
