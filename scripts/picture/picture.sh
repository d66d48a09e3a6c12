#!/bin/sh
# Take the picture of the README: a run's report page above its fabric, as Chromium shows them.
#
#   scripts/picture/picture.sh RUN OUT.png
#
# RUN is a run directory with report.html, such as that of make demo. The tool is ./bin/testbed.
set -eu
run=$1 out=$2
limit=300000 # bytes, since every clone of the repository has the picture

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cp "$run/report.html" "$dir/"
./bin/testbed graph "$run" -o "$dir/fabric.svg"
cat >"$dir/picture.html" <<'END'
<!doctype html>
<title>picture</title>
<style>
body { margin: 0; background: #fff; width: 1360px; display: grid; grid-template-columns: 716px 644px }
iframe { border: 0; width: 1360px; height: 532px; grid-column: 1 / 3 }
iframe.chart { width: 644px; height: 440px; grid-column: 2 }
img { width: 700px; margin: 0 0 0 8px }
</style>
<iframe src="report.html?theme=light"></iframe>
<img src="fabric.svg">
<iframe class="chart" src="report.html?theme=light"></iframe>
<script>
const chart = document.querySelector(".chart");
chart.addEventListener("load", () => setTimeout(() => {
	const page = chart.contentDocument, figure = page.querySelector("figure[data-chart=cdf]");
	page.querySelector("nav").style.display = "none"; // it stays at the top
	chart.contentWindow.scrollTo({ top: figure.getBoundingClientRect().top - 8, behavior: "instant" });
}, 500));
</script>
END
timeout 90 chromium --headless=new --allow-file-access-from-files --no-sandbox --disable-gpu --hide-scrollbars \
	--host-resolver-rules='MAP * ~NOTFOUND' --user-data-dir="$dir/profile" \
	--enable-logging=stderr --virtual-time-budget=10000 --window-size=1360,980 \
	--screenshot="$dir/picture.png" "file://$dir/picture.html" 2>"$dir/log" || { cat "$dir/log" >&2; exit 1; }
grep -E "CONSOLE|Uncaught" "$dir/log" >&2 && exit 1
size=$(wc -c <"$dir/picture.png")
if [ "$size" -gt "$limit" ]; then
	echo "picture.sh: $out: $size bytes: must be at most $limit" >&2
	exit 1
fi
cp "$dir/picture.png" "$out"
echo "$out: $size bytes"
