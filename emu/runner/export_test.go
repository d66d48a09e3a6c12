package runner

import (
	"testing"

	"testbed/emu/kernel/netnstest"
	"testbed/results/verdict"
)

// These functions serve tests outside the package, which may import packages that import it.

func RunClean(t *testing.T, text string, trace []string) verdict.Verdict {
	t.Helper()
	return runJudged(t, func() (string, []string) { return text, trace }, tamper{})
}

func LevelOf(v verdict.Verdict, name string) verdict.Level { return level(v, name) }

func Show(t *testing.T, v verdict.Verdict) { t.Helper(); show(t, v, true) }

func Likely() netnstest.Trials { return trials(likely) }
