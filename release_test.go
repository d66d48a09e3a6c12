package main

import (
	"regexp"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"testbed/emu/cli"
)

// The version is stated once, in emu/cli. TestInstall checks the program and its man pages, and
// make test-dist the names and contents of packages.
func TestRelease(t *testing.T) {
	if !regexp.MustCompile(`^\d+\.\d+\.\d+$`).MatchString(cli.Release) {
		t.Errorf("release %q is no version such as 1.2.3", cli.Release)
	}
	var cite struct {
		Version string `yaml:"version"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "CITATION.cff")), &cite); err != nil || cite.Version != cli.Release {
		t.Errorf("CITATION.cff has version %q, want %q (%v)", cite.Version, cli.Release, err)
	}
	modules := read(t, "policies/external/python/pyproject.toml")
	if !strings.Contains(modules, "\nversion = \""+cli.Release+"\"\n") {
		t.Errorf("pyproject.toml has another version than %q", cli.Release)
	}
	changelog := read(t, "CHANGELOG.md")
	const none = "There is no release yet"
	released := regexp.MustCompile(`(?m)^## (?:Unreleased|v?([\d.]+).*)$`).FindAllStringSubmatch(changelog, -1)
	newest := ""
	for _, heading := range released {
		if newest == "" {
			newest = heading[1]
		}
	}
	if strings.Contains(strings.Join(strings.Fields(changelog), " "), none) != (newest == "") || newest != "" && newest != cli.Release {
		t.Errorf("CHANGELOG.md: its newest release is %q, want %s, or none and the words %q", newest, cli.Release, none)
	}
	version := regexp.MustCompile(`testbed[-_:](\d+\.\d+\.\d+)`)
	for page, least := range map[string]int{"README.md": 4, "scripts/ci/pull-request.yml": 1} {
		named := version.FindAllStringSubmatch(read(t, page), -1)
		if len(named) < least {
			t.Errorf("%s names %d packages, want %d or more", page, len(named), least)
		}
		for _, m := range named {
			if m[1] != cli.Release {
				t.Errorf("%s names %s, want %s", page, m[0], cli.Release)
			}
		}
	}
}
