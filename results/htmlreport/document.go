package htmlreport

import (
	"bytes"
	_ "embed" // the template
	"fmt"
	"html/template"
	"io"

	"testbed/topo/palette"
)

// Document is a page of tables without charts, in the style of the report of a run.
type Document struct {
	Kind, Title string
	Lead        []string // paragraphs
	Sections    []DocumentSection
}

// DocumentSection is a part of a document.
type DocumentSection struct {
	ID, Title string
	Lead      string
	Tables    []Table
	Lists     []List
	Links     []Link
}

// Link leads to another page.
type Link struct{ Text, Address string }

// Strip shows figures on one line, in percent of its width from the left.
type Strip struct {
	Expected, Paper Span  // of the expected range, and of the paper's figure
	Ours            *Span // the measured interval
	Value           float64
	Text            string // the same in words
}

// Span is a part of a strip.
type Span struct{ Left, Width float64 }

//go:embed assets/document.html
var documentHTML string

// Write writes the page. Errors are those of w.
func (d Document) Write(w io.Writer) error {
	t, err := template.New("page").Funcs(functions).Parse(pageHTML)
	if err == nil {
		t, err = t.New("document").Parse(documentHTML)
	}
	if err != nil {
		return fmt.Errorf("page: template: %w", err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, struct {
		Document
		Policy template.HTMLAttr
		CSS    template.CSS
		Script template.JS
	}{d, policy(tablesJS), template.CSS(palette.CSS() + pageCSS), template.JS(tablesJS)}); err != nil {
		return fmt.Errorf("page: %w", err)
	}
	_, err = w.Write(b.Bytes())
	return err
}
