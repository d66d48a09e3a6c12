"use strict";
(function () {
const root = document.documentElement;
const problems = [];
function problem(text) { problems.push(text); root.dataset.problems = problems.join(" | "); }
window.addEventListener("error", e => problem(e.message));
const data = JSON.parse(document.getElementById("charts").textContent);
const checking = new URLSearchParams(location.search).has("check");
const el = (name, cls, text) => { const e = document.createElement(name); if (cls) e.className = cls; if (text !== undefined) e.textContent = text; return e; };
const small = "11px system-ui, sans-serif"; // of labels
const css = name => getComputedStyle(root).getPropertyValue(name).trim();

// Figures formatted as in the tables. Times are microseconds.
function human(us) {
	if (us < 0) return "-" + human(-us);
	for (const [from, unit, name, places, below] of [[1e6, 1e6, "s", 3, 100], [1e4, 1e3, "ms", 1, 10], [1e3, 1e3, "ms", 2, .1], [10, 1, "µs", 1, .01], [.001, 1, "µs", 2, .001]])
		if (Math.round(us / below) * below >= from - 1e-9) return (us / unit).toFixed(places) + " " + name;
	return "0 s";
}
function size(b) {
	for (const [scale, name] of [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "KB"]]) {
		const x = b / scale;
		if (x >= .9995) return x.toFixed(x >= 99.95 ? 0 : x >= 9.995 ? 1 : 2) + " " + name;
	}
	return b + " B";
}
const trim = x => String(+x.toPrecision(3));
function tick(us) { return us >= 1e6 ? trim(us / 1e6) + " s" : us >= 1e3 ? trim(us / 1e3) + " ms" : trim(us) + " µs"; }
const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const unpack = text => Array.from({ length: text.length / 2 }, (_, i) => 64 * digits.indexOf(text[2 * i]) + digits.indexOf(text[2 * i + 1]));
// pathOf returns pairs of a time and a share in one list.
const pathOf = text => { const n = unpack(text), out = []; for (let i = 0; i < n.length; i += 2) { const pair = 4096 * n[i] + n[i + 1]; out.push(Math.floor(pair / 1001), pair % 1001); } return out; };
const percent = x => (100 * x).toFixed(1) + " %";

// Arms differ in colour, dash and marker.
const dashes = [[], [9, 4], [2, 3], [9, 3, 2, 3], [14, 4], [5, 2], [2, 2, 6, 2], [1, 4]];
const markers = ["circle", "square", "triangle", "diamond", "plus", "cross", "down", "ring"];
const colour = arm => css("--a" + arm % 8);
// The ninth arm repeats the colour of the first, but not its dash and marker.
const turn = arm => (arm + 3 * Math.floor(arm / 8)) % 8, dash = arm => dashes[turn(arm)], mark8 = arm => markers[turn(arm)];
// label returns an arm's name, the number of its items, and its verdict unless it is pass.
const label = (arm, n, of) => data.arms[arm].name + (n === undefined ? "" : ", n = " + n + (of ? " " + of : "")) + (data.arms[arm].mark ? " (" + data.arms[arm].mark + ")" : "");
function marker(ctx, kind, x, y, r) {
	ctx.beginPath();
	switch (kind) {
	case "circle": case "ring": ctx.arc(x, y, r, 0, 7); break;
	case "square": ctx.rect(x - r * .9, y - r * .9, 1.8 * r, 1.8 * r); break;
	case "triangle": ctx.moveTo(x, y - r * 1.1); ctx.lineTo(x + r, y + r * .8); ctx.lineTo(x - r, y + r * .8); ctx.closePath(); break;
	case "down": ctx.moveTo(x, y + r * 1.1); ctx.lineTo(x + r, y - r * .8); ctx.lineTo(x - r, y - r * .8); ctx.closePath(); break;
	case "diamond": ctx.moveTo(x, y - 1.2 * r); ctx.lineTo(x + 1.2 * r, y); ctx.lineTo(x, y + 1.2 * r); ctx.lineTo(x - 1.2 * r, y); ctx.closePath(); break;
	case "plus": ctx.moveTo(x - r, y); ctx.lineTo(x + r, y); ctx.moveTo(x, y - r); ctx.lineTo(x, y + r); ctx.stroke(); return;
	case "cross": ctx.moveTo(x - r, y - r); ctx.lineTo(x + r, y + r); ctx.moveTo(x - r, y + r); ctx.lineTo(x + r, y - r); ctx.stroke(); return;
	}
	if (kind === "ring") ctx.stroke(); else ctx.fill();
}

const charts = []; // each {figure, draw()}, redrawn after a change of theme or width
function legend(figure, arms, mark, toggle, labels) {
	const box = figure.querySelector(".legend");
	for (const [k, arm] of arms.entries()) {
		const b = el("button");
		b.type = "button";
		b.setAttribute("aria-pressed", "true");
		const c = el("canvas");
		c.width = 60; c.height = 24; c.style.width = "30px"; c.style.height = "12px"; c.setAttribute("aria-hidden", "true");
		b.append(c, el("span", "", labels[k]));
		b.addEventListener("click", () => {
			const on = b.getAttribute("aria-pressed") !== "true";
			b.setAttribute("aria-pressed", String(on));
			toggle(arm, on);
		});
		b.sample = () => {
			const x = c.getContext("2d");
			x.clearRect(0, 0, 60, 24);
			x.strokeStyle = x.fillStyle = colour(arm);
			x.lineWidth = 4;
			if (mark) { x.lineWidth = 2.5; marker(x, mark8(arm), 30, 12, 8); return; }
			x.setLineDash(dash(arm).map(d => 2 * d));
			x.beginPath(); x.moveTo(0, 12); x.lineTo(60, 12); x.stroke();
		};
		b.sample();
		box.append(b);
	}
	return () => box.querySelectorAll("button").forEach(b => b.sample());
}

const axis = extra => Object.assign({ stroke: () => css("--soft"), grid: { stroke: () => css("--grid"), width: 1 }, ticks: { stroke: () => css("--grid"), width: 1 }, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif", labelSize: 20 }, extra);
// logSteps returns the round values between two values that fit on an axis.
function logSteps(u, i, lo, hi) {
	if (!(lo > 0) || !(hi > lo)) return [lo];
	const room = Math.max(2, (i === 0 ? u.bbox.width / 64 : u.bbox.height / 20) / devicePixelRatio);
	let out = [];
	for (const parts of [[1, 1.5, 2, 3, 4, 5, 6, 7, 8, 9], [1, 2, 5], [1, 3], [1]]) {
		out = [];
		for (let p = Math.floor(Math.log10(lo)); p <= Math.ceil(Math.log10(hi)); p++) for (const m of parts) { const x = m * 10 ** p; if (x >= lo * .9999 && x <= hi * 1.0001) out.push(x); }
		if (out.length <= room) break;
	}
	out = out.filter((_, k) => k % Math.ceil(out.length / room) === 0);
	// Labels do not touch: of two that would, the higher one stays.
	const [long, gap] = i === 0 ? [u.bbox.width, 40] : [u.bbox.height, 16], at = x => Math.log(x / lo) / Math.log(hi / lo) * long / devicePixelRatio;
	for (let k = out.length - 2; k >= 0; k--) if (at(out[k + 1]) - at(out[k]) < gap) out.splice(k, 1);
	return out.length ? out : [lo];
}
// All charts over time show the same stretch of it, in one place of the page.
const clock = { near: data.span[0], far: data.span[1] > data.span[0] ? data.span[1] : data.span[0] + 1, changed: [] };
clock.lo = clock.near; clock.hi = clock.far;
// margin is left of all these charts; the names of links fit.
const margin = (() => {
	const pen = el("canvas").getContext("2d");
	pen.font = small;
	return Math.ceil(Math.max(innerWidth < 560 ? 78 : 104, ...(data.links ? data.links.names : []).map(name => pen.measureText(name).width + 8)));
})();
function setClock(lo, hi) {
	lo = Math.max(clock.near, Math.min(lo, hi)); hi = Math.min(clock.far, Math.max(lo, hi));
	if (!(hi - lo > (clock.far - clock.near) * 1e-5)) return;
	clock.lo = lo; clock.hi = hi;
	note(root, lo, hi);
	clock.changed.forEach(f => f());
}
const showAll = () => setClock(clock.near, clock.far);
const allShown = () => clock.lo === clock.near && clock.hi === clock.far;
// zoomClock shows a stretch of time around a moment that is a multiple of the present one.
function zoomClock(mid, factor) {
	const half = (clock.hi - clock.lo) * factor / 2;
	if (2 * half >= clock.far - clock.near) showAll(); else setClock(Math.max(clock.near, mid - half), Math.max(clock.near, mid - half) + 2 * half);
}
// timed has the options of a uPlot chart over time, and follow lets the chart follow the clock.
const timed = { scales: { x: { time: false, range: () => [clock.lo, clock.hi] } }, padding: [10, 4, 0, 0],
	cursor: { drag: { x: true, y: false, setScale: false }, sync: { key: "clock", filters: { pub: type => type === "mousemove" || type === "mouseleave" } }, bind: { dblclick: () => () => showAll() } },
	select(u) {
		if (!(u.select.width > 8)) return;
		const lo = u.posToVal(u.select.left, "x"), hi = u.posToVal(u.select.left + u.select.width, "x");
		u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
		setClock(lo, hi);
	} };
// Each chart over time notes the stretch that it drew.
const note = (figure, lo, hi) => { figure.dataset.shown = Math.round(lo) + " " + Math.round(hi); };
const noting = figure => u => note(figure, u.scales.x.min, u.scales.x.max);
const timeTicks = () => axis({ size: 26, space: 80, values: (u, v) => v.map(x => x === 0 ? "0" : tick(x)) });
const follow = u => clock.changed.push(() => u.setScale("x", { min: clock.lo, max: clock.hi }));
const height = 270;
// Printed charts have a width that fits A4 and letter.
const paper = 640;
let printing = false;
const wideOf = room => printing ? paper : Math.max(200, room);
// plot draws a uPlot chart with its box's width and the theme's colours.
function plot(figure, options, values, arms, labels, mark, read) {
	const box = figure.querySelector(".plot"), out = figure.querySelector("output");
	const readAt = u => { if (u.cursor.idx != null && u.cursor.left >= 0) out.replaceChildren(...read(u, u.cursor.idx)); };
	const tall = options.height || height;
	const u = new uPlot(Object.assign({ width: wideOf(box.clientWidth), height: tall, legend: { show: false }, cursor: { drag: { x: true, y: false }, points: { show: !mark } } }, options, {
		hooks: Object.assign({ setCursor: [readAt] }, options.hooks),
	}), values, box);
	const samples = legend(figure, arms, mark, (arm, on) => {
		for (let k = arms.indexOf(arm) + 1; k < u.series.length; k += arms.length) u.setSeries(k, { show: on });
	}, labels);
	box.onkeydown = e => { // not a listener: a rebuilt chart replaces it
		const step = { ArrowLeft: -1, ArrowRight: 1, PageUp: -20, PageDown: 20 }[e.key], last = u.data[0].length - 1;
		if (step === undefined && e.key !== "Home" && e.key !== "End") return;
		e.preventDefault();
		const at = e.key === "Home" ? 0 : e.key === "End" ? last : Math.min(last, Math.max(0, (u.cursor.idx ?? -1) + step));
		u.setCursor({ left: u.valToPos(u.data[0][at], "x"), top: u.cursor.top >= 0 ? u.cursor.top : tall / 3 });
	};
	const redraw = () => { u.setSize({ width: wideOf(box.clientWidth), height: tall }); u.series.forEach(s => { s._paths = null; }); u.redraw(false, true); };
	charts.push({ figure, draw() { samples(); u.batch(redraw); count(); } });
	function count() { figure.dataset.drawn = String(u.data[0].length); }
	count();
	return u;
}
function reading(head, rows) {
	const out = [el("b", "", head)];
	for (const [name, value] of rows) out.push("  ·  " + name + " ", el("b", "", value));
	return out;
}

function drawCDF(figure) {
	const c = data.cdfs.find(c => c.id === figure.dataset.id), arms = c.curves.map(x => x.arm);
	const least = Math.min(...c.curves.flatMap(x => x.t.filter(t => t > 0))), times = x => x.t.map(t => Math.max(t, least / 2));
	const curves = c.curves.map(times);
	const xs = Float64Array.from(new Set([least * .95].concat(...curves))).sort(); // a curve rises from 0
	const ys = curves.map(t => { let k = 0; return Array.from(xs, x => { while (k < t.length && t[k] <= x) k++; return k / t.length; }); });
	const quantile = (t, p) => t[Math.min(t.length - 1, Math.max(0, Math.ceil(p * t.length) - 1))];
	plot(figure, {
		scales: { x: { time: false, distr: 3, range: (u, lo, hi) => u.data[0].length < 3 ? [lo / 2, hi * 2] : [lo * .9, hi * 1.1] }, y: { range: [0, 1.02] } },
		axes: [axis({ label: "time (log scale)", size: 34, splits: logSteps, filter: (u, v) => v, values: (u, v) => v.map(x => x == null ? "" : tick(x)), space: 60 }), axis({ label: "share of items", size: 46 })],
		series: [{}].concat(arms.map(arm => ({ label: data.arms[arm].name, stroke: () => colour(arm), width: 2, dash: dash(arm), paths: uPlot.paths.stepped({ align: 1 }), points: { show: false } }))),
	}, [xs, ...ys], arms, c.curves.map(x => label(x.arm, x.n)), false, (u, i) => {
		const y = u.posToVal(u.cursor.top, "y");
		return reading("within " + human(xs[i]), arms.map((arm, k) => [data.arms[arm].name, percent(ys[k][i])]))
			.concat(y > 0 && y <= 1 ? [el("br"), ...reading("P" + Math.max(1, Math.round(100 * y)), arms.map((arm, k) => [data.arms[arm].name, human(quantile(curves[k], Math.max(1, Math.round(100 * y)) / 100))]))] : []);
	});
}

function drawSpeedups(figure) {
	const all = data.speedups, arms = all.map(s => s.arm), select = figure.querySelector("select");
	let points = [];
	function values() {
		points = [];
		const bySize = select.value === "size";
		all.forEach((s, k) => s.pairs.forEach((p, i) => points.push([bySize ? Math.max(1, p[1]) : 100 * (i + 1) / s.pairs.length, k, p])));
		points.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
		return [points.map(p => p[0]), ...all.map((_, k) => points.map(p => p[1] === k ? p[2][0] : null))];
	}
	function one(u) {
		const y = u.valToPos(1, "y", true), c = u.ctx;
		c.save(); c.strokeStyle = css("--ink"); c.lineWidth = 1.5 * devicePixelRatio;
		c.beginPath(); c.moveTo(u.bbox.left, y); c.lineTo(u.bbox.left + u.bbox.width, y); c.stroke(); c.restore();
	}
	const draw = (u, k) => {
		const c = u.ctx, arm = arms[k - 1], r = 3.4 * devicePixelRatio;
		c.save(); c.beginPath(); c.rect(u.bbox.left, u.bbox.top, u.bbox.width, u.bbox.height); c.clip();
		c.fillStyle = c.strokeStyle = colour(arm); c.lineWidth = 1.6 * devicePixelRatio; c.globalAlpha = points.length > 1500 ? .5 : .85;
		u.data[k].forEach((y, i) => { if (y != null) marker(c, mark8(arm), u.valToPos(u.data[0][i], "x", true), u.valToPos(y, "y", true), r); });
		c.restore();
	};
	let u;
	function build() {
		const old = u, bySize = select.value === "size", v = values();
		if (old) { old.destroy(); figure.querySelector(".legend").replaceChildren(); charts.splice(charts.findIndex(c => c.figure === figure), 1); }
		u = plot(figure, {
			scales: { x: bySize ? { time: false, distr: 3, range: (u, lo, hi) => [lo * .8, hi * 1.25] } : { time: false, range: [0, 101] }, y: { distr: 3, range: (u, lo, hi) => [Math.min(.8, lo * .9), Math.max(1.25, hi * 1.1)] } },
			axes: [axis({ size: 34, label: bySize ? "coflow size (log scale)" : "share of coflows (%)", ...(bySize ? { splits: logSteps, filter: (u, v) => v } : {}), values: (u, v) => v.map(x => x == null ? "" : bySize ? size(x) : x), space: 60 }),
				axis({ label: "speed-up (log scale)", size: 56, splits: logSteps, filter: (u, v) => v, values: (u, v) => v.map(x => x == null ? "" : trim(x) + "×") })],
			series: [{}].concat(arms.map(arm => ({ label: data.arms[arm].name, stroke: () => colour(arm), paths: () => null, points: { show: draw_ } }))),
			hooks: { drawClear: [], draw: [one] },
		}, v, arms, all.map(s => label(s.arm, s.n, "coflows")), true, (u, i) => {
			const [, k, p] = points[i], arm = arms[k];
			return reading("coflow " + p[2] + (several(arm) ? ", repeat " + p[3] : ""), [[data.arms[arm].name, p[0].toFixed(2) + "×"], ["size", size(p[1])]]);
		});
	}
	function draw_(u, k) { draw(u, k); return false; }
	select.addEventListener("change", build);
	build();
}
const several = arm => data.timeline.filter(t => t.arm === arm).length > 1;

function drawBalance(figure) {
	const b = data.balance.find(b => b.id === figure.dataset.id), arms = b.curves.map(c => c.arm);
	const n = Math.max(...b.curves.map(c => c.cv.length)), xs = Array.from({ length: n }, (_, i) => (i + .5) * b.bin_us);
	const ys = b.curves.map(c => xs.map((_, i) => c.cv[i] ?? null));
	follow(plot(figure, {
		height: 190, padding: timed.padding, cursor: timed.cursor, hooks: { setSelect: [timed.select], draw: [noting(figure)] },
		scales: { x: timed.scales.x, y: { range: (u, lo, hi) => [0, Math.max(.5, hi * 1.05)] } },
		axes: [timeTicks(), axis({ label: "Cv", size: margin - 20 })],
		series: [{}].concat(arms.map(arm => ({ label: data.arms[arm].name, stroke: () => colour(arm), width: 1.5, dash: dash(arm), points: { show: false } }))),
	}, [xs, ...ys], arms, b.curves.map(c => label(c.arm, c.n, "links")), false, (u, i) => reading("from " + human(i * b.bin_us) + " to " + human((i + 1) * b.bin_us), arms.map((arm, k) => [data.arms[arm].name, ys[k][i] == null ? "no traffic" : ys[k][i].toFixed(2)]))));
}

// drawSeries draws one metric of the selected object, a line for each arm: the largest value of each bin, and an area
// down to the least.
const objects = document.querySelectorAll("#series select.object"), nth = document.querySelector("#series select.nth");
const shownAs = { B: size, bps: x => { for (const [by, name] of [[1e9, "Gbps"], [1e6, "Mbps"], [1e3, "Kbps"]]) if (x >= by) return trim(x / by) + " " + name; return trim(x) + " bps"; }, us: human, "": trim };
function drawSeries(figure) {
	const S = data.series, [kind, id] = figure.dataset.id.split(" "), g = S.groups.find(g => g.id === kind), m = g.metrics.findIndex(m => m.id === id), { unit, scale, most } = g.metrics[m];
	const select = Array.from(objects).find(s => s.dataset.group === kind), arms = Array.from(new Set(g.runs.map(r => r.arm)));
	const xs = Array.from({ length: S.bins }, (_, k) => k * S.bin_us);
	let high, low;
	const of = (arm, key) => {
		const run = g.runs.find(r => r.arm === arm && r.repeat === +nth.value), one = run && run.values[+select.value], v = one && one[m], list = v && (v[key] || v.hi);
		const x = list ? unpack(list) : [];
		return xs.map((_, k) => v && x[k - v.from] !== undefined ? x[k - v.from] * v.step * scale : null);
	};
	const values = () => { high = arms.map(a => of(a, "hi")); low = arms.map(a => of(a, "lo")); return [xs, ...high, ...low]; };
	const limit = () => g.limits && g.limits[+select.value] || 0;
	function ceiling(u) {
		if (!limit()) return;
		const y = u.valToPos(limit(), "y", true), c = u.ctx;
		c.save(); c.strokeStyle = css("--ink"); c.lineWidth = devicePixelRatio; c.setLineDash([5 * devicePixelRatio, 4 * devicePixelRatio]);
		c.beginPath(); c.moveTo(u.bbox.left, y); c.lineTo(u.bbox.left + u.bbox.width, y); c.stroke(); c.restore();
	}
	function faults(u) {
		const c = u.ctx, r = devicePixelRatio, { left, top, width, height } = u.bbox;
		let last = -Infinity, row = 0;
		c.save(); c.strokeStyle = c.fillStyle = css("--bad"); c.lineWidth = r; c.font = 11 * r + "px system-ui, sans-serif"; c.textBaseline = "top"; c.textAlign = "center";
		for (const { at, fault } of S.marks.filter(m => m.repeat === +nth.value).sort((a, b) => a.at - b.at)) {
			const x = u.valToPos(at, "x", true);
			if (x < left || x > left + width) continue;
			row = x - last < 16 * r ? row + 1 : 0; last = x; // numbers do not touch
			c.beginPath(); c.moveTo(x, top); c.lineTo(x, top + height); c.stroke();
			c.fillText(fault, x, top - 10 * r + 12 * r * row);
		}
		c.restore();
	}
	const steps = uPlot.paths.stepped({ align: 1 }), line = (arm, width) => ({ label: data.arms[arm].name, stroke: () => colour(arm), width, dash: dash(arm), paths: steps, points: { show: false } });
	const u = plot(figure, {
		height: 150, padding: timed.padding, cursor: timed.cursor, hooks: { setSelect: [timed.select], draw: [ceiling, faults, noting(figure)] },
		scales: { x: timed.scales.x, y: { range: (u, lo, hi) => [0, Math.min(most || Infinity, 1.05 * Math.max(hi || 0, limit(), scale))] } },
		axes: [timeTicks(), axis({ size: margin, space: 26, values: (u, v) => v.map(x => shownAs[unit](x).replace(/\.0+ /, " ")) })],
		series: [{}].concat(arms.map(arm => line(arm, 1.5)), arms.map(arm => line(arm, 0))),
		bands: arms.map((arm, k) => ({ series: [k + 1, arms.length + k + 1], fill: () => colour(arm) + "38" })),
	}, values(), arms, arms.map(arm => label(arm)), false, (u, i) => reading("from " + human(i * S.bin_us), arms.map((arm, k) => {
		const hi = high[k][i], lo = low[k][i];
		return [data.arms[arm].name, hi == null ? "–" : lo === hi ? shownAs[unit](hi) : shownAs[unit](lo) + " to " + shownAs[unit](hi)];
	})));
	follow(u);
	const again = () => { u.setData(values()); figure.querySelector("output").replaceChildren(); };
	select.addEventListener("change", again);
	nth.addEventListener("change", again);
	figure.about = [select, nth];
}

// drawBrush draws the whole of the time, how many coflows and attempts were in progress, and the stretch that is shown.
function drawBrush(box) {
	const canvas = box.querySelector("canvas"), out = box.querySelector("output"), reset = box.querySelector("button"), h = 44, n = 240, load = new Array(n).fill(0);
	const T = x => clock.near + (x - margin) / (wide - margin - 4) * (clock.far - clock.near), X = t => margin + (t - clock.near) / (clock.far - clock.near) * (wide - margin - 4);
	const runs = data.gantt.length ? [data.gantt[0].attempts.map(a => [a[5], a[5] + a[6] + a[7] + a[8] + a[9]])] : data.timeline.slice(0, 1).map(t => t.bars.map(b => [b.at, b.end]));
	for (const [from, to] of runs.flat()) for (let k = 0; k < n; k++) if (from < clock.near + (k + 1) / n * (clock.far - clock.near) && to > clock.near + k / n * (clock.far - clock.near)) load[k]++;
	const most = Math.max(1, ...load);
	let wide = 0, drag = null;
	function draw() {
		const [c, w] = sheet(canvas, h);
		wide = w;
		timeAxis(c, margin, w - 4, 2, h - 20, clock.near, clock.far);
		c.fillStyle = css("--grey"); c.globalAlpha = .5;
		load.forEach((v, k) => c.fillRect(margin + k / n * (w - margin - 4), (h - 20) - v / most * (h - 24), (w - margin - 4) / n + .3, v / most * (h - 24)));
		c.globalAlpha = .22; c.fillStyle = css("--accent");
		c.fillRect(X(clock.lo), 2, Math.max(2, X(clock.hi) - X(clock.lo)), h - 22);
		c.globalAlpha = 1; c.strokeStyle = css("--accent"); c.lineWidth = 1.5;
		c.strokeRect(X(clock.lo), 2, Math.max(2, X(clock.hi) - X(clock.lo)), h - 22);
		out.textContent = allShown() ? "All charts below share this axis: drag to zoom." : human(clock.lo) + " to " + human(clock.hi);
		reset.disabled = allShown();
	}
	// A drag inside the stretch moves it, one outside selects another.
	canvas.addEventListener("pointerdown", e => {
		const t = T(place(canvas, e)[0]);
		drag = { from: t, lo: clock.lo, hi: clock.hi, move: !allShown() && t > clock.lo && t < clock.hi };
		canvas.setPointerCapture(e.pointerId);
	});
	canvas.addEventListener("pointermove", e => {
		if (!drag) return;
		const t = T(place(canvas, e)[0]), by = Math.min(clock.far - drag.hi, Math.max(clock.near - drag.lo, t - drag.from));
		if (drag.move) setClock(drag.lo + by, drag.hi + by); else if (Math.abs(X(t) - X(drag.from)) > 4) setClock(Math.min(t, drag.from), Math.max(t, drag.from));
	});
	for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => { drag = null; });
	canvas.addEventListener("keydown", e => {
		const width = clock.hi - clock.lo, by = { ArrowLeft: -.25, ArrowRight: .25 }[e.key], factor = { "+": .5, "-": 2 }[e.key];
		if (by) { e.preventDefault(); const lo = Math.min(clock.far - width, Math.max(clock.near, clock.lo + by * width)); setClock(lo, lo + width); }
		if (factor) zoomClock((clock.lo + clock.hi) / 2, factor);
		if (e.key === "Escape") showAll();
	});
	canvas.addEventListener("dblclick", showAll);
	reset.addEventListener("click", showAll);
	clock.changed.push(draw);
	charts.push({ draw });
	draw();
}

// options fills a selection with arms and repeats.
function options(select, runs) {
	runs.forEach((r, i) => {
		const repeats = runs.filter(x => x.arm === r.arm).length;
		const o = el("option", "", label(r.arm) + (repeats > 1 ? ", repeat " + r.repeat : ""));
		o.value = String(i);
		select.append(o);
	});
}
// sheet sizes a canvas for the screen's resolution and returns its context in CSS pixels.
function sheet(canvas, h) {
	const box = canvas.parentElement, inside = getComputedStyle(box);
	const w = wideOf(box.clientWidth - parseFloat(inside.paddingLeft) - parseFloat(inside.paddingRight)), r = devicePixelRatio || 1;
	canvas.width = Math.round(w * r); canvas.height = Math.round(h * r);
	canvas.style.height = h + "px"; canvas.style.width = w + "px";
	const c = canvas.getContext("2d");
	c.scale(r, r);
	c.font = "12px system-ui, sans-serif";
	return [c, w];
}
const place = (canvas, e) => { const b = canvas.getBoundingClientRect(); return [e.clientX - b.left, e.clientY - b.top]; };
function steps(lo, hi, most) {
	const raw = (hi - lo) / Math.max(1, most), p = 10 ** Math.floor(Math.log10(raw)), step = [1, 2, 5, 10].map(m => m * p).find(s => s >= raw * .999999);
	const out = [];
	for (let x = Math.ceil(lo / step) * step; x <= hi + step * 1e-6; x += step) out.push(x);
	return out;
}
function timeAxis(c, left, right, top, bottom, lo, hi) {
	c.textAlign = "center"; c.textBaseline = "top";
	for (const t of steps(lo, hi, (right - left) / 80)) {
		const x = left + (t - lo) / (hi - lo) * (right - left);
		c.strokeStyle = css("--grid"); c.lineWidth = 1;
		c.beginPath(); c.moveTo(x, top); c.lineTo(x, bottom); c.stroke();
		c.fillStyle = css("--soft"); c.fillText(t === 0 ? "0" : tick(t), Math.min(right - 14, x), bottom + 5);
	}
}

// zoomable lets a drag on a canvas select a stretch of time and a part of the view {top, rows} of chart c, which
// has T and R (time and row at a place), all (number of rows), bottom, draw, point and click.
function zoomable(canvas, c) {
	canvas.addEventListener("pointerdown", e => { c.drag = { from: place(canvas, e), to: null }; canvas.setPointerCapture(e.pointerId); });
	canvas.addEventListener("pointermove", e => {
		const p = place(canvas, e);
		if (c.drag) { c.drag.to = p; c.draw(); } else if (p[1] < c.bottom) c.point(p);
	});
	const drop = e => {
		if (!c.drag) return;
		const { from, to } = c.drag;
		c.drag = null;
		if (to && e.type === "pointerup") {
			const x = [from[0], to[0]].sort((a, b) => a - b), y = [from[1], to[1]].sort((a, b) => a - b);
			const [lo, hi] = x.map(c.T);
			if (c.view && y[1] - y[0] > 30) {
				const top = Math.max(0, Math.floor(c.R(y[0])));
				c.view = { top, rows: Math.max(1, Math.min(c.all(), Math.ceil(c.R(y[1]))) - top) };
			}
			if (x[1] - x[0] > 8) setClock(Math.max(clock.lo, lo), Math.min(clock.hi, hi));
		} else if (!to && from[1] < c.bottom) c.click(from);
		c.draw();
	};
	canvas.addEventListener("pointerup", drop);
	canvas.addEventListener("pointercancel", drop);
	clock.changed.push(() => c.draw());
}
// across returns the functions from a time to its place in a chart of a width, and back.
const across = wide => [t => margin + (t - clock.lo) / (clock.hi - clock.lo) * (wide() - margin - 4), x => clock.lo + (x - margin) / (wide() - margin - 4) * (clock.hi - clock.lo)];
// dragged draws the area of a drag.
function dragged(c, drag) {
	if (!drag || !drag.to) return;
	c.fillStyle = css("--accent"); c.globalAlpha = .2;
	c.fillRect(drag.from[0], drag.from[1], drag.to[0] - drag.from[0], drag.to[1] - drag.from[1]);
	c.globalAlpha = 1;
}

// showCoflow draws the progress chart; null without that chart.
let showCoflow = null;
function drawProgress(figure) {
	const what = figure.querySelector(".what"), spent = figure.querySelector(".spent"), none = figure.querySelector(".none"), columns = figure.querySelector(".columns"), box = figure.querySelector(".plot");
	let u = null;
	function breakdown(b) {
		const shares = b.shares || [], cct = b.end - b.at, rest = cct - shares.reduce((s, x) => s + x.us, 0);
		const row = (cls, name, us) => {
			const r = el("div", "share"), bar = el("span", "bar"), fill = el("span", cls);
			fill.style.width = Math.max(.5, 100 * us / cct) + "%";
			bar.append(fill);
			r.append(el("span", "", name), bar, el("span", "stackvalue", human(us) + ", " + percent(us / cct)));
			return r;
		};
		spent.replaceChildren(el("p", "head", shares.length ? "CCT by cause, " + human(cct) + " in total" : "The breakdown of its CCT is unknown."), ...shares.map(s => row(data.classes[s.cause], data.causes[s.cause] + (s.link ? " at " + s.link : ""), s.us)));
		if (shares.length && rest > cct / 1e4) spent.append(row("rest", "other causes", rest));
	}
	showCoflow = (t, b) => {
		const flows = (b.flows || []).map(f => Object.assign({}, f, { path: pathOf(f.path) })), cct = (b.end - b.at) || 1, left = b.width - flows.length;
		what.textContent = label(t.arm) + (several(t.arm) ? ", repeat " + t.repeat : "") + ", coflow " + b.id + ": n = " + flows.length + (left > 0 && flows.length ? " of " + b.width + " flows (the longest), " : flows.length === 1 ? " flow, " : " flows, ") + size(b.size);
		none.hidden = flows.length > 0; columns.hidden = !flows.length;
		if (u) { u.destroy(); u = null; charts.splice(charts.findIndex(c => c.figure === figure), 1); }
		figure.querySelector("output").replaceChildren();
		if (!flows.length) { figure.dataset.drawn = "0"; return; }
		breakdown(b);
		const scale = cct >= 1e5 ? [1e6, "s"] : cct >= 100 ? [1e3, "ms"] : [1, "µs"];
		const times = Array.from(new Set(flows.flatMap(f => f.path.filter((_, i) => i % 2 === 0)))).sort((a, b) => a - b);
		const xs = times.map(t => t / 1e4 * cct / scale[0]);
		const ys = flows.map(f => { // linear between two moments, no value before the first or after the last
			let k = 0;
			const p = f.path, n = p.length / 2;
			return times.map(t => {
				while (k < n && p[2 * k] <= t) k++;
				if (k === 0) return null;
				if (k === n) return t === p[2 * n - 2] ? p[2 * n - 1] / 10 : null;
				const x0 = p[2 * k - 2], y0 = p[2 * k - 1];
				return (y0 + (t - x0) / (p[2 * k] - x0) * (p[2 * k + 1] - y0)) / 10;
			});
		});
		const end = f => f.path[f.path.length - 2], last = flows.reduce((k, f, i) => end(f) > end(flows[k]) ? i : k, 0);
		const named = k => "flow " + flows[k].id + ", " + flows[k].src + " → " + flows[k].dst;
		const order = flows.map((_, i) => i).filter(i => i !== last).concat(last); // draw the last flow to end on top
		u = plot(figure, {
			scales: { x: { time: false, range: (u, lo, hi) => u.data[0].length < 2 ? [0, Math.max(hi, 1e-3)] : [lo === xs[0] ? 0 : lo, hi] }, y: { range: [0, 102] } },
			axes: [axis({ label: "time since the arrival of the coflow (" + scale[1] + ")", size: 34, space: 60 }), axis({ label: "received (% of the flow)", size: 46 })],
			focus: { alpha: .25 }, cursor: { focus: { prox: 40 }, drag: { x: true, y: false }, points: { show: false } },
			series: [{}].concat(order.map(k => ({ label: named(k), stroke: () => css(k === last ? "--verm" : "--blue"), width: k === last ? 2.5 : 1, points: { show: xs.length < 2 } }))),
		}, [xs, ...order.map(k => ys[k])], [], [], false, (u, i) => {
			const y = u.posToVal(u.cursor.top, "y");
			let near = -1;
			flows.forEach((_, k) => { if (ys[k][i] != null && (near < 0 || Math.abs(ys[k][i] - y) < Math.abs(ys[near][i] - y))) near = k; });
			const at = human(xs[i] * scale[0]) + " after the arrival";
			const active = flows.filter((_, k) => ys[k][i] != null).length;
			if (near < 0) return reading(at, [["flows in progress", "0"]]);
			return reading(at, [["flows in progress", String(active)], [named(near) + ", " + size(flows[near].size) + ":", ys[near][i].toFixed(1) + " %"], ["complete after", human(end(flows[near]) / 1e4 * cct)]]);
		});
		charts[charts.length - 1].figure = figure;
		figure.dataset.drawn = String(flows.length);
	};
}

function drawTimeline(figure) {
	const select = figure.querySelector("select"), canvas = figure.querySelector("canvas.plot"), out = figure.querySelector("output"), reset = figure.querySelector(".reset");
	options(select, data.timeline);
	const left = margin, foot = 22, most = Math.max(...data.timeline.map(t => t.bars.length)), h = Math.max(160, Math.min(560, 12 + most * 13 + foot));
	let run, chosen = -1, pinned = -1, wide = 0;
	const [X, T] = across(() => wide);
	const z = { drag: null, view: null, bottom: h - foot, draw, all: () => run.bars.length,
		T, R: y => z.view.top + (y - 6) / (h - foot - 6) * z.view.rows,
		point(p) { const i = Math.floor(z.R(p[1])); if (i >= 0 && i < run.bars.length && i !== chosen) describe(i); },
		click(p) { const i = Math.floor(z.R(p[1])); if (i >= 0 && i < run.bars.length) choose(i); } };
	const whole = () => { z.view = { top: 0, rows: run.bars.length }; };
	const Y = i => 6 + (i - z.view.top) / z.view.rows * (h - foot - 6);
	function draw() {
		const [c, w] = sheet(canvas, h), view = z.view;
		wide = w;
		timeAxis(c, left, w - 4, 2, h - foot, clock.lo, clock.hi);
		note(figure, clock.lo, clock.hi);
		const row = (h - foot - 6) / view.rows, thick = Math.max(1, Math.min(16, row * .72));
		c.save(); c.beginPath(); c.rect(left, 0, w - left - 4, h - foot + 1); c.clip();
		const blue = css("--blue"), verm = css("--verm");
		let bars = 0;
		for (let i = Math.max(0, Math.floor(view.top)); i < Math.min(run.bars.length, view.top + view.rows); i++) {
			const b = run.bars[i], y = Y(i) + (row - thick) / 2;
			const x1 = X(b.at), x2 = Math.max(X(b.end), x1 + 1.5);
			c.strokeStyle = verm; c.lineWidth = 1;
			if (thick > 4) {
				c.strokeRect(x1 + .5, y + .5, x2 - x1 - 1, thick - 1);
				c.save(); c.beginPath(); c.rect(x1, y, x2 - x1, thick); c.clip(); c.globalAlpha = .7;
				c.beginPath();
				for (let x = Math.max(x1, left) - thick; x < Math.min(x2, w); x += 6) { c.moveTo(x, y + thick); c.lineTo(x + thick, y); }
				c.stroke(); c.restore();
			} else { c.globalAlpha = .55; c.fillStyle = verm; c.fillRect(x1, y, x2 - x1, thick); c.globalAlpha = 1; }
			c.fillStyle = blue;
			for (const [from, to] of b.sending) c.fillRect(X(from), y, Math.max(1, X(to) - X(from)), thick);
			if (i === pinned && i !== chosen) { c.strokeStyle = css("--accent"); c.lineWidth = 1.5; c.strokeRect(x1 - 2, y - 1, x2 - x1 + 4, thick + 2); }
			if (i === chosen) { c.strokeStyle = css("--ink"); c.lineWidth = 2; c.strokeRect(x1 - 1, y - 1, x2 - x1 + 2, thick + 2); }
			bars++;
		}
		dragged(c, z.drag);
		c.restore();
		c.fillStyle = css("--soft"); c.textAlign = "right"; c.textBaseline = "middle"; c.font = small;
		const every = Math.max(1, Math.ceil(13 / row));
		for (let i = Math.max(0, Math.floor(view.top)); i < Math.min(run.bars.length, view.top + view.rows); i += every) c.fillText(String(run.bars[i].id), left - 6, Y(i) + row / 2);
		figure.dataset.drawn = String(bars);
		figure.querySelector(".count").textContent = "n = " + run.n + (run.n === 1 ? " coflow" : " coflows") + (run.bars.length < run.n ? ", " + run.bars.length + " drawn" : "");
		reset.disabled = view.rows === run.bars.length && allShown();
	}
	function describe(i) {
		chosen = i;
		const b = run.bars[i], sent = b.sending.reduce((s, [from, to]) => s + to - from, 0);
		const rows = [["CCT", human(b.end - b.at)], ["arrival", human(b.at)], ["end", human(b.end)], ["flows", String(b.width)], ["size", size(b.size)], ["sending", human(sent)], ["waiting", human(Math.max(0, b.end - b.at - sent))]];
		const line = reading("coflow " + b.id, rows);
		if (b.shares) line.push(el("br"), "Time by cause: ", ...reading("", b.shares.map(s => [data.causes[s.cause] + (s.link ? " at " + s.link : ""), human(s.us)])).slice(1));
		out.replaceChildren(...line);
		draw();
	}
	// choose also shows the progress of the coflow's flows.
	function choose(i) {
		pinned = i;
		describe(i);
		if (showCoflow) showCoflow(run, run.bars[i]);
	}
	const slowest = () => run.bars.reduce((k, b, i) => b.end - b.at > run.bars[k].end - run.bars[k].at ? i : k, 0);
	select.addEventListener("change", () => {
		run = data.timeline[+select.value]; chosen = -1; out.replaceChildren(); whole();
		pinned = run.bars.length && showCoflow ? slowest() : -1;
		if (pinned >= 0) showCoflow(run, run.bars[pinned]);
		draw();
	});
	zoomable(canvas, z);
	canvas.addEventListener("keydown", e => {
		const i = { ArrowDown: chosen + 1, ArrowUp: chosen - 1, Home: 0, End: run.bars.length - 1 }[e.key];
		if (i !== undefined) { e.preventDefault(); choose(Math.min(run.bars.length - 1, Math.max(0, i))); }
		if ((e.key === "+" || e.key === "-") && chosen >= 0) {
			const b = run.bars[chosen];
			zoomClock((b.at + b.end) / 2, e.key === "+" ? .5 : 2);
		}
		if (e.key === "Escape") { whole(); showAll(); }
	});
	reset.addEventListener("click", () => { whole(); showAll(); });
	run = data.timeline[0];
	pinned = showCoflow && run.bars.length ? slowest() : -1;
	if (pinned >= 0) showCoflow(run, run.bars[pinned]);
	whole();
	draw();
	charts.push({ figure, draw });
}

// names fills a key with swatches and names.
function names(figure, list) {
	figure.querySelector(".names").replaceChildren(...list.map(([fill, name, sign]) => {
		const span = el("span"), mark = sign ? el("b", "sign", sign) : el("span", "swatch");
		if (!sign) mark.style.backgroundColor = fill;
		span.append(mark, " " + name + " ");
		return span;
	}));
}

function drawGantt(figure) {
	const select = figure.querySelector("select.run"), by = figure.querySelector("select.by"), canvas = figure.querySelector("canvas.plot"), out = figure.querySelector("output"), reset = figure.querySelector(".reset");
	options(select, data.gantt);
	if (!data.gantt.some(g => g.users.length > 1)) by.querySelector("[value=user]").remove();
	const left = margin, foot = 22, most = Math.max(...data.gantt.map(g => g.rows.length)), h = Math.max(160, Math.min(1000, 12 + most * 12 + foot));
	const kinds = ["map", "reduce"], kept = ["committed", "copied", "killed", "failed"], roles = ["", "has backups", "backup"], places = ["", "node-local", "rack-local", "off-rack"];
	const [ROW, JOB, STAGE, TASK, NTH, START, PHASE, ENDED, PLACE, INPUT] = [0, 1, 2, 3, 4, 5, 6, 10, 11, 12];
	const outcome = a => a[ENDED] % kept.length, role = a => Math.floor(a[ENDED] / kept.length);
	const until = a => a[START] + a[PHASE] + a[PHASE + 1] + a[PHASE + 2] + a[PHASE + 3];
	let run, rows, chosen = null, job = 0, wide = 0;
	const [X, T] = across(() => wide);
	const z = { drag: null, view: null, bottom: h - foot, draw, all: () => run.rows.length,
		T, R: y => z.view.top + (y - 6) / (h - foot - 6) * z.view.rows,
		point(p) { const a = at(p); if (a && a !== chosen) { describe(a); draw(); } },
		click(p) { const a = at(p); job = a && a[JOB] !== job ? a[JOB] : 0; if (a) describe(a); } };
	const Y = i => 6 + (i - z.view.top) / z.view.rows * (h - foot - 6);
	const whole = () => { z.view = { top: 0, rows: run.rows.length }; };
	const hue = id => "hsl(" + Math.round(id * 137.508 % 360) + " " + (55 + id % 3 * 15) + "% " + (dark() ? 58 : 45) + "%)";
	const user = id => { const k = run.owner[id]; return k === undefined ? css("--grey") : k < 8 ? colour(k) : hue(k); };
	function at(p) {
		const list = rows[Math.floor(z.R(p[1]))], t = z.T(p[0]);
		if (!list || p[0] < left) return null;
		const slack = 3 * (clock.hi - clock.lo) / (wide - left);
		return list.find(a => a[START] <= t && t < until(a)) || list.find(a => a[START] - slack <= t && t < until(a) + slack) || null;
	}
	function pick() {
		run = data.gantt[+select.value];
		rows = run.rows.map(() => []);
		for (const a of run.attempts) rows[a[ROW]].push(a);
		rows.forEach(list => list.sort((a, b) => a[START] - b[START]));
		chosen = null; job = 0;
		out.replaceChildren();
		whole();
	}
	const phaseOf = (a, k) => k === 0 ? (a[PLACE] ? 0 : 1) : k + 1;
	function draw() {
		const [c, w] = sheet(canvas, h), view = z.view, row = (h - foot - 6) / view.rows, thick = Math.max(1, row > 6 ? Math.min(22, row - 2) : row * .85);
		wide = w;
		const first = Math.max(0, Math.floor(view.top)), last = Math.min(run.rows.length, Math.ceil(view.top + view.rows));
		c.fillStyle = css("--grid"); c.globalAlpha = .55;
		for (let i = first; i < last; i++) if (run.rows[i][0] % 2) c.fillRect(0, Y(i), w - 4, row);
		c.globalAlpha = 1;
		timeAxis(c, left, w - 4, 2, h - foot, clock.lo, clock.hi);
		note(figure, clock.lo, clock.hi);
		const fills = data.fills.map(css), bad = css("--bad"), ink = css("--ink"), ground = css("--ground");
		let drawn = 0;
		c.save(); c.beginPath(); c.rect(left, 0, w - left - 4, h - foot + 1); c.clip();
		for (let i = first; i < last; i++) for (const a of rows[i]) {
			const stop = until(a);
			if (stop < clock.lo || a[START] > clock.hi) continue;
			drawn++;
			const y = Y(i) + (row - thick) / 2, x1 = X(a[START]), x2 = Math.max(X(stop), x1 + .7);
			c.globalAlpha = outcome(a) ? .4 : 1;
			if (by.value === "phase") {
				let t = a[START];
				for (let k = 0; k < 4; k++) {
					const d = a[PHASE + k];
					if (d > 0) { c.fillStyle = fills[phaseOf(a, k)]; c.fillRect(X(t), y, Math.max(.5, X(t + d) - X(t)), thick); }
					t += d;
				}
			} else { c.fillStyle = by.value === "job" ? hue(a[JOB]) : user(a[JOB]); c.fillRect(x1, y, x2 - x1, thick); }
			c.globalAlpha = 1;
			if (x2 - x1 > 3) { c.fillStyle = ground; c.fillRect(x1 - .5, y, 1, thick); }
			if (thick >= 12 && x2 - x1 > 34) {
				c.save(); c.beginPath(); c.rect(Math.max(x1, left), y, x2 - Math.max(x1, left) - 3, thick); c.clip();
				const label = "j" + a[JOB] + " " + (a[STAGE] ? "s" + a[STAGE] + "." : "") + a[TASK] + (a[NTH] ? "#" + a[NTH] : "");
				c.font = "10.5px system-ui, sans-serif"; c.textAlign = "left"; c.textBaseline = "middle";
				c.lineWidth = 2.5; c.strokeStyle = "rgba(0,0,0,.55)"; c.strokeText(label, Math.max(x1, left) + 4, y + thick / 2 + .5);
				c.fillStyle = "#fff"; c.fillText(label, Math.max(x1, left) + 4, y + thick / 2 + .5);
				c.restore();
			}
			if (role(a) === 2) { c.fillStyle = ink; c.fillRect(x1, y + thick - Math.max(1, thick / 6), x2 - x1, Math.max(1, thick / 6)); }
			if (outcome(a) || role(a)) {
				const r = Math.max(1.6, Math.min(4, thick / 2.2));
				c.strokeStyle = c.fillStyle = outcome(a) > 1 ? bad : ink; c.lineWidth = Math.max(1, r / 2.2);
				marker(c, ["triangle", "square", "cross", "diamond"][outcome(a)], x2 - r, y + thick / 2, r);
			}
			if (a[JOB] === job) { c.strokeStyle = ink; c.lineWidth = 1.3; c.strokeRect(x1 + .5, y - .5, x2 - x1 - 1, thick + 1); }
			if (a === chosen) { c.strokeStyle = ink; c.lineWidth = 2; c.strokeRect(x1 - 1, y - 1, x2 - x1 + 2, thick + 2); }
		}
		dragged(c, z.drag);
		c.restore();
		c.fillStyle = css("--soft"); c.textBaseline = "middle"; c.font = small;
		let below = -99;
		for (let i = first; i < last; ) {
			const [host] = run.rows[i];
			let n = 1;
			while (i + n < last && run.rows[i + n][0] === host) n++;
			const mid = Y(i) + n * row / 2;
			if (mid - below >= 12) { c.textAlign = "left"; c.fillText(run.hosts[host], 2, mid); below = mid; }
			if (row >= 10) { c.textAlign = "right"; for (let k = i; k < i + n; k++) c.fillText((row >= 15 && left > 100 ? kinds[run.rows[k][1]] : kinds[run.rows[k][1]][0]) + " " + run.rows[k][2], left - 5, Y(k) + row / 2); }
			i += n;
		}
		names(figure, (by.value === "phase" ? data.phases.map((p, k) => [fills[k], p]) : by.value === "user" ? run.users.slice(0, 12).map((u, k) => [k < 8 ? colour(k) : hue(k), u]) : []).concat(run.attempts.some(a => role(a) === 2) ? [["", "backup", "▁"], ["", "committed first", "▲"], ["", "copied", "■"]] : [], [["", "killed", "✕"], ["", "failed", "◆"]]));
		figure.dataset.drawn = String(drawn);
		figure.querySelector(".count").textContent = "n = " + run.n + (run.n === 1 ? " attempt" : " attempts") + (run.attempts.length < run.n ? ", " + run.attempts.length + " on this page" : "");
		reset.disabled = view.rows === run.rows.length && allShown();
	}
	function describe(a) {
		chosen = a;
		const [host, kind, number] = run.rows[a[ROW]], owner = run.owner[a[JOB]];
		const facts = [["host", run.hosts[host] + ", " + kinds[kind] + " slot " + number], ["start", human(a[START])], ["time", human(until(a) - a[START])]];
		if (owner !== undefined) facts.unshift(["user", run.users[owner]]);
		if (a[PLACE]) facts.push(["input", size(a[INPUT]) + ", " + places[a[PLACE]]]); else facts.push(["input", size(a[INPUT])]);
		if (role(a)) facts.push(["task", roles[role(a)]]);
		for (let k = 0; k < 4; k++) if (a[PHASE + k] > 0) facts.push([data.phases[phaseOf(a, k)], human(a[PHASE + k])]);
		out.replaceChildren(...reading("job " + a[JOB] + ", stage " + a[STAGE] + ", task " + a[TASK] + ", attempt " + a[NTH] + ": " + kept[outcome(a)], facts));
	}
	select.addEventListener("change", () => { pick(); draw(); });
	by.addEventListener("change", draw);
	zoomable(canvas, z);
	canvas.addEventListener("keydown", e => {
		const list = chosen && rows[chosen[ROW]], i = chosen && list.indexOf(chosen), mid = chosen && (chosen[START] + until(chosen)) / 2;
		const near = r => { for (const step = r < chosen[ROW] ? -1 : 1; rows[r]; r += step) if (rows[r].length) return rows[r].reduce((b, a) => Math.abs((a[START] + until(a)) / 2 - mid) < Math.abs((b[START] + until(b)) / 2 - mid) ? a : b); return chosen; };
		let next;
		if (["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"].includes(e.key)) {
			e.preventDefault();
			if (!chosen) next = rows.find(r => r.length)[0];
			else next = { ArrowLeft: () => list[Math.max(0, i - 1)], ArrowRight: () => list[Math.min(list.length - 1, i + 1)], Home: () => list[0], End: () => list[list.length - 1],
				ArrowUp: () => near(chosen[ROW] - 1), ArrowDown: () => near(chosen[ROW] + 1) }[e.key]();
			describe(next);
		}
		if (e.key === "Enter" && chosen) job = job === chosen[JOB] ? 0 : chosen[JOB];
		if ((e.key === "+" || e.key === "-") && chosen) {
			const f = e.key === "+" ? .5 : 2, n = Math.min(run.rows.length, Math.max(4, Math.round(z.view.rows * f)));
			z.view = { top: Math.max(0, Math.min(run.rows.length - n, chosen[ROW] - Math.floor(n / 2))), rows: n };
			zoomClock(mid, f);
		}
		if (e.key === "Escape") { whole(); showAll(); }
		draw();
	});
	reset.addEventListener("click", () => { whole(); showAll(); });
	pick();
	draw();
	charts.push({ figure, draw });
}

// drawShares draws the slots in use by each user as areas on top of each other.
function drawShares(figure) {
	const select = figure.querySelector("select"), canvas = figure.querySelector("canvas.plot"), out = figure.querySelector("output");
	options(select, data.shares);
	const left = margin, foot = 22, h = 190, high = Math.max(1, ...data.shares.map(s => Math.max(s.total || 0, ...s.slots[0].map((_, k) => s.slots.reduce((sum, u) => sum + u[k], 0))))) * 1.04;
	let run, wide = 0, bin = -1;
	const [X, T] = across(() => wide), Y = n => h - foot - n / high * (h - foot - 6);
	const fill = k => k === 7 ? css("--grey") : colour(k);
	function draw() {
		const [c, w] = sheet(canvas, h), n = run.slots[0].length;
		wide = w;
		c.textAlign = "right"; c.textBaseline = "middle"; c.fillStyle = css("--soft"); c.strokeStyle = css("--grid");
		for (const v of steps(0, high, 6)) { c.fillText(trim(v), left - 6, Y(v)); c.beginPath(); c.moveTo(left, Y(v)); c.lineTo(w - 4, Y(v)); c.stroke(); }
		timeAxis(c, left, w - 4, 2, h - foot, clock.lo, clock.hi);
		note(figure, clock.lo, clock.hi);
		c.save(); c.beginPath(); c.rect(left, 0, w - left - 4, h - foot); c.clip();
		const low = new Array(n).fill(0);
		run.slots.forEach((u, k) => {
			c.fillStyle = fill(k);
			for (let j = 0; j < n; j++) {
				if (u[j] > 0) c.fillRect(X(j * run.bin_us), Y(low[j] + u[j]), X((j + 1) * run.bin_us) - X(j * run.bin_us) + .3, Y(low[j]) - Y(low[j] + u[j]));
				low[j] += u[j];
			}
		});
		if (run.total) { c.strokeStyle = css("--ink"); c.lineWidth = 1.2; c.setLineDash([5, 4]); c.beginPath(); c.moveTo(left, Y(run.total)); c.lineTo(w - 4, Y(run.total)); c.stroke(); c.setLineDash([]); }
		if (bin >= 0) { c.strokeStyle = css("--ink"); c.lineWidth = 1; c.strokeRect(X(bin * run.bin_us), Y(high), Math.max(1, X((bin + 1) * run.bin_us) - X(bin * run.bin_us)), h - foot - Y(high)); }
		dragged(c, z.drag);
		c.restore();
		names(figure, run.users.map((u, k) => [fill(k), u]));
		figure.dataset.drawn = String(run.slots.length * n);
		figure.querySelector(".count").textContent = "intervals of " + human(run.bin_us) + (run.total ? ", n = " + run.total + " slots" : "");
	}
	function describe(k) {
		bin = Math.min(run.slots[0].length - 1, Math.max(0, k));
		const of = run.slots.map((u, i) => [run.users[i], u[bin]]), sum = of.reduce((s, [, x]) => s + x, 0);
		out.replaceChildren(...reading("from " + human(bin * run.bin_us) + " to " + human((bin + 1) * run.bin_us), [["in use", trim(sum)]].concat(of.filter(([, x]) => x > 0).map(([u, x]) => [u, trim(x)]))));
		draw();
	}
	select.addEventListener("change", () => { run = data.shares[+select.value]; bin = -1; out.replaceChildren(); draw(); });
	const point = p => { const k = Math.floor(T(p[0]) / run.bin_us); if (p[0] >= left && k >= 0 && k < run.slots[0].length && k !== bin) describe(k); };
	const z = { drag: null, bottom: h - foot, draw, T, point, click: point };
	zoomable(canvas, z);
	canvas.addEventListener("keydown", e => {
		const k = { ArrowLeft: bin - 1, ArrowRight: bin + 1, Home: 0, End: run.slots[0].length - 1 }[e.key];
		if (k !== undefined) { e.preventDefault(); describe(k); }
	});
	run = data.shares[0];
	draw();
	charts.push({ figure, draw });
}

// Loads differ in lightness alone, which does not depend on colour vision.
let ramp;
const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
function heat(load) {
	const stops = ramp, x = Math.min(1, Math.max(0, load)) * (stops.length - 1), i = Math.min(stops.length - 2, Math.floor(x)), f = x - i;
	const part = (s, k) => parseInt(s.slice(1 + 2 * k, 3 + 2 * k), 16);
	return "rgb(" + [0, 1, 2].map(k => Math.round(part(stops[i], k) + f * (part(stops[i + 1], k) - part(stops[i], k)))).join(",") + ")";
}
function drawLinks(figure) {
	const L = data.links, select = figure.querySelector("select"), what = figure.querySelector(".what"), slider = figure.querySelector("input[type=range]");
	const canvas = figure.querySelector("canvas.plot"), out = figure.querySelector("output"), scale = figure.querySelector(".scale");
	options(select, L.runs);
	const left = margin, foot = 22, row = Math.max(3, Math.min(13, 620 / L.names.length)), h = 6 + row * L.names.length + foot;
	let run, cells, bin = 0, wide = 0, fixed = false;
	const lines = new Map(Array.from(figure.querySelectorAll(".link"), l => [+l.dataset.link, l]));
	lines.forEach(l => { l.label = l.querySelector("title").textContent; });
	const loadAt = (i, j) => (cells[i] ? cells[i].charCodeAt(j) : 0) / 200;
	const shade = Array(256);
	function pick() {
		run = L.runs[+select.value];
		cells = run.loads.map(atob);
		slider.max = String(run.bins - 1);
		bin = Math.min(bin, run.bins - 1);
		slider.value = String(bin);
	}
	function paint() {
		L.lines.forEach((id, i) => {
			const l = lines.get(id);
			if (!l) return;
			const x = what.value === "mean" ? run.mean[i] : what.value === "peak" ? run.peak[i] : loadAt(i, bin);
			l.style.stroke = heat(x);
			l.querySelector("title").textContent = l.label + ": " + percent(x);
		});
	}
	const [Xt, T] = across(() => wide), X = j => Xt(j * L.bin_us);
	function draw() {
		const [c, w] = sheet(canvas, h);
		wide = w;
		ramp = [0, 1, 2, 3, 4].map(k => css("--load" + k));
		for (let v = 0; v < 256; v++) shade[v] = heat(v / 200);
		timeAxis(c, left, w - 4, 2, h - foot, clock.lo, clock.hi);
		note(figure, clock.lo, clock.hi);
		c.save(); c.beginPath(); c.rect(left, 0, w - left - 4, h); c.clip();
		let n = 0;
		cells.forEach((s, i) => {
			for (let j = Math.max(0, Math.floor(clock.lo / L.bin_us)); j < Math.min(s.length, clock.hi / L.bin_us); j++) {
				c.fillStyle = shade[s.charCodeAt(j)];
				c.fillRect(X(j), 4 + i * row, X(j + 1) - X(j) + .4, row - (row > 6 ? 1 : 0));
				n++;
			}
		});
		if (what.value === "at") { c.strokeStyle = css("--ink"); c.lineWidth = 1.5; c.strokeRect(X(bin), 3, Math.max(1, X(bin + 1) - X(bin)), row * L.names.length + 2); }
		dragged(c, z.drag);
		c.restore();
		c.fillStyle = css("--soft"); c.textAlign = "right"; c.textBaseline = "middle"; c.font = small;
		const every = Math.max(1, Math.ceil(11 / row));
		for (let i = 0; i < L.names.length; i += every) c.fillText(L.names[i], left - 6, 4 + (i + .5) * row);
		const s = scale.getContext("2d");
		for (let x = 0; x < 160; x++) { s.fillStyle = heat(x / 159); s.fillRect(x, 0, 1, 12); }
		paint();
		figure.dataset.drawn = String(n);
		figure.querySelector(".count").textContent = "n = " + L.names.length + " links, bins of " + human(L.bin_us);
	}
	function describe(i) {
		const at = "from " + human(bin * L.bin_us) + " to " + human((bin + 1) * L.bin_us);
		if (i === undefined) {
			const top = L.names.map((name, i) => [name, loadAt(i, bin)]).sort((a, b) => b[1] - a[1]).slice(0, 4);
			out.replaceChildren(...reading(at, top.map(([name, x]) => [name, percent(x)])));
		} else out.replaceChildren(...reading(L.names[i], [[at, percent(loadAt(i, bin))], ["mean", percent(run.mean[i])], ["peak interval", percent(run.peak[i])]]));
	}
	function cellAt([x, y]) {
		const i = Math.floor((y - 4) / row), j = x < left ? -1 : Math.floor(T(x) / L.bin_us);
		return i >= 0 && i < L.names.length && j >= 0 && j < run.bins ? [i, j] : null;
	}
	const hold = j => { bin = Math.min(run.bins - 1, Math.max(0, j)); slider.value = String(bin); what.value = "at"; };
	select.addEventListener("change", () => { pick(); draw(); out.replaceChildren(); });
	what.addEventListener("change", () => { draw(); if (what.value === "at") describe(); });
	slider.addEventListener("input", () => { hold(+slider.value); draw(); describe(); });
	const z = { drag: null, bottom: h - foot, draw, T,
		point(p) { const s = cellAt(p); if (s) { const was = bin; bin = s[1]; describe(s[0]); bin = was; } },
		click(p) { const s = cellAt(p); if (s) { hold(s[1]); draw(); describe(s[0]); } } };
	zoomable(canvas, z);
	canvas.addEventListener("keydown", e => {
		const j = { ArrowLeft: bin - 1, ArrowRight: bin + 1, Home: 0, End: run.bins - 1 }[e.key];
		if (j !== undefined) { e.preventDefault(); hold(j); draw(); describe(); }
	});
	pick();
	draw();
	charts.push({ figure, draw });
}

const drawers = { cdf: drawCDF, speedups: drawSpeedups, timeline: drawTimeline, progress: drawProgress, links: drawLinks, balance: drawBalance, series: drawSeries, gantt: drawGantt, shares: drawShares };
// The progress chart is drawn last: the timeline selects its coflow.
const figures = Array.from(document.querySelectorAll("figure[data-chart]")).sort((a, b) => (b.dataset.chart === "progress") - (a.dataset.chart === "progress"));
for (const figure of figures) {
	try { drawers[figure.dataset.chart](figure); } catch (e) { problem(figure.dataset.chart + ": " + e.message); console.error(e); }
}

// A chart saves as an SVG: what its canvases draw is traced, in the colours of paper.
const num = x => String(+x.toFixed(2));
const xml = text => String(text).replace(/[^\t\n\x20-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu, "?").replace(/[&<>"]/g, c => "&#" + c.charCodeAt(0) + ";");
const outlines = { // of paths; arcs are whole circles
	moveTo: (x, y) => "M" + num(x) + " " + num(y), lineTo: (x, y) => "L" + num(x) + " " + num(y), closePath: () => "Z",
	rect: (x, y, w, h) => "M" + num(x) + " " + num(y) + "h" + num(w) + "v" + num(h) + "h" + num(-w) + "Z",
	arc: (x, y, r) => "M" + num(x - r) + " " + num(y) + [2 * r, -2 * r].map(d => "a" + num(r) + " " + num(r) + " 0 1 0 " + num(d) + " 0").join("") + "Z",
};
const Path = Path2D;
class TracedPath extends Path { constructor(p) { super(p); this.d = p ? p.d : ""; } }
for (const [name, of] of Object.entries(outlines)) TracedPath.prototype[name] = function (...a) { this.d += of(...a); Path.prototype[name].apply(this, a); };
let clips = 0;
// trace records what is drawn on a canvas, which is shown at a scale, until the function that it returns is called,
// which returns elements of SVG.
function trace(canvas, scale) {
	const c = canvas.getContext("2d"), native = CanvasRenderingContext2D.prototype, out = [], open = [0];
	let path = "", last = null; // last is a rectangle that another one may extend
	const at = () => {
		const m = c.getTransform(), v = [m.a, m.b, m.c, m.d, m.e, m.f].map(x => +(x * scale).toFixed(4));
		return v.join() === "1,0,0,1,0,0" ? "" : ` transform="matrix(${v.join(" ")})"`;
	};
	const ink = (what, style) => {
		const [, rgb, a] = /^rgba\((.*), ([\d.]+)\)$/.exec(style) || [0, 0, 1], alpha = a * c.globalAlpha;
		return ` ${what}="${rgb ? "rgb(" + rgb + ")" : style}"` + (alpha < 1 ? ` ${what}-opacity="${num(alpha)}"` : "");
	};
	const filled = () => ink("fill", c.fillStyle), dashed = () => c.getLineDash().length ? ` stroke-dasharray="${c.getLineDash().map(num).join(" ")}"` : "";
	const lined = () => ' fill="none"' + ink("stroke", c.strokeStyle) + ` stroke-width="${num(c.lineWidth)}"` + dashed();
	const of = p => (p instanceof Path ? p.d : path).replace(/^L/, "M"); // a path begins with a move
	const shape = (d, style) => { if (d) out.push(`<path d="${d}"${style}${at()}/>`); };
	const text = (text, x, y, style) => {
		const size = parseFloat(c.font.match(/([\d.]+)px/)[1]), down = { top: .8, middle: .35, bottom: -.2 }[c.textBaseline] || 0, end = { center: "middle", right: "end", end: "end" }[c.textAlign] || "start";
		out.push(`<text x="${num(x)}" y="${num(y + down * size)}" font-size="${num(size)}" text-anchor="${end}"${style}${at()}>${xml(text)}</text>`);
	};
	const traced = {
		beginPath() { path = ""; }, save() { open.push(0); }, restore() { if (open.length > 1) out.push("</g>".repeat(open.pop())); },
		clip(p) { out.push(`<clipPath id="clip${++clips}"><path d="${of(p)}"${at()}/></clipPath><g clip-path="url(#clip${clips})">`); open[open.length - 1]++; },
		fill: p => shape(of(p), filled()), stroke: p => shape(of(p), lined()),
		fillText: (t, x, y) => text(t, x, y, filled()), strokeText: (t, x, y) => text(t, x, y, lined()),
		strokeRect: (x, y, w, h) => shape(outlines.rect(x, y, w, h), lined()),
		fillRect(x, y, w, h) {
			const style = filled() + at(), more = last && last.n === out.length && last.style === style && last.y === y && last.h === h && Math.abs(last.x + last.w - x) < .6;
			if (more) { last.w = x + w - last.x; out.pop(); } else last = { x, y, w, h, style, n: out.length + 1 };
			out.push(`<rect x="${num(last.x)}" y="${num(y)}" width="${num(last.w)}" height="${num(h)}"${style}/>`);
		},
	};
	for (const [name, of] of Object.entries(outlines)) traced[name] = (...a) => { path += of(...a); };
	for (const name of Object.keys(traced)) c[name] = (...a) => { traced[name](...a); return native[name].apply(c, a); };
	return () => {
		for (const name of Object.keys(traced)) delete c[name];
		return out.join("") + "</g>".repeat(open.reduce((a, b) => a + b));
	};
}
// plain returns a drawing of the page without its style sheet.
function plain(svg) {
	const copy = svg.cloneNode(true), to = copy.querySelectorAll("*");
	svg.querySelectorAll("*").forEach((e, i) => {
		const style = getComputedStyle(e);
		to[i].removeAttribute("class"); to[i].removeAttribute("style");
		for (const name of ["fill", "stroke", "stroke-width", "stroke-opacity", "font-size", "font-family", "text-anchor", "stroke-dasharray"]) to[i].setAttribute(name, style.getPropertyValue(name));
	});
	return copy;
}
// svgOf returns a chart as it is on the screen, with its title, selections and legend.
function svgOf(figure) {
	const main = figure.querySelector("canvas.plot, .uplot canvas"), canvases = [main, ...figure.querySelectorAll(".legend button[aria-pressed=true] canvas, canvas.scale")];
	const theme = root.dataset.theme, chart = charts.find(c => c.figure === figure), drawn = new Map(), wide = main.clientWidth;
	root.dataset.theme = "light";
	window.Path2D = TracedPath;
	const traces = canvases.map(c => [c, trace(c, c === main ? 1 / devicePixelRatio : c.clientWidth / c.width)]);
	chart.draw();
	for (const [c, stop] of traces) drawn.set(c, stop());
	window.Path2D = Path;
	const pen = el("canvas").getContext("2d"), out = [], step = 18, edge = 10, ink = css("--ink"), soft = css("--soft");
	let x = 0, y = step;
	const newLine = () => { if (x) { x = 0; y += step; } };
	// put adds a text, broken if it does not fit on a line, after a mark that has a width.
	function put(text, style, mark, room) {
		pen.font = (style.includes("bold") ? "bold " : "") + "12px sans-serif";
		const lines = [""];
		for (const word of text.trim().split(/\s+/)) { const more = (lines[0] + " " + word).trim(); if (lines[0] && room + pen.measureText(more).width > wide) lines.unshift(word); else lines[0] = more; }
		const width = room + Math.max(...lines.map(l => pen.measureText(l).width));
		if (x + width > wide) newLine();
		if (mark) out.push(`<g transform="translate(${num(x)} ${num(y)})">${mark}</g>`);
		lines.reverse().forEach((l, k) => { out.push(`<text x="${num(x + room)}" y="${num(y + k * step)}"${style}>${xml(l)}</text>`); });
		y += step * (lines.length - 1); x += width + 14;
	}
	const about = (figure.about || Array.from(figure.querySelectorAll("select"))).filter(s => s.options.length > 1).map(s => (s === nth ? "repeat " : "") + s.selectedOptions[0].textContent).join(", ");
	put(figure.querySelector("figcaption").textContent, ` fill="${ink}" font-weight="bold"`, "", 0);
	newLine();
	if (about) { put(about, ` fill="${soft}"`, "", 0); newLine(); }
	figure.querySelectorAll(".legend button[aria-pressed=true], .key>span, canvas.scale").forEach(key => {
		const c = key.matches("canvas") ? key : key.querySelector("canvas"), mark = key.querySelector(".swatch, .stroke"), s = mark && getComputedStyle(mark), line = s && parseFloat(s.borderTopWidth) ? ` stroke="${s.borderTopColor}" stroke-width="${parseFloat(s.borderTopWidth)}"` : "";
		const box = mark && (mark.matches(".stroke") ? `<path d="M0-4h26"${line}/>` : `<rect y="-10" width="18" height="11" fill="${/^rgba\(.*, 0\)$/.test(s.backgroundColor) ? "none" : s.backgroundColor}"${line}/>`);
		const sample = c && `<g transform="translate(0 -10)">${drawn.get(c)}</g>`;
		put(c === key ? "" : key.textContent, ` fill="${ink}"`, sample || box, c ? c.clientWidth + 4 : mark ? 32 : 0);
	});
	newLine();
	const picture = figure.querySelector("svg.fabric");
	if (picture) {
		const copy = plain(picture), [, , w, h] = picture.getAttribute("viewBox").split(" ").map(Number), shown = Math.min(wide, w);
		for (const [name, value] of [["y", y - step / 2], ["width", shown], ["height", shown * h / w]]) copy.setAttribute(name, num(value));
		out.push(new XMLSerializer().serializeToString(copy));
		y += shown * h / w + step / 2;
	}
	out.push(`<g id="chart" transform="translate(0 ${num(y - step / 2)})">${drawn.get(main)}</g>`);
	const height = y - step / 2 + main.clientHeight + 2 * edge, ground = css("--ground");
	if (theme === undefined) delete root.dataset.theme; else root.dataset.theme = theme;
	chart.draw();
	return `<svg xmlns="http://www.w3.org/2000/svg" width="${num(wide + 2 * edge)}" height="${num(height)}" viewBox="0 0 ${num(wide + 2 * edge)} ${num(height)}" font-family="Liberation Sans, Arimo, Helvetica, Arial, sans-serif" font-size="12">`
		+ `<rect width="100%" height="100%" fill="${ground}"/><g transform="translate(${edge} ${edge})">${out.join("")}</g></svg>\n`;
}
// onPaper returns the SVG of a drawing of the page.
function onPaper(figure) {
	const theme = root.dataset.theme;
	root.dataset.theme = "light";
	const svg = figure.querySelector("svg");
	svg.classList.add("saved");
	const copy = plain(svg);
	svg.classList.remove("saved");
	if (theme === undefined) delete root.dataset.theme; else root.dataset.theme = theme;
	return new XMLSerializer().serializeToString(copy);
}
for (const figure of document.querySelectorAll("figure[data-chart], figure.paper")) {
	const b = saving.button("save", "SVG", "save this chart as SVG");
	figure.prepend(b);
	b.addEventListener("click", () => saving.save(figure.querySelector("figcaption").textContent + ".svg", "image/svg+xml", figure.matches(".paper") ? onPaper(figure) : svgOf(figure)));
}

for (const box of document.querySelectorAll(".brush")) drawBrush(box);

const again = () => charts.slice().forEach(c => c.draw());
let width = innerWidth, waiting = 0;
addEventListener("resize", () => { if (innerWidth !== width) { width = innerWidth; clearTimeout(waiting); waiting = setTimeout(again, 120); } });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", again);
let themeBeforePrint = null;
addEventListener("beforeprint", () => {
	document.querySelectorAll("details").forEach(d => { d.open = true; });
	if (themeBeforePrint === null) themeBeforePrint = root.dataset.theme || "";
	root.dataset.theme = "light";
	printing = true;
	again();
});
addEventListener("afterprint", () => {
	printing = false;
	if (themeBeforePrint) root.dataset.theme = themeBeforePrint; else delete root.dataset.theme;
	themeBeforePrint = null;
	again();
});
const themes = ["", "light", "dark"], theme = document.getElementById("theme");
theme.hidden = false;
function setTheme(name) {
	if (name) root.dataset.theme = name; else delete root.dataset.theme;
	theme.textContent = "Theme: " + (name || "automatic");
	again();
}
theme.addEventListener("click", () => {
	const next = themes[(themes.indexOf(root.dataset.theme || "") + 1) % 3];
	try { localStorage.setItem("testbed-theme", next); } catch (e) { /* not saved */ }
	setTheme(next);
});
let savedTheme = "";
try { savedTheme = localStorage.getItem("testbed-theme") || ""; } catch (e) { /* nothing saved */ }
const themeParameter = new URLSearchParams(location.search).get("theme");
if (themes.includes(themeParameter || savedTheme) && (themeParameter || savedTheme)) setTheme(themeParameter || savedTheme);

// With ?check each chart records its SVG and the number of colours of its pixels.
if (checking) requestAnimationFrame(() => setTimeout(() => {
	for (const figure of document.querySelectorAll("figure[data-chart], figure.paper")) {
		figure.querySelector(".save").click();
		figure.dataset.svg = root.dataset.saved;
		const canvas = figure.querySelector("canvas.plot, .uplot canvas"), seen = new Set();
		if (canvas && canvas.width && canvas.height) {
			const p = new Uint32Array(canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.buffer);
			for (let i = 0; i < p.length && seen.size < 64; i++) seen.add(p[i]);
		}
		figure.dataset.colours = String(seen.size);
	}
	root.dataset.overflow = String(Math.max(0, document.documentElement.scrollWidth - innerWidth));
	root.dataset.checked = "yes";
}, 50));
root.dataset.ready = "yes";
})();
