package cli

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"testbed/emu/longtest"
)

// commands returns root and every command below it that help shows.
func commands(root *cobra.Command) []*cobra.Command {
	list := []*cobra.Command{root}
	for _, c := range root.Commands() {
		if !c.Hidden {
			list = append(list, commands(c)...)
		}
	}
	return list
}

// meaning is the text of a flag up to the part that is specific to one command, which is in
// parentheses.
func meaning(f *pflag.Flag) string {
	text, _, _ := strings.Cut(f.Usage, " (")
	return text
}

// A flag name has one shorthand, type and meaning in all commands, and a shorthand
// stands for one flag.
func TestFlagsAreConsistent(t *testing.T) {
	type use struct {
		flag *pflag.Flag
		in   string
	}
	first, short := map[string]use{}, map[string]use{}
	for _, c := range commands(Command()) {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Hidden {
				return
			}
			this := use{f, c.CommandPath()}
			if f.Usage == "" || strings.HasSuffix(f.Usage, ".") {
				t.Errorf("%s --%s: help %q: must be a phrase without a period", this.in, f.Name, f.Usage)
			}
			other, ok := first[f.Name]
			if !ok {
				first[f.Name] = this
				other = this
			}
			for _, x := range []struct{ what, a, b string }{
				{"shorthand", f.Shorthand, other.flag.Shorthand}, {"type", f.Value.Type(), other.flag.Value.Type()}, {"meaning", meaning(f), meaning(other.flag)},
			} {
				if x.a != x.b {
					t.Errorf("--%s: %s differs: %q in %s, %q in %s", f.Name, x.what, x.b, other.in, x.a, this.in)
				}
			}
			if f.Shorthand == "" {
				return
			}
			if other, ok := short[f.Shorthand]; ok && other.flag.Name != f.Name {
				t.Errorf("-%s is --%s in %s, --%s in %s", f.Shorthand, other.flag.Name, other.in, f.Name, this.in)
			}
			short[f.Shorthand] = this
		})
	}
	if len(first) < 50 {
		t.Errorf("%d flags: the walk missed some", len(first))
	}
}

// verbs begin the short texts of commands. A new command may add one.
var verbs = []string{"Build", "Check", "Compare", "Compute", "Convert", "Derive", "Describe", "Draw", "Emulate", "Export", "Filter", "Generate", "Inject", "List",
	"Measure", "Merge", "Open", "Print", "Recompute", "Remove", "Run", "Scale", "Show", "Simulate", "Write"}

// Every command has a short text that is an imperative, and a long text or an example.
func TestCommandsAreDescribed(t *testing.T) {
	list := commands(Command())
	if len(list) < 30 {
		t.Errorf("%d commands: the walk missed some", len(list))
	}
	for _, c := range list {
		name := c.CommandPath()
		verb := strings.TrimRight(strings.Fields(c.Short)[0], ",")
		switch {
		case strings.HasSuffix(c.Short, "."):
			t.Errorf("%s: short text %q ends in a period", name, c.Short)
		case !slices.Contains(verbs, verb):
			t.Errorf("%s: short text %q does not begin with a known imperative", name, c.Short)
		case c.Long == "" && c.Example == "":
			t.Errorf("%s has neither a long text nor an example", name)
		case len(c.Short) > 80:
			t.Errorf("%s: short text has %d bytes, expected 80 or fewer", name, len(c.Short))
		}
	}
}

// Every example is a command line that the command accepts: known commands and flags,
// values of the right types, the right number of arguments. Files that begin with
// scripts/ exist.
func TestExamplesParse(t *testing.T) {
	t.Parallel()
	longtest.Computes(t)
	n := 0
	for _, c := range commands(Command()) {
		for line := range strings.Lines(c.Example) {
			for _, words := range testbedCommands(line) {
				n++
				if err := accepts(words); err != nil {
					t.Errorf("%s: example %q: %v", c.CommandPath(), strings.TrimSpace(line), err)
				}
				for _, w := range words {
					if strings.HasPrefix(w, "scripts/") {
						if _, err := os.Stat("../../" + w); err != nil {
							t.Errorf("%s: example %q: %v", c.CommandPath(), strings.TrimSpace(line), err)
						}
					}
				}
			}
		}
	}
	if n < 60 {
		t.Errorf("%d examples: the walk missed some", n)
	}
}

// testbedCommands returns the arguments of each testbed command of a shell line without
// expansions other than quotes.
func testbedCommands(line string) (list [][]string) {
	var words []string
	flush := func() {
		if len(words) > 0 && words[0] == "sudo" {
			words = words[1:]
		}
		if len(words) > 0 && words[0] == "testbed" {
			list = append(list, words[1:])
		}
		words = nil
	}
	word, in, quote := "", false, rune(0)
	end := func() {
		if in {
			words = append(words, word)
		}
		word, in = "", false
	}
	for _, r := range line {
		switch {
		case quote != 0:
			if r == quote {
				quote = 0
			} else {
				word += string(r)
			}
		case r == '\'' || r == '"':
			quote, in = r, true
		case r == ' ' || r == '\n':
			end()
		case strings.ContainsRune("|&;>#", r):
			end()
			if r == '>' || r == '#' { // a redirection or comment ends what matters
				flush()
				return list
			}
			flush()
		default:
			word, in = word+string(r), true
		}
	}
	end()
	flush()
	return list
}

// accepts parses a command line without running it.
func accepts(args []string) error {
	root := Command()
	c, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	if err := c.ParseFlags(rest); errors.Is(err, pflag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if !c.Runnable() {
		return fmt.Errorf("%s is no command to run", c.CommandPath())
	}
	return c.ValidateArgs(c.Flags().Args())
}
