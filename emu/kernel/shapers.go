package kernel

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"testbed/emu/deploy"
	"testbed/topo/units"
)

// Port is a device with the current settings of its shaper, which may differ from the plan.
type Port struct {
	LinkStats
	// Up reports whether the device and the other end of its link are up.
	Up bool
	// Rate and Limit are the rate and the queue limit of the TBF at the root, or below a netem
	// there, or the rate of that netem, whose limit is in Packets. The rate is in whole bytes per second. All are 0 without a shaper.
	Rate    units.Rate
	Limit   units.Bytes
	Packets uint32
}

// Ports returns the counters of all devices of the namespace, like Links, with the state of each
// device and of its shaper, ordered by index. It costs twice as much as Links, and changes nothing.
func (n *Namespace) Ports() ([]Port, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	ports, err := n.ports()
	if err != nil {
		return nil, fmt.Errorf("ports of %q: %w", n.name, err)
	}
	return ports, nil
}

func (n *Namespace) ports() ([]Port, error) {
	shapers, err := n.shapers()
	if err != nil {
		return nil, err
	}
	up, err := n.upDevices()
	if err != nil {
		return nil, err
	}
	links, err := n.links() // last, so that the counters are the most recent
	if err != nil {
		return nil, err
	}
	ports := make([]Port, len(links))
	for i, l := range links {
		s := shapers[l.Index]
		ports[i] = Port{LinkStats: l, Up: up[l.Index], Rate: s.rate, Limit: s.limit, Packets: s.packets}
	}
	return ports, nil
}

// shaper is the settings of a TBF, or of netem with a rate.
type shaper struct {
	rate    units.Rate
	limit   units.Bytes
	packets uint32
}

// From linux/pkt_sched.h: struct tc_tbf_qopt is two struct tc_ratespec, whose last word is the
// rate, followed by limit, buffer and mtu.
const (
	tbfRateAt  = 8
	tbfLimitAt = 24
	sizeofTbf  = 36
	minRate64  = 1 << 32 // bytes per second: from here on only TCA_TBF_RATE64 contains the rate
)

// shapers returns the TBFs at the roots of devices, or below a netem there, by device index.
func (n *Namespace) shapers() (map[int]shaper, error) {
	found := map[int]shaper{}
	delayed := map[int32]uint32{} // handles of netems at roots; the kernel lists roots first
	req := n.request(unix.RTM_GETQDISC, unix.NLM_F_DUMP)
	req.AddData(&nl.TcMsg{Family: unix.AF_UNSPEC})
	err := n.dump(req, unix.RTM_NEWQDISC, func(m []byte) error {
		if len(m) < nl.SizeofTcMsg {
			return errShort
		}
		msg := nl.DeserializeTcMsg(m)
		handle, below := delayed[msg.Ifindex]
		below = below && msg.Parent == handle|1
		if msg.Parent != tcRoot && !below {
			return nil
		}
		var kind string
		var options []byte
		err := attributes(m[nl.SizeofTcMsg:], func(k uint16, v []byte) error {
			switch k {
			case nl.TCA_KIND:
				kind = unix.ByteSliceToString(v)
			case nl.TCA_OPTIONS:
				options = v
			}
			return nil
		})
		if kind == "netem" && !below {
			delayed[msg.Ifindex] = msg.Handle
			var q deploy.Qdisc
			if err := errors.Join(err, readDelay(&q, options)); err != nil {
				return err
			}
			if q.Rate > 0 {
				found[int(msg.Ifindex)] = shaper{rate: q.Rate, packets: q.Packets}
			}
		}
		if err != nil || kind != "tbf" {
			return err
		}
		s, err := tbf(options)
		found[int(msg.Ifindex)] = s
		return err
	})
	return found, err
}

// tbf parses the options of a TBF.
func tbf(options []byte) (s shaper, err error) {
	var bytes uint64 // per second
	err = attributes(options, func(kind uint16, v []byte) error {
		switch kind {
		case nl.TCA_TBF_PARMS:
			if len(v) < sizeofTbf {
				return errShort
			}
			bytes = max(bytes, uint64(binary.NativeEndian.Uint32(v[tbfRateAt:])))
			s.limit = units.Bytes(binary.NativeEndian.Uint32(v[tbfLimitAt:]))
		case nl.TCA_TBF_RATE64:
			if len(v) < 8 {
				return errShort
			}
			if b := binary.NativeEndian.Uint64(v); b >= minRate64 {
				bytes = b
			}
		}
		return nil
	})
	s.rate = units.RateOf(units.Bytes(min(bytes, 1<<60)), 1e9)
	return s, err
}

// upDevices returns the devices whose both ends are up, by index.
func (n *Namespace) upDevices() (map[int]bool, error) {
	up := map[int]bool{}
	req := n.request(unix.RTM_GETLINK, unix.NLM_F_DUMP)
	req.AddData(nl.NewIfInfomsg(unix.AF_UNSPEC))
	err := n.dump(req, unix.RTM_NEWLINK, func(m []byte) error {
		if len(m) < unix.SizeofIfInfomsg {
			return errShort
		}
		msg := nl.DeserializeIfInfomsg(m)
		const both = unix.IFF_UP | unix.IFF_LOWER_UP
		up[int(msg.Index)] = msg.Flags&both == both
		return nil
	})
	return up, err
}
