// Package htmlreport writes the report of a run as one self-contained HTML file: the tables of
// the Markdown report, and charts with zoom and filters. The file loads nothing from the
// network or from other files. The same data gives the same bytes.
//
// An arm whose verdict is void shows its name and its verdict, but no figures.
//
// Charts of curves are drawn by uPlot, which is in the directory assets with its licence.
// Tables, the picture of the fabric and the drawings of results/plot work without scripts.
//
// The package does not compute completion times (results/metrics) or their breakdown
// (results/breakdown). Its limits are in limits.go.
package htmlreport

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

	"testbed/results/breakdown"
	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/topo"
	"testbed/topo/draw"
	"testbed/topo/palette"
	"testbed/topo/words"
)

// Data is the content of a page.
type Data struct {
	RunID, Scenario string
	Source          string // the sentence that names the source of the figures
	Ran             string // what was compared as a sentence; "" if unknown
	Result          string // the result of the run as a sentence
	// Written and Resolved are the scenario, Fabric is that of the baseline.
	Written, Resolved string
	Fabric            *topo.Fabric
	Simulated         bool   // whether the fluid model computed the records
	Partial           string // the sentence that describes a run that was cut short; "" for a whole run
	Summary           []byte // summary.json, embedded in the page
	// Human formats a completion time as in all tables of the report.
	Human func(time.Duration) string
	Arms  []Arm // the first is the baseline
	// LinkInterval is the interval of the peak loads of links, as in report.md and links.csv.
	LinkInterval time.Duration

	// Drawings and Tables are those of the sections tasks, disks, time and traffic.
	Drawings map[string][]Drawing
	Tables   map[string][]Table

	Headline    []Table
	Failures    []Table
	Scale       *Table // nil without a scale check
	Reasons     []List // why arms did not pass
	Problems    []List // in the records
	Checks      *Table // nil without checks
	Definitions []string
	Manifest    []Setting
}

// Arm is one combination of policies.
type Arm struct {
	Name    string
	Level   string // the worst verdict of its repeats; "" without packets
	Void    bool   // its figures are withheld
	Repeats []Repeat
	Numbers metrics.Numbers // of the repeats
	Faults  []Mark          // that the scenario plans
}

// Mark is a moment on the run's clock that charts mark.
type Mark struct {
	At   time.Duration
	Text string
}

// Repeat is one execution of an arm. The page leaves out fields that are nil.
type Repeat struct {
	Records flows.Records
	Zero    time.Time // the wall clock at time 0 of Records; zero in a simulation
	Samples string    // path of the samples (results/samples); "" for none
	Timing  *breakdown.Run
	Links   []flows.LinkSeries
	Slots   *metrics.TaskSlots
	Fabric  *topo.Fabric
	// Progress is the received bytes of each transfer over time.
	Progress []metrics.Progress
}

// Drawing is a figure that needs no script.
type Drawing struct {
	Title, Lead string
	SVG         string // is embedded as it is
	Notes       []string
}

// Table is a table with a caption.
type Table struct {
	Title string
	Lead  string // a sentence before the table, or ""
	Head  []string
	Rows  [][]Cell
	Notes []string
}

// FigureColumn reports whether any cell of the i-th column is a figure.
func (t Table) FigureColumn(i int) bool {
	return slices.ContainsFunc(t.Rows, func(row []Cell) bool { return i < len(row) && row[i].Figure })
}

// Cell is one cell of a table.
type Cell struct {
	Text string
	// Arm, Metric and Value link a figure to summary.json: the arm's name, the path of
	// the key below the arm, such as "cct.mean_us", and the value in the file.
	Arm, Metric, Value string
	Best               bool   // the best value of its column
	Level              string // for the cell of a verdict (pass, unverified, degraded or void) or of a claim's outcome (near too)
	Figure             bool   // aligned right
	Strip              *Strip // in place of the text
}

// List is a heading with items.
type List struct {
	Heading string
	Items   []string
}

// Setting is one property of the run.
type Setting struct{ Key, Value string }

//go:embed assets/page.html
var pageHTML string

//go:embed assets/page.css
var pageCSS string

//go:embed assets/page.js
var pageJS string

//go:embed assets/tables.js
var tablesJS string

//go:embed assets/uPlot.iife.min.js
var uplotJS string

//go:embed assets/uPlot.min.css
var uplotCSS string

