package scenario

import (
	"fmt"
	"slices"

	"testbed/topo"
)

// capturedLinks returns the links that match a pattern of capture.links. Each must leave a
// switch: packets that leave a host are in the capture of the host.
func capturedLinks(f *topo.Fabric, pattern string) ([]topo.LinkID, error) {
	found, err := f.FindLinks(pattern)
	if err != nil {
		return nil, err
	}
	for _, id := range found {
		if f.Link(id).Kind == topo.HostUp {
			return nil, fmt.Errorf(`link %q: %s leaves a host and is in the capture of that host: use links that leave a switch, such as "leaf*>h*" or "leaf0>spine*"`,
				clip(pattern), f.LinkName(id))
		}
	}
	return found, nil
}

// CapturedLinks returns the links of capture.links on the fabric, without duplicates, in order
// of ID.
func (s *Scenario) CapturedLinks(f *topo.Fabric) ([]topo.LinkID, error) {
	var out []topo.LinkID
	for i, pattern := range s.Spec.Capture.Links {
		found, err := capturedLinks(f, pattern)
		if err != nil {
			return nil, fmt.Errorf("capture.links[%d]: %w", i, err)
		}
		out = append(out, found...)
	}
	slices.Sort(out)
	return slices.Compact(out), nil
}

// capture checks the patterns of capture.links against the fabric.
func (c *checker) capture() {
	if len(c.spec.Capture.Links) == 0 || !c.sound("fabric") || c.badWithin("fabric.") {
		return
	}
	f, err := c.spec.Fabric.shape().Build()
	if err != nil {
		return // reported by fabric
	}
	for i, pattern := range c.spec.Capture.Links {
		at := fmt.Sprintf("capture.links[%d]", i)
		if !c.sound(at) {
			continue
		}
		if _, err := capturedLinks(f, pattern); err != nil {
			c.failAt(at, "%v", err)
		}
	}
}
