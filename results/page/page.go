// Package page writes a run's report as one HTML file that people look at: tables
// as they are in the Markdown report, and charts that can be read off, zoomed and
// filtered. The file needs nothing else: no network, no other file. The same data
// give the same bytes.
//
// An arm whose verdict is void shows no figure: its name and its verdict are all
// that is on the page.
//
// Charts of curves are drawn by uPlot, which is in the directory assets with its
// licence. Tables, the picture of the fabric and all bars are there without
// scripts.
//
// The package computes no completion time (results/metrics) and does not tell
// where time went (results/timing); its bounds are in limits.go.
package page

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // the assets
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"slices"
	"strings"
	"time"

	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/timing"
	"testbed/topo"
)

// Data is what a page shows.
type Data struct {
	RunID, Scenario string
	Source          string // the sentence that says where the figures come from
	Simulated       bool   // there were no packets
	Partial         string // the sentence that says that the run was cut short, if it was
	Summary         []byte // summary.json: the page carries it
	// Human prints a completion time as all tables of the report do.
	Human func(time.Duration) string
	Arms  []Arm // the first is the baseline

	Headline    []Table
	Failures    []Table
	Scale       *Table // nil where the scale was not checked
	Reasons     []List // why arms did not pass
	Problems    []List // in the records
	Checks      *Table // nil where there were none
	Definitions []string
	Manifest    []Setting
}

// Arm is one combination of policies.
type Arm struct {
	Name    string
	Level   string // the worst verdict of its repeats; "" without packets
	Void    bool   // none of its figures may be shown
	Repeats []Repeat
}

// Repeat is one execution of an arm. What is nil is left out of the page.
type Repeat struct {
	Records flows.Records
	Timing  *timing.Run
	Links   []flows.LinkSeries
	Fabric  *topo.Fabric
	// Progress is how far each transfer was over time.
	Progress []metrics.Progress
}

// Table is a table with a caption.
type Table struct {
	Title string
	Lead  string // a sentence ahead of it, or ""
	Head  []string
	Rows  [][]Cell
	Notes []string
}

// FigureColumn tells whether some cell of the i-th column is a figure.
func (t Table) FigureColumn(i int) bool {
	return slices.ContainsFunc(t.Rows, func(row []Cell) bool { return i < len(row) && row[i].Figure })
}

// Cell is one cell of a table.
type Cell struct {
	Text string
	// Arm, Metric and Value tie a figure to summary.json: the arm's name, the path of
	// the key below the arm, such as "cct.mean_us", and the value as it is there.
	Arm, Metric, Value string
	Best               bool   // of its column
	Level              string // of a verdict's cell: pass, unverified, degraded or void
	Figure             bool   // set to the right
}

// List is a heading with items.
type List struct {
	Heading string
	Items   []string
}

// Setting is one line of how a run was made.
type Setting struct{ Key, Value string }

//go:embed assets/page.html
var pageHTML string

//go:embed assets/page.css
var pageCSS string

//go:embed assets/page.js
var pageJS string

//go:embed assets/uPlot.iife.min.js
var uplotJS string

//go:embed assets/uPlot.min.css
var uplotCSS string

// view is what the template is given.
type view struct {
	Data
	Sections []section
	Policy   template.HTMLAttr // Content-Security-Policy
	CSS      []template.CSS
	Scripts  []template.JS
	// Embedded is summary.json, Charts what the script draws.
	Embedded, Charts template.JS
	Drawn            *charts // for the template
	*views
}

// section is an entry of the table of contents.
type section struct{ ID, Title string }

// Write writes the page. Errors are those of w, or of a summary that is not JSON.
func Write(w io.Writer, d Data) error {
	t, err := template.New("page").Funcs(template.FuncMap{"plural": plural}).Parse(pageHTML)
	if err != nil {
		return fmt.Errorf("page: template: %w", err)
	}
	var summary bytes.Buffer
	if err := json.Compact(&summary, d.Summary); err != nil {
		return fmt.Errorf("page: summary: %w", err)
	}
	var embedded bytes.Buffer
	json.HTMLEscape(&embedded, summary.Bytes())
	v := view{Data: d, views: newViews(&d), Embedded: template.JS(embedded.String()),
		CSS: []template.CSS{template.CSS(uplotCSS), template.CSS(pageCSS)}, Scripts: []template.JS{template.JS(uplotJS), template.JS(pageJS)}}
	charts, err := json.Marshal(v.charts) // escapes <, > and & as well
	if err != nil {
		return fmt.Errorf("page: charts: %w", err)
	}
	v.Charts = template.JS(charts)
	v.Drawn = &v.charts
	v.Sections = v.contents()
	v.Policy = policy(uplotJS, pageJS)
	// A template that fails half-way must not leave half a page.
	var b bytes.Buffer
	if err := t.Execute(&b, v); err != nil {
		return fmt.Errorf("page: %w", err)
	}
	_, err = w.Write(b.Bytes())
	return err
}

// policy lets a browser run the page's own scripts and nothing else, and load
// nothing at all.
func policy(scripts ...string) template.HTMLAttr {
	var hashes []string
	for _, s := range scripts {
		sum := sha256.Sum256([]byte(s))
		hashes = append(hashes, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
	}
	return template.HTMLAttr(`content="default-src 'none'; style-src 'unsafe-inline'; script-src ` + strings.Join(hashes, " ") + `; base-uri 'none'; form-action 'none'"`)
}

// contents are the sections that the page has, in order.
func (v *view) contents() []section {
	var out []section
	add := func(there bool, id, title string) {
		if there {
			out = append(out, section{id, title})
		}
	}
	add(true, "headline", "Results")
	add(len(v.Failures) > 0, "failures", "Failures")
	add(v.Scale != nil, "scale", "Scale check")
	add(len(v.Reasons) > 0, "reasons", "Verdicts")
	add(len(v.charts.CDFs) > 0, "distributions", "Distributions")
	add(v.Compared, "speedups", "Speed-ups")
	add(len(v.charts.Timeline) > 0, "timeline", "Timeline")
	add(v.charts.Links != nil, "links", "Links")
	add(len(v.charts.Balance) > 0, "balance", "Balance")
	add(v.Disks != nil, "disks", "Disks")
	add(len(v.Spent) > 0, "time", "Where time went")
	add(v.Traffic != nil, "traffic", "Cross-rack bytes")
	add(len(v.Problems) > 0, "problems", "Problems")
	add(v.Checks != nil, "checks", "Fidelity checks")
	add(len(v.Manifest) > 0, "manifest", "Manifest")
	add(len(v.Definitions) > 0, "definitions", "Definitions")
	return out
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
