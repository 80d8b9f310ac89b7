package vendortest

import (
	"encoding/json"
	"fmt"
	"slices"
)

func (g *geminiReader) config(path string, v any) {
	const maxInt32 = 1<<31 - 1
	readers := map[string]func(string, any){
		"candidateCount": g.number(1, 8, true), "maxOutputTokens": g.number(1, maxInt32, true),
		"stopSequences": func(path string, v any) {
			if len(g.list(path, v, g.text)) > 5 {
				g.fail(path, "more than five")
			}
		},
		"seed": g.number(-maxInt32-1, maxInt32, true), "responseLogprobs": g.flag, "logprobs": g.number(0, 20, true),
		"responseMimeType": func(path string, v any) {
			g.enum("text/plain", "application/json")(path, v)
			g.mime = fmt.Sprint(v)
		},
		"responseJsonSchema": g.schema, "thinkingConfig": g.thinking,
	}
	if g.version < 4 {
		readers["temperature"], readers["topP"], readers["topK"] = g.number(0, 2, false), g.number(0, 1, false), g.number(0, maxInt32, true)
		readers["presencePenalty"], readers["frequencyPenalty"] = g.number(-2, 2, false), g.number(-2, 2, false)
	}
	config := g.object(path, v, readers)
	if config["responseJsonSchema"] != nil && config["responseMimeType"] != "application/json" {
		g.fail(path, "a schema needs the mime type application/json")
	}
	if config["logprobs"] != nil && config["responseLogprobs"] != true {
		g.fail(path, "logprobs without responseLogprobs")
	}
}

func (g *geminiReader) thinking(path string, v any) {
	readers := map[string]func(string, any){"includeThoughts": g.flag}
	switch {
	case g.version >= 4:
		readers["thinkingLevel"] = g.enum("LOW", "MEDIUM", "HIGH")
	case g.version >= 3:
		readers["thinkingLevel"] = g.enum("MINIMAL", "LOW", "MEDIUM", "HIGH")
	case g.version >= 2.5:
		readers["thinkingBudget"] = g.number(-1, 32768, true)
	}
	g.object(path, v, readers)
}

// schema reads a JSON Schema of the keywords that the vendor knows.
func (g *geminiReader) schema(path string, v any) {
	list := func(path string, v any) { g.list(path, v, g.schema) }
	isString := func(v any) bool { _, ok := v.(string); return ok }
	kinds := g.enum("string", "number", "integer", "boolean", "array", "object", "null")
	names := func(path string, v any) {
		if items, ok := v.([]any); !ok || slices.ContainsFunc(items, func(v any) bool { return !isString(v) }) {
			g.fail(path, "is no list of names")
		}
	}
	g.object(path, v, map[string]func(string, any){
		"$id": g.text, "$anchor": g.text, "format": g.text, "title": g.text, "description": nil,
		"type": func(path string, v any) {
			if isString(v) {
				kinds(path, v)
			} else {
				g.list(path, v, kinds)
			}
		},
		"enum": func(path string, v any) {
			g.list(path, v, func(path string, v any) {
				if _, number := v.(json.Number); !number && !isString(v) {
					g.fail(path, "an enum holds strings and numbers")
				}
			})
		},
		"items": g.schema, "prefixItems": list, "anyOf": list, "oneOf": list,
		"minItems": g.number(0, 1<<31, true), "maxItems": g.number(0, 1<<31, true), "minimum": g.number(-1e308, 1e308, false), "maximum": g.number(-1e308, 1e308, false),
		"properties": func(path string, v any) {
			properties, ok := v.(map[string]any)
			if !ok {
				g.fail(path, "is not an object")
			}
			for name, property := range properties { // whatever their names
				g.schema(path+"."+name, property)
			}
		},
		"propertyOrdering": names, "required": names, "additionalProperties": func(path string, v any) {
			if _, ok := v.(bool); !ok {
				g.schema(path, v)
			}
		},
	})
}
