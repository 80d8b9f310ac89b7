package anthropic

import (
	"encoding/json"

	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/claude"
	"github.com/ai-process/ktms/vendors/openaiapi"
	"github.com/ai-process/ktms/vendors/schema"
)

const (
	jsonOnly   = "Answer with one JSON object and nothing else: no text around it, no code fence."
	schemaOnly = "Answer with JSON that follows this JSON Schema and nothing else: no text around it, no code fence.\n\n"
)

// responseFormat asks for JSON. A schema that the vendor cannot enforce is said in the system text.
func (e *encoder) responseFormat() {
	r := e.req
	s, err := schema.OfResponse(r)
	if err != nil {
		e.Wrong(vendors.ResponseSchema.Param(), err.Error())
		return
	}
	if s == nil {
		if e.Carries(vendors.JSONObject, r.GetJsonObject()) {
			e.system = appendText(e.system, jsonOnly)
		}
		return
	}
	if !e.Carries(vendors.ResponseSchemaJSON, r.GetResponseSchemaJson() != "") && !e.Carries(vendors.ResponseSchema, r.GetResponseSchema() != nil) {
		return
	}
	e.Carries(vendors.SchemaStrict, r.ResponseSchemaStrict != nil)
	whole := e.titled(s.JSON())
	if !e.gen.Schemas {
		e.system = appendText(e.system, schemaOnly+string(whole))
		return
	}
	moved, err := s.Adapt(claude.Rules)
	if err != nil {
		e.Refuse(vendors.ResponseSchema.Param(), err.Error())
		return
	}
	for _, keyword := range moved {
		e.Drop(vendors.ResponseSchema.Param() + "." + keyword)
	}
	if s.Narrowed() {
		e.system = appendText(e.system, schemaOnly+string(whole))
		return
	}
	e.format = e.titled(s.JSON())
	e.enforced = len(moved) == 0
}

// titled gives a schema the name and the description that the request has for it.
func (e *encoder) titled(text json.RawMessage) json.RawMessage {
	r := e.req
	name := e.Carries(vendors.SchemaName, r.GetResponseSchemaName() != "")
	about := e.Carries(vendors.SchemaDescription, r.GetResponseSchemaDescription() != "")
	members, err := openaiapi.ParseMembers(text)
	if err != nil || !name && !about {
		return text
	}
	first := make(openaiapi.Members, 0, len(members)+2)
	if name && members.Get("title") == nil {
		first.Add("title", openaiapi.AppendString(nil, r.GetResponseSchemaName()))
	}
	if about {
		description := r.GetResponseSchemaDescription()
		var own string
		if json.Unmarshal(members.Take("description"), &own) == nil && own != "" {
			description += "\n" + own
		}
		first.Add("description", openaiapi.AppendString(nil, description))
	}
	return append(first, members...).AppendJSON(nil)
}
