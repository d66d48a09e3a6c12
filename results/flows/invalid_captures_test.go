package flows

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"testbed/hosts/wire"
	"testbed/results/pcap"
)

func TestForeignTrafficIsCounted(t *testing.T) {
	n := newNetwork(t, a, b)
	simple(n)
	web := n.dial(20*ms, a, b, 40002, 80, 5)
	web.data(22*ms, 23*ms, []byte("GET / HTTP/1.0\r\n\r\n"), 0, 18)
	web = n.dial(20*ms, a, b, 40003, wire.ShufflePort, 5)
	web.data(22*ms, 23*ms, []byte("GET / HTTP/1.0\r\n\r\n"), 0, 18)
	n.dial(20*ms, a, b, 40004, wire.ShufflePort, 5)
	got := n.reduce(Options{})
	wantProblems(t, got)
	if want := (Connections{Ours: 1, Foreign: 1, Empty: 1}); got.Connections != want {
		t.Errorf("Connections = %+v, want %+v", got.Connections, want)
	}
	for _, c := range got.Captures {
		if want := (Counts{8, 8*heads + 36}); c.Foreign != want {
			t.Errorf("%s: Foreign = %+v, want %+v", c.Host, c.Foreign, want)
		}
	}
	if len(got.Flows) != 1 || got.Flows[0] != simpleFlow() {
		t.Errorf("flows %+v", got.Flows)
	}
}

