package htmlreport

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"testbed/emu/longtest"
	"testbed/results/tooltest"
	"testbed/topo/palette"
)

var keep = flag.String("keep", "", "directory that the browser's test leaves its pages and pictures in")

// browse runs Chromium on a page with the network denied. It returns its output and log.
func browse(t *testing.T, args ...string) (out, log string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 90*time.Second)
	defer cancel()
	args = append([]string{"--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--log-level=0",
		"--user-data-dir=" + t.TempDir(), "--virtual-time-budget=5000"}, args...)
	c := exec.CommandContext(ctx, "chromium", args...)
	c.WaitDelay = 10 * time.Second
	var stdout, stderr bytes.Buffer
	c.Stdout, c.Stderr = &stdout, &stderr
	if err := c.Run(); err != nil {
		t.Fatalf("chromium: %v\n%s", err, stderr.String())
	}
	return stdout.String(), stderr.String()
}

var consoleLine = regexp.MustCompile(`.*(CONSOLE|Uncaught|Refused to).*`)

// checkPage opens a page and reports errors after its scripts ran: failures, empty charts,
// and boxes wider than the window.
func checkPage(t *testing.T, path, query string, width int) map[string]string {
	t.Helper()
	dom, log := browse(t, fmt.Sprintf("--window-size=%d,900", width), "--dump-dom", "file://"+path+"?check=1"+query)
	for _, line := range consoleLine.FindAllString(log, -1) {
		t.Errorf("the browser's console: %s", line)
	}
	root, charts := map[string]string{}, map[string]string{}
	walk(t, dom, func(n *html.Node, attr map[string]string) {
		switch {
		case n.Data == "html":
			root = attr
		case n.Data == "section" && len(strings.Fields(content(n))) < 4:
			t.Errorf("section %s is empty", attr["id"])
		case attr["class"] == "paper":
			svg := attr["data-svg"]
			if !strings.Contains(svg, "rgb(213, 94, 0)") || !strings.Contains(svg, "0.5 s of its time") || strings.Contains(svg, "var(") {
				t.Errorf("the SVG of a drawing: %s", svg)
			}
		case n.Data == "figure" && attr["data-chart"] != "":
			name := attr["data-chart"] + " " + attr["data-id"]
			charts[name] = attr["data-drawn"]
			if drawn, err := strconv.Atoi(attr["data-drawn"]); err != nil || drawn < 1 {
				t.Errorf("chart %s drew %q", name, attr["data-drawn"])
			}
			// Background, grid, text and at least one curve or bar, with their edges.
			if colours, err := strconv.Atoi(attr["data-colours"]); err != nil || colours < 8 {
				t.Errorf("chart %s has pixels of %q colours, want 8 or more", name, attr["data-colours"])
			}
			checkSVG(t, n, name, attr["data-svg"])
		}
	})
	if root["data-ready"] != "yes" || root["data-checked"] != "yes" || root["data-problems"] != "" {
		t.Errorf("the scripts did not run to their end: %v", root)
	}
	if root["data-overflow"] != "0" {
		t.Errorf("at %d pixels the page is %s pixels too wide", width, root["data-overflow"])
	}
	return charts
}

// seriesColours are colours of what the charts other than those of arms draw, on paper.
var seriesColours = map[string]palette.Tone{
	"timeline": palette.Of("flow"),
	"progress": palette.Of("last flow"),
	"gantt":    palette.Of("computing"),
	"shares":   palette.Arm(0),
	"links":    palette.Load(0),
}

var axisLabel = regexp.MustCompile(`^[\d.]+( ?([µm]?s|%|×|[KMG]?B|[KMG]?bps))?$`)

