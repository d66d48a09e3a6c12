package summary

// Files that Write creates.
const (
	FlowsFile   = "flows.csv"
	CoflowsFile = "coflows.csv"
	BlocksFile  = "blocks.csv"
	// Only for packets:
	BreakdownFile = "breakdown.csv"
	LinksFile     = "links.csv"
	DropsFile     = "drops.csv"
	ProgressFile  = "progress.csv"
	// Only for runs with such items:
	RequestsFile = "requests.csv"
	JobsFile     = "jobs.csv"
	AttemptsFile = "attempts.csv"
	BalanceFile  = "balance.csv"
	// Derived from the same figures:
	SummaryFile  = "summary.json"
	MarkdownFile = "report.md"
	PageFile     = "report.html"
)

// DataFiles returns the files from which a report is read back.
func DataFiles() []string {
	return []string{FlowsFile, CoflowsFile, BlocksFile, BreakdownFile, LinksFile, DropsFile, ProgressFile,
		RequestsFile, JobsFile, AttemptsFile, BalanceFile, SummaryFile}
}

// AskedFile is the file of a repeat that records which coflows and blocks belong
// together (metrics.WorkloadMeta).
const AskedFile = "asked.json"

// QueuesFile is the file of a repeat with the kernel's counts of packets dropped by the
// queues of links (metrics.Queues).
const QueuesFile = "queues.json"
