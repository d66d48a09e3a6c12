package jobs

import "testing"

// The bounds of the classes are those of the paper, without gaps.
func TestSizeClass(t *testing.T) {
	for tasks, want := range map[int]int{1: 0, 10: 0, 11: 1, 50: 1, 51: 2, 150: 2, 151: 3, 500: 3, 501: 4, 100000: 4} {
		got := SizeClass(tasks)
		least, most := SizeBounds(got)
		if got != want || tasks < least || most > 0 && tasks > most {
			t.Errorf("SizeClass(%d) = %d with bounds %d and %d, want %d", tasks, got, least, most, want)
		}
	}
	if _, most := SizeBounds(SizeClasses - 1); most != 0 {
		t.Errorf("the last class ends at %d", most)
	}
}
