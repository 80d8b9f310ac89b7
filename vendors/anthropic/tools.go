package anthropic

import (
	"encoding/json"
	"fmt"
	"strings"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/claude"
	"github.com/ai-process/ktms/vendors/openaiapi"
	"github.com/ai-process/ktms/vendors/schema"
)

// tool is a function that the model may call.
type tool struct {
	name, description string
	schema            []byte
	strict            bool
	extra             openaiapi.Members
	cache             claude.Lifetime
}

// toolChoice says which tools are to be called.
type toolChoice struct {
	kind, name string
	oneAtATime bool
}

func (w *writer) tool(t *tool) {
	w.open("", '{')
	w.str("name", t.name)
	w.opt("description", t.description)
	w.raw("input_schema", t.schema)
	if t.strict {
		w.raw("strict", []byte("true"))
	}
	for _, m := range t.extra {
		w.raw(m.Name, m.Value)
	}
	w.breakpoint(t.cache)
	w.close('}')
}

func (w *writer) choice(c *toolChoice) {
	if c == nil {
		return
	}
	w.open("tool_choice", '{')
	w.str("type", c.kind)
	w.opt("name", c.name)
	if c.oneAtATime {
		w.raw("disable_parallel_tool_use", []byte("true"))
	}
	w.close('}')
}

// The schemas of a tool without arguments.
var (
	noParameters     = []byte(`{"type":"object","properties":{}}`)
	closedParameters = []byte(`{"type":"object","properties":{},"additionalProperties":false}`)
)

func (e *encoder) declareTools() {
	if !e.Carries(vendors.Tools, len(e.req.GetTools()) > 0) {
		return
	}
	for i, t := range e.req.GetTools() {
		if out := e.tool(fmt.Sprintf("tools[%d]", i), t); out != nil {
			e.tools = append(e.tools, out)
		}
	}
}

func (e *encoder) tool(path string, t *ktmsv1.Tool) *tool {
	if t.GetRawJson() != "" {
		e.Carries(vendors.ToolRaw, true)
		return nil
	}
	out := &tool{name: e.toolName(t.GetName()), schema: noParameters}
	if e.declared[out.name] {
		e.Wrong(path+".name", "is declared twice")
	}
	e.declared[out.name] = true
	if e.Carries(vendors.ToolDescription, strings.TrimSpace(t.GetDescription()) != "") {
		out.description = t.GetDescription()
	}
	switch {
	case e.Carries(vendors.ToolParametersJSON, t.GetParametersJson() != ""), e.Carries(vendors.ToolParameters, t.GetParameters() != nil):
		e.parameters(path+".parameters", t, out)
	case e.isStrict(t):
		out.strict, out.schema = true, closedParameters
	}
	extra := e.extra(path+".extra_json", t.GetExtraJson(), cacheControl, "input_examples")
	out.cache = e.mark(extra.Take(cacheControl))
	out.extra = extra
	return out
}

// isStrict reports whether a tool's arguments are to be held to its schema.
func (e *encoder) isStrict(t *ktmsv1.Tool) bool { return e.Carries(vendors.ToolStrict, t.GetStrict()) }

// parameters writes the schema of a tool: as it is, or, where the vendor has to follow it exactly, in its words.
func (e *encoder) parameters(path string, t *ktmsv1.Tool, out *tool) {
	s, err := schema.OfTool(t)
	if err != nil {
		e.Wrong(path, err.Error())
		return
	}
	text := s.JSON()
	if t.GetParametersJson() != "" {
		text = json.RawMessage(strings.TrimSpace(t.GetParametersJson()))
	}
	out.schema = e.ofObjects(path, text)
	if !e.isStrict(t) || e.Failed() != nil {
		return
	}
	moved, err := s.Adapt(claude.Rules)
	switch {
	case err != nil:
		e.Refuse(path, err.Error())
	case s.Narrowed():
		e.Drop(vendors.ToolStrict.Param())
	default:
		out.strict, out.schema = true, e.ofObjects(path, s.JSON())
		for _, keyword := range moved {
			e.Drop(vendors.ToolParameters.Param() + "." + keyword)
		}
	}
}

