package fidelity

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// skips collects the objects that a check did not judge because a scenario changed them
// on purpose (Samples.Exempt).
type skips struct {
	n   int
	why map[string]bool
}

func (k *skips) add(why string) bool {
	k.n++
	if k.why == nil {
		k.why = map[string]bool{}
	}
	k.why[why] = true
	return true
}

// link reports whether a link, such as "h0-00>leaf0", is exempt by its own name or by that
// of either end.
func (k *skips) link(s Samples, name string) bool {
	if why, ok := s.Exempt[name]; ok {
		return k.add(why)
	}
	from, to, _ := strings.Cut(name, ">")
	for _, end := range []string{from, to} {
		if why, ok := s.Exempt[end]; ok {
			return k.add(why)
		}
	}
	return false
}

// path reports whether any link of a path is exempt, and counts the path once.
func (k *skips) path(s Samples, links []string) bool {
	return slices.ContainsFunc(links, func(l string) bool { return k.link(s, l) })
}

// lossy reports whether a host or switch loses packets because of the scenario
// (Samples.Lossy).
func (k *skips) lossy(s Samples, name string) bool {
	why, ok := s.Lossy[name]
	return ok && k.add(why)
}

// disk reports whether a disk is exempt: by its host's name or, except for reads, by
// "<host>/disk".
func (k *skips) disk(s Samples, d Disk) bool {
	if why, ok := s.Exempt[d.Host+"/disk"]; ok && !d.Reads {
		return k.add(why)
	}
	why, ok := s.Exempt[d.Host]
	return ok && k.add(why)
}

// String returns the suffix of a check's value; it is empty if everything was judged.
func (k *skips) String() string {
	if k.n == 0 {
		return ""
	}
	return fmt.Sprintf("; %d not judged: %s", k.n, strings.Join(slices.Sorted(maps.Keys(k.why)), "; "))
}
