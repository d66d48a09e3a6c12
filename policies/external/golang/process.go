//go:build !wasip1

package main

import (
	"bufio"
	"fmt"
	"os"
)

// main answers each line of standard input until its end. What a policy prints belongs to standard error.
func main() {
	in, out := bufio.NewReaderSize(os.Stdin, 1<<16), bufio.NewWriter(os.Stdout)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return
		}
		said, err := answer(line)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		if said != nil {
			_, err = out.Write(append(said, '\n'))
		}
		if err != nil || out.Flush() != nil {
			os.Exit(1)
		}
	}
}
