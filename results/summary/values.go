package summary

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Values are figures of an arm in order, an object of summary.json. Points in their keys separate levels of
// objects; a level whose keys are numbers is a list.
type Values []Value

// Value is one figure, or a list of texts.
type Value struct {
	Key   string
	X     float64
	Texts []string
}

// Get returns the figure with a key; false if there is none.
func (v Values) Get(key string) (x float64, ok bool) {
	i := slices.IndexFunc(v, func(x Value) bool { return x.Key == key })
	if i < 0 {
		return 0, false
	}
	return v[i].X, true
}

// Texts returns the texts with a key.
func (v Values) Texts(key string) []string {
	for _, x := range v {
		if x.Key == key {
			return x.Texts
		}
	}
	return nil
}

// Has reports whether there are figures with a key or below it.
func (v Values) Has(key string) bool {
	return slices.ContainsFunc(v, func(x Value) bool { return x.Key == key || strings.HasPrefix(x.Key, key+".") })
}

// Below returns the figures below a key, with the rest of their keys.
func (v Values) Below(key string) (out Values) {
	for _, x := range v {
		if rest, ok := strings.CutPrefix(x.Key, key+"."); ok {
			x.Key = rest
			out = append(out, x)
		}
	}
	return out
}

// Rows returns the objects of a list.
func (v Values) Rows(key string) (out []Values) {
	for _, x := range v.Below(key) {
		index, own, _ := strings.Cut(x.Key, ".")
		i, err := strconv.Atoi(index)
		if err != nil || i < 0 || i > len(out) {
			continue
		}
		if i == len(out) {
			out = append(out, nil)
		}
		x.Key = own
		out[i] = append(out[i], x)
	}
	return out
}

// level is a level of an object while it is written.
type level struct {
	keys []string // in order of their first figures
	of   map[string]*level
	json []byte // of a figure
}

func (l *level) at(key string) *level {
	if l.of[key] == nil {
		if l.of == nil {
			l.of = map[string]*level{}
		}
		l.keys, l.of[key] = append(l.keys, key), &level{}
	}
	return l.of[key]
}

// MarshalJSON writes the figures as one object.
func (v Values) MarshalJSON() ([]byte, error) {
	root := &level{}
	for _, x := range v {
		l := root
		for key := range strings.SplitSeq(x.Key, ".") {
			l = l.at(key)
		}
		var value any = x.X
		if x.Texts != nil {
			value = x.Texts
		}
		text, err := json.Marshal(value)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", x.Key, err)
		}
		l.json = text
	}
	return root.append(nil), nil
}

func (l *level) append(b []byte) []byte {
	if l.json != nil {
		return append(b, l.json...)
	}
	ends := "{}"
	if len(l.keys) > 0 && number(l.keys[0]) {
		ends = "[]"
	}
	b = append(b, ends[0])
	for i, key := range l.keys {
		if i > 0 {
			b = append(b, ',')
		}
		if ends == "{}" {
			text, _ := json.Marshal(key) // a string always marshals
			b = append(append(b, text...), ':')
		}
		b = l.of[key].append(b)
	}
	return append(b, ends[1])
}

func number(key string) bool {
	_, err := strconv.Atoi(key)
	return err == nil
}

// mostLevels bounds the levels of an object that is read.
const mostLevels = 10

// UnmarshalJSON reads figures in the order in which they were written. Keys that this version does not know are kept.
func (v *Values) UnmarshalJSON(data []byte) error {
	d := json.NewDecoder(bytes.NewReader(data))
	*v = Values{}
	return v.read(d, "", 0)
}

// read reads a value whose key is that of its parent.
func (v *Values) read(d *json.Decoder, key string, depth int) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	switch x := token.(type) {
	case float64:
		*v = append(*v, Value{Key: key, X: x})
		return nil
	case string:
		list := len(*v) - 1
		parent, index, _ := cutLast(key)
		if !number(index) {
			return fmt.Errorf("%s: text: must be a number", key)
		}
		if index == "0" {
			*v = append(*v, Value{Key: parent})
			list++
		}
		if list < 0 || (*v)[list].Key != parent {
			return fmt.Errorf("%s: text among numbers", key)
		}
		(*v)[list].Texts = append((*v)[list].Texts, x)
		return nil
	case nil:
		return nil
	case json.Delim:
		if depth == mostLevels {
			return errors.New("too many levels")
		}
		for i := 0; d.More(); i++ {
			below := strconv.Itoa(i)
			if x == '{' {
				name, err := d.Token()
				if err != nil {
					return err
				}
				below = name.(string) // of an object
			}
			if key != "" {
				below = key + "." + below
			}
			if err := v.read(d, below, depth+1); err != nil {
				return err
			}
		}
		_, err = d.Token()
		return err
	}
	return fmt.Errorf("%s: %v: must be a number", key, token)
}

// cutLast splits a key at its last point.
func cutLast(key string) (parent, last string, ok bool) {
	i := strings.LastIndexByte(key, '.')
	if i < 0 {
		return "", key, false
	}
	return key[:i], key[i+1:], true
}
