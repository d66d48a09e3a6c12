package page

// Limits keep a page of a large run small enough to open and to send. What they
// leave out, the page says.
const (
	// maxCDFPoints of a curve: of more items, so many quantiles.
	maxCDFPoints = 1000
	// maxPairs of coflows of an arm in the chart of speed-ups: of more, every n-th by
	// speed-up.
	maxPairs = 2000
	// maxBars of coflows of an arm in the timeline, over its repeats: the longest.
	maxBars = 2000
	// maxStretches of sending of a coflow in the timeline: the shortest pauses between
	// more are left out.
	maxStretches = 8
	// maxFlows of a coflow in the chart of its progress: the longest.
	maxFlows = 50
	// maxMoments of a flow in that chart, and the least where a page has many.
	maxMoments, leastMoments = 20, 6
	// maxProgress moments of all flows of a page: of more, those of the slowest coflows
	// of each timeline.
	maxProgress = 80_000
	// maxRepeats of an arm in the timeline and the heat map: the first.
	maxRepeats = 10
	// maxBins of time in the heat map, and in the chart of Cv.
	maxBins = 300
	// leastBins of time in the heat map, whatever maxCells says.
	leastBins = 20
	// maxLinks in the heat map: those between leaves and spines, then the busiest.
	maxLinks = 500
	// maxCells of the heat maps of all arms and repeats: they have fewer bins where
	// that would be more.
	maxCells = 400_000
	// maxHosts in the picture of disk use and in its table: of more, those that store
	// the most.
	maxHosts = 500
	// maxPicture hosts in the picture of the fabric: a larger one has none.
	maxPicture = 2000
	// slowest coflows of an arm whose time is taken apart.
	slowest = 10
	// maxShares of a coflow's time in the timeline's tooltip: the longest.
	maxShares = 5
)
