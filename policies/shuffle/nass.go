package shuffle

// Tasks is what one job of a user has to run on a host with free slots.
type Tasks struct {
	Class Class
	// Map and Reduce report whether it has a pending task of the kind, and a slot is free for it.
	Map, Reduce bool
	LocalMap    bool // a map whose input the host stores
	MapRack     bool // the host's rack is one that SAMP prefers for the maps
	ReduceRack  bool // SARP prefers the host's rack for one more reduce
}

// Pick is a choice of NASS.
type Pick struct {
	Job    int // index in the list; -1 for none
	Reduce bool
	Row    int // of the table, from 1: why it was chosen
}

// row is a row of the tables: the first job of the user that has such a task gets the slot.
type row struct {
	reduce bool
	fits   func(t Tasks, head bool) bool
}

// The rows. The last row of both tables is any task, maps first.
var (
	preferredMap    = row{false, func(t Tasks, _ bool) bool { return t.Map && t.MapRack }}
	localMap        = row{false, func(t Tasks, _ bool) bool { return t.Map && t.LocalMap }}
	lightReduce     = row{true, func(t Tasks, _ bool) bool { return t.Reduce && t.Class == Light }}
	heavyReduce     = row{true, func(t Tasks, _ bool) bool { return t.Reduce && t.Class == Heavy }}
	preferredReduce = row{true, func(t Tasks, _ bool) bool { return t.Reduce && t.ReduceRack }}
	headReduce      = row{true, func(t Tasks, head bool) bool { return t.Reduce && head }}

	saturatedRows = []row{mapRow - 1: preferredMap, localMap, lightReduce, preferredReduce, headReduce}
	freeRows      = []row{preferredReduce, heavyReduce, headReduce, freeMapRow - 1: preferredMap, localMap}
)

const mapRow, freeMapRow = 1, 4

func table(saturated bool) []row {
	if saturated {
		return saturatedRows
	}
	return freeRows
}

// MapRow returns the row of maps that SAMP prefers.
func MapRow(saturated bool) int {
	if saturated {
		return mapRow
	}
	return freeMapRow
}

// NASS chooses a task of a user (ShuffleWatcher, Network-Aware Shuffle Scheduling): on a saturated network
// maps come first and reduces with much shuffle wait, otherwise the opposite. The jobs of the user are in the
// order of their queue. As long as any of them has a task, NASS chooses one: slots do not stay idle.
func NASS(jobs []Tasks, saturated bool) Pick {
	for i, r := range table(saturated) {
		for j, t := range jobs {
			if r.fits(t, j == 0) {
				return Pick{j, r.reduce, i + 1}
			}
		}
	}
	for j, t := range jobs {
		if t.Map || t.Reduce {
			return Pick{j, !t.Map, LastRow}
		}
	}
	return Pick{Job: -1}
}

// LastRow is the row of both tables that is any task of the user.
const LastRow = 6
