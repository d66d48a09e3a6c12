package processors

import (
	"maps"
	"os"
	"testing"
	"time"
)

func TestParseStat(t *testing.T) {
	p, err := parseStat("cpu  10 20 30 400 5 6 7 8 2 1\ncpu0 1 2 3 4 5 6 7 8 0 0\ncpu1 1 2 3 4 5 6 7 8 0 0\nintr 5 0\n")
	want := Times{Count: 2, Tasks: 600 * time.Millisecond, Softirq: 70 * time.Millisecond, Irq: 60 * time.Millisecond, Stolen: 80 * time.Millisecond}
	if err != nil || p != want {
		t.Errorf("got %+v, %v, want %+v", p, err, want)
	}
	for _, bad := range []string{"", "cpu 1 2 3\n", "cpu  1 2 3 x 5 6 7 8\ncpu0 1\n", "intr 5\n", "cpu  -1 2 3 4 5 6 7 8\ncpu0\n"} {
		if p, err := parseStat(bad); err == nil {
			t.Errorf("parseStat(%q) = %+v, want an error", bad, p)
		}
	}
}

func TestParseProcess(t *testing.T) {
	for _, tt := range []struct {
		name, line string
		softirq    bool
	}{
		{"a name with parentheses and spaces", "7 (a) b (c) S 1 7 7 0 -1 4194304 1 2 3 4 100 20 30 4 20 0 9 0 5150 1 2 3", false},
		{"a kernel thread of packets", "7 (ksoftirqd/1) S 2 0 0 0 -1 69238848 0 0 0 0 100 20 30 4 20 0 1 0 5150 0 0 1", true},
		{"another kernel thread", "7 (kworker/1:1) S 2 0 0 0 -1 69238880 0 0 0 0 100 20 30 4 20 0 1 0 5150 0 0 1", false},
		{"a process named as one of packets", "7 (ksoftirqd/1) S 1 7 7 0 -1 4194304 1 2 3 4 100 20 30 4 20 0 9 0 5150 1 2 3", false},
	} {
		want := charged{1200 * time.Millisecond, 340 * time.Millisecond}
		if start, c, softirq, err := parseProcess(tt.line); err != nil || start != 5150 || c != want || softirq != tt.softirq {
			t.Errorf("%s: %d, %+v, %t, %v; want 5150, %+v, %t", tt.name, start, c, softirq, err, want, tt.softirq)
		}
	}
	for _, bad := range []string{"", "7 a S 1", "7 )a( S", "7 (a) S 1 7 7 0 -1 4194304 1 2 3 4 100 20 30 4 20 0 9 0", "7 (a) S 1 7 7 0 -1 4194304 1 2 3 4 x 20 30 4 20 0 9 0 5150 1"} {
		if _, c, _, err := parseProcess(bad); err == nil {
			t.Errorf("parseProcess(%q) = %+v, want an error", bad, c)
		}
	}
}

// othersSince counts the time of processes that are reaped.
func TestOthersSince(t *testing.T) {
	const s = time.Second
	id := func(pid int) process { return process{pid, 1} }
	was := usage{id(1): {0, 100 * s}, id(20): {5 * s, 2 * s}, id(21): {60 * s, 10 * s}, process{os.Getpid(), 1}: {3 * s, 0}}
	for _, tt := range []struct {
		name   string
		change func(usage)
		want   time.Duration
	}{
		{"nothing", func(usage) {}, 0},
		{"one works", func(p usage) { p[id(20)] = charged{9 * s, 2 * s} }, 4 * s},
		{"this one works", func(p usage) { p[process{os.Getpid(), 1}] = charged{9 * s, 8 * s} }, 0},
		{"one begins", func(p usage) { p[id(22)] = charged{2 * s, 1 * s} }, 3 * s},
		{"one began and ended", func(p usage) { p[id(20)] = charged{5 * s, 3 * s} }, 1 * s},
		{"one ends that had taken much", func(p usage) { delete(p, id(21)); p[id(20)] = charged{5 * s, 73 * s} }, 1 * s},
		{"its parent has ended too, and init waits for both", func(p usage) {
			delete(p, id(20))
			delete(p, id(21))
			p[id(1)] = charged{0, 179 * s}
		}, 2 * s},
		{"one ends that is never waited for", func(p usage) { delete(p, id(21)); p[id(20)] = charged{6 * s, 2 * s} }, 1 * s},
		{"its number is used again", func(p usage) {
			delete(p, id(20))
			p[process{20, 2}] = charged{1 * s, 0}
			p[id(1)] = charged{0, 107 * s}
		}, 1 * s},
	} {
		is := maps.Clone(was)
		tt.change(is)
		if got := is.othersSince(was); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

func TestParsePressure(t *testing.T) {
	text := "some avg10=0.36 avg60=1.24 avg300=2.00 total=1234567\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=5\n"
	if d, ok := parsePressure(text); !ok || d != 1234567*time.Microsecond {
		t.Errorf("got %v, %t", d, ok)
	}
	for _, bad := range []string{"", "full total=5\n", "some avg10=1\n", "some total=x\n"} {
		if d, ok := parsePressure(bad); ok {
			t.Errorf("parsePressure(%q) = %v", bad, d)
		}
	}
}

// FuzzParseProcFiles: any input returns a value or an error, without a panic.
func FuzzParseProcFiles(f *testing.F) {
	f.Add("cpu  10 20 30 400 5 6 7 8 2 1\ncpu0 1 2 3 4 5 6 7 8 0 0\n")
	f.Add("7 (a) b (c) S 1 7 7 0 -1 4194304 1 2 3 4 100 20 30 4 20 0 9 0 5150 1 2 3")
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = parseStat(text)
		_, _ = parsePressure(text)
		_, _, _, _ = parseProcess(text)
	})
}
