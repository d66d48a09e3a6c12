// Command manpages writes the man pages of testbed to a directory that exists:
//
//	go run ./scripts/manpages -version v1.2 DIR
package main

import (
	"flag"
	"fmt"
	"os"

	"testbed/emu/cli/reference"
)

func main() {
	version := flag.String("version", "unknown", "version of testbed in the footer of the pages")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintf(os.Stderr, "manpages: expected 1 directory, got %d arguments\n", flag.NArg())
		os.Exit(2)
	}
	if err := reference.Man(flag.Arg(0), *version); err != nil {
		fmt.Fprintln(os.Stderr, "manpages:", err)
		os.Exit(1)
	}
}
