// Package scaffold has the files with which a new policy begins: its source, what that needs, and a scenario that compares
// it with a policy of the program.
//
// It writes no files.
package scaffold

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"testbed/policies/catalog"
	"testbed/policies/external"
	"testbed/topo/words"
)

// The languages.
const (
	Go     = "go"
	Python = "python"
	Wasm   = "wasm"
)

// Languages returns the languages.
func Languages() []string { return []string{Go, Python, Wasm} }

//go:embed templates
var templates embed.FS

// role is what differs among roles: the examples of package external, and the policy of the program to compare with.
type role struct{ golang, python, baseline string }

var roles = map[string]role{
	catalog.RoleCoflow:    {"coflow.go", "smallest_first.py", "{name: lcf, allocation: greedy}"},
	catalog.RolePlacement: {"placement.go", "least_loaded.py", "hdfs"},
	catalog.RoleTask:      {"tasks.go", "oldest_first.py", "{name: fifo, heartbeat_reduces: 0, heartbeat_off_rack: 0, load_factor: false}"},
}

// File is a file of a new policy.
type File struct {
	Name string // in the directory
	Data []byte
}

var plain = regexp.MustCompile(`^[a-z][a-z0-9_-]*$`)

// reserved are names of files that do not belong to the policy alone.
var reserved = []string{"testbed", "process", "module", "messages"}

// Files returns the files of a policy. The error joins all errors in the arguments.
func Files(name, of, language string) ([]File, error) {
	var errs []error
	if !plain.MatchString(name) || slices.Contains(reserved, name) || strings.HasSuffix(name, "_test") {
		errs = append(errs, fmt.Errorf("name %q: must be of a-z, 0-9, _ and -, begin with a letter, and not be %s or end with _test", name, words.Or(reserved)))
	}
	r, ok := roles[of]
	if !ok {
		errs = append(errs, fmt.Errorf("role %q: must be %s", of, words.Or(catalog.All().Roles())))
	}
	if !slices.Contains(Languages(), language) {
		errs = append(errs, fmt.Errorf("language %q: must be %s", language, words.Or(Languages())))
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	in := struct{ Name, Role, Language, Baseline, Arm, Build, Flag, Source string }{Name: name, Role: of, Language: language, Baseline: r.baseline}
	var files []File
	example := func(from, to string) {
		data, err := external.Examples.ReadFile(from)
		errs = append(errs, err)
		own := strings.NewReplacer("Command golang", "Command "+name, "testbed/policies/external/messages", name+"/messages")
		files = append(files, File{to, []byte(own.Replace(string(data)))})
	}
	if language == Python {
		in.Source = name + ".py"
		in.Arm, in.Flag = fmt.Sprintf("{exec: [python3, %s], files: [testbed.py]}", in.Source), fmt.Sprintf("--exec 'python3 %s'", in.Source)
		example("python/"+r.python, in.Source)
		example("python/testbed.py", "testbed.py")
	} else {
		in.Source = name + ".go"
		in.Arm, in.Flag, in.Build = fmt.Sprintf("{exec: [./%s]}", name), "--exec ./"+name, "go build -o "+name
		if language == Wasm {
			in.Arm, in.Flag = fmt.Sprintf("{wasm: %s.wasm}", name), fmt.Sprintf("--wasm %s.wasm", name)
			in.Build = fmt.Sprintf("GOOS=wasip1 GOARCH=wasm go build -buildmode=c-shared -o %s.wasm", name)
		}
		example("golang/"+r.golang, in.Source)
		for _, shared := range []string{"testbed.go", "process.go", "module.go"} {
			example("golang/"+shared, shared)
		}
		example("messages/messages.go", "messages/messages.go")
		files = append(files, File{"go.mod", fmt.Appendf(nil, "module %s\n\ngo 1.24\n", name)})
	}
	texts := map[string]string{of + ".yaml": "scenario.yaml", "README.md": "README.md"}
	if of == catalog.RoleCoflow {
		texts["coflows.txt"] = "coflows.txt"
	}
	for from, to := range texts {
		t, err := template.ParseFS(templates, "templates/"+from)
		if err != nil {
			return nil, err
		}
		var b bytes.Buffer
		errs = append(errs, t.Execute(&b, in))
		files = append(files, File{to, b.Bytes()})
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Name, b.Name) })
	return files, errors.Join(errs...)
}
