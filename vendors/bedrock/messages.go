package bedrock

import (
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/claude"
	"github.com/ai-process/ktms/vendors/openaiapi"
)

const (
	// placeholder stands for a turn that has to be there but says nothing: the vendor refuses blank texts.
	placeholder = "(empty)"
	// goOn follows a conversation that ends with the assistant: newer models refuse to continue an answer.
	goOn = "Continue."
)

// turn is one turn as the vendor wants them: roles alternate, so that messages of one role in a row are one turn.
type turn struct {
	assistant bool
	blocks    []types.ContentBlock
	// calls of an assistant's turn. Their results open the turn after it.
	calls []*toolUse
}

func (t *turn) add(blocks ...types.ContentBlock) { t.blocks = append(t.blocks, blocks...) }

// user is the open turn of the user; assistant that of the assistant.
func (e *encoder) user() *turn      { return e.open(false) }
func (e *encoder) assistant() *turn { return e.open(true) }

func (e *encoder) open(assistant bool) *turn {
	if n := len(e.turns); n > 0 && e.turns[n-1].assistant == assistant {
		return e.turns[n-1]
	}
	t := &turn{assistant: assistant}
	e.turns = append(e.turns, t)
	return t
}

// conversation writes the messages. Leading instructions belong to the system prompt.
func (e *encoder) conversation() {
	leading := true
	for i, m := range e.req.GetMessages() {
		path := fmt.Sprintf("messages[%d]", i)
		role := m.GetRole()
		instruction := role == ktmsv1.MessageRole_MESSAGE_ROLE_SYSTEM || role == ktmsv1.MessageRole_MESSAGE_ROLE_DEVELOPER
		leading = leading && instruction
		e.Carries(vendors.MessageName, m.GetName() != "" && role != ktmsv1.MessageRole_MESSAGE_ROLE_TOOL)
		var known []string
		if role == ktmsv1.MessageRole_MESSAGE_ROLE_TOOL && (e.model.claude || e.model.nova) {
			known = []string{isError}
		}
		point, kept := e.extras(path, m.GetExtraJson(), known...)
		switch role {
		case ktmsv1.MessageRole_MESSAGE_ROLE_SYSTEM, ktmsv1.MessageRole_MESSAGE_ROLE_DEVELOPER:
			if e.Carries(vendors.SystemTurns, true) {
				e.instruction(path, m, leading, point)
			}
		case ktmsv1.MessageRole_MESSAGE_ROLE_USER:
			blocks := e.content(path, m, everywhere)
			e.user().add(e.withPoint(blocks, point)...)
		case ktmsv1.MessageRole_MESSAGE_ROLE_ASSISTANT:
			if blocks := e.withPoint(e.answer(path, m), point); blocks != nil { // one that says nothing is none
				e.assistant().add(blocks...)
			}
		case ktmsv1.MessageRole_MESSAGE_ROLE_TOOL:
			if e.Carries(vendors.ToolResults, true) {
				e.result(path, m, point, e.failed(kept))
			}
		default:
			e.Wrong(path+".role", "is missing")
		}
	}
	e.finish()
}

// instruction writes a system turn. A later one stays in its place, marked, since not every model takes the role there.
func (e *encoder) instruction(path string, m *ktmsv1.Message, leading bool, point *types.CachePointBlock) {
	blocks := e.content(path, m, onlyText)
	for _, b := range e.withPoint(blocks, point) {
		text, isText := b.(*types.ContentBlockMemberText)
		switch {
		case isText && leading:
			e.system(text.Value)
		case isText:
			e.user().add(&types.ContentBlockMemberText{Value: "<system>\n" + text.Value + "\n</system>"})
		case leading:
			if p, ok := b.(*types.ContentBlockMemberCachePoint); ok {
				e.out.System = append(e.out.System, &types.SystemContentBlockMemberCachePoint{Value: p.Value})
			}
		default:
			e.user().add(b)
		}
	}
}

// content writes the text or the parts of a message.
func (e *encoder) content(path string, m *ktmsv1.Message, takes place) []types.ContentBlock {
	var out []types.ContentBlock
	if len(m.GetParts()) == 0 {
		if e.Carries(vendors.MessageText, !blank(m.GetText())) {
			out = append(out, &types.ContentBlockMemberText{Value: m.GetText()})
		}
		return out
	}
	for i, p := range m.GetParts() {
		out = append(out, e.part(fmt.Sprintf("%s.parts[%d]", path, i), p, takes)...)
	}
	return out
}

