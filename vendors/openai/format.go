package openai

import (
	"encoding/json"
	"fmt"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors/openaiapi"
)

const defaultSchemaName = "response"

// responseFormat asks for JSON, of a schema if there is one. A dialect without schemas is asked for any JSON.
func (e *encoder) responseFormat() {
	r := e.req
	if r.GetResponseSchema() == nil && r.GetResponseSchemaJson() == "" {
		if e.carries("response_format", r.GetJsonObject(), false) {
			e.out.ResponseFormat = &openaiapi.ResponseFormat{Type: "json_object"}
		}
		return
	}
	if !e.carries("response_format", true, false) {
		return
	}
	if e.noSchema {
		e.drop("response_format")
		e.out.ResponseFormat = &openaiapi.ResponseFormat{Type: "json_object"}
		return
	}
	schema := &openaiapi.JSONSchema{Name: r.GetResponseSchemaName(), Description: r.GetResponseSchemaDescription(), Strict: r.ResponseSchemaStrict}
	if schema.Name == "" {
		schema.Name = defaultSchemaName
	}
	if text := r.GetResponseSchemaJson(); text != "" {
		schema.Schema = e.raw("response_schema_json", text)
		if schema.Strict == nil {
			schema.Strict = new(true)
		}
	} else {
		tree := normalize(r.GetResponseSchema().AsMap())
		if schema.Strict == nil {
			schema.Strict = new(closeObjects(tree))
		}
		schema.Schema = e.schema("response_schema", tree)
	}
	e.out.ResponseFormat = &openaiapi.ResponseFormat{Type: "json_schema", JSONSchema: schema}
}

func (e *encoder) schema(param string, tree any) json.RawMessage {
	text, err := json.Marshal(tree)
	if err != nil { // a number that JSON cannot write
		e.fail(param, "is not a JSON schema")
		return json.RawMessage("null")
	}
	return text
}

func (e *encoder) tools() {
	r := e.req
	if e.carries("tools", len(r.GetTools()) > 0, false) {
		for i, t := range r.GetTools() {
			e.out.Tools = append(e.out.Tools, e.tool(fmt.Sprintf("tools[%d]", i), t))
		}
	}
	choice := r.GetToolChoice()
	if choice == nil {
		return
	}
	mode := choice.GetMode()
	unspecified := mode == ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_UNSPECIFIED
	if !e.carries("tool_choice", choice.GetRawJson() != "" || !unspecified, mode == ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO) {
		return
	}
	out := &openaiapi.ToolChoice{}
	switch {
	case choice.GetRawJson() != "":
		out.Raw = e.raw("tool_choice.raw_json", choice.GetRawJson())
	case mode == ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_FUNCTION:
		out.Function = choice.GetFunctionName()
	case mode == ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_REQUIRED:
		out.Mode = "required"
	case mode == ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE:
		out.Mode = "none"
	default:
		out.Mode = "auto"
	}
	e.out.ToolChoice = out
}

func (e *encoder) tool(path string, t *ktmsv1.Tool) openaiapi.Tool {
	if t.GetRawJson() != "" {
		return openaiapi.Tool{Raw: e.rawObject(path+".raw_json", t.GetRawJson())}
	}
	f := &openaiapi.Function{Name: t.GetName(), Description: t.GetDescription(), Strict: t.Strict}
	switch {
	case t.GetParametersJson() != "":
		f.Parameters = e.raw(path+".parameters_json", t.GetParametersJson())
	case t.GetParameters() != nil:
		f.Parameters = e.schema(path+".parameters", normalize(t.GetParameters().AsMap()))
	}
	out := openaiapi.Tool{Type: "function", Function: f}
	if t.GetExtraJson() != "" {
		out.Extra = e.without(e.object(path+".extra_json", t.GetExtraJson()), []byte("{}"), "type", "function")
	}
	return out
}
