// Package messages has the messages between testbed and a policy outside of it, as Go types. A policy in Go has a copy.
//
// Times are in nanoseconds, sizes in bytes, rates in bit/s. What a policy does not need is 0 or empty.
//
// It holds no conversation.
package messages

import (
	"encoding/json"
	"time"
)

// Version is the version of the messages.
const Version = 2

// Hello is the first message.
type Hello struct {
	Type       string          `json:"type"`
	Version    int             `json:"version"`
	Role       string          `json:"role"`
	Parameters json.RawMessage `json:"parameters"` // of the scenario
	Seed       uint64          `json:"seed"`
	Fabric     Fabric          `json:"fabric"`
}

// Fabric is the network.
type Fabric struct {
	Hosts     int    `json:"hosts"`
	Racks     int    `json:"racks"`
	HostRacks []int  `json:"host_racks"`
	Links     []Link `json:"links"`
}

// Link is a link of the fabric, which other messages name by its index.
type Link struct {
	Name string `json:"name"`
	Rate int64  `json:"rate"`
}

// Greeting is the answer to Hello.
type Greeting struct {
	Type     string   `json:"type"`
	Version  int      `json:"version"`
	Needs    []string `json:"needs"`
	Views    string   `json:"views,omitempty"`
	Triggers Triggers `json:"triggers,omitzero"` // of a policy of coflows
}

// Triggers selects the events that cause a decision.
type Triggers struct {
	Coflows bool          `json:"coflows"` // a coflow arrives or ends
	Flows   bool          `json:"flows"`   // a flow ends
	Pilots  bool          `json:"pilots"`  // the last pilot flow of a coflow ends
	Every   time.Duration `json:"every"`   // the interval of decisions; 0 for none
}

// Moment is what all views have.
type Moment struct {
	N        int     `json:"n"`
	Now      int64   `json:"now"`
	Capacity []int64 `json:"capacity"` // by link; 0 if it is down
}

// View is the state that a coflow policy sees.
type View struct {
	Moment
	Coflows []Coflow `json:"coflows"` // by arrival, ties by ID
}

// Coflow is an unfinished coflow. Its lists by link are parallel to Links.
type Coflow struct {
	ID            int64             `json:"id"`
	Arrival       int64             `json:"arrival"`
	Width         int               `json:"width"`
	Senders       int               `json:"senders"`
	Receivers     int               `json:"receivers"`
	Left          int               `json:"left"`
	Sent          int64             `json:"sent"`
	MostSent      int64             `json:"most_sent"`
	Queue         int               `json:"queue"`
	Since         int64             `json:"since"`
	Finished      int               `json:"finished"`
	Median        int64             `json:"median"`
	Pilots        int               `json:"pilots"`
	PilotsLeft    int               `json:"pilots_left"`
	PilotSent     int64             `json:"pilot_sent"`
	Size          int64             `json:"size"`
	Largest       int64             `json:"largest"`
	Remaining     int64             `json:"remaining"`
	Bound         int64             `json:"bound"`
	Links         []int             `json:"links"`
	LinkFlows     []int             `json:"link_flows"`
	LinkRemaining []int64           `json:"link_remaining"`
	LinkPilots    []int             `json:"link_pilots"`
	IdleLinks     []int             `json:"idle_links"`
	Flows         []json.RawMessage `json:"flows"` // rows [id, src, dst, pilot, sent, size, remaining, [links]]
}

// Schedule is a decision for coflows. Coflows are indices into View.Coflows.
type Schedule struct {
	Steps     []Step        `json:"steps"`
	Budgets   []float64     `json:"budgets,omitempty"`
	Queues    []int         `json:"queues,omitempty"`
	Watch     []int64       `json:"watch,omitempty"`
	WatchMost []int64       `json:"watch_most,omitempty"`
	Pilots    []int         `json:"pilots,omitempty"` // IDs of flows
	Wake      time.Duration `json:"wake,omitempty"`
}

// Step serves coflows, in order, by a rule.
type Step struct {
	Rule    string        `json:"rule"`
	Coflows []int         `json:"coflows"`
	Part    string        `json:"part,omitempty"`
	Only    string        `json:"only,omitempty"`
	Budget  int           `json:"budget,omitempty"`
	Within  time.Duration `json:"within,omitempty"`
	Rates   []Rate        `json:"rates,omitempty"`
}

// Rate is the rate of a flow, for rule explicit.
type Rate struct {
	Flow int     `json:"flow"`
	Rate float64 `json:"rate"`
}

// Cluster is what the master knows of hosts and racks. A list is empty if all its numbers are 0.
type Cluster struct {
	Lost         []int   `json:"lost"` // by host, as up to NextReport
	Disk         []int64 `json:"disk"`
	Used         []int64 `json:"used"`
	Writing      []int   `json:"writing"`
	Rx           []int64 `json:"rx"`
	Tx           []int64 `json:"tx"`
	LastReport   []int64 `json:"last_report"`
	NextReport   []int64 `json:"next_report"`
	RackRx       []int64 `json:"rack_rx"` // by rack, as up to Zone
	RackTx       []int64 `json:"rack_tx"`
	RackReceived []int64 `json:"rack_received"`
	RackSent     []int64 `json:"rack_sent"`
	Zone         []int   `json:"zone"`
	DiskRate     int64   `json:"disk_rate"`
}

