package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Fact is one thing that a testbed needs, or is better with, and whether this
// machine has it.
type Fact struct {
	Group  string `json:"group"` // what it belongs to, such as "links"
	Name   string `json:"name"`
	Have   bool   `json:"have"`
	Detail string `json:"detail"` // what was found
	Cost   string `json:"cost"`   // what is lost without it
	// Needed tells that without it there is no testbed.
	Needed bool `json:"needed"`
	// Unknown tells that it could not be looked at, for the reason in Detail. Have
	// is then false.
	Unknown bool `json:"unknown"`
}

// Probe finds out what this machine has. What can only be known by trying is
// tried in a namespace that is gone when Probe returns. Each of dirs, where
// something is to be written, is tried as a place for files with a file that has
// no name.
func Probe(dirs ...string) []Fact {
	var facts []Fact
	group := func(name string, more ...Fact) {
		for _, f := range more {
			f.Group = name
			facts = append(facts, f)
		}
	}
	tried := inNamespace()
	group("machine", release(), processors(), virtualisation(), load())
	group("privileges", capabilities()...)
	group("links", tried.links...)
	group("TCP", congestionControls()...)
	group("TCP", tried.hashSeed)
	group("captures", tried.capture, bpfFact(), typeInformation())
	group("disks", blkio(), cgroups(), loopDevices())
	for _, dir := range dirs {
		group("disks", directory(dir)...)
	}
	group("time", clockSource(), resolution(), ticks(), timers())
	group("limits", limits()...)
	group("limits", parameters()...)
	return facts
}

func release() Fact {
	f := Fact{Name: "kernel", Needed: true, Cost: "flows keep to a spine from Linux 5.13 on (fib_multipath_hash_fields)"}
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

// tried is what was found out in a namespace.
type tried struct {
	links             []Fact
	hashSeed, capture Fact
}

// inNamespace tries what needs a namespace. Where there can be none, all else is
// unknown.
func inNamespace() tried {
	made := Fact{Name: "network namespaces", Needed: true, Cost: "no hosts", Detail: "created one"}
	veth, capture := vethFact(), captureFact()
	qdiscs := qdiscFacts()
	temporary, err := ns.TempNetNS()
	if err != nil {
		made.Detail = err.Error() + privilege(err)
	} else {
		err = temporary.Do(func(ns.NetNS) error {
			tryVeth(&veth)
			tryCapture(&capture)
			return tryQdiscs(qdiscs)
		})
		if err = errors.Join(err, temporary.Close()); err != nil {
			made.Detail = err.Error()
		}
	}
	made.Have = err == nil
	return tried{append([]Fact{made, veth}, qdiscs...), hashSeedFact(), capture}
}

// untried is the detail of a fact that is not tried yet.
const untried = "not tried: it needs a network namespace"

func vethFact() Fact {
	return Fact{Name: "veth", Needed: true, Cost: "no links", Detail: untried, Unknown: true}
}

func tryVeth(f *Fact) {
	f.Unknown, f.Detail = false, "created a pair"
	link := netlink.NewVeth(netlink.LinkAttrs{Name: "probe0", TxQLen: -1})
	link.PeerName = "probe1"
	if err := netlink.LinkAdd(link); err != nil {
		f.Detail = err.Error()
		return
	}
	f.Have = true
}

func qdiscFacts() []Fact {
	var facts []Fact
	for _, q := range []struct {
		kind, cost string
		needed     bool
	}{
		{"tbf", "links cannot be shaped", true},
		{"netem", "no emulated delay: fabrics with a delay are refused", false},
		{"red", "no early detection and no ECN marks: fabrics with red are refused", false},
		{"fq", "TCP paces with a timer for each socket", false},
		{"htb", "nothing: a testbed does not use it", false},
		{"fq_codel", "nothing: a testbed does not use it", false},
		{"prio", "nothing: a testbed does not use it", false},
		{"ingress", "nothing: a testbed does not use it", false},
		{"clsact", "nothing: a testbed does not use it", false},
	} {
		facts = append(facts, Fact{Name: qdiscPrefix + q.kind, Needed: q.needed, Cost: q.cost, Detail: untried, Unknown: true})
	}
	return facts
}

const qdiscPrefix = "qdisc "

// tryQdiscs tries the kind of each fact.
func tryQdiscs(facts []Fact) error {
	route, err := routeSocket()
	if err != nil {
		return err
	}
	defer route.Close()
	for i := range facts {
		f := &facts[i]
		err := tryQdisc(route, strings.TrimPrefix(f.Name, qdiscPrefix))
		f.Unknown = errors.Is(err, unix.EPERM)
		f.Have = knowsQdisc(err)
		switch {
		case f.Have:
			f.Detail = "the kernel knows it"
		case f.Unknown:
			f.Detail = err.Error()
		default:
			f.Detail = "the kernel has no such kind"
		}
	}
	return nil
}

// tryQdisc adds a kind to lo without its options. A kernel that has the kind
// complains of the options, or is content; one that has not knows no such thing.
func tryQdisc(route *nl.SocketHandle, kind string) error {
	req := nl.NewNetlinkRequest(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: route}
	req.AddData(&nl.TcMsg{Family: unix.AF_UNSPEC, Ifindex: loopbackIndex, Handle: 1 << 16, Parent: netlink.HANDLE_ROOT})
	req.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(kind)))
	return change(req)
}

