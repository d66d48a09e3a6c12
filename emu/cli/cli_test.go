package cli

import (
	"fmt"
	"os"
	"os/signal"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"testbed/policies/catalog"
)

// raceEnv has the settings of the race detector. Its default keeps a program for a
// second after its main function, and tests start some three hundred.
const raceEnv, raceDefault = "GORACE", "atexit_sleep_ms=10"

// TestMain makes the test binary a testbed where scripts and tests call it so.
func TestMain(m *testing.M) {
	if os.Getenv(raceEnv) == "" {
		if err := os.Setenv(raceEnv, raceDefault); err != nil {
			panic(err)
		}
	}
	if signal.Ignored(os.Interrupt) { // as in the background of a script: programs that tests start would ignore it too
		signal.Notify(make(chan os.Signal, 1), os.Interrupt)
	}
	testscript.Main(tests{m}, map[string]func(){"reach": reach, "offloads": offloads, "testbed": func() { os.Exit(Process()) }})
}

// tests removes what they shared.
type tests struct{ *testing.M }

func (m tests) Run() int {
	code := m.M.Run()
	if small.home == "" {
		return code
	}
	if err := os.RemoveAll(small.home); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}

func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata",
		Setup: func(e *testscript.Env) error {
			root, err := os.Getwd()
			if err != nil {
				return err
			}
			e.Setenv(raceEnv, os.Getenv(raceEnv))
			e.Setenv("QUICKSTART", root+"/../../scripts/quickstart")
			e.Setenv("TESTBED_STATE_DIR", e.WorkDir+"/state")
			for _, role := range catalog.All().Roles() { // for cmpenv: what errors list
				e.Setenv("POLICIES_"+role, strings.Join(catalog.All().Names(role), ", "))
			}
			return nil
		},
	})
}
