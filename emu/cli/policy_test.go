package cli

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"testbed/emu/scaffold"
	"testbed/policies/catalog"
)

// A new policy of each role and language builds and runs. Those of coflows and tasks decide as the policy of the program with
// which their scenario compares them, and those of placement write all blocks.
func TestNewPolicies(t *testing.T) {
	t.Parallel()
	for _, role := range catalog.All().Roles() {
		for _, language := range scaffold.Languages() {
			t.Run(role+" "+language, func(t *testing.T) {
				t.Parallel()
				if _, err := exec.LookPath("python3"); err != nil && language == scaffold.Python {
					t.Skip("no python3: ", err)
				}
				dir := filepath.Join(t.TempDir(), "mine")
				var p place
				p.testbed(t, 0, "policy", "new", "mine", "--role", role, "--lang", language, "-o", dir)
				readme, err := os.ReadFile(filepath.Join(dir, "README.md"))
				if err != nil {
					t.Fatal(err)
				}
				for line := range strings.Lines(string(readme)) {
					if !strings.Contains(line, "go build") {
						continue
					}
					build := exec.Command("sh", "-c", line)
					build.Dir, build.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=-trimpath -ldflags=-w", "GOWORK=off")
					if out, err := build.CombinedOutput(); err != nil {
						t.Fatalf("%s: %v\n%s", line, err, out)
					}
				}
				runs := filepath.Join(dir, "runs")
				p.testbed(t, 0, "sim", filepath.Join(dir, "scenario.yaml"), "--out", runs)
				logs, err := filepath.Glob(filepath.Join(runs, "latest", "*", "0", "events.jsonl"))
				if err != nil || len(logs) != 2 {
					t.Fatalf("logs %v: %v", logs, err)
				}
				one, answers := logged(t, logs[0])
				other, more := logged(t, logs[1])
				if answers+more < 10 {
					t.Errorf("%d answers of the policy", answers+more)
				}
				if role == catalog.RolePlacement {
					if a, b := count(one, "StartChain"), count(other, "StartChain"); a != 40 || b != 40 {
						t.Errorf("%d and %d blocks begin, want 40", a, b)
					}
				} else if d := cmp.Diff(one, other); d != "" || len(one) < 50 {
					t.Errorf("%d commands of the logs differ:\n%s", len(one), d)
				}
			})
		}
	}
}

// logged returns the commands of a log without the answers of processes and modules, and the number of these.
func logged(t *testing.T, path string) (commands []any, answers int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		var step struct{ Commands []map[string]any }
		if err := json.Unmarshal([]byte(line), &step); err != nil {
			t.Fatal(err)
		}
		for _, c := range step.Commands {
			if c["Decided"] != nil {
				answers++
			} else {
				commands = append(commands, c)
			}
		}
	}
	return commands, answers
}

func count(commands []any, name string) (n int) {
	for _, c := range commands {
		if c.(map[string]any)[name] != nil {
			n++
		}
	}
	return n
}
