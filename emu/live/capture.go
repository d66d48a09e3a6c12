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
	"testbed/results/flows"
	"testbed/results/pcap"
	"testbed/topo/units"
)

// capture records one host's interfaces into a file.
type capture struct {
	ring  *kernel.Capture
	file  *os.File
	done  chan error
	stats pcap.Stats
	ended bool
}

// recorded are the interfaces of a host, in the order they have in its file.
var recorded = []string{"eth0", "lo"}

// startCapture records until stop. An error that ends a recording early, such as
// a full disk, is told to fail at once.
func startCapture(n *kernel.Namespace, host string, cfg Config, fail func(error)) (*capture, error) {
	ring, err := n.Capture(kernel.CaptureOptions{Snaplen: units.Bytes(cfg.Snaplen), Ring: cfg.Ring})
	if err != nil {
		return nil, err
	}
	file, err := os.OpenFile(filepath.Join(cfg.Captures, host+flows.Suffix), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("capture of %s: %w", host, err), ring.Close())
	}
	meta := cfg.Meta
	meta.Host = host
	interfaces := make([]pcap.Interface, len(recorded))
	for i, name := range recorded {
		interfaces[i] = pcap.Interface{Name: name, SnapLen: cfg.Snaplen}
	}
	w, err := pcap.NewWriter(file, meta, interfaces)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("capture of %s: %w", host, err), ring.Close(), file.Close())
	}
	c := &capture{ring: ring, file: file, done: make(chan error, 1)}
	index := map[int]int{}
	for i, name := range ring.Devices() {
		for at, want := range recorded {
			if name == want {
				index[i] = at
			}
		}
	}
	go func() {
		err := ring.Run(context.Background(), func(ts time.Time, ifindex int, _ bool, data []byte, origLen int) error {
			at, ok := index[ifindex]
			if !ok {
				return fmt.Errorf("a packet on unknown interface %d", ifindex)
			}
			return w.Write(at, ts, data, origLen)
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
