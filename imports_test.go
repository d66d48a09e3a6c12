package main

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// model packages describe; everything may import them.
var model = []string{"topo", "topo/units", "workloads", "hosts/wire", "results/verdict"}

// arrows lists, for each package, what of this module it may import besides the
// model packages. A package that is not listed may import nothing, so that a new
// one is placed on purpose.
var arrows = map[string][]string{
	"topo/units":      {},
	"topo":            {},
	"topo/draw":       {},
	"workloads":       {},
	"hosts/wire":      {},
	"results/verdict": {},

	"policies":            {},
	"policies/coflow":     {"policies"},
	"policies/placement":  {"policies"},
	"policies/rates":      {"policies"},
	"policies/catalog":    {"policies", "policies/coflow", "policies/placement"},
	"policies/policytest": {"policies"},

	"emu/abreast":  {},
	"emu/clock":    {},
	"emu/fault":    {},
	"emu/scenario": {"emu/fault"},
	"emu/engine":   {"policies", "policies/rates"},
	"emu/tracesim": {"policies", "policies/rates", "emu/clock"},
	"emu/study":    {"emu/abreast", "emu/tracesim", "policies", "policies/catalog", "results/coflows", "results/table"},
	"emu/fluid":    {"policies", "emu/clock", "emu/engine", "emu/fault"},
	"emu/plan":     {},
	"emu/deploy":   {"emu/plan"},
	"emu/kernel":   {"emu/plan", "emu/deploy"},
	"emu/fidelity": {},
	"emu/inspect":  {"results/metrics"},

	"hosts":      {"hosts/pace", "hosts/disk"},
	"hosts/pace": {},
	"hosts/disk": {},

	"results/pcap":    {},
	"results/flows":   {"results/pcap"},
	"results/metrics": {"results/flows"},
	"results/coflows": {"results/metrics"},
	"results/timing":  {"results/flows", "results/metrics"},
	"results/table":   {},
	"results/compare": {"results/metrics", "results/table"},
	"results/archive": {"results/flows", "results/metrics", "results/report", "results/timing"},
	"results/files":   {},
	"results/plot":    {"results/archive", "results/metrics", "results/report", "results/timing"},
	"results/export":  {"results/archive", "results/files", "results/report"},

	"results/archive/archivetest": {"results/archive", "results/flows", "results/metrics", "results/report", "results/timing"},

	"results/conversations": {"results/pcap"},
	"results/page":          {"results/flows", "results/metrics", "results/timing"},
	"results/report":        {"results/files", "results/flows", "results/metrics", "results/table", "results/timing", "results/page"},

	"emu/live": {"policies", "emu/engine", "emu/fault", "emu/kernel", "emu/fidelity", "emu/plan", "emu/deploy", "hosts", "hosts/pace", "hosts/disk",
		"results/pcap", "results/flows"},
	"emu/calibration": {"emu/plan"},
	"emu/calibrate":   {"emu/calibration", "emu/deploy", "emu/experiment", "emu/kernel", "emu/plan", "emu/scenario", "hosts/disk"},
	"emu/experiment": {"emu/abreast", "emu/calibration", "policies", "policies/catalog", "emu/engine", "emu/fault", "emu/fluid", "emu/live", "emu/kernel", "emu/fidelity", "emu/plan", "emu/deploy", "emu/scenario",
		"results/pcap", "results/files", "results/flows", "results/metrics", "results/timing", "results/report", "results/archive", "results/compare"},
	"emu/cli": {"topo/draw", "emu/study", "emu/calibration", "emu/calibrate", "policies/catalog", "emu/experiment", "emu/fault", "emu/inspect", "emu/kernel", "emu/plan", "emu/deploy", "emu/scenario",
		"results/archive", "results/compare", "results/conversations", "results/export", "results/files", "results/flows", "results/metrics", "results/pcap", "results/plot",
		"results/report", "results/table"},
	"": {"emu/cli"},

	"emu/kernel/netnstest": {},
	"workloads/oracletest": {},
	"results/tooltest":     {},
	"scripts/bench":        {}, // runs other programs
	"scripts/philae":       {"scripts/suite", "results/report", "results/verdict", "emu/scenario", "emu/experiment", "emu/study", "emu/tracesim", "results/coflows", "results/files", "results/metrics"},
	"scripts/sinbad":       {"scripts/suite", "results/report"},
	"scripts/suite":        {"results/report", "results/table", "results/verdict"}, // what suites share
	"scripts/quickstart":   {},                                                     // scenario files, and tests of them
	"scripts/testvm":       {},                                                     // runs the tests of others
}

