// Package scripts embeds the scenarios that the program brings, those of the quickstart and the
// tutorial. It does not check them.
package scripts

import (
	"embed"
	"fmt"
	"strings"
)

// Quickstart is the name of the example that a user runs first.
const Quickstart = "quickstart"

//go:embed quickstart/*.yaml quickstart/coflows.txt tutorial/first.*
var files embed.FS

// Files returns the files of all examples, by the paths of Example.
func Files() embed.FS { return files }

// Example is a scenario that the program brings.
type Example struct {
	Name  string
	Path  string   // of the scenario
	Reads []string // files that the scenario reads, in its directory
}

// Examples returns all examples. Their order is that of a first reading.
func Examples() []Example {
	return []Example{
		{Quickstart, "quickstart/scenario.yaml", []string{"coflows.txt"}},
		{"first", "tutorial/first.yaml", []string{"first.txt"}},
		{"jobs", "quickstart/jobs.yaml", nil},
		{"faults", "quickstart/faults.yaml", []string{"coflows.txt"}},
		{"facebook", "quickstart/facebook.yaml", nil},
	}
}

// Find returns the example of a name.
func Find(name string) (Example, error) {
	var names []string
	for _, e := range Examples() {
		if e.Name == name {
			return e, nil
		}
		names = append(names, e.Name)
	}
	return Example{}, fmt.Errorf("unknown example %q: must be one of %s", name, strings.Join(names, ", "))
}

// About returns the first paragraph of a scenario's comment.
func About(scenario []byte) string {
	var words []string
	for line := range strings.Lines(string(scenario)) {
		word := strings.TrimSpace(strings.TrimPrefix(line, "#"))
		if word == "" || !strings.HasPrefix(line, "#") {
			break
		}
		words = append(words, word)
	}
	return strings.Join(words, " ")
}
