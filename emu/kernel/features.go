package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/plugins/pkg/ns"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"testbed/emu/deploy"
	"testbed/emu/plan"
	"testbed/topo/words"
)

// Lack is a feature that a plan needs and this kernel lacks, or that could not be tested.
type Lack struct {
	Need    plan.Need
	Text    string // the reason and the remedy
	Unknown bool   // it could not be tested without root, for the reason in Text
}

// Lacks returns the features that p needs and this kernel lacks, and those that this process
// cannot test. It tests them by use, qdiscs in a temporary namespace, and builds nothing.
func Lacks(p *plan.Plan) (lacks []Lack) {
	needs := p.Needs()
	features := make([]plan.Feature, len(needs))
	for i, n := range needs {
		features[i] = n.Feature
	}
	for i, err := range testFeatures(features) {
		n := needs[i]
		switch {
		case err == nil:
		case errors.Is(err, deploy.ErrUnsupported):
			lacks = append(lacks, Lack{Need: n, Text: lackText(n)})
		default:
			text := fmt.Sprintf("%v, needed by %s, cannot be tested: %v", n.Feature, n.For, err)
			lacks = append(lacks, Lack{n, text, os.Geteuid() != 0}) // what root cannot test, it cannot build
		}
	}
	return lacks
}

// lackText returns the reason and the remedy of a missing feature.
func lackText(n plan.Need) string {
	module, remedy := n.Feature.Module(), "use a kernel that has it"
	reason := fmt.Sprintf("this kernel has no %v", n.Feature)
	if n.Feature.Kind == plan.CongestionControl {
		reason = fmt.Sprintf("this kernel has no TCP congestion control %q", n.Feature.Name)
		if names := availableCongestion(); len(names) > 0 {
			reason += fmt.Sprintf(" (available: %s)", strings.Join(names, ", "))
			if near := words.Closest(n.Feature.Name, names); near != "" {
				reason += fmt.Sprintf(" (did you mean %q?)", near)
			}
			remedy += ", or state one that is available"
		}
	} else if n.Key != "" {
		remedy += ", or remove " + n.Key
	}
	return fmt.Sprintf("%s, needed by %s: load %s (modprobe %s), %s", reason, n.For, module, module, remedy)
}

// CheckNeeds returns an error that lists the features that p needs and this kernel lacks, or that
// cannot be tested. It wraps deploy.ErrUnsupported.
func CheckNeeds(p *plan.Plan) error {
	var errs []error
	for _, l := range Lacks(p) {
		errs = append(errs, fmt.Errorf("%s: %w", l.Text, deploy.ErrUnsupported))
	}
	return errors.Join(errs...)
}

// testFeatures tests features in order. The error of a feature is nil if the kernel has it, wraps
// deploy.ErrUnsupported if it does not, and is otherwise the reason why that is unknown.
func testFeatures(features []plan.Feature) []error {
	errs := make([]error, len(features))
	isQdisc := func(f plan.Feature) bool { return f.Kind == plan.QueueingDiscipline }
	var failed error // to test qdiscs
	if slices.ContainsFunc(features, isQdisc) {
		temporary, err := ns.TempNetNS()
		if err == nil {
			err = temporary.Do(func(ns.NetNS) error {
				for i, f := range features {
					if isQdisc(f) {
						errs[i] = testQdisc(f.Name)
					}
				}
				return nil
			})
			err = errors.Join(err, temporary.Close())
		}
		if err != nil {
			failed = fmt.Errorf("%w%s", err, privilege(err))
		}
	}
	for i, f := range features {
		if !isQdisc(f) {
			errs[i] = testCongestion(f)
		} else if failed != nil {
			errs[i] = failed
		}
	}
	return errs
}

// testQdisc adds a qdisc of a kind, without its options, to lo of the namespace of the calling
// thread. A kernel that has the kind accepts the request or rejects the options.
func testQdisc(kind string) error {
	route, err := routeSocket()
	if err != nil {
		return err
	}
	defer route.Close()
	req := nl.NewNetlinkRequest(unix.RTM_NEWQDISC, unix.NLM_F_CREATE|unix.NLM_F_REPLACE|unix.NLM_F_ACK)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: route}
	msg := &nl.TcMsg{
		Family:  unix.AF_UNSPEC,
		Ifindex: loopbackIndex,
		Handle:  1 << 16,
		Parent:  netlink.HANDLE_ROOT,
	}
	req.AddData(msg)
	req.AddData(nl.NewRtAttr(nl.TCA_KIND, nl.ZeroTerminated(kind)))
	switch err := change(req); {
	case errors.Is(err, unix.ENOENT):
		return deploy.ErrUnsupported
	case errors.Is(err, unix.EPERM):
		return err
	}
	return nil
}

// testCongestion selects a congestion control on a socket. The kernel loads its module for root
// only. It refuses one that it has to a user whom the machine does not allow it.
func testCongestion(f plan.Feature) (err error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unix.Close(fd)) }()
	err = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, f.Name)
	switch {
	case err == nil || errors.Is(err, unix.EPERM):
		return nil
	case !errors.Is(err, unix.ENOENT):
		return err
	case os.Geteuid() != 0 && loadable(f.Module()):
		return fmt.Errorf("%s is loaded for root only", f.Module())
	}
	return deploy.ErrUnsupported
}

// loadable reports whether the kernel has a module, loaded or not, as far as its list is readable.
func loadable(module string) bool {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return true
	}
	dir := filepath.Join("/lib/modules", unix.ByteSliceToString(u.Release[:]))
	list, err := os.ReadFile(filepath.Join(dir, "modules.dep"))
	if errors.Is(err, fs.ErrNotExist) {
		return false // a kernel without modules
	}
	return err != nil || bytes.Contains(list, []byte("/"+module+".ko"))
}

// availableCongestion returns the congestion controls that are built in or loaded.
func availableCongestion() []string { return congestionList("available") }

// AllowsCongestion reports whether the machine allows a congestion control to all users. Only
// such a one can be the parameter of a namespace.
func AllowsCongestion(name string) bool { return slices.Contains(congestionList("allowed"), name) }

func congestionList(of string) []string {
	text, err := os.ReadFile("/proc/sys/net/ipv4/tcp_" + of + "_congestion_control")
	if err != nil {
		return nil
	}
	return strings.Fields(string(text))
}
