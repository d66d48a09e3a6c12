package topo

import (
	"fmt"
	"path"
	"strings"
)

// FindLinks returns the links that match a pattern, in order of ID: "leaf0>spine1" is one
// direction, "leaf0<>spine1" both, and either end may contain the wildcards of
// path.Match, as in "h*-00>leaf*". A pattern without a match is an error.
func (f *Fabric) FindLinks(pattern string) ([]LinkID, error) {
	return f.findLinks(pattern, f.linkNames())
}

func (f *Fabric) findLinks(pattern string, names []string) ([]LinkID, error) {
	from, to, ok := strings.Cut(pattern, ">")
	from, both := strings.CutSuffix(from, "<")
	if !ok || from == "" || to == "" || strings.ContainsAny(from+to, "<>") {
		return nil, fmt.Errorf(`link %q: expected "%s>%s" for one direction, or "<>" for both`, pattern, f.HostName(0), LeafName(0))
	}
	if _, err := path.Match(from, ""); err != nil {
		return nil, fmt.Errorf("link %q: %w", pattern, err)
	}
	if _, err := path.Match(to, ""); err != nil {
		return nil, fmt.Errorf("link %q: %w", pattern, err)
	}
	match := func(pattern, name string) bool {
		ok, _ := path.Match(pattern, name) // both are valid, as checked above
		return ok
	}
	var found []LinkID
	for id, name := range names {
		a, b, _ := strings.Cut(name, ">")
		if match(from, a) && match(to, b) || both && match(from, b) && match(to, a) {
			found = append(found, LinkID(id))
		}
	}
	if len(found) == 0 {
		return nil, fmt.Errorf("link %q: the fabric has no such link: an example is %q", pattern, names[len(names)-1])
	}
	return found, nil
}
