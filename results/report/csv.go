package report

import (
	"encoding/csv"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/results/timing"
	"testbed/results/verdict"
)

// Micros is d in microseconds with three decimals, exactly, as the CSV files have it.
func Micros(d time.Duration) string {
	sign, n := "", uint64(d)
	if d < 0 {
		sign, n = "-", -n
	}
	return fmt.Sprintf("%s%d.%03d", sign, n/1000, n%1000)
}

// eachRepeat calls f for the repeats that are not void, with the cells that all
// rows of that repeat begin with.
func (r *Report) eachRepeat(f func(rep Repeat, begin []string) error) error {
	for _, a := range r.in.Arms {
		for k, rep := range a.Repeats {
			level := SourceFluidModel
			if !r.in.FluidModel {
				if rep.Verdict.Level == verdict.Void {
					continue
				}
				level = rep.Verdict.Level.String()
			} else {
				rep.Fluid = nil
			}
			if err := f(rep, []string{a.Name, strconv.Itoa(k), level}); err != nil {
				return err
			}
		}
	}
	return nil
}

// predictions are the fluid model's times by ID.
func predictions(rep Repeat, items func(int, flows.Records) []metrics.Item) map[int]string {
	if rep.Fluid == nil {
		return nil
	}
	out := map[int]string{}
	for _, item := range items(0, *rep.Fluid) {
		out[item.ID] = Micros(item.Time)
	}
	return out
}

// rows writes a header and what each returns.
func (r *Report) rows(w io.Writer, header []string, rows func(rep Repeat) [][]string) error {
	c := csv.NewWriter(w)
	if err := c.Write(append([]string{"arm", "repeat", "verdict"}, header...)); err != nil {
		return err
	}
	err := r.eachRepeat(func(rep Repeat, begin []string) error {
		for _, row := range rows(rep) {
			if err := c.Write(append(begin[:len(begin):len(begin)], row...)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	c.Flush()
	return c.Error()
}

// FlowsCSV writes every flow. The columns are in the package documentation.
func (r *Report) FlowsCSV(w io.Writer) error {
	header := []string{"coflow", "flow", "src", "dst", "size_bytes", "arrival_us", "start_us", "end_us", "fct_us", "packets", "resent", "wire_bytes", "fluid_fct_us", "first_byte_us", "resent_bytes", "rtt_min_us", "rtt_median_us", "background"}
	return r.rows(w, header, func(rep Repeat) (out [][]string) {
		fluid := predictions(rep, metrics.FCTs)
		for _, f := range rep.Records.Flows {
			first, resent, least, median := "", "", "", ""
			if !r.in.FluidModel {
				first, resent = Micros(f.FirstByte), strconv.FormatInt(int64(f.ResentBytes), 10)
				if f.RTTMin > 0 {
					least, median = Micros(f.RTTMin), Micros(f.RTTMedian)
				}
			}
			out = append(out, []string{
				strconv.Itoa(int(f.Coflow)), strconv.Itoa(int(f.Flow)), f.Src, f.Dst, strconv.FormatInt(int64(f.Size), 10),
				Micros(f.Arrival), Micros(f.Start), Micros(f.End), Micros(f.FCT()),
				strconv.Itoa(f.Packets), strconv.Itoa(f.Resent), strconv.FormatInt(int64(f.Wire), 10), fluid[int(f.Flow)],
				first, resent, least, median, strconv.FormatBool(f.Background),
			})
		}
		return out
	})
}

// CoflowsCSV writes every coflow. The columns are in the package documentation.
func (r *Report) CoflowsCSV(w io.Writer) error {
	extra := coflowTimeHeader()
	header := append(append([]string{"coflow", "width", "size_bytes", "arrival_us", "end_us", "cct_us", "fluid_cct_us"}, extra...), "background")
	return r.rows(w, header, func(rep Repeat) (out [][]string) {
		fluid, times := predictions(rep, metrics.CCTs), coflowTimes(rep)
		for _, c := range rep.Records.Coflows {
			out = append(out, append([]string{
				strconv.Itoa(int(c.Coflow)), strconv.Itoa(c.Width), strconv.FormatInt(int64(c.Size), 10),
				Micros(c.Arrival), Micros(c.End), Micros(c.CCT()), fluid[int(c.Coflow)],
			}, append(padded(times[c.Coflow], len(extra)), strconv.FormatBool(c.Background))...))
		}
		return out
	})
}

// BlocksCSV writes every block. The columns are in the package documentation.
func (r *Report) BlocksCSV(w io.Writer) error {
	extra := usColumns(timing.BlockCauses())
	header := append(append([]string{"block", "client", "hosts", "size_bytes", "requested_us", "end_us", "write_time_us", "fluid_write_time_us"}, extra...), "waited_us")
	return r.rows(w, header, func(rep Repeat) (out [][]string) {
		fluid, times := predictions(rep, metrics.WriteTimes), blockTimes(rep)
		for _, b := range rep.Records.Blocks {
			out = append(out, append([]string{
				strconv.Itoa(int(b.Block)), b.Client, strings.Join(b.Hosts, " "), strconv.FormatInt(int64(b.Size), 10),
				Micros(b.Requested), Micros(b.End), Micros(b.WriteTime()), fluid[int(b.Block)],
			}, append(padded(times[b.Block], len(extra)), Micros(b.Waited))...))
		}
		return out
	})
}
