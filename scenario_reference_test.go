package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/invopop/jsonschema"

	"testbed/emu/scenario"
	"testbed/policies/catalog"
)

// reference writes the lists of keys of docs/reference/scenario.md from the schema.
type reference struct {
	strings.Builder
	add func(entry) // adds to the list, or counts
}

func (r *reference) section(heading, text string) {
	fmt.Fprintf(r, "\n### %s\n", heading)
	if text != "" {
		fmt.Fprintf(r, "\n%s\n", text)
	}
}

// list writes each key of a mapping and of the mappings in it that only is true of.
func (r *reference) list(s *jsonschema.Schema, required []string, only func(key string) bool) {
	var all []entry
	r.add = func(e entry) { all = append(all, e) }
	r.keys("", s, required, only)
	r.WriteString("\n" + entries(all))
}

func (r *reference) keys(prefix string, s *jsonschema.Schema, required []string, only func(key string) bool) {
	for p := s.Properties.Oldest(); p != nil; p = p.Next() {
		key, q := p.Key, p.Value
		if !only(key) {
			continue
		}
		text := q.Description
		initial := ""
		switch m := stated.FindStringSubmatch(text); {
		case slices.Contains(required, key):
			initial = ", required"
		case q.Default != nil:
			initial = fmt.Sprintf(" (`%v`)", q.Default)
		case m != nil && strings.Count(strings.ToLower(text), "default") == 1:
			initial, text = " (`"+m[1]+m[2]+"`)", strings.Replace(text, m[0], "", 1)
			if len(q.Enum) == 0 && (m[1] == "all" || m[1] == "none") {
				initial = " (" + m[1] + ")"
			}
			if m[2] != "" {
				text += "."
			}
		}
		if len(q.Enum) > 1 && initial != "" && initial != ", required" {
			var all []string
			for _, v := range q.Enum {
				all = append(all, fmt.Sprintf("`%v`", v))
			}
			r.add(entry{prefix + key, choices(all, strings.Trim(initial, " ()")), escape(text)})
			continue
		}
		if key == "kind" && len(q.Enum) == 1 {
			continue // the heading states it
		}
		if len(q.Examples) > 0 {
			text = bounds.ReplaceAllString(text, "")
		}
		text = escape(text)
		kind := values(q)
		if kind == "boolean" && q.Default != nil || q.Properties != nil || q.Items != nil && q.Items.Properties != nil {
			kind = "" // the default or the keys below show it
		}
		if counted, ok := strings.CutPrefix(text, "Number of "); ok && whole.MatchString(kind) {
			text = strings.ToUpper(counted[:1]) + counted[1:] // the values show that it is a number
		}
		if counted, ok := strings.CutPrefix(text, "Largest number of "); ok {
			text = "Most " + counted
		}
		if ranged, ok := strings.CutPrefix(text, "Range of "); ok && kind == "range" {
			text = strings.ToUpper(ranged[:1]) + ranged[1:]
		}
		r.add(entry{prefix + key, strings.TrimSpace(kind + initial), text})
		all := func(string) bool { return true }
		if prefix == "" && q.Properties != nil && r.sectioned(key) {
			continue
		}
		if q.Properties != nil {
			r.keys(prefix+key+".", q, q.Required, all)
		}
		if q.Items != nil && q.Items.Properties != nil {
			r.keys(prefix+key+"[].", q.Items, q.Items.Required, all)
		}
		for _, one := range q.AnyOf { // a mapping in place of a number
			if one.Properties != nil {
				r.keys(prefix+key+".", one, one.Required, all)
			}
		}
	}
}

// whole are the values of a key that is a whole number.
var whole = regexp.MustCompile(`^\d+–\d+$`)

// stated is the end of a description that states a default of one word.
var stated = regexp.MustCompile(` \(default: ([^ ():;,]+)\)|\. Default: ([^ ():;,]+)\.$`)

// escape returns a description as Markdown, without what the heading of its section repeats.
func escape(text string) string {
	return strings.ReplaceAll(onlyOfKind.ReplaceAllString(text, ""), "*", `\*`)
}

// onlyOfKind is the remark of a description that the heading of its section repeats.
var onlyOfKind = regexp.MustCompile(` Only of kind [a-z-]+(, which requires it)?\.`)

// sectioned reports whether a key of the whole file has lists of its own.
func (r *reference) sectioned(key string) bool {
	return slices.Contains([]string{"sweep", "fabric", "disk", "heartbeat", "coordinator", "fluid", "scale", "tasks", "capture", "limits"}, key)
}

