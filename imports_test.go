package main

import (
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// model packages only describe; every package may import them.
var model = []string{"topo", "topo/magic", "topo/palette", "topo/units", "topo/words", "topo/yamltree", "workloads", "workloads/jobs", "hosts/wire", "results/verdict"}

// arrows lists, for each package, the packages of this module that it may import in addition
// to the model packages. A package that is not listed fails the test, so that a new one is
// placed on purpose.
var arrows = map[string][]string{
	"topo/magic":      {},
	"topo/palette":    {},
	"topo/units":      {},
	"topo/words":      {},
	"topo/yamltree":   {},
	"topo":            {},
	"topo/draw":       {},
	"workloads":       {},
	"workloads/jobs":  {},
	"hosts/wire":      {},
	"results/verdict": {},

	"policies":                   {},
	"policies/coflow":            {"policies", "policies/coflow/ports", "policies/alloc/maxmin"},
	"policies/coflow/ports":      {"policies"},
	"policies/placement":         {"policies"},
	"policies/alloc":             {"policies", "policies/alloc/maxmin"},
	"policies/alloc/maxmin":      {},
	"policies/clone":             {},
	"policies/shuffle":           {},
	"policies/tasks":             {"policies", "policies/clone", "policies/shuffle"},
	"policies/external":          {"policies", "policies/external/messages"},
	"policies/external/golang":   {"policies/external/messages"}, // an example
	"policies/external/messages": {},
	"policies/catalog":           {"policies", "policies/external", "policies/coflow", "policies/coflow/philaesim", "policies/placement", "policies/clone", "policies/shuffle", "policies/tasks"},
	"policies/coordinator":       {"policies"},
	"policies/policytest":        {"policies", "policies/alloc", "policies/coordinator", "emu/engine", "emu/engine/tracker"}, // tests policies where the engine calls them

	"policies/coflow/coflowtest": {"policies", "policies/alloc", "policies/policytest"},
	"policies/coflow/philaesim":  {"policies", "policies/coflow", "policies/coflow/ports"},

	"emu/parallel":           {},
	"emu/simtime":            {},
	"emu/guest":              {},
	"emu/process":            {},
	"emu/wasm":               {},
	"emu/wasm/wasmtest":      {"results/safefile", "results/tooltest"}, // tests
	"emu/outside":            {"emu/process", "emu/wasm", "policies", "policies/external"},
	"emu/fault":              {},
	"emu/scenario":           {"emu/fault", "policies/catalog", "policies/external", "results/safefile"},
	"emu/engine":             {"policies", "policies/alloc", "policies/coordinator", "emu/engine/tracker"},
	"emu/engine/tracker":     {"policies"},
	"emu/scaffold":           {"policies/catalog", "policies/external"},
	"emu/views":              {"emu/outside", "policies", "policies/catalog", "policies/external", "policies/policytest", "results/safefile"},
	"emu/flowsim":            {"policies", "policies/alloc", "policies/alloc/maxmin", "policies/coordinator", "emu/simtime"},
	"emu/flowsim/comparison": {"emu/outside", "emu/parallel", "emu/flowsim", "policies/external", "results/safefile", "policies", "policies/catalog", "results/tracestats", "results/table"},
	"emu/fluid":              {"policies", "policies/alloc/maxmin", "emu/simtime", "emu/engine", "emu/fault"},
	"emu/plan":               {},
	"emu/deploy":             {"emu/plan", "results/safefile"},
	"emu/kernel":             {"emu/plan", "emu/deploy"},
	"emu/fidelity":           {"results/samples"},
	"emu/inspect":            {"results/metrics"},
	"emu/monitor":            {"emu/inspect"},

	"hosts":      {"hosts/pace", "hosts/disk"},
	"hosts/pace": {},
	"hosts/disk": {"results/safefile"},

	"results/pcap":       {"results/safefile"},
	"results/flows":      {"results/pcap"},
	"results/metrics":    {"results/flows"},
	"results/summary":    {"results/flows", "results/metrics", "results/breakdown", "results/figures"},
	"results/tracestats": {"results/metrics"},
	"results/breakdown":  {"results/flows", "results/metrics"},
	"results/table":      {},
	"results/compare":    {"results/metrics", "results/table", "results/htmlreport"},
	"results/schema":     {"results/samples", "results/flows", "results/metrics", "results/breakdown"},
	"results/rundir":     {"results/samples", "results/safefile", "results/flows", "results/metrics", "results/schema", "results/summary"},
	"results/safefile":   {},
	"results/samples":    {"results/safefile"},
	"results/figures":    {"results/flows", "results/metrics", "results/breakdown"},
	"results/plot":       {"results/samples", "results/summary", "results/rundir", "results/figures", "results/flows", "results/metrics", "results/schema", "results/breakdown"},
	"results/export":     {"results/samples", "results/summary", "results/rundir", "results/safefile", "results/schema"},

	"results/rundir/rundirtest": {"results/samples", "results/summary", "results/rundir", "results/flows", "results/flows/flowstest", "results/metrics", "results/report", "results/schema", "results/breakdown"},
	"results/flows/flowstest":   {"results/flows"},

	"results/conversations": {"results/pcap"},
	"results/htmlreport":    {"topo/draw", "results/samples", "results/figures", "results/flows", "results/metrics", "results/breakdown"},
	"results/report":        {"results/rundir", "results/summary", "results/safefile", "results/flows", "results/metrics", "results/schema", "results/table", "results/breakdown", "results/htmlreport", "results/figures"},

	"emu/live": {"policies", "emu/engine", "emu/fault", "emu/kernel", "emu/kernel/processors", "emu/fidelity", "emu/plan", "emu/deploy", "hosts", "hosts/pace", "hosts/disk",
		"results/pcap", "results/flows", "results/safefile", "results/samples"},
	"emu/calibration":         {"emu/plan", "results/safefile", "results/metrics"},
	"emu/calibration/measure": {"emu/calibration", "emu/deploy", "emu/runner", "emu/kernel", "emu/kernel/processors", "emu/plan", "emu/scenario", "policies/catalog", "hosts/disk", "results/rundir", "results/safefile", "results/metrics"},
	"emu/runner": {"results/summary", "emu/outside", "emu/views", "policies/external", "emu/parallel", "emu/calibration", "policies", "policies/catalog", "emu/engine", "emu/engine/tracker", "emu/fault", "emu/fluid", "emu/guest", "emu/live", "emu/kernel", "emu/fidelity", "emu/plan", "emu/deploy", "emu/scenario",
		"results/pcap", "results/safefile", "results/samples", "results/flows", "results/metrics", "results/breakdown", "results/plot", "results/report", "results/schema", "results/rundir", "results/compare"},
	"emu/suite": {"results/summary", "emu/flowsim", "emu/flowsim/comparison", "emu/runner", "emu/scenario", "policies/catalog",
		"results/compare", "results/flows", "results/htmlreport", "results/metrics", "results/report", "results/rundir", "results/safefile",
		"results/schema", "results/table", "results/tracestats"},
	"emu/cli": {"scripts", "topo/draw", "emu/scaffold", "emu/views", "emu/suite", "emu/flowsim/comparison", "emu/flowsim", "emu/calibration", "emu/calibration/measure", "policies/catalog", "policies/external", "emu/runner", "emu/fault", "emu/guest", "emu/inspect", "emu/monitor", "emu/kernel", "emu/plan", "emu/deploy", "emu/scenario",
		"results/rundir", "results/compare", "results/conversations", "results/export", "results/safefile", "results/flows", "results/metrics", "results/pcap", "results/plot",
		"results/report", "results/table"},
	"":                  {"emu/cli"},
	"scripts":           {},
	"emu/cli/reference": {"emu/cli"}, // documentation, which the program does not carry
	"scripts/manpages":  {"emu/cli/reference"},

	"emu/kernel/processors": {},
	"emu/kernel/netnstest":  {"emu/kernel/processors", "emu/longtest"},
	"emu/longtest":          {},
	"workloads/oracletest":  {},
	"results/tooltest":      {},
	"workloads/drawntest":   {},
	"scripts/bench":         {"results/metrics", "results/safefile"},                   // runs other programs
	"scripts/truth":         {"results/metrics", "results/rundir", "results/safefile"}, // runs testbed
	"scripts/philae":        {},                                                        // scenario files, and tests of them
	"scripts/sinbad":        {},                                                        // the same
	"scripts/quickstart":    {},                                                        // scenario files, and tests of them
	"scripts/engines":       {},                                                        // tests of a document
	"scripts/testvm":        {"emu/guest", "emu/longtest"},                             // runs the tests of others
}

// The comment of every package begins with its name, so that go list shows what it is for.
func TestPackageComments(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}}{{"\t"}}{{.Doc}}`, "./...").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		path, doc, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if _, sentence, ok := strings.Cut(doc, " "+path[strings.LastIndex(path, "/")+1:]+" "); !ok || sentence == "" {
			t.Errorf("package %s: the comment %q does not begin with its name", path, doc)
		}
	}
}

// onlyIn restricts a dependency to the packages that may import it, and states what they need it
// for.
var onlyIn = map[string]struct {
	why   string
	users []string
}{
	"github.com/vishvananda/netlink": {"links, addresses, routes and queues", []string{"emu/kernel"}},
	"github.com/vishvananda/netns":   {"namespaces", []string{"emu/kernel"}},
	"github.com/containernetworking": {"namespaces", []string{"emu/kernel"}},
	"github.com/google/gopacket": {"hashes of flows that are equal in both directions, which share a capture among processors; tests compare all packet code with it",
		[]string{"results/conversations"}},
	"github.com/google/gopacket/layers": {"tests: its tables would take a third of the program's start", nil},
	"github.com/gopacket/gopacket":      {"capture rings: this maintained fork of google/gopacket needs no cgo for them and restores VLAN tags", []string{"emu/kernel"}},
	"golang.org/x/sys/unix":             {"system calls", []string{"emu/guest", "emu/process", "emu/kernel", "emu/kernel/netnstest", "emu/kernel/processors", "hosts/disk", "results/safefile"}},
	"github.com/tetratelabs/wazero":     {"policies in WebAssembly", []string{"emu/wasm"}},
	"syscall": {"signals, error numbers, flags, locks and watches of files, and sizes of file systems",
		[]string{"emu/calibration/measure", "emu/cli", "emu/deploy", "emu/kernel", "emu/kernel/netnstest", "emu/process", "hosts", "hosts/disk", "results/safefile", "scripts/testvm"}},
	"math/rand":              {"nothing: version 2 replaces it", nil},
	"github.com/spf13/cobra": {"commands", []string{"emu/cli", "emu/cli/reference"}},
	"go.yaml.in/yaml/v4":     {"scenarios, job files, and the claims of papers", []string{"emu/scenario", "emu/suite", "topo/yamltree", "workloads/jobs"}},
}

// pure packages depend on their arguments alone.
var pure = []string{"policies", "policies/external", "policies/coflow", "policies/coflow/philaesim", "policies/coflow/ports", "policies/placement", "policies/clone", "policies/shuffle", "policies/tasks", "policies/alloc", "policies/coordinator", "emu/engine"}

// impure packages may not be imported by a pure package. The engine's log and its context need
// io and context, which have no side effects by themselves.
var impure = []string{"os", "net", "sync", "math/rand", "runtime", "syscall", "log", "log/slog"}

func TestImportsRunOneWay(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...").CombinedOutput()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, out)
	}
	used := map[string]bool{}
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
			for dep, only := range onlyIn {
				within := imp == dep || strings.HasPrefix(imp, dep+"/") && dep != "math/rand"
				if within && !slices.Contains(only.users, name) {
					t.Errorf("%s imports %s, which belongs in %v", name, imp, only.users)
				}
				used[dep+" in "+name] = used[dep+" in "+name] || within
			}
			if slices.Contains(pure, name) && slices.Contains(impure, imp) {
				t.Errorf("%s imports %s, but must be pure", name, imp)
			}
		}
	}
	for dep, only := range onlyIn {
		for _, name := range only.users {
			if !used[dep+" in "+name] {
				t.Errorf("%s is listed for %s and does not import it", name, dep)
			}
		}
	}
}

// A package whose tests use namespaces is tested alone: packets share the processors with the
// measurement.
func TestPacketsAreTestedAlone(t *testing.T) {
	makefile, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	list := regexp.MustCompile(`(?m)^export ON_PACKETS = (.*)$`).FindStringSubmatch(string(makefile))
	if list == nil {
		t.Fatal("the Makefile has no line export ON_PACKETS")
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

// Imports do not reveal a clock in a pure package: time is imported for its Duration.
func TestPurePackagesReadNoClock(t *testing.T) {
	for _, name := range pure {
		out, err := exec.Command("grep", "-nE", `time\.(Now|Since|Until|Sleep|After|Tick|NewTimer|NewTicker|AfterFunc)\b|^var [a-z]`, "-r", "--include=*.go", "--exclude=*_test.go", name).Output()
		// What a program registers before it starts is as constant as the entries of the catalogue.
		out = regexp.MustCompile(`(?m)^policies/catalog/roles\.go:\d+:var registered = .*\n`).ReplaceAll(out, nil)
		if len(out) > 0 {
			t.Errorf("%s reads a clock or keeps a variable:\n%s", name, out)
		} else if exit, ok := err.(*exec.ExitError); err != nil && (!ok || exit.ExitCode() != 1) {
			t.Errorf("grep: %v", err)
		}
	}
}

// opens lists the files, and directories that end in a slash, that open files without
// package results/safefile, with the reason.
var opens = map[string]string{
	"results/safefile/":                "the helper itself",
	"results/rundir/rundirtest/":       "writes runs for tests",
	"workloads/oracletest/":            "reads files for tests",
	"emu/kernel/":                      "kernel interfaces, devices and new files with flags of their own",
	"emu/calibration/measure/disks.go": "direct I/O on a device that it made",
	"hosts/disk/":                      "direct I/O on blocks that it made",
	"emu/guest/":                       "kernels, modules and programs of this machine, and files and devices in the guest",
	"tools/dist/":                      "files that the build made, in another module",
	"scripts/testvm/":                  "files that it made, below its cache and in the virtual machine",
}

// A cell that begins with = runs as a formula in a spreadsheet. Type words.CSV prevents it.
func TestCSVIsWrittenInOnePlace(t *testing.T) {
	out, err := exec.Command("grep", "-rlE", "--include=*.go", "--exclude=*_test.go", `\bcsv\.NewWriter\(`, ".").Output()
	if err != nil {
		t.Fatalf("grep: %v", err)
	}
	if got := strings.TrimSpace(string(out)); got != "./topo/words/visible.go" {
		t.Errorf("use words.NewCSV: %s", got)
	}
}

// A named pipe in place of a file blocks the program that opens it, and a write through a
// symbolic link replaces another file. Package results/safefile prevents both.
func TestFilesAreOpenedInOnePlace(t *testing.T) {
	out, err := exec.Command("grep", "-rnE", "--include=*.go", "--exclude=*_test.go", `\b(os\.(Open|OpenFile|ReadFile|Create|CreateTemp|WriteFile)|unix\.Open|ioutil\.[A-Z][A-Za-z]*)\(`, ".").Output()
	if err != nil {
		t.Fatalf("grep: %v", err)
	}
	system := regexp.MustCompile(`\("/(proc|sys|dev|etc)/`)
	used := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		line = strings.TrimPrefix(line, "./")
		listed := ""
		for place := range opens {
			if file, _, _ := strings.Cut(line, ":"); file == place || strings.HasSuffix(place, "/") && strings.HasPrefix(file, place) {
				listed = place
			}
		}
		used[listed] = true
		if listed == "" && !system.MatchString(line) {
			t.Errorf("use package results/safefile: %s", strings.TrimSpace(line))
		}
	}
	for place := range opens {
		if !used[place] {
			t.Errorf("%s is listed and opens nothing", place)
		}
	}
}
