package runner

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"testbed/emu/fidelity"
	"testbed/emu/kernel/netnstest"
	"testbed/results/flows"
	"testbed/results/pcap"
	"testbed/results/verdict"
)

// capturingLinks is a scenario of twoRacks that captures uplinks and the links to
// the hosts of rack 1, with one coflow between racks.
func capturingLinks(t *testing.T) string {
	t.Helper()
	return strings.Replace(twoRacks, "[%s]", "[fair]", 1) + "capture: {links: [\"leaf*<>spine0\", \"leaf1>h1-*\"]}\n"
}

const acrossRacks = "1 0 2 0 2 1 1:2.0"

func readSamples(t *testing.T, dir string) (s fidelity.Samples) {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, measuredFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &s); err != nil {
		t.Fatal(err)
	}
	return s
}

// The captures of switches are judged like those of hosts and change no result.
func TestCapturedLinksAreJudged(t *testing.T) {
	t.Parallel()
	out, arms := onPackets(t, loadText(t, capturingLinks(t), acrossRacks))
	dir := repeatDir(out.Dir, "fair", 0)
	switches := map[string]bool{}
	for _, c := range readSamples(t, dir).Captures {
		if strings.HasPrefix(c.Host, "h") {
			continue
		}
		switches[c.Host] = true
		if c.Dropped != 0 || c.Bytes != c.Counted || c.Bytes < 2e6 {
			t.Errorf("%+v", c)
		}
		n, problem, err := captured(pcap.Find(filepath.Join(dir, "captures"), c.Host))
		if n != c.Bytes || problem != "" || err != nil {
			t.Errorf("captured(%s) = %d, %q, %v, want %d", c.Host, n, problem, err, c.Bytes)
		}
	}
	if len(switches) != 3 || !switches["leaf0"] || !switches["leaf1"] || !switches["spine0"] {
		t.Errorf("captures of switches %v, want leaf0, leaf1 and spine0", switches)
	}
	v := arms["fair"].Verdict
	for _, name := range []string{"capture-drops", "captured-bytes"} {
		if got := level(v, name); got != verdict.Pass {
			t.Errorf("%s is %v", name, got)
		}
	}
	if _, err := Report(t.Context(), out.Dir, ReportOptions{}); err != nil {
		t.Errorf("report again: %v", err)
	}
}

// A switch's capture that lost packets voids the run, and one that cannot be read
// to its end is a problem.
func TestLostPacketsOfCapturedLinks(t *testing.T) {
	t.Parallel()
	netnstest.Require(t)
	for _, tt := range []struct {
		name, check, says string
		recorded          func(captures string) error
	}{
		{"packets missing", "captured-bytes", "leaf0", func(dir string) error { return missing(dir, "leaf0") }},
		{"cut off", "captured-bytes", "spine0", func(dir string) error {
			path := filepath.Join(dir, "spine0"+flows.Suffix)
			b, err := os.ReadFile(path)
			return errors.Join(err, os.WriteFile(path, b[:len(b)/2], 0o644))
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := options(t)
			o.tamper = tamper{recorded: tt.recorded}
			out, err := Execute(t.Context(), loadText(t, capturingLinks(t), acrossRacks), o)
			if err != nil {
				t.Fatal(err)
			}
			dir := repeatDir(out.Dir, "fair", 0)
			var v verdict.Verdict
			if found, err := readJSON(filepath.Join(dir, "fidelity.json"), &v); err != nil || !found {
				t.Fatal(found, err)
			}
			if level(v, tt.check) != verdict.Void {
				t.Errorf("%s is %v", tt.check, level(v, tt.check))
			}
			for _, c := range v.Checks {
				if c.Name == tt.check && !strings.Contains(c.Reason, "capture of "+tt.says) {
					t.Errorf("%s is %v: %s", c.Name, c.Level, c.Reason)
				}
			}
			if tt.name == "cut off" && !strings.Contains(strings.Join(readSamples(t, dir).Problems, "; "), "spine0: pcapng: capture is cut off at byte ") {
				t.Errorf("problems %q", readSamples(t, dir).Problems)
			}
		})
	}
}
