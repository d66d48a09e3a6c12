// Package words forms parts of messages: plurals, lists of alternatives and suggestions for
// misspelt names.
package words

import (
	"fmt"
	"strings"
)

// Plural returns n with its noun: "1 leaf", "4 leaves".
func Plural[N ~int | ~int64 | ~uint32](n N, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// Or joins alternatives: "a, b or c".
func Or(names []string) string {
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// First joins at most n values, and counts the others: "a, b, 3 more".
func First[T any](all []T, n int) string {
	var names []string
	for _, x := range all[:min(len(all), n)] {
		names = append(names, fmt.Sprint(x))
	}
	if more := len(all) - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// longest is the number of bytes of a name that Closest compares.
const longest = 64

// Closest returns the name that is most similar to a word, the first of equals; "" if none
// is. Similar names differ by at most a third of the word's letters, or by two: letters
// inserted, deleted, replaced or swapped with their neighbour. Case does not count.
func Closest(word string, names []string) string {
	clip := func(s string) string { return strings.ToLower(s[:min(len(s), longest)]) }
	word = clip(word)
	best, least := "", max(2, len(word)/3)+1
	for _, name := range names {
		if d := distance(word, clip(name)); d < least {
			best, least = name, d
		}
	}
	return best
}

// distance returns the number of inserted, deleted and replaced bytes and of swapped
// neighbours that turn one name into the other (optimal string alignment): "sbef" is nearer
// to "sebf" than to "scf", which libraries of the Levenshtein distance do not find.
func distance(a, b string) int {
	var before []int
	last := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row := make([]int, len(b)+1)
		row[0] = i
		for j := 1; j <= len(b); j++ {
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+1)
			if a[i-1] == b[j-1] {
				row[j] = last[j-1]
			}
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last = last, row
	}
	return last[len(b)]
}