// checkSVG checks that the saved SVG of a chart is XML with the chart's title and legend, the numbers of two axes and
// at least one line or area of each arm in the legend, or of what the chart shows.
func checkSVG(t *testing.T, figure *html.Node, name, svg string) {
	t.Helper()
	caption, arms := "", []string{}
	for n := range figure.Descendants() {
		if n.Data == "figcaption" {
			caption = content(n)
		}
		if n.Data == "button" && n.Parent.Data == "div" { // of a legend
			arms = append(arms, strings.Join(strings.Fields(content(n)), " "))
		}
	}
	texts, colours, numbers := []string{}, map[string]int{}, 0
	inside := false // the chart, below the title and the legend
	d := xml.NewDecoder(strings.NewReader(svg))
	for first := true; ; first = false {
		token, err := d.Token()
		if err == io.EOF {
			break
		} else if err != nil {
			t.Errorf("chart %s: its SVG: %v", name, err)
			return
		}
		switch x := token.(type) {
		case xml.StartElement:
			if first && x.Name != (xml.Name{Space: "http://www.w3.org/2000/svg", Local: "svg"}) {
				t.Errorf("chart %s: an SVG that begins with %v", name, x.Name)
			}
			for _, a := range x.Attr {
				inside = inside || a.Name.Local == "id" && a.Value == "chart"
				if !inside && x.Name.Local == "rect" && a.Name.Local == "fill" && a.Value == "none" && name != "timeline " {
					t.Errorf("chart %s: its legend in SVG has a swatch without colour", name)
				}
				if inside && (a.Name.Local == "fill" || a.Name.Local == "stroke") && x.Name.Local != "text" {
					colours[a.Value]++
				}
				if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "var(") || a.Name.Local == "d" && a.Value[0] != 'M' {
					t.Errorf("chart %s: its SVG has %s %.80q", name, a.Name.Local, a.Value)
				}
			}
		case xml.CharData:
			if text := strings.TrimSpace(string(x)); text != "" {
				texts = append(texts, text)
			}
			if axisLabel.Match(x) {
				numbers++
			}
		}
	}
	all := strings.Join(texts, " ")
	want := append(arms, strings.Join(strings.Fields(caption), " "))
	for _, text := range want {
		if !strings.Contains(all, text) {
			t.Errorf("chart %s: its SVG lacks %q: %.300s", name, text, all)
		}
	}
	kind, drawn, least := strings.Fields(name)[0], 0, min(len(arms), palette.Arms)
	if tone, ok := seriesColours[kind]; ok {
		drawn, least = colours[tone.Light.String()], 1
	} else {
		for i := range palette.Arms {
			if i > 0 || kind != "speedups" { // the baseline has the colour of the line at 1
				drawn += min(1, colours[palette.Arm(i).Light.String()])
			}
		}
		if kind == "speedups" {
			least = min(least, palette.Arms-1)
		}
	}
	if numbers < 4 || drawn < least {
		t.Errorf("chart %s: its SVG has %d numbers, %d of %d colours: %v, %.300s", name, numbers, drawn, least, colours, all)
	}
}

func screenshot(t *testing.T, path, out, query string, width, height int) {
	t.Helper()
	browse(t, fmt.Sprintf("--window-size=%d,%d", width, height), "--screenshot="+out, "file://"+path+"?check=1"+query)
	if b, err := os.ReadFile(out); err != nil || len(b) < 20_000 {
		t.Errorf("picture %s: %d bytes, %v", out, len(b), err)
	}
}

// phone checks a page 390 pixels wide inside a frame, because a window has a larger
// minimum width.
func phone(t *testing.T, file func(name, page string) string, name, picture string) {
	t.Helper()
	path := file("phone.html", `<!doctype html><title>phone</title><body style="margin:0"><iframe src="`+name+`?check=1&theme=light" style="border:0;width:390px;height:8000px"></iframe>
<script>const look = left => setTimeout(() => {
	const d = document.querySelector("iframe").contentDocument.documentElement;
	if (d.dataset.checked || !left) document.documentElement.dataset.within = JSON.stringify(d.dataset); else look(left - 1);
}, 200); look(20)</script>`)
	browse(t, "--window-size=500,8000", "--screenshot="+picture, "file://"+path)
	dom, log := browse(t, "--allow-file-access-from-files", "--dump-dom", "file://"+path)
	for _, line := range consoleLine.FindAllString(log, -1) {
		t.Errorf("on a phone, the browser's console: %s", line)
	}
	walk(t, dom, func(n *html.Node, attr map[string]string) {
		if within := attr["data-within"]; n.Data == "html" && (!strings.Contains(within, `"checked":"yes"`) || !strings.Contains(within, `"overflow":"0"`) || strings.Contains(within, "problems")) {
			t.Errorf("at 390 pixels the page says %q, want it checked, and nothing wider than the window", within)
		}
	})
}

