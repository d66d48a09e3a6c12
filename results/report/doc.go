// Package report turns the records of a run into tables for a terminal, a Markdown
// document, an HTML page, CSV files with every item, and a JSON summary. The same input
// gives the same bytes.
//
// # Void arms
//
// A repeat whose verdict is void has no figures: every output prints "void" in place of
// the numbers of its arm, and the CSV files leave out its items. The other repeats of that
// arm keep their items in the CSV files, each with its own verdict. The arm's summary stays
// void, because a reader of an average cannot see which repeats it includes.
//
// # The CSV files
//
// Package results/schema defines the columns of every file. Rows are in order of arm, repeat
// and ID. fluid_… columns are the fluid model's prediction for the same item.
//
// requests.csv needs the blocks of each writer. jobs.csv exists for runs with jobs, and
// balance.csv for runs with blocks. In progress.csv each transfer has a few moments
// (metrics.DefaultProgressPoints), including its first and last. Transfers that a fault ended
// are included.
//
// Reports of the fluid model have no breakdown.csv, links.csv, drops.csv and progress.csv.
// Columns that only packets provide are empty.
//
// HeadlineCSV, printed by "testbed report --csv", has one row for each arm and
// metric (cct, fct, write_time, request_time, job_time, job_time_by_bin.N), with the figures of summary.json: arm, metric,
// verdict, repeats, n, mean_us, p50_us, p95_us, p99_us, min_us, max_us,
// between_repeats (standard deviation of the repeats' averages over their mean), speedup (ratio
// of averages, relative to the baseline), and for the items that the baseline has too: pairs,
// clusters, unpaired, mean_ratio, median, geo_mean, each with the _low and _high of
// its 95 % confidence interval; fluid_mean_us, fluid_ratio (measured over predicted).
//
// summary.json is a Summary. report.html is written by results/htmlreport.
//
// This package does not read captures (results/flows), compute distributions
// (results/metrics) or judge fidelity (emu/fidelity).
package report
