package fluid

import "math"

// slowFluid is one fluid of the slow model: the number of times that it crosses each
// resource, and its ceiling.
type slowFluid struct {
	times   map[int]float64
	ceiling float64
}

// slowMaxMin is the textbook's progressive filling: raise the rates of all fluids
// together by the largest step that neither overfills a resource nor exceeds a ceiling,
// freeze the fluids that cannot rise further, and repeat.
func slowMaxMin(fluids []slowFluid, capacity []float64) []float64 {
	rate := make([]float64, len(fluids))
	stopped := make([]bool, len(fluids))
	residual := append([]float64(nil), capacity...)
	for {
		step := math.Inf(1)
		weight := make([]float64, len(capacity))
		moving := 0
		for i, f := range fluids {
			if stopped[i] {
				continue
			}
			moving++
			step = min(step, f.ceiling-rate[i])
			for r, times := range f.times {
				weight[r] += times
			}
		}
		if moving == 0 {
			return rate
		}
		for r, w := range weight {
			if w > 0 {
				step = min(step, residual[r]/w)
			}
		}
		for i, f := range fluids {
			if stopped[i] {
				continue
			}
			rate[i] += step
			for r, times := range f.times {
				residual[r] -= times * step
			}
		}
		for i, f := range fluids {
			if stopped[i] {
				continue
			}
			stopped[i] = rate[i] >= f.ceiling
			for r := range f.times {
				if residual[r] <= 1e-9*capacity[r] {
					stopped[i] = true
				}
			}
		}
	}
}
