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

// children calls f for every schema directly within one, until it returns false.
func (n *node) children(f func(*node) bool) bool {
	if n.kind != object {
		return true
	}
	for _, m := range n.members {
		switch {
		case schemaMaps[m.name] && m.value.kind == object:
			for _, named := range m.value.members {
				if !f(named.value) {
					return false
				}
			}
		case (schemaLists[m.name] || m.name == "items") && m.value.kind == array:
			for _, item := range m.value.items {
				if !f(item) {
					return false
				}
			}
		case schemaValues[m.name]:
			if !f(m.value) {
				return false
			}
		}
	}
	return true
}

// CloseIfComplete prepares a schema for vendors that follow it exactly: they want every property required and no others
// allowed. If every object has all its properties required, it forbids further ones where the schema leaves that open,
// and reports true. Otherwise the schema stays as it is, and can only be followed loosely.
func (s *Schema) CloseIfComplete() bool {
	var open []*node
	if !closable(s.root, &open) {
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
	return closable(s.root, &open) && len(open) == 0
}

// closable walks over all schemas within one and collects the objects that have to be closed.
func closable(n *node, open *[]*node) bool {
	if n.kind != object {
		return n.isBool()
	}
	properties := n.get("properties")
	if properties == nil && n.allows("object") {
		return false // an object of any shape
	}
	if properties != nil {
		required := n.get("required")
		for _, property := range properties.members {
			if !required.holds(property.name) {
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
	return n.children(func(child *node) bool { return closable(child, open) })
}
