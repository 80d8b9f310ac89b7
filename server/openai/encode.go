package openai

import (
	"encoding/json"
	"strconv"
	"time"

	ktmsv1 "github.com/ai-process/ktms/api/gen/ktms/v1"
	"github.com/ai-process/ktms/vendors/openaiapi"
)

// The types of a tool call.
const (
	functionType = "function"
	customType   = "custom"
)

// idPrefix makes a request's id look as clients expect.
const idPrefix = "chatcmpl-"

// encode translates an answer. Its model is the one that answered.
func encode(r *ktmsv1.GenerateTextResponse) *openaiapi.ChatResponse {
	out := &openaiapi.ChatResponse{
		ID: idPrefix + r.GetRequestId(), Object: "chat.completion", Created: time.Now().Unix(), Model: r.GetResolvedModel(),
		Usage: usage(r.GetUsage()), ServiceTier: r.GetServiceTier(), SystemFingerprint: r.GetSystemFingerprint(),
		Extra: members(r.GetExtraJson()), Choices: make([]openaiapi.Choice, 0, len(r.GetChoices())),
	}
	for _, c := range r.GetChoices() {
		message := openaiapi.Message{Role: "assistant", Refusal: c.GetRefusal(), ReasoningContent: c.GetReasoning(), Extra: members(c.GetExtraJson())}
		message.Content = openaiapi.TextContent(c.GetText())
		if c.GetText() == "" && (len(c.GetToolCalls()) > 0 || c.GetRefusal() != "") {
			message.Content = openaiapi.NullContent()
		}
		for _, call := range c.GetToolCalls() {
			message.ToolCalls = append(message.ToolCalls, toolCall(call))
		}
		addOpaque(&message, c.GetOpaque())
		choice := openaiapi.Choice{Index: int64(c.GetIndex()), Message: message, FinishReason: c.GetFinishReason()}
		if c.GetLogprobsJson() != "" {
			choice.Logprobs = json.RawMessage(c.GetLogprobsJson())
		}
		out.Choices = append(out.Choices, choice)
	}
	return out
}

func toolCall(c *ktmsv1.ToolCall) openaiapi.ToolCall {
	out := openaiapi.ToolCall{ID: c.GetId(), Type: functionType, Extra: members(c.GetExtraJson())}
	if c.GetType() == customType {
		out.Type, out.Custom = customType, &openaiapi.CustomCall{Name: c.GetName(), Input: c.GetArguments()}
	} else {
		out.Function = &openaiapi.FunctionCall{Name: c.GetName(), Arguments: c.GetArguments()}
	}
	return out
}

func addOpaque(m *openaiapi.Message, opaque string) {
	if opaque != "" {
		m.Extra.Add(opaqueMember, openaiapi.AppendString(nil, opaque))
	}
}

// members reads a vendor's further members, which are an object or nothing.
func members(text string) openaiapi.Members {
	if text == "" {
		return nil
	}
	out, err := openaiapi.ParseMembers([]byte(text))
	if err != nil {
		return nil
	}
	return out
}

func usage(u *ktmsv1.TokensUsage) *openaiapi.Usage {
	if u == nil {
		return nil
	}
	out := &openaiapi.Usage{
		PromptTokens: u.GetInput(), CompletionTokens: u.GetOutput(), TotalTokens: u.GetInput() + u.GetOutput(),
		PromptTokensDetails: &openaiapi.PromptTokensDetails{CachedTokens: u.GetCacheRead(),
			CacheWriteTokens: u.GetCacheWrite() + u.GetCacheWrite_1H(), AudioTokens: u.GetInputAudio()},
		CompletionTokensDetails: &openaiapi.CompletionTokensDetails{ReasoningTokens: u.GetReasoning(),
			AudioTokens: u.GetOutputAudio(), AcceptedPredictionTokens: u.GetAcceptedPrediction(),
			RejectedPredictionTokens: u.GetRejectedPrediction()},
	}
	if cost := u.GetCostNanousd(); cost > 0 {
		out.Extra.Add("cost_nanousd", strconv.AppendInt(nil, cost, 10))
	}
	if u.GetEstimated() {
		out.Extra.Add("estimated", json.RawMessage("true"))
	}
	return out
}
