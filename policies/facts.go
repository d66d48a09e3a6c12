package policies

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"testbed/topo/words"
)

// Facts is a set of facts, such as what a policy needs to know. What a policy does not name is hidden from it, so that it
// cannot be clairvoyant by accident.
type Facts uint32

// The facts, which AllFacts describes. Sizes, MostSent, Flows and OracleRatio include others.
const (
	Totals Facts = 1 << iota
	Progress
	Links
	NewFlows
	PilotFlows
	LinkLoad
	DiskUse
	OracleLoad
	EveryHeartbeat
	Slots
	Attempts
	TaskProgress
	TaskHistory
	Shuffle
	Sizes       = 1<<iota | Totals | Progress
	MostSent    = 1<<iota | Progress
	Flows       = 1<<iota | NewFlows | PilotFlows
	OracleRatio = 1<<iota | Shuffle
)

// Fact describes a fact.
type Fact struct {
	Set  Facts  // the fact, with those that it includes
	Name string // in messages and files
	// Roles are the roles whose policies outside of the program can know it.
	Roles []string
	Doc   string // what it shows
}

// AllFacts returns all facts.
func AllFacts() []Fact {
	const coflow, tasks, placement = "coflow", "tasks", "placement"
	return []Fact{
		{Progress, "progress", []string{coflow}, "bytes that coflows and their flows have sent, and the links on which they have"},
		{Links, "links", []string{coflow}, "links of unfinished flows, and the numbers of flows on each"},
		{Totals, "totals", []string{coflow}, "size of a coflow and of its largest flow, and its minimum completion time alone"},
		{Sizes, "sizes", []string{coflow}, "totals and progress, sizes of flows, and remaining bytes, also on each link"},
		{MostSent, "most_sent", []string{coflow}, "progress, and the most bytes that one flow of a coflow has sent"},
		{NewFlows, "new_flows", []string{coflow}, "flows of a coflow, at the first decision with it"},
		{PilotFlows, "pilot_flows", []string{coflow}, "unfinished pilot flows"},
		{Flows, "flows", []string{coflow}, "all unfinished flows"},
		{LinkLoad, "link_load", []string{tasks, placement}, "loads of hosts and racks as they report them, and blocks placed since"},
		{DiskUse, "disk_use", []string{placement}, "bytes stored on each host, and replicas in progress"},
		{EveryHeartbeat, "every_heartbeat", []string{tasks}, "also heartbeats at which nothing can be launched"},
		{Slots, "slots", []string{tasks}, "slots of all hosts, and not only of the one of the heartbeat"},
		{Attempts, "attempts", []string{tasks}, "running attempts of each job"},
		{TaskProgress, "task_progress", []string{tasks}, "progress of attempts, and durations of ended ones"},
		{TaskHistory, "task_history", nil, "what the master has observed of ended attempts"},
		{Shuffle, "shuffle", []string{tasks}, "places of the data of each job"},
		{OracleRatio, "oracle_ratio", nil, "shuffle, and the output of maps relative to their input, which no real master knows before"},
		{OracleLoad, "oracle_load", nil, "current load of each link, which no real master knows"},
	}
}

// Has reports whether the set includes all of other.
func (f Facts) Has(other Facts) bool { return f&other == other }

// Lacks returns the names of the facts of other that the set does not include.
func (f Facts) Lacks(other Facts) (names []string) {
	for _, x := range AllFacts() {
		if other.Has(x.Set) && !f.Has(x.Set) {
			names = append(names, x.Name)
		}
	}
	return names
}

// String returns the names of the facts.
func (f Facts) String() string { return strings.Join(Facts(0).Lacks(f), ", ") }

// NamedFacts returns facts by name: those that policies of a role outside of the program can know, or any if role is "".
func NamedFacts(role string, names []string) (f Facts, err error) {
	var known []string
	for _, x := range AllFacts() {
		if role != "" && !slices.Contains(x.Roles, role) {
			continue
		}
		if known = append(known, x.Name); slices.Contains(names, x.Name) {
			f |= x.Set
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return 0, fmt.Errorf("unknown fact %q: must be %s", name, words.Or(known))
		}
	}
	return f, nil
}

// MarshalJSON returns the list of names.
func (f Facts) MarshalJSON() ([]byte, error) { return json.Marshal(Facts(0).Lacks(f)) }

// UnmarshalJSON reads a list of names.
func (f *Facts) UnmarshalJSON(text []byte) (err error) {
	var names []string
	if err := json.Unmarshal(text, &names); err != nil {
		return err
	}
	*f, err = NamedFacts("", names)
	return err
}