// ofObjects gives a schema the type object, which the vendor demands. Nothing else changes.
func (e *encoder) ofObjects(path string, text json.RawMessage) []byte {
	members, err := openaiapi.ParseMembers(text)
	if err != nil {
		e.Wrong(path, "is not a JSON schema")
		return noParameters
	}
	switch kind := string(members.Get("type")); {
	case kind == `"object"`:
		return text
	case strings.Contains(kind, `"object"`): // or something else, which others take
		e.Refuse(path, `the vendor takes schemas of type "object" alone`)
		return noParameters
	case kind != "":
		e.Wrong(path, `must be a schema of type "object"`)
		return noParameters
	case len(members) == 0:
		return noParameters
	}
	open := strings.IndexByte(string(text), '{') + 1
	return append([]byte(`{"type":"object",`), text[open:]...)
}

// maxToolName is how long a tool's name may be for the vendor; models that still take sampling parameters had less room.
const (
	maxToolName   = 128
	olderToolName = 64
)

// toolName is a tool's name on the wire. Names that the vendor would refuse are rewritten, always in the same way, and
// answers are given the caller's names back.
func (e *encoder) toolName(name string) string {
	wire := strings.Map(func(r rune) rune {
		if strings.ContainsRune(wordChars, r) {
			return r
		}
		return '_'
	}, name)
	most := maxToolName
	if e.gen.Sampling {
		most = olderToolName
	}
	if wire == name && name != "" && len(name) <= most && e.names[wire] == "" {
		return wire
	}
	mark := "_" + digest(name)
	wire = wire[:min(len(wire), most-len(mark))] + mark
	e.names[wire] = name
	return wire
}

// chooseTools says whether tools are to be called, and how many at once. A choice without tools is no choice.
func (e *encoder) chooseTools() {
	c := e.req.GetToolChoice()
	oneAtATime := e.Carries(vendors.ParallelToolCalls, e.req.ParallelToolCalls != nil && !e.req.GetParallelToolCalls() && len(e.tools) > 0)
	if c.GetRawJson() != "" {
		e.Carries(vendors.ToolChoiceRaw, true)
		return
	}
	mode := c.GetMode()
	if len(e.tools) == 0 {
		if mode == ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_REQUIRED || mode == ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_FUNCTION {
			e.Wrong("tool_choice", "demands a call, and the request has no tools")
		}
		e.declareCalled()
		return
	}
	switch {
	case mode == ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE:
		if e.Carries(vendors.ToolChoiceNone, true) {
			e.choice = &toolChoice{kind: "none"} // has no switch for parallel calls
		}
	case mode == ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_REQUIRED:
		if e.Carries(vendors.ToolChoiceRequired, true) {
			e.choice = &toolChoice{kind: "any", oneAtATime: oneAtATime}
			e.askForCall("Call one of the tools before you answer.")
		}
	case mode == ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_FUNCTION:
		name := e.toolName(c.GetFunctionName())
		if !e.declared[name] {
			e.Wrong("tool_choice", fmt.Sprintf("names %q, which is none of the tools", c.GetFunctionName()))
		}
		if e.Carries(vendors.ToolChoiceFunction, true) {
			e.choice = &toolChoice{kind: "tool", name: name, oneAtATime: oneAtATime}
			e.askForCall("Call the tool " + name + " now.")
		}
	case e.Carries(vendors.ToolChoiceAuto, mode == ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO) || oneAtATime:
		e.choice = &toolChoice{kind: "auto", oneAtATime: oneAtATime}
	}
}

// askForCall asks in words for the call that the choice demands, where the model refuses the demand.
func (e *encoder) askForCall(words string) {
	if e.gen.Forced {
		return
	}
	e.system = appendText(e.system, words)
	if e.choice.oneAtATime {
		e.choice = &toolChoice{kind: "auto", oneAtATime: true}
	} else {
		e.choice = nil
	}
}

// declareCalled declares the tools of earlier calls where the request has none any more: the vendor wants to know the
// tools of a conversation that called some. They are not to be called again.
func (e *encoder) declareCalled() {
	for _, name := range e.talk.named {
		wire := e.toolName(name)
		if !e.declared[wire] {
			e.declared[wire] = true
			e.tools = append(e.tools, &tool{name: wire, schema: noParameters})
		}
	}
	if len(e.tools) > 0 {
		e.choice = &toolChoice{kind: "none"}
	}
}
