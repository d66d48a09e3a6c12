package scenario

import (
	"fmt"
	"slices"

	"testbed/topo"
)

// capturedLinks are the links that a pattern of capture.links names. Each leaves a
// switch: what leaves a host is in the host's capture.
func capturedLinks(f *topo.Fabric, pattern string) ([]topo.LinkID, error) {
	found, err := f.FindLinks(pattern)
	if err != nil {
		return nil, err
	}
	for _, id := range found {
		if f.Link(id).Kind == topo.HostUp {
			return nil, fmt.Errorf(`link %q: %s leaves a host, whose own capture shows it: want links that leave a switch, such as "leaf*>h*" or "leaf0>spine*"`,
				clip(pattern), f.LinkName(id))
		}
	}
	return found, nil
}

// CapturedLinks are the links of the scenario's capture.links on its fabric, each
// once, in order of ID.
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

// capture checks patterns of links against the fabric.
func (c *checker) capture() {
	if len(c.spec.Capture.Links) == 0 || !c.sound("fabric") || c.badWithin("fabric.") {
		return
	}
	f, err := c.spec.Fabric.shape().Build()
	if err != nil {
		return // told with the fabric
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
