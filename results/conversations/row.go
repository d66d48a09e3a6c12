package conversations

import (
	"io"
	"iter"
	"reflect"
	"strconv"
	"strings"

	"testbed/topo/words"
)

// Row is a conversation as in files for programs: in JSON with these keys, in CSV with these
// columns. Bytes are of frames without frame check sequence; _ab is the direction from
// source to destination.
type Row struct {
	Capture           string `json:"capture"` // path
	Protocol          string `json:"protocol"`
	Stream            int    `json:"stream"`
	Source            string `json:"source"`
	SourcePort        uint16 `json:"source_port"`
	Destination       string `json:"destination"`
	DestinationPort   uint16 `json:"destination_port"`
	Start             int64  `json:"start_ns"` // Unix
	End               int64  `json:"end_ns"`
	Duration          int64  `json:"duration_ns"`
	Handshake         int64  `json:"handshake_ns"`
	PacketsAB         int    `json:"packets_ab"`
	PacketsBA         int    `json:"packets_ba"`
	BytesAB           int64  `json:"bytes_ab"`
	BytesBA           int64  `json:"bytes_ba"`
	PayloadAB         int64  `json:"payload_ab"`
	PayloadBA         int64  `json:"payload_ba"`
	RetransmissionsAB int    `json:"retransmissions_ab"`
	RetransmissionsBA int    `json:"retransmissions_ba"`
	ResentBytesAB     int64  `json:"resent_bytes_ab"`
	ResentBytesBA     int64  `json:"resent_bytes_ba"`
	OutOfOrderAB      int    `json:"out_of_order_ab"`
	OutOfOrderBA      int    `json:"out_of_order_ba"`
	ZeroWindowsAB     int    `json:"zero_windows_ab"`
	ZeroWindowsBA     int    `json:"zero_windows_ba"`
	SYNAB             int    `json:"syn_ab"`
	SYNBA             int    `json:"syn_ba"`
	FINAB             int    `json:"fin_ab"`
	FINBA             int    `json:"fin_ba"`
	RSTAB             int    `json:"rst_ab"`
	RSTBA             int    `json:"rst_ba"`
	GoodputAB         int64  `json:"goodput_ab_bps"`
	GoodputBA         int64  `json:"goodput_ba_bps"`
	Transfer          string `json:"transfer"` // such as "coflow 3 flow 17"; empty for none
}

// Row returns the conversation as a row.
func (c *Conversation) Row(capture string) Row {
	a, b := &c.AB, &c.BA
	r := Row{
		Capture: capture, Protocol: c.Protocol(), Stream: c.Stream,
		Source: c.hosts.a.String(), SourcePort: c.portA, Destination: c.hosts.b.String(), DestinationPort: c.portB,
		Start: c.From, End: c.To, Duration: int64(c.Duration()), Handshake: int64(c.Handshake),
		PacketsAB: a.Packets, PacketsBA: b.Packets, BytesAB: int64(a.Bytes), BytesBA: int64(b.Bytes),
		PayloadAB: int64(a.Payload), PayloadBA: int64(b.Payload),
		RetransmissionsAB: a.Retransmissions, RetransmissionsBA: b.Retransmissions,
		ResentBytesAB: int64(a.ResentBytes), ResentBytesBA: int64(b.ResentBytes),
		OutOfOrderAB: a.OutOfOrder, OutOfOrderBA: b.OutOfOrder, ZeroWindowsAB: a.ZeroWindows, ZeroWindowsBA: b.ZeroWindows,
		SYNAB: int(a.SYN), SYNBA: int(b.SYN), FINAB: int(a.FIN), FINBA: int(b.FIN), RSTAB: int(a.RST), RSTBA: int(b.RST),
		GoodputAB: int64(a.Goodput()), GoodputBA: int64(b.Goodput()),
	}
	if c.Transfer != nil {
		r.Transfer = c.Transfer.String()
	}
	return r
}

// WriteCSV writes rows below a header line.
func WriteCSV(w io.Writer, rows iter.Seq[Row]) error {
	kind := reflect.TypeFor[Row]()
	record := make([]string, kind.NumField())
	for i := range record {
		record[i], _, _ = strings.Cut(kind.Field(i).Tag.Get("json"), ",")
	}
	out := words.NewCSV(w)
	if err := out.Write(record); err != nil {
		return err
	}
	var row Row // one for all, because there may be millions
	v := reflect.ValueOf(&row).Elem()
	for row = range rows {
		for i := range record {
			switch f := v.Field(i); {
			case f.CanInt():
				record[i] = strconv.FormatInt(f.Int(), 10)
			case f.CanUint():
				record[i] = strconv.FormatUint(f.Uint(), 10)
			default:
				record[i] = f.String()
			}
		}
		if err := out.Write(record); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}
