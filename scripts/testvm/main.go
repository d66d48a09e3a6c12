// Command testvm runs the project's privileged tests on Debian's stock cloud
// kernel, in a virtual machine that qemu emulates in software. It needs no KVM and no root,
// and installs nothing. It tests the system calls of the code, and their effect on packets
// and disks. It judges durations in virtual time only: see docs/testing.md.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"testbed/emu/guest"
)

// Exit codes.
const (
	exitFailed      = 1 // a test or the guest failed
	exitUsage       = 2
	exitUnavailable = 3 // no virtual machine can be run here
)

// optionalEnv is the environment variable that, set to "1", turns exitUnavailable into
// success with a warning.
const optionalEnv = "TESTBED_VM_OPTIONAL"

// packages are the packages with tests that depend on the kernel, the default of the
// arguments.
var packages = []string{
	"emu/kernel", "emu/deploy", "hosts", "hosts/disk", "hosts/pace", "emu/live", "emu/runner", "emu/calibration/measure", "emu/cli",
}

// onlyTests selects, for packages with many other tests, the tests that depend on the
// kernel. It is the default of -run.
var onlyTests = map[string]string{
	"hosts": "Loopback", // other tests use a network in memory
}

// skipTests selects tests that do not depend on the kernel. They are skipped without -run. Without
// -long, tests that are marked as long are skipped too.
var skipTests = map[string]string{
	// Simulations, traces, tables and errors of users. What commands build, remove and leave behind is
	// tested there: TestRootIsAsBefore shows what a run, and one that is interrupted or killed, leaves, and
	// TestRunWithADelay its report. That up and run build the same, and what a process does whose command is killed, is
	// the same on any kernel.
	"emu/cli": "^Test(Scripts|Tutorial|MissingLines|CompareVoidArm|InterruptSavesWhatEnded|InterruptEndsComputing" +
		"|SecondInterruptEndsAtOnce|Progress.*|GraphOfARun|Pcap.*|TracesOnRequest|InspectSeesLoad|InspectCountsKnownBytes" +
		"|ErrorsRepeatLittle|EscapesIn.*|NamesOfFilesAreVisible|OutputThatCannotBeWritten|NamedPipesAreRefused" +
		"|KilledSimulationGoesOn|Modules.*|NewPolicies|FaultyPolicies|OutsidePoliciesOnPackets|SweepGoesOn|MergeRefuses|SeedOfTheCommandLine|ChosenTrials|KilledRunGoesOn" +
		"|RunPrintsTablesAndLeavesNothing|HostsOfUpAndRunAreTheSame|FaultOfKilledCommand|RunsBelongToTheCaller" +
		"|StartAllocatesLittle|GraphOfATestbed)$",
	"emu/calibration/measure": "^Test(JudgeNoise|Interrupted)$", // statistics of drawn runs; what is printed
	"emu/deploy":              "^TestCollectBesideRuns$",
	// What hosts send each other is the same on any kernel, and so is what the engine does with it. How routes and links
	// change is tested in emu/kernel.
	"emu/live": "^Test(StopOfATask|MapReduceOnPackets|RemoteReadOfATask|Pause|DropOfOutputs|SpineFaultOnPackets" +
		"|LocalReadOfATask|ComputeOfATask|SpillOfATask|ReportFaultsOnPackets|ReportsAtPhasesOnPackets)$",
	// They judge what is computed, or what the engine and hosts do on any kernel: simulations, repeated attempts,
	// reports from captures, records of other testbeds, policies, and thousands of histories.
	// TestLostPacketsOfCapturedLinks covers that queues count what they drop.
	"emu/runner": "^Test(ReportOfASimulation|ArmsWithTheirOwnFabrics|ArmsThatTheFluidModelDoesNotKnow|SumsOfAScaledHalf|Compare.*" +
		"|DropsAreThoseOfTheKernel|CapturesAreKeptOrDropped|ArmsAtOnce.*|Attempts|JobsAlone" +
		"|ReportOfBareCapturesIsTheSame|CapturesAlone.*|CrashesAmongClones|Chains.*|.*Stragglers.*|CompareRefusals" +
		"|ForcedRun|TooLargeFabricIsRefused|SwitchPortsAgree|InterruptWhileSettlingKeepsTheRepeat" +
		"|LooksDecideRepeats|PlanRepeats|Simulate.*|AttemptsEqualThoseOfASmallSimulator|WorkOfSimulatedTasks|ReplayOf.*" +
		"|ReplayFinds.*|LoadsOfAnArmWithItsOwnFabric|Coordinator|PlacementPolicies)$",
}

