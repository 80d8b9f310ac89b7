package bedrock

import (
	"encoding/json"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/claude"
	"github.com/ai-process/ktms/vendors/openaiapi"
	"github.com/ai-process/ktms/vendors/schema"
)

// noCalls stands in the system prompt where calls are not wanted but the history holds some: the vendor then demands the
// tools, and has no choice that forbids them.
const noCalls = "Do not call any tool now. Answer in text."

// openSchema takes any arguments, closedSchema none.
const (
	openSchema   = `{"type":"object","properties":{}}`
	closedSchema = `{"type":"object","properties":{},"additionalProperties":false}`
)

// tools declares the tools and the choice among them. Where the request has none, those of the history are declared,
// since the vendor demands it, and not to be called.
func (e *encoder) tools() {
	choice := e.req.GetToolChoice()
	mode := choice.GetMode()
	raw := choice.GetRawJson() != ""
	e.Carries(vendors.ToolChoiceRaw, raw)
	none := !raw && mode == ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE && e.Carries(vendors.ToolChoiceNone, true)
	used := e.used()
	var config types.ToolConfiguration
	if e.Carries(vendors.Tools, len(e.req.GetTools()) > 0) {
		for i, t := range e.req.GetTools() {
			config.Tools = append(config.Tools, e.tool(fmt.Sprintf("tools[%d]", i), t)...)
		}
	}
	if none && used == nil {
		return // without tools there are no calls
	}
	forced := mode == ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_REQUIRED || mode == ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_FUNCTION
	if config.Tools == nil {
		if forced {
			e.Wrong(vendors.ToolChoiceRequired.Param(), "needs tools to choose from")
		}
		if used == nil {
			return
		}
		none = true
		for _, name := range used {
			config.Tools = append(config.Tools, &types.ToolMemberToolSpec{Value: types.ToolSpecification{
				Name: &name, InputSchema: &types.ToolInputSchemaMemberJson{Value: newDocument(json.RawMessage(openSchema))},
			}})
		}
	}
	if none {
		e.rules = append(e.rules, noCalls)
	} else if !raw {
		e.choose(&config, choice)
	}
	e.out.ToolConfig = &config
}

// used are the names of the tools that the history calls, on the wire.
func (e *encoder) used() []string {
	var names []string
	known := map[string]bool{}
	for _, t := range e.turns {
		for _, c := range t.calls {
			if !known[c.name] {
				known[c.name] = true
				names = append(names, c.name)
			}
		}
	}
	return names
}

func (e *encoder) choose(config *types.ToolConfiguration, choice *ktmsv1.ToolChoice) {
	switch choice.GetMode() {
	case ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO:
		if e.Carries(vendors.ToolChoiceAuto, true) {
			config.ToolChoice = &types.ToolChoiceMemberAuto{}
		}
	case ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_REQUIRED:
		if !e.Carries(vendors.ToolChoiceRequired, true) {
			return
		}
		if e.unforced() {
			e.rules = append(e.rules, "Call at least one of the tools now.")
			return
		}
		config.ToolChoice = &types.ToolChoiceMemberAny{}
	case ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_FUNCTION:
		if !e.Carries(vendors.ToolChoiceFunction, true) {
			return
		}
		name := e.wireName(choice.GetFunctionName())
		if !e.declared[name] {
			e.Wrong(vendors.ToolChoiceFunction.Param(), fmt.Sprintf("names %q, which is none of the tools", choice.GetFunctionName()))
		}
		if e.unforced() {
			e.rules = append(e.rules, "Call the tool "+name+" now.")
			return
		}
		config.ToolChoice = &types.ToolChoiceMemberTool{Value: types.SpecificToolChoice{Name: &name}}
	}
}

// unforced: the model refuses a choice that demands a call, always or while it thinks.
func (e *encoder) unforced() bool {
	_, thinks := e.callersThinking()
	return thinks || !e.model.gen.Forced
}

func (e *encoder) tool(path string, t *ktmsv1.Tool) []types.Tool {
	if t.GetRawJson() != "" {
		e.Carries(vendors.ToolRaw, true)
		return nil
	}
	name := e.wireName(t.GetName())
	if e.declared[name] {
		e.Wrong(path+".name", "is declared twice")
	}
	e.declared[name] = true
	spec := types.ToolSpecification{Name: &name}
	if e.Carries(vendors.ToolDescription, !blank(t.GetDescription())) {
		spec.Description = new(t.GetDescription())
	}
	text, strict := e.parameters(path, t)
	if strict {
		spec.Strict = new(true)
	}
	spec.InputSchema = &types.ToolInputSchemaMemberJson{Value: newDocument(text)}
	out := []types.Tool{&types.ToolMemberToolSpec{Value: spec}}
	if point, _ := e.extras(path, t.GetExtraJson()); point != nil {
		out = append(out, &types.ToolMemberCachePoint{Value: *point})
	}
	return out
}

// parameters is the schema of a tool's arguments, and whether the vendor holds the model to it. Only such a schema has to
// keep to the vendor's keywords.
func (e *encoder) parameters(path string, t *ktmsv1.Tool) (text json.RawMessage, strict bool) {
	e.Carries(vendors.ToolParameters, t.GetParameters() != nil)
	e.Carries(vendors.ToolParametersJSON, t.GetParametersJson() != "")
	strict = e.Carries(vendors.ToolStrict, t.GetStrict())
	s, err := schema.OfTool(t)
	if err != nil {
		e.Wrong(path+".parameters", err.Error())
		return nil, false
	}
	if s == nil {
		text = json.RawMessage(openSchema)
		if strict {
			text = json.RawMessage(closedSchema)
		}
		return text, strict
	}
	text = s.JSON()
	if strict {
		moved, err := s.Adapt(claude.Rules)
		if err != nil || s.Narrowed() {
			e.Drop(vendors.ToolStrict.Param())
			return e.ofObjects(path, text), false
		}
		for _, keyword := range moved {
			e.Drop("tools.parameters." + keyword)
		}
		text = s.JSON()
	}
	return e.ofObjects(path, text), strict
}

// ofObjects says at the top of a schema that it is one of objects: the vendor takes no others, and wants to read it.
func (e *encoder) ofObjects(path string, text json.RawMessage) json.RawMessage {
	members, err := openaiapi.ParseMembers(text)
	switch kind := string(members.Get("type")); {
	case err != nil || kind == `"object"`:
		return text
	case kind != "": // other vendors may take it
		e.Refuse(path+".parameters", `it has to be a schema of type "object"`)
		return text
	}
	return append(openaiapi.Members{{Name: "type", Value: json.RawMessage(`"object"`)}}, members...).AppendJSON(nil)
}
