package plot

import (
	"bytes"
	"compress/zlib"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"testbed/results/rundir"
	"testbed/results/rundir/rundirtest"
)

// All figures in all formats can be read, have the given size, and are reproducible.
func TestFormats(t *testing.T) {
	all, tasks := full(t), withTasks(t)
	for _, f := range Figures() {
		r := all
		if slices.Contains(ofTasks, f.Name) {
			r = tasks
		}
		for _, format := range Formats() {
			o := Options{Width: 5 * Inch, Height: 3 * Inch, DPI: 72, Title: "a title"}
			var a, b bytes.Buffer
			if _, err := Draw(&a, []*rundir.Run{r}, f, format, o); err != nil {
				t.Fatal(err)
			}
			if _, err := Draw(&b, []*rundir.Run{r}, f, format, o); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(a.Bytes(), b.Bytes()) {
				t.Errorf("%s as %s differs from one time to the next", f.Name, format)
			}
			switch format {
			case "png":
				if m, err := png.Decode(&a); err != nil || m.Bounds().Dx() != 360 || m.Bounds().Dy() != 216 {
					t.Errorf("%s: PNG %v, %v", f.Name, m.Bounds(), err)
				}
			case "svg":
				if n := strings.Count(a.String(), "<text"); n == 0 || n != strings.Count(a.String(), "font-family:Liberation Sans,Arimo,Helvetica,Arial,sans-serif;") {
					t.Errorf("%s: not all of %d texts name fonts of the same widths", f.Name, n)
				}
				if !strings.Contains(a.String(), `width="360pt" height="216pt"`) || !slices.Contains(texts(t, a.String()), "a title") {
					t.Errorf("%s: SVG begins %.200s", f.Name, a.String())
				}
			case "pdf":
				for _, want := range []string{"/CreationDate (D:20000101000000)", "/ModDate (D:20000101000000)", "/MediaBox [0 0 360.00 216.00]", "/Count 1", "/FontFile2"} {
					if !strings.Contains(a.String(), want) {
						t.Errorf("%s: PDF has no %s", f.Name, want)
					}
				}
			}
		}
	}
}

// Text in a PDF is stored as text, also beyond ASCII.
func TestPDFTextIsText(t *testing.T) {
	s := rundirtest.Default()
	s.Arms[1].Name = "é+日"
	f, _ := Find("speedup-cdf")
	var b bytes.Buffer
	if _, err := Draw(&b, []*rundir.Run{made(t, s)}, f, "pdf", Options{}); err != nil {
		t.Fatal(err)
	}
	var page strings.Builder
	for _, stream := range bytes.Split(b.Bytes(), []byte("stream\n"))[1:] {
		z, err := zlib.NewReader(bytes.NewReader(stream))
		if err != nil {
			continue // not compressed
		}
		x, _ := io.ReadAll(z) // ignores what follows the stream
		page.Write(x)
	}
	for _, want := range []string{"Speed-up of a coflow relative to fair+hdfs \\(\xd7\\)", "\xe9+?, n = 24"} {
		if !strings.Contains(page.String(), want) {
			t.Errorf("the page has no text %q", want)
		}
	}
	// The object table is at the offset in the trailer, also after the dates are replaced.
	m := regexp.MustCompile(`startxref\n(\d+)\n`).FindSubmatch(b.Bytes())
	if m == nil {
		t.Fatal("no startxref")
	}
	if at, _ := strconv.Atoi(string(m[1])); !bytes.HasPrefix(b.Bytes()[at:], []byte("xref")) {
		t.Errorf("at %d is %q, want xref", at, b.Bytes()[at:at+10])
	}
}

// Any names, sizes and times give a figure or an error, never a panic.
func TestHostileInput(t *testing.T) {
	base := made(t, rundirtest.Default())
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"<script>&\"'", "\x00\x1b[31m\n", strings.Repeat("w", 500), "\u202eabc", "\xff"})).Draw(t, "name")
		r := *base
		r.Summary.Arms = slices.Clone(base.Summary.Arms)
		rename := func(s string) string {
			if s == "sebf+hdfs" && name != "" {
				return name
			}
			return s
		}
		for i := range r.Summary.Arms {
			r.Summary.Arms[i].Name = rename(r.Summary.Arms[i].Name)
		}
		r.Coflows = slices.Clone(base.Coflows)
		for i := range r.Coflows {
			c := &r.Coflows[i]
			c.Arm = rename(c.Arm)
			switch rapid.IntRange(0, 5).Draw(t, "time") {
			case 0:
				c.CCT, c.Size = 0, 0
			case 1:
				c.CCT = time.Duration(rapid.Int64().Draw(t, "cct"))
				c.End = c.CCT
			}
		}
		f := rapid.SampledFrom(Figures()).Draw(t, "figure")
		o := Options{Width: rapid.Float64Range(LeastSide, 5*Inch).Draw(t, "width"), Height: rapid.Float64Range(LeastSide, 5*Inch).Draw(t, "height"),
			FontSize: rapid.Float64Range(LeastFontSize, 30).Draw(t, "font"), Title: name, DPI: LeastDPI}
		if f.Scales {
			o.Scale = rapid.SampledFrom([]Scale{AutoScale, Log, Linear}).Draw(t, "scale")
		}
		format := rapid.SampledFrom(Formats()).Draw(t, "format")
		var b bytes.Buffer
		if _, err := Draw(&b, []*rundir.Run{&r}, f, format, o); err == nil && format == "svg" {
			d := xml.NewDecoder(&b)
			for {
				if _, err := d.Token(); errors.Is(err, io.EOF) {
					break
				} else if err != nil {
					t.Fatalf("%s with an arm %q: %v", f.Name, name, err)
				}
			}
		}
	})
}