// Captures of switches show the same packets as those of hosts: their problems do not
// affect records.
func TestCapturesOfSwitchesAreNotNeeded(t *testing.T) {
	n := newNetwork(t, a, b)
	simple(n)
	dir := t.TempDir()
	for name, file := range map[string][]byte{a: n.file(a), b: n.file(b), "leaf0": n.file(a)[:100], "spine12": []byte("x")} {
		if err := os.WriteFile(filepath.Join(dir, name+Suffix), file, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := Reduce(context.Background(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	wantProblems(t, got)
	if len(got.Flows) != 1 || len(got.Captures) != 2 || len(got.Notes) != 2 {
		t.Errorf("%d flows from %d captures, notes %q", len(got.Flows), len(got.Captures), got.Notes)
	}
}

func TestDamagedFiles(t *testing.T) {
	n := newNetwork(t, a, b)
	simple(n)
	whole := n.file(b)
	for _, tt := range []struct {
		name  string
		file  []byte
		want  []string
		flows int
	}{
		{"cut before the last packet", whole[:len(whole)-2*28-100], []string{b + ": only the first 5 packets of its capture can be read: pcapng: capture is cut off", "coflow 1: 0 of its 1 flows are complete, so it has no record: flow 7 has 1400 of 2800 bytes"}, 0},
		{"cut after it", whole[:len(whole)-30], []string{b + ": only the first 6 packets of its capture can be read"}, 1},
		{"empty", nil, []string{b + ": nothing of its capture can be read", b + ": no capture; it was one end of 1 transfers", "coflow 1: 0 of"}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			for name, file := range map[string][]byte{a: n.file(a), b: tt.file} {
				if err := os.WriteFile(filepath.Join(dir, name+Suffix), file, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got, err := Reduce(context.Background(), dir, Options{})
			if err != nil {
				t.Fatal(err)
			}
			wantProblems(t, got, tt.want...)
			if len(got.Flows) != tt.flows {
				t.Errorf("%d flows, want %d", len(got.Flows), tt.flows)
			}
		})
	}
}

func TestReduceErrors(t *testing.T) {
	if _, err := Reduce(context.Background(), t.TempDir(), Options{}); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "expected one <host>.pcapng or <host>.pcapng.zst") {
		t.Errorf("empty directory: %v", err)
	}
	if _, err := Reduce(context.Background(), filepath.Join(t.TempDir(), "none"), Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no directory: %v", err)
	}
	n := newNetwork(t, a, b)
	simple(n)
	dir := n.write()
	ctx, cancel := context.WithCancelCause(context.Background())
	cause := errors.New("stop")
	cancel(cause)
	if _, err := Reduce(ctx, dir, Options{}); !errors.Is(err, cause) {
		t.Errorf("cancelled: %v", err)
	}
	if _, err := Reduce(context.Background(), dir, Options{Run: 3}); err == nil || !strings.Contains(err.Error(), "is of run 0xfeed, not of run 0x3") {
		t.Errorf("all of another run: %v", err)
	}
}

// A capture that strayed in from another run does not decide which run it is, though
// its name be the first.
func TestMostCapturesDecideTheRun(t *testing.T) {
	n := newNetwork(t, b, c)
	conn := n.dial(ms, b, c, 40001, wire.ShufflePort, 5)
	n.mark(wire.KindCoflowMark, 0, 0, b, 1, 1, 100)
	s := n.flow(1, 7, 100)
	conn.data(3*ms, 4*ms, s, 0, len(s))
	dir := n.write()
	other := newNetwork(t, a)
	other.meta.Run = 4
	if err := os.WriteFile(filepath.Join(dir, a+Suffix), other.file(a), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := Reduce(context.Background(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	wantProblems(t, got, a+": its capture is of run 0x4, not of run 0xfeed")
	if got.Meta.Run != testRun || len(got.Flows) != 1 {
		t.Errorf("run %#x with %d flows, want %#x with 1", got.Meta.Run, len(got.Flows), testRun)
	}
}

func TestStrangeFiles(t *testing.T) {
	n := newNetwork(t, a, b)
	simple(n)
	dir := n.write()
	other := newNetwork(t, c)
	other.meta.Run = 4
	for name, file := range map[string][]byte{"h9-09" + Suffix: n.file(b), "gateway" + Suffix: newNetwork(t).file(""), c + Suffix: other.file(c), "notes.txt": []byte("x")} {
		if err := os.WriteFile(filepath.Join(dir, name), file, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(dir, b+Suffix)); err != nil {
		t.Fatal(err)
	}
	got, err := Reduce(context.Background(), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	wantProblems(t, got, "gateway: not the name of a host or a switch", c+": its capture is of run 0x4, not of run 0xfeed", "h9-09: its capture states that it is of host "+b)
	if len(got.Flows) != 1 {
		t.Errorf("%d flows, want 1", len(got.Flows))
	}
}

// The order in which captures are added must not matter.
func TestReducerOrder(t *testing.T) {
	n := newNetwork(t, a, b, c)
	simple(n)
	pipeline(n)
	var want Result
	for i, order := range [][]string{{a, b, c}, {c, b, a}, {b, a, c}} {
		r := NewReducer(Options{})
		for _, host := range order {
			p, err := pcap.NewReader(bytes.NewReader(n.file(host)))
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Add(context.Background(), host, p); err != nil {
				t.Fatal(err)
			}
		}
		got, err := r.Result()
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			want = got
		} else if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("order %v (-want +got):\n%s", order, diff)
		}
	}
}

// Options.Read is called during the reading of a large capture, and at the end with
// all files, also those that could be read only in part.
func TestReadIsToldAsItGoes(t *testing.T) {
	dir := t.TempDir()
	write := func(name string, b []byte) int64 {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name+Suffix), b, 0o600); err != nil {
			t.Fatal(err)
		}
		return int64(len(b))
	}
	var large, port bytes.Buffer
	generated{flows: 100, packets: 40_000, snap: 160, t: t}.write(&large)
	w, err := pcap.NewWriter(&port, pcap.Meta{Tool: "testbed", Run: testRun, Host: "leaf0", Seed: 7, Fabric: generatedFabric()}, []pcap.Interface{{Name: "p0", SnapLen: 96}})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20_000 {
		if err := w.Write(0, epoch.Add(time.Duration(i)), make([]byte, 96), 1000); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(pcap.Stats{}); err != nil {
		t.Fatal(err)
	}
	sizes := []int64{
		write(generatedHost, large.Bytes()),
		write("leaf0", port.Bytes()),
		write("h0-01", large.Bytes()[:large.Len()/2]), // cut off, and of another host
		write("h0-02", []byte("no capture")),
		write("h0-03", nil),
		write("nothing", large.Bytes()), // no host
	}
	want, calls := int64(0), int64(0)
	for _, n := range sizes {
		want += n
	}
	for _, n := range sizes[:2] {
		calls += n/readStep + 1
	}
	var got, told, most int64
	if _, err := Reduce(t.Context(), dir, Options{Parallel: 1, Read: func(n int64) {
		got, told, most = got+n, told+1, max(most, n)
	}}); err != nil {
		t.Fatal(err)
	}
	if got != want {
		t.Errorf("told of %d bytes, want %d", got, want)
	}
	if told < calls-1 || calls < 5 {
		t.Errorf("told %d times of at least %d, want about every %d bytes", told, calls, readStep)
	}
	// Options.Read is also called for a capture passed as a reader.
	p, err := pcap.NewReader(bytes.NewReader(large.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	got, most = 0, 0
	r := NewReducer(Options{Read: func(n int64) { got, most = got+n, max(most, n) }})
	if err := r.Add(t.Context(), generatedHost, p); err != nil {
		t.Fatal(err)
	}
	if got != sizes[0] || most > 2*readStep {
		t.Errorf("told of %d bytes, at most %d at once, want %d and about %d", got, most, sizes[0], readStep)
	}
}
