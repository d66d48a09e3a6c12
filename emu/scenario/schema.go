package scenario

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"reflect"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"
)

// Schema is the JSON schema of scenario files, for editors. It states what one
// value may be; what two values may not be together, only Load tells. A value
// with a variable in it is always allowed.
func Schema() ([]byte, error) {
	comments, err := specComments()
	if err != nil {
		return nil, fmt.Errorf("scenario schema: %w", err)
	}
	r := reflector(comments)
	s := r.Reflect(Spec{})
	s.Title = "testbed scenario"
	quantityDefaults(s, reflect.TypeFor[Spec]())
	fabric, _ := s.Properties.Get("fabric")
	ofKind(fabric, reflect.TypeFor[Fabric]())
	relax(s)
	out, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("scenario schema: %w", err)
	}
	return append(out, '\n'), nil
}

func reflector(comments map[string]string) *jsonschema.Reflector {
	r := &jsonschema.Reflector{
		Anonymous: true, DoNotReference: true, ExpandedStruct: true,
		RequiredFromJSONSchemaTags: true, FieldNameTag: "yaml",
	}
	r.LookupComment = func(t reflect.Type, field string) string {
		comment := comments[strings.TrimSuffix(t.Name()+"."+field, ".")]
		if t.Kind() != reflect.Struct {
			return comment
		}
		sf, ok := t.FieldByName(field)
		if !ok {
			return comment
		}
		// Go's name of the field is not the user's.
		key, _, _ := strings.Cut(sf.Tag.Get("yaml"), ",")
		if rest, ok := strings.CutPrefix(comment, field+" "); ok {
			comment = key + " " + rest
		}
		if kind := sf.Tag.Get("kind"); kind != "" {
			comment += fmt.Sprintf(" Of kind %s", kind)
			if strings.HasPrefix(sf.Tag.Get("jsonschema"), "required") {
				comment += ", where it is required"
			}
			comment += "."
		}
		if sf.Tag.Get("least") != "" {
			comment += fmt.Sprintf(" From %s to %s.", sf.Tag.Get("least"), sf.Tag.Get("most"))
		}
		return comment
	}
	inner := func(v any) *jsonschema.Schema {
		s := r.Reflect(v)
		s.Version = ""
		quantityDefaults(s, reflect.TypeOf(v))
		return s
	}
	r.Mapper = func(t reflect.Type) *jsonschema.Schema {
		if q, ok := quantities[t]; ok {
			return &jsonschema.Schema{
				OneOf:    []*jsonschema.Schema{{Type: "string", Pattern: q.pattern}, {Type: "number", ExclusiveMinimum: "0"}}[:alternatives(t)],
				Examples: examples(q.example),
			}
		}
		switch t {
		case reflect.TypeFor[Vars]():
			return &jsonschema.Schema{Type: "object", AdditionalProperties: &jsonschema.Schema{
				Description: "The variable's default; none, where it must be set.",
				OneOf:       []*jsonschema.Schema{{Type: "string"}, {Type: "number"}, {Type: "boolean"}, {Type: "null"}},
			}}
		case reflect.TypeFor[Item]():
			var kinds []*jsonschema.Schema
			for _, k := range itemKinds(&Item{}) {
				kinds = append(kinds, inner(reflect.New(k.field.Type().Elem()).Elem().Interface()))
			}
			return &jsonschema.Schema{OneOf: kinds}
		case reflect.TypeFor[Fault]():
			var kinds []*jsonschema.Schema
			for _, k := range faultKinds(&Fault{}) {
				kinds = append(kinds, inner(reflect.New(k.field.Type().Elem()).Elem().Interface()))
			}
			return &jsonschema.Schema{OneOf: kinds}
		case reflect.TypeFor[Arms]():
			one := uint64(1)
			return &jsonschema.Schema{OneOf: []*jsonschema.Schema{
				{Type: "array", Items: inner(Arm{}), MinItems: &one},
				inner(ArmCross{}),
			}}
		case reflect.TypeFor[Policy]():
			properties := jsonschema.NewProperties()
			properties.Set("name", &jsonschema.Schema{Type: "string", Pattern: policyPattern, Description: "Name of the policy."})
			return &jsonschema.Schema{OneOf: []*jsonschema.Schema{
				{Type: "string", Pattern: policyPattern},
				{Type: "object", Properties: properties, Required: []string{"name"}, Description: "A policy and its own parameters."},
			}}
		}
		return nil
	}
	return r
}

