package vendortest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

func (r *bedrockRequest) tools(path string, v any) {
	var names []string
	spec := func(path string, v any) {
		r.object(map[string]check{
			"*name": r.text(bedrockID), "description": r.words, "strict": r.flag,
			"*inputSchema": r.union(map[string]check{"json": r.free}),
		})(path, v)
		o, _ := v.(map[string]any)
		name, _ := o["name"].(string)
		if slices.Contains(names, name) {
			r.no(path, "tool names must be unique")
		}
		names = append(names, name)
		input, _ := o["inputSchema"].(map[string]any)
		schema, _ := input["json"].(map[string]any)
		if schema["type"] != "object" {
			r.no(path, "the type of inputSchema.json must be object")
		}
		if o["strict"] == true {
			r.strictSchema(path+".inputSchema.json", schema)
		}
	}
	// The choice is looked at after the tools: names sort that way.
	r.object(map[string]check{
		"*tools": r.list(1, r.union(map[string]check{"toolSpec": spec, "cachePoint": r.point})),
	})(path, without(v, "toolChoice"))
	choice := map[string]check{"auto": r.object(nil)}
	if r.version < 501 {
		choice["any"] = r.object(nil)
		choice["tool"] = r.object(map[string]check{"*name": r.enum(names...)})
	}
	if o, ok := v.(map[string]any); ok && o["toolChoice"] != nil {
		r.union(choice)(path+".toolChoice", o["toolChoice"])
	}
}

func without(v any, name string) any {
	o, ok := v.(map[string]any)
	if !ok {
		return v
	}
	o = maps.Clone(o)
	delete(o, name)
	return o
}

func (r *bedrockRequest) output(path string, v any) {
	members := map[string]check{}
	if r.claude && (r.version >= 406 || strings.Contains(r.model, "opus-4-5")) {
		members["effort"] = r.enum("low", "medium", "high", "max")
		if r.version >= 407 {
			members["effort"] = r.enum("low", "medium", "high", "xhigh", "max")
		}
	}
	if r.claude && r.version >= 401 { // nobody knows of others that take it
		members["textFormat"] = r.object(map[string]check{
			"*type": r.enum("json_schema"),
			"*structure": r.union(map[string]check{"jsonSchema": r.object(map[string]check{
				"*schema": r.schemaText, "name": r.text(bedrockID), "description": r.words,
			})}),
		})
	}
	r.object(members)(path, v)
}

func (r *bedrockRequest) schemaText(path string, v any) {
	text, _ := v.(string)
	var schema map[string]any
	if json.Unmarshal([]byte(text), &schema) != nil {
		r.no(path, "expected a JSON schema as text")
		return
	}
	r.strictSchema(path, schema)
}

// strictSchema checks a schema that the vendor is to enforce: its keywords, and that objects are closed.
func (r *bedrockRequest) strictSchema(path string, schema map[string]any) {
	for keyword, value := range schema {
		switch keyword {
		case "type", "description", "title", "enum", "const", "required", "pattern", "$ref":
		case "format":
			if !slices.Contains([]string{"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"}, fmt.Sprint(value)) {
				r.no(path, "unknown format %v", value)
			}
		case "minItems":
			if n := fmt.Sprint(value); n != "0" && n != "1" {
				r.no(path, "minItems %v", value)
			}
		case "additionalProperties":
			if value != false {
				r.no(path, "additionalProperties must be false")
			}
		case "items":
			r.subschema(path+".items", value)
		case "anyOf", "allOf":
			list, _ := value.([]any)
			for i, item := range list {
				r.subschema(fmt.Sprintf("%s.%s[%d]", path, keyword, i), item)
			}
		case "properties", "$defs":
			named, _ := value.(map[string]any)
			for name, item := range named {
				r.subschema(path+"."+keyword+"."+name, item)
			}
		default:
			r.no(path, "keyword %s is not supported", keyword)
		}
	}
	if schema["properties"] != nil && schema["additionalProperties"] != false {
		r.no(path, "additionalProperties must be false")
	}
	if schema["$ref"] != nil && len(schema) > 1 {
		r.no(path, "$ref must stand alone")
	}
}

func (r *bedrockRequest) subschema(path string, v any) {
	schema, ok := v.(map[string]any)
	if !ok {
		r.no(path, "expected a schema")
		return
	}
	r.strictSchema(path, schema)
}
