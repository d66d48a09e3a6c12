// Command testbed emulates leaf-spine fabrics out of network namespaces and
// compares cluster policies on them by what captured packets show.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"testbed/emu/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	code := cli.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