// Kinds of tasks and slots, and localities of their input.
const (
	Map, Reduce                   = 0, 1
	NodeLocal, RackLocal, OffRack = 0, 1, 2
)

// TaskView is the state at a heartbeat of a host.
type TaskView struct {
	Moment
	Cluster
	Host  int     `json:"host"`
	Slots []Slots `json:"slots"` // of this host, or of all with the need "slots"
	Jobs  []Job   `json:"jobs"`  // by submission, ties by ID
}

// Own returns the slots of the host.
func (v *TaskView) Own() *Slots {
	if len(v.Slots) == 1 {
		return &v.Slots[0]
	}
	return &v.Slots[v.Host]
}

// Slots is the use of a host by tasks. Capacities are 0, and space is negative, if there is no limit.
type Slots struct {
	Total          [2]int  `json:"total"` // by kind
	Used           [2]int  `json:"used"`
	CPU            float64 `json:"cpu"`
	Memory         int64   `json:"memory"`
	CPUCapacity    float64 `json:"cpu_capacity"`
	MemoryCapacity int64   `json:"memory_capacity"`
	Space          int64   `json:"space"`
	Committed      int     `json:"committed"`
	CommittedTime  int64   `json:"committed_time"`
	Lost           int     `json:"lost"`
}

// Fits reports whether one more task of a stage fits.
func (s *Slots) Fits(st *Stage) bool {
	const rounding = 1e-9
	return s.Lost == 0 && s.Used[st.Kind] < s.Total[st.Kind] &&
		(s.CPUCapacity <= 0 || s.CPU+st.CPU <= s.CPUCapacity*(1+rounding)) &&
		(s.MemoryCapacity <= 0 || s.Memory+st.Memory <= s.MemoryCapacity) &&
		(st.Output == 0 || s.Space < 0 || st.Output <= s.Space)
}

// Take counts one more task of a stage.
func (s *Slots) Take(st *Stage) {
	s.Used[st.Kind]++
	s.CPU += st.CPU
	s.Memory += st.Memory
}

// Job is an unfinished job.
type Job struct {
	ID           int64             `json:"id"`
	User         string            `json:"user"`
	Priority     int               `json:"priority"`
	Profile      string            `json:"profile"`
	Submit       int64             `json:"submit"`
	Input        int64             `json:"input"`
	Stages       []Stage           `json:"stages"`
	Attempts     []json.RawMessage `json:"attempts"` // rows, as in testbed schema --messages
	Intermediate []int64           `json:"intermediate"`
	RackMaps     []int             `json:"rack_maps"`
	RackReduces  []int             `json:"rack_reduces"`
	Blocks       []json.RawMessage `json:"blocks"` // rows [size, [racks]]
}

// Stage is a stage of a job.
type Stage struct {
	Kind      int     `json:"kind"`
	Tasks     int     `json:"tasks"`
	Done      int     `json:"done"`
	Running   int     `json:"running"`
	Pending   [3]int  `json:"pending"` // by locality on the host of the heartbeat
	Waiting   int     `json:"waiting"`
	CPU       float64 `json:"cpu"`
	Memory    int64   `json:"memory"`
	Output    int64   `json:"output"`
	Anywhere  int     `json:"anywhere"`
	Outputs   int     `json:"outputs"`
	Read      int64   `json:"read"`
	Busy      int64   `json:"busy"`
	Consumed  int64   `json:"consumed"`
	Produced  int64   `json:"produced"`
	Durations []int64 `json:"durations"`
}

// Assignment is a decision at a heartbeat. Jobs are indices into TaskView.Jobs.
type Assignment struct {
	Launch []Launch  `json:"launch,omitempty"`
	Backup []Attempt `json:"backup,omitempty"`
	Kill   []Attempt `json:"kill,omitempty"`
}

// Launch starts the pending task of a stage at a locality that has the lowest index.
type Launch struct {
	Job      int `json:"job"`
	Stage    int `json:"stage"`
	Locality int `json:"locality"`
}

// Attempt is an attempt of a task, or a task for a backup.
type Attempt struct {
	Job   int `json:"job"`
	Stage int `json:"stage"`
	Index int `json:"index"`
	N     int `json:"n"`
}

// PlacementView is the state at a request to place a block.
type PlacementView struct {
	Moment
	Cluster
	Block struct {
		ID       int64 `json:"id"`
		Client   int   `json:"client"` // the writer
		Size     int64 `json:"size"`
		Replicas int   `json:"replicas"`
	} `json:"block"`
	LargestBlock int64  `json:"largest_block"`
	Seed         uint64 `json:"seed"` // of the block's random draws, the same under every policy
	Placements   []struct {
		At     int64 `json:"at"`
		Client int   `json:"client"`
		Size   int64 `json:"size"`
		Hosts  []int `json:"hosts"`
	} `json:"placements"`
}

// At returns the value of a host or rack in a list, which is empty if all are 0.
func At[N int | int64](list []N, i int) N {
	if len(list) == 0 {
		return 0
	}
	return list[i]
}
