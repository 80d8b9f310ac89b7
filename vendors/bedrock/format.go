package bedrock

import (
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/claude"
	"github.com/ai-process/ktms/vendors/schema"
)

// anyObject stands in the system prompt where a JSON object is asked for: the vendor follows schemas only.
const anyObject = "Answer with one JSON object and nothing else."

// followSchema does so for models that follow no schema by themselves.
const followSchema = "Answer with one JSON value that follows this JSON Schema, and nothing else: "

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
	moved, err := s.Adapt(claude.Rules)
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
