package htmlreport

import (
	"fmt"
	"slices"
	"time"

	"testbed/results/figures"
	"testbed/results/flows"
	"testbed/results/metrics"
	"testbed/topo/palette"
	"testbed/topo/units"
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

// bars is a group of stacks with its legend.
type bars struct {
	Title, Lead string
	Classes     []cause
	Groups      []group
}

// group is stacks with a heading, which may be "".
type group struct {
	Heading string
	Stacks  []stack
}

// partMeanings is what each of figures.Parts means.
var partMeanings = [...]string{
	"no attempt of the job runs",
	"an attempt that reads a block has not processed it yet",
	"an attempt fetches, or has fetched everything and waits to compute",
	"an attempt that has fetched computes",
	"all running attempts have computed: they spill, write blocks or commit",
}

// things returns parts of a drawing, which differ in colour.
func things(names ...string) (out []cause) {
	for _, name := range names {
		out = append(out, cause{Class: palette.Class(name), Name: name})
	}
	return out
}

// tasks adds the bars of jobs of tasks: job times by part, and locality.
func (v *views) tasks(d *Data) {
	parts := bars{Title: "Job time by part", Lead: "Average job time of each arm. Each moment of a job counts to the first part that applies, so the parts add up to its time."}
	for k, p := range figures.Parts {
		parts.Classes = append(parts.Classes, cause{palette.Class(p.Name), p.Name, partMeanings[k]})
	}
	local := bars{Title: "Locality of maps", Lead: "Where the replica was that a map read: on its own host, on another host of its rack, or in another rack. Maps that committed, by the number of maps of their job.",
		Classes: things(flows.NodeLocal, flows.RackLocal, flows.OffRack)}
	type arm struct {
		label string
		mean  [metrics.JobParts]time.Duration
		total time.Duration
	}
	var arms []arm
	var places [len(metrics.MapClasses) + 2]group // all maps, then by class
	places[0].Heading = "All maps"
	least := 1
	for k := range places[1:] {
		places[1+k].Heading = fmt.Sprintf("Jobs of %d maps or more", least)
		if k < len(metrics.MapClasses) {
			places[1+k].Heading = fmt.Sprintf("Jobs of %d–%d maps", least, metrics.MapClasses[k])
			least = metrics.MapClasses[k] + 1
		}
	}
	longest := time.Duration(0)
	d.shown(func(_ int, a *Arm) {
		x := arm{}
		divided := 0
		var classes [len(places)]metrics.Locality
		for _, r := range a.Repeats {
			t := metrics.TasksOf(&r.Records, r.Slots)
			if t == nil {
				continue
			}
			divided += t.Divided
			for k, p := range t.Parts {
				x.mean[k] += p
			}
			classes[0].Add(t.Locality)
			for k, l := range t.ByMaps {
				classes[1+k].Add(l)
			}
		}
		if divided > 0 {
			for k := range x.mean {
				x.mean[k] /= time.Duration(divided)
				x.total += x.mean[k]
			}
			x.label, longest = a.counted(divided, "job", "jobs"), max(longest, x.total)
			arms = append(arms, x)
		}
		for k, l := range classes {
			n := l.Total()
			if n == 0 {
				continue
			}
			s := stack{Label: a.counted(n, "map", "maps")}
			for i, x := range []int{l.Node, l.Rack, l.OffRack} {
				width := share100(float64(x), float64(n))
				s.add(local.Classes[i], width, width, fmt.Sprint(x))
			}
			s.Value = fmt.Sprintf("%.0f %% node", share100(float64(l.Node), float64(n)))
			places[k].Stacks = append(places[k].Stacks, s)
		}
	})
	var times []stack
	for _, x := range arms {
		s := stack{Label: x.label, Value: d.Human(x.total)}
		for k, p := range figures.Parts {
			t := x.mean[p.Part]
			s.add(parts.Classes[k], share100(float64(t), float64(longest)), share100(float64(t), float64(x.total)), d.Human(t))
		}
		times = append(times, s)
	}
	if len(times) > 0 {
		parts.Groups = []group{{Stacks: times}}
		v.Tasks = append(v.Tasks, parts)
	}
	for _, g := range places {
		if len(g.Stacks) > 0 {
			local.Groups = append(local.Groups, g)
		}
	}
	if len(local.Groups) > 0 {
		v.Tasks = append(v.Tasks, local)
	}
	v.saturation(d)
}

// saturation adds a bar over time for each rack, with the stretches in which its links are saturated.
func (v *views) saturation(d *Data) {
	saturation := things("not saturated", "saturated")
	free, full := saturation[0], saturation[1]
	out := bars{Title: "Saturated links of racks", Classes: []cause{free, full},
		Lead: fmt.Sprintf("When the links of each rack to or from the spines together carried more than %s of their capacity in %d intervals or more in a row, each at least %v. Bars begin with the repeat and share one scale of time; the number is the share of the makespan. Racks without such links have no bar.",
			units.Percent(metrics.SaturatedShare, 0), metrics.SaturatedIntervals, metrics.SaturationInterval)}
	var longest time.Duration
	each := func(f func(heading string, r *Repeat, racks []metrics.RackLoad)) {
		d.shown(func(_ int, a *Arm) {
			for k, r := range a.drawn() {
				if racks := metrics.RackLoads(r.Links, metrics.SaturationInterval); len(r.Records.Attempts) > 0 && len(racks) > 0 {
					f(fmt.Sprintf("%s, repeat %d", a.Name, k), &r, racks)
				}
			}
		})
	}
	each(func(_ string, _ *Repeat, racks []metrics.RackLoad) {
		longest = max(longest, time.Duration(len(racks[0].Up))*racks[0].Interval)
	})
	drawn, all, left := 0, 0, maxSaturation
	each(func(heading string, r *Repeat, racks []metrics.RackLoad) {
		g := group{Heading: heading}
		for _, l := range racks {
			stretches := l.Saturated()
			if len(stretches) == 0 {
				continue
			}
			all++
			if left -= 2*len(stretches) + 1; left < 0 {
				continue
			}
			s := stack{Label: fmt.Sprintf("rack %d", l.Rack)}
			at := 0
			part := func(c cause, to int) {
				from := time.Duration(at) * l.Interval
				length := time.Duration(to-at) * l.Interval
				s.add(c, share100(float64(length), float64(longest)), share100(float64(length), float64(len(l.Up))*float64(l.Interval)), d.Human(from)+" to "+d.Human(from+length))
				at = to
			}
			for _, x := range stretches {
				part(free, x[0])
				part(full, x[1])
			}
			part(free, len(l.Up))
			if from, to := metrics.TaskSpan(&r.Records); to > from {
				s.Value = units.Percent(float64(l.SaturatedTime(from, to))/float64(to-from), 1)
			}
			g.Stacks = append(g.Stacks, s)
			drawn++
		}
		if len(g.Stacks) > 0 {
			out.Groups = append(out.Groups, g)
		}
	})
	if len(out.Groups) > 0 {
		v.Tasks = append(v.Tasks, out)
	}
	if drawn < all {
		v.Left["tasks"] = append(v.Left["tasks"], fmt.Sprintf("Saturated links: the first %d of %d bars are drawn.", drawn, all))
	}
}

// add adds a part of a class with its width and its share, in percent.
func (s *stack) add(c cause, width, share float64, value string) {
	if width <= 0 {
		return
	}
	p := part{Width: width, Class: c.Class, Title: fmt.Sprintf("%s: %s, %.1f %%", c.Name, value, share)}
	if width >= textFrom {
		p.Text = fmt.Sprintf("%.0f %%", share)
	}
	s.Parts = append(s.Parts, p)
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
