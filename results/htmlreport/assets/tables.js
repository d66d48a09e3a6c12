"use strict";
// A click on a heading sorts a table, a button saves it as CSV.
(function () {
const root = document.documentElement, checking = new URLSearchParams(location.search).has("check");
const units = { "µs": 1e-6, ms: 1e-3, s: 1, B: 1, KB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12, Kbps: 1e3, Mbps: 1e6, Gbps: 1e9 };
// worth returns what a cell sorts by: its number in units without a prefix, or its text; null for a missing value.
function worth(cell) {
	const text = shown(cell), [, number, unit] = /^[≈~]?\s*([+-]?[\d.,]*\d)\s*([A-Za-zµ]*)/.exec(text) || [];
	if (text === "" || text === "–") return null;
	return number === undefined ? text : parseFloat(number.replaceAll(",", "")) * (units[unit] || 1);
}
function shown(cell) {
	const copy = cell.cloneNode(true);
	copy.querySelectorAll(".mark").forEach(e => e.remove());
	return copy.textContent.trim();
}
function compare(a, b) {
	if (a === null || b === null) return (a === null) - (b === null);
	return typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
}
function save(name, type, text) {
	if (checking) { root.dataset.saved = text; return; }
	const a = document.createElement("a");
	a.href = URL.createObjectURL(new Blob([text], { type }));
	a.download = name;
	a.click();
	setTimeout(() => URL.revokeObjectURL(a.href), 1000);
}
const quoted = text => /[",\n]/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text;
const button = (cls, text, title) => { const b = document.createElement("button"); b.type = "button"; b.className = cls; b.textContent = text; b.title = title; return b; };
window.saving = { save, button }; // charts too
for (const table of document.querySelectorAll("table")) {
	const body = table.tBodies[0], written = Array.from(body.rows), heads = table.tHead ? Array.from(table.tHead.rows[0].cells) : [];
	heads.forEach((th, k) => {
		const b = button("sort", th.textContent, "sort by this column");
		th.replaceChildren(b);
		b.addEventListener("click", () => {
			const next = { ascending: "descending", descending: "none" }[th.getAttribute("aria-sort")] || "ascending";
			heads.forEach(h => h.removeAttribute("aria-sort"));
			th.setAttribute("aria-sort", next);
			const rows = written.map(row => [row, worth(row.cells[k])]);
			if (next !== "none") rows.sort(([, a], [, b]) => a === null || b === null || next === "ascending" ? compare(a, b) : compare(b, a));
			body.append(...rows.map(([row]) => row));
		});
	});
	const b = button("save", "CSV", "save this table as CSV"), name = table.caption.textContent;
	table.caption.append(" ", b);
	b.addEventListener("click", () => save(name + ".csv", "text/csv", Array.from(table.rows, row => Array.from(row.cells, c => quoted(shown(c))).join(",") + "\n").join("")));
}
})();
