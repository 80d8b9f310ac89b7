package vendortest

import (
	"encoding/json"
	"fmt"
	"slices"
)

// Mistral spells the same dialect as Mistral reads it: what it does not know, at any place, is an error.
func Mistral() Script {
	s := OpenAI()
	s.Check = func(c *Call) string {
		if wrong := openaiCheck(c); wrong != "" {
			return wrong
		}
		return mistralCheck(c.Body)
	}
	return s
}

type members map[string]json.RawMessage

// unknown returns the first member that is not among the known ones.
func (m members) unknown(path string, known ...string) string {
	for name := range m {
		if !slices.Contains(known, name) {
			return path + "." + name + ": extra_forbidden"
		}
	}
	return ""
}

// at reads the member of that name; what is no object has no members.
func (m members) at(name string) members {
	var out members
	_ = json.Unmarshal(m[name], &out)
	return out
}

// list reads a list of objects; what is none is empty.
func (m members) list(name string) []members {
	var out []members
	_ = json.Unmarshal(m[name], &out)
	return out
}

// mistralMessage is by role. A prefix means something to an assistant alone, and is let pass in a user's turn.
var mistralMessage = map[string][]string{
	`"system"`: {"role", "content"}, `"user"`: {"role", "content", "prefix"}, `"tool"`: {"role", "content", "name", "tool_call_id"},
	`"assistant"`: {"role", "content", "prefix", "tool_calls"},
}

// mistralParts are the members of the kinds that are told apart here; others pass.
var mistralParts = map[string][]string{
	`"text"`: {"type", "text"}, `"image_url"`: {"type", "image_url"}, `"input_audio"`: {"type", "input_audio"},
}

func mistralCheck(body []byte) string {
	var r members
	if err := json.Unmarshal(body, &r); err != nil {
		return err.Error()
	}
	found := []string{r.unknown("", "model", "messages", "temperature", "top_p", "max_tokens", "stream", "stop", "random_seed",
		"response_format", "tools", "tool_choice", "parallel_tool_calls", "presence_penalty", "frequency_penalty", "n", "prediction",
		"reasoning_effort", "prompt_mode", "metadata", "guardrails", "prompt_cache_key", "service_tier", "safe_prompt")}
	for i, m := range r.list("messages") {
		path := fmt.Sprintf("messages[%d]", i)
		known, ok := mistralMessage[string(m["role"])]
		if !ok {
			return path + ": a role that is not known"
		}
		found = append(found, m.unknown(path, known...))
		for _, p := range m.list("content") {
			if string(p["type"]) == `"refusal"` {
				return path + ": a part that is not known"
			}
			if known, ok := mistralParts[string(p["type"])]; ok {
				found = append(found, p.unknown(path+".content", known...))
			}
		}
		for _, c := range m.list("tool_calls") {
			found = append(found, c.unknown(path+".tool_calls", "id", "type", "function", "custom"),
				c.at("function").unknown(path+".tool_calls.function", "name", "arguments"))
		}
	}
	for _, t := range r.list("tools") {
		found = append(found, t.unknown("tools", "type", "function", "custom"),
			t.at("function").unknown("tools.function", "name", "description", "strict", "parameters"))
	}
	for _, wrong := range found {
		if wrong != "" {
			return wrong
		}
	}
	return ""
}
