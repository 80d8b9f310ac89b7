package bedrock

import (
	"encoding/json"

	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/schema"
)

// anyObject stands in the system prompt where a JSON object is asked for: the vendor follows schemas only.
const anyObject = "Answer with one JSON object and nothing else."

// followSchema does so for models that follow no schema by themselves.
const followSchema = "Answer with one JSON value that follows this JSON Schema, and nothing else: "

// rules are what structured outputs take of JSON Schema. The vendor documents none for Converse; these are those of
// Claude's own API, the narrowest of the families that it serves. References are written out, since one has to stand
// alone there, without the description that generators put beside it.
var rules = schema.Rules{
	Keywords: []string{
		"type", "anyOf", "allOf", "description", "title", "enum", "const", "properties", "additionalProperties", "required",
		"items", "minItems", "format", "pattern",
	},
	Takes: func(keyword string, value json.RawMessage) bool {
		switch keyword {
		case "minItems":
			return string(value) == "0" || string(value) == "1"
		case "additionalProperties":
			return string(value) == "false"
		}
		return true
	},
	Formats: []string{"date-time", "time", "date", "duration", "email", "hostname", "uri", "ipv4", "ipv6", "uuid"},
	Rename:  map[string]string{"oneOf": "anyOf"},
	Inline:  true,
	Close:   true,
}

// format asks for an answer that follows a schema, or for any object.
func (e *encoder) format() {
	r := e.req
	typed := e.Carries(vendors.ResponseSchema, r.GetResponseSchema() != nil)
	plain := e.Carries(vendors.ResponseSchemaJSON, r.GetResponseSchemaJson() != "")
	if !typed && !plain {
		if e.Carries(vendors.JSONObject, r.GetJsonObject()) {
			e.rules = append(e.rules, anyObject)
		}
		return
	}
	s, err := schema.OfResponse(r)
	if err != nil {
		e.Wrong(vendors.ResponseSchema.Param(), err.Error())
		return
	}
	e.Carries(vendors.SchemaStrict, r.ResponseSchemaStrict != nil)
	named := e.Carries(vendors.SchemaName, r.GetResponseSchemaName() != "")
	described := e.Carries(vendors.SchemaDescription, !blank(r.GetResponseSchemaDescription()))
	whole := string(s.JSON())
	if !e.model.gen.Schemas {
		e.rules = append(e.rules, followSchema+whole)
		return
	}
	moved, err := s.Adapt(rules)
	if err != nil {
		e.Refuse(vendors.ResponseSchema.Param(), "it "+err.Error())
		return
	}
	for _, keyword := range moved {
		e.Drop("response_format." + keyword)
	}
	if s.Narrowed() {
		e.rules = append(e.rules, followSchema+whole)
		return
	}
	e.done.enforced = len(moved) == 0
	definition := types.JsonSchemaDefinition{Schema: new(string(s.JSON()))}
	if named {
		definition.Name = new(r.GetResponseSchemaName())
	}
	if described {
		definition.Description = new(r.GetResponseSchemaDescription())
	}
	e.output().TextFormat = &types.OutputFormat{
		Type: types.OutputFormatTypeJsonSchema, Structure: &types.OutputFormatStructureMemberJsonSchema{Value: definition},
	}
}