// answer writes a turn of the assistant: its signed reasoning, what it said, what it refused, and its calls.
func (e *encoder) answer(path string, m *ktmsv1.Message) []types.ContentBlock {
	var state claude.Order
	if e.Carries(vendors.MessageOpaque, m.GetOpaque() != "") {
		state = claude.Open(dialect, e.target.Model, m.GetOpaque())
	}
	e.Carries(vendors.MessageReasoning, m.GetReasoning() != "" && !state.Thinks())
	said := e.content(path, m, onlyText)
	if e.Carries(vendors.MessageRefusal, !blank(m.GetRefusal())) {
		said = append(said, &types.ContentBlockMemberText{Value: m.GetRefusal()})
	}
	var calls []types.ContentBlock
	for i, c := range m.GetToolCalls() {
		if block := e.call(fmt.Sprintf("%s.tool_calls[%d]", path, i), c); block != nil {
			calls = append(calls, block)
		}
	}
	return turnOf(&state, m, said, calls)
}

// finish puts the results of calls in their places and sees to what the vendor demands of the order.
func (e *encoder) finish() {
	if len(e.turns) == 0 || e.turns[0].assistant {
		e.turns = append([]*turn{{}}, e.turns...)
	}
	var calls []*toolUse
	for _, t := range e.turns {
		out := types.Message{Role: types.ConversationRoleUser}
		if t.assistant {
			out.Role = types.ConversationRoleAssistant
			out.Content = t.blocks
		} else {
			out.Content = append(results(calls), t.blocks...)
			switch {
			case len(out.Content) == 0 || onlyPoints(out.Content):
				out.Content = []types.ContentBlock{&types.ContentBlockMemberText{Value: placeholder}}
			case needsText(out.Content):
				out.Content = append(out.Content, &types.ContentBlockMemberText{Value: placeholder})
			}
		}
		calls = t.calls
		for _, c := range calls {
			if c.result == nil {
				e.Wrong("messages", fmt.Sprintf("the tool call %q has no result; send one for every call", c.id))
			}
		}
		e.out.Messages = append(e.out.Messages, out)
	}
	if last := e.turns[len(e.turns)-1]; last.assistant {
		e.out.Messages = append(e.out.Messages, types.Message{
			Role: types.ConversationRoleUser, Content: append(results(calls), &types.ContentBlockMemberText{Value: goOn}),
		})
	}
}

// results are those of one turn's calls, in the order of the calls.
func results(calls []*toolUse) []types.ContentBlock {
	var out []types.ContentBlock
	for _, c := range calls {
		out = append(out, c.result...)
	}
	return out
}

// needsText: the vendor wants a text beside documents.
func needsText(blocks []types.ContentBlock) bool {
	document := false
	for _, b := range blocks {
		switch b.(type) {
		case *types.ContentBlockMemberDocument:
			document = true
		case *types.ContentBlockMemberText:
			return false
		}
	}
	return document
}

// onlyPoints: a cache point needs something before it.
func onlyPoints(blocks []types.ContentBlock) bool {
	for _, b := range blocks {
		if _, point := b.(*types.ContentBlockMemberCachePoint); !point {
			return false
		}
	}
	return true
}

const (
	cacheControl = "cache_control"
	isError      = "is_error"
)

// extras reports the further members of a message, a part, a tool or a call, but for the known ones, which it returns. A
// breakpoint of the prompt cache is carried to models that have them, and returned.
func (e *encoder) extras(path, text string, known ...string) (point *types.CachePointBlock, kept openaiapi.Members) {
	for _, m := range e.members(path+".extra_json", text) {
		if m.Name == cacheControl && e.model.claude {
			if point = cachePoint(m.Value); point != nil {
				continue
			}
		}
		switch {
		case string(m.Value) == "null": // says nothing
		case slices.Contains(known, m.Name):
			kept.Add(m.Name, m.Value)
		default:
			e.Drop(m.Name)
		}
	}
	return point, kept
}

// failed reports whether a result says that its call went wrong.
func (e *encoder) failed(members openaiapi.Members) bool {
	switch string(members.Get(isError)) {
	case "", "false":
		return false
	case "true":
		return true
	}
	e.Drop(isError)
	return false
}

// withPoint adds a cache point behind what it follows, if there is anything.
func (e *encoder) withPoint(blocks []types.ContentBlock, point *types.CachePointBlock) []types.ContentBlock {
	if point == nil {
		return blocks
	}
	if len(blocks) == 0 {
		e.Drop(cacheControl)
		return blocks
	}
	if _, already := blocks[len(blocks)-1].(*types.ContentBlockMemberCachePoint); already {
		return blocks
	}
	return append(blocks, &types.ContentBlockMemberCachePoint{Value: *point})
}