// knowsQdisc judges the answer to tryQdisc.
func knowsQdisc(err error) bool { return !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EPERM) }

// haveQdiscs tries kinds of qdisc in a namespace of its own.
func haveQdiscs(kinds []string) (map[string]bool, error) {
	have := map[string]bool{}
	temporary, err := ns.TempNetNS()
	if err != nil {
		return nil, err
	}
	err = temporary.Do(func(ns.NetNS) error {
		route, err := routeSocket()
		if err != nil {
			return err
		}
		defer route.Close()
		for _, kind := range kinds {
			err := tryQdisc(route, kind)
			if errors.Is(err, unix.EPERM) {
				return err
			}
			have[kind] = knowsQdisc(err)
		}
		return nil
	})
	return have, errors.Join(err, temporary.Close())
}

func hashSeedFact() Fact {
	f := Fact{Name: "fib_multipath_hash_seed", Cost: "which spine a flow takes changes from one build to the next, unless source ports are chosen for it (Linux 6.11 has it)"}
	_, err := os.Stat("/proc/sys/net/ipv4/fib_multipath_hash_seed")
	f.Have, f.Detail = err == nil, "a parameter of each namespace"
	if err != nil {
		f.Detail = "not in this kernel"
	}
	return f
}

func congestionControls() []Fact {
	available, err := os.ReadFile("/proc/sys/net/ipv4/tcp_available_congestion_control")
	inUse, err2 := os.ReadFile("/proc/sys/net/ipv4/tcp_congestion_control")
	names := strings.Fields(string(available))
	detail := fmt.Sprintf("available: %s; the machine's own: %s", strings.Join(names, " "), strings.TrimSpace(string(inUse)))
	if err = errors.Join(err, err2); err != nil {
		detail = err.Error()
	}
	var facts []Fact
	for _, c := range []struct{ name, cost string }{
		{"cubic", "the default of a testbed: name another"},
		{"reno", "cannot be compared with"},
		{"dctcp", "cannot be compared with"},
		{"bbr", "cannot be compared with"},
	} {
		facts = append(facts, Fact{Name: "TCP " + c.name, Have: slices.Contains(names, c.name), Detail: detail, Cost: c.cost})
		detail = "" // once is enough
	}
	return facts
}

func cgroups() Fact {
	f := Fact{Name: "cgroup v2 io.max", Cost: "foreign programs' disks are throttled with cgroup v1, or not; a testbed's own hosts do not need it"}
	on, err := mounted("cgroup2", "")
	if err != nil || on == "" {
		f.Detail = missing(err, "cgroup version 2 is not mounted")
		return f
	}
	controllers, err := os.ReadFile(filepath.Join(on, "cgroup.controllers"))
	f.Have = slices.Contains(strings.Fields(string(controllers)), "io")
	f.Detail = missing(err, on+" has "+cmp.Or(strings.TrimSpace(string(controllers)), "no controllers"))
	return f
}

func processors() Fact {
	n := runtime.NumCPU()
	return Fact{Name: "processors", Have: n >= 2, Detail: strconv.Itoa(n), Cost: "senders, receivers and captures share one: lower the rates"}
}

func virtualisation() Fact {
	f := Fact{Name: "bare metal", Have: true, Detail: "no hypervisor announces itself", Cost: "timers cost several times more and come later: fewer busy links can be emulated"}
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

// timers measures how late short sleeps end, in the kernel and not counting the
// runtime's share.
func timers() Fact {
	const sleep, enough = 200 * time.Microsecond, 100 * time.Microsecond
	f := Fact{Name: "timers", Cost: "a shaper's timer that is later than 100 µs costs rate at the default burst"}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if old, err := unix.PrctlRetInt(unix.PR_GET_TIMERSLACK, 0, 0, 0, 0); err == nil {
		if unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) == nil {
			defer func() { _ = unix.Prctl(unix.PR_SET_TIMERSLACK, uintptr(old), 0, 0, 0) }() // it was set before
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
	f.Have = median <= enough
	f.Detail = fmt.Sprintf("end %v late in the median, %v at most, of %d", median.Round(time.Microsecond), late[len(late)-1].Round(time.Microsecond), len(late))
	return f
}