// view is the data of the template.
type view struct {
	Data
	Sections []section
	Policy   template.HTMLAttr // Content-Security-Policy
	CSS      []template.CSS
	Scripts  []template.JS
	// Embedded is summary.json, Charts the data that the script draws.
	Embedded, Charts template.JS
	Drawn            *charts       // for the template
	Drawing          template.HTML // of Fabric
	*views
}

// section is an entry of the table of contents.
type section struct{ ID, Title string }

var functions = template.FuncMap{
	"plural": words.Plural[int],
	"svg":    func(s string) template.HTML { return template.HTML(s) },
	"number": func(i int) int { return i + 1 },
}

// Write writes the page. Errors are those of w, or of a summary that is not JSON.
func Write(w io.Writer, d Data) error {
	t, err := template.New("page").Funcs(functions).Parse(pageHTML)
	if err != nil {
		return fmt.Errorf("page: template: %w", err)
	}
	var summary bytes.Buffer
	if err := json.Compact(&summary, d.Summary); err != nil {
		return fmt.Errorf("page: summary: %w", err)
	}
	var embedded bytes.Buffer
	json.HTMLEscape(&embedded, summary.Bytes())
	views, err := newViews(&d)
	if err != nil {
		return fmt.Errorf("page: %w", err)
	}
	v := view{Data: d, views: views, Embedded: template.JS(embedded.String()),
		CSS: []template.CSS{template.CSS(uplotCSS), template.CSS(palette.CSS() + pageCSS)}, Scripts: []template.JS{template.JS(uplotJS), template.JS(tablesJS), template.JS(pageJS)}}
	charts, err := json.Marshal(v.charts) // escapes <, > and & as well
	if err != nil {
		return fmt.Errorf("page: charts: %w", err)
	}
	v.Charts = template.JS(charts)
	v.Drawn = &v.charts
	v.Sections = v.contents()
	v.Policy = policy(uplotJS, pageJS, tablesJS)
	var drawing bytes.Buffer
	if d.Fabric != nil {
		if err := draw.SVG(&drawing, d.Fabric, draw.Options{Brief: true}); err != nil {
			return fmt.Errorf("page: %w", err)
		}
	}
	v.Drawing = template.HTML(drawing.String()) // draw escapes names
	// Execute into a buffer: a template that fails midway must not leave half a page.
	var b bytes.Buffer
	if err := t.Execute(&b, v); err != nil {
		return fmt.Errorf("page: %w", err)
	}
	_, err = w.Write(b.Bytes())
	return err
}

// policy returns a Content-Security-Policy that allows the page's own scripts and no
// loading of resources.
func policy(scripts ...string) template.HTMLAttr {
	hashes := []string{}
	for _, s := range scripts {
		sum := sha256.Sum256([]byte(s))
		hashes = append(hashes, "'sha256-"+base64.StdEncoding.EncodeToString(sum[:])+"'")
	}
	return template.HTMLAttr(`content="default-src 'none'; style-src 'unsafe-inline'; script-src ` + strings.Join(hashes, " ") + `; base-uri 'none'; form-action 'none'"`)
}

// contents returns the sections of the page, in order.
func (v *view) contents() []section {
	var out []section
	add := func(present bool, id, title string) {
		if present {
			out = append(out, section{id, title})
		}
	}
	add(true, "headline", "Results")
	add(len(v.Failures) > 0, "failures", "Failures")
	add(v.Scale != nil, "scale", "Scale check")
	add(len(v.Reasons) > 0, "reasons", "Verdicts")
	add(len(v.charts.CDFs) > 0, "distributions", "Distributions")
	add(v.Compared, "speedups", "Speed-ups")
	add(len(v.Drawings["tasks"]) > 0, "tasks", "Jobs of tasks")
	add(v.charts.Series != nil, "series", "Over time")
	add(len(v.charts.Gantt) > 0, "gantt", "Attempts")
	add(len(v.charts.Timeline) > 0, "timeline", "Timeline")
	add(v.charts.Links != nil, "links", "Links")
	add(len(v.charts.Balance) > 0, "balance", "Balance")
	add(v.Disks != nil, "disks", "Disks")
	add(len(v.Tables["time"]) > 0, "time", "Time by cause")
	add(len(v.Tables["traffic"]) > 0, "traffic", "Bytes between racks")
	add(len(v.Problems) > 0, "problems", "Problems")
	add(v.Checks != nil, "checks", "Fidelity checks")
	add(len(v.Manifest) > 0, "manifest", "Manifest")
	add(len(v.Definitions) > 0, "definitions", "Definitions")
	return out
}
