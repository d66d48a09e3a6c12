package main

import (
	"bytes"
	"flag"
	"fmt"
	"go/scanner"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// where is the kind of text that a banned phrase is searched in.
type where int

const (
	prose    where = 1 << iota // documents, scripts, pages, and data of tests
	comments                   // of Go files, those of tests included
	texts                      // string literals of Go files outside tests: help, errors, titles
	anywhere = prose | comments | texts
)

// banned are the phrases that no text of the project has, each with the wording that
// takes its place (docs/glossary.md has the terms). A space of a pattern also matches a
// line break inside a comment or a paragraph.
var banned = []struct {
	pattern string
	in      where
	instead string
}{
	{`\bso (many|long|much)\b`, anywhere, "N, a duration, a size"},
	{`\b(tell|tells|told|telling)\b`, anywhere, "shows, reports, returns, prints, is notified"},
	{`\b(un)?luck(y|ily)?\b`, anywhere, "randomness, seed, random draw"},
	{`\bbeside\b`, anywhere, "compared with, relative to, next to"},
	{`\bholds 1\b|\btold apart\b|\bno difference( is)? shown\b|\bshows? no difference\b`, anywhere, "includes 1, not significant"},
	{`\bfor want of\b|\bbut for\b|\banew\b|\bwhatever it is\b|\bas it is there\b`, anywhere, "because X is missing, except, again"},
	{`\bwant(s|ed)?\b`, texts, "must be X, expected X"},
	{`\bgood: `, anywhere, "OK: …"},
	{`\b(come|comes|came|coming) to\b`, anywhere, "results, totals"},
	{`(^|[.:;!?] )[Oo]f (a|an|the|each|every|all|[A-Z]\w*)\b[^.,:;]{0,60}: `, anywhere, "the object's name and a normal sentence"},
	{`\bbelieved?\b`, anywhere, "can be trusted, passes the fidelity checks"},
	{`\bmade of it\b`, anywhere, "regenerated, derived"},
	{`\b(try|tries)\b`, anywhere, "attempt, retry"},
	{`\bmistakes?\b`, anywhere, "error"},
	{`\b(nobody|whoever|somebody)\b`, anywhere, "no component, the caller, …"},
}

// passage is text that begins at a line of a file.
type passage struct {
	line int
	text string
}

// passages splits a file into the texts in which phrases are searched, and names their
// kinds: paragraphs of documents, groups of comments, and string literals.
func passages(path string, b []byte) map[where][]passage {
	all := make(map[where][]passage)
	if !strings.HasSuffix(path, ".go") {
		line := 1
		for para := range bytes.SplitSeq(b, []byte("\n\n")) {
			all[prose] = append(all[prose], passage{line, string(para)})
			line += bytes.Count(para, []byte("\n")) + 2
		}
		return all
	}
	file := token.NewFileSet().AddFile(path, -1, len(b))
	var s scanner.Scanner
	s.Init(file, b, nil, scanner.ScanComments)
	last := -1 // the line of the comment before
	for {
		pos, tok, lit := s.Scan()
		line := file.Line(pos)
		switch {
		case tok == token.EOF:
			return all
		case tok == token.COMMENT && last == line-1 && len(all[comments]) > 0:
			all[comments][len(all[comments])-1].text += "\n" + lit
			last = line
		case tok == token.COMMENT:
			all[comments] = append(all[comments], passage{line, lit})
			last = line + strings.Count(lit, "\n")
		case tok == token.STRING && !strings.HasSuffix(path, "_test.go"):
			all[texts] = append(all[texts], passage{line, lit[1 : len(lit)-1]})
		}
	}
}

// phrases finds the banned phrases of a file, as "line: phrase: what to write instead".
func phrases(path string, b []byte) []string {
	var found []string
	for kind, ps := range passages(path, b) {
		for _, p := range ps {
			for i, ban := range banned {
				if ban.in&kind == 0 {
					continue
				}
				for _, at := range patterns[i].FindAllStringIndex(p.text, -1) {
					if isKey(p.text, at) {
						continue
					}
					hit := strings.Join(strings.Fields(strings.ReplaceAll(p.text[at[0]:at[1]], "//", "")), " ")
					found = append(found, fmt.Sprintf("%s:%d: %q: write %s", path, p.line+strings.Count(p.text[:at[0]], "\n"), hit, ban.instead))
				}
			}
		}
	}
	slices.Sort(found)
	return found
}

// isKey reports whether a match is a name and no word of a sentence: a literal "tries", a key
// such as tries: 3 or `tries`, also in a list of keys, the directory tries/, or the
// statement try.
func isKey(text string, at []int) bool {
	before, after := text[:at[0]], text[at[1]:]
	return before == "" && after == "" || keyAfter.MatchString(after) || strings.HasSuffix(before, "`") && strings.HasPrefix(after, "`") ||
		strings.HasSuffix(before, `"`) && strings.HasPrefix(after, `"`) || strings.HasSuffix(before, ", ") && strings.HasPrefix(after, ",")
}

var keyAfter = regexp.MustCompile(`^(: *[0-9\[{]|:\n|/| \{)`)

// patterns are the expressions of banned, without regard to case, where a space also
// matches a line break with the mark of a comment.
var patterns = func() []*regexp.Regexp {
	var all []*regexp.Regexp
	for _, ban := range banned {
		all = append(all, regexp.MustCompile(`(?i:`+strings.ReplaceAll(ban.pattern, " ", `[\s/*#>]+`)+`)`))
	}
	return all
}()

var under = flag.String("under", ".", "search banned phrases below this directory only")

// No text of the project has a banned phrase: documents, help, errors, titles, schema,
// pages and comments.
func TestWords(t *testing.T) {
	err := filepath.WalkDir(*under, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch name := d.Name(); {
		case d.IsDir() && (name == ".git" || name == "bin" || name == "runs" || name == "fuzz" || name == "rapid"):
			return fs.SkipDir
		case !d.Type().IsRegular() || path == "words_test.go" || name == "go.sum" || name == "LICENSE":
			return nil
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if bytes.IndexByte(b[:min(len(b), 8000)], 0) >= 0 { // not text: an image, a capture
			return nil
		}
		for _, hit := range phrases(path, b) {
			t.Error(hit)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Every kind of text is searched, also across line breaks; code is not.
func TestWordsAreFound(t *testing.T) {
	for _, c := range []struct {
		path, text string
		want       []string
	}{
		{"a.md", "One line.\n\nThe first so\nmany of them.", []string{`a.md:3: "so many": write N, a duration, a size`}},
		{"a.go", "package a\n\n// F runs, and so\n// long as it does it waits.\nfunc F() {}\n", []string{`a.go:3: "so long": write N, a duration, a size`}},
		{"a.go", "package a\n\nvar want = \"rate: want a number\"\n", []string{`a.go:3: "want": write must be X, expected X`}},
		{"a_test.go", "package a\n\nvar s = \"got 1, want 2\" // want 2\n", nil},
		{"a.go", "package a\n\nconst s = `Of a run: its file.`\n", []string{`a.go:3: "Of a run:": write the object's name and a normal sentence`}},
		{"a.md", "`tries: 3` sets `tries`. It\ntries: in vain.\n", []string{`a.md:2: "tries": write attempt, retry`}},
		{"a.go", "package a\n\nconst key = \"tries\"\n", nil},
		{"a_test.go", "package a\n\n// Nobody reads it.\n", []string{`a_test.go:3: "Nobody": write no component, the caller, …`}},
	} {
		if got := phrases(c.path, []byte(c.text)); !slices.Equal(got, c.want) {
			t.Errorf("phrases(%q) = %q, want %q", c.text, got, c.want)
		}
	}
}
