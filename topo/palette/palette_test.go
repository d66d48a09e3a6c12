package palette

import (
	"fmt"
	"image/color"
	"math"
	"strings"
	"testing"
)

// luminance is the relative luminance of WCAG 2, between 0 and 1.
func luminance(c Colour) float64 {
	linear := func(x Colour) float64 {
		v := float64(x&255) / 255
		if v <= 0.04045 {
			return v / 12.92
		}
		return math.Pow((v+0.055)/1.055, 2.4)
	}
	return 0.2126*linear(c>>16) + 0.7152*linear(c>>8) + 0.0722*linear(c)
}

func contrast(a, b Colour) float64 {
	x, y := luminance(a)+0.05, luminance(b)+0.05
	return max(x, y) / min(x, y)
}

// Loads get darker on light ground and lighter on dark ground, and the smallest is visible as a line.
func TestLoadsDifferInLightness(t *testing.T) {
	ground := Of("ground")
	for name, of := range map[string]func(Tone) Colour{"light": func(t Tone) Colour { return t.Light }, "dark": func(t Tone) Colour { return t.Dark }} {
		last := contrast(of(Load(0)), of(ground))
		if last < 1.25 {
			t.Errorf("%s: contrast of no load with the ground %.2f, want 1.25 or more", name, last)
		}
		for x := 0.05; x < 1.01; x += 0.05 {
			c := contrast(of(Load(x)), of(ground))
			if c <= last {
				t.Errorf("%s: contrast %.2f of load %.2f, after %.2f", name, c, x, last)
			}
			last = c
		}
	}
	if Load(-1) != Load(0) || Load(math.Inf(1)) != Load(1) || Load(1) != loads[len(loads)-1] {
		t.Error("loads beyond [0, 1] have other colours")
	}
}

// Lines of arms are visible on both grounds, and all tones of arms differ.
func TestArms(t *testing.T) {
	seen := map[Tone]bool{}
	for i := range Arms {
		x := Arm(i)
		if seen[x] || contrast(x.Light, 0xffffff) < 2.9 || contrast(x.Dark, Of("ground").Dark) < 4.5 {
			t.Errorf("arm %d: %v, contrast %.2f and %.2f", i, x, contrast(x.Light, 0xffffff), contrast(x.Dark, Of("ground").Dark))
		}
		seen[x] = true
	}
	if Arm(Arms) != Arm(0) {
		t.Error("the tones of arms do not repeat")
	}
}

// Every thing has a tone with a name, a class that the style sheet has, and its variables in both themes.
func TestStyleSheet(t *testing.T) {
	css := CSS()
	for thing, name := range things {
		if !strings.Contains(css, "."+Class(thing)+"{--c:var("+Variable(thing)+")}") || strings.Count(css, ";--"+name+":") != 3 {
			t.Errorf("%s: no class %s or variable --%s", thing, Class(thing), name)
		}
		if name != "grey" && Of(thing) == Of("grey") {
			t.Errorf("%s: %s is no name of a tone", thing, name)
		}
	}
	if Known("ink") || Class("ink") != "of-grey" || Of("no such thing") != Of("grey") {
		t.Error("what is no thing has a tone of its own")
	}
}

func TestColour(t *testing.T) {
	c := Colour(0x0a72b2)
	if got := color.RGBAModel.Convert(c); got != (color.RGBA{0x0a, 0x72, 0xb2, 255}) || fmt.Sprint(c) != "#0a72b2" {
		t.Errorf("%v, %v", got, c)
	}
	if got := c.Mix(0xffffff, 1); got != 0xffffff {
		t.Errorf("mixed %v", got)
	}
	if got := Colour(0).Mix(0xff0080, 0.5); got != 0x800040 {
		t.Errorf("mixed %v", got)
	}
}
