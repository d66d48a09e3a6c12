package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"testbed/emu/deploy"
	"testbed/emu/plan"
)

// Fact is a feature or resource that a testbed needs or benefits from, and its availability on this
// machine.
type Fact struct {
	Group  string `json:"group"` // such as "links"
	Name   string `json:"name"`
	Have   bool   `json:"have"`
	Detail string `json:"detail"` // the finding
	Cost   string `json:"cost"`   // the consequence of its absence
	// Needed reports whether a testbed cannot run without it.
	Needed bool `json:"needed"`
	// Unknown reports whether the check failed, for the reason in Detail. Have is then false.
	Unknown bool `json:"unknown"`
}

// Probe checks the features and resources of this machine. It tests features in a temporary
// namespace. It checks each of dirs as a place for files, with an unnamed file.
func Probe(dirs ...string) []Fact {
	var facts []Fact
	group := func(name string, more ...Fact) {
		for _, f := range more {
			f.Group = name
			facts = append(facts, f)
		}
	}
	tested := testInNamespace()
	group("machine", release(), processors(), virtualisation(), load())
	group("privileges", capabilities()...)
	qdiscs, congestion := featureFacts()
	group("links", append(tested.links, qdiscs...)...)
	group("TCP", congestion...)
	group("TCP", tested.hashSeed)
	group("captures", tested.capture, bpfFact(), typeInformation())
	group("disks", append(throttleFacts(), loopDevices())...)
	for _, dir := range dirs {
		group("disks", directory(dir)...)
	}
	group("time", clockSource(), resolution(), ticks(), timers())
	group("limits", limits()...)
	group("limits", parameters()...)
	return facts
}

func release() Fact {
	f := Fact{Name: "kernel", Needed: true, Cost: "flows may change spine: Linux 5.13 or later keeps them on one (fib_multipath_hash_fields)"}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		f.Detail = err.Error()
		return f
	}
	f.Detail = unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:]) + " " + runtime.GOARCH
	parts := strings.SplitN(unix.ByteSliceToString(u.Release[:]), ".", 3)
	if len(parts) >= 2 {
		major, err1 := strconv.Atoi(parts[0])
		minor, err2 := strconv.Atoi(parts[1])
		f.Have = err1 == nil && err2 == nil && (major > 5 || major == 5 && minor >= 13)
	}
	return f
}

func capabilities() []Fact {
	var have [2]unix.CapUserData
	err := unix.Capget(&unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}, &have[0])
	var facts []Fact
	for _, c := range []struct {
		name string
		bit  uint
		cost string
	}{
		{"CAP_NET_ADMIN", unix.CAP_NET_ADMIN, "no links, shapers and routes: run it with sudo"},
		{"CAP_SYS_ADMIN", unix.CAP_SYS_ADMIN, "no namespaces: run it with sudo"},
		{"CAP_NET_RAW", unix.CAP_NET_RAW, "no captures: run it with sudo"},
	} {
		f := Fact{Name: c.name, Needed: true, Cost: c.cost, Detail: "as user " + strconv.Itoa(os.Geteuid())}
		if err != nil {
			f.Detail = err.Error()
		}
		f.Have = err == nil && have[c.bit/32].Effective&(1<<(c.bit%32)) != 0
		facts = append(facts, f)
	}
	return facts
}

// namespaceFacts are the facts that are tested in a namespace.
type namespaceFacts struct {
	links             []Fact
	hashSeed, capture Fact
}

// testInNamespace tests the facts that need a namespace. If none can be created, the others are
// unknown.
func testInNamespace() namespaceFacts {
	made := Fact{Name: "network namespaces", Needed: true, Cost: "no hosts", Detail: "created one"}
	veth, capture := vethFact(), captureFact()
	temporary, err := ns.TempNetNS()
	if err != nil {
		made.Detail = err.Error() + privilege(err)
	} else {
		err = temporary.Do(func(ns.NetNS) error {
			testVeth(&veth)
			testCapture(&capture)
			return nil
		})
		if err = errors.Join(err, temporary.Close()); err != nil {
			made.Detail = err.Error()
		}
	}
	made.Have = err == nil
	return namespaceFacts{[]Fact{made, veth}, hashSeedFact(), capture}
}

// untested is the detail of a fact before its test.
const untested = "not tested: needs a network namespace"

func vethFact() Fact {
	return Fact{Name: "veth", Needed: true, Cost: "no links", Detail: untested, Unknown: true}
}

func testVeth(f *Fact) {
	f.Unknown, f.Detail = false, "created a pair"
	link := netlink.NewVeth(netlink.LinkAttrs{Name: "probe0", TxQLen: -1})
	link.PeerName = "probe1"
	if err := netlink.LinkAdd(link); err != nil {
		f.Detail = err.Error()
		return
	}
	f.Have = true
}

