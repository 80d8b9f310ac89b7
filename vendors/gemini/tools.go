package gemini

import (
	"encoding/json"
	"fmt"
	"strings"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/schema"
)

// maxName is the longest name of a function.
const maxName = 128

// function is one functionDeclaration.
type function struct {
	name, description string
	parameters        json.RawMessage
}

// tools gathers what the model may call.
func (e *encoder) tools() {
	for i, t := range e.req.GetTools() {
		if !e.ledger.Carries(vendors.Tools, true) {
			return
		}
		if t.GetRawJson() != "" {
			e.ledger.Carries(vendors.ToolRaw, true)
			continue
		}
		e.functions = append(e.functions, e.function(fmt.Sprintf("tools[%d]", i), t))
	}
	e.search = e.ledger.Carries(vendors.EnableGoogleSearch, e.req.GetEnableGoogleSearch())
	if e.search && len(e.functions) > 0 && !e.gen.together {
		e.search = false
		e.ledger.Drop(vendors.EnableGoogleSearch.Param())
	}
}

func (e *encoder) function(path string, t *ktmsv1.Tool) function {
	out := function{name: e.declare(t.GetName())}
	if e.ledger.Carries(vendors.ToolDescription, t.GetDescription() != "") {
		out.description = t.GetDescription()
	}
	field := vendors.ToolParameters
	if t.GetParametersJson() != "" {
		field = vendors.ToolParametersJSON
	}
	s, err := schema.OfTool(t)
	if err != nil {
		e.ledger.Wrong(path+".parameters", "the schema cannot be read: "+err.Error())
	} else if e.ledger.Carries(field, s != nil) {
		out.parameters, _ = e.adapted(field.Param(), s)
	}
	if e.ledger.Carries(vendors.ToolStrict, t.GetStrict()) {
		e.validated = true
	}
	e.extra(path+".extra_json", t.GetExtraJson())
	return out
}

// declare remembers under which name the vendor knows a function.
func (e *encoder) declare(name string) string {
	wire := wireName(name)
	if wire == name {
		return name
	}
	if e.names == nil {
		e.names = map[string]string{}
	}
	e.names[wire] = name
	for _, t := range e.req.GetTools() {
		if t.GetName() == wire {
			e.ledger.Refuse(vendors.Tools.Param(), name+" has to begin with a letter or an underscore, and "+wire+" is taken")
		}
	}
	if len(wire) > maxName {
		e.ledger.Refuse(vendors.Tools.Param(), "the name "+name+" has to begin with a letter or an underscore")
	}
	return wire
}

// wireName is a function's name as the vendor takes it: names begin with a letter or an underscore. The names of tools
// are made of the right characters otherwise; those of calls in a history may be anything.
func wireName(name string) string {
	name = strings.Map(func(r rune) rune {
		if isLetter(r) || r >= '0' && r <= '9' || strings.ContainsRune(".:-", r) {
			return r
		}
		return '_'
	}, name)
	if name == "" || !isLetter(rune(name[0])) {
		name = "_" + name
	}
	return name
}

func isLetter(r rune) bool { return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r == '_' }

// writeTools writes the tools and how they are to be chosen.
func (e *encoder) writeTools(w *writer) {
	mode, only := e.choice()
	if len(e.functions) == 0 && !e.search {
		return
	}
	w.array("tools", func() {
		if len(e.functions) > 0 {
			w.group('{', '}', func() {
				w.array("functionDeclarations", func() {
					for _, f := range e.functions {
						f.write(w)
					}
				})
			})
		}
		if e.search {
			w.group('{', '}', func() { w.object("googleSearch", func() {}) })
		}
	})
	both := e.search && len(e.functions) > 0
	if mode == "" && !both {
		return
	}
	w.object("toolConfig", func() {
		if mode != "" {
			w.object("functionCallingConfig", func() {
				w.text("mode", mode)
				if only != "" {
					w.texts("allowedFunctionNames", []string{only})
				}
			})
		}
		if both { // the vendor refuses the two together otherwise
			w.raw("includeServerSideToolInvocations", []byte("true"))
		}
	})
}

func (f *function) write(w *writer) {
	w.group('{', '}', func() {
		w.text("name", f.name)
		w.maybeText("description", f.description)
		if f.parameters != nil {
			w.raw("parametersJsonSchema", f.parameters)
		}
	})
}

// choice is the mode of choosing, and the one function that may be chosen.
func (e *encoder) choice() (mode, only string) {
	c := e.req.GetToolChoice()
	if e.ledger.Carries(vendors.ToolChoiceRaw, c.GetRawJson() != "") || c.GetRawJson() != "" {
		return "", ""
	}
	switch c.GetMode() {
	case ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_NONE:
		if e.ledger.Carries(vendors.ToolChoiceNone, true) && len(e.functions) > 0 {
			return "NONE", ""
		}
		return "", ""
	case ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_REQUIRED:
		if len(e.functions) == 0 {
			e.ledger.Wrong("tool_choice", "there are no tools to choose from")
		}
		if e.ledger.Carries(vendors.ToolChoiceRequired, true) {
			return "ANY", ""
		}
	case ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_FUNCTION:
		name := wireName(c.GetFunctionName())
		if !e.declared(name) {
			e.ledger.Wrong("tool_choice", c.GetFunctionName()+" is not among the tools")
		}
		if e.ledger.Carries(vendors.ToolChoiceFunction, true) {
			return "ANY", name
		}
	}
	if len(e.functions) == 0 {
		return "", ""
	}
	// VALIDATED is AUTO with calls that follow their schemas. Beside the vendor's own tools it has to be.
	if e.validated || e.search {
		return "VALIDATED", ""
	}
	if e.carries(vendors.ToolChoiceAuto, c.GetMode() == ktmsv1.ToolChoiceMode_TOOL_CHOICE_MODE_AUTO, true) {
		return "AUTO", ""
	}
	return "", ""
}

func (e *encoder) declared(name string) bool {
	for _, f := range e.functions {
		if f.name == name {
			return true
		}
	}
	return false
}
