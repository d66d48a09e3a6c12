package scenario

import (
	_ "embed"
	"time"

	"testbed/topo/units"
)

// Fault is one fault. Exactly one field is set, according to its kind.
type Fault struct {
	LinkDown  *LinkDownFault
	LinkFlap  *LinkFlapFault
	LinkRate  *LinkRateFault
	HostCrash *HostCrashFault
	SlowDisk  *SlowDiskFault
	SlowCPU   *SlowCPUFault
	SpineDown *SpineDownFault

	LostReports *LostReportsFault
	LateReports *LateReportsFault
}

// LinkDownFault cuts links: they pass nothing in either direction.
type LinkDownFault struct {
	Kind string `yaml:"kind" jsonschema:"required,enum=link-down"`
	// At is the start time of the fault.
	At time.Duration `yaml:"at" jsonschema:"required" least:"0s" most:"24h"`
	// Link is the link, such as leaf0<>spine1, or a pattern such as leaf0<>h0-*.
	Link string `yaml:"link" jsonschema:"required,minLength=1,maxLength=256"`
	// For is the duration of the fault (default: until the end of the run).
	For time.Duration `yaml:"for,omitempty" least:"1ms" most:"24h"`
}

// LinkFlapFault cuts and restores links several times.
type LinkFlapFault struct {
	Kind string `yaml:"kind" jsonschema:"required,enum=link-flap"`
	// At is the time of the first outage.
	At time.Duration `yaml:"at" jsonschema:"required" least:"0s" most:"24h"`
	// Link is the link, such as h0-03<>leaf0.
	Link string `yaml:"link" jsonschema:"required,minLength=1,maxLength=256"`
	// Down is the duration of each outage.
	Down time.Duration `yaml:"down" jsonschema:"required" least:"1ms" most:"24h"`
	// Up is the time between two outages.
	Up time.Duration `yaml:"up" jsonschema:"required" least:"1ms" most:"24h"`
	// Times is the number of outages.
	Times int `yaml:"times" jsonschema:"required,minimum=1,maximum=1000"`
}

// LinkRateFault changes the rate of links.
type LinkRateFault struct {
	Kind string `yaml:"kind" jsonschema:"required,enum=link-rate"`
	// At is the start time of the fault.
	At time.Duration `yaml:"at" jsonschema:"required" least:"0s" most:"24h"`
	// Link is the link, one direction as in leaf0>spine1 or both as in leaf0<>spine1.
	Link string `yaml:"link" jsonschema:"required,minLength=1,maxLength=256"`
	// Rate is the rate of the link during the fault.
	Rate units.Rate `yaml:"rate" jsonschema:"required" least:"10Kbps" most:"1000Gbps"`
	// For is the duration of the fault (default: until the end of the run).
	For time.Duration `yaml:"for,omitempty" least:"1ms" most:"24h"`
}

// HostCrashFault crashes a host: all its work is lost, and it restarts idle.
type HostCrashFault struct {
	Kind string `yaml:"kind" jsonschema:"required,enum=host-crash"`
	// At is the time of the crash.
	At time.Duration `yaml:"at" jsonschema:"required" least:"0s" most:"24h"`
	// Host is the name of the host.
	Host string `yaml:"host" jsonschema:"required,minLength=1,maxLength=64"`
	// For is the time until the host returns (default: it does not return).
	For time.Duration `yaml:"for,omitempty" least:"1ms" most:"24h"`
	// Disk is the state of stored blocks when the host returns.
	Disk string `yaml:"disk" jsonschema:"default=kept,enum=kept,enum=lost"`
}

// SlowDiskFault changes the write rate of a host's disk.
type SlowDiskFault struct {
	Kind string `yaml:"kind" jsonschema:"required,enum=slow-disk"`
	// At is the start time of the fault.
	At time.Duration `yaml:"at" jsonschema:"required" least:"0s" most:"24h"`
	// Host is the name of the host.
	Host string `yaml:"host" jsonschema:"required,minLength=1,maxLength=64"`
	// Rate is the write rate of the disk during the fault.
	Rate units.Rate `yaml:"rate" jsonschema:"required" least:"10Kbps" most:"100Gbps"`
	// For is the duration of the fault (default: until the end of the run).
	For time.Duration `yaml:"for,omitempty" least:"1ms" most:"24h"`
}

// SlowCPUFault lets a host work for a share of the time only, as a straggler.
type SlowCPUFault struct {
	Kind string `yaml:"kind" jsonschema:"required,enum=slow-cpu"`
	// At is the start time of the fault.
	At time.Duration `yaml:"at" jsonschema:"required" least:"0s" most:"24h"`
	// Host is the name of the host.
	Host string `yaml:"host" jsonschema:"required,minLength=1,maxLength=64"`
	// Share is the share of the time in which the host works.
	Share float64 `yaml:"share" jsonschema:"required,minimum=0.01,maximum=1"`
	// For is the duration of the fault (default: until the end of the run).
	For time.Duration `yaml:"for,omitempty" least:"1ms" most:"24h"`
}

// SpineDownFault takes a spine down: all its links pass nothing.
type SpineDownFault struct {
	Kind string `yaml:"kind" jsonschema:"required,enum=spine-down"`
	// At is the start time of the fault.
	At time.Duration `yaml:"at" jsonschema:"required" least:"0s" most:"24h"`
	// Spine is the name of the spine.
	Spine string `yaml:"spine" jsonschema:"required,minLength=1,maxLength=64"`
	// For is the duration of the fault (default: until the end of the run).
	For time.Duration `yaml:"for,omitempty" least:"1ms" most:"24h"`
}

// LostReportsFault drops the reports of hosts on links and disks to the master, which does not consider the hosts
// lost.
type LostReportsFault struct {
	Kind string `yaml:"kind" jsonschema:"required,enum=lost-reports"`
	// At is the start time of the fault.
	At time.Duration `yaml:"at" jsonschema:"required" least:"0s" most:"24h"`
	// Host is the host, or a pattern such as h0-*.
	Host string `yaml:"host" jsonschema:"required,minLength=1,maxLength=256"`
	// For is the duration of the fault (default: until the end of the run).
	For time.Duration `yaml:"for,omitempty" least:"1ms" most:"24h"`
}

// LateReportsFault delays the reports of hosts on links and disks. They arrive with the counters
// of the time at which they were made.
type LateReportsFault struct {
	Kind string `yaml:"kind" jsonschema:"required,enum=late-reports"`
	// At is the start time of the fault.
	At time.Duration `yaml:"at" jsonschema:"required" least:"0s" most:"24h"`
	// Host is the host, or a pattern such as h0-*.
	Host string `yaml:"host" jsonschema:"required,minLength=1,maxLength=256"`
	// By is the delay of a report.
	By time.Duration `yaml:"by" jsonschema:"required" least:"1ms" most:"1h"`
	// For is the duration of the fault (default: until the end of the run).
	For time.Duration `yaml:"for,omitempty" least:"1ms" most:"24h"`
}