// quantities are the names of quantities with units, by their first example in the schema.
var quantities = map[string]string{
	"250ms": "time", "100Mbps": "rate", "256KB": "size", "64KB": "size or time", "1/100": "factor",
	"2-8": "range", "5:1": "ratio", "5%": "percentage",
}

// bounds is the end of a description of a quantity, which the values state.
var bounds = regexp.MustCompile(` From (\S+) to (\S+)\.$`)

// values describes the values of a key in a few words.
func values(s *jsonschema.Schema) string {
	for _, one := range slices.Concat([]*jsonschema.Schema{s}, s.AnyOf) {
		switch {
		case one.Ref == "#/$defs/changes":
			return "mapping"
		case one.Ref != "":
			return "policy"
		case len(one.Enum) > 0:
			var all []string
			for _, v := range one.Enum {
				all = append(all, fmt.Sprintf("`%v`", v))
			}
			return strings.Join(all, ", ")
		case len(s.Examples) > 0:
			name, ok := quantities[fmt.Sprint(s.Examples[0])]
			if !ok {
				name = fmt.Sprintf("such as `%v`", s.Examples[0])
			}
			if m := bounds.FindStringSubmatch(s.Description); m != nil {
				name = m[1] + "–" + m[2]
			}
			return name
		case one.Type == "integer" || one.Type == "number":
			text := one.Type
			switch {
			case one.Minimum == one.Maximum && one.Minimum != "":
				text = fmt.Sprintf("`%s`", one.Minimum)
			case one.Minimum != "" && one.Maximum != "" && one.Type == "integer":
				text = fmt.Sprintf("%s–%s", one.Minimum, one.Maximum)
			case one.Minimum != "" && one.Maximum != "":
				return decimal(one.Minimum) + "–" + decimal(one.Maximum)
			}
			return text
		case one.Type != "":
			return map[string]string{"boolean": "boolean", "string": "", "array": "list", "object": "mapping"}[one.Type]
		}
	}
	return "list or mapping"
}

// decimal returns a bound with a decimal point, which distinguishes numbers from whole ones.
func decimal(n json.Number) string {
	if strings.Contains(n.String(), ".") {
		return n.String()
	}
	return n.String() + ".0"
}

// kinds writes a section for each kind of a list, such as faults, and one for the keys that
// several kinds have.
func (r *reference) kinds(name string, s *jsonschema.Schema) {
	all := func(string) bool { return true }
	var several []entry
	count := make(map[entry]int)
	r.add = func(e entry) {
		if count[e]++; count[e] == 2 {
			several = append(several, e)
		}
	}
	for _, one := range s.Items.OneOf {
		r.keys("", one, one.Required, all)
	}
	for _, one := range s.Items.OneOf {
		kind, _ := one.Properties.Get("kind")
		r.section(fmt.Sprintf("`%s` of kind `%v`", name, kind.Enum[0]), one.Description)
		var own []entry
		var shared []string
		r.add = func(e entry) {
			if count[e] > 1 {
				shared = append(shared, "`"+e.key+"`")
			} else {
				own = append(own, e)
			}
		}
		r.keys("", one, one.Required, all)
		if own != nil {
			r.WriteString("\n" + entries(own))
		}
		if shared != nil {
			fmt.Fprintf(r, "\nShared: %s.\n", strings.Join(shared, ", "))
		}
	}
	r.section(fmt.Sprintf("Shared keys of `%s`", name), "")
	r.WriteString("\n" + entries(several))
}

func TestScenarioReference(t *testing.T) {
	raw, err := scenario.Schema(catalog.All())
	if err != nil {
		t.Fatal(err)
	}
	var root jsonschema.Schema
	if err := json.Unmarshal(raw, &root); err != nil {
		t.Fatal(err)
	}
	all := func(string) bool { return true }
	var r reference
	r.section("Whole file", "")
	r.list(&root, root.Required, all)
	for p := root.Properties.Oldest(); p != nil; p = p.Next() {
		key, s := p.Key, p.Value
		switch {
		case key == "fabric":
			// The schema states the keys of one kind under then, those of the other under else.
			kind, _ := s.If.Properties.Get("kind")
			kinds := map[string]*jsonschema.Schema{fmt.Sprint(kind.Const): s.Then}
			declared, _ := s.Properties.Get("kind")
			kinds[fmt.Sprint(declared.Default)] = s.Else
			forbidden := func(of *jsonschema.Schema, key string) bool {
				return slices.ContainsFunc(of.Not.AnyOf, func(n *jsonschema.Schema) bool { return slices.Contains(n.Required, key) })
			}
			r.section("`fabric`", "")
			r.list(s, s.Required, func(key string) bool { return !forbidden(s.Then, key) && !forbidden(s.Else, key) })
			for _, name := range slices.Sorted(maps.Keys(kinds)) {
				of := kinds[name]
				r.section(fmt.Sprintf("`fabric` of kind `%s`", name), "")
				r.list(s, of.Required, func(key string) bool {
					return !forbidden(of, key) && (forbidden(s.Then, key) || forbidden(s.Else, key))
				})
			}
		case key == "arms":
			r.section("`arms` as a list", s.Description)
			r.list(s.OneOf[0].Items, s.OneOf[0].Items.Required, all)
			r.section("`arms` as a mapping", s.OneOf[1].Description)
			r.list(s.OneOf[1], s.OneOf[1].Required, all)
		case s.Items != nil && len(s.Items.OneOf) > 0:
			r.kinds(key, s)
		case r.sectioned(key):
			r.section("`"+key+"`", "") // the list of the whole file describes it
			r.list(s, s.Required, all)
		}
	}
	r.WriteString("\n")
	generated(t, "docs/reference/scenario.md", r.String())
}

