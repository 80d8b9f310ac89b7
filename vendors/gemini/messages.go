package gemini

import (
	"encoding/json"
	"fmt"
	"strings"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/openaiapi"
)

const (
	// An instruction in the middle of a conversation can only stand in a user's turn; this marks it as more than that.
	instructionStart = "<system_instruction>\n"
	instructionEnd   = "\n</system_instruction>"
	// opening stands before a conversation that the model begins: a user has to.
	opening = "(conversation start)"
	// noSignature stands for the signature of calls that this model did not make, or that lost it.
	noSignature = "skip_thought_signature_validator"
)

// openCall is a call whose result is to be written: the message that holds it.
type openCall struct {
	id, name string
	path     string
	result   int
}

// conversation gathers the system instruction and the turns.
func (e *encoder) conversation() {
	e.instruction(vendors.BaseSystemInstruction, e.req.GetBaseSystemInstruction())
	e.instruction(vendors.RequestInstruction, e.req.GetRequestInstruction())
	messages := e.req.GetMessages()
	e.results = map[string]*results{}
	for i, m := range messages {
		if m.GetRole() != ktmsv1.MessageRole_MESSAGE_ROLE_TOOL {
			continue
		}
		of := e.results[m.GetToolCallId()]
		if of == nil {
			of = &results{orphan: -1}
			e.results[m.GetToolCallId()] = of
		}
		of.places = append(of.places, i)
	}
	leading := true
	for i, m := range messages {
		path := fmt.Sprintf("messages[%d]", i)
		e.extra(path+".extra_json", m.GetExtraJson())
		e.ledger.Carries(vendors.MessageName, m.GetName() != "" && m.GetRole() != ktmsv1.MessageRole_MESSAGE_ROLE_TOOL)
		switch m.GetRole() {
		case ktmsv1.MessageRole_MESSAGE_ROLE_SYSTEM, ktmsv1.MessageRole_MESSAGE_ROLE_DEVELOPER:
			e.answer()
			leading = e.systemTurn(path, m, leading)
			continue
		case ktmsv1.MessageRole_MESSAGE_ROLE_USER:
			e.answer()
			e.add(userRole, e.parts(path, m)...)
		case ktmsv1.MessageRole_MESSAGE_ROLE_ASSISTANT:
			e.add(modelRole, e.modelTurn(path, i, m)...)
		case ktmsv1.MessageRole_MESSAGE_ROLE_TOOL:
			e.ledger.Carries(vendors.ToolResults, true)
			e.answer()
		default:
			e.ledger.Wrong(path+".role", "is missing")
		}
		leading = false
	}
	e.answer()
	first := len(messages)
	for _, of := range e.results {
		if of.claim(len(messages)); of.orphan >= 0 {
			first = min(first, of.orphan)
		}
	}
	if first < len(messages) {
		e.ledger.Wrong(fmt.Sprintf("messages[%d].tool_call_id", first), messages[first].GetToolCallId()+" answers no call of an earlier assistant turn")
	}
}

// results are the places of the tool messages with one tool_call_id. Ids may come again, so that calls claim them in
// turn.
type results struct {
	places []int
	next   int // of places
	orphan int // the first place that no call claimed, -1 for none
}

// claim takes the first result after a place; -1 is none. Places are asked for in order, so that a result before one
// can belong to no later call either.
func (r *results) claim(after int) int {
	for r != nil && r.next < len(r.places) {
		place := r.places[r.next]
		r.next++
		if place > after {
			return place
		}
		if r.orphan < 0 {
			r.orphan = place
		}
	}
	return -1
}

// ends sees to it that there is a turn, and that the first is a user's.
func (e *encoder) ends() {
	if len(e.contents) == 0 {
		e.add(userRole, e.system...)
		e.system = nil
	}
	switch {
	case len(e.contents) == 0:
		e.ledger.Wrong("messages", "are empty; send at least one text or other content")
	case e.contents[0].role == modelRole:
		first := content{role: userRole, parts: []part{{text: opening}}}
		e.contents = append([]content{first}, e.contents...)
	}
}

// add puts parts to the last turn if it has the role, and begins one otherwise.
func (e *encoder) add(role string, parts ...part) {
	if len(parts) == 0 {
		return
	}
	if last := len(e.contents) - 1; last >= 0 && e.contents[last].role == role {
		e.contents[last].parts = append(e.contents[last].parts, parts...)
		return
	}
	e.contents = append(e.contents, content{role: role, parts: parts})
}

func (e *encoder) instruction(f vendors.Field, text string) {
	if e.ledger.Carries(f, !blank(text)) {
		e.system = append(e.system, part{text: text})
	}
}

// blank texts are left out: the vendor refuses empty ones, and the others say nothing.
func blank(text string) bool { return strings.TrimSpace(text) == "" }