// Charts respond: arms can be hidden, coflows and links show their figures, selections and
// the theme redraw, and nothing fails.
func interact(t *testing.T, file func(name, page string) string, name string) {
	t.Helper()
	path := file("interact.html", `<!doctype html><title>interact</title><body><iframe src="`+name+`?check=1" style="border:0;width:1200px;height:8000px"></iframe>
<script>const interact = () => {
	const w = document.querySelector("iframe").contentWindow, d = w.document, said = {};
	const key = (e, key) => e.dispatchEvent(new w.KeyboardEvent("keydown", { key, bubbles: true }));
	const change = (e, value, type) => { e.value = value; e.dispatchEvent(new w.Event(type, { bubbles: true })); };
	const fig = kind => d.querySelector("figure[data-chart=" + kind + "]"), read = f => f.querySelector("output").textContent;
	const cdf = fig("cdf"), arm = cdf.querySelector(".legend button");
	arm.click(); said.pressed = arm.getAttribute("aria-pressed");
	key(cdf.querySelector(".plot"), "End"); setTimeout(() => {
	said.cdf = read(cdf);
	const line = fig("timeline"), canvas = line.querySelector("canvas.plot");
	key(canvas, "Home"); said.coflow = read(line);
	const flows = fig("progress"), of = flows.querySelector("figcaption"); said.progress = of.textContent + ", drawn " + flows.dataset.drawn;
	key(flows.querySelector(".plot"), "End"); setTimeout(() => {
	said.flow = read(flows); said.spent = flows.querySelector(".spent").textContent;
	const filled = new Set(Array.from(flows.querySelectorAll(".share .bar>span"), e => w.getComputedStyle(e).backgroundColor)); said.causes = String(filled.size);
	const box = canvas.getBoundingClientRect(), at = { clientX: box.left + 60, clientY: box.top + 6 + 13 * 2.5, pointerId: 1, bubbles: true };
	canvas.setPointerCapture = () => {}; // synthetic events have no real pointer
	canvas.dispatchEvent(new w.PointerEvent("pointerdown", at)); canvas.dispatchEvent(new w.PointerEvent("pointerup", at));
	said.pressed2 = of.textContent; said.charts = String(flows.querySelectorAll(".uplot").length);
	canvas.dispatchEvent(new w.PointerEvent("pointermove", Object.assign({}, at, { clientY: box.top + 6 + 13 * 30 }))); said.pointed = of.textContent;
	key(canvas, "+"); said.zoomed = String(!line.querySelector(".reset").disabled); said.fewer = line.dataset.drawn;
	line.querySelector(".reset").click(); said.whole = String(line.querySelector(".reset").disabled);
	change(line.querySelector("select"), "2", "change"); said.another = of.textContent;
	const gantt = fig("gantt"), rows = gantt.querySelector("canvas.plot"), count = () => gantt.dataset.drawn;
	said.attempts = count(); key(rows, "ArrowRight"); said.attempt = read(gantt); key(rows, "ArrowDown"); key(rows, "End"); said.later = read(gantt);
	key(rows, "+"); said.near = String(+count() > 0 && +count() < +said.attempts) + !gantt.querySelector(".reset").disabled;
	key(rows, "Enter"); change(gantt.querySelector(".by"), "job", "change"); said.byJob = gantt.querySelector(".names").textContent;
	change(gantt.querySelector(".by"), "user", "change"); said.byUser = gantt.querySelector(".names").textContent;
	gantt.querySelector(".reset").click(); said.all = String(count() === said.attempts);
	const area = rows.getBoundingClientRect(); rows.dispatchEvent(new w.PointerEvent("pointermove", { clientX: area.left + 140, clientY: area.top + 6 + 14, pointerId: 1, bubbles: true })); said.over = read(gantt);
	change(gantt.querySelector("select"), "2", "change"); said.other = read(gantt) + gantt.querySelector("select").selectedOptions[0].textContent;
	const slots = fig("shares"); key(slots.querySelector("canvas.plot"), "Home"); said.slots = read(slots);
	const links = fig("links"), one = links.querySelector(".link"), before = one.style.stroke;
	change(links.querySelector("input"), "9", "input"); said.links = read(links);
	said.what = links.querySelector(".what").value; said.recoloured = String(one.style.stroke !== before);
	change(fig("speedups").querySelector("select"), "size", "change"); said.speedups = fig("speedups").dataset.drawn + " " + fig("speedups").querySelectorAll(".legend button").length;
	const table = d.querySelector("#checks table"), column = () => Array.from(table.tBodies[0].rows, r => r.cells[0].textContent).join(" ");
	said.written = column(); table.querySelector("th .sort").click(); said.up = column(); table.querySelector("th .sort").click(); said.down = column();
	table.querySelector("caption .save").click(); said.saved = d.documentElement.dataset.saved; table.querySelector("th .sort").click(); said.asWritten = column();
	const shown = () => Array.from(new Set(Array.from(d.querySelectorAll("[data-shown]"), e => e.dataset.shown))).join(", ");
	const brush = d.querySelector(".brush canvas"), area2 = brush.getBoundingClientRect(), at2 = x => ({ clientX: area2.left + x, clientY: area2.top + 9, pointerId: 1, bubbles: true });
	said.following = Array.from(d.querySelectorAll("figure[data-shown]"), f => f.dataset.chart).sort().join(" ");
	brush.setPointerCapture = () => {};
	brush.dispatchEvent(new w.PointerEvent("pointerdown", at2(300))); brush.dispatchEvent(new w.PointerEvent("pointermove", at2(500))); brush.dispatchEvent(new w.PointerEvent("pointerup", at2(500)));
	setTimeout(() => { said.brushed = shown();
	key(brush, "ArrowRight"); setTimeout(() => { said.moved = shown();
	canvas.dispatchEvent(new w.PointerEvent("pointerdown", at)); canvas.dispatchEvent(new w.PointerEvent("pointermove", Object.assign({}, at, { clientX: at.clientX + 500 }))); canvas.dispatchEvent(new w.PointerEvent("pointerup", Object.assign({}, at, { clientX: at.clientX + 500 })));
	setTimeout(() => { said.dragged = shown();
	d.querySelector(".brush button").click(); setTimeout(() => { said.unzoomed = shown();
	const queue = d.querySelector("figure[data-id='link queue']"); key(queue.querySelector(".plot"), "Home"); setTimeout(() => { said.queue = read(queue);
	change(d.querySelector("#series select.object"), "1", "change"); said.otherLink = read(queue);
	w.dispatchEvent(new w.Event("beforeprint")); said.printed = d.documentElement.dataset.theme; setTimeout(() => { // sizes change after the event
	said.paper = [...d.querySelectorAll(".uplot")].map(u => u.clientWidth).concat([...d.querySelectorAll("canvas.plot")].map(c => parseFloat(c.style.width))).join(" ");
	w.dispatchEvent(new w.Event("afterprint")); setTimeout(() => {
	said.after = String(fig("speedups").querySelector(".uplot").clientWidth > 640) + (d.documentElement.dataset.theme || "");
	d.getElementById("theme").click(); said.theme = d.documentElement.dataset.theme || "";
	said.problems = d.documentElement.dataset.problems || "";
	document.documentElement.dataset.said = JSON.stringify(said); }, 50); }, 50); }, 50); }, 50); }, 50); }, 50); }, 50); }, 300); }, 300);
};
const look = left => setTimeout(() => {
	if (document.querySelector("iframe").contentDocument.documentElement.dataset.checked || !left) interact(); else look(left - 1);
}, 200);
look(12)</script>`)
	dom, log := browse(t, "--window-size=1280,900", "--allow-file-access-from-files", "--dump-dom", "file://"+path)
	for _, line := range consoleLine.FindAllString(log, -1) {
		t.Errorf("the browser's console: %s", line)
	}
	said := map[string]string{}
	walk(t, dom, func(n *html.Node, attr map[string]string) {
		if v := attr["data-said"]; n.Data == "html" && v != "" {
			if err := json.Unmarshal([]byte(v), &said); err != nil {
				t.Error(err)
			}
		}
	})
	for what, before := range map[string]string{"brushed": "unzoomed", "moved": "brushed", "dragged": "moved"} {
		if said[what] == said[before] {
			t.Errorf("%s: %q, as %s", what, said[what], before)
		}
	}
	for what, want := range map[string]string{"pressed": "^false$", "cdf": `^within .* 100\.0 %`, "coflow": `^coflow 0.*CCT.*flows 3.*Time by cause: .*held`, "zoomed": "^true$", "whole": "^true$",
		"fewer":    `^\d+$`,
		"attempts": "^849$", "attempt": `^job 1, stage 0, task 0, attempt 0: committed.*user u\d.*host h0-00, map slot 0.*start.*input 8.00 MB, (node-local|rack-local|off-rack).*reading a block .*writing and committing`,
		"later": `^job 2\d, stage 0, .*host h0-00, map slot 1`, "near": "^truetrue$", "byJob": "^✕ killed ◆ failed $", "byUser": "^ u.*✕ killed", "all": "^true$",
		"over": `^job \d+, stage 0.*host h0-00, map slot 1`, "other": `^fair\+sinbad, repeat 0$`, "slots": `^from 0 s to 100\.0 ms.*in use 5.*others, n = 3 5$`,
		"progress": `^fair\+hdfs, repeat 0, coflow 0: n = 3 flows, .*B, drawn 3$`, "flow": `after the arrival.*flows in progress [1-3].*flow \d, h0-0\d → h1-0\d, .*100\.0 %`, "causes": `^[4-7]$`, "spent": `^CCT by cause, .* in total.*held.*serialisation.*queueing at leaf0>spine0`,
		"written": `^fair\+hdfs fair\+sinbad sebf\+hdfs void sebf\+sinbad$`, "asWritten": `^fair\+hdfs fair\+sinbad sebf\+hdfs void sebf\+sinbad$`,
		"up": `^fair\+hdfs fair\+sinbad sebf\+hdfs sebf\+sinbad void$`, "down": `^void sebf\+sinbad sebf\+hdfs fair\+sinbad fair\+hdfs$`,
		"saved": "^arm,verdict\nvoid,void\nsebf\\+sinbad,pass\n",
		// One stretch of time, which all charts over time share.
		"following": `^balance balance balance gantt links series( series){7} shares timeline$`,
		"brushed":   `^\d{7} \d{7,8}$`, "moved": `^\d{7} \d{8}$`, "dragged": `^\d{7} \d{8}$`, "unzoomed": `^0 \d{8}$`,
		"queue": `^from .*fair\+hdfs (\S+ to )?\S+ \S*B.*sebf\+sinbad`, "otherLink": "^$",
		"pressed2": `^fair\+hdfs, repeat 0, coflow 3:`, "pointed": `^fair\+hdfs, repeat 0, coflow 3:`, "charts": "^1$", "another": `^fair\+sinbad, repeat 0, coflow \d+:`, "links": `^from .* to .*%`, "what": "^at$", "recoloured": "^true$", "speedups": `^\d{2,} 3$`, "theme": "^light$", "paper": "^640( 640){8,}$", "printed": "^light$", "after": "^true$", "problems": "^$"} {
		if !regexp.MustCompile(want).MatchString(said[what]) {
			t.Errorf("%s: %q, want a match of %s", what, said[what], want)
		}
	}
}