// virtualTests selects tests that judge durations with features that only stock kernels have. They run in virtual time
// in a guest of their own, where a duration out of bounds is a defect.
var virtualTests = map[string]string{
	"emu/calibration/measure": "^Test(StoreAndForward)$",
	"emu/kernel":              "^Test(FaultsOfDelayedLinks|DelayedLinkIsShaped)$",
	"emu/runner":              "^Test(DelayIsInTheCompletionTime|RunOnLinksThatStoreAndForward|HiddenDelaysAreMeasured)$",
}

// tools are programs that tests start, with their Debian packages.
var tools = map[string]string{
	"sh": "dash", "cat": "coreutils", "sleep": "coreutils", "true": "coreutils", "ls": "coreutils", "mkdir": "coreutils", "dd": "coreutils",
	"find": "findutils", "mknod": "coreutils", "sort": "coreutils", "chroot": "coreutils", "setsid": "util-linux", "flock": "util-linux",
	"uname": "coreutils", "stty": "coreutils", "getent": "libc-bin",
	"mv": "coreutils", "ln": "coreutils", "head": "coreutils", "tail": "coreutils", "wc": "coreutils", "truncate": "coreutils", "test": "coreutils",
	"grep": "grep", "sed": "sed", "cmp": "diffutils",
	"ip": "iproute2", "tc": "iproute2", "unshare": "util-linux", "nsenter": "util-linux", "setpriv": "util-linux", "mount": "mount", "umount": "mount", "ping": "iputils-ping", "mkfs.ext4": "e2fsprogs",
}

// optionalTools are left out if this machine does not have them; the tests that use them
// report this.
var optionalTools = map[string]bool{"ping": true}

type settings struct {
	kernel  string
	cache   string
	run     string
	long    bool
	timeout time.Duration
	limit   time.Duration
	memory  int // MB
	cpus    int
	disk    int64 // MB
	console string
	speed   int // instructions in a nanosecond of virtual time; 0 in real time
	names   []string
}

