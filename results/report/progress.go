package report

import (
	"io"
	"strconv"

	"testbed/hosts/wire"
)

// ProgressCSV writes how far each transfer was over time. The columns are in the
// package documentation.
func (r *Report) ProgressCSV(w io.Writer) error {
	header := []string{"kind", "coflow", "flow", "block", "hop", "pipeline", "size_bytes", "at_us", "received_bytes", "sent_us"}
	return r.rows(w, header, func(rep Repeat) (out [][]string) {
		for _, p := range rep.Progress {
			number := func(n uint32) string { return strconv.FormatUint(uint64(n), 10) }
			name := []string{p.Kind.String(), number(p.Group), number(p.Member), "", "", ""}
			if p.Kind == wire.KindBlock {
				name = []string{p.Kind.String(), "", "", number(p.Group), number(p.Member), number(p.Generation)}
			}
			for _, m := range p.Moments {
				sent := ""
				if p.SentKnown {
					sent = Micros(m.Sent)
				}
				out = append(out, append(name[:len(name):len(name)], strconv.FormatInt(int64(p.Size), 10), Micros(m.At), strconv.FormatInt(int64(m.Bytes), 10), sent))
			}
		}
		return out
	})
}
