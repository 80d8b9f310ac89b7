package openai

import (
	"slices"

	"github.com/ai-process/ktms/vendors"
)

// dialect is how one vendor departs from OpenAI.
type dialect struct {
	// baseURL is where the vendor is; empty where the target has to say so.
	baseURL string
	// azure: deployments in the path, and the key in a header of its own.
	azure bool
	// maxTokens is the member that holds the ceiling of the answer.
	maxTokens string
	// refused are request members that the vendor answers with an error or that would have no effect.
	refused []string
	// allowed, where it is set, are the only ones that the vendor takes.
	allowed []string
	// unheard are request members that Ollama takes and ignores. Other servers behind the same vendor name honour
	// them, so they are sent, and reported once the answer shows who is there.
	unheard []string
	// seed is another name for seed.
	seed string
	// reasoning are the members of an assistant's message that take its earlier reasoning.
	reasoning []string
	// thinkingMember switches thinking off with {"type":"disabled"}; without it reasoning_effort "none" does.
	thinkingMember bool
	// canDisable: there is a switch for models that declare no_thinking.
	canDisable bool
	// noDeveloper: the role developer is unknown; system means the same.
	noDeveloper bool
	// messageExtras, where it is set, are the only further members that a message may have.
	messageExtras []string
	// noSchema: an answer can be JSON, but not of a given schema.
	noSchema bool
	// usageUnasked: usage comes without stream_options, which the vendor does not know.
	usageUnasked bool
	// shortToolIDs: ids of tool calls have to be nine letters and digits.
	shortToolIDs bool
}

const (
	newMaxTokens = "max_completion_tokens"
	oldMaxTokens = "max_tokens"
)

// bothReasonings: llama.cpp reads the one, Ollama the other, vLLM either, depending on its age.
var bothReasonings = []string{"reasoning_content", "reasoning"}

var dialects = map[string]dialect{
	vendors.OpenAI: {
		baseURL: "https://api.openai.com/v1", maxTokens: newMaxTokens,
		refused: []string{"top_k"},
	},
	vendors.Azure: {
		azure: true, maxTokens: newMaxTokens,
		refused: []string{"top_k"},
	},
	vendors.DeepSeek: {
		baseURL: "https://api.deepseek.com", maxTokens: oldMaxTokens,
		refused: []string{"top_k", "seed", "n", "logit_bias", "parallel_tool_calls", "verbosity", "service_tier",
			"prompt_cache_key"},
		reasoning: []string{"reasoning_content"}, thinkingMember: true, canDisable: true, noSchema: true,
	},
	vendors.Groq: {
		baseURL: "https://api.groq.com/openai/v1", maxTokens: newMaxTokens,
		refused: []string{"top_k", "n", "logit_bias", "logprobs", "top_logprobs", "presence_penalty", "verbosity",
			"prompt_cache_key", "modalities", "audio", "prediction", "web_search_options"},
		reasoning: []string{"reasoning"},
	},
	vendors.Mistral: {
		baseURL: "https://api.mistral.ai/v1", maxTokens: oldMaxTokens, seed: "random_seed",
		allowed: []string{"model", "messages", "temperature", "top_p", "max_tokens", "stream", "stop", "seed",
			"random_seed", "response_format", "tools", "tool_choice", "parallel_tool_calls", "presence_penalty",
			"frequency_penalty", "n", "prediction", "reasoning_effort", "prompt_mode", "metadata", "guardrails",
			"prompt_cache_key", "service_tier", "safe_prompt"},
		noDeveloper: true, messageExtras: []string{"prefix"}, usageUnasked: true, shortToolIDs: true,
	},
	vendors.Ollama: {
		maxTokens: oldMaxTokens, reasoning: bothReasonings, canDisable: true, unheard: ollamaIgnores,
	},
}

// compatible is any other server, the engines of the local pool among them. It gets everything.
var compatible = dialect{maxTokens: oldMaxTokens, reasoning: bothReasonings, unheard: ollamaIgnores}

var ollamaIgnores = []string{"top_k", "n", "logit_bias", "tool_choice", "parallel_tool_calls", "verbosity", "service_tier",
	"prompt_cache_key"}

// ollamaFingerprint is the system_fingerprint of every answer of Ollama.
const ollamaFingerprint = "fp_ollama"

func dialectOf(vendor string) *dialect {
	if d, ok := dialects[vendor]; ok {
		return &d
	}
	return &compatible
}

// takes reports whether the vendor takes a request member.
func (d *dialect) takes(member string) bool {
	if d.allowed != nil {
		return slices.Contains(d.allowed, member)
	}
	return !slices.Contains(d.refused, member)
}
