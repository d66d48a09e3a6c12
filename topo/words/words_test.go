package words_test

import (
	"strings"
	"testing"

	"testbed/topo/words"
)

func TestPlural(t *testing.T) {
	for n, want := range map[int]string{0: "0 leaves", 1: "1 leaf", 2: "2 leaves", -1: "-1 leaves"} {
		if got := words.Plural(n, "leaf", "leaves"); got != want {
			t.Errorf("Plural(%d) = %q, want %q", n, got, want)
		}
	}
}

func TestOr(t *testing.T) {
	for want, names := range map[string][]string{"": nil, "a": {"a"}, "a or b": {"a", "b"}, "a, b or c": {"a", "b", "c"}} {
		if got := words.Or(names); got != want {
			t.Errorf("Or(%q) = %q, want %q", names, got, want)
		}
	}
}

func TestClosest(t *testing.T) {
	policies := []string{"aalo", "fair", "fifo", "sebf", "sincronia"}
	for word, want := range map[string]string{
		"sbef": "sebf", "SEBF": "sebf", "fare": "fair", "sincrona": "sincronia", "sinc": "", "xyzw": "", "": "",
		"fifa": "fifo", "sincronía": "sincronia",
		strings.Repeat("s", 1<<20): "", "\xff\xfe": "",
	} {
		if got := words.Closest(word, policies); got != want {
			t.Errorf("Closest(%.20q) = %q, want %q", word, got, want)
		}
	}
	if got := words.Closest("ab", []string{"ac", "ad"}); got != "ac" {
		t.Errorf("of equals Closest returns %q, want the first", got)
	}
}

func TestFirst(t *testing.T) {
	for n, want := range map[int]string{0: "3 more", 2: "7, 8, 1 more", 3: "7, 8, 9", 5: "7, 8, 9"} {
		if got := words.First([]int{7, 8, 9}, n); got != want {
			t.Errorf("First %d = %q, want %q", n, got, want)
		}
	}
}
