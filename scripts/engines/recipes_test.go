package engines

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"testbed/emu/longtest"
)

// The commands of docs/recipes.md run in order, on the fluid model in place of packets. It models
// neither congestion control nor queues, and says so.
func TestRecipes(t *testing.T) {
	longtest.Skip(t, "runs the commands of ten recipes, 7 s of a processor")
	t.Parallel()
	const page = "../../docs/recipes.md"
	r := recipe{T: t, dir: t.TempDir()}
	var tested, unmodelled []string
	for _, b := range blocks(t, page) {
		if n := strings.Count(b.Text, "\n"); n > 15 {
			t.Errorf("%s:%d: a recipe has at most 15 lines: %d", page, b.Line, n)
		}
		if b.Name != "" {
			if err := os.WriteFile(filepath.Join(r.dir, b.Name), []byte(b.Text), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		out := r.run(strings.ReplaceAll(b.Text, "sudo testbed run", "testbed sim"))
		tested = append(tested, b.Heading)
		if strings.Contains(out, "not modelled") {
			unmodelled = append(unmodelled, b.Heading)
		}
	}
	want := []string{"Recipes", "Congestion control", "Oversubscription", "Buffers", "Incast", "Load", "My own trace", "Two fabrics",
		"Ten seeds", "Two machines", "A gate in CI"}
	if !slices.Equal(tested, want) {
		t.Errorf("tested %q, expected %q", tested, want)
	}
	if want := []string{"Congestion control", "Buffers", "Incast"}; !slices.Equal(unmodelled, want) {
		t.Errorf("the fluid model does not model %q, expected %q", unmodelled, want)
	}
}
