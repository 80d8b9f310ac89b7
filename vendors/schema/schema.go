// Package schema reads and rewrites JSON Schemas without losing anything: the order of members, the spelling of numbers
// and unknown keywords survive. Dialects use it to say a schema in the words that their vendor takes.
package schema

import (
	"encoding/json"
	"errors"

	"google.golang.org/protobuf/types/known/structpb"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
)

// Schema is one JSON Schema.
type Schema struct {
	root     *node
	narrowed bool
}

// Parse reads a schema, which is an object.
func Parse(text []byte) (*Schema, error) {
	root, err := parse(text)
	if err != nil {
		return nil, err
	}
	if root.kind != object {
		return nil, errors.New("expected an object")
	}
	return &Schema{root: root}, nil
}

// OfResponse returns the schema that a request's answer has to follow, nil if there is none.
func OfResponse(req *ktmsv1.GenerateTextRequest) (*Schema, error) {
	return either(req.GetResponseSchemaJson(), req.GetResponseSchema())
}

// OfTool returns the schema of a tool's arguments, nil if it has none.
func OfTool(t *ktmsv1.Tool) (*Schema, error) { return either(t.GetParametersJson(), t.GetParameters()) }

// either reads a schema that stands as text or in the form for typed callers.
func either(text string, typed *structpb.Struct) (*Schema, error) {
	if text != "" {
		return Parse([]byte(text))
	}
	if typed == nil {
		return nil, nil //nolint:nilnil // no schema is neither a schema nor a mistake
	}
	plain, err := json.Marshal(normalize(typed.AsMap()))
	if err != nil { // a number that JSON cannot write
		return nil, err
	}
	return Parse(plain)
}

// JSON returns the schema as text.
func (s *Schema) JSON() json.RawMessage { return s.root.appendJSON(nil) }

// What stands under the keywords of JSON Schema. Everything else (enum, const, default, required, …) holds plain values,
// in which nothing is a keyword; under the maps, the names are properties, whatever they are called.
var (
	schemaMaps   = words("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
	schemaLists  = words("allOf", "anyOf", "oneOf", "prefixItems")
	schemaValues = words("items", "additionalProperties", "additionalItems", "contains", "propertyNames", "not", "if",
		"then", "else", "unevaluatedProperties", "unevaluatedItems")
)

func words(list ...string) map[string]bool {
	set := make(map[string]bool, len(list))
	for _, w := range list {
		set[w] = true
	}
	return set
}

// children are the schemas that stand under a keyword.
func (m *member) children() []*node {
	switch {
	case schemaMaps[m.name] && m.value.kind == object:
		all := make([]*node, 0, len(m.value.members))
		for _, named := range m.value.members {
			all = append(all, named.value)
		}
		return all
	case (schemaLists[m.name] || m.name == "items") && m.value.kind == array:
		return m.value.items
	case schemaValues[m.name]:
		return []*node{m.value}
	}
	return nil
}

// exact are the keywords of schemas that OpenAI, and those who do as it does, follow exactly.
var exact = words("$schema", "$defs", "definitions", "$ref", "title", "description", "type", "enum", "const", "properties",
	"required", "additionalProperties", "items", "anyOf", "pattern", "format", "minimum", "maximum", "exclusiveMinimum",
	"exclusiveMaximum", "multipleOf", "minItems", "maxItems")

// CloseIfComplete prepares a schema for vendors that follow it exactly: they want an object at the root, every property
// required and no others allowed. If every object has all its properties required, it forbids further ones where the
// schema leaves that open, and reports true. Otherwise the schema stays as it is, and can only be followed loosely.
func (s *Schema) CloseIfComplete() bool {
	var open []*node
	if !s.exact(&open) {
		return false
	}
	for _, n := range open {
		n.set("additionalProperties", &node{kind: scalar, raw: []byte("false")})
	}
	return true
}

// Complete reports whether vendors that follow schemas exactly take this one as it is.
func (s *Schema) Complete() bool {
	var open []*node
	return s.exact(&open) && len(open) == 0
}

func (s *Schema) exact(open *[]*node) bool {
	kind, _ := s.root.get("type").string()
	return kind == "object" && s.root.get("anyOf") == nil && closable(s.root, open)
}

// closable walks over all schemas within one and collects the objects that have to be closed.
func closable(n *node, open *[]*node) bool {
	if n.kind != object {
		return false // true and false: anything and nothing
	}
	shaped := false
	for _, m := range n.members {
		if !exact[m.name] {
			return false
		}
		shaped = shaped || m.name == "type" || m.name == "anyOf" || m.name == "$ref" || m.name == "enum" || m.name == "const"
	}
	properties := n.get("properties")
	if !shaped || properties == nil && n.allows("object") {
		return false // a value, or an object, of any shape
	}
	if properties != nil {
		required := n.get("required").texts()
		for _, property := range properties.members {
			if !required[property.name] {
				return false
			}
		}
		switch more := n.get("additionalProperties"); {
		case more == nil:
			*open = append(*open, n)
		case string(more.raw) != "false":
			return false
		}
	}
	for i := range n.members {
		if n.members[i].name == "additionalProperties" {
			continue // false
		}
		for _, child := range n.members[i].children() {
			if !closable(child, open) {
				return false
			}
		}
	}
	return true
}
