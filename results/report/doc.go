// Package report turns the records of a run into what people and programs read:
// tables for a terminal, a Markdown page, CSV files with every item, and a JSON
// summary. The same input gives the same bytes.
//
// # What void means here
//
// A repeat whose verdict is void gives no figure: its arm prints "void" in place
// of numbers, in every output, and its items are left out of the CSV files. The
// repeats of that arm that are not void keep their items in the CSV files, each
// with its own verdict; the arm's summary stays void, since a reader of an
// average cannot tell which repeats are in it.
//
// # The CSV files
//
// Times are microseconds with nanoseconds behind the point, counted from the
// start of the repeat; sizes are bytes. Columns of all files: arm, repeat
// (from 0) and verdict (of that repeat; "fluid model" where there were no
// packets). fluid_… columns are the fluid model's prediction for the same item
// and empty where there is none. In order of arm, repeat and ID.
//
//   - flows.csv: coflow, flow, src, dst (host names), size_bytes (payload),
//     arrival_us (of the coflow), start_us (first payload packet leaves src),
//     end_us (dst has the last byte), fct_us (end − arrival), packets (with
//     payload, at src), resent (of them, those that carry bytes sent before),
//     wire_bytes (frames that src sent for it), fluid_fct_us, first_byte_us (at dst),
//     resent_bytes, rtt_min_us and rtt_median_us (payload to acknowledgement at src), background
//     (true for a flow of a background coflow, which is in no average).
//   - coflows.csv: coflow, width (flows), size_bytes, arrival_us, end_us, cct_us,
//     fluid_cct_us, skew, slowest_flow, bottleneck, lone_us, slowdown (as
//     timing.Coflow), the sum of each of timing.CoflowCauses, and background.
//   - blocks.csv: block, client, hosts (replicas in pipeline order, separated by
//     spaces), size_bytes, requested_us, end_us, write_time_us,
//     fluid_write_time_us, the sum of each of timing.BlockCauses, and waited_us (to be
//     placed, before requested_us).
//   - requests.csv, where it is known which blocks a writer writes: writer, job (empty
//     for none), client, blocks, size_bytes, requested_us (of the first block, before it
//     waited), end_us (of the last), request_time_us, fluid_request_time_us.
//   - jobs.csv, where there are jobs: job, bin and coflow (empty for none), blocks,
//     size_bytes (of blocks), arrival_us, end_us, job_time_us, fluid_job_time_us.
//   - balance.csv, of runs with blocks: from_us, interval_us, cv (of the receiving
//     bottleneck links, metrics.Balance).
//   - breakdown.csv: coflow, cause, link (of queueing), time_us.
//   - links.csv: link, rate_bps, from_us, interval_us, bytes (of frames), utilisation,
//     queue_bytes (an estimate of the longest).
//   - progress.csv: kind (flow, or block for a hop of a pipeline of one), coflow and
//     flow, or block, hop and pipeline (the others of these are empty), size_bytes
//     (payload; of a hop from where its pipeline went on), at_us, received_bytes (of
//     that payload, which the receiver has without a gap from at_us on), sent_us (when
//     the last of them left the sender first; empty where that was not captured). Of
//     each transfer there are a few moments (metrics.DefaultProgressPoints), the first
//     and the last among them; also of those that a fault ended.
//
// The fluid model's reports have no breakdown.csv, links.csv and progress.csv, and
// leave empty what only packets tell.
//
// HeadlineCSV, which "testbed report --csv" prints, has one row for each arm and
// metric (cct, fct, write_time, request_time, job_time, job_time_by_bin.N), with the figures of summary.json: arm, metric,
// verdict, repeats, n, mean_us, p50_us, p95_us, p99_us, min_us, max_us,
// between_repeats (deviation of the repeats' averages over their mean), speedup (of
// averages, over the baseline), and of the items that the baseline has too: pairs,
// clusters, unpaired, mean_ratio, median, geo_mean, each with the _low and _high of
// its 95 % interval; fluid_mean_us, fluid_ratio (measured over predicted).
//
// summary.json is a Summary. report.html is results/page's.
//
// It reads no captures (results/flows), computes no distribution
// (results/metrics) and passes no judgement (emu/fidelity).
package report
