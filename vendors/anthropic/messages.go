package anthropic

import (
	"fmt"
	"slices"
	"strings"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/claude"
)

const (
	// placeholder is the user's turn where the vendor demands one and the caller has none: before a conversation that
	// begins with the assistant, or in place of one without any text.
	placeholder = "…"
	// goOn is the user's turn after a conversation that ends with the assistant, for models that take no beginning of
	// their answer.
	goOn = "Continue."
)

// conversation is where the encoder stands in the turns.
type conversation struct {
	begun bool // the leading instructions are over
	// calls are those of the assistant's turn before, and open those that wait for their results, by the caller's ids.
	calls []*toolUse
	open  map[string][]*toolUse
	// ids are those that were used, on the wire, and repeats counts how often each of the caller's had to be rewritten.
	ids     map[string]bool
	repeats map[string]int
	named   []string // the tools that were called
}

// expect notes calls that the user's turn has to answer.
func (c *conversation) expect(calls []*toolUse) {
	c.calls = append(c.calls, calls...)
	for _, call := range calls {
		c.open[call.id] = append(c.open[call.id], call)
	}
}

// toolUse is a call that waits for its result.
type toolUse struct {
	id     string // the caller's
	wire   string
	result *block
}

// conversation reads the instructions and the messages. The vendor wants user and assistant in turn, and the results of
// all calls at the head of the turn after them.
func (e *encoder) conversation() {
	e.talk.ids, e.talk.repeats, e.talk.open = map[string]bool{}, map[string]int{}, map[string][]*toolUse{}
	r := e.req
	if e.Carries(vendors.BaseSystemInstruction, r.GetBaseSystemInstruction() != "") {
		e.system = appendText(e.system, r.GetBaseSystemInstruction())
	}
	if e.Carries(vendors.RequestInstruction, r.GetRequestInstruction() != "") {
		e.system = appendText(e.system, r.GetRequestInstruction())
	}
	for i, m := range r.GetMessages() {
		e.message(fmt.Sprintf("messages[%d]", i), m)
	}
	e.settle()
}

func (e *encoder) message(path string, m *ktmsv1.Message) {
	e.Carries(vendors.MessageName, m.GetName() != "")
	switch m.GetRole() {
	case ktmsv1.MessageRole_MESSAGE_ROLE_SYSTEM, ktmsv1.MessageRole_MESSAGE_ROLE_DEVELOPER:
		if e.Carries(vendors.SystemTurns, true) {
			e.instruct(path, m)
		}
		return
	case ktmsv1.MessageRole_MESSAGE_ROLE_USER:
		e.talk.begun = true
		e.say("user", e.content(path, "user", m))
	case ktmsv1.MessageRole_MESSAGE_ROLE_ASSISTANT:
		e.talk.begun = true
		e.answer(path, m)
	case ktmsv1.MessageRole_MESSAGE_ROLE_TOOL:
		e.talk.begun = true
		if e.Carries(vendors.ToolResults, true) {
			e.result(path, m)
		}
	default:
		e.Wrong(path+".role", "is missing")
	}
}

// content reads a message's text or parts. The breakpoint of the message is its last block's.
func (e *encoder) content(path, role string, m *ktmsv1.Message) []*block {
	var blocks []*block
	if e.Carries(vendors.MessageText, m.GetText() != "") {
		blocks = appendText(blocks, m.GetText())
	}
	for i, p := range m.GetParts() {
		if b := e.part(fmt.Sprintf("%s.parts[%d]", path, i), role, p); b != nil {
			blocks = append(blocks, b)
		}
	}
	if e.Carries(vendors.MessageRefusal, m.GetRefusal() != "") {
		blocks = appendText(blocks, m.GetRefusal())
	}
	if role != "tool" && role != "assistant" { // those have more blocks to come
		e.marks(path, m, blocks)
	}
	return blocks
}

// marks puts the cache_control of a message on the last of its blocks that can have one.
func (e *encoder) marks(path string, m *ktmsv1.Message, blocks []*block) {
	mark := e.mark(e.extra(path+".extra_json", m.GetExtraJson(), cacheControl).Get(cacheControl))
	if mark == claude.None {
		return
	}
	for _, b := range slices.Backward(blocks) {
		if b.raw == nil {
			b.cache = mark
			return
		}
	}
	e.Drop(cacheControl)
}

