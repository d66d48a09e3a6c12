package scenario

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/invopop/jsonschema"

	"testbed/policies/catalog"
	"testbed/topo/units"
	"testbed/topo/yamltree"
	"testbed/workloads"
)

// schemaID identifies the schema of this version of scenario files. It is a name, not an
// address.
var schemaID = fmt.Sprintf("urn:testbed:scenario:%d", newestVersion)

// Schema returns the JSON schema of scenario files, for editors and validators, with the roles and
// policies of a catalog. The schema describes single values; only Load checks whether values fit
// together. A value with a variable in it is always allowed.
func Schema(c catalog.Catalog) ([]byte, error) {
	comments, err := specComments()
	if err != nil {
		return nil, fmt.Errorf("scenario schema: %w", err)
	}
	s := describer{comments, c}.mapping(reflect.TypeFor[Spec]())
	s.Version, s.ID, s.Title = jsonschema.Version, jsonschema.ID(schemaID), "testbed scenario"
	s.Definitions = jsonschema.Definitions{}
	for _, r := range c {
		if s.Definitions[policyDefinition(r.Name)], err = policySchema(r, c.Entries(r.Name)); err != nil {
			return nil, fmt.Errorf("scenario schema: %w", err)
		}
		if len(r.Parts) == 0 {
			continue
		}
		if s.Definitions[partDefinition], err = partSchema(r); err != nil {
			return nil, fmt.Errorf("scenario schema: %w", err)
		}
	}
	changes := changesSchema(s, "", "#")
	changes.PatternProperties = map[string]*jsonschema.Schema{keysToSet("+"): {Description: "Key with dots."}}
	s.Definitions[changesDefinition] = changes
	out, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("scenario schema: %w", err)
	}
	return append(out, '\n'), nil
}

// changesDefinition is the name of the schema of Arm.Set.
const changesDefinition = "changes"

// changesSchema returns the schema of changes of the mapping at a key, whose schema is s and at a place: its keys that
// an arm can set, none of them required, with their values or null.
func changesSchema(s *jsonschema.Schema, above, place string) *jsonschema.Schema {
	out := &jsonschema.Schema{Type: "object", Properties: jsonschema.NewProperties(), AdditionalProperties: jsonschema.FalseSchema}
	for p := s.Properties.Oldest(); p != nil; p = p.Next() {
		key, at := yamltree.Join(above, p.Key), place+"/properties/"+p.Key
		value := &jsonschema.Schema{Ref: at}
		if p.Value.Properties != nil {
			value = changesSchema(p.Value, key, at)
		}
		why, partly := fixed(key)
		if why == "" {
			value = &jsonschema.Schema{AnyOf: []*jsonschema.Schema{value, {Type: "null"}}}
		}
		if why == "" || partly {
			value.Description = p.Value.Description
			out.Properties.Set(p.Key, value)
		}
	}
	return out
}

func policyDefinition(role string) string { return role + "_policy" }

// policySchema returns the schema of a policy of a role: its name, or a mapping with its name
// and parameters. Behind a name that contains a variable, any parameters are allowed.
func policySchema(r catalog.Role, policies []catalog.Entry) (*jsonschema.Schema, error) {
	role := r.Name
	s := &jsonschema.Schema{Description: fmt.Sprintf("Name of a %s policy, or a mapping with its name and parameters.", role)}
	var mappings []*jsonschema.Schema
	for _, p := range policies {
		s.AnyOf = append(s.AnyOf, &jsonschema.Schema{Type: "string", Const: p.Name, Description: sentence(p.Doc)})
		m, err := policyMapping(role, p, "name")
		if err != nil {
			return nil, err
		}
		mappings = append(mappings, m)
	}
	for _, p := range r.External {
		m, err := policyMapping(role, p, p.Name)
		if err != nil {
			return nil, err
		}
		mappings = append(mappings, m)
	}
	properties := jsonschema.NewProperties()
	properties.Set("name", &jsonschema.Schema{Type: "string", Pattern: variablePattern, Description: "Name of the policy, with a variable."})
	mappings = append(mappings, &jsonschema.Schema{
		Type: "object", Properties: properties, Required: []string{"name"}, Description: "Policy that a variable names, with its parameters.",
	})
	s.AnyOf = append(s.AnyOf, variable())
	s.AnyOf = append(s.AnyOf, mappings...)
	return s, nil
}

