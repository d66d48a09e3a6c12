package measure

import (
	"errors"
	"testing"
)

func TestMostCarried(t *testing.T) {
	tests := []struct {
		name string
		most int
		// carries reports whether the run-th run of n flows passes.
		carries    func(n, run int) bool
		want, runs int
	}{
		// 32, 64 and 96 once, then 96 a second time.
		{"all", 96, func(int, int) bool { return true }, 96, 4},
		{"few allowed", 20, func(int, int) bool { return true }, 20, 2},
		// 32; 64 twice; 48, 56 and 52 in two runs each.
		{"some", 96, func(n, _ int) bool { return n <= 50 }, 48, 9},
		// 32, 16, 8, 4, 2 and 1, each twice.
		{"none", 96, func(int, int) bool { return false }, 0, 12},
		{"one", 96, func(n, _ int) bool { return n == 1 }, 1, 12},
		// One run of three may fail: of 32 and of 48 the first does.
		{"a bad moment", 96, func(n, run int) bool { return n <= 48 && run > 0 }, 48, 11},
		// 64 passes once by chance: after 96, 80 and 72 it is judged again, and 32 to 64 searched.
		{"one run at 64", 96, func(n, run int) bool { return n <= 40 || n == 64 && run == 0 }, 40, 16},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			runs, total := make(map[int]int), 0
			got, err := mostCarried(tt.most, func(n int, again bool) (bool, error) {
				if n < 1 || n > tt.most {
					t.Fatalf("a run of %d flows", n)
				}
				if again != (runs[n] > 0) {
					t.Errorf("%d: again = %v after %d runs", n, again, runs[n])
				}
				runs[n]++
				total++
				return tt.carries(n, runs[n]-1), nil
			})
			if err != nil || got != tt.want || total != tt.runs {
				t.Errorf("%d flows in %d runs %v (%v), want %d in %d", got, total, runs, err, tt.want, tt.runs)
			}
		})
	}
	broken := errors.New("broken")
	if _, err := mostCarried(96, func(int, bool) (bool, error) { return false, broken }); !errors.Is(err, broken) {
		t.Errorf("error %v", err)
	}
}
