package scenario

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"testbed/policies/catalog"
	"testbed/results/safefile"
	"testbed/topo/yamltree"
)

// readPolicies reads the files of policies outside of the program: modules, and the files that commands name. In the
// edited text it sets their paths to the names that Files gives them.
func (s *Scenario) readPolicies(sub *substituter, o Options) {
	s.policies = map[string]loadedTrace{}
	for _, p := range sub.policies {
		switch at := yamltree.Join(p.path, p.Name); p.Name {
		case catalog.Wasm:
			s.readPolicy(sub, at, p.Params[catalog.Wasm].(string), true, o)
		case catalog.Exec:
			for i, word := range p.Params[catalog.Exec].([]any) {
				s.readPolicy(sub, fmt.Sprintf("%s[%d]", at, i), word.(string), false, o)
			}
			files, _ := p.Params[catalog.Files].([]any)
			for i, name := range files {
				s.readPolicy(sub, fmt.Sprintf("%s[%d]", yamltree.Join(p.path, catalog.Files), i), name.(string), true, o)
			}
		}
	}
}

// readPolicy reads a file. What a command names may be no file.
func (s *Scenario) readPolicy(sub *substituter, at, name string, required bool, o Options) {
	n := sub.at[at]
	if n == nil || !sub.sound(at, "limits.trace") {
		return
	}
	if !required && (strings.HasPrefix(name, "-") || strings.HasSuffix(at, "[0]") && !strings.Contains(name, "/")) {
		return // an option, or a program of PATH
	}
	t, known := s.policies[name]
	if !known {
		file := filepath.FromSlash(name)
		if !filepath.IsAbs(file) {
			file = filepath.Join(filepath.Dir(sub.file), file)
		}
		open := o.Open
		if open == nil {
			open = func(name string) (fs.File, error) { return safefile.Open(name) }
		}
		f, err := open(file)
		if err == nil {
			defer f.Close() // only read from: closing loses no data
			t.file.Data, err = readAll(f, int64(s.Spec.Limits.Trace))
		} else if !required {
			return
		}
		if pathErr := (*fs.PathError)(nil); errors.As(err, &pathErr) {
			err = pathErr.Err
		}
		if err != nil {
			sub.fail(n, at, "%s: %v: expected a file of at most %v (limits.trace); paths are relative to the scenario file", clip(file), err, s.Spec.Limits.Trace)
			return
		}
		sum := sha256.Sum256(t.file.Data)
		t.sum = hex.EncodeToString(sum[:])
		t.file.Name = s.policyName(filepath.Base(file))
	}
	if sub.sweptIn[n] {
		var err error
		if t.file.Name, err = sweptName(name); err != nil {
			sub.fail(n, at, "%v", err)
		}
	}
	s.policies[name] = t
	sub.place(n, at, t.file.Name)
}

// policyName returns the unique name under which Files stores the file of a policy. Its last part stays, because the
// arm is named after it.
func (s *Scenario) policyName(base string) string {
	for i := 1; ; i++ {
		name := path.Join("policies", base)
		if i > 1 {
			name = path.Join("policies", fmt.Sprint(i), base)
		}
		taken := false
		for _, t := range s.policies {
			taken = taken || t.file.Name == name
		}
		if !taken {
			return name
		}
	}
}

// PolicyFile returns the file of a policy at a path of the scenario.
func (s *Scenario) PolicyFile(name string) ([]byte, error) {
	if t, ok := s.policies[name]; ok {
		return t.file.Data, nil
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

// withPolicyPaths returns arms with other paths of the files of their policies.
func (s *Scenario) withPolicyPaths(arms Arms, path func(loadedTrace) string) Arms {
	if len(s.policies) == 0 {
		return arms
	}
	other := func(x any) any {
		if name, ok := x.(string); ok {
			if t, ok := s.policies[name]; ok {
				return path(t)
			}
		}
		return x
	}
	arms = slices.Clone(arms)
	for i, a := range arms {
		changed := map[string]Policy{}
		for role, p := range a.Policies {
			if catalog.IsExternal(p.Name) {
				params := map[string]any{}
				for key, value := range p.Params {
					params[key] = value
				}
				for _, key := range []string{catalog.Exec, catalog.Files} {
					if words, ok := params[key].([]any); ok {
						words = slices.Clone(words)
						for j := range words {
							words[j] = other(words[j])
						}
						params[key] = words
					}
				}
				if p.Name == catalog.Wasm {
					params[catalog.Wasm] = other(params[catalog.Wasm])
				}
				p.Params = params
			}
			changed[role] = p
		}
		arms[i].Policies = changed
	}
	return arms
}
