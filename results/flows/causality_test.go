package flows

import (
	"strings"
	"testing"
	"time"
)

// Data that a host received before it was sent is a problem of that host, beyond the resolution of stamps.
func TestReceivedBeforeSent(t *testing.T) {
	trail := func(dst string, lead time.Duration) Trail {
		return Trail{SrcName: "h0-00", DstName: dst,
			Sent:     []Point{{At: time.Millisecond, Bytes: 100}, {At: 2 * time.Millisecond, Bytes: 200}},
			Received: []Point{{At: 2 * time.Millisecond, Bytes: 100}, {At: 2*time.Millisecond - lead, Bytes: 200}}}
	}
	acks := Trail{DstName: "h1-01", Acks: []Ack{{Sent: 1e6, Received: 2e6, Acked: 4e6, Back: 3e6}}}
	for _, tt := range []struct {
		trails []Trail
		want   string
	}{
		{[]Trail{trail("h1-00", 0), trail("h1-00", stampResolution)}, ""},
		{[]Trail{trail("h1-00", 20*time.Microsecond), trail("h1-00", time.Millisecond)}, "h1-00: data of 2 transfers was received before it was sent, by up to 1ms (flow 0 of coflow 0 from h0-00)"},
		{[]Trail{acks}, "h1-01: data of 1 transfers was received before it was sent, by up to 1ms"},
	} {
		a := newAssembly(Options{}, nil)
		for _, x := range tt.trails {
			a.Trails, a.carried = append(a.Trails, x), append(a.carried, &transfer{})
		}
		a.causality()
		if got := strings.Join(a.problems, "\n"); !strings.HasPrefix(got, tt.want) || (tt.want == "") != (got == "") {
			t.Errorf("problems %q, want %q", got, tt.want)
		}
	}
}
