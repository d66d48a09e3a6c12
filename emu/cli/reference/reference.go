// Package reference generates documentation from the command tree: Markdown and man
// pages. The program itself does not import it.
package reference

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"

	"testbed/emu/cli"
)

// Markdown returns all commands with their purposes, by group, except the completion of each shell. Their
// flags, long texts and examples are in help and man pages.
func Markdown() string {
	root := cli.Command()
	var b strings.Builder
	b.WriteString("\n## Exit codes\n\n```\n" + cli.ExitCodes + "```\n")
	for _, group := range root.Groups() {
		fmt.Fprintf(&b, "\n## %s\n\n", strings.TrimSuffix(group.Title, ":"))
		for _, c := range root.Commands() {
			if c.GroupID != group.ID {
				continue
			}
			for _, c := range all(c) {
				if c.Parent().Name() != "completion" {
					fmt.Fprintf(&b, "- `%s`: %s\n", strings.TrimPrefix(c.CommandPath(), "testbed "), c.Short)
				}
			}
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

func indent(text, by string) string {
	return by + strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+by)
}
