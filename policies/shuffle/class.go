package shuffle

// Class is the amount of shuffle of a job relative to its input.
type Class uint8

// The classes.
const (
	Light Class = iota
	Medium
	Heavy
)

// Bounds of the classes by shuffle input ratio (ShuffleWatcher, section on job profiles); a job at a bound is Medium.
const (
	LightBelow = 0.3
	HeavyAbove = 0.8
)

// UnknownSIR is the shuffle input ratio of a job of which nothing is known: the middle of Medium. It is ours.
const UnknownSIR = (LightBelow + HeavyAbove) / 2

// SIR returns a typical shuffle input ratio of a class. The values are ours.
func (c Class) SIR() float64 {
	return [...]float64{Light: 0.1, Medium: UnknownSIR, Heavy: 1}[min(c, Heavy)]
}

// ClassOf returns the class of a shuffle input ratio.
func ClassOf(sir float64) Class {
	switch {
	case sir > HeavyAbove:
		return Heavy
	case sir < LightBelow:
		return Light
	default:
		return Medium
	}
}
