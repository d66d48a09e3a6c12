// Package reference generates documentation from the command tree: Markdown and man
// pages. The program itself does not import it.
package reference

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"testbed/emu/cli"
)

// lineWidth is the number of columns of flag lists.
const lineWidth = 100

// examples is the largest number of lines of examples of a command in Markdown.
const examples = 2

// Markdown returns all commands with their purposes and first examples, except the completion of each
// shell. Their flags, long texts and further examples are in help and man pages.
func Markdown() string {
	root := cli.Command()
	list := slices.DeleteFunc(all(root)[1:], func(c *cobra.Command) bool { return c.Parent().Name() == "completion" })
	var b strings.Builder
	b.WriteString("\n## Exit codes\n\n```\n" + cli.ExitCodes + "```\n")
	b.WriteString("\n## Flags of all commands\n\n```\n" + root.PersistentFlags().FlagUsagesWrapped(lineWidth) + "```\n")
	b.WriteString("\n## Commands and examples\n")
	for _, c := range list {
		fmt.Fprintf(&b, "\n### `%s`\n\n%s.\n", c.CommandPath(), c.Short)
		if c.Example != "" && !c.HasSubCommands() {
			lines := strings.Split(unindent(c.Example), "\n")
			fmt.Fprintf(&b, "\n```sh\n%s\n```\n", strings.Join(lines[:min(len(lines), examples)], "\n"))
		}
	}
	b.WriteString("\n")
	return b.String()
}

// Man writes a man page for every command to a directory that exists.
func Man(dir, version string) error {
	root := cli.Command()
	for _, c := range all(root) {
		c.DisableAutoGenTag = true
		c.Long = paragraphs(cmp.Or(c.Long, c.Short+"."))
		if c == root {
			c.Long += "\n\n# EXIT STATUS\n" + indent(cli.ExitCodes, "\t")
		}
	}
	return doc.GenManTree(root, &doc.GenManHeader{Title: "TESTBED", Section: "1", Source: "testbed " + version, Manual: "testbed"}, dir)
}

// all returns a command and every command below it that help shows, except help itself.
func all(c *cobra.Command) []*cobra.Command {
	list := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		if !sub.Hidden && sub.Name() != "help" {
			list = append(list, all(sub)...)
		}
	}
	return list
}

// markup escapes what Markdown interprets in the text of help.
var markup = strings.NewReplacer("*", `\*`, "<", `\<`, "_", `\_`, "|", `\|`)

// paragraphs returns the text of help as Markdown. Indented lines become a code block, indented
// by a tab.
func paragraphs(text string) string {
	var b strings.Builder
	var block []string
	flush := func() {
		if len(block) == 0 {
			return
		}
		b.WriteString(indent(strings.Join(block, "\n"), "\t") + "\n")
		block = nil
	}
	for line := range strings.SplitSeq(strings.TrimSpace(text), "\n") {
		switch {
		case strings.HasPrefix(line, "  "), strings.HasPrefix(line, "\t"):
			block = append(block, line)
		default:
			flush()
			b.WriteString(markup.Replace(line) + "\n")
		}
	}
	flush()
	return strings.TrimSpace(b.String())
}

// unindent removes the indent of the first line from all lines, as far as they have it.
func unindent(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	by := lines[0][:len(lines[0])-len(strings.TrimLeft(lines[0], " \t"))]
	for i := range lines {
		lines[i] = strings.TrimPrefix(lines[i], by)
	}
	return strings.Join(lines, "\n")
}

func indent(text, by string) string {
	return by + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+by)
}