// featureFacts returns facts about kinds of qdisc and about congestion controls.
func featureFacts() (qdiscs, congestion []Fact) {
	const unused = "nothing: a testbed does not use it"
	const incomparable = "cannot be compared"
	var features []plan.Feature
	var facts []Fact
	for _, x := range []struct {
		kind       plan.FeatureKind
		name, cost string
	}{
		{plan.QueueingDiscipline, "tbf", "links cannot be shaped"},
		{plan.QueueingDiscipline, "netem", "no emulated delay and no links that store and forward: such fabrics are refused"},
		{plan.QueueingDiscipline, "red", "no early detection and no ECN marks: fabrics with red are refused"},
		{plan.QueueingDiscipline, "fq", "TCP paces with one timer per socket"},
		{plan.QueueingDiscipline, "htb", unused},
		{plan.QueueingDiscipline, "fq_codel", unused},
		{plan.QueueingDiscipline, "prio", unused},
		{plan.QueueingDiscipline, "ingress", unused},
		{plan.QueueingDiscipline, "clsact", unused},
		{plan.CongestionControl, "cubic", "the default of a testbed: select another"},
		{plan.CongestionControl, "reno", incomparable},
		{plan.CongestionControl, "dctcp", incomparable},
		{plan.CongestionControl, "bbr", incomparable},
	} {
		f := plan.Feature{Kind: x.kind, Name: x.name}
		features = append(features, f)
		facts = append(facts, Fact{Name: f.String(), Needed: x.name == "tbf", Cost: x.cost})
	}
	for i, err := range testFeatures(features) {
		f := &facts[i]
		f.Have, f.Unknown = err == nil, err != nil && !errors.Is(err, deploy.ErrUnsupported)
		switch {
		case f.Have:
			f.Detail = "supported by the kernel"
		case f.Unknown:
			f.Detail = err.Error()
		default:
			f.Detail = "the kernel has no " + features[i].Module()
		}
	}
	first := slices.IndexFunc(features, func(f plan.Feature) bool { return f.Kind == plan.CongestionControl })
	qdiscs, congestion = facts[:first], facts[first:]
	inUse, err := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control")
	found := fmt.Sprintf("available: %s; default of the machine: %s", strings.Join(availableCongestion(), " "),
		strings.TrimSpace(string(inUse)))
	congestion[0].Detail = errorOr(err, found) // shown once
	return qdiscs, congestion
}

func hashSeedFact() Fact {
	f := Fact{Name: "fib_multipath_hash_seed", Cost: "the spine of a flow changes from one build to the next, unless source ports are chosen for it (available since Linux 6.11)"}
	_, err := os.Stat("/proc/sys/net/ipv4/fib_multipath_hash_seed")
	f.Have, f.Detail = err == nil, "a parameter per namespace"
	if err != nil {
		f.Detail = "not in this kernel"
	}
	return f
}

// throttleFacts returns the facts of Throttles.
func throttleFacts() (facts []Fact) {
	const without = "disks of foreign programs are throttled with cgroup %s or not at all; a testbed's own hosts do not need it"
	names := map[ThrottleKind]string{Blkio: "cgroup v1 blkio", IOMax: "cgroup v2 io.max"}
	others := map[ThrottleKind]string{Blkio: "v2", IOMax: "v1"}
	for _, f := range Throttles() {
		facts = append(facts, Fact{
			Name:   names[f.Kind],
			Have:   f.Missing == "",
			Detail: cmp.Or(f.Missing, f.root+" throttles bytes per second"),
			Cost:   fmt.Sprintf(without, others[f.Kind]),
		})
	}
	return facts
}

func processors() Fact {
	n := runtime.NumCPU()
	return Fact{Name: "processors", Have: n >= 2, Detail: strconv.Itoa(n), Cost: "senders, receivers and captures share one: lower the rates"}
}

func virtualisation() Fact {
	f := Fact{Name: "bare metal", Have: true, Detail: "no hypervisor detected", Cost: "timers cost several times as much and fire later: fewer busy links can be emulated"}
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		f.Have, f.Detail = false, err.Error()
		return f
	}
	if strings.Contains(string(info), " hypervisor") {
		f.Have, f.Detail = false, "a virtual machine"
		if clock, err := os.ReadFile("/sys/devices/system/clocksource/clocksource0/current_clocksource"); err == nil {
			f.Detail += ", clock " + strings.TrimSpace(string(clock))
		}
	}
	return f
}

// timers measures the lateness of short sleeps in the kernel, without the delay of the Go runtime.
func timers() Fact {
	const sleep, limit = 200 * time.Microsecond, 100 * time.Microsecond
	f := Fact{Name: "timers", Cost: "with timers more than 100 µs late, shapers lose rate at the default burst"}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if old, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err == nil {
		if unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) == nil {
			defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(old), 0, 0, 0) }() // the old value is valid
		}
	}
	var late []time.Duration
	for range 25 {
		start := time.Now()
		request := unix.NsecToTimespec(int64(sleep))
		if err := unix.Nanosleep(&request, nil); err == nil {
			late = append(late, time.Since(start)-sleep)
		}
	}
	if len(late) == 0 {
		f.Detail = "every sleep was interrupted"
		return f
	}
	slices.Sort(late)
	median := late[len(late)/2]
	f.Have = median <= limit
	f.Detail = fmt.Sprintf("median lateness %v, maximum %v, of %d sleeps", median.Round(time.Microsecond), late[len(late)-1].Round(time.Microsecond), len(late))
	return f
}
