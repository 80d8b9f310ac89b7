package anthropic

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/claude"
	"github.com/ai-process/ktms/vendors/openaiapi"
)

// answer adds a turn of the assistant: its thinking, its text and its calls.
func (e *encoder) answer(path string, m *ktmsv1.Message) {
	var order claude.Order
	if e.Carries(vendors.MessageOpaque, m.GetOpaque() != "") {
		order = claude.Open(vendors.Anthropic, e.target.Model, m.GetOpaque())
	}
	e.Carries(vendors.MessageReasoning, m.GetReasoning() != "" && !order.Thinks())

	texts := e.content(path, "assistant", m)
	calls := make([]*toolUse, 0, len(m.GetToolCalls()))
	uses := make([]*block, 0, len(m.GetToolCalls()))
	if e.Carries(vendors.ToolCalls, len(m.GetToolCalls()) > 0) {
		for i, c := range m.GetToolCalls() {
			call, use := e.toolUse(fmt.Sprintf("%s.tool_calls[%d]", path, i), c)
			calls, uses = append(calls, call), append(uses, use)
		}
	}
	blocks := arrange(&order, wholeText(m), texts, calls, uses)
	e.marks(path, m, blocks)
	if len(blocks) == 0 {
		return
	}
	e.say("assistant", blocks)
	e.talk.expect(calls)
}

// wholeText is the text of a message that is nothing but text, as the vendor wrote it.
func wholeText(m *ktmsv1.Message) string {
	if m.GetRefusal() != "" {
		return ""
	}
	var out strings.Builder
	out.WriteString(m.GetText())
	for _, p := range m.GetParts() {
		if _, plain := p.GetPart().(*ktmsv1.ContentPart_Text); !plain || p.GetExtraJson() != "" {
			return ""
		}
		out.WriteString(p.GetText())
	}
	return out.String()
}

// arrange puts the blocks of a turn in the order in which the vendor wrote them, if the state tells. Thinking without
// anything after it is none that the vendor takes back, and a turn of nothing else is no turn.
func arrange(order *claude.Order, whole string, texts []*block, calls []*toolUse, uses []*block) []*block {
	ids := make([]string, len(calls))
	for i, c := range calls {
		ids[i] = c.id
	}
	pieces, untold := order.Arrange(whole, ids)
	out := make([]*block, 0, len(pieces)+len(texts))
	for _, p := range pieces {
		switch {
		case p.Thought != nil:
			out = append(out, &block{raw: p.Thought.AppendJSON(nil)})
		case p.Call >= 0:
			out = append(out, uses[p.Call])
		case p.Rest && untold:
			out = append(out, texts...)
		default:
			out = appendText(out, p.Text)
		}
	}
	for len(out) > 0 && out[len(out)-1].raw != nil {
		out = out[:len(out)-1]
	}
	return out
}

// toolUse writes one call.
func (e *encoder) toolUse(path string, c *ktmsv1.ToolCall) (*toolUse, *block) {
	e.Carries(vendors.ToolCallType, c.GetType() != "" && c.GetType() != "function")
	e.extra(path+".extra_json", c.GetExtraJson())
	input := json.RawMessage(strings.TrimSpace(c.GetArguments()))
	if len(input) == 0 {
		input = json.RawMessage("{}")
	}
	if _, err := openaiapi.ParseMembers(input); err != nil {
		e.Refuse(path+".arguments", "the vendor takes JSON objects alone, and these are none") // an answer that was cut, mostly
	}
	use := &toolUse{id: c.GetId(), wire: e.toolID(c.GetId())}
	e.talk.named = append(e.talk.named, c.GetName())
	return use, &block{kind: "tool_use", id: use.wire, name: e.toolName(c.GetName()), input: input}
}

// wordChars are what the vendor takes in ids and in names of tools.
const wordChars = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"

// maxToolID keeps ids within what vendors make themselves; they are rarely longer than 40.
const maxToolID = 128

// toolID is a call's id on the wire. Ids of other vendors may have characters that this one refuses, and some vendors
// count their calls from 0 in each answer, while here an id must not come twice in a conversation. The same history gives
// the same ids, so that the vendor's prompt cache still works.
func (e *encoder) toolID(id string) string {
	wire := id
	for wire == "" || len(wire) > maxToolID || strings.Trim(wire, wordChars) != "" || e.talk.ids[wire] {
		n := e.talk.repeats[id] // goes on from the last time, since one id may come thousands of times
		e.talk.repeats[id]++
		wire = "toolu_" + digest(fmt.Sprintf("%d:%s", n, id))
	}
	e.talk.ids[wire] = true
	return wire
}

// digest is a short text that stands for a longer one.
func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:12])
}
