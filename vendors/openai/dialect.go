package openai

import "github.com/ai-process/ktms/vendors"

// dialect is how one vendor departs from OpenAI beside the fields that it takes, which are in fields.go.
type dialect struct {
	// baseURL is where the vendor is; empty where the target has to say so.
	baseURL string
	// azure: deployments in the path, and the key in a header of its own.
	azure bool
	// newMaxTokens: the ceiling of the answer is max_completion_tokens.
	newMaxTokens bool
	// ollama: the server may be Ollama, which ignores some fields without a word.
	ollama bool
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
	// noRefusals: refusals of earlier turns are unknown; a text says the same.
	noRefusals bool
	// noSchema: an answer can be JSON, but not of a given schema.
	noSchema bool
	// enforces: a strict schema is held by the vendor itself.
	enforces bool
	// usageUnasked: usage comes without stream_options, which the vendor does not know.
	usageUnasked bool
	// packedVectors: vectors come in base64, which is a third of what their digits need.
	packedVectors bool
	// dimensions is another name for the dimensions of vectors.
	dimensions string
	// embedExtras, where it is set, are the only further members that a call for vectors may have.
	embedExtras []string
	// shortToolIDs: ids of tool calls have to be nine letters and digits.
	shortToolIDs bool
}

// maxToolID is the longest id of a tool call that OpenAI takes. Other vendors' ids can be longer.
const maxToolID = 40

// bothReasonings: llama.cpp reads the one, Ollama the other, vLLM either, depending on its age.
var bothReasonings = []string{"reasoning_content", "reasoning"}

var dialects = map[string]dialect{
	vendors.OpenAI: {
		baseURL: "https://api.openai.com/v1", newMaxTokens: true, enforces: true, packedVectors: true,
	},
	vendors.Azure: {
		azure: true, newMaxTokens: true, enforces: true, packedVectors: true,
	},
	vendors.DeepSeek: {
		baseURL: "https://api.deepseek.com", reasoning: []string{"reasoning_content"},
		thinkingMember: true, canDisable: true, noSchema: true, noDeveloper: true,
	},
	vendors.Groq: {
		baseURL: "https://api.groq.com/openai/v1", newMaxTokens: true, reasoning: []string{"reasoning"}, enforces: true,
	},
	vendors.Mistral: {
		baseURL: "https://api.mistral.ai/v1", seed: "random_seed", enforces: true,
		noDeveloper: true, noRefusals: true, messageExtras: []string{"prefix"}, usageUnasked: true, shortToolIDs: true,
		dimensions: "output_dimension", embedExtras: mistralEmbeds,
	},
	vendors.Ollama: {
		reasoning: bothReasonings, canDisable: true, ollama: true, noDeveloper: true,
	},
}

// compatible is any other server, the engines of the local pool among them.
var compatible = dialect{reasoning: bothReasonings, ollama: true, noDeveloper: true}

// ollamaFingerprint is the system_fingerprint of every answer of Ollama.
const ollamaFingerprint = "fp_ollama"

func dialectOf(vendor string) *dialect {
	if d, ok := dialects[vendor]; ok {
		return &d
	}
	return &compatible
}