// partDefinition is the name of the schema of a part of a policy.
const partDefinition = "part"

// partSchema returns the schema of a part of a role's policies: its name, or a mapping of it to its parameters.
func partSchema(r catalog.Role) (*jsonschema.Schema, error) {
	s := &jsonschema.Schema{Description: fmt.Sprintf("Part of a %s policy: its name, or a mapping of the name to its parameters.", r.Name)}
	var mappings []*jsonschema.Schema
	for _, p := range r.Parts {
		s.AnyOf = append(s.AnyOf, &jsonschema.Schema{Type: "string", Const: p.Name, Description: sentence(p.Doc)})
		params, err := policyMapping(r.Name, p, "")
		if err != nil {
			return nil, err
		}
		named := jsonschema.NewProperties()
		named.Set(p.Name, params)
		mappings = append(mappings, &jsonschema.Schema{Type: "object", Properties: named, Required: []string{p.Name}, AdditionalProperties: jsonschema.FalseSchema})
	}
	s.AnyOf = append(append(s.AnyOf, variable()), mappings...)
	return s, nil
}

// policyMapping returns the schema of a mapping with the parameters of a policy or a part.
func policyMapping(role string, p catalog.Entry, required string) (*jsonschema.Schema, error) {
	properties := jsonschema.NewProperties()
	if required == "name" {
		properties.Set("name", &jsonschema.Schema{Type: "string", Const: p.Name, Description: sentence(p.Doc)})
	}
	for _, param := range p.Params {
		value, err := paramSchema(param)
		if err != nil {
			return nil, fmt.Errorf("%s policy %s: parameter %s: %w", role, p.Name, param.Name, err)
		}
		properties.Set(param.Name, value)
	}
	s := &jsonschema.Schema{Type: "object", Properties: properties, AdditionalProperties: jsonschema.FalseSchema, Description: sentence(p.Doc)}
	if required != "" {
		s.Required = []string{required}
	}
	return s, nil
}

// paramSchema returns the schema of a parameter of a policy. JSON schema cannot compare
// quantities with units, so the description states their bounds.
func paramSchema(p catalog.Param) (*jsonschema.Schema, error) {
	if p.Type == catalog.Parts {
		return &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Ref: "#/$defs/" + partDefinition}, Description: sentence(p.Doc)}, nil
	}
	low, high := p.Bounds()
	s := &jsonschema.Schema{Description: sentence(p.Doc), Default: p.Default}
	if p.Unit != "" {
		s.Description += fmt.Sprintf(" Unit: %s.", p.Unit)
	}
	number := func(kind string) *jsonschema.Schema {
		return &jsonschema.Schema{Type: kind, Minimum: jsonNumber(low), Maximum: jsonNumber(high)}
	}
	quantity := func(t reflect.Type) {
		q := quantities[t]
		s.AnyOf = append(s.AnyOf, &jsonschema.Schema{Type: "string", Pattern: q.pattern})
		s.Examples = examples(q.example)
		if low != nil {
			s.Description += fmt.Sprintf(" At least %v.", low)
		}
		if high != nil {
			s.Description += fmt.Sprintf(" At most %v.", high)
		}
	}
	switch d := p.Default.(type) {
	case nil:
		kind := &jsonschema.Schema{Type: "object"}
		switch p.Type {
		case catalog.Command:
			kind = &jsonschema.Schema{Type: "array", Items: &jsonschema.Schema{Type: "string"}}
		case catalog.Path:
			kind = &jsonschema.Schema{Type: "string"}
		}
		s.AnyOf = append(s.AnyOf, kind)
	case bool:
		s.AnyOf = append(s.AnyOf, &jsonschema.Schema{Type: "boolean"})
	case int64:
		s.AnyOf = append(s.AnyOf, number("integer"))
	case float64:
		s.AnyOf = append(s.AnyOf, number("number"))
	case units.Bytes:
		s.Default = d.String()
		quantity(reflect.TypeFor[units.Bytes]())
		s.AnyOf = append(s.AnyOf, number("integer"))
	case time.Duration:
		s.Default = d.String()
		quantity(reflect.TypeFor[time.Duration]())
		if p.Min <= 0 {
			s.AnyOf = append(s.AnyOf, &jsonschema.Schema{Type: "integer", Const: 0}) // the only number that needs no unit
		}
	case string:
		text := &jsonschema.Schema{Type: "string"}
		for _, c := range p.Choices {
			text.Enum = append(text.Enum, c)
		}
		if len(p.Choices) == 0 {
			one := uint64(1)
			text.MinLength = &one
		}
		s.AnyOf = append(s.AnyOf, text)
		if p.Durations {
			quantity(reflect.TypeFor[time.Duration]())
			if p.Min <= 0 {
				s.AnyOf = append(s.AnyOf, &jsonschema.Schema{Type: "integer", Const: 0})
			}
		}
	default:
		return nil, fmt.Errorf("default %v of type %T: no schema", p.Default, p.Default)
	}
	s.AnyOf = append(s.AnyOf, variable())
	return s, nil
}