func main() {
	guest.First()
	if guest.Inside() {
		guestMain()
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := hostMain(ctx, os.Args[1:])
	stop()
	os.Exit(code)
}

func hostMain(ctx context.Context, args []string) int {
	s, err := parse(args)
	if err != nil {
		fmt.Fprintln(os.Stderr, "testvm:", err)
		return exitUsage
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.timeout, fmt.Errorf("not finished within %v (-timeout)", s.timeout))
	defer cancel()
	ok, err := testInGuest(ctx, s)
	var none guest.Unavailable
	switch {
	case errors.As(err, &none):
		fmt.Fprintf(os.Stderr, "\n*** testvm: NOTHING WAS TESTED in a virtual machine: %v\n", err)
		if os.Getenv(optionalEnv) == "1" {
			fmt.Fprintf(os.Stderr, "*** testvm: %s=1, so this is no failure\n", optionalEnv)
			return 0
		}
		return exitUnavailable
	case err != nil:
		fmt.Fprintln(os.Stderr, "testvm:", err)
		return exitFailed
	case !ok:
		return exitFailed
	}
	return 0
}

func parse(args []string) (settings, error) {
	var s settings
	f := flag.NewFlagSet("testvm", flag.ContinueOnError)
	f.Usage = func() {
		fmt.Fprintln(f.Output(), "usage: testvm [flags] [package below the module's root ...]")
		f.PrintDefaults()
	}
	f.StringVar(&s.kernel, "kernel", "", "`package` of apt, or file ending in .deb, with the kernel (default: the kernel of "+guest.MetaPackage+")")
	f.StringVar(&s.cache, "cache", "", "`directory` for unpacked kernels (default: testbed/vm in the user's cache)")
	f.StringVar(&s.run, "run", "", "only tests that match this `pattern`, as in go test")
	f.BoolVar(&s.long, "long", false, "also run long tests")
	f.DurationVar(&s.timeout, "timeout", 32*time.Minute, "timeout of the whole run, including builds")
	f.DurationVar(&s.limit, "package-timeout", 10*time.Minute, "timeout of each package's tests")
	f.IntVar(&s.memory, "memory", 2048, "memory of the guest, in `MB`")
	f.Int64Var(&s.disk, "disk", 2048, "size of the guest's /tmp, in `MB`, allocated when written")
	f.IntVar(&s.cpus, "cpus", 2, "processors of the guest")
	f.IntVar(&s.speed, "speed", 0,
		"with -run, run in virtual time with `N` instructions in a nanosecond (default: in real time)")
	f.StringVar(&s.console, "console", "", "`file` for the guest's console (default: printed if the guest fails)")
	if err := f.Parse(args); err != nil {
		return s, err
	}
	if s.timeout <= 0 || s.limit <= 0 || s.memory < 512 || s.disk < 512 || s.disk > 1<<20 || s.cpus < 1 {
		return s, errors.New("-timeout and -package-timeout must be positive, -memory and -disk at least 512 MB, -cpus at least 1")
	}
	if s.speed < 0 || s.speed > guest.MostSpeed || s.speed > 0 && s.run == "" {
		return s, fmt.Errorf("-speed must be 0 to %d, and needs -run", guest.MostSpeed)
	}
	s.names = f.Args()
	if len(s.names) == 0 {
		s.names = packages
	}
	if s.cache == "" {
		dir, err := guest.CacheDir()
		if err != nil {
			return s, fmt.Errorf("%w: name a directory with -cache", err)
		}
		s.cache = dir
	}
	return s, nil
}

// testInGuest builds and runs the guest, and reports whether all tests passed.
func testInGuest(ctx context.Context, s settings) (bool, error) {
	start := time.Now()
	say := func(format string, args ...any) {
		fmt.Printf("testvm %5.1fs: %s\n", time.Since(start).Seconds(), fmt.Sprintf(format, args...))
	}
	if _, err := guest.Look(); err != nil {
		return false, err
	}
	mkfs, err := guest.LookProgram("mkfs.ext4")
	if err != nil {
		return false, guest.Unavailable{Err: fmt.Errorf("%w: apt-get install e2fsprogs", err)}
	}
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return false, fmt.Errorf("directory of the module: %w", err)
	}
	root := strings.TrimSpace(string(out))
	k, err := guest.Fetch(ctx, s.kernel, s.cache, say)
	if err != nil {
		return false, err
	}
	say("kernel %s", k.Release)

	work, err := os.MkdirTemp("", "testvm-")
	if err != nil {
		return false, err
	}
	defer func() { _ = os.RemoveAll(work) }()
	passes := []pass{{settings: s, dir: work, out: os.Stdout, say: say}}
	if s.run == "" && s.speed == 0 {
		judged := pass{settings: s.judged(), dir: filepath.Join(work, "judged"), out: new(bytes.Buffer), say: say}
		passes = append(passes, judged)
	}
	for i := range passes {
		p := &passes[i]
		p.root, p.work, p.kernel, p.mkfs = root, work, k, mkfs
		if err := errors.Join(os.MkdirAll(p.dir, 0o755), p.build(ctx)); err != nil {
			return false, err
		}
	}
	if err := buildInit(ctx, root, work); err != nil {
		return false, err
	}
	say("built %d test binaries", len(passes[0].runs))
	// The others write to memory what is printed at the end of the first one.
	var others sync.WaitGroup
	oks, errs := make([]bool, len(passes)), make([]error, len(passes))
	for i := range passes[1:] {
		others.Go(func() { oks[i+1], errs[i+1] = passes[i+1].test(ctx) })
	}
	oks[0], errs[0] = passes[0].test(ctx)
	others.Wait()
	for _, p := range passes[1:] {
		if b, ok := p.out.(*bytes.Buffer); ok && b.Len() > 0 {
			fmt.Printf("\n%s", b)
		}
	}
	say("total time %v", time.Since(start).Round(time.Second))
	return !slices.Contains(oks, false), errors.Join(errs...)
}

// pass is a guest that runs tests, and the same guest again if its kernel locks up.
type pass struct {
	settings
	root, work string // directories of the module, and of programs
	dir        string // of files of the pass alone
	mkfs       string
	kernel     guest.Kernel
	runs       []run
	out        io.Writer
	say        func(format string, args ...any)
}

// judged returns the settings of a pass in virtual time that runs virtualTests.
func (s settings) judged() settings {
	s.speed, s.console = guest.DefaultSpeed, ""
	s.names = slices.DeleteFunc(slices.Clone(s.names), func(name string) bool {
		return virtualTests[packageName(name)] == ""
	})
	return s
}

