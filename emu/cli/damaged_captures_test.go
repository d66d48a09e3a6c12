package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"testbed/emu/longtest"
	"testbed/results/pcap"
	"testbed/results/rundir"
	"testbed/results/tooltest"
)

// Of captures alone that were damaged, what can be read is reported, each
// capture that is wrong is reported once, with the offset where there is one, and the
// arm is void, because more than a few of its coflows have no record.
func TestReportOnDamagedCaptures(t *testing.T) {
	t.Parallel()
	longtest.Skip(t, "damages captures of a run, 7 s")
	tooltest.Need(t, "editcap")
	p, dir := newPlace(t), filepath.Join(t.TempDir(), "run")
	r := smallRun(t)
	if err := os.CopyFS(dir, os.DirFS(r.runDir)); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(dir, rundir.ManifestFile)); err != nil {
		t.Fatal(err)
	}
	of := func(arm, host string) string {
		return filepath.Join(dir, arm, "0", "captures", host+pcap.CompressedSuffix)
	}
	change := func(host string, to func(old []byte) []byte) {
		t.Helper()
		b, err := os.ReadFile(of("fair+hdfs", host))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(of("fair+hdfs", host), to(b), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	// The first capture is of another run: it does not decide which run it is.
	change("h0-00", func([]byte) []byte {
		b, err := os.ReadFile(of("sebf+hdfs", "h0-00"))
		if err != nil {
			t.Fatal(err)
		}
		return b
	})
	change("h0-01", func(b []byte) []byte { return b[:len(b)/2] })
	change("h1-00", func([]byte) []byte { return nil })
	classic := filepath.Join(t.TempDir(), "classic.pcap")
	if out, err := exec.Command("editcap", "-F", "nsecpcap", of("fair+hdfs", "h1-01"), classic).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	change("h1-01", func([]byte) []byte {
		b, err := os.ReadFile(classic)
		if err != nil {
			t.Fatal(err)
		}
		return b
	})

	p.run(t, exitVoid, "report", dir)
	b, err := os.ReadFile(filepath.Join(dir, "report.md"))
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for _, want := range []string{
		"h0-00: its capture is of run 0x",
		"h0-01: only the first ",
		"h1-00: nothing of its capture can be read: pcapng: capture is cut off at byte 0",
	} {
		lines := 0
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "- repeat 0: "+want) {
				lines++
				if strings.HasPrefix(want, "h0-01") && !strings.Contains(line, "capture is cut off at byte ") {
					t.Errorf("no offset: %s", line)
				}
			}
		}
		if lines != 1 {
			t.Errorf("%d lines %q, want one\n%s", lines, want, text)
		}
	}
	for _, host := range []string{"h0-02", "h1-01", "h1-02"} {
		if strings.Contains(text, host+": its capture is of run") || strings.Contains(text, host+": nothing of its capture") {
			t.Errorf("%s has a good capture, and the report says otherwise:\n%s", host, text)
		}
	}
	if !strings.Contains(text, "fair+hdfs") || !strings.Contains(text, "records is void") {
		t.Errorf("captures that are damaged cast no doubt on the verdict:\n%s", text)
	}
}
