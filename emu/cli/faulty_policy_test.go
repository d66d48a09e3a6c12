package cli

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"testbed/emu/longtest"
	"testbed/emu/scaffold"
	"testbed/policies/catalog"
)

// Every fault of a process ends a simulation with an error that names the role, the command, and the line, within bounds,
// whatever it decides. No process is left. Standard error is no fault: its first bytes are kept.
func TestFaultyPolicies(t *testing.T) {
	t.Parallel()
	longtest.Skip(t, "waits for processes that hang, 40 s")
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("no python3: ", err)
	}
	faulty, err := os.ReadFile("testdata/faulty.py")
	if err != nil {
		t.Fatal(err)
	}
	const patience = 30 * time.Second
	const gone = `it ended \(exit status 1\); its standard error ends with: gone`
	const silent = `line \d+ to it: no answer within 5s \(timeout\)`
	for _, role := range append(catalog.All().Roles(), "cloning") {
		for fault, want := range map[string]string{
			"exits at once": `line 1 to it: ` + gone,
			"exits":         `line \d+ to it: ` + gone,
			"hangs":         silent,
			"reads nothing": silent,
			"garbage":       `line \d+ to it: line \d+ of its output: no message: .*: garbage`,
			"output":        `line \d+ to it: line \d+ of its output: more than 1MB of output for one answer \(output\)`,
			"bomb":          `line \d+ to it: it has \d+ processes: must be at most 200`,
			"errors":        "",
		} {
			t.Run(role+" "+fault, func(t *testing.T) {
				t.Parallel()
				dir, err := filepath.EvalSymlinks(t.TempDir())
				if err != nil {
					t.Fatal(err)
				}
				of := role
				if role == "cloning" {
					of = catalog.RoleTask
				}
				files, err := scaffold.Files("mine", of, scaffold.Python)
				if err != nil {
					t.Fatal(err)
				}
				arm := fmt.Sprintf("{exec: [python3, faulty.py, %s, %s], output: 1MB, timeout: 1m}", role, fault)
				if want == silent {
					arm = strings.Replace(arm, "1m", "5s", 1)
				}
				for _, f := range append(files, scaffold.File{Name: "faulty.py", Data: faulty}) {
					data := bytes.ReplaceAll(f.Data, []byte("{exec: [python3, mine.py], files: [testbed.py]}"), []byte(arm))
					if err := os.WriteFile(filepath.Join(dir, f.Name), data, 0o644); err != nil {
						t.Fatal(err)
					}
				}
				code := 1
				if want == "" {
					code = 0
				}
				began := time.Now()
				_, errs := place{}.testbed(t, code, "sim", filepath.Join(dir, "scenario.yaml"), "--out", filepath.Join(dir, "runs"))
				took := time.Since(began)
				full := fmt.Sprintf(`%s policy python3 faulty\.py %s %s: %s`, of, role, fault, want)
				if want != "" && !regexp.MustCompile(full).MatchString(errs) {
					t.Errorf("error %s, want %s", errs, full)
				}
				if took > patience {
					t.Errorf("the error took %v, want at most %v", took, patience)
				}
				if left := working(t, dir); len(left) > 0 {
					t.Errorf("left: %v", left)
				}
				kept, err := filepath.Glob(filepath.Join(dir, "runs", "*-*", "*", "0", of+".policy.stderr"))
				if err != nil || len(kept) != 1 {
					t.Fatalf("kept %v, %v: want standard error", kept, err)
				}
				info, err := os.Stat(kept[0])
				if err != nil || fault == "errors" && info.Size() != 1_000_000 || info.Size() > 1_000_000 {
					t.Errorf("%v: %d bytes of standard error are kept", err, info.Size())
				}
				t.Logf("%v: %s", took.Round(time.Millisecond), strings.TrimSpace(errs))
			})
		}
	}
}

// working returns the processes whose working directory is in a directory, with their commands.
func working(t *testing.T, dir string) (found []string) {
	t.Helper()
	links, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	for _, link := range links {
		if at, err := os.Readlink(link); err == nil && strings.HasPrefix(at, dir) {
			command, _ := os.ReadFile(filepath.Join(filepath.Dir(link), "cmdline")) // of one that has not ended since
			found = append(found, filepath.Base(filepath.Dir(link))+" "+strings.ReplaceAll(string(command), "\x00", " "))
		}
	}
	return found
}
