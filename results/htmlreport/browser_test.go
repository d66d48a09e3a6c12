package htmlreport

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
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
<script>setTimeout(() => { const d = document.querySelector("iframe").contentDocument.documentElement; document.documentElement.dataset.within = JSON.stringify(d.dataset); }, 3000)</script>`)
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
<script>setTimeout(() => {
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
	w.dispatchEvent(new w.Event("beforeprint")); said.printed = d.documentElement.dataset.theme; setTimeout(() => { // sizes change after the event
	said.paper = [...d.querySelectorAll(".uplot")].map(u => u.clientWidth).concat([...d.querySelectorAll("canvas.plot")].map(c => parseFloat(c.style.width))).join(" ");
	w.dispatchEvent(new w.Event("afterprint")); setTimeout(() => {
	said.after = String(fig("speedups").querySelector(".uplot").clientWidth > 640) + (d.documentElement.dataset.theme || "");
	d.getElementById("theme").click(); said.theme = d.documentElement.dataset.theme || "";
	said.problems = d.documentElement.dataset.problems || "";
	document.documentElement.dataset.said = JSON.stringify(said); }, 50); }, 50); }, 300); }, 300);
}, 2500)</script>`)
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
	for what, want := range map[string]string{"pressed": "^false$", "cdf": `^within .* 100\.0 %`, "coflow": `^coflow 0.*CCT.*flows 3.*Time by cause: .*held`, "zoomed": "^true$", "whole": "^true$",
		"fewer":    `^\d+$`,
		"attempts": "^849$", "attempt": `^job 1, stage 0, task 0, attempt 0: committed.*user u\d.*host h0-00, map slot 0.*start.*input 8.00 MB, (node-local|rack-local|off-rack).*reading a block .*writing and committing`,
		"later": `^job 2\d, stage 0, .*host h0-00, map slot 1`, "near": "^truetrue$", "byJob": "^✕ killed ◆ failed $", "byUser": "^ u.*✕ killed", "all": "^true$",
		"over": `^job \d+, stage 0.*host h0-00, map slot 1`, "other": `^fair\+sinbad, repeat 0$`, "slots": `^from 0 s to 100\.0 ms.*in use 5.*others, n = 3 5$`,
		"progress": `^fair\+hdfs, repeat 0, coflow 0: n = 3 flows, .*B, drawn 3$`, "flow": `after the arrival.*flows in progress [1-3].*flow \d, h0-0\d → h1-0\d, .*100\.0 %`, "causes": `^[4-7]$`, "spent": `^CCT by cause, .* in total.*held.*serialisation.*queueing at leaf0>spine0`,
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
		for _, want := range []string{"cdf cct", "cdf fct", "cdf write_time", "speedups ", "cdf job_time", "timeline ", "progress ", "gantt ", "shares ", "links ", "balance all", "balance up", "balance down"} {
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
