package bedrock

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/claude"
)

// dialect marks the opaque state of this package.
const dialect = "bedrock"

// newThought is a block of reasoning as it travels through callers. Claude's own API writes what only the vendor can read
// as text.
func newThought(text, signature string, redacted []byte) claude.Thought {
	return claude.Thought{Thinking: text, Signature: signature, Redacted: base64.StdEncoding.EncodeToString(redacted)}
}

// thoughtBlock is the same on its way back; nil if it is damaged.
func thoughtBlock(t *claude.Thought) types.ContentBlock {
	if t.Redacted == "" {
		return &types.ContentBlockMemberReasoningContent{Value: &types.ReasoningContentBlockMemberReasoningText{
			Value: types.ReasoningTextBlock{Text: &t.Thinking, Signature: &t.Signature},
		}}
	}
	data, err := base64.StdEncoding.DecodeString(t.Redacted)
	if err != nil || len(data) == 0 {
		return nil
	}
	return &types.ContentBlockMemberReasoningContent{Value: &types.ReasoningContentBlockMemberRedactedContent{Value: data}}
}

// turnOf puts what an assistant's turn says and calls in the order in which the vendor wrote it, with its reasoning. It
// returns nothing for reasoning alone, which is no turn, and ends with something else, as the vendor demands.
func turnOf(state *claude.Order, m *ktmsv1.Message, said, calls []types.ContentBlock) []types.ContentBlock {
	ids := make([]string, 0, len(calls))
	for _, c := range m.GetToolCalls() {
		ids = append(ids, c.GetId())
	}
	var out []types.ContentBlock
	length := 0 // up to the last block that is no reasoning
	add := func(blocks ...types.ContentBlock) {
		if len(blocks) > 0 {
			out = append(out, blocks...)
			length = len(out)
		}
	}
	pieces, whole := state.Arrange(wholeText(m), ids)
	for _, p := range pieces {
		switch {
		case p.Thought != nil:
			if block := thoughtBlock(p.Thought); block != nil {
				out = append(out, block)
			}
		case p.Call >= 0:
			if p.Call < len(calls) {
				add(calls[p.Call])
			}
		case p.Rest && whole:
			add(said...)
		case !blank(p.Text):
			add(&types.ContentBlockMemberText{Value: p.Text})
		}
	}
	if length == 0 {
		return nil
	}
	return out[:length]
}

// wholeText is the text of a message that is nothing but text, as the vendor wrote it.
func wholeText(m *ktmsv1.Message) string {
	if m.GetRefusal() != "" {
		return ""
	}
	if len(m.GetParts()) == 0 {
		return m.GetText()
	}
	var out strings.Builder
	for _, p := range m.GetParts() {
		if _, plain := p.GetPart().(*ktmsv1.ContentPart_Text); !plain || p.GetExtraJson() != "" {
			return ""
		}
		out.WriteString(p.GetText())
	}
	return out.String()
}

// callersThinking is what the caller says of thinking in the vendor's own words, nil if nothing, and whether the model
// thinks then.
func (e *encoder) callersThinking() (text json.RawMessage, thinks bool) {
	if !e.model.claude {
		return nil, false
	}
	text = e.members("extra_json", e.req.GetExtraJson()).Get("thinking")
	if string(text) == "null" {
		return nil, false
	}
	var wire struct {
		Type string `json:"type"`
	}
	return text, json.Unmarshal(text, &wire) == nil && wire.Type != "disabled"
}

// minBudget is the vendor's for thinking.
const minBudget = 1024

// thinking asks for an effort, in the words of the model's generation. It comes after the choice of tools, since a model
// cannot think about a call that it is forced to.
func (e *encoder) thinking() {
	asked, gen := e.req.GetReasoningEffort(), e.model.gen
	caller, thinks := e.callersThinking()
	e.thinks = thinks
	if caller != nil {
		e.further.Add("thinking", caller)
	}
	off := func() { e.further.Add("thinking", json.RawMessage(`{"type":"disabled"}`)) }
	if e.forced() && gen.Style == claude.Always && gen.Disable && caller == nil {
		off()
		caller = json.RawMessage("{}")
	}
	if asked == "none" && e.model.claude {
		switch {
		case gen.Style == claude.Never: // happens anyway
		case !gen.Disable || thinks:
			e.Drop(vendors.ReasoningEffort.Param())
		case e.Carries(vendors.ReasoningEffort, true) && caller == nil:
			off()
		}
		return
	}
	if !e.Carries(vendors.ReasoningEffort, asked != "") {
		return
	}
	effort := gen.Effort(asked)
	if effort == "" {
		e.Drop(vendors.ReasoningEffort.Param())
		return
	}
	if gen.Efforts {
		e.output().Effort = &effort
	}
	switch {
	case caller != nil: // says it better
	case gen.Style == claude.OnRequest && !e.forced():
		e.further.Add("thinking", json.RawMessage(`{"type":"adaptive"}`))
		e.thinks = true
	case gen.Style == claude.Budgeted && !e.budgetFor(effort) && !gen.Efforts:
		e.Drop(vendors.ReasoningEffort.Param())
	}
}

// forced reports whether the choice of tools demands a call.
func (e *encoder) forced() bool {
	if e.out.ToolConfig == nil {
		return false
	}
	switch e.out.ToolConfig.ToolChoice.(type) {
	case *types.ToolChoiceMemberAny, *types.ToolChoiceMemberTool:
		return true
	}
	return false
}

// budgetFor switches thinking on with a number of tokens, if the request allows it. The tokens count to the ceiling of the
// answer.
func (e *encoder) budgetFor(effort string) bool {
	if e.forced() || e.inUnthoughtLoop() {
		return false
	}
	ceiling := int64(0)
	if e.out.InferenceConfig != nil && e.out.InferenceConfig.MaxTokens != nil {
		ceiling = int64(*e.out.InferenceConfig.MaxTokens)
	}
	room := ceiling / 2 // the answer has to fit, too
	if ceiling == 0 {   // it is ours
		ceiling = e.model.gen.Ceiling(effort)
		if most := e.target.MaxOutputTokens; most > 0 {
			ceiling = min(ceiling, most)
		}
		room = max(ceiling/2, ceiling-claude.AnswerRoom)
	}
	budget := min(claude.Budget(effort), room)
	if budget < minBudget {
		return false
	}
	e.inference().MaxTokens = new(int32(ceiling))
	e.further.Add("thinking", fmt.Appendf(nil, `{"type":"enabled","budget_tokens":%d}`, budget))
	e.thinks = true
	return true
}

// inUnthoughtLoop reports whether results answer a turn of the assistant that has no reasoning: the vendor wants such a
// turn to go on as it began.
func (e *encoder) inUnthoughtLoop() bool {
	n := len(e.out.Messages)
	if n < 2 {
		return false
	}
	if _, results := e.out.Messages[n-1].Content[0].(*types.ContentBlockMemberToolResult); !results {
		return false
	}
	_, thought := e.out.Messages[n-2].Content[0].(*types.ContentBlockMemberReasoningContent)
	return !thought
}