// ofKind requires of a mapping the keys of its kind, and forbids those of others.
func ofKind(s *jsonschema.Schema, t reflect.Type) {
	fields := fieldsOf(t)
	kind := fields[slices.IndexFunc(fields, func(f field) bool { return f.key == "kind" })]
	s.Required = slices.DeleteFunc(s.Required, func(key string) bool {
		return slices.ContainsFunc(fields, func(f field) bool { return f.key == key && f.kind != "" })
	})
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
	other := kind.enum[1] // of two: the first is the one that a mapping is which does not say
	properties := jsonschema.NewProperties()
	properties.Set("kind", &jsonschema.Schema{Const: other})
	s.If = &jsonschema.Schema{Properties: properties, Required: []string{"kind"}}
	s.Then, s.Else = of(other), of(kind.enum[0])
}

// quantityDefaults sets the defaults of quantities, which the reflector leaves
// out of what it maps.
func quantityDefaults(s *jsonschema.Schema, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		p, ok := s.Properties.Get(key)
		if !ok {
			continue
		}
		ft := f.Type
		if ft.Kind() == reflect.Pointer {
			ft = ft.Elem()
		}
		if _, quantity := quantities[ft]; quantity {
			for option := range strings.SplitSeq(f.Tag.Get("jsonschema"), ",") {
				if value, ok := strings.CutPrefix(option, "default="); ok {
					p.Default = value
				}
			}
		} else if ft.Kind() == reflect.Struct && p.Properties != nil {
			quantityDefaults(p, ft)
		} else if ft.Kind() == reflect.Slice && ft.Elem().Kind() == reflect.Struct && p.Items != nil && p.Items.Properties != nil {
			quantityDefaults(p.Items, ft.Elem())
		}
	}
}

// alternatives is how many of text and number a quantity may be written as.
func alternatives(t reflect.Type) int {
	if t.Name() == "Factor" || t.Name() == "Span" {
		return 2
	}
	return 1
}

func examples(quoted string) []any {
	var all []any
	for _, s := range strings.Split(quoted, " or ") {
		all = append(all, strings.Trim(s, `"`))
	}
	return all
}

// relax lets every bounded scalar of the schema be a text with a variable
// instead, and takes fields that are a choice as they are.
func relax(s *jsonschema.Schema) {
	if s.Properties != nil {
		for p := s.Properties.Oldest(); p != nil; p = p.Next() {
			relax(p.Value)
			if p.Key != "kind" && p.Key != "vars" {
				p.Value = orVariable(p.Value)
			}
		}
	}
	for _, choice := range s.OneOf {
		relax(choice)
	}
	if s.Items != nil {
		relax(s.Items)
	}
}

// orVariable is the schema of a scalar, or of text with a variable in it.
func orVariable(s *jsonschema.Schema) *jsonschema.Schema {
	scalar := s.Type == "integer" || s.Type == "number" || s.Type == "boolean" || s.Type == "string" && (s.Pattern != "" || len(s.Enum) > 0)
	if len(s.OneOf) > 0 && s.OneOf[0].Type == "string" && s.OneOf[len(s.OneOf)-1].Type != "object" {
		scalar = true
	}
	if !scalar {
		return s
	}
	value := *s
	value.Description, value.Default, value.Examples = "", nil, nil
	return &jsonschema.Schema{
		Description: s.Description, Default: s.Default, Examples: s.Examples,
		AnyOf: []*jsonschema.Schema{&value, {Type: "string", Pattern: `\$\{[A-Za-z_][A-Za-z0-9_]*\}`}},
	}
}

// specComments are the comments of spec.go by type, "Fabric", and by field,
// "Fabric.Leaves".
func specComments() (map[string]string, error) {
	file, err := parser.ParseFile(token.NewFileSet(), "spec.go", specSource, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	comments := map[string]string{}
	text := func(g *ast.CommentGroup) string { return strings.Join(strings.Fields(g.Text()), " ") }
	ast.Inspect(file, func(n ast.Node) bool {
		decl, ok := n.(*ast.GenDecl)
		if !ok || decl.Tok != token.TYPE {
			return true
		}
		for _, spec := range decl.Specs {
			typ := spec.(*ast.TypeSpec)
			comments[typ.Name.Name] = text(decl.Doc)
			if st, ok := typ.Type.(*ast.StructType); ok {
				for _, f := range st.Fields.List {
					for _, name := range f.Names {
						comments[typ.Name.Name+"."+name.Name] = text(f.Doc)
					}
				}
			}
		}
		return false
	})
	return comments, nil
}
