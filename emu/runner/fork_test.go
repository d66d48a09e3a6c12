package runner

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"testbed/emu/scenario"
	"testbed/policies/catalog"
	"testbed/results/rundir"
)

// Up to the fork, all arms make the decisions of the first one, which the fork does not change. The logs replay.
func TestArmsShareTheirPast(t *testing.T) {
	log := func(dir, arm string) []string {
		b, err := os.ReadFile(filepath.Join(dir, arm, "0", eventsFile))
		if err != nil {
			t.Fatal(err)
		}
		return strings.SplitAfter(string(b), "\n")
	}
	done, err := Simulate(t.Context(), forkScenario(t, "", 1), Options{Out: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	first := log(done.Dir, "fair")
	if same := log(done.Dir, "same"); strings.Join(same, "") != strings.Join(first, "") {
		t.Error("an arm with the policy of the first one has another log")
	}
	n := 0
	for sebf := log(done.Dir, "sebf"); n < len(first) && sebf[n] == first[n]; n++ {
	}
	if n == len(first) || !strings.HasPrefix(first[n], `{"t":400000000,`) {
		t.Errorf("line %d is the first to differ, want that of the fork: %s", n, first[min(n, len(first)-1)])
	}
	arms := done.Report.Summary.Arms
	if arms[0].CCT.MeanUS != arms[1].CCT.MeanUS || !(arms[2].CCT.MeanUS < arms[0].CCT.MeanUS) {
		t.Errorf("CCT of %v, %v and %v", arms[0].CCT.MeanUS, arms[1].CCT.MeanUS, arms[2].CCT.MeanUS)
	}
	m, err := rundir.ReadManifest(done.Dir)
	if err != nil || !slices.Contains(m.Notes, "up to 400ms all arms have the coflow policy of fair (fork_at)") {
		t.Errorf("notes %q, %v", m.Notes, err)
	}
	again, err := Replay(t.Context(), done.Dir, ReplayOptions{Repeat: AllRepeats})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range again.Repeats {
		if r.Differs != nil {
			t.Errorf("%s: %v", r.Arm, r.Differs)
		}
	}
}

// A fork after the end of an arm is an error, which would compare equal arms.
func TestForkAfterTheEnd(t *testing.T) {
	s, err := scenario.Load("testdata/fork.yaml", scenario.Options{Catalog: catalog.All(), ForkAt: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Simulate(t.Context(), s, Options{Out: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "fork_at 1h0m0s: arm fair had ended before") {
		t.Error(err)
	}
}

// The guest of an arm begins as the first one that differs in its name alone, with a fork as the first arm.
func TestGuestBegins(t *testing.T) {
	const text = `
name: equal
fabric: {leaves: 1, spines: 1, hosts_per_leaf: 6, host_link: 20Mbps}
disk: {write: 2MB/s}
workload: [{kind: jobs, count: 2, load: 0.2, mappers: 1, reducers: 1, block: 1MB, packet: 32KB, window: 3}]
arms:
  - {name: a, coflow: fair}
  - {name: b, coflow: sebf}
  - {name: c, coflow: fair}
  - {name: d, coflow: {name: aalo, queues: 5}}
  - {name: e, coflow: {name: aalo, queues: 5}}
  - {name: f, coflow: fair, set: {fabric: {host_link: 10Mbps}}}
`
	for _, x := range []struct{ more, want string }{{"", "abaddf"}, {"fork_at: 400ms", "aaaaa"}} {
		s := text + x.more
		if x.more != "" {
			s = strings.Replace(s, "  - {name: f, coflow: fair, set: {fabric: {host_link: 10Mbps}}}\n", "", 1)
		}
		r, err := newRun(loadText(t, s), Options{}, rundir.Virtual)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, a := range r.arms {
			got += a.trial(0, work{}).begins().Name
		}
		if got != x.want {
			t.Errorf("%s: guests begin as arms %s, want %s", x.more, got, x.want)
		}
	}
}