// jsonNumber returns a bound as a number of the schema: of sizes in bytes, "" for none.
func jsonNumber(bound any) json.Number {
	switch b := bound.(type) {
	case int64:
		return json.Number(strconv.FormatInt(b, 10))
	case units.Bytes:
		return json.Number(strconv.FormatInt(int64(b), 10))
	case float64:
		return json.Number(strconv.FormatFloat(b, 'g', -1, 64))
	}
	return ""
}

// sentence returns text with an initial capital and a full stop.
func sentence(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	// A word such as mTCP, or a symbol such as "δ,", keeps its case.
	if next, _ := utf8.DecodeRuneInString(text[size:]); unicode.IsLower(next) || next == ' ' {
		text = string(unicode.ToUpper(first)) + text[size:]
	}
	if !strings.HasSuffix(text, ".") {
		text += "."
	}
	return text
}

// description turns a Go comment into a description: "Leaves is the number of racks." becomes
// "Number of racks.".
func description(name, comment string) string {
	rest, ok := strings.CutPrefix(comment, name+" ")
	if !ok {
		return comment
	}
	for _, start := range []string{"reports ", "is the ", "are the ", "is a ", "is an ", "is ", "are "} {
		if cut, ok := strings.CutPrefix(rest, start); ok {
			rest = cut
			break
		}
	}
	return sentence(rest)
}

// describer writes the schema of the types of this package, from their rules and from the comments
// of specSources by type, "Fabric", and by field, "Fabric.Leaves".
type describer struct {
	comments map[string]string
	catalog  catalog.Catalog
}

// mapping returns the schema of a struct.
func (d describer) mapping(t reflect.Type) *jsonschema.Schema {
	s := &jsonschema.Schema{
		Type: "object", Properties: jsonschema.NewProperties(), AdditionalProperties: jsonschema.FalseSchema,
		Description: description(t.Name(), d.comments[t.Name()]),
	}
	fields := fieldsOf(t, d.catalog...)
	for _, f := range fields {
		name := t.Field(f.index).Name
		p := d.value(t.Field(f.index).Type, f)
		if f.role == nil {
			p.Description = description(name, d.comments[t.Name()+"."+name])
		}
		if f.kind != "" {
			p.Description += fmt.Sprintf(" Only of kind %s", f.kind)
			if f.required {
				p.Description += ", which requires it"
			}
			p.Description += "."
		}
		if f.least != "" {
			p.Description += fmt.Sprintf(" From %s to %s.", f.least, f.most)
		}
		if f.required && f.kind == "" {
			s.Required = append(s.Required, f.key)
		}
		s.Properties.Set(f.key, p)
	}
	ofKind(s, fields)
	return s
}