// onlyIn fences a dependency into the packages that may know of it.
var onlyIn = map[string][]string{
	"github.com/vishvananda/netlink": {"emu/kernel"},
	"github.com/vishvananda/netns":   {"emu/kernel"},
	"github.com/containernetworking": {"emu/kernel"},
	"github.com/gopacket/gopacket":   {"emu/kernel"},
	"golang.org/x/sys/unix":          {"emu/kernel"},
	"math/rand":                      {}, // version 2 only
	"github.com/spf13/cobra":         {"emu/cli"},
	"go.yaml.in/yaml/v4":             {"emu/scenario", "scripts/philae", "scripts/sinbad"}, // scenarios, and what papers report
}

// pure packages decide everything from what they are told.
var pure = []string{"policies", "policies/coflow", "policies/placement", "policies/rates", "emu/engine"}

// impure is what a pure package may not import. The engine's log and its context
// need io and context, which touch nothing by themselves.
var impure = []string{"os", "net", "sync", "math/rand", "runtime", "syscall", "log", "log/slog"}

func TestImportsRunOneWay(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		name := strings.TrimPrefix(strings.TrimPrefix(words[0], "testbed"), "/")
		allowed, listed := arrows[name]
		if !listed {
			t.Errorf("package %q is not in the table of arrows", name)
		}
		for _, imp := range words[1:] {
			if own, ok := strings.CutPrefix(imp, "testbed/"); ok && !slices.Contains(allowed, own) && !slices.Contains(model, own) {
				t.Errorf("%s imports %s: no such arrow", name, own)
			}
			for dep, users := range onlyIn {
				within := imp == dep || strings.HasPrefix(imp, dep+"/") && dep != "math/rand"
				if within && !slices.Contains(users, name) {
					t.Errorf("%s imports %s, which belongs in %v", name, imp, users)
				}
			}
			if slices.Contains(pure, name) && slices.Contains(impure, imp) {
				t.Errorf("%s imports %s, but must be pure", name, imp)
			}
		}
	}
}

// A package whose tests ask for namespaces is tested alone: packets share the
// processors with who measures them.
func TestPacketsAreTestedAlone(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?m)^ON_PACKETS = (.*)$`).FindStringSubmatch(string(makefile))
	if list == nil {
		t.Fatal("the Makefile has no line ON_PACKETS")
	}
	alone := strings.Fields(list[1])
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .TestImports " "}} {{join .XTestImports " "}}`, "./...").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	found := 0
	for line := range strings.Lines(string(out)) {
		words := strings.Fields(line)
		if !slices.Contains(words[1:], "testbed/emu/kernel/netnstest") || words[0] == "testbed/emu/kernel/netnstest" {
			continue
		}
		found++
		if name := "." + strings.TrimPrefix(words[0], "testbed"); !slices.Contains(alone, name) {
			t.Errorf("%s tests on packets and is not in ON_PACKETS of the Makefile", name)
		}
	}
	if found < 5 {
		t.Errorf("%d packages test on packets, want 5 or more", found)
	}
}

// A clock in a pure package would not show among its imports: time is imported
// for its Duration.
func TestPurePackagesReadNoClock(t *testing.T) {
	for _, name := range pure {
		out, err := exec.Command("grep", "-nE", `time\.(Now|Since|Until|Sleep|After|Tick|NewTimer|NewTicker|AfterFunc)\b|^var [a-z]`, "-r", "--include=*.go", "--exclude=*_test.go", name).Output()
		if len(out) > 0 {
			t.Errorf("%s reads a clock or keeps a variable:\n%s", name, out)
		} else if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 1 {
			t.Errorf("grep: %v", err)
		}
	}
}
