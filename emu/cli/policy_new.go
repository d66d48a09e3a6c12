package cli

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"testbed/emu/scaffold"
	"testbed/policies/catalog"
	"testbed/results/safefile"
	"testbed/topo/words"
)

// created is the JSON of a new policy.
type created struct {
	Directory string   `json:"directory"`
	Files     []string `json:"files"`
}

func (a *app) policyNewCmd() *cobra.Command {
	var role, language, out string
	cmd := &cobra.Command{
		Use: "new NAME", Short: "Write a policy to begin with, and a scenario that runs it",
		Long: `New writes a policy of a role and a language into a directory of its name: the source, what it needs to
talk with the program, a scenario that compares it with a policy of the program, and a README with
the commands. Policies of coflows and tasks decide as that policy does. In Go, the same source is a
process (go) or a WebAssembly module (wasm). No file is replaced.`,
		Example: `  testbed policy new mine
  testbed policy new mine --role tasks --lang go -o policies/mine
  testbed policy new mine --role placement --lang wasm`,
		Args: exactly(1),
		RunE: func(_ *cobra.Command, args []string) error {
			files, err := scaffold.Files(args[0], role, language)
			if err != nil {
				return usageError{fmt.Errorf("policy new: %w", err)}
			}
			done := created{Directory: out}
			if done.Directory == "" {
				done.Directory = args[0]
			}
			if err := writeNew(done.Directory, files); err != nil {
				return err
			}
			for _, f := range files {
				done.Files = append(done.Files, f.Name)
			}
			return a.print(done, func(w io.Writer) error {
				_, err := fmt.Fprintf(w, "wrote %s: %s\nnext: cd %s && cat README.md\n", done.Directory, strings.Join(done.Files, ", "), quote(done.Directory))
				return err
			})
		},
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	addRole(cmd, &role, catalog.RoleCoflow, "that it has")
	cmd.Flags().StringVar(&language, "lang", scaffold.Python, "language ("+words.Or(scaffold.Languages())+")")
	completer(cmd)("lang", cobra.FixedCompletions(scaffold.Languages(), cobra.ShellCompDirectiveNoFileComp))
	addOutput(cmd, &out, "", "directory, default: one with the name of the policy")
	return cmd
}

// writeNew writes files into a directory, all or none. The error names all that exist.
func writeNew(dir string, files []scaffold.File) (err error) {
	var errs []error
	for _, f := range files {
		path := filepath.Join(dir, f.Name)
		if _, err := os.Lstat(path); err == nil {
			errs = append(errs, fmt.Errorf("policy new: %s exists and is not replaced", path))
		} else if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("policy new: %w", err))
		}
	}
	if len(errs) > 0 {
		return hinted{errors.Join(errs...), "choose another directory with -o DIR: no file is written"}
	}
	var written []string
	defer func() {
		if err != nil {
			for _, path := range written {
				err = errors.Join(err, os.Remove(path))
			}
		}
	}()
	for _, f := range files {
		path := filepath.Join(dir, f.Name)
		if err := safefile.MkdirAll(filepath.Dir(path)); err != nil {
			return err
		}
		to, err := safefile.Create(path) // fails if it exists by now
		if err != nil {
			return err
		}
		written = append(written, path)
		_, err = to.Write(f.Data)
		if err := errors.Join(err, to.Close()); err != nil {
			return fmt.Errorf("write %s: %w", path, err)
		}
	}
	return nil
}