// systemTurn adds an instruction to the others while no turn stands before it, and reports whether that is still so.
func (e *encoder) systemTurn(path string, m *ktmsv1.Message, leading bool) bool {
	if !e.ledger.Carries(vendors.SystemTurns, true) {
		return leading
	}
	parts := e.parts(path, m)
	for _, p := range parts {
		leading = leading && p.text != "" // the system instruction is text alone
	}
	if leading {
		e.system = append(e.system, parts...)
		return true
	}
	for i := range parts {
		if parts[i].text != "" {
			parts[i].text = instructionStart + parts[i].text + instructionEnd
		}
	}
	e.add(userRole, parts...)
	return false
}

// parts is the content of a message.
func (e *encoder) parts(path string, m *ktmsv1.Message) []part {
	var out []part
	if e.ledger.Carries(vendors.MessageText, !blank(m.GetText())) {
		out = append(out, part{text: m.GetText()})
	}
	for i, p := range m.GetParts() {
		if p, ok := e.part(fmt.Sprintf("%s.parts[%d]", path, i), p); ok {
			out = append(out, p)
		}
	}
	if e.ledger.Carries(vendors.MessageRefusal, !blank(m.GetRefusal())) {
		out = append(out, part{text: m.GetRefusal()})
	}
	return out
}

// modelTurn is an earlier answer, with the signatures that it came with.
func (e *encoder) modelTurn(path string, at int, m *ktmsv1.Message) []part {
	var own state
	if e.ledger.Carries(vendors.MessageOpaque, m.GetOpaque() != "") {
		own = openState(e.target.Model, m.GetOpaque())
	}
	e.ledger.Carries(vendors.MessageReasoning, m.GetReasoning() != "" && own.empty())
	var out []part
	for _, raw := range own.Server {
		out = append(out, part{raw: json.RawMessage(raw)})
	}
	out = append(out, e.parts(path, m)...)
	for i := len(out) - 1; i >= 0; i-- {
		if out[i].text != "" {
			out[i].signature = own.Text
			break
		}
	}
	first := len(out)
	signed := false
	for i, c := range m.GetToolCalls() {
		p, ok := e.call(fmt.Sprintf("%s.tool_calls[%d]", path, i), at, c)
		if !ok {
			continue
		}
		if i < len(own.Calls) {
			p.signature = own.Calls[i]
		}
		signed = signed || p.signature != ""
		out = append(out, p)
	}
	if e.gen.signed && first < len(out) && !signed {
		out[first].signature = noSignature
	}
	return out
}

// call is an earlier call. It claims the message with its result.
func (e *encoder) call(path string, at int, c *ktmsv1.ToolCall) (part, bool) {
	custom := c.GetType() == "custom"
	if e.ledger.Carries(vendors.ToolCallType, custom); custom || !e.ledger.Carries(vendors.ToolCalls, true) {
		return part{}, false
	}
	e.extra(path+".extra_json", c.GetExtraJson())
	out := &functionCall{id: c.GetId(), name: wireName(c.GetName()), args: json.RawMessage(c.GetArguments())}
	switch arguments := strings.TrimSpace(c.GetArguments()); {
	case c.GetName() == "":
		e.ledger.Wrong(path+".name", "is missing")
	case arguments == "":
		out.args = json.RawMessage("{}")
	case !isObject(arguments):
		e.ledger.Refuse(path+".arguments", "it takes JSON objects alone") // others take any text
	}
	e.open = append(e.open, openCall{id: out.id, name: out.name, path: path, result: e.results[out.id].claim(at)})
	return part{call: out}, true
}

func isObject(text string) bool {
	text = strings.TrimSpace(text)
	return strings.HasPrefix(text, "{") && json.Valid([]byte(text))
}

// answer writes the results of the open calls as one turn, in the order of the calls: the vendor wants one for each,
// right after the turn that made them.
func (e *encoder) answer() {
	var out []part
	for _, call := range e.open {
		if call.result < 0 {
			e.ledger.Wrong(call.path, "the call "+call.id+" has no result; send a tool message with this tool_call_id")
			continue
		}
		out = append(out, e.result(call)...)
	}
	e.open = nil
	e.add(userRole, out...)
}

// result is the result of a call, followed by what of it is no text.
func (e *encoder) result(call openCall) []part {
	m := e.req.GetMessages()[call.result]
	var texts []string
	var media []part
	for _, p := range e.parts(fmt.Sprintf("messages[%d]", call.result), m) {
		if p.text != "" {
			texts = append(texts, p.text)
		} else {
			media = append(media, p)
		}
	}
	text := strings.Join(texts, "\n")
	if m.GetText() != "" {
		text = m.GetText() // blanks included
	}
	response := json.RawMessage(text)
	if !isObject(text) {
		response = openaiapi.Members{{Name: "output", Value: openaiapi.AppendString(nil, text)}}.AppendJSON(nil)
	}
	return append([]part{{response: &functionResponse{id: call.id, name: call.name, response: response}}}, media...)
}
