package engines

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// The steps of the workflow run in order, with the fluid model in place of packets and without
// sudo, apt-get and gh. After a run with a void arm the comment is still written.
func TestPullRequestWorkflow(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../ci/pull-request.yml")
	if err != nil {
		t.Fatal(err)
	}
	var workflow struct {
		Permissions map[string]string
		Env         map[string]string
		Jobs        map[string]struct {
			Steps []struct {
				Name, Run, Uses, If string
				With                map[string]string
			}
		}
	}
	if err := yaml.Unmarshal(text, &workflow); err != nil {
		t.Fatal(err)
	}
	if workflow.Permissions["pull-requests"] != "write" || len(workflow.Jobs) != 1 {
		t.Fatalf("%+v", workflow)
	}
	const stubs = `
		sudo() {
			case "$1 $2" in
			"apt-get install") [ "$4" = "./$PACKAGE" ] ;;
			"testbed doctor") ;;
			"testbed run") shift 2; testbed sim "$@" ;;
			*) echo "unknown command: $*"; exit 9 ;;
			esac
		}
		gh() { echo "$@" >gh.txt; }
		`
	r := follow(t, "CI matrix", 4, 1)
	for name, value := range workflow.Env {
		r.env = append(r.env, name+"="+value)
	}
	var ran []string
	for _, step := range workflow.Jobs["run"].Steps {
		run := strings.ReplaceAll(step.Run, "${{ github.event.number }}", "7")
		if strings.Contains(run, "${{") {
			t.Errorf("unknown expression in %q", run)
		}
		if run != "" {
			r.run(stubs + run)
			ran = append(ran, step.Name)
		}
		if always := "${{ !cancelled() && steps.measure.outcome != 'skipped' }}"; slices.Contains(ran, "Comment") && step.If != always {
			t.Errorf("step %q runs if %q, want %q", step.Name, step.If, always)
		}
		if found, err := filepath.Glob(filepath.Join(r.dir, step.With["path"])); err != nil || len(found) == 0 {
			t.Errorf("step %q: no file at %q (%v)", step.Name, step.With["path"], err)
		}
	}
	if want := []string{"Install", "Check the machine", "Predict", "Measure", "Comment"}; !slices.Equal(ran, want) {
		t.Errorf("ran %q, want %q", ran, want)
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join(r.dir, name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if got := read("gh.txt"); got != "pr comment 7 --body-file comment.md\n" {
		t.Errorf("gh is called with %q", got)
	}
	const limit = 65536 // of a comment, in characters
	comment := read("comment.md")
	if n := strings.Count(comment, "\n## Coflow completion time"); n != 2 || len(comment) > limit || strings.Contains(comment, "## Breakdown") {
		t.Errorf("the comment has %d tables of CCT in %d bytes:\n%s", n, len(comment), comment)
	}
}
