package external

import (
	"time"

	"testbed/policies/external/messages"
)

// scanner reads JSON of the most frequent form: numbers that are integers, strings without escapes, lists and objects.
// Anything else sets other.
type scanner struct {
	b     []byte // what is left
	other bool
}

// scan decodes a schedule. It reports whether it could: json.Unmarshal decodes any other message, and would take a seventh
// of the processor time of a policy in WebAssembly on the Facebook trace.
func (a *answer) scan(line []byte) bool {
	s := scanner{b: line}
	s.object(func(key []byte) {
		switch string(key) {
		case "type":
			a.Type = s.name([]string{"schedule"})
		case "n":
			a.N = int(s.number())
		case "wake":
			a.Wake = time.Duration(s.number())
		case "queues":
			a.Queues = numbersOf(&s, a.Queues)
		case "watch":
			a.Watch = numbersOf(&s, a.Watch)
		case "pilots":
			a.Pilots = numbersOf(&s, a.Pilots)
		case "steps":
			a.Steps = a.Steps[:0]
			s.list(func() { a.Steps = append(a.Steps, s.step()) })
		default:
			s.other = true
		}
	})
	return !s.other && len(s.b) == 0
}

func (s *scanner) step() (st messages.Step) {
	s.object(func(key []byte) {
		switch string(key) {
		case "rule":
			st.Rule = s.name(Rules)
		case "part":
			st.Part = s.name(Parts)
		case "only":
			st.Only = s.name(Onlys)
		case "coflows":
			st.Coflows = numbersOf(s, st.Coflows)
		case "budget":
			st.Budget = int(s.number())
		case "within":
			st.Within = time.Duration(s.number())
		default:
			s.other = true
		}
	})
	return st
}

// next skips spaces and reports whether a byte follows, which it then takes.
func (s *scanner) next(c byte) bool {
	for len(s.b) > 0 && (s.b[0] == ' ' || s.b[0] == '\t' || s.b[0] == '\n' || s.b[0] == '\r') {
		s.b = s.b[1:]
	}
	if len(s.b) == 0 || s.b[0] != c {
		return false
	}
	s.b = s.b[1:]
	return true
}

// must takes a byte that has to follow.
func (s *scanner) must(c byte) {
	if !s.next(c) {
		s.other = true
	}
}

// elements calls each for the elements between two brackets.
func (s *scanner) elements(first, last byte, each func()) {
	s.must(first)
	if s.next(last) {
		return
	}
	for more := true; more && !s.other; more = s.next(',') {
		each()
	}
	s.must(last)
}

func (s *scanner) list(each func()) { s.elements('[', ']', each) }

func (s *scanner) object(each func(key []byte)) {
	s.elements('{', '}', func() {
		key := s.text()
		s.must(':')
		each(key)
	})
}

func (s *scanner) text() []byte {
	s.must('"')
	for i, c := range s.b {
		if c == '"' {
			text := s.b[:i]
			s.b = s.b[i+1:]
			return text
		}
		if c < ' ' || c > '~' || c == '\\' {
			break
		}
	}
	s.other = true
	return nil
}

// name returns one of some names.
func (s *scanner) name(of []string) string {
	text := s.text()
	for _, name := range of {
		if name == string(text) {
			return name
		}
	}
	s.other = true
	return ""
}

func (s *scanner) number() (n int64) {
	negative := s.next('-') // skips spaces
	digits := 0
	for digits < len(s.b) && '0' <= s.b[digits] && s.b[digits] <= '9' {
		n = 10*n + int64(s.b[digits]-'0')
		digits++
	}
	const most = 18 // digits that fit
	if digits == 0 || digits > most || s.b[0] == '0' && digits > 1 {
		s.other = true
		return 0
	}
	if s.b = s.b[digits:]; len(s.b) > 0 && (s.b[0] == '.' || s.b[0] == 'e' || s.b[0] == 'E') {
		s.other = true
	}
	if negative {
		return -n
	}
	return n
}

// numbersOf reads a list of numbers into the memory of to.
func numbersOf[N ~int | ~int64](s *scanner, to []N) []N {
	if to = to[:0]; to == nil {
		to = []N{}
	}
	s.list(func() { to = append(to, N(s.number())) })
	return to
}
