package live

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"testbed/emu/kernel"
	"testbed/emu/plan"
	"testbed/hosts/wire"
	"testbed/results/flows"
	"testbed/results/pcap"
	"testbed/results/safefile"
	"testbed/topo"
	"testbed/topo/units"
)

// capture records interfaces of one host or switch into a file.
type capture struct {
	ring  *kernel.Capture
	file  *os.File
	done  chan error
	stats pcap.Stats
	ended bool
}

// subject is a namespace whose interfaces are captured.
type subject struct {
	name       string
	interfaces []pcap.Interface // in the order they have in the file
	ports      bool             // only what leaves them
}

// subjects are all hosts, in order of HostID, and then the switches that links
// leave, in order of their first link.
func subjects(f *topo.Fabric, links []topo.LinkID, snaplen int) []subject {
	var out []subject
	hostSnaplen := max(snaplen, pcap.MarkSnaplen) // hosts keep marks whole
	for h := range topo.HostID(f.Hosts()) {
		name := f.HostName(h)
		up, down := f.HostUp(h), f.HostDown(h)
		out = append(out, subject{name: name, interfaces: []pcap.Interface{
			{Name: plan.Uplink, SnapLen: hostSnaplen, Speed: f.Link(up).Rate,
				Description: fmt.Sprintf("%s %s: links %s at %v and %s at %v", name, plan.Uplink, f.LinkName(up), f.Link(up).Rate, f.LinkName(down), f.Link(down).Rate)},
			{Name: loopback, SnapLen: hostSnaplen, Description: fmt.Sprintf("%s %s: what the host sends to itself", name, loopback),
				Comment: "checksums are not finished on this interface, as the flags of its packets say"},
		}})
	}
	at := map[string]int{}
	for _, id := range links {
		name, device := plan.Egress(f, id)
		if _, ok := at[name]; !ok {
			at[name] = len(out)
			out = append(out, subject{name: name, ports: true})
		}
		s := &out[at[name]]
		rate := f.Link(id).Rate
		s.interfaces = append(s.interfaces, pcap.Interface{Name: device, SnapLen: snaplen, Speed: rate,
			Description: fmt.Sprintf("%s: %v, what leaves the port", f.LinkName(id), rate)})
	}
	return out
}

const loopback = "lo"

// startCapture records until stop. It calls fail immediately with an error that ends the recording
// early, such as a full disk.
func startCapture(n *kernel.Namespace, s subject, cfg Config, fail func(error)) (*capture, error) {
	options := kernel.CaptureOptions{Snaplen: units.Bytes(cfg.Snaplen), Whole: wire.MarkPort, Ring: cfg.Ring}
	if s.ports {
		for _, i := range s.interfaces {
			options.Ports = append(options.Ports, i.Name)
		}
	}
	ring, err := n.Capture(options)
	if err != nil {
		return nil, err
	}
	file, err := safefile.Create(filepath.Join(cfg.Captures, s.name+flows.Suffix))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("capture of %s: %w", s.name, err), ring.Close())
	}
	meta := cfg.Meta
	meta.Host = s.name
	w, err := pcap.NewWriter(file, meta, s.interfaces)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("capture of %s: %w", s.name, err), ring.Close(), file.Close())
	}
	c := &capture{ring: ring, file: file, done: make(chan error, 1)}
	index := map[int]int{}
	for i, name := range ring.Devices() {
		for at := range s.interfaces {
			if name == s.interfaces[at].Name {
				index[i] = at
			}
		}
	}
	comments, keep := pcap.NewCommenter(meta.Run), func(frame []byte) []byte { return frame }
	if cfg.Snaplen <= pcap.HeaderSnaplen {
		keep = pcap.NewTrimmer().Trim
	}
	go func() {
		err := ring.Run(context.Background(), func(ts time.Time, ifindex int, outgoing bool, data []byte, origLen int) error {
			at, ok := index[ifindex]
			if !ok {
				return fmt.Errorf("a packet on unknown interface %d", ifindex)
			}
			flags := pcap.Inbound
			if outgoing {
				flags = pcap.Outbound
			}
			if s.interfaces[at].Name == loopback && pcap.Unfinished(data) {
				flags |= pcap.ChecksumUnfinished // all other devices send finished ones: plan.Offloads
			}
			return w.WriteNoted(pcap.Packet{Interface: at, Stamp: ts.UnixNano(), Data: keep(data), Len: origLen}, flags, comments.Comment(at, data))
		})
		if err != nil {
			fail(err)
		}
		s, statsErr := ring.Stats()
		c.stats = pcap.Stats{Received: s.Packets, Dropped: s.Dropped}
		c.done <- errors.Join(err, statsErr, w.Close(c.stats))
	}()
	return c, nil
}

// stop records what the kernel still holds and closes the file.
func (c *capture) stop() error {
	if c.ended {
		return nil
	}
	c.ended = true
	err := c.ring.Close()
	return errors.Join(err, <-c.done, c.file.Close())
}

// stopAll stops captures side by side: each waits for the kernel to hand over its
// last block.
func stopAll(all []*capture) error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, c := range all {
		wg.Go(func() { errs[i] = c.stop() })
	}
	wg.Wait()
	return errors.Join(errs...)
}
