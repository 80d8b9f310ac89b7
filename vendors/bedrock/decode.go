package bedrock

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime"
	"github.com/aws/aws-sdk-go-v2/service/bedrockruntime/types"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors"
	"github.com/ai-process/ktms/vendors/claude"
)

// maxBlocks bounds the calls and the thoughts of an answer: more are a fault, and each one is remembered.
const maxBlocks = 1024

// decode turns a complete answer into ours. Its errors have no status; the caller knows it. An answer that is of no use
// is billed all the same.
func (c *call) decode(out *bedrockruntime.ConverseOutput) (*ktmsv1.GenerateTextResponse, *vendors.Error) {
	response, failed := c.response(out)
	if failed != nil {
		failed.Usage = usage(out.Usage)
	}
	return response, failed
}

func (c *call) response(out *bedrockruntime.ConverseOutput) (*ktmsv1.GenerateTextResponse, *vendors.Error) {
	message, ok := out.Output.(*types.ConverseOutputMemberMessage)
	if !ok {
		return nil, c.unavailable(c.explain("answered without a message"))
	}
	choice := &ktmsv1.Choice{}
	var order claude.Order
	thoughts := 0
	var said, reasoning strings.Builder
	inputs := toolInputs(c.exchange.body)
	for _, block := range message.Value.Content {
		switch b := block.(type) {
		case *types.ContentBlockMemberText:
			said.WriteString(b.Value)
			order.Text(len(b.Value))
		case *types.ContentBlockMemberCitationsContent:
			for _, piece := range b.Value.Content {
				if text, ok := piece.(*types.CitationGeneratedContentMemberText); ok {
					said.WriteString(text.Value)
					order.Text(len(text.Value))
				}
			}
		case *types.ContentBlockMemberReasoningContent:
			t := readThought(b.Value)
			reasoning.WriteString(t.Thinking)
			order.Think(t)
			if thoughts++; thoughts > maxBlocks {
				return nil, c.tooMany()
			}
		case *types.ContentBlockMemberToolUse:
			if len(inputs) == 0 || text(b.Value.Name) == "" {
				return nil, c.unavailable("answered with a tool call that cannot be read")
			}
			input := inputs[0]
			inputs = inputs[1:]
			if b.Value.Type == types.ToolUseTypeServerToolUse {
				continue // the vendor answers those itself
			}
			id := callID(b.Value.ToolUseId, len(choice.ToolCalls))
			order.Call(id)
			choice.ToolCalls = append(choice.ToolCalls, &ktmsv1.ToolCall{
				Id: id, Name: c.callerName(text(b.Value.Name)), Type: "function", Arguments: input,
			})
			if len(choice.ToolCalls) > maxBlocks {
				return nil, c.tooMany()
			}
		}
	}
	choice.Text, choice.Reasoning = said.String(), reasoning.String()
	something := choice.Text != "" || choice.Reasoning != "" || len(choice.ToolCalls) > 0
	ending, failed := c.finish(string(out.StopReason), something, len(choice.ToolCalls) > 0)
	if failed != nil {
		return nil, failed
	}
	if ending.blocked {
		return nil, c.blocked(string(out.StopReason), choice.Text)
	}
	choice.FinishReason, choice.RawFinishReason = ending.ours, ending.raw
	choice.Opaque = order.Seal(dialect, c.target.Model)
	response := &ktmsv1.GenerateTextResponse{Choices: []*ktmsv1.Choice{choice}, Usage: usage(out.Usage)}
	if out.ServiceTier != nil {
		response.ServiceTier = string(out.ServiceTier.Type)
	}
	if out.Trace != nil && out.Trace.PromptRouter != nil {
		response.VendorModel = text(out.Trace.PromptRouter.InvokedModelId)
	}
	return response, nil
}

func (c *call) tooMany() *vendors.Error {
	return c.unavailable("answered with more blocks than can be")
}

// callID is a call's id. A result has to name what it answers, so that one that is missing is made up.
func callID(id *string, at int) string {
	if text(id) == "" {
		return fmt.Sprintf("call_unnamed_%d", at)
	}
	return valid(*id)
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return valid(*s)
}

func readThought(block types.ReasoningContentBlock) claude.Thought {
	switch b := block.(type) {
	case *types.ReasoningContentBlockMemberReasoningText:
		return newThought(text(b.Value.Text), text(b.Value.Signature), nil)
	case *types.ReasoningContentBlockMemberRedactedContent:
		return newThought("", "", b.Value)
	}
	return claude.Thought{}
}

// toolInputs are the arguments of an answer's calls in turn, as the vendor wrote them. The SDK's documents lose the order
// of members.
func toolInputs(body []byte) []string {
	var wire struct {
		Output struct {
			Message struct {
				Content []struct {
					ToolUse *struct {
						Input json.RawMessage `json:"input"`
					} `json:"toolUse"`
				} `json:"content"`
			} `json:"message"`
		} `json:"output"`
	}
	if json.Unmarshal(body, &wire) != nil {
		return nil
	}
	var out []string
	for _, block := range wire.Output.Message.Content {
		switch {
		case block.ToolUse == nil:
		case len(block.ToolUse.Input) == 0 || string(block.ToolUse.Input) == "null":
			out = append(out, "{}")
		default:
			out = append(out, strings.ToValidUTF8(string(block.ToolUse.Input), "\uFFFD"))
		}
	}
	return out
}

// callerName turns a tool's name back that was rewritten on the way.
func (c *call) callerName(wire string) string {
	if name, ok := c.encoded.names[wire]; ok {
		return name
	}
	return wire
}

// finishReasons maps every reason that the vendor is known to give. guardrail_intervened and content_filtered let the
// call go on to the next candidate where nothing was said yet.
var finishReasons = map[string]string{
	"end_turn": "stop", "stop_sequence": "stop", "tool_use": "tool_calls", "max_tokens": "length",
	"model_context_window_exceeded": "length", "guardrail_intervened": "content_filter", "content_filtered": "content_filter",
}

// ktmsReasons are the words of ktms.v1.
var ktmsReasons = map[string]bool{"stop": true, "length": true, "tool_calls": true, "content_filter": true}

// ending is why an answer ended. raw is the vendor's word where it is not one of ours.
type ending struct {
	ours, raw string
	blocked   bool
}

// finish maps a finish reason. An unknown word after something was said is a normal end; after nothing it is a failure,
// and so is a model that wrote what cannot be read: another try can succeed.
func (c *call) finish(reason string, said, calls bool) (ending, *vendors.Error) {
	ours, known := finishReasons[reason]
	switch {
	case strings.HasPrefix(reason, "malformed_"), !known && !said:
		if reason == "" {
			return ending{}, c.unavailable("answered with nothing")
		}
		return ending{}, c.unavailable("the answer ended with " + c.creds.shown(reason))
	case !known:
		ours = "stop"
	}
	if ours == "stop" && calls {
		ours = "tool_calls"
	}
	out := ending{ours: ours, blocked: ours == "content_filter"}
	if !ktmsReasons[reason] {
		out.raw = reason
	}
	return out, nil
}