// value returns the schema of a field of type t.
func (d describer) value(t reflect.Type, f field) *jsonschema.Schema {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if q, ok := quantities[t]; ok {
		s := &jsonschema.Schema{AnyOf: []*jsonschema.Schema{{OneOf: []*jsonschema.Schema{{Type: "string", Pattern: q.pattern}}}, variable()}, Examples: examples(q.example)}
		if numeric(t) {
			s.AnyOf[0].OneOf = append(s.AnyOf[0].OneOf, &jsonschema.Schema{Type: "number", ExclusiveMinimum: "0"})
		}
		if f.initial != nil {
			s.Default = *f.initial
		}
		return s
	}
	switch t {
	case reflect.TypeFor[Vars]():
		return &jsonschema.Schema{Type: "object", AdditionalProperties: &jsonschema.Schema{
			Description: "Default of the variable; no value if it must be set.",
			OneOf:       append(oneValue().OneOf, &jsonschema.Schema{Type: "null"}),
		}}
	case reflect.TypeFor[Sweep]():
		one, value := uint64(1), &jsonschema.Schema{Type: "array", Items: oneValue()}
		value.MinItems = &one
		points := func(text string) *jsonschema.Schema {
			return &jsonschema.Schema{Type: "array", Description: text, Items: &jsonschema.Schema{Type: "object", AdditionalProperties: oneValue()}}
		}
		s := &jsonschema.Schema{
			Type: "object", Properties: jsonschema.NewProperties(), AdditionalProperties: jsonschema.FalseSchema,
			PatternProperties: map[string]*jsonschema.Schema{varName.String(): value},
		}
		s.Properties.Set(excludeKey, points("Values of some or all swept variables; points with all of them are left out."))
		s.Properties.Set(includeKey, points("Points to add, each with a value of every swept variable."))
		return s
	case reflect.TypeFor[Repeats]():
		s := d.value(reflect.TypeFor[int](), f)
		s.AnyOf = append(s.AnyOf, d.mapping(t))
		return s
	case reflect.TypeFor[map[string]any]():
		return &jsonschema.Schema{Ref: "#/$defs/" + changesDefinition}
	case reflect.TypeFor[Arms]():
		one := uint64(1)
		cross := d.mapping(reflect.TypeFor[ArmCross]())
		cross.PatternProperties = map[string]*jsonschema.Schema{keysToSet("*"): {Type: "array", MinItems: &one, Description: "Lists the values of a key of the scenario."}}
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{
			{Type: "array", Items: d.mapping(reflect.TypeFor[Arm]()), MinItems: &one}, cross,
		}}
	}
	if f.role != nil {
		return d.role(f.role, t == reflect.TypeFor[map[string][]Policy](), f)
	}
	s := &jsonschema.Schema{}
	switch t.Kind() {
	case reflect.Struct:
		if !isUnion(t) {
			return d.mapping(t)
		}
		for _, x := range variants(reflect.New(t).Elem()) {
			one := d.mapping(x.value.Type().Elem())
			kind, _ := one.Properties.Get("kind")
			kind.Description = one.Description // of the whole
			s.OneOf = append(s.OneOf, one)
		}
		return s
	case reflect.Slice:
		s.Type, s.MinItems, s.MaxItems = "array", above0(f.minItems), above0(f.maxItems)
		s.Items = d.value(t.Elem(), field{key: f.key})
		return s
	case reflect.Bool:
		s.Type = "boolean"
	case reflect.Int, reflect.Uint64:
		s.Type = "integer"
	case reflect.Float64:
		s.Type = "number"
	case reflect.String:
		s.Type, s.MinLength, s.MaxLength = "string", above0(f.minLen), above0(f.maxLen)
	}
	s.Minimum, s.Maximum = bound(f.minimum), bound(f.maximum)
	if f.pattern != nil {
		s.Pattern = f.pattern.String()
	}
	for _, e := range f.enum {
		s.Enum = append(s.Enum, e)
	}
	whole := *s
	if f.initial != nil {
		whole.Default = *f.initial
		if s.Type != "string" {
			whole.Default = json.RawMessage(*f.initial)
		}
	}
	if s.Type == "string" && s.Pattern == "" && s.Enum == nil || f.key == "kind" {
		return &whole
	}
	return &jsonschema.Schema{Default: whole.Default, AnyOf: []*jsonschema.Schema{s, variable()}}
}

// oneValue returns the schema of a value of a variable.
func oneValue() *jsonschema.Schema {
	return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "string"}, {Type: "number"}, {Type: "boolean"}}}
}

// keysToSet returns the pattern of the keys of the scenario that arms can set, with a number of dots: "*" or "+".
func keysToSet(dots string) string {
	var first []string
	for _, f := range fieldsOf(reflect.TypeFor[Spec]()) {
		if why, partly := fixed(f.key); why == "" || partly {
			first = append(first, f.key)
		}
	}
	return fmt.Sprintf(`^(%s)(\.[a-z_]+)%s$`, strings.Join(first, "|"), dots)
}