// test reports whether all tests of the pass passed.
func (p *pass) test(ctx context.Context) (bool, error) {
	if len(p.runs) == 0 {
		return true, nil
	}
	res, err := p.inGuest(ctx, p.runs)
	if rest := res.without(p.runs); errors.Is(err, errLockup) && len(rest) > 0 {
		p.say("*** the guest's kernel has locked up: %d packages without a result run in another guest, once", len(rest))
		var again *results
		if again, err = p.inGuest(ctx, rest); again != nil {
			again.Outcomes = append(slices.DeleteFunc(res.Outcomes, func(o *outcome) bool { return !o.Ended }), again.Outcomes...)
			res = again
		}
	}
	if res != nil {
		err = errors.Join(err, res.print(p.out, p.runs))
	}
	return err == nil && res.ok(p.runs), err
}

// inGuest runs tests in a guest.
func (p *pass) inGuest(ctx context.Context, runs []run) (*results, error) {
	console := p.console
	if console == "" {
		console = filepath.Join(p.dir, "console")
	}
	im, err := makeImage(ctx, p.kernel, p.root, p.work, job{Runs: runs, Speed: p.speed})
	m := guest.Machine{
		Kernel:     p.kernel,
		Image:      im,
		Memory:     p.memory,
		Processors: p.cpus,
		Console:    console,
		Virtual:    p.speed > 0,
		Speed:      p.speed,
	}
	if !m.Virtual {
		disk := filepath.Join(p.dir, "disk")
		err = errors.Join(err, makeDisk(ctx, p.mkfs, disk, p.disk<<20))
		m.Args = []string{"-drive", "file=" + disk + ",format=raw,if=virtio,cache=unsafe", "-device", "virtio-rng-pci"}
	}
	if err != nil {
		return nil, err
	}
	res, err := boot(ctx, m, filepath.Join(p.dir, "report"), p.out)
	for _, line := range kernelComplaints(console) {
		fmt.Fprintln(p.out, "KERNEL:", line)
	}
	if b, err2 := os.ReadFile(console); err2 == nil && res != nil && (err != nil || !res.Done) {
		fmt.Fprintf(p.out, "---- the guest's console\n%s\n----\n", consoleExcerpt(b, 120))
	}
	return res, err
}

// selection returns the flags that select the tests of a package's binary.
func (s settings) selection(name string) (flags []string) {
	if s.run != "" {
		return []string{"-test.run=" + s.run}
	}
	if s.speed > 0 {
		return []string{"-test.run=" + virtualTests[name]}
	}
	if p := onlyTests[name]; p != "" {
		flags = append(flags, "-test.run="+p)
	}
	patterns := slices.DeleteFunc([]string{skipTests[name], virtualTests[name]}, func(p string) bool { return p == "" })
	if len(patterns) > 0 {
		flags = append(flags, "-test.skip="+strings.Join(patterns, "|"))
	}
	return flags
}

// packageName returns the path of a package relative to the module's root.
func packageName(name string) string { return strings.TrimPrefix(path.Clean(name), "testbed/") }

// build compiles a static test binary for each package.
func (p *pass) build(ctx context.Context) error {
	for _, name := range p.names {
		name = packageName(name)
		r := run{Package: name, Binary: strings.ReplaceAll(name, "/", "-") + ".test", Limit: p.limit}
		// One test at a time: it is enough for the emulated processors.
		r.Args = []string{"-test.v", "-test.parallel=1", "-test.timeout=" + p.limit.String()}
		if !p.long {
			r.Args = append(r.Args, "-test.short")
		}
		r.Args = append(r.Args, p.selection(name)...)
		binary := filepath.Join(p.work, r.Binary)
		if _, err := os.Stat(binary); err != nil { // no other pass has built it
			if err := compile(ctx, p.root, "test", "-c", "-ldflags=-s -w", "-o", binary, "./"+name); err != nil {
				return err
			}
		}
		if _, err := os.Stat(binary); err != nil {
			return fmt.Errorf("package %s has no tests", name)
		}
		p.runs = append(p.runs, r)
	}
	return nil
}

func buildInit(ctx context.Context, root, work string) error {
	return compile(ctx, root, "build", "-ldflags=-s -w", "-o", filepath.Join(work, "init"), "./scripts/testvm")
}

