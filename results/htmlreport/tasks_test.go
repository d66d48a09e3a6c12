package htmlreport

import (
	"math"
	"strings"
	"testing"
	"time"

	"testbed/results/flows/flowstest"
	"testbed/results/metrics"
)

// The chart has every attempt in the row of its slot, with all of its time.
func TestGanttHasAllAttempts(t *testing.T) {
	c := flowstest.Default()
	r := c.Records(1)
	g := newGantt(0, 0, &r, maxAttempts)
	if g.N != len(r.Attempts) || len(g.Attempts) != g.N || g.All != 8 || len(g.Hosts) != 8 || len(g.Rows) != 24 || len(g.Users) != 3 || len(g.Owner) != c.Jobs {
		t.Fatalf("%d of %d attempts, %d of %d hosts, %d rows, users %q", len(g.Attempts), g.N, len(g.Hosts), g.All, len(g.Rows), g.Users)
	}
	clones, roles := 0, metrics.RolesOf(r.Attempts)
	for i, x := range g.Attempts {
		a := r.Attempts[i]
		row := g.Rows[x[0]]
		if g.Hosts[row[0]] != a.Host || metrics.TaskKinds()[row[1]] != a.Kind || row[2] != a.Slot {
			t.Fatalf("attempt %+v is in row %v of %q", a, row, g.Hosts[row[0]])
		}
		if end := x[5] + x[6] + x[7] + x[8] + x[9]; math.Abs(float64(x[5])-us(a.Start)) > 1 || math.Abs(float64(end)-us(a.End)) > 1 {
			t.Errorf("attempt %+v goes from %d to %d µs", a, x[5], end)
		}
		if outcomes[x[10]%4] != a.Outcome || localities[x[11]] != a.Locality || x[12] != int64(a.Input) || x[1] != int64(a.Job) || x[3] != int64(a.Task) || x[4] != int64(a.Attempt) {
			t.Errorf("attempt %+v is drawn as %v", a, x)
		}
		if role := x[10] / 4; role != int64(roles[i]) {
			t.Errorf("attempt %+v has role %d, want %d", a, role, roles[i])
		}
		if roles[i] == metrics.Backup {
			clones++
		}
	}
	if clones == 0 {
		t.Error("no attempt is a clone")
	}
}

// A large run shows the first hosts whole, and says so.
func TestGanttIsLimited(t *testing.T) {
	c := flowstest.Default()
	r := c.Records(1)
	first := map[string]int{}
	for _, a := range r.Attempts {
		first[a.Host]++
	}
	most := first["h0-00"] + first["h0-01"] + 3
	g := newGantt(0, 0, &r, most)
	if len(g.Hosts) != 2 || g.All != 8 || len(g.Attempts) != most-3 {
		t.Errorf("hosts %q of %d with %d attempts, want the first two with %d", g.Hosts, g.All, len(g.Attempts), most-3)
	}
	if g = newGantt(0, 0, &r, 0); len(g.Hosts) != 1 || len(g.Attempts) != first["h0-00"] {
		t.Errorf("%d hosts without any room, want one", len(g.Hosts))
	}
	d := data(t, "a")
	all := &d.Arms[0].Repeats[0].Records
	for n := range 200 { // as often as makes more than the limit
		for _, a := range r.Attempts {
			a.Start, a.End = a.Start+time.Duration(n)*time.Minute, a.End+time.Duration(n)*time.Minute
			all.Attempts = append(all.Attempts, a)
		}
	}
	if page := write(t, d); !strings.Contains(page, "a, repeat 0: the ") || !strings.Contains(page, "hosts are drawn, of ") {
		t.Error("the page does not say that hosts are missing")
	}
}

func TestSharesAreLimited(t *testing.T) {
	c := flowstest.Default()
	c.Users, c.Jobs = 12, 40
	r := Repeat{Records: c.Records(2)}
	s := newShares(0, 0, &r)
	if n := len(s.Users); n != maxUsers+1 || !strings.HasPrefix(s.Users[maxUsers], "others, n = ") || s.Total != 0 {
		t.Errorf("users %q of %d slots", s.Users, s.Total)
	}
	var drawn, used float64
	for _, u := range s.Slots {
		for _, x := range u {
			drawn += x * s.BinUS / 1e6
		}
	}
	for _, a := range r.Records.Attempts {
		used += (a.End - a.Start).Seconds()
	}
	if math.Abs(drawn/used-1) > 0.01 {
		t.Errorf("%v s of slot time are drawn, want %v", drawn, used)
	}
	// An attempt of a job that did not complete has no user.
	r.Records.Jobs = nil
	if s := newShares(0, 0, &r); len(s.Users) != 1 || s.Users[0] != "(no user)" {
		t.Errorf("users %q", s.Users)
	}
}
