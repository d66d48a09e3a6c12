package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"testbed/policies/catalog"
	tables "testbed/results/table"
	"testbed/topo/words"
)

func (a *app) policyCmd() *cobra.Command {
	return subcommands(&cobra.Command{
		Use: "policy", Short: "List, write, check and compare policies",
		Long: `Policy has the tools of those who choose or write a policy, of the program or outside of it
(docs/writing-a-policy.md). None requires root.`,
		Example: `  testbed policy list --role coflow
  testbed policy new mine --role coflow --lang python
  testbed policy check --exec 'python3 mine.py'
  testbed policy record runs/latest --arm sebf -o views.jsonl
  testbed policy compare views.jsonl --exec 'python3 mine.py'`,
	}, a.policyListCmd(), a.policyNewCmd(), a.policyCheckCmd(), a.policyRecordCmd(), a.policyCompareCmd())
}

// listedPolicy is the JSON of a policy.
type listedPolicy struct {
	Role       string        `json:"role,omitempty"` // of a policy; its parts have none
	Name       string        `json:"name"`
	Doc        string        `json:"doc"`
	Parameters []listedParam `json:"parameters"`
}

type listedParam struct {
	Name    string         `json:"name"`
	Type    string         `json:"type"`
	Default any            `json:"default,omitempty"`
	Low     any            `json:"low,omitempty"`
	High    any            `json:"high,omitempty"`
	Choices []string       `json:"choices,omitempty"`
	Parts   []listedPolicy `json:"parts,omitempty"`
	Unit    string         `json:"unit,omitempty"`
	Doc     string         `json:"doc"`
}

func listPolicy(role string, e catalog.Entry) listedPolicy {
	out := listedPolicy{Role: role, Name: e.Name, Doc: e.Doc, Parameters: []listedParam{}}
	for _, p := range e.Params {
		out.Parameters = append(out.Parameters, listParam(p))
	}
	return out
}

func listParam(p catalog.Param) listedParam {
	// A duration is text, as in scenarios.
	text := func(v any) any {
		if d, ok := v.(time.Duration); ok {
			return d.String()
		}
		return v
	}
	low, high := p.Bounds()
	var parts []listedPolicy
	for _, e := range p.Parts {
		parts = append(parts, listPolicy("", e))
	}
	return listedParam{
		Name: p.Name, Type: string(p.Type), Default: text(p.Default), Low: text(low), High: text(high), Choices: p.Choices,
		Parts: parts, Unit: p.Unit, Doc: p.Doc,
	}
}

// values returns the default and the values of a parameter for people.
func (p listedParam) values() string {
	out := p.Type
	if len(p.Choices) > 0 {
		out = strings.Join(p.Choices, ", ")
		if p.Low != nil {
			out += " or a duration"
		}
	}
	switch {
	case len(p.Parts) > 0:
		var names []string
		for _, part := range p.Parts {
			names = append(names, part.Name)
		}
		out = strings.Join(names, ", ")
	case p.Low != nil && p.High != nil:
		out += fmt.Sprintf(" from %v to %v", p.Low, p.High)
	case p.Low != nil:
		out += fmt.Sprintf(" from %v", p.Low)
	}
	if p.Unit != "" {
		out += " (" + p.Unit + ")"
	}
	return out
}

func (a *app) policyListCmd() *cobra.Command {
	var role string
	cmd := &cobra.Command{
		Use: "list [POLICY...]", Short: "List policies, or the parameters of some",
		Long: `List prints the policies of a role or of all. Of the policies that are named, and with --json of
all, it prints each parameter with its default, its values and its meaning.`,
		Example: `  testbed policy list --role placement
  testbed policy list aalo sebf
  testbed policy list --json | jq -r '.[] | select(.role == "tasks") | .name'`,
		Args: between(0, -1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := checkRole(role, false); err != nil {
				return err
			}
			var list []listedPolicy
			var names []string
			for _, r := range catalog.All() {
				if role != "" && r.Name != role {
					continue
				}
				for _, e := range slices.Concat(catalog.All().Entries(r.Name), r.External) {
					if names = append(names, e.Name); len(args) > 0 && !slices.Contains(args, e.Name) {
						continue
					}
					list = append(list, listPolicy(r.Name, e))
				}
			}
			for _, name := range args {
				if !slices.Contains(names, name) {
					slices.Sort(names)
					return usageError{fmt.Errorf("unknown policy %q (available: %s)", name, strings.Join(slices.Compact(names), ", "))}
				}
			}
			return a.print(list, func(w io.Writer) error {
				if len(args) > 0 {
					return drawParameters(w, list, terminalStyle(terminalWidth(a.stdout.w)))
				}
				return drawPolicies(w, list, a.listStyle())
			})
		},
		ValidArgsFunction: func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return policyNames(role), cobra.ShellCompDirectiveNoFileComp
		},
	}
	addRole(cmd, &role, "", "default: all")
	return cmd
}

func drawPolicies(w io.Writer, list []listedPolicy, style tables.Style) error {
	t := tables.Table{Head: []string{"role", "policy", "about"}, Columns: []tables.Column{tables.Names(), tables.Names(), tables.Prose()}}
	for _, p := range list {
		t.Rows = append(t.Rows, []string{p.Role, p.Name, p.Doc})
	}
	return drawTable(w, t, style)
}

// drawParameters draws a table for each policy.
func drawParameters(w io.Writer, list []listedPolicy, style tables.Style) error {
	for i, p := range list {
		if i > 0 {
			fmt.Fprintln(w)
		}
		if err := style.Paragraph(w, "", "", fmt.Sprintf("%s policy %s: %s", p.Role, p.Name, p.Doc)); err != nil {
			return err
		}
		if len(p.Parameters) == 0 {
			continue
		}
		t := tables.Table{
			Head:    []string{"parameter", "default", "values", "meaning"},
			Columns: []tables.Column{tables.Names(), {Left: true}, tables.Prose(), tables.Prose()},
		}
		for _, q := range p.Parameters {
			value := none
			if q.Default != nil {
				value = fmt.Sprint(q.Default)
			}
			if len(q.Parts) > 0 {
				value = "none"
			}
			t.Rows = append(t.Rows, []string{q.Name, value, q.values(), q.Doc})
		}
		if err := drawTable(w, t, style); err != nil {
			return err
		}
	}
	return nil
}

// addRole adds the flag of a role.
func addRole(cmd *cobra.Command, role *string, value, detail string) {
	cmd.Flags().StringVar(role, "role", value, "role of the policy: "+words.Or(catalog.All().Roles())+" ("+detail+")")
	completer(cmd)("role", cobra.FixedCompletions(catalog.All().Roles(), cobra.ShellCompDirectiveNoFileComp))
}

func checkRole(role string, required bool) error {
	if role == "" && !required || slices.Contains(catalog.All().Roles(), role) {
		return nil
	}
	return usageError{fmt.Errorf("--role %q: must be %s", role, words.Or(catalog.All().Roles()))}
}

// policyNames returns the policies of a role, or of all, for completion.
func policyNames(role string) (names []string) {
	for _, r := range catalog.All() {
		for _, e := range r.Policies {
			if role == "" || role == r.Name {
				names = append(names, e.Name+"\t"+e.Doc)
			}
		}
	}
	return names
}
