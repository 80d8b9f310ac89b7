package openai

import (
	"slices"
)

// Keywords of JSON Schema by what stands under them. Everything else (enum, const, default, required, …) holds plain
// values, in which nothing is a keyword; under the maps, the names are properties, whatever they are called.
var (
	schemaMaps   = []string{"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
	schemaLists  = []string{"allOf", "anyOf", "oneOf", "prefixItems"}
	schemaValues = []string{
		"items", "additionalProperties", "additionalItems", "contains", "propertyNames", "not", "if", "then", "else",
		"unevaluatedProperties", "unevaluatedItems",
	}
)

// normalize rewrites a schema of a typed caller in place: additional_properties becomes additionalProperties, and
// nullable becomes the type null beside the others.
func normalize(node any) any {
	schema, ok := node.(map[string]any)
	if !ok {
		return node
	}
	if value, has := schema["additional_properties"]; has {
		if _, both := schema["additionalProperties"]; !both {
			schema["additionalProperties"] = value
		}
		delete(schema, "additional_properties")
	}
	for keyword, value := range schema {
		switch {
		case slices.Contains(schemaMaps, keyword):
			if named, ok := value.(map[string]any); ok {
				for name, sub := range named {
					named[name] = normalize(sub)
				}
			}
		case slices.Contains(schemaLists, keyword), keyword == "items":
			if list, ok := value.([]any); ok {
				for i, sub := range list {
					list[i] = normalize(sub)
				}
				continue
			}
			schema[keyword] = normalize(value)
		case slices.Contains(schemaValues, keyword):
			schema[keyword] = normalize(value)
		}
	}
	if nullable, has := schema["nullable"].(bool); has {
		delete(schema, "nullable")
		if nullable {
			return allowNull(schema)
		}
	}
	return schema
}

// allowNull adds null to what a schema allows.
func allowNull(schema map[string]any) map[string]any {
	switch kind := schema["type"].(type) {
	case string:
		if kind != "null" {
			schema["type"] = []any{kind, "null"}
		}
	case []any:
		if !slices.Contains(kind, any("null")) {
			schema["type"] = append(kind, "null")
		}
	default:
		if schema["$ref"] == nil && schema["anyOf"] == nil && schema["oneOf"] == nil && schema["allOf"] == nil && schema["enum"] == nil {
			return schema // no type: null is allowed already
		}
		if schema["enum"] == nil {
			return map[string]any{"anyOf": []any{schema, map[string]any{"type": "null"}}}
		}
	}
	if values, ok := schema["enum"].([]any); ok && !slices.Contains(values, any(nil)) {
		schema["enum"] = append(values, nil)
	}
	return schema
}

// closeObjects prepares a schema for vendors that follow it exactly: they want every property required and no others
// allowed. If every object has all its properties required, it forbids further ones where the schema leaves that open,
// and reports true. Otherwise the schema stays as it is, and can only be followed loosely.
func closeObjects(tree any) bool {
	var open []map[string]any
	if !closable(tree, &open) {
		return false
	}
	for _, schema := range open {
		schema["additionalProperties"] = false
	}
	return true
}

// closable walks over all schemas within one and collects the objects that have to be closed.
func closable(node any, open *[]map[string]any) bool {
	schema, ok := node.(map[string]any)
	if !ok {
		_, isBool := node.(bool)
		return isBool
	}
	properties, isObject := schema["properties"].(map[string]any)
	if !isObject && allowsObject(schema["type"]) {
		return false // an object of any shape
	}
	if isObject {
		required, _ := schema["required"].([]any)
		for name := range properties {
			if !slices.Contains(required, any(name)) {
				return false
			}
		}
		switch more, has := schema["additionalProperties"]; {
		case !has:
			*open = append(*open, schema)
		case more != false:
			return false
		}
	}
	for keyword, value := range schema {
		switch {
		case slices.Contains(schemaMaps, keyword):
			named, _ := value.(map[string]any)
			for _, sub := range named {
				if !closable(sub, open) {
					return false
				}
			}
		case slices.Contains(schemaLists, keyword):
			list, _ := value.([]any)
			for _, sub := range list {
				if !closable(sub, open) {
					return false
				}
			}
		case slices.Contains(schemaValues, keyword):
			if !closable(value, open) {
				return false
			}
		}
	}
	return true
}

func allowsObject(kind any) bool {
	if list, ok := kind.([]any); ok {
		return slices.Contains(list, any("object"))
	}
	return kind == "object"
}
