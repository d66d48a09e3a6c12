package main

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// pages returns the paths of all documents that people read.
func pages(t *testing.T) []string {
	t.Helper()
	docs, err := filepath.Glob("docs/*.md")
	if err != nil || len(docs) == 0 {
		t.Fatalf("docs/*.md: %d pages, %v", len(docs), err)
	}
	tables, err := filepath.Glob("docs/reference/*.md")
	if err != nil || len(tables) == 0 {
		t.Fatalf("docs/reference/*.md: %d pages, %v", len(tables), err)
	}
	docs = append(docs, tables...)
	return append([]string{"README.md", "CONTRIBUTING.md", "CHANGELOG.md"}, docs...)
}

// TestIndexListsEveryPage checks that docs/README.md links to every page, and that every
// line of its tables ends in a question.
func TestIndexListsEveryPage(t *testing.T) {
	index := read(t, "docs/README.md")
	for _, path := range pages(t) {
		rel, err := filepath.Rel("docs", path)
		if err != nil {
			t.Fatal(err)
		}
		if path != "docs/README.md" && !strings.Contains(index, "("+rel+")") {
			t.Errorf("docs/README.md does not list %s: add a line with the question that it answers", path)
		}
	}
	lines := regexp.MustCompile(`(?m)^\| \[.*$`).FindAllString(index, -1)
	if len(lines) < 10 {
		t.Errorf("docs/README.md lists %d pages in tables, want 10 or more", len(lines))
	}
	for _, line := range lines {
		if !strings.HasSuffix(line, "? |") {
			t.Errorf("docs/README.md: no question in the line %s", line)
		}
	}
}

// TestLicenceAndCitation checks that LICENSE is the standard text and that CITATION.cff has
// the keys that Citation File Format 1.2.0 requires.
func TestLicenceAndCitation(t *testing.T) {
	const apache = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30" // LICENSE-2.0.txt of apache.org
	if sum := sha256.Sum256([]byte(read(t, "LICENSE"))); hex.EncodeToString(sum[:]) != apache {
		t.Errorf("LICENSE is not the standard text of the Apache License 2.0: SHA-256 %x", sum)
	}
	var cite struct {
		Version string              `yaml:"cff-version"`
		Message string              `yaml:"message"`
		Title   string              `yaml:"title"`
		License string              `yaml:"license"`
		Authors []map[string]string `yaml:"authors"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "CITATION.cff")), &cite); err != nil {
		t.Fatal(err)
	}
	if cite.Version != "1.2.0" || cite.Message == "" || cite.Title != "testbed" || cite.License != "Apache-2.0" || len(cite.Authors) == 0 {
		t.Errorf("CITATION.cff: a required key is missing or wrong: %+v", cite)
	}
	for i, a := range cite.Authors {
		if a["name"] == "" && a["family-names"] == "" {
			t.Errorf("CITATION.cff: author %d has no name", i)
		}
	}
}

// TestDocumentsPointAtWhatExists checks that links resolve to files and headings, and that
// commands in documents use verbs of the program.
func TestDocumentsPointAtWhatExists(t *testing.T) {
	paths := pages(t)
	verbs := regexp.MustCompile("(?m)(?:^|[`$ ])(?:sudo )?testbed ([a-z]+) ")
	links := regexp.MustCompile(`\]\(([^)#:]*)(#[^)]*)?\)`)
	help, err := exec.Command("go", "run", ".", "--help").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		text := read(t, path)
		for _, m := range links.FindAllStringSubmatch(text, -1) {
			target := filepath.Join(filepath.Dir(path), m[1])
			if m[1] == "" {
				target = path
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", path, m[1], err)
			} else if m[2] != "" && !slices.Contains(anchors(read(t, target)), m[2]) {
				t.Errorf("%s links to %s, which has no heading %s", path, target, m[2])
			}
		}
		for _, block := range regexp.MustCompile("(?s)```(?:sh|console)\n(.*?)```").FindAllStringSubmatch(text, -1) {
			for _, m := range verbs.FindAllStringSubmatch(block[1], -1) {
				if !strings.Contains(string(help), "\n  "+m[1]+" ") {
					t.Errorf("%s uses testbed %s, which is no verb", path, m[1])
				}
			}
		}
	}
}

// anchors returns the anchors of a document's headings, as Markdown viewers derive them: lower
// case, without punctuation, with - for spaces.
func anchors(text string) []string {
	var out []string
	text = regexp.MustCompile("(?ms)^```.*?^```").ReplaceAllString(text, "")
	for _, m := range regexp.MustCompile(`(?m)^#+ +(.+?) *$`).FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`[^\pL\pN _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		out = append(out, "#"+strings.ReplaceAll(name, " ", "-"))
	}
	return out
}

// TestGuideShowsTheTestedPolicy checks that the guides show the policies that are compiled and tested.
func TestGuideShowsTheTestedPolicy(t *testing.T) {
	source := read(t, "policies/policytest/example_test.go")
	for mark, page := range map[string]string{"// Smallest first\n": "docs/writing-a-policy.md", "// Oldest job first\n": "docs/schedulers.md"} {
		_, code, ok := strings.Cut(source, mark)
		code, _, ok2 := strings.Cut(code, "// end\n")
		if !ok || !ok2 {
			t.Fatal("no marks in the example")
		}
		if !strings.Contains(read(t, page), strings.TrimSpace(code)) {
			t.Errorf("%s does not show the policy of policies/policytest/example_test.go", page)
		}
	}
}
