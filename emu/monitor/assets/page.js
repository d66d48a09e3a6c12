"use strict";
// The page draws the snapshots of /events. It keeps the last `kept` of them. With ?events=N it ends after N snapshots.
const kept = 240, shown = 8, height = 180, left = 58, bottom = 160;
const root = document.documentElement, most = +new URLSearchParams(location.search).get("events");
const history = [];
const find = (s, of = document) => of.querySelector(s);
const short = (n, unit) => { // 1500 → 1.5 KB
	const units = ["", "K", "M", "G", "T"];
	let i = 0;
	for (; Math.abs(n) >= 1000 && i < units.length - 1; i++) n /= 1000;
	return (n >= 99.5 || Number.isInteger(n) ? n.toFixed(0) : n.toPrecision(2)) + " " + units[i] + unit;
};
const element = (kind, attributes, text) => {
	const e = kind === "li" || kind === "td" || kind === "tr" ? document.createElement(kind) : document.createElementNS("http://www.w3.org/2000/svg", kind);
	for (const name in attributes) e.setAttribute(name, attributes[name]);
	if (text !== undefined) e.textContent = text;
	return e;
};
// paint returns the colour of a link in a chart, given the links of each chart. Links of a chart differ in colour. A link
// keeps one colour on all charts while any shows it, unless no colour is free in all of its charts.
const colours = new Map(), palette = [...Array(shown).keys()];
function paint(lists) {
	const of = link => lists.filter(l => l.includes(link)).flat().filter(l => l !== link).map(l => colours.get(l));
	const links = [...new Set(lists.flat())], times = new Map(links.map(l => [l, lists.filter(x => x.includes(l)).length]));
	links.sort((a, b) => times.get(b) - times.get(a) || (a < b ? -1 : 1));
	for (const l of colours.keys()) if (!times.has(l)) colours.delete(l);
	const choose = link => {
		const taken = of(link), all = [...colours.values()];
		if (colours.has(link) && !taken.includes(colours.get(link))) return true;
		const k = palette.find(k => !all.includes(k)) ?? palette.find(k => !taken.includes(k));
		if (k === undefined) colours.delete(link); else colours.set(link, k);
		return k !== undefined;
	};
	if (!links.map(choose).every(Boolean)) { // those of the most charts first
		colours.clear();
		links.forEach(choose);
	}
	return lists.map(list => {
		const free = palette.filter(k => !list.some(l => colours.get(l) === k));
		const own = new Map(list.filter(l => !colours.has(l)).sort().map(l => [l, free.shift()]));
		return link => "c" + (colours.get(link) ?? own.get(link));
	});
}
// What each chart draws of a link, and the least upper end of its axis.
const charts = {
	utilisation: { value: l => 100 * l.utilisation, least: 100 },
	queue: { value: l => l.backlog_bytes, least: 1000 },
	drops: { value: (l, s) => l.dropped / (s.interval_ns / 1e9), least: 10 },
};

// linesOf returns the links that a chart draws, with their values.
function linesOf(figure) {
	const { value } = charts[figure.dataset.chart], series = new Map(); // by link
	history.forEach((s, i) => s.links.forEach(l => {
		if (!series.has(l.link)) series.set(l.link, { link: l.link, points: [], most: 0, sum: 0, now: 0 });
		const x = series.get(l.link), v = value(l, s);
		x.points.push([i, v]);
		x.most = Math.max(x.most, v);
		x.sum += v;
		x.now = i === history.length - 1 ? v : x.now;
	}));
	return [...series.values()].filter(x => x.most > 0).sort((a, b) => b.sum - a.sum).slice(0, shown);
}

function draw(figure, drawn, colour) {
	const { least } = charts[figure.dataset.chart], unit = figure.dataset.unit;
	const top = Math.max(least, ...drawn.map(x => x.most));
	const width = find("svg", figure).clientWidth || 400;
	const x = i => left + (width - left) * (history.length > 1 ? i / (history.length - 1) : 1), y = v => bottom - (bottom - 10) * v / top;
	const svg = find("svg", figure), list = find("ul", figure);
	svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
	const parts = [0, 0.5, 1].flatMap(share => [
		element("line", { x1: left, x2: width, y1: y(share * top), y2: y(share * top) }),
		element("text", { x: left - 5, y: y(share * top) + 4, "text-anchor": "end" }, short(share * top, unit)),
	]);
	const seconds = (Date.parse(history.at(-1).at) - Date.parse(history[0].at)) / 1000;
	parts.push(element("text", { x: left, y: height - 5 }, `${Math.round(seconds)} s ago`), element("text", { x: width, y: height - 5, "text-anchor": "end" }, "now"));
	for (const s of drawn) parts.push(element("polyline", { class: colour(s.link), points: s.points.map(([i, v]) => `${x(i).toFixed(1)},${y(v).toFixed(1)}`).join(" ") }));
	svg.replaceChildren(...parts);
	list.replaceChildren(...drawn.map(s => element("li", { class: colour(s.link) }, `${s.link} ${short(s.now, unit)}`)));
	if (drawn.length === 0) list.textContent = "none";
	figure.dataset.drawn = drawn.length;
}

function show(s) {
	if (history.length > 0 && history.at(-1).testbed !== s.testbed) history.length = 0;
	history.push(s);
	if (history.length > kept) history.shift();
	find("#testbed").textContent = s.testbed;
	const sum = s.summary, busiest = sum.busiest ? `busiest ${sum.busiest} at ${Math.round(100 * sum.busiest_utilisation)} %` : "no link sent anything";
	state(`${new Date(s.at).toLocaleTimeString()}: ${sum.links} links, ${busiest}, ${sum.dropped_total} packets dropped`);
	const figures = [...document.querySelectorAll("figure")], drawn = figures.map(linesOf);
	const colour = paint(drawn.map(list => list.map(x => x.link)));
	figures.forEach((f, i) => draw(f, drawn[i], colour[i]));
	const rows = s.links.toSorted((a, b) => b.utilisation - a.utilisation).map(l => {
		const row = element("tr", l.up ? {} : { class: "down" });
		const drops = l.dropped_total + (l.dropped > 0 ? ` +${l.dropped}` : "");
		row.append(...[l.link, short(l.rate_bps, "bps"), `${(100 * l.utilisation).toFixed(1)} %`, short(l.backlog_bytes, "B"), drops].map(v => element("td", {}, v)));
		return row;
	});
	find("tbody").replaceChildren(...rows);
	root.dataset.events = +(root.dataset.events || 0) + 1;
}

function state(text, bad) {
	find("#state").textContent = text;
	find("#state").className = bad ? "bad" : "";
}

addEventListener("error", e => { root.dataset.problems = (root.dataset.problems || "") + e.message; });
const source = new EventSource("/events");
source.addEventListener("snapshot", e => {
	show(JSON.parse(e.data));
	if (most && +root.dataset.events >= most) source.close();
});
source.addEventListener("waiting", e => {
	history.length = 0;
	find("#testbed").textContent = "waiting for a testbed";
	state(JSON.parse(e.data));
});
source.onerror = () => state(source.readyState === EventSource.CLOSED ? "the server refused the connection: reload the page" : "the server does not answer: connecting again", true);