func compile(ctx context.Context, root string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

func makeImage(ctx context.Context, k guest.Kernel, root, work string, j job) (*guest.Image, error) {
	im, err := guest.NewImage(filepath.Join(work, "init"))
	if err != nil {
		return nil, err
	}
	modules := slices.Concat(guest.PortModules, []string{"virtio_blk", "ext4", "loop"}, guest.Modules)
	if err := im.Modules(ctx, k, modules...); err != nil {
		return nil, err
	}
	for name, debian := range tools {
		if err := im.CopyProgram(name); err != nil && !optionalTools[name] {
			return nil, guest.Unavailable{Err: fmt.Errorf("tests need %s: %w: apt-get install %s", name, err, debian)}
		}
	}
	for _, r := range j.Runs {
		if err := im.CopyFile(guest.BinaryPath+"/"+r.Binary, filepath.Join(work, r.Binary)); err != nil {
			return nil, err
		}
		im.Dir(path.Join(sourcePath, r.Package))
	}
	if err := im.CopyTree(sourcePath, root, wantedSource); err != nil {
		return nil, err
	}
	b, err := json.Marshal(j)
	im.Data(jobPath, b)
	return im, err
}

// wantedSource reports whether tests may read a file: neither code nor output of the project.
func wantedSource(rel string, d fs.DirEntry) bool {
	if d.IsDir() {
		return !strings.HasPrefix(d.Name(), ".") && rel != "bin" && rel != "runs" && rel != "tools"
	}
	ext := filepath.Ext(rel)
	return ext != ".go" && ext != ".test" && ext != ".out"
}

// makeDisk creates a disk image with a file system: the guest's /tmp, so that tests use
// direct I/O as on a real disk.
func makeDisk(ctx context.Context, mkfs, file string, size int64) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	if err := errors.Join(f.Truncate(size), f.Close()); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, mkfs, "-q", "-F", "-O", "^has_journal", file).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", mkfs, err, bytes.TrimSpace(out))
	}
	return nil
}

// errDone ends a guest that has reported all, before it powers off: qemu 7.2 with a record can fail an assertion then.
var errDone = errors.New("the guest has reported all")

// boot runs the guest until it has reported all, and reads its report from a new file.
func boot(ctx context.Context, m guest.Machine, file string, out io.Writer) (*results, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go watchConsole(ctx, cancel, m.Console)
	port, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = port.Close() }()
	m.Ports = []*os.File{port}
	growing := &follower{file: io.NewSectionReader(port, 0, math.MaxInt64), ended: make(chan struct{})}
	ended := make(chan error, 1)
	go func() {
		err := m.Run(ctx)
		close(growing.ended)
		ended <- err
	}()
	res, err := readReport(growing, out)
	cancel(errDone)
	if err2 := <-ended; !errors.Is(err2, errDone) {
		err = errors.Join(err, err2)
	}
	return res, err
}

// follower reads a file that grows until a channel is closed.
type follower struct {
	file  io.Reader
	ended chan struct{}
}

func (f *follower) Read(b []byte) (int, error) {
	for {
		over := false
		select {
		case <-f.ended:
			over = true
		default:
		}
		if n, err := f.file.Read(b); n > 0 {
			return n, nil // the end of the file, for now, comes with its last bytes
		} else if over || err != io.EOF {
			return n, err
		}
		select {
		case <-f.ended:
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// A kernel prints lockupSign of a processor on which nothing else ran for 20 s or more, and again
// while that lasts. After maxLockups of them the guest does not recover.
const (
	lockupSign = "BUG: soft lockup"
	maxLockups = 4
)

// errLockup is the end of a guest whose kernel has locked up. What it was testing has no result.
var errLockup = errors.New("its kernel has locked up")

// watchConsole cancels ctx when the guest's kernel has locked up, which otherwise only the timeout
// of the run would end.
func watchConsole(ctx context.Context, cancel context.CancelCauseFunc, console string) {
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if b, err := os.ReadFile(console); err == nil && bytes.Count(b, []byte(lockupSign)) >= maxLockups {
			cancel(errLockup)
			return
		}
	}
}

// kernelSigns mark the lines with which the kernel reports faults.
var kernelSigns = []string{"Kernel panic", "BUG:", "Oops", "WARNING:", "Out of memory", "rcu_sched self-detected", "hung_task"}

func isComplaint(line string) bool {
	return slices.ContainsFunc(kernelSigns, func(sign string) bool { return strings.Contains(line, sign) })
}

// kernelComplaints returns the lines of a console with which the kernel reports faults.
func kernelComplaints(console string) []string {
	b, err := os.ReadFile(console)
	if err != nil {
		return []string{err.Error()}
	}
	var lines []string
	for line := range strings.Lines(string(b)) {
		if isComplaint(line) {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// consoleExcerpt returns n lines of a console from the first complaint of the kernel on, or the
// last n lines: the first complaint has the traces that explain the others.
func consoleExcerpt(b []byte, n int) string {
	lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(string(b), "\r", "")), "\n")
	if i := slices.IndexFunc(lines, isComplaint); i >= 0 {
		lines = lines[i:min(len(lines), i+n)]
	}
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
