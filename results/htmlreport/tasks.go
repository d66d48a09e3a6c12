package htmlreport

import (
	"fmt"
	"slices"
	"time"

	"testbed/results/figures"
	"testbed/results/flows"
	"testbed/results/metrics"
)

// gantt is the attempts of one repeat of an arm.
type gantt struct {
	Arm    int      `json:"arm"`
	Repeat int      `json:"repeat"`
	N      int      `json:"n"`     // attempts in total, including those not drawn
	Hosts  []string `json:"hosts"` // that are drawn, of All
	All    int      `json:"all"`
	Rows   []slot   `json:"rows"`
	Users  []string `json:"users"`
	// Owner has the user of each job that has one, as its place in Users.
	Owner    map[string]int `json:"owner"`
	Attempts []attempt      `json:"attempts"`
}

// slot is [host, kind, number]: host is the place in Hosts, kind that in metrics.TaskKinds.
type slot [3]int

// attempt is [row, job, stage, task, attempt, start, time of each of the four phases, outcome,
// locality, input bytes]. Times are microseconds; outcome and locality are places in outcomes and
// localities. The outcome has len(outcomes) times the metrics.Role added to it, which keeps the page small.
type attempt [13]int64

var (
	outcomes   = flows.Outcomes()
	localities = []string{"", flows.NodeLocal, flows.RackLocal, flows.OffRack}
)

// userShares are the slots in use by each user over time in one repeat of an arm.
type userShares struct {
	Arm    int         `json:"arm"`
	Repeat int         `json:"repeat"`
	BinUS  float64     `json:"bin_us"`
	Users  []string    `json:"users"`
	Slots  [][]float64 `json:"slots"`           // by user and bin
	Total  int         `json:"total,omitempty"` // slots of the cluster; 0 if not known
}

// taskCharts returns the charts of attempts and of users' slots.
func (d *Data) taskCharts() (all []gantt, shares []userShares) {
	all, shares = []gantt{}, []userShares{}
	total := 0
	d.shown(func(_ int, a *Arm) {
		for _, r := range a.drawn() {
			if len(r.Records.Attempts) > 0 {
				total++
			}
		}
	})
	d.shown(func(i int, a *Arm) {
		for k, r := range a.drawn() {
			if len(r.Records.Attempts) > 0 {
				all = append(all, newGantt(i, k, &r.Records, maxAttempts/total))
				shares = append(shares, newShares(i, k, &r))
			}
		}
	})
	return all, shares
}

// newGantt returns the attempts of the first hosts, as many as have at most most attempts, and at
// least of one host.
func newGantt(arm, repeat int, r *flows.Records, most int) gantt {
	g := gantt{Arm: arm, Repeat: repeat, N: len(r.Attempts), Owner: map[string]int{}}
	count := map[string]int{}
	for i := range r.Attempts {
		count[r.Attempts[i].Host]++
	}
	g.All = len(count)
	row, left, skipped := map[figures.Slot]int64{}, most, false
	for _, s := range figures.SlotsOf(r.Attempts) {
		host := slices.Index(g.Hosts, s.Host)
		if host < 0 {
			if skipped = skipped || len(g.Hosts) > 0 && count[s.Host] > left; skipped {
				continue
			}
			left -= count[s.Host]
			host = len(g.Hosts)
			g.Hosts = append(g.Hosts, s.Host)
		}
		row[s] = int64(len(g.Rows))
		g.Rows = append(g.Rows, slot{host, slices.Index(metrics.TaskKinds(), s.Kind), s.Number})
	}
	place := map[string]int{}
	for _, j := range r.Jobs {
		if j.Tasks == 0 || j.User == "" {
			continue
		}
		k, ok := place[j.User]
		if !ok {
			k = len(g.Users)
			place[j.User] = k
			g.Users = append(g.Users, j.User)
		}
		g.Owner[fmt.Sprint(j.Job)] = k
	}
	roles := metrics.RolesOf(r.Attempts)
	micros := func(t time.Duration) int64 { return t.Round(time.Microsecond).Microseconds() }
	for i := range r.Attempts {
		a := &r.Attempts[i]
		at, ok := row[figures.SlotOf(a)]
		if !ok {
			continue
		}
		x := attempt{at, int64(a.Job), int64(a.Stage), int64(a.Task), int64(a.Attempt), micros(a.Start)}
		for k, bounds := 0, metrics.PhasesOf(a); k < metrics.AttemptPhases; k++ {
			x[6+k] = micros(bounds[k+1]) - micros(bounds[k])
		}
		x[10], x[11], x[12] = int64(slices.Index(outcomes, a.Outcome)+len(outcomes)*int(roles[i])), int64(slices.Index(localities, a.Locality)), int64(a.Input)
		g.Attempts = append(g.Attempts, x)
	}
	return g
}

func newShares(arm, repeat int, r *Repeat) userShares {
	var end time.Duration
	for i := range r.Records.Attempts {
		end = max(end, r.Records.Attempts[i].End)
	}
	bin := figures.RoundBin(end, maxBins)
	out := userShares{Arm: arm, Repeat: repeat, BinUS: us(bin)}
	for _, u := range figures.TopUsers(metrics.SharesOf(&r.Records, bin), maxUsers) {
		name := u.User
		if name == "" {
			name = "(no user)"
		}
		for k := range u.Slots {
			u.Slots[k] = digits(u.Slots[k], 1)
		}
		out.Users, out.Slots = append(out.Users, name), append(out.Slots, u.Slots)
	}
	if s := r.Slots; s != nil {
		for _, kind := range metrics.TaskKinds() {
			out.Total += s.Of(kind)
		}
	}
	return out
}

// leftOutTasks states what limits left out of the charts of tasks.
func (v *views) leftOutTasks(d *Data, say func(id, format string, args ...any)) {
	for _, g := range v.charts.Gantt {
		if len(g.Attempts) < g.N {
			say("gantt", "%s, repeat %d: the %d attempts of the first %d of %d hosts are drawn, of %d; attempts.csv has all.", d.Arms[g.Arm].Name, g.Repeat,
				len(g.Attempts), len(g.Hosts), g.All, g.N)
		}
	}
	for _, s := range v.charts.Shares {
		if n := len(s.Users); n > maxUsers {
			say("shares", "%s, repeat %d: the %d users with most slot time are drawn apart.", d.Arms[s.Arm].Name, s.Repeat, maxUsers)
		}
	}
}