func appendText(blocks []*block, text string) []*block {
	if strings.TrimSpace(text) == "" {
		return blocks // the vendor refuses blank text
	}
	return append(blocks, &block{kind: "text", text: text})
}

// instruct places an instruction: in the system field as long as nothing but text came before and in it, later as a
// marked text in a user's turn. The vendor's role for it is not taken by every model.
func (e *encoder) instruct(path string, m *ktmsv1.Message) {
	blocks := e.content(path, "system", m)
	plain := !slices.ContainsFunc(blocks, func(b *block) bool { return b.kind != "text" })
	if !e.talk.begun && plain {
		e.system = append(e.system, blocks...)
		return
	}
	if len(blocks) == 0 {
		return
	}
	e.talk.begun = true
	for _, b := range blocks {
		if b.kind == "text" {
			b.text = "<system_instruction>\n" + b.text + "\n</system_instruction>"
		}
	}
	e.say("user", blocks)
}

// say adds blocks to the turn of a role, and begins one if the turn before is the other's.
func (e *encoder) say(role string, blocks []*block) {
	if len(blocks) == 0 {
		return
	}
	t := e.turn(role)
	t.blocks = append(t.blocks, blocks...)
}

func (e *encoder) turn(role string) *turn {
	if n := len(e.turns); n > 0 && e.turns[n-1].role == role {
		return e.turns[n-1]
	}
	if role == "assistant" {
		e.settle()
	}
	t := &turn{role: role}
	e.turns = append(e.turns, t)
	return t
}

// result keeps the result of a call until the turn is over.
func (e *encoder) result(path string, m *ktmsv1.Message) {
	b := &block{kind: "tool_result"}
	for _, inner := range e.content(path, "tool", m) {
		if inner.cache != claude.None {
			b.cache, inner.cache = inner.cache, claude.None
		}
		b.content = append(b.content, inner)
	}
	extra := e.extra(path+".extra_json", m.GetExtraJson(), cacheControl, "is_error")
	if mark := e.mark(extra.Get(cacheControl)); mark != claude.None {
		b.cache = mark
	}
	switch flag := extra.Get("is_error"); string(flag) {
	case "true", "false":
		b.isError = flag
	case "", "null":
	default:
		e.Drop("is_error")
	}
	id := m.GetToolCallId()
	waiting := e.talk.open[id]
	if len(waiting) == 0 {
		e.Wrong(path+".tool_call_id", fmt.Sprintf("%q answers no call of the assistant's turn before it, or one that is answered already", id))
		return
	}
	e.talk.open[id] = waiting[1:]
	b.id = waiting[0].wire
	waiting[0].result = b
	e.turn("user") // results alone make a turn
}

// settle ends the turn that answers calls: the results come first, in the order of the calls.
func (e *encoder) settle() {
	calls := e.talk.calls
	e.talk.calls = nil
	if len(calls) == 0 {
		return
	}
	clear(e.talk.open)
	results := make([]*block, 0, len(calls))
	for _, c := range calls {
		if c.result == nil {
			e.Wrong("messages", fmt.Sprintf("the call %q has no result: send a tool message with this tool_call_id right after the assistant's", c.id))
			return
		}
		results = append(results, c.result)
	}
	t := e.turns[len(e.turns)-1]
	t.blocks = append(results, t.blocks...)
}

// begin gives the conversation a user's turn to begin with.
func (e *encoder) begin() {
	if len(e.turns) > 0 && e.turns[0].role == "user" {
		return
	}
	first := &block{kind: "text", text: placeholder}
	if n := len(e.system); len(e.turns) == 0 && n > 0 {
		first, e.system = e.system[n-1], e.system[:n-1] // an instruction alone is what the user asks
	}
	e.turns = slices.Insert(e.turns, 0, &turn{role: "user", blocks: []*block{first}})
}

// end deals with a conversation that ends with the assistant: the answer continues it. Models that cannot, or not
// together with thinking or a schema, are asked to.
func (e *encoder) end() {
	last := e.turns[len(e.turns)-1]
	if last.role != "assistant" {
		return
	}
	if b := last.blocks[len(last.blocks)-1]; e.gen.Prefill && e.thinking != "enabled" && e.format == nil && b.kind == "text" {
		b.text = strings.TrimRight(b.text, " \t\r\n") // the vendor refuses blanks at the end
		return
	}
	e.say("user", []*block{{kind: "text", text: goOn}})
}
