package schema

import "slices"

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
		case schemaMaps[keyword]:
			if named, ok := value.(map[string]any); ok {
				for name, sub := range named {
					named[name] = normalize(sub)
				}
			}
		case schemaLists[keyword], keyword == "items":
			if list, ok := value.([]any); ok {
				for i, sub := range list {
					list[i] = normalize(sub)
				}
				continue
			}
			schema[keyword] = normalize(value)
		case schemaValues[keyword]:
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
