package metrics

import (
	"cmp"
	"slices"
	"strings"

	"testbed/results/flows"
)

// Time is a kind of completion time. Reports, pages, plots, comparisons and calibrations of noise show all kinds. Each is
// a field of summary.Declared with its key and a case of rundir.Run.Sized.
type Time struct {
	Key    string // in summary.json
	Title  string // in headings
	Abbrev string // the title's abbreviation, "" for none
	Noun   string // an item, its plural with an s
	Items  func(repeat int, r flows.Records) []Item
}

// Times returns all kinds of completion times, in the order in which they are shown.
func Times() []Time {
	return []Time{
		{"cct", "Coflow completion time", "CCT", "coflow", CCTs},
		{"fct", "Flow completion time", "FCT", "flow", FCTs},
		{"write_time", "Block write time", "", "block", WriteTimes},
		{"request_time", "Write request time", "", "write request", RequestTimes},
		{"job_time", "Job time", "", "job", JobTimes},
	}
}

// TimeOf returns the kind with a key; false if there is none.
func TimeOf(key string) (Time, bool) {
	all := Times()
	i := slices.IndexFunc(all, func(t Time) bool { return t.Key == key })
	if i < 0 {
		return Time{}, false
	}
	return all[i], true
}

// Short returns the abbreviation or the title, for sentences.
func (t Time) Short() string { return cmp.Or(t.Abbrev, strings.ToLower(t.Title)) }

// Heading returns the title with its abbreviation.
func (t Time) Heading() string {
	if t.Abbrev == "" {
		return t.Title
	}
	return t.Title + " (" + t.Abbrev + ")"
}