// role returns the schema of a role's policy in an arm, or of the policies to combine.
func (d describer) role(r *catalog.Role, all bool, f field) *jsonschema.Schema {
	s := &jsonschema.Schema{Ref: "#/$defs/" + policyDefinition(r.Name)}
	text := sentence(r.Doc)
	if all {
		s, text = &jsonschema.Schema{Type: "array", MinItems: above0(f.minItems), Items: s}, fmt.Sprintf("Lists the %s policies.", r.Name)
		if r.Name == d.catalog[0].Name {
			text += " In the order of arms they vary slowest."
		}
	}
	switch {
	case r.Required == catalog.Always && r.Default != "":
		text += fmt.Sprintf(" Default: %s.", r.Default)
	case r.Default != "":
		text += fmt.Sprintf(" Default if %s: %s.", r.Required, r.Default)
	case !f.required && r.Required != "":
		text += fmt.Sprintf(" Required if %s.", r.Required)
	}
	s.Description = text
	return s
}

// above0 returns a limit of the schema, nil for none.
func above0(n int) *uint64 {
	if n == 0 {
		return nil
	}
	u := uint64(n)
	return &u
}

// bound returns a bound as a number of the schema, "" for none.
func bound(x *float64) json.Number {
	if x == nil {
		return ""
	}
	return json.Number(decimal(*x))
}

// ofKind requires of a mapping the keys of its kind, and forbids those of others, if its keys
// depend on a kind.
func ofKind(s *jsonschema.Schema, fields []field) {
	at := slices.IndexFunc(fields, func(f field) bool { return f.key == "kind" && len(f.enum) > 1 })
	if at < 0 {
		return
	}
	of := func(kind string) *jsonschema.Schema {
		one := &jsonschema.Schema{Not: &jsonschema.Schema{}}
		for _, f := range fields {
			switch {
			case f.kind == kind && f.required:
				one.Required = append(one.Required, f.key)
			case f.kind != "" && f.kind != kind:
				one.Not.AnyOf = append(one.Not.AnyOf, &jsonschema.Schema{Required: []string{f.key}})
			}
		}
		return one
	}
	first, other := fields[at].enum[0], fields[at].enum[1] // of two: a mapping without a kind is of the first
	properties := jsonschema.NewProperties()
	properties.Set("kind", &jsonschema.Schema{Const: other})
	s.If = &jsonschema.Schema{Properties: properties, Required: []string{"kind"}}
	s.Then, s.Else = of(other), of(first)
}

// numeric reports whether a quantity may also be written as a number.
func numeric(t reflect.Type) bool {
	return t == reflect.TypeFor[workloads.Factor]() || t == reflect.TypeFor[Span]()
}

func examples(quoted string) []any {
	var all []any
	for _, s := range strings.Split(quoted, " or ") {
		all = append(all, strings.Trim(s, `"`))
	}
	return all
}

// variablePattern matches a text with a variable in it.
const variablePattern = `\$\{[A-Za-z_][A-Za-z0-9_]*\}`

func variable() *jsonschema.Schema {
	return &jsonschema.Schema{Type: "string", Pattern: variablePattern}
}

// specComments are the comments of specSources by type, "Fabric", and by field,
// "Fabric.Leaves".
func specComments() (map[string]string, error) {
	files, err := specSources.ReadDir(".")
	if err != nil {
		return nil, err
	}
	comments := map[string]string{}
	for _, f := range files {
		source, err := specSources.ReadFile(f.Name())
		if err != nil {
			return nil, err
		}
		file, err := parser.ParseFile(token.NewFileSet(), f.Name(), source, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			decl, ok := n.(*ast.GenDecl)
			if !ok || decl.Tok != token.TYPE {
				return true
			}
			for _, spec := range decl.Specs {
				addComments(comments, decl.Doc, spec.(*ast.TypeSpec))
			}
			return false
		})
	}
	return comments, nil
}

// addComments adds the comments of a type, whose own is doc, and of its fields.
func addComments(comments map[string]string, doc *ast.CommentGroup, typ *ast.TypeSpec) {
	text := func(g *ast.CommentGroup) string { return strings.Join(strings.Fields(g.Text()), " ") }
	comments[typ.Name.Name] = text(doc)
	st, ok := typ.Type.(*ast.StructType)
	if !ok {
		return
	}
	for _, f := range st.Fields.List {
		for _, name := range f.Names {
			comments[typ.Name.Name+"."+name.Name] = text(f.Doc)
		}
	}
}
