package htmlreport

// Limits keep the page of a large run small enough to open and to send. The page states
// what they leave out.
const (
	// maxCDFPoints is the number of points of a curve: with more items, it has quantiles.
	maxCDFPoints = 1000
	// maxPairs is the number of coflows of an arm in the chart of speed-ups: of more, every
	// n-th by speed-up is drawn.
	maxPairs = 2000
	// maxBars is the number of coflows of an arm in the timeline, over its repeats: the
	// longest are drawn.
	maxBars = 2000
	// maxStretches is the number of sending periods of a coflow in the timeline: the shortest
	// pauses between more are filled.
	maxStretches = 8
	// maxFlows is the number of flows in the progress chart of a coflow: the longest are drawn.
	maxFlows = 50
	// maxMoments and leastMoments limit the moments of a flow in that chart; pages with many
	// flows have fewer moments for each.
	maxMoments, leastMoments = 20, 6
	// maxProgress is the number of moments of all flows of a page: of more, those of the
	// slowest coflows of each timeline are included.
	maxProgress = 80_000
	// maxRepeats is the number of repeats of an arm in the timeline and the heat map: the first.
	maxRepeats = 10
	// maxBins is the number of time bins in the heat map and in the chart of Cv.
	maxBins = 300
	// leastBins is the minimum number of time bins in the heat map; it takes precedence over maxCells.
	leastBins = 20
	// maxLinks is the number of links in the heat map: those between leaves and spines, then
	// the busiest.
	maxLinks = 500
	// maxCells is the number of cells of the heat maps of all arms and repeats: bins are
	// longer if there would be more.
	maxCells = 400_000
	// maxHosts is the number of hosts in the table of disk use: those that store the most.
	maxHosts = 500
	// maxPicture is the number of hosts in the picture of the fabric: a larger fabric has none.
	maxPicture = 2000
	// maxAttempts is the number of attempts in the Gantt charts of all arms and repeats, which have equal
	// parts: of more, those of the first hosts are drawn.
	maxAttempts = 40_000
	// maxUsers is the number of users with an area of their own in the chart of slots: those with most
	// slot time.
	maxUsers = 7
	// maxSeriesRepeats is the number of repeats of an arm in the charts of series: the first.
	maxSeriesRepeats = 3
	// maxSeriesObjects is the number of links, and of flows, with charts of series: those with most drops, and with
	// most samples.
	maxSeriesObjects = 12
	// maxSeriesBins is the number of time bins in the charts of series, of which each has the least and the largest
	// value.
	maxSeriesBins = 400
	// maxSeriesValues is the number of values of all arms and repeats in these charts: bins are longer if there would
	// be more. leastSeriesBins takes precedence over it.
	maxSeriesValues, leastSeriesBins = 70_000, 50
	// maxShares is the number of shares of a coflow's time in the timeline's tooltip: the longest.
	maxShares = 5
)
