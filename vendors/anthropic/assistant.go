package anthropic

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/openaiapi"
)

// answer adds a turn of the assistant: its thinking, its text and its calls.
func (e *encoder) answer(path string, m *ktmsv1.Message) {
	var thoughts []thought
	if e.Carries(vendors.MessageOpaque, m.GetOpaque() != "") {
		thoughts = openThoughts(e.target.Model, m.GetOpaque())
	}
	e.Carries(vendors.MessageReasoning, m.GetReasoning() != "" && thoughts == nil)

	texts := e.content(path, "assistant", m)
	calls := make([]*toolUse, 0, len(m.GetToolCalls()))
	uses := make([]*block, 0, len(m.GetToolCalls()))
	if e.Carries(vendors.ToolCalls, len(m.GetToolCalls()) > 0) {
		for i, c := range m.GetToolCalls() {
			call, use := e.toolUse(fmt.Sprintf("%s.tool_calls[%d]", path, i), c)
			calls, uses = append(calls, call), append(uses, use)
		}
	}
	blocks := arrange(thoughts, wholeText(m), texts, calls, uses)
	e.marks(path, m, blocks)
	if len(texts) == 0 && len(uses) == 0 {
		return // thinking without an answer is no turn
	}
	e.say("assistant", blocks)
	e.talk.calls = append(e.talk.calls, calls...)
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

// arrange puts the blocks of a turn in the order in which the vendor wrote them, if the thoughts tell, and else thinking
// first, then the text, then the calls.
func arrange(thoughts []thought, whole string, texts []*block, calls []*toolUse, uses []*block) []*block {
	out := make([]*block, 0, len(thoughts)+len(texts)+len(uses))
	cut := 0 // of the whole text
	var cuts []*block
	taken := make([]bool, len(uses))
	for _, th := range thoughts {
		switch {
		case th.raw != nil:
			out = append(out, &block{raw: th.raw})
		case th.text > 0:
			end := cut + th.text
			if end > len(whole) || end < len(whole) && !utf8.RuneStart(whole[end]) {
				continue // the text is another one
			}
			cuts = appendText(cuts[:0], whole[cut:end])
			out = append(out, cuts...)
			cut = end
		default:
			for i, c := range calls {
				if c.id == th.call && !taken[i] {
					taken[i], out = true, append(out, uses[i])
					break
				}
			}
		}
	}
	if cut > 0 {
		texts = appendText(nil, whole[cut:])
	}
	out = append(out, texts...)
	for i, use := range uses {
		if !taken[i] {
			out = append(out, use)
		}
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
		e.Wrong(path+".arguments", "is not a JSON object")
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
	for n := 0; wire == "" || len(wire) > maxToolID || strings.Trim(wire, wordChars) != "" || e.talk.ids[wire]; n++ {
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

// A thought is an element of Choice.opaque: a thinking block as the vendor wrote it, or, where thinking came between
// other blocks, the length of a text or the id of a call that stands there.
type thought struct {
	raw  json.RawMessage
	text int
	call string
}

// sealThoughts packs the thoughts of an answer. What follows the last thinking needs no place.
func sealThoughts(model string, thoughts []thought) string {
	for len(thoughts) > 0 && thoughts[len(thoughts)-1].raw == nil {
		thoughts = thoughts[:len(thoughts)-1]
	}
	if len(thoughts) == 0 {
		return ""
	}
	state := []byte{'['}
	for i, th := range thoughts {
		if i > 0 {
			state = append(state, ',')
		}
		switch {
		case th.raw != nil:
			state = append(state, th.raw...)
		case th.text > 0:
			state = fmt.Appendf(state, "%d", th.text)
		default:
			state = openaiapi.AppendString(state, th.call)
		}
	}
	return vendors.SealOpaque(vendors.Anthropic, model, append(state, ']'))
}

// openThoughts unpacks them; nil if they are another model's or damaged. Callers can make up a state, so that nothing but
// thinking comes out of it.
func openThoughts(model, opaque string) []thought {
	state := vendors.OpenOpaque(vendors.Anthropic, model, opaque)
	var elements []json.RawMessage
	if state == nil || json.Unmarshal(state, &elements) != nil {
		return nil
	}
	thoughts := make([]thought, 0, len(elements))
	for _, element := range elements {
		var th thought
		var err error
		switch element = bytes.TrimSpace(element); element[0] {
		case '{':
			if !isThinking(element) {
				return nil
			}
			th.raw = element
		case '"':
			err = json.Unmarshal(element, &th.call)
		default:
			err = json.Unmarshal(element, &th.text)
		}
		if err != nil || th.raw == nil && th.call == "" && th.text <= 0 {
			return nil
		}
		thoughts = append(thoughts, th)
	}
	return thoughts
}

// thinkingMembers are the members of the blocks that may come out of a state, each with its text.
var thinkingMembers = map[string][]string{
	"thinking": {"type", "thinking", "signature"}, "redacted_thinking": {"type", "data"},
}

func isThinking(object []byte) bool {
	members, err := openaiapi.ParseMembers(object)
	if err != nil {
		return false
	}
	var kind string
	if json.Unmarshal(members.Get("type"), &kind) != nil {
		return false
	}
	known := thinkingMembers[kind]
	if len(known) == 0 || len(members) < len(known) {
		return false
	}
	for _, name := range known {
		var text *string
		if json.Unmarshal(members.Get(name), &text) != nil || text == nil {
			return false
		}
	}
	return true
}
