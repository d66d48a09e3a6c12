// Command testbed emulates leaf-spine fabrics out of network namespaces and
// compares cluster policies on them by what captured packets show.
package main

import (
	"os"

	"testbed/emu/cli"
)

func main() { os.Exit(cli.Process()) }
