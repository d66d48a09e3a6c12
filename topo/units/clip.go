package units

import (
	"regexp"
	"unicode/utf8"
)

// MaxEcho is the number of characters of its input that an error message repeats.
const MaxEcho = 60

// Clip returns s cut after MaxEcho characters, with an ellipsis if it is longer.
func Clip(s string) string {
	if len(s) <= MaxEcho {
		return s
	}
	at := 0
	for range MaxEcho {
		if at >= len(s) {
			return s
		}
		_, size := utf8.DecodeRuneInString(s[at:])
		at += size
	}
	if at == len(s) {
		return s
	}
	return s[:at] + "…"
}

var quoted = regexp.MustCompile(`"((?:[^"\\\n]|\\.)*)"`)

// ClipQuoted returns text with each part between double quotes, as %q prints it, cut as
// Clip does. It is for messages by other packages.
func ClipQuoted(text string) string {
	return quoted.ReplaceAllStringFunc(text, func(q string) string {
		body := q[1 : len(q)-1]
		cut := Clip(body)
		if cut == body {
			return q
		}
		// Leave out an escape sequence that the cut has split.
		for i := 0; i < len(cut); i++ {
			if cut[i] == '\\' {
				if i+1 >= len(cut)-len("…") {
					return `"` + cut[:i] + `…"`
				}
				i++
			}
		}
		return `"` + cut + `"`
	})
}
