package cli

import (
	"fmt"
	"io"
	"runtime"

	"github.com/spf13/cobra"
)

// Release is the version of the release that this source tree belongs to. The Makefile, the
// packages and the man pages read it here; CITATION.cff and CHANGELOG.md state it too.
const Release = "0.1.0"

// version is Release for the commit that is tagged v0.1.0, otherwise with the commit, such as
// 0.1.0+273002a. It is set when the binary is linked.
var version = Release + "+unknown"

// build describes the program.
type build struct {
	Version string `json:"version"`
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
}

func built() build { return build{version, runtime.Version(), runtime.GOOS, runtime.GOARCH} }

func (b build) String() string {
	return fmt.Sprintf("testbed %s (%s, %s/%s)\n", b.Version, b.Go, b.OS, b.Arch)
}

func (a *app) versionCmd() *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: exactly(0),
		Example: "  testbed version --json",
		RunE: func(*cobra.Command, []string) error {
			return a.print(built(), func(w io.Writer) error {
				_, err := io.WriteString(w, built().String())
				return err
			})
		},
	}
}