// policyHeading returns the heading of a policy in policies.md. Policies of several roles may have the
// same name: except for the first, their headings name the role.
func policyHeading(role string, policy any) string {
	for _, r := range catalog.All().Roles() {
		if r == role {
			break
		}
		if slices.Contains(catalog.All().Names(r), fmt.Sprint(policy)) {
			return fmt.Sprintf("`%v` of `%s`", policy, role)
		}
	}
	return fmt.Sprintf("`%v`", policy)
}

// missingRows returns the keys of the schema, of every kind of every list, that a document has
// no row for in their section, and those that are required and not marked so. It reads the
// schema as plain JSON and shares nothing with the code that writes the lists. Keys of several
// kinds have a row for all, and each section that shares it names the key. The parameters of
// policies are in another document.
func missingRows(schema map[string]any, doc, policies string) []string {
	rows := map[string]string{} // values by section and key
	section := ""
	for line := range strings.Lines(doc) {
		if h, ok := strings.CutPrefix(strings.TrimSpace(line), "### "); ok {
			section = h
		} else if names, ok := strings.CutPrefix(strings.TrimSpace(line), "Shared: "); ok {
			for name := range strings.SplitSeq(strings.TrimSuffix(names, "."), ", ") {
				rows[section+" "+name] = "shared"
			}
		} else {
			keys, values := listed(line)
			for _, key := range keys {
				rows[section+" `"+key+"`"] = values
			}
		}
	}
	var missing []string
	expect := func(section, key string, required bool) {
		if key == "kind" && strings.Contains(section, " of kind ") {
			return // the heading states it
		}
		row, ok := rows[section+" `"+key+"`"]
		if row == "shared" {
			list, _, _ := strings.Cut(section, " ")
			row, ok = rows["Shared keys of "+list+" `"+key+"`"]
		}
		if !ok || required && !strings.HasSuffix(", "+row, ", required") {
			missing = append(missing, section+": "+key)
		}
	}
	object := func(v any, key string) map[string]any { m, _ := v.(map[string]any)[key].(map[string]any); return m }
	list := func(v any, key string) []any { l, _ := v.(map[string]any)[key].([]any); return l }
	var keys func(section, prefix string, s map[string]any, below bool)
	keys = func(section, prefix string, s map[string]any, below bool) { // below expects only what is in the mappings of s
		for key, v := range object(s, "properties") {
			if !below {
				expect(section, prefix+key, slices.Contains(list(s, "required"), any(key)))
			}
			v := v.(map[string]any)
			if object(v, "properties") != nil {
				in, inner := section, prefix+key+"."
				if section == "Whole file" && prefix == "" {
					in, inner = "`"+key+"`", ""
				}
				// The keys of a fabric's kinds stand under then and else.
				for _, branch := range []string{"then", "else"} {
					if object(v, branch) == nil {
						continue
					}
					kind := object(object(object(v, "if"), "properties"), "kind")["const"]
					if branch == "else" {
						kind = object(object(v, "properties"), "kind")["default"]
					}
					forbidden := map[string]bool{}
					for _, one := range list(object(object(v, branch), "not"), "anyOf") {
						forbidden[list(one, "required")[0].(string)] = true
					}
					for key := range object(v, "properties") {
						if forbidden[key] {
							continue
						}
						_, common := rows[in+" `"+key+"`"]
						if must := slices.Contains(list(object(v, branch), "required"), any(key)); !common || must {
							expect(fmt.Sprintf("%s of kind `%v`", in, kind), key, must)
						}
					}
				}
				keys(in, inner, v, object(v, "then") != nil)
			}
			if items := object(v, "items"); items != nil {
				keys(section, prefix+key+"[].", items, false)
				for _, one := range list(items, "oneOf") {
					kind := list(object(object(one, "properties"), "kind"), "enum")[0]
					keys(fmt.Sprintf("`%s` of kind `%v`", key, kind), "", one.(map[string]any), false)
				}
			}
			for _, one := range list(v, "anyOf") {
				keys(section, prefix+key+".", one.(map[string]any), false)
			}
			if key == "arms" {
				forms := list(v, "oneOf")
				keys("`arms` as a list", "", object(forms[0], "items"), false)
				keys("`arms` as a mapping", "", forms[1].(map[string]any), false)
			}
		}
	}
	keys("Whole file", "", schema, false)
	for _, role := range catalog.All().Roles() {
		_, shared, _ := strings.Cut(policies, "\n### Shared parameters of "+role+" policies\n")
		shared, _, _ = strings.Cut(shared, "\n## ")
		for _, one := range list(object(object(schema, "$defs"), role+"_policy"), "anyOf") {
			name, ok := object(object(one, "properties"), "name")["const"]
			if !ok {
				continue
			}
			heading := "\n### " + policyHeading(role, name) + "\n"
			_, own, ok := strings.Cut(policies, heading)
			own, _, _ = strings.Cut(own, "\n### ")
			if !ok {
				missing = append(missing, fmt.Sprintf("policies of %s: %v", role, name))
			}
			for param := range object(one, "properties") {
				isShared := strings.Contains(own, "`"+param+"`") || strings.Contains(own, "\nShared: all")
				if param == "name" || lists(own, param) || isShared && lists(shared, param) {
					continue
				}
				missing = append(missing, fmt.Sprintf("policies of %s: %v.%s", role, name, param))
			}
		}
	}
	for _, one := range list(object(object(schema, "$defs"), "part"), "anyOf") {
		for name, params := range object(one, "properties") {
			_, own, _ := strings.Cut(policies, "\n### Part `"+name+"`\n")
			own, _, _ = strings.Cut(own, "\n### ")
			for param := range object(params, "properties") {
				if !lists(own, param) {
					missing = append(missing, fmt.Sprintf("policies of parts: %s.%s", name, param))
				}
			}
		}
	}
	slices.Sort(missing)
	return missing
}

