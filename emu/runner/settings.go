package runner

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"testbed/results/report"
)

// omittedKeys are the keys of a manifest that a report leaves out: they are unknown
// before it is written, or the report states the same itself.
var omittedKeys = []string{"state", "ended", "error", "partial", "files", "sha256"}

// settingsOf returns the lines of a manifest in its order. Nested keys are joined with
// points, and empty values are left out.
func settingsOf(manifest any) ([]report.Setting, error) {
	b, err := json.Marshal(manifest)
	if err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var out []report.Setting
	if err := flatten(d, "", func(key, value string) {
		if value != "" && !slices.Contains(omittedKeys, strings.SplitN(key, ".", 2)[0]) {
			out = append(out, report.Setting{Key: key, Value: value})
		}
	}); err != nil {
		return nil, fmt.Errorf("manifest: %w", err)
	}
	return out, nil
}

// flatten reads one value and calls found for each leaf. A list is one leaf.
func flatten(d *json.Decoder, key string, found func(key, value string)) error {
	t, err := d.Token()
	if err != nil {
		return err
	}
	switch t {
	case json.Delim('{'):
		for d.More() {
			name, err := d.Token()
			if err != nil {
				return err
			}
			if err := flatten(d, strings.TrimPrefix(fmt.Sprintf("%s.%v", key, name), "."), found); err != nil {
				return err
			}
		}
	case json.Delim('['):
		var all []string
		for d.More() {
			if err := flatten(d, "", func(k, v string) {
				if k != "" {
					v = k + " " + v
				}
				all = append(all, v)
			}); err != nil {
				return err
			}
		}
		found(key, strings.Join(all, "; "))
	default:
		if t != nil {
			found(key, fmt.Sprint(t))
		}
		return nil
	}
	if _, err := d.Token(); err != nil && err != io.EOF { // the closing bracket
		return err
	}
	return nil
}
