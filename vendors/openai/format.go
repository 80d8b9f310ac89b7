package openai

import (
	"fmt"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/openaiapi"
	"github.com/ai-process/ktms/vendors/schema"
)

const defaultSchemaName = "response"

// responseFormat asks for JSON, of a schema if there is one.
func (e *encoder) responseFormat() {
	r := e.req
	if r.GetResponseSchema() == nil && r.GetResponseSchemaJson() == "" {
		if e.carries(vendors.JSONObject, r.GetJsonObject(), false) {
			e.out.ResponseFormat = &openaiapi.ResponseFormat{Type: "json_object"}
		}
		return
	}
	if e.noSchema { // the schema is in the prompt
		e.out.ResponseFormat = &openaiapi.ResponseFormat{Type: "json_object"}
		return
	}
	s := e.responseSchema()
	if s == nil {
		return
	}
	wire := &openaiapi.JSONSchema{Name: r.GetResponseSchemaName(), Description: r.GetResponseSchemaDescription(), Strict: r.ResponseSchemaStrict}
	if wire.Name == "" {
		wire.Name = defaultSchemaName
	}
	switch text := r.GetResponseSchemaJson(); {
	case text != "":
		if wire.Strict == nil {
			wire.Strict = new(s.Complete())
		}
		wire.Schema = e.raw("response_schema_json", text)
	default:
		if wire.Strict == nil {
			wire.Strict = new(s.CloseIfComplete())
		}
		wire.Schema = s.JSON()
	}
	e.enforced = e.enforces && *wire.Strict
	e.out.ResponseFormat = &openaiapi.ResponseFormat{Type: "json_schema", JSONSchema: wire}
}

func (e *encoder) responseSchema() *schema.Schema {
	s, err := schema.OfResponse(e.req)
	if err != nil {
		e.Wrong("response_schema", err.Error())
	}
	return s
}

// schemaInWords tells a model its schema where the vendor has no place for it.
func (e *encoder) schemaInWords() string {
	if !e.noSchema {
		return ""
	}
	s := e.responseSchema()
	if s == nil {
		return ""
	}
	words := "Answer with nothing but JSON that follows this JSON Schema"
	if name := e.req.GetResponseSchemaName(); name != "" {
		words += " of " + name
	}
	if description := e.req.GetResponseSchemaDescription(); description != "" {
		words += " (" + description + ")"
	}
	return words + ":\n" + string(s.JSON())
}

func (e *encoder) tools() {
	r := e.req
	for i, t := range r.GetTools() {
		e.out.Tools = append(e.out.Tools, e.tool(fmt.Sprintf("tools[%d]", i), t))
	}
	choice := r.GetToolChoice()
	if choice == nil {
		return
	}
	out := &openaiapi.ToolChoice{}
	field := vendors.ToolChoiceAuto
	switch mode := choice.GetMode(); {
	case choice.GetRawJson() != "":
		field, out.Raw = vendors.ToolChoiceRaw, e.raw("tool_choice.raw_json", choice.GetRawJson())
	case mode == ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_UNSPECIFIED:
		return
	case mode == ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_FUNCTION:
		field, out.Function = vendors.ToolChoiceFunction, choice.GetFunctionName()
	case mode == ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_REQUIRED:
		field, out.Mode = vendors.ToolChoiceRequired, "required"
	case mode == ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE:
		field, out.Mode = vendors.ToolChoiceNone, "none"
	default:
		out.Mode = "auto"
	}
	if e.carries(field, true, field == vendors.ToolChoiceAuto) {
		e.out.ToolChoice = out
	}
}

func (e *encoder) tool(path string, t *ktmsv1.Tool) openaiapi.Tool {
	if t.GetRawJson() != "" {
		return openaiapi.Tool{Raw: e.rawObject(path+".raw_json", t.GetRawJson())}
	}
	f := &openaiapi.Function{Name: t.GetName(), Description: t.GetDescription(), Strict: t.Strict}
	if t.GetParametersJson() != "" {
		f.Parameters = e.raw(path+".parameters_json", t.GetParametersJson())
	} else if s, err := schema.OfTool(t); err != nil {
		e.Wrong(path+".parameters", err.Error())
	} else if s != nil {
		f.Parameters = s.JSON()
	}
	out := openaiapi.Tool{Type: "function", Function: f}
	if t.GetExtraJson() != "" {
		extra := e.without(e.object(path+".extra_json", t.GetExtraJson()), []byte("{}"), "type", "function")
		out.Extra = e.taken(vendors.ToolExtra, extra)
	}
	return out
}