// docs/reference/scenario.md has a row for every key of the schema, in the section of its kind, and
// docs/reference/policies.md one for every parameter; the check finds a row that is taken out.
func TestScenarioReferenceIsComplete(t *testing.T) {
	raw, err := scenario.Schema(catalog.All())
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(raw, &schema); err != nil {
		t.Fatal(err)
	}
	doc, policies := read(t, "docs/reference/scenario.md"), read(t, "docs/reference/policies.md")
	for _, key := range missingRows(schema, doc, policies) {
		t.Errorf("docs/reference/scenario.md or docs/reference/policies.md has no row, or not as required, for %s", key)
	}
	for _, planted := range []struct{ section, row, want string }{
		{"`faults` of kind `link-rate`", "`at`, ", "`faults` of kind `link-rate`: at"},
		{"`faults` of kind `slow-disk`", ", `for`", "`faults` of kind `slow-disk`: for"},
		{"`workload` of kind `jobs`", "`block`, ", "`workload` of kind `jobs`: block"},
		{"`workload` of kind `jobs`", "- `bins[].to` ", "`workload` of kind `jobs`: bins[].to"},
		{"`fabric` of kind `switch`", "- `ports` ", "`fabric` of kind `switch`: ports"},
		{"`fabric`", "`red.min`, ", "`fabric`: red.min"},
		{"`arms` as a list", "- `placement` ", "`arms` as a list: placement"},
		{"`sebf`", "- `padding` ", "policies of coflow: sebf.padding"},
		{"`fifo`", "`backfill`", "policies of coflow: fifo.backfill"},
		{"Part `split`", "- `per_job` ", "policies of parts: split.per_job"},
	} {
		texts := []string{doc, policies}
		of := 0
		if strings.HasPrefix(planted.want, "policies") {
			of = 1
		}
		head, tail, ok := strings.Cut(texts[of], "\n### "+planted.section+"\n")
		if !ok {
			t.Errorf("no section %s", planted.section)
			continue
		}
		tail = strings.Replace(tail, planted.row, "", 1)
		texts[of] = head + "\n### " + planted.section + "\n" + tail
		if got := missingRows(schema, texts[0], texts[1]); !slices.Equal(got, []string{planted.want}) {
			t.Errorf("without %s in the section %s the check reports %q, want %q", planted.row, planted.section, got, planted.want)
		}
	}
}
