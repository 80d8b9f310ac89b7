package vendortest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// openaiCheck reads a chat request as OpenAI does: types, ranges, and that every call of a tool is answered by the turns
// right after it. Members that it does not know pass: servers of this dialect have many of their own.
func openaiCheck(c *Call) string {
	var r struct {
		Model               *string           `json:"model"`
		Messages            []openaiTurn      `json:"messages"`
		Temperature         *float64          `json:"temperature"`
		TopP                *float64          `json:"top_p"`
		Stop                []string          `json:"stop"`
		Seed                *int64            `json:"seed"`
		RandomSeed          *int64            `json:"random_seed"`
		N                   *int              `json:"n"`
		Logprobs            *bool             `json:"logprobs"`
		TopLogprobs         *int              `json:"top_logprobs"`
		MaxTokens           *int              `json:"max_tokens"`
		MaxCompletionTokens *int              `json:"max_completion_tokens"`
		LogitBias           map[string]any    `json:"logit_bias"`
		Tools               []json.RawMessage `json:"tools"`
		ToolChoice          json.RawMessage   `json:"tool_choice"`
		ParallelToolCalls   *bool             `json:"parallel_tool_calls"`
		Stream              *bool             `json:"stream"`
		StreamOptions       map[string]any    `json:"stream_options"`
		ResponseFormat      *struct {
			Type       string `json:"type"`
			JSONSchema *struct {
				Name   string          `json:"name"`
				Strict *bool           `json:"strict"`
				Schema json.RawMessage `json:"schema"`
			} `json:"json_schema"`
		} `json:"response_format"`
	}
	if err := json.Unmarshal(c.Body, &r); err != nil {
		return err.Error()
	}
	switch {
	case r.Model == nil || len(r.Messages) == 0:
		return "model and messages are required"
	case r.Temperature != nil && (*r.Temperature < 0 || *r.Temperature > 2), r.TopP != nil && (*r.TopP < 0 || *r.TopP > 1):
		return "a sampling parameter is out of range"
	case len(r.Stop) > 4:
		return "at most 4 stop sequences"
	case r.MaxTokens != nil && r.MaxCompletionTokens != nil:
		return "max_tokens and max_completion_tokens exclude each other"
	case r.StreamOptions != nil && (r.Stream == nil || !*r.Stream):
		return "stream_options is only for streams"
	case r.ParallelToolCalls != nil && len(r.Tools) == 0, len(r.ToolChoice) > 0 && len(r.Tools) == 0:
		return "tool parameters without tools"
	case r.TopLogprobs != nil && *r.TopLogprobs > 0 && (r.Logprobs == nil || !*r.Logprobs):
		return "top_logprobs needs logprobs"
	}
	if f := r.ResponseFormat; f != nil {
		switch {
		case f.Type == "json_schema" && (f.JSONSchema == nil || f.JSONSchema.Name == "" || len(f.JSONSchema.Schema) == 0):
			return "json_schema needs a name and a schema"
		case !slices.Contains([]string{"text", "json_object", "json_schema"}, f.Type):
			return "unknown response_format " + f.Type
		}
	}
	for i, raw := range r.Tools {
		if wrong := openaiTool(raw); wrong != "" {
			return fmt.Sprintf("tools[%d]: %s", i, wrong)
		}
	}
	return openaiTurns(r.Messages)
}

type openaiTurn struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	Refusal    *string         `json:"refusal"`
	Name       *string         `json:"name"`
	ToolCallID *string         `json:"tool_call_id"`
	ToolCalls  []struct {
		ID       string `json:"id"`
		Type     string `json:"type"`
		Function *struct {
			Name      string  `json:"name"`
			Arguments *string `json:"arguments"`
		} `json:"function"`
		Custom *struct {
			Name  string  `json:"name"`
			Input *string `json:"input"`
		} `json:"custom"`
	} `json:"tool_calls"`
}

func openaiTool(raw json.RawMessage) string {
	var t struct {
		Type     string `json:"type"`
		Function *struct {
			Name       string         `json:"name"`
			Parameters map[string]any `json:"parameters"`
			Strict     *bool          `json:"strict"`
		} `json:"function"`
		Custom map[string]any `json:"custom"`
	}
	if err := json.Unmarshal(raw, &t); err != nil {
		return err.Error()
	}
	if t.Type == "function" && (t.Function == nil || t.Function.Name == "") || t.Type == "custom" && t.Custom == nil {
		return "a tool without its definition"
	}
	return ""
}

// longestOpenAIID is the longest id of a tool call that OpenAI takes.
const longestOpenAIID = 40

func openaiTurns(turns []openaiTurn) string {
	var open []string // calls that wait for their result
	for i, m := range turns {
		if len(open) > 0 && m.Role != "tool" {
			return fmt.Sprintf("messages[%d]: the calls %s have no result", i, strings.Join(open, ", "))
		}
		content := strings.TrimSpace(string(m.Content))
		var parts []struct {
			Type string `json:"type"`
		}
		switch {
		case content == "" || content == "null":
			if m.Role != "assistant" || len(m.ToolCalls) == 0 && m.Refusal == nil {
				return fmt.Sprintf("messages[%d]: content is missing", i)
			}
		case content[0] == '[':
			if err := json.Unmarshal(m.Content, &parts); err != nil || len(parts) == 0 {
				return fmt.Sprintf("messages[%d]: no parts", i)
			}
			for _, p := range parts {
				if p.Type != "text" && m.Role != "user" && (m.Role != "assistant" || p.Type != "refusal") {
					return fmt.Sprintf("messages[%d]: a part of type %s in a turn of %s", i, p.Type, m.Role)
				}
			}
		case content[0] != '"':
			return fmt.Sprintf("messages[%d]: content of a wrong type", i)
		}
		switch m.Role {
		case "system", "developer", "user":
		case "tool":
			at := -1
			if m.ToolCallID != nil {
				at = slices.Index(open, *m.ToolCallID)
			}
			if at < 0 {
				return fmt.Sprintf("messages[%d]: the result of callnum07 or another that nobody called", i)
			}
			open = slices.Delete(open, at, at+1)
		case "assistant":
			for _, call := range m.ToolCalls {
				switch {
				case call.ID == "" || len(call.ID) > longestOpenAIID:
					return fmt.Sprintf("messages[%d]: an id of %d characters", i, len(call.ID))
				case call.Type == "function" && (call.Function == nil || call.Function.Name == "" || call.Function.Arguments == nil),
					call.Type == "custom" && (call.Custom == nil || call.Custom.Input == nil), call.Type != "function" && call.Type != "custom":
					return fmt.Sprintf("messages[%d]: a call without its function", i)
				}
				open = append(open, call.ID)
			}
		default:
			return fmt.Sprintf("messages[%d]: unknown role %q", i, m.Role)
		}
	}
	if len(open) > 0 {
		return "the calls " + strings.Join(open, ", ") + " have no result"
	}
	return ""
}
