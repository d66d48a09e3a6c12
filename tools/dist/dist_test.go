package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"debug/buildinfo"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// distEnv is the environment variable with the directory that make dist wrote.
const distEnv = "DIST"

// dist returns the directory that make dist wrote, and the version of its files.
func dist(t *testing.T) (dir, version string) {
	t.Helper()
	dir = os.Getenv(distEnv)
	found, err := filepath.Glob(filepath.Join(dir, "testbed-*-linux-amd64.tar.gz"))
	if dir == "" || err != nil || len(found) != 1 {
		t.Fatalf("%s=%q: %d archives for amd64 (%v): run it through make test-dist", distEnv, dir, len(found), err)
	}
	version = strings.TrimSuffix(strings.TrimPrefix(filepath.Base(found[0]), "testbed-"), "-linux-amd64.tar.gz")
	return dir, version
}

// output runs a command and returns what it prints on standard output.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%w\n%s", err, exit.Stderr)
	}
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// untar writes an archive to a directory, and returns the paths of its files.
func untar(t *testing.T, archive io.Reader, to string) (paths []string) {
	t.Helper()
	for in := tar.NewReader(archive); ; {
		h, err := in.Next()
		if err == io.EOF {
			return paths
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(to, filepath.Clean("/"+h.Name))
		if h.FileInfo().IsDir() {
			err = os.MkdirAll(path, 0o755)
			err = errors.Join(err, os.Chmod(path, h.FileInfo().Mode()))
		} else {
			paths = append(paths, h.Name)
			var content []byte
			content, err = io.ReadAll(in)
			err = errors.Join(err, os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, content, h.FileInfo().Mode()))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// unpack writes the archive for an architecture to a directory, and returns the program.
func unpack(t *testing.T, arch string) (program string, paths []string) {
	t.Helper()
	dir, version := dist(t)
	content, err := os.ReadFile(filepath.Join(dir, "testbed-"+version+"-linux-"+arch+".tar.gz"))
	if err != nil {
		t.Fatal(err)
	}
	z, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	to := t.TempDir()
	paths = untar(t, z, to)
	return filepath.Join(to, "bin", "testbed"), paths
}

// A clone elsewhere, compiled from nothing with other settings of the user, has the same checksums.
func TestSameBytes(t *testing.T) {
	dir, version := dist(t)
	if strings.Contains(version, "dirty") {
		t.Fatal("the tree has changes that are not committed: a clone cannot be compared with it")
	}
	clone := filepath.Join(t.TempDir(), "a", "clone")
	output(t, "git", "clone", "-q", "../..", clone)
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "umask 077; exec make -s dist")
	cmd.Dir = clone
	for _, e := range os.Environ() { // without those of the make that runs this test
		name, _, _ := strings.Cut(e, "=")
		if !slices.Contains([]string{"MAKEFLAGS", "MAKELEVEL", "MAKEOVERRIDES", "MFLAGS", "SOURCE_DATE_EPOCH", distEnv}, name) {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(cmd.Env, "TZ=Asia/Tokyo", "LANG=C", "GOCACHE="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make dist: %v\n%s", err, out)
	}
	sums := func(dir string) string {
		text, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if first, second := sums(dir), sums(filepath.Join(clone, "bin", "dist")); first != second {
		t.Errorf("checksums differ:\n%s\n%s", first, second)
	}
}

// SHA256SUMS has all files, and no other file is there.
func TestSums(t *testing.T) {
	dir, version := dist(t)
	want := map[string]string{}
	for _, name := range []string{
		"testbed_" + version + "_amd64.deb", "testbed_" + version + "_arm64.deb",
		"testbed-" + version + "-1.x86_64.rpm", "testbed-" + version + "-1.aarch64.rpm",
	} {
		want[name] = ""
	}
	for _, arch := range architectures {
		want[wheelName(version, arch)] = ""
		for _, end := range []string{".tar.gz", "-image.tar", ".cdx.json"} {
			want["testbed-"+version+"-linux-"+arch+end] = ""
		}
	}
	for name := range want {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
		}
		want[name] = fmt.Sprintf("%x", sha256.Sum256(content))
	}
	text, err := os.ReadFile(filepath.Join(dir, "SHA256SUMS"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		got[name] = sum
	}
	if !maps.Equal(got, want) {
		t.Errorf("SHA256SUMS has %v, want %v", got, want)
	}
}

// Binaries are static, without symbols and for their processor; archives and packages have the same
// files; the list of components has the modules of the program.
func TestContents(t *testing.T) {
	dir, version := dist(t)
	machines := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}
	rpmArch := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}
	for _, arch := range architectures {
		program, paths := unpack(t, arch)
		f, err := elf.Open(program)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		interpreted := slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
		if _, err := f.Symbols(); f.Machine != machines[arch] || interpreted || !errors.Is(err, elf.ErrNoSymbols) {
			t.Errorf("%s: machine %v, dynamic: %t, symbols: %v", arch, f.Machine, interpreted, err)
		}

		var want []string
		for _, path := range paths {
			want = append(want, "/usr/"+path)
		}
		slices.Sort(want)
		if len(want) < 30 || !slices.Contains(want, "/usr/share/man/man1/testbed-run.1") {
			t.Errorf("%s: the archive has %q", arch, want)
		}
		deb := exec.Command("dpkg-deb", "--fsys-tarfile", filepath.Join(dir, "testbed_"+version+"_"+arch+".deb"))
		files, err := deb.Output()
		if err != nil {
			t.Fatal(err)
		}
		var inDeb []string
		for _, path := range untar(t, bytes.NewReader(files), t.TempDir()) {
			inDeb = append(inDeb, strings.TrimPrefix(path, "."))
		}
		slices.Sort(inDeb)
		inRPM := strings.Fields(output(t, "rpm", "-qlp", filepath.Join(dir, "testbed-"+version+"-1."+rpmArch[arch]+".rpm")))
		slices.Sort(inRPM)
		if !slices.Equal(inDeb, want) || !slices.Equal(inRPM, want) {
			t.Errorf("%s: the archive has %q, .deb %q, .rpm %q", arch, want, inDeb, inRPM)
		}

		info, err := buildinfo.ReadFile(program)
		if err != nil {
			t.Fatal(err)
		}
		var modules, listed []string
		for _, m := range info.Deps {
			modules = append(modules, m.Path+" "+m.Version)
		}
		var components struct {
			Components []struct{ Name, Version string }
		}
		text, err := os.ReadFile(filepath.Join(dir, "testbed-"+version+"-linux-"+arch+".cdx.json"))
		if err == nil {
			err = json.Unmarshal(text, &components)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range components.Components {
			listed = append(listed, c.Name+" "+c.Version)
		}
		slices.Sort(modules)
		slices.Sort(listed)
		listed = slices.DeleteFunc(listed, func(c string) bool { return strings.HasPrefix(c, "std ") })
		if len(modules) < 20 || !slices.Equal(modules, listed) {
			t.Errorf("%s: components %q, want %q", arch, listed, modules)
		}
	}
}

// withoutRun are keys of JSON that differ from run to run.
var withoutRun = regexp.MustCompile(`(?m)^.*"run_id".*\n`)

// The binary for arm64, on an emulated processor, computes what that for amd64 computes: the same
// figures, byte by byte. Its reports on such a run are the same too.
func TestArm64(t *testing.T) {
	amd64, _ := unpack(t, "amd64")
	arm64, _ := unpack(t, "arm64")
	const emulator = "qemu-aarch64-static"
	if version := output(t, emulator, arm64, "version"); !strings.Contains(version, "linux/arm64") {
		t.Errorf("version prints %q", version)
	}
	dir := t.TempDir()
	for example, scenario := range map[string]string{"quickstart": "scenario.yaml", "first": "first.yaml", "jobs": "jobs.yaml", "faults": "faults.yaml"} {
		to := filepath.Join(dir, example)
		output(t, amd64, "init", example, "-o", to)
		sim := func(name string, args ...string) string {
			args = append(args, "sim", filepath.Join(to, scenario), "--json", "--out", filepath.Join(to, filepath.Base(name)))
			return withoutRun.ReplaceAllString(output(t, name, args...), "")
		}
		if got, want := sim(emulator, arm64), sim(amd64); !strings.Contains(want, "mean_us") || got != want {
			t.Errorf("%s: arm64 computes\n%s\nwant\n%s", example, got, want)
		}
	}
	run := filepath.Join(dir, "quickstart", filepath.Base(amd64), "latest")
	again := filepath.Join(dir, "again")
	output(t, emulator, arm64, "report", run, "-o", again)
	for _, file := range []string{"summary.json", "coflows.csv", "flows.csv"} {
		before, err := os.ReadFile(filepath.Join(run, file))
		after, err2 := os.ReadFile(filepath.Join(again, file))
		if err := errors.Join(err, err2); err != nil || !bytes.Equal(before, after) {
			t.Errorf("report: %s differs (%v)", file, err)
		}
	}
}

// pip installs the wheel in an environment of its own: the program of the archive, and the modules.
func TestWheel(t *testing.T) {
	dir, version := dist(t)
	at := filepath.Join(t.TempDir(), "venv")
	python := filepath.Join(at, "bin", "python")
	output(t, "python3", "-m", "venv", at)
	output(t, python, "-m", "pip", "install", "-q", "--no-index", filepath.Join(dir, wheelName(version, "amd64")))
	program, _ := unpack(t, "amd64")
	want, err := os.ReadFile(program)
	got, err2 := os.ReadFile(filepath.Join(at, "bin", "testbed"))
	if err := errors.Join(err, err2); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the program is not that of the archive (%v)", err)
	}
	scenario := filepath.Join(at, "first")
	output(t, filepath.Join(at, "bin", "testbed"), "init", "first", "-o", scenario)
	output(t, python, "-c", "import sys, testbed_gym; testbed_gym.Env(*sys.argv[1:], program=sys.prefix + '/bin/testbed').reset(seed=1)",
		filepath.Join(scenario, "first.yaml"))
	output(t, python, "-m", "pip", "uninstall", "-q", "-y", "testbed")
	if _, err := os.Stat(filepath.Join(at, "bin", "testbed")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the program is left: %v", err)
	}
}

// inRoot runs a command in a root directory with the file systems of the kernel, in a mount
// namespace that ends with it. before are shell commands that run in the namespace.
func inRoot(t *testing.T, root, before string, command ...string) (string, error) {
	t.Helper()
	const mounts = `for d in proc sys dev; do mkdir -p "$0/$d"; mount --rbind "/$d" "$0/$d"; done; `
	args := append([]string{"-m", "sh", "-ec", mounts + before + ` exec "$@"`, root}, command...)
	cmd := exec.CommandContext(t.Context(), "unshare", args...)
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/tmp"}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// The image has the program alone. An ordinary user simulates in it; packets need the privileges that
// doctor states, and none of Docker's own.
func TestImage(t *testing.T) {
	dir, version := dist(t)
	archive := filepath.Join(dir, "testbed-"+version+"-linux-amd64-image.tar")
	layout := filepath.Join(t.TempDir(), "layout")
	output(t, "skopeo", "--insecure-policy", "copy", "docker-archive:"+archive, "oci:"+layout+":testbed")
	var config struct {
		Architecture string
		Config       struct {
			Entrypoint []string
			WorkingDir string
		}
	}
	if err := json.Unmarshal([]byte(output(t, "skopeo", "inspect", "--config", "oci:"+layout+":testbed")), &config); err != nil {
		t.Fatal(err)
	}
	if c := config.Config; config.Architecture != "amd64" || !slices.Equal(c.Entrypoint, []string{"/" + program}) || c.WorkingDir != "/"+workDir {
		t.Errorf("configuration %+v", config)
	}
	outer, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer outer.Close()
	parts := t.TempDir()
	root := t.TempDir()
	for _, name := range untar(t, outer, parts) {
		if strings.HasSuffix(name, ".tar.gz") {
			layer, err := os.Open(filepath.Join(parts, name))
			if err != nil {
				t.Fatal(err)
			}
			defer layer.Close()
			z, err := gzip.NewReader(layer)
			if err != nil {
				t.Fatal(err)
			}
			if paths := untar(t, z, root); !slices.Equal(paths, []string{program}) {
				t.Errorf("the layer has %q", paths)
			}
		}
	}
	user := []string{"chroot", "--userspec=65534:65534", root, "/" + program}
	if out, err := inRoot(t, root, "", append(user, "demo", "--sim", "--out", "/work/runs")...); err != nil || !strings.Contains(out, "sebf+sinbad") {
		t.Errorf("demo --sim: %v\n%s", err, out)
	}
	if out, err := inRoot(t, root, "", append(user, "demo")...); err == nil || !strings.Contains(out, "without root: testbed demo --sim") {
		t.Errorf("demo as an ordinary user: %v\n%s", err, out)
	}
	const held = "setpriv --bounding-set -all,+sys_chroot,+net_admin,+sys_admin,+net_raw -- "
	command := append(strings.Fields(held), "chroot", root, "/"+program, "doctor", "--dir", "/work")
	const run = `mkdir -p "$0/run"; mount -t tmpfs none "$0/run"; `
	if out, err := inRoot(t, root, run, command...); err != nil || !strings.Contains(out, "built, sent data by TCP") {
		t.Errorf("doctor with the privileges of a run: %v\n%s", err, out)
	}
}

// demoTime bounds the demonstration, which takes two minutes.
const demoTime = 3 * time.Minute

// freshSystems are those that the command of README.md is tried on: the suite and the mirror.
var freshSystems = []struct{ name, suite, mirror string }{
	{"Debian 12", "bookworm", "http://deb.debian.org/debian"},
	{"Debian 13", "trixie", "http://deb.debian.org/debian"},
	{"Ubuntu 24.04", "noble", "http://archive.ubuntu.com/ubuntu"},
}

// ubuntuKeys is the package with the keys that signed Ubuntu's suites, below its mirror, and its SHA-256.
const (
	ubuntuKeys    = "/pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb"
	ubuntuKeysSum = "36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8"
)

// bootstrap installs the smallest system of a suite in a directory.
func bootstrap(t *testing.T, suite, mirror, root string) {
	t.Helper()
	if !strings.Contains(mirror, "ubuntu") {
		output(t, "debootstrap", "--variant=minbase", suite, root, mirror)
		return
	}
	keys := t.TempDir()
	file := filepath.Join(keys, "keys.deb")
	output(t, "curl", "-fsSL", "-o", file, mirror+ubuntuKeys)
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if sum := fmt.Sprintf("%x", sha256.Sum256(content)); sum != ubuntuKeysSum {
		t.Fatalf("%s has the SHA-256 %s, want %s", mirror+ubuntuKeys, sum, ubuntuKeysSum)
	}
	output(t, "dpkg", "-x", file, keys)
	// Debian's debootstrap does not list all suites of Ubuntu: they have one script, named after an old one.
	output(t, "debootstrap", "--variant=minbase", "--keyring", filepath.Join(keys, "usr/share/keyrings/ubuntu-archive-keyring.gpg"),
		suite, root, mirror, "gutsy")
}

// On a fresh system, with no compiler, the command of README.md installs the package, and the
// demonstration runs on packets: four arms that pass.
func TestFresh(t *testing.T) {
	for _, system := range freshSystems {
		t.Run(system.name, func(t *testing.T) {
			root := filepath.Join(t.TempDir(), "root")
			bootstrap(t, system.suite, system.mirror, root)
			tryPackage(t, root)
		})
	}
}

// tryPackage installs, runs and removes the Debian package in a root directory.
func tryPackage(t *testing.T, root string) {
	t.Helper()
	dir, version := dist(t)
	name := "testbed_" + version + "_amd64.deb"
	content, err := os.ReadFile(filepath.Join(dir, name))
	if err == nil {
		err = os.WriteFile(filepath.Join(root, name), content, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	in := func(script string) string {
		t.Helper()
		out, err := inRoot(t, root, "", "chroot", root, "sh", "-ec", script)
		if err != nil {
			t.Fatalf("%s: %v\n%s", script, err, out)
		}
		return out
	}
	in("! command -v cc && ! command -v go")
	in("apt-get install -y --no-install-recommends ./" + name)
	if out := in("testbed version; ls /usr/share/man/man1/testbed-run.1"); !strings.Contains(out, "testbed "+version+" ") {
		t.Errorf("the installed program prints %q", out)
	}
	in("testbed init && testbed sim quickstart/scenario.yaml")
	began := time.Now()
	out := in("mount -t tmpfs none /run; testbed demo --markdown")
	if took := time.Since(began); took > demoTime {
		t.Errorf("demo takes %v, want %v or less", took, demoTime)
	}
	if n := strings.Count(out, "| pass"); n < 4 {
		t.Errorf("demo: %d arms pass\n%s", n, out)
	}
	in("apt-get remove -y testbed && ! command -v testbed && ! ls /usr/share/man/man1/testbed*")
}