func TestBrowser(t *testing.T) {
	longtest.Skip(t, "opens pages in chromium, 20 s")
	tooltest.Need(t, "chromium")
	dir := *keep
	if dir == "" {
		dir = t.TempDir()
	}
	file := func(name, page string) string {
		path, err := filepath.Abs(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	t.Run("full", func(t *testing.T) {
		path := file("full.html", write(t, data(t, "fair+hdfs", "fair+sinbad", "sebf+hdfs", "void", "sebf+sinbad")))
		charts := checkPage(t, path, "&theme=light", 1280)
		for _, want := range []string{"cdf cct", "cdf fct", "cdf write_time", "speedups ", "cdf job_time", "timeline ", "progress ", "series link queue", "series flow rtt", "series task running", "gantt ", "shares ", "links ", "balance all", "balance up", "balance down"} {
			if charts[want] == "" {
				t.Errorf("no chart %q: there are %v", want, charts)
			}
		}
		if charts["timeline "] != "60" {
			t.Errorf("the timeline drew %s bars, want 60", charts["timeline "])
		}
		checkPage(t, path, "&theme=dark", 500)
		if *keep != "" {
			screenshot(t, path, filepath.Join(dir, "light.png"), "&theme=light", 1280, 6500)
			screenshot(t, path, filepath.Join(dir, "dark.png"), "&theme=dark", 1280, 6500)
		}
		interact(t, file, "full.html")
		phone(t, file, "full.html", filepath.Join(dir, "phone.png"))
	})
	// Twelve arms with long names and five repeats: each is drawn differently.
	t.Run("many", func(t *testing.T) {
		var names []string
		for i := range 12 {
			names = append(names, fmt.Sprintf("weighted-fair-sharing-with-a-long-name-%d+hdfs-placement-of-replicas", i))
		}
		d := data(t, names...)
		for i := range d.Arms {
			d.Arms[i].Level = []string{"pass", "degraded", "unverified"}[i%3]
			for k := range 3 {
				d.Arms[i].Repeats = append(d.Arms[i].Repeats, repeat(fabric(t), 60, 1+float64(i)/2, uint64(2+k)))
			}
		}
		path := file("many.html", write(t, d))
		checkPage(t, path, "&theme=light", 1280)
		if *keep != "" {
			screenshot(t, path, filepath.Join(dir, "many.png"), "&theme=light", 1280, 6500)
		}
		phone(t, file, "many.html", filepath.Join(dir, "many-phone.png"))
	})
	t.Run("hostile", func(t *testing.T) {
		checkPage(t, file("hostile.html", write(t, data(t, hostile...))), "", 1280)
	})
	t.Run("one", func(t *testing.T) {
		d := data(t, "only")
		d.Arms[0].Repeats = d.Arms[0].Repeats[:1]
		r := &d.Arms[0].Repeats[0].Records
		r.Coflows, r.Flows, r.Blocks = r.Coflows[:1], r.Flows[:3], r.Blocks[:1]
		checkPage(t, file("one.html", write(t, d)), "", 1280)
	})
	// The check must detect a chart that drew nothing, and an error.
	t.Run("broken", func(t *testing.T) {
		page := strings.Replace(write(t, data(t, "a", "b")), `"timeline":[{`, `"timeline":[{"bars":[]},{`, 1)
		dom, _ := browse(t, "--dump-dom", "file://"+file("broken.html", page)+"?check=1")
		seen := false
		walk(t, dom, func(n *html.Node, attr map[string]string) {
			seen = seen || n.Data == "html" && attr["data-problems"] != ""
		})
		if !seen {
			t.Error("a timeline without its arm is no problem to the page")
		}
	})
}
